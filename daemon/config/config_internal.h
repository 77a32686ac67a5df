/* Inside the reader of trajd.yaml: what its files share beside the table of keys. */
#ifndef TRAJD_CONFIG_CONFIG_INTERNAL_H
#define TRAJD_CONFIG_CONFIG_INTERNAL_H

#include "daemon/base/arena.h"
#include "daemon/base/json.h"
#include "daemon/config/config.h"

/* ---- config_merge.c ---- */

/* Merges the mapping `base` into the mapping `node`. Keys that `node` lacks are added, with the
 * lines and paths of `base`; mappings in both are merged in the same way; a key whose value is null
 * is left out. The order is that of `base`, then the further keys of `node`. `arena` has the new
 * nodes; it and the document of `base` must live as long as that of `node`. False: no memory. */
bool trajd_config_merge(struct trajd_arena *arena, const struct trajd_yaml_node *node,
                        const struct trajd_yaml_node *base);
/* Removes a key of a mapping, if it is there. */
void trajd_config_remove(const struct trajd_yaml_node *mapping, const char *key);

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
