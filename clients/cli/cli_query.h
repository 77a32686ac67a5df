/* Queries about a feed that is not opened, so that no job is affected. JSON is YAML, so the YAML
 * reader parses the replies. */
#ifndef TRAJD_CLI_CLI_QUERY_H
#define TRAJD_CLI_CLI_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/trajd.h"
#include "daemon/base/yaml.h"

/* Sends a query. Returns the parsed reply, which the caller destroys, and its text in *json, which
 * the caller frees; json may be NULL. Ends the program after an error. */
struct trajd_yaml *cli_query(struct trajd_client *client, const struct trajd_question *question,
                             char **json);
/* Returns the daemon's status, which the caller destroys. Ends the program after an error. */
struct trajd_yaml *cli_query_status(struct trajd_client *client);
/* Returns the number of a feed by its name, in the daemon's status. Ends the program after an error
 * that lists the feeds. */
uint32_t cli_find_feed(struct trajd_client *client, const char *name);

/* Return a member of a mapping: its text ("" if it is missing), its number, or its first element
 * (NULL if it is missing). */
const char *cli_text(const struct trajd_yaml_node *mapping, const char *key);
int64_t cli_number(const struct trajd_yaml_node *mapping, const char *key);
const struct trajd_yaml_node *cli_first(const struct trajd_yaml_node *mapping, const char *key);

/* Sets *first to the begin of the next page. Returns false after the last page, and for an invalid
 * value. */
bool cli_next_page(const struct trajd_yaml_node *page, uint64_t *first);

#endif
