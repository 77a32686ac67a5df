/* Questions about a feed that is not opened: no job notices. JSON is YAML, so one reader serves. */
#ifndef TRAJD_CLI_CLI_QUERY_H
#define TRAJD_CLI_CLI_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/trajd.h"
#include "daemon/base/yaml.h"

/* The parsed answer, to be destroyed, and its text in *json, to be freed; NULL: it has been said
 * why. */
struct trajd_yaml *cli_query(struct trajd_client *client, const struct trajd_question *question,
                             char **json);
/* The number of the feed of that name, from the daemon's status. False: it has been said which
 * there are. */
bool cli_find_feed(struct trajd_client *client, const char *name, uint32_t *feed_id);

/* The text of a member, "" where there is none; as a number; the first member of a list or mapping,
 * or NULL. */
const char *cli_text(const struct trajd_yaml_node *mapping, const char *key);
int64_t cli_number(const struct trajd_yaml_node *mapping, const char *key);
const struct trajd_yaml_node *cli_first(const struct trajd_yaml_node *mapping, const char *key);

/* `first` of the page behind this one. False: it is the last, or says nonsense. */
bool cli_next_page(const struct trajd_yaml_node *page, uint64_t *first);

#endif
