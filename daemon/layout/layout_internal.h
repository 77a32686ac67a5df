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
    const struct trajd_yaml *yaml;
    struct trajd_layout_memory *memory;
    struct trajd_layout_clock *clocks;
    struct trajd_layout_stream *streams;
    struct trajd_error *error;
};

/* ---- layout_keys.c ---- */

enum trajd_layout_type {
    LAYOUT_OTHER,    /* the caller reads it */
    LAYOUT_TEXT,     /* const char *: 1 to TRAJD_LAYOUT_PATH_MAX characters */
    LAYOUT_PATH,     /* const char *: of an array, relative to the episode */
    LAYOUT_PATTERN,  /* the same with one '*' at most */
    LAYOUT_WORD,     /* an enum, one of `words` */
    LAYOUT_FLAG,     /* bool: the second of two `words` */
    LAYOUT_BOOL,     /* bool */
    LAYOUT_DURATION, /* int64_t, in ns */
    LAYOUT_RATE,     /* struct trajd_rate */
};

/* A key of a mapping. A table of them ends with a name of NULL. */
struct trajd_layout_key {
    const char *name;
    enum trajd_layout_type type;
    size_t offset;            /* of the member in the object */
    const char *const *words; /* NULL at the end */
    unsigned first;           /* the number of the first word */
    /* NULL, or reads the value of a type of its own into the member */
    enum trajd_status (*read)(struct trajd_layout_parser *p, const struct trajd_yaml_node *node,
                              void *out);
};

/* Checks that the node is a mapping of these keys. */
enum trajd_status trajd_layout_check_keys(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node,
                                          const struct trajd_layout_key *keys);
/* The same, and reads the values that are there into the object, in the order of the table. */
enum trajd_status trajd_layout_read_keys(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node,
                                         const struct trajd_layout_key *keys, void *object);

/* Reads a text into the arena, or a path. */
enum trajd_status trajd_layout_read_text(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, const char **out);
enum trajd_status trajd_layout_read_path(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, bool may_have_star,
                                         const char **path);
/* Sets and returns TRAJD_ERR_MEMORY. */
enum trajd_status trajd_layout_no_memory(struct trajd_layout_parser *p);
/* Copies the text into the arena. */
enum trajd_status trajd_layout_copy_text(struct trajd_layout_parser *p, const char *text,
                                         const char **out);
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
