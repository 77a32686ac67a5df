/* What the files that read a layout share; nobody else includes it. layout.c reads the document,
 * layout_clock.c its clocks, layout_stream.c its streams, layout_meta.c its texts. */
#ifndef TRAJD_LAYOUT_LAYOUT_INTERNAL_H
#define TRAJD_LAYOUT_LAYOUT_INTERNAL_H

#include "daemon/base/arena.h"
#include "daemon/base/yaml.h"
#include "daemon/layout/layout.h"

#define TRAJD_LAYOUT_CLOCKS_MAX 256
#define TRAJD_LAYOUT_STREAMS_MAX 1024
#define TRAJD_LAYOUT_PATH_MAX 1024

/* The layout and what it is built in. The arena lies beside it, so that one pointer frees both. */
struct trajd_layout_memory {
    struct trajd_layout layout; /* first: a pointer to it is one to the whole */
    struct trajd_arena arena;
};

struct trajd_layout_parser {
    const struct trajd_yaml *yaml;
    struct trajd_layout_memory *memory;
    struct trajd_layout_clock *clocks;
    struct trajd_layout_stream *streams;
    struct trajd_error *error;
};

enum trajd_status trajd_layout_no_memory(struct trajd_layout_parser *p);
enum trajd_status trajd_layout_copy_text(struct trajd_layout_parser *p, const char *text,
                                         const char **out);
/* A text of 1 to TRAJD_LAYOUT_PATH_MAX characters. */
enum trajd_status trajd_layout_read_text(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, const char **out);
/* The path of a dataset relative to the episode, with up to stars_max '*'. */
enum trajd_status trajd_layout_read_path(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, uint32_t stars_max,
                                         const char **out);
uint32_t trajd_layout_star_count(const char *text);
/* A path inside an HDF5 file: no empty, "." or ".." component. */
bool trajd_layout_path_is_clean(const char *path);

enum trajd_status trajd_layout_read_clocks(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_streams(struct trajd_layout_parser *p,
                                            const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_metas(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node);

/* Sets layout->hash from everything else that was read. */
void trajd_layout_set_hash(struct trajd_layout *layout);

#endif
