/* What the subcommands that speak to a daemon have in common. */
#ifndef TRAJD_CLI_CLI_FEED_H
#define TRAJD_CLI_CLI_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/trajd.h"

struct cli_feed_arguments {
    const char *endpoint;              /* NULL: $TRAJD_ENDPOINT, else the default */
    const char *key_file, *server_key; /* of a tcp:// endpoint */
    const char *feed, *job, *output;
    const char *out, *format; /* of a file to write */
    uint64_t count, seconds, workers, credit, epoch, next, rank, world, window, position;
    bool json;
};

/* Options of argv into `arguments`, which holds the defaults; the names of those that the command
 * knows, NULL-ended, in `known`. False: something is wrong, and has been said. */
bool cli_parse_feed(int argc, char **argv, const char *const *known,
                    struct cli_feed_arguments *arguments);
/* NULL: it has been said why. */
struct trajd_client *cli_connect(const struct cli_feed_arguments *arguments, bool reconnect);
enum trajd_status cli_open(struct trajd_client *client, const struct cli_feed_arguments *arguments,
                           struct trajd_error *error);

#endif
