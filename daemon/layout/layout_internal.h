/* Declarations that the files of layout/ share. Private to this folder. */
#ifndef TRAJD_LAYOUT_LAYOUT_INTERNAL_H
#define TRAJD_LAYOUT_LAYOUT_INTERNAL_H

#include "daemon/base/arena.h"
#include "daemon/base/yaml.h"
#include "daemon/layout/layout.h"

#define TRAJD_LAYOUT_STREAMS_MAX 1024
#define TRAJD_LAYOUT_PATH_MAX 1024

/* A layout and the arena that it lies in, so that one pointer frees both. */
struct trajd_layout_memory {
    struct trajd_layout layout; /* first: a pointer to it points to the struct, too */
    struct trajd_arena arena;
};

struct trajd_layout_parser {
    const struct trajd_yaml *yaml;
    struct trajd_layout_memory *memory;
    struct trajd_layout_clock *clocks;
    struct trajd_layout_stream *streams;
    struct trajd_error *error;
};

/* ---- layout_text.c ---- */

/* Sets and returns TRAJD_ERR_MEMORY. */
enum trajd_status trajd_layout_no_memory(struct trajd_layout_parser *p);
/* Copies the text into the arena. */
enum trajd_status trajd_layout_copy_text(struct trajd_layout_parser *p, const char *text,
                                         const char **out);
/* Reads a text of 1 to TRAJD_LAYOUT_PATH_MAX characters. */
enum trajd_status trajd_layout_read_text(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, const char **out);
/* Reads the path of an array, relative to the episode, with at most stars_max '*'. */
enum trajd_status trajd_layout_read_path(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, uint32_t stars_max,
                                         const char **out);
/* Returns how many '*' the text has. */
uint32_t trajd_layout_star_count(const char *text);
/* Returns whether a path inside an HDF5 file has no empty, "." or ".." component. */
bool trajd_layout_path_is_clean(const char *path);

/* ---- one file each ---- */

/* Read the mapping `node`, fill the parser's layout. */
enum trajd_status trajd_layout_read_split(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_clocks(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_streams(struct trajd_layout_parser *p,
                                            const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_metas(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node);

/* Reads the mapping `image` of a stream whose kind and columns are known. */
enum trajd_status trajd_layout_read_image(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_layout_stream *stream);

/* Checks that no clock or stream contradicts the split. */
enum trajd_status trajd_layout_check_split(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node);
/* Sets layout->hash and layout->order_hash from all other members. */
void trajd_layout_set_hash(struct trajd_layout *layout);

#endif
