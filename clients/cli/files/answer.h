/* Members of a daemon's answer. JSON is YAML, so the YAML reader has parsed it. A path is a key, or
 * keys with dots between them: "store.total_bytes". */
#ifndef TRAJD_CLI_FILES_ANSWER_H
#define TRAJD_CLI_FILES_ANSWER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"

/* Returns the member, or NULL. `mapping` may be NULL, too. */
static inline const struct trajd_yaml_node *cli_find(const struct trajd_yaml_node *mapping,
                                                     const char *path)
{
    while (mapping && *path) {
        const size_t length = strcspn(path, ".");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        mapping = trajd_yaml_get(mapping, key);
        path += length + (path[length] == '.');
    }
    return mapping;
}

/* Returns its text; "" if it is missing. */
static inline const char *cli_text(const struct trajd_yaml_node *mapping, const char *path)
{
    const struct trajd_yaml_node *node = cli_find(mapping, path);
    return node && node->value ? node->value : "";
}

static inline int64_t cli_number(const struct trajd_yaml_node *mapping, const char *path)
{
    return strtoll(cli_text(mapping, path), NULL, 10);
}

/* Returns its first element, or NULL. */
static inline const struct trajd_yaml_node *cli_first(const struct trajd_yaml_node *mapping,
                                                      const char *path)
{
    const struct trajd_yaml_node *node = cli_find(mapping, path);
    return node ? node->children : NULL;
}

/* Returns the element of a list in which the member `key` has that text, or NULL. */
static inline const struct trajd_yaml_node *cli_find_item(const struct trajd_yaml_node *mapping,
                                                          const char *list, const char *key,
                                                          const char *text)
{
    const struct trajd_yaml_node *item = cli_first(mapping, list);

    while (item && strcmp(cli_text(item, key), text))
        item = item->next;
    return item;
}

#endif
