/* Between the readers of a feed's specification: window_spec.c, its outputs in
 * window_spec_output.c, their `norm:` in window_spec_norm.c, and what is said per dataset of a
 * mixture in window_spec_mix.c. */
#ifndef TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_SPEC_INTERNAL_H

#include <stddef.h>

#include "daemon/window/window_spec.h"

#define TRAJD_SPEC_MAX_NS (INT64_C(86400) * 1000000000) /* no window is longer than a day */

/* The spec and everything it names, freed together. */
struct trajd_owned_spec {
    struct trajd_window_spec spec;
    void **blocks;
    size_t block_count, block_room;
};

struct trajd_spec_parser {
    const struct trajd_yaml *yaml;
    struct trajd_owned_spec *owned; /* of what is kept */
    /* that is written to: the owner's, or that of a dataset of its mixture */
    struct trajd_window_spec *spec;
    struct trajd_error *error;
};

/* A copy (bytes NULL: room) that lives as long as the spec; NULL: no memory. */
void *trajd_spec_copy(struct trajd_spec_parser *p, const void *bytes, size_t size);
enum trajd_status trajd_spec_copy_string(struct trajd_spec_parser *p, const char *text,
                                         const char **out);
/* A stream's name or a list of them, in place of those that the output has. */
enum trajd_status trajd_spec_read_sources(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_output *output);
/* `outputs:`, in window_spec_output.c. */
enum trajd_status trajd_spec_read_outputs(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node);
/* One key of a feed into p->spec; its name is known to be one. */
enum trajd_status trajd_spec_read_key(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node);

/* All keys of a feed but `mix:` and `epoch:`; no other keys may be there. */
enum trajd_status trajd_spec_read_keys(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *feed);
/* `mix:` and `epoch:` of a feed whose other keys have been read; or its one dataset. */
enum trajd_status trajd_spec_read_members(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *feed);
/* A scalar's text, kept. */
enum trajd_status trajd_spec_read_string(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node, const char **out);
/* `filter:`, in window_filter.c. */
enum trajd_status trajd_spec_read_episode_filter(struct trajd_spec_parser *p,
                                                 const struct trajd_yaml_node *node);
/* An output's `norm:`. */
enum trajd_status trajd_spec_read_norm(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_spec_output *output);

#endif
