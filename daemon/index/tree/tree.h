/* The tree of one HDF5 file: all its groups and datasets with their shapes, types, storage and
 * short attributes. It needs no layout, so it describes files that no layout knows. It has no rows.
 *
 * A child process (trajd-indexer) reads the file and sends the tree as a struct of the codec. A
 * group comes before everything in it. The bytes come from outside the process: the decoder checks
 * them all. */
#ifndef TRAJD_INDEX_TREE_TREE_H
#define TRAJD_INDEX_TREE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/arena.h"
#include "daemon/index/rows/array.h"
#include "proto/dtype.h"
#include "proto/error.h"

enum { TRAJD_TREE_OBJECTS_MAX = 200000, TRAJD_TREE_VALUE_MAX = 200 };

enum trajd_tree_kind { TRAJD_TREE_GROUP, TRAJD_TREE_DATASET, TRAJD_TREE_PROBLEM };

/* How the elements of a dataset are stored. */
enum trajd_tree_form {
    TRAJD_TREE_PLAIN,   /* numbers that a tensor can have */
    TRAJD_TREE_STRING,  /* strings of a fixed size */
    TRAJD_TREE_TEXT,    /* strings of variable length */
    TRAJD_TREE_BYTES,   /* u8 of variable length */
    TRAJD_TREE_FOREIGN, /* anything else */
};

struct trajd_tree_attribute {
    const char *name;
    const char
        *value; /* a text or a number, cut after TRAJD_TREE_VALUE_MAX bytes; else its shape */
};

struct trajd_tree_object {
    enum trajd_tree_kind kind;
    const char *path; /* from the root, without the first '/': "data/demo_0/actions" */
    enum trajd_tree_form form;
    enum trajd_dtype dtype; /* of form PLAIN; else NONE */
    const char *type;       /* in words: "f64", "S2041", "u8 of variable length" */
    uint32_t rank;          /* 0: a scalar */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    const char
        *storage; /* in words: "contiguous", "chunks (1,480,640,3) gzip"; of a problem: what */
    uint32_t first_attribute, attribute_count;
};

/* Owned by the caller, who frees it with trajd_tree_free. Zeroed, it is empty. */
struct trajd_tree {
    struct trajd_arena arena;
    const char *refusal; /* NULL, or why the file cannot be read */
    bool is_cut;         /* the file has more objects */
    uint32_t object_count;
    struct trajd_tree_object *objects;
    uint32_t attribute_count;
    struct trajd_tree_attribute *attributes;
};

/* Appends the tree. TRAJD_ERR_MEMORY; TRAJD_ERR_ARGUMENT where a text is too long, or has control
 * characters. */
enum trajd_status trajd_tree_encode(const struct trajd_tree *tree, struct trajd_bytes *bytes,
                                    struct trajd_error *error);
/* Decodes what the child sends. TRAJD_ERR_PROTOCOL where it breaks a rule; TRAJD_ERR_MEMORY. *tree
 * is empty after an error. */
enum trajd_status trajd_tree_decode(const void *data, size_t length, struct trajd_tree *tree,
                                    struct trajd_error *error);
void trajd_tree_free(struct trajd_tree *tree);

/* Reads the tree of the file at `path` with the helper program. Blocks, `timeout_ms` at most.
 * TRAJD_ERR_IO where the file cannot be opened, TRAJD_ERR_DATA where the child crashes or takes
 * too long. A file that is not an HDF5 file has a refusal and no objects. */
enum trajd_status trajd_tree_read(const char *helper_path, const char *path, uint32_t timeout_ms,
                                  struct trajd_tree *tree, struct trajd_error *error);

#endif
