/* Inside the parser of a feed's specification: window_spec_copy.c at the bottom, then outputs
 * (window_spec_output.c, window_spec_norm.c) and selection (window_spec_select.c), keys
 * (window_spec_keys.c), mixtures (window_spec_mix.c), and window_spec.c on top. */
#ifndef TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H

#include <stddef.h>

#include "daemon/window/feed_spec/window_spec.h"

#define TRAJD_SPEC_MAX_NS (INT64_C(86400) * 1000000000) /* no window is longer than a day */

/* A spec and everything it points to, freed together. */
struct trajd_owned_spec {
    struct trajd_window_spec spec;
    void **blocks;
    size_t block_count, block_room;
    struct trajd_ranges *ranges; /* all that members use */
};

struct trajd_spec_parser {
    const struct trajd_yaml *yaml;
    struct trajd_owned_spec *owned; /* owns the copies */
    /* the spec that keys are written to: the owned one, or that of a member of its mixture */
    struct trajd_window_spec *spec;
    struct trajd_error *error;
};

/* Copies bytes into memory that lives as long as the spec; bytes NULL: only allocates. NULL: no
 * memory. */
void *trajd_spec_copy(struct trajd_spec_parser *p, const void *bytes, size_t size);
enum trajd_status trajd_spec_copy_string(struct trajd_spec_parser *p, const char *text,
                                         const char **out);
/* Reads a stream's name or a list of them, and replaces the output's sources. */
enum trajd_status trajd_spec_read_sources(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_output *output);
/* Reads `outputs:`. */
enum trajd_status trajd_spec_read_outputs(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node);
/* Checks that the keys of an output fit each other, and sets the role that some of them imply.
 * `node`: the output. */
enum trajd_status trajd_spec_check_output(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_output *output);
/* Reads one key of a feed into p->spec. The caller has checked its name. */
enum trajd_status trajd_spec_read_key(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node);

/* Reads all keys of a feed but `mix:` and `epoch:`. Other keys are errors. */
enum trajd_status trajd_spec_read_keys(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *feed);
/* Reads `mix:` and `epoch:`, or `dataset:`, of a feed whose other keys have been read. */
enum trajd_status trajd_spec_read_members(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *feed);
/* Reads a scalar's text and copies it. */
enum trajd_status trajd_spec_read_string(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node, const char **out);
/* ---- window_spec_select.c: each reads the key of its name ---- */

enum trajd_status trajd_spec_read_filter(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node);
enum trajd_status trajd_spec_read_where(struct trajd_spec_parser *p,
                                        const struct trajd_yaml_node *node);
enum trajd_status trajd_spec_read_episodes(struct trajd_spec_parser *p,
                                           const struct trajd_yaml_node *node);
enum trajd_status trajd_spec_read_split(struct trajd_spec_parser *p,
                                        const struct trajd_yaml_node *node);
enum trajd_status trajd_spec_read_ranges(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node);

/* ---- window_spec_norm.c ---- */

/* Reads an output's `norm:`. */
enum trajd_status trajd_spec_read_norm(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_spec_output *output);

#endif
