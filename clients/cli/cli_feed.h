/* What the subcommands that connect to a daemon have in common. */
#ifndef TRAJD_CLI_CLI_FEED_H
#define TRAJD_CLI_CLI_FEED_H

#include "clients/c/trajd.h"
#include "clients/cli/cli.h"
#include "clients/cli/files/answer.h"
#include "clients/cli/files/private_daemons.h"

/* The options that name a daemon, of struct cli_connection. */
extern const struct cli_option cli_daemon_options[];

/* Returns whether an option or the environment names the daemon. */
bool cli_has_endpoint(const struct cli_connection *connection);
/* Returns whether a daemon has, or has had, a socket at CLI_SERVICE_ENDPOINT (private_daemons.h). */
bool cli_service_runs(void);
/* Prints that no daemon runs, after private_daemons_find found none, and what starts one. Returns
 * CLI_FAILED. */
int cli_fail_without_daemon(const struct private_daemons *found);
/* Connects to the daemon. If none is named and no service runs, it is the private daemon of this
 * user, or of several alike the newest, which a line on stderr says. Returns NULL after it printed
 * an error. */
struct trajd_client *cli_try_connect(const struct cli_connection *connection);
/* The same, but ends the program if there is no daemon. The connection is closed when the program
 * ends, so that the daemon does not take it for one that has died. */
struct trajd_client *cli_connect(const struct cli_connection *connection);
/* Opens the feed: in mode shard if a world is named. */
enum trajd_status cli_open(struct trajd_client *client, struct trajd_open_options options,
                           struct trajd_error *error);

/* Queries, also about a feed that is not opened, so that no job is affected. They end the program
 * after an error. */

/* Parses an answer, which the caller destroys. */
struct trajd_yaml *cli_parse_answer(const char *text);
/* Sends a query. Returns the parsed reply, which the caller destroys, and its text in *json, which
 * the caller frees; json may be NULL. */
struct trajd_yaml *cli_query(struct trajd_client *client, const struct trajd_question *question,
                             char **json);
/* Returns the daemon's status, which the caller destroys. */
struct trajd_yaml *cli_query_status(struct trajd_client *client);
/* Returns the number of a feed by its name, in the daemon's status. The error lists the feeds. */
uint32_t cli_find_feed(struct trajd_client *client, const char *name);
/* Sets *first to the begin of the next page. Returns false after the last page, and for an invalid
 * value. */
bool cli_next_page(const struct trajd_yaml_node *page, uint64_t *first);

#endif
