/* Declarations that the files of layout/ share. Private to this folder. */
#ifndef TRAJD_LAYOUT_LAYOUT_INTERNAL_H
#define TRAJD_LAYOUT_LAYOUT_INTERNAL_H

#include "daemon/base/arena.h"
#include "daemon/base/yaml.h"
#include "daemon/layout/layout.h"

#define TRAJD_LAYOUT_STREAMS_MAX 1024
#define TRAJD_LAYOUT_PATH_MAX 1024

/* A layout and the arena that it is in, so that one pointer frees both. */
struct trajd_layout_memory {
    struct trajd_layout layout; /* first: a pointer to it points to the struct, too */
    struct trajd_arena arena;
};

struct trajd_layout_parser {
    struct trajd_yaml_reader r; /* keeps texts in the memory's arena */
    struct trajd_layout_memory *memory;
    struct trajd_layout_clock *clocks;
    struct trajd_layout_stream *streams;
};

/* ---- layout_keys.c ---- */

/* Read a key's value, a const char *: 1 to TRAJD_LAYOUT_PATH_MAX characters; the path of an array,
 * relative to the episode; such a path with one '*' at most. */
enum trajd_status trajd_layout_read_text(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *out);
enum trajd_status trajd_layout_read_path(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *out);
enum trajd_status trajd_layout_read_pattern(const struct trajd_yaml_reader *r,
                                            const struct trajd_yaml_node *node, void *out);
/* Returns how many '*' the text has. */
uint32_t trajd_layout_star_count(const char *text);
/* Returns whether a path inside an HDF5 file has no empty, "." or ".." component. */
bool trajd_layout_path_is_clean(const char *path);

/* ---- one file each ---- */

/* Read the mapping `node`, fill the parser's layout. */
enum trajd_status trajd_layout_read_clocks(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node);
/* Finds the clock that has `multiple` rows for each row of the clock *name, or adds it. *name becomes
 * its name. */
enum trajd_status trajd_layout_find_multiple(struct trajd_layout_parser *p, uint32_t multiple,
                                             const char **name);
enum trajd_status trajd_layout_read_streams(struct trajd_layout_parser *p,
                                            const struct trajd_yaml_node *node);
enum trajd_status trajd_layout_read_metas(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node);
/* Sets layout->hash and layout->order_hash from all other members. */
void trajd_layout_set_hash(struct trajd_layout *layout);

#endif
