/* What the subcommands that connect to a daemon have in common. */
#ifndef TRAJD_CLI_CLI_FEED_H
#define TRAJD_CLI_CLI_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/trajd.h"

struct cli_feed_arguments {
    const char *endpoint; /* NULL: $TRAJD_ENDPOINT, else the service, else a private daemon */
    const char *key_file, *server_key; /* for a tcp:// endpoint */
    const char *feed, *job, *output;
    const char *out, *format; /* a file to write, and its format */
    uint64_t count, seconds, workers, credit, epoch, next, rank, world, window, position;
    bool json, watch;
};

/* Reads the options of argv, which begins with the subcommand, into `arguments`, which holds the
 * defaults. `known` lists the options that the subcommand takes, NULL-terminated. Returns false after
 * it printed an error. */
bool cli_parse_feed(int argc, char **argv, const char *const *known,
                    struct cli_feed_arguments *arguments);
/* Returns whether an option or the environment names the daemon. */
bool cli_has_endpoint(const struct cli_feed_arguments *arguments);

/* Returns whether a daemon has, or has had, a socket at CLI_SERVICE_ENDPOINT (private_daemons.h). */
bool cli_service_runs(void);
struct private_daemons;
/* Prints that no daemon runs, after private_daemons_find found none, and what starts one. Returns
 * CLI_FAILED. */
int cli_fail_without_daemon(const struct private_daemons *found);
/* Connects to the daemon. If none is named and no service runs, it is the private daemon of this
 * user, or of several alike the newest, which a line on stderr says. Returns NULL after it printed
 * an error. */
struct trajd_client *cli_connect(const struct cli_feed_arguments *arguments, bool reconnect);
enum trajd_status cli_open(struct trajd_client *client, const struct cli_feed_arguments *arguments,
                           struct trajd_error *error);

#endif
