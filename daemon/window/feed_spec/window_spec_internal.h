/* Inside the parser of a feed's specification. Its functions read one key each, and fit a table of
 * keys (daemon/base/yaml.h). The arena of the reader lives as long as the specification. */
#ifndef TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H

#include "daemon/window/feed_spec/window_spec.h"

#define TRAJD_SPEC_MAX_NS (INT64_C(86400) * 1000000000) /* no window is longer than a day */

/* Reads `outputs:` into a struct trajd_window_spec. */
enum trajd_status trajd_spec_read_outputs(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node, void *spec);
/* Reads a stream's name or a list of them, and replaces the sources of the output. */
enum trajd_status trajd_spec_read_sources(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node, void *output);
/* Reads the keys of an output that one dataset of a mixture has otherwise into a copy of the
 * feed's output. */
enum trajd_status trajd_spec_read_member_output(const struct trajd_yaml_reader *r,
                                                const struct trajd_yaml_node *node, void *output);
/* Reads `norm:` of an output. */
enum trajd_status trajd_spec_read_norm(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node, void *output);

/* ---- window_spec_select.c: each reads the key of its name into a struct trajd_select_rules ---- */

enum trajd_status trajd_spec_read_where(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *rules);
enum trajd_status trajd_spec_read_episodes(const struct trajd_yaml_reader *r,
                                           const struct trajd_yaml_node *node, void *rules);
enum trajd_status trajd_spec_read_split(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *rules);
enum trajd_status trajd_spec_read_ranges(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *rules);

#endif
