/* Between window_spec.c and window_spec_norm.c: what parses a feed, and where its texts go. */
#ifndef TRAJD_DATASET_WINDOW_SPEC_PRIVATE_H
#define TRAJD_DATASET_WINDOW_SPEC_PRIVATE_H

#include "daemon/dataset/window_spec.h"

/* The spec and everything it names, freed together. */
struct trajd_owned_spec {
    struct trajd_window_spec spec;
    void **blocks;
    size_t block_count, block_room;
};

struct trajd_spec_parser {
    const struct trajd_yaml *yaml;
    struct trajd_owned_spec *owned;
    struct trajd_error *error;
};

/* Memory that lives as long as the spec, with a copy of `bytes` unless NULL; NULL without memory. */
void *trajd_spec_keep(struct trajd_spec_parser *p, const void *bytes, size_t size);
/* A scalar's text, kept. */
enum trajd_status trajd_spec_read_string(struct trajd_spec_parser *p, const struct trajd_yaml_node *node, const char **out);
/* An output's `norm:`. */
enum trajd_status trajd_spec_read_norm(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                       struct trajd_spec_output *output);

#endif
