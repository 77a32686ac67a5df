/* The keys that are single values: a table, shared by the reader (config.c), the printer
 * (config_print.c) and the reload (daemon/control/reload_keys.c). What else the files of this folder
 * share. */
#ifndef TRAJD_CONFIG_CONFIG_KEYS_H
#define TRAJD_CONFIG_CONFIG_KEYS_H

#include <stddef.h>

#include "daemon/base/json.h"
#include "daemon/config/config.h"

enum trajd_config_key_type { KEY_STRING, KEY_BOOL, KEY_SIZE, KEY_COUNT, KEY_DURATION };

struct trajd_config_key {
    const char *section; /* NULL: the top level */
    const char *name;
    enum trajd_config_key_type type;
    size_t offset;              /* of the value in struct trajd_config */
    int64_t low, high, initial; /* allowed range, ends included, and the default */
};

/* The keys of a section stand side by side. */
extern const struct trajd_config_key trajd_config_keys[];
extern const size_t trajd_config_key_count;

/* Returns true where `name` is "SECTION.NAME" (or "NAME" at the top level) of the key. */
bool trajd_config_key_is_named(const struct trajd_config_key *key, const char *name);
/* Sets a number to its default. Strings and booleans are 0 by default: the structure is zeroed. */
void trajd_config_set_default(struct trajd_config *config, const struct trajd_config_key *key);
/* Reads the value of a key and checks its type and range. TRAJD_ERR_ARGUMENT names file, line and
 * key. */
enum trajd_status trajd_config_read_key(struct trajd_config *config,
                                        const struct trajd_config_key *key,
                                        const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_error *error);

/* ---- config_like.c ---- */

/* Replaces each feed that has `like:` by the merged mapping, in the document itself. */
enum trajd_status trajd_config_resolve_like(struct trajd_config *config,
                                            const struct trajd_yaml_node *feeds,
                                            struct trajd_error *error);

/* ---- config_print.c ---- */

/* Writes a node as JSON. Numbers, booleans and null stay such. */
void trajd_config_print_node(const struct trajd_yaml_node *node, const char *name,
                             struct trajd_json *json);

#endif
