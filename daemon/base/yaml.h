/* Parses YAML (or JSON) into a tree that knows its lines, and reads typed values from it with exact
 * errors. The only user of libyaml. It reads trajd.yaml, layouts and feed specifications sent by
 * jobs. */
#ifndef TRAJD_BASE_YAML_H
#define TRAJD_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/arena.h"
#include "daemon/base/quantity.h"
#include "proto/timebase.h"
#include "proto/error.h"

enum trajd_yaml_kind { TRAJD_YAML_SCALAR, TRAJD_YAML_SEQUENCE, TRAJD_YAML_MAPPING };

/* Owned by the document. In a mapping each child has a key; in a sequence key is NULL. */
struct trajd_yaml_node {
    enum trajd_yaml_kind kind;
    bool quoted;       /* a scalar in quotes: always a string, never null or a number */
    uint32_t line;     /* from 1 */
    const char *key;   /* NULL at the root and in sequences */
    const char *value; /* scalar text, UTF-8, NUL-terminated; NULL for the others */
    /* "feeds.train.outputs": the keys from the root, for errors; "" at the root */
    const char *path;
    struct trajd_yaml_node *children; /* first child or NULL */
    struct trajd_yaml_node *next;     /* next sibling or NULL */
    uint32_t child_count;
};

struct trajd_yaml; /* the document: owns all nodes; immutable; safe to read from several threads */

/* Parses a text or a file. Limits: 1 MiB of text, depth 16, 65,536 nodes, keys of 255 bytes, 32 MiB
 * for the tree; one document; no anchors, aliases or tags; no key twice in a mapping. Errors begin
 * with `name` ("NAME:LINE: ..."), which is copied. The caller frees with trajd_yaml_destroy.
 * TRAJD_ERR_ARGUMENT for an error in the text; TRAJD_ERR_NOT_FOUND and TRAJD_ERR_IO for the file.
 */
enum trajd_status trajd_yaml_parse(const char *name, const char *text, size_t length,
                                   struct trajd_yaml **yaml, struct trajd_error *error);
enum trajd_status trajd_yaml_load(const char *path, struct trajd_yaml **yaml,
                                  struct trajd_error *error);
void trajd_yaml_destroy(struct trajd_yaml **yaml);
const struct trajd_yaml_node *trajd_yaml_root(const struct trajd_yaml *yaml);

/* Returns the child with that key, or NULL. */
const struct trajd_yaml_node *trajd_yaml_get(const struct trajd_yaml_node *mapping,
                                             const char *key);

/* Sets the error "NAME:LINE: PATH: MESSAGE" and returns TRAJD_ERR_ARGUMENT: for rules of the
 * caller. */
enum trajd_status trajd_yaml_error(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node, struct trajd_error *error,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes "NAME:LINE: PATH", for errors that are found after the document is gone. */
void trajd_yaml_place(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node, char *text,
                      size_t size);

/* Checks that the node is a mapping and that all keys are in the NULL-terminated list `allowed`.
 * The error suggests the nearest key. */
enum trajd_status trajd_yaml_check_keys(const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *mapping,
                                        const char *const *allowed, struct trajd_error *error);

/* Returns the nearest of `count` names by edit distance, or NULL where none is near. */
const char *trajd_yaml_nearest(const char *word, const char *const *names, size_t count);
/* The end of an error: `before`, "did you mean NAME?" with the nearest of the names, `after`. Empty
 * where none is near. */
struct trajd_yaml_suggestion {
    char text[160];
};
struct trajd_yaml_suggestion trajd_yaml_suggest(const char *before, const char *word,
                                                const char *const *names, size_t count,
                                                const char *after);
/* Writes the names of a NULL-terminated list as "a, b, c", cut to the size. For "there are". */
void trajd_yaml_join(const char *const *names, char *out, size_t size);

/* Read a scalar of one type. *out is unchanged after an error. Numbers must be finite and within
 * [low, high]. */
enum trajd_status trajd_yaml_string(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, const char **out,
                                    struct trajd_error *error);
enum trajd_status trajd_yaml_int(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                 int64_t low, int64_t high, int64_t *out,
                                 struct trajd_error *error);
enum trajd_status trajd_yaml_double(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, double low, double high,
                                    double *out, struct trajd_error *error);
enum trajd_status trajd_yaml_bool(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  bool *out, struct trajd_error *error);
/* "64 MiB", "1GiB", "4096": bytes. */
enum trajd_status trajd_yaml_size(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  uint64_t *out, struct trajd_error *error);
/* "38ms", "1.5s", "20us", "100ns": nanoseconds, exact for decimal fractions. A bare number other
 * than 0 is an error. */
enum trajd_status trajd_yaml_duration(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, int64_t *out_ns,
                                      struct trajd_error *error);
/* 20, 29.97 (read as 30000/1001, like 23.976 and 59.94), "30000/1001": a reduced fraction, 1e-6 to
 * 1e9 Hz. */
enum trajd_status trajd_yaml_rate(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  struct trajd_rate *out, struct trajd_error *error);
/* One of the NULL-terminated words: *out is its index. */
enum trajd_status trajd_yaml_choice(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, const char *const *words,
                                    int *out, struct trajd_error *error);
/* The same with the rows of a table, at most 32, whose first member is the word (const char *). */
enum trajd_status trajd_yaml_choose_row(const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *node, const void *rows,
                                        size_t row_count, size_t row_size, int *out,
                                        struct trajd_error *error);

/* ---- tables of keys ---- */

/* What the readers of a document share. */
struct trajd_yaml_reader {
    const struct trajd_yaml *yaml;
    struct trajd_error *error;
    struct trajd_arena *arena; /* owns the texts that are read; NULL: there are none */
};

/* The type of a key, and of the member of a struct that gets its value. */
enum trajd_yaml_type {
    TRAJD_YAML_U32,
    TRAJD_YAML_U64,
    TRAJD_YAML_DOUBLE,
    TRAJD_YAML_BOOL,
    TRAJD_YAML_DURATION, /* int64_t, in ns */
    TRAJD_YAML_RATE,
    TRAJD_YAML_STRING, /* const char *, a copy in the arena */
    TRAJD_YAML_CHOICE, /* an enum: the index of the word, plus `low` */
    TRAJD_YAML_FLAG,   /* bool: the second of two words is true */
    TRAJD_YAML_LATER,  /* a known key that the caller reads */
};

/* A key of a mapping, and the member at `offset` of an object that gets its value. */
struct trajd_yaml_key {
    const char *name;
    enum trajd_yaml_type type;
    size_t offset;
    double low, high;         /* of numbers: both are included */
    const char *const *words; /* of CHOICE and FLAG; ends with NULL */
    bool is_needed;
    /* NULL: reads the type. Otherwise reads the value, of any form, into the member */
    enum trajd_status (*read)(const struct trajd_yaml_reader *reader,
                              const struct trajd_yaml_node *node, void *member);
};

/* Reads the keys of a mapping in the order of the document, and leaves the other members as they
 * are. TRAJD_ERR_ARGUMENT: "expected EXPECTED" if it is not a mapping or lacks a needed key; it has
 * an unknown key, or a wrong value. */
enum trajd_status trajd_yaml_read_keys(const struct trajd_yaml_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *expected,
                                       const struct trajd_yaml_key *keys, size_t key_count,
                                       void *object);
/* Reads the value of one key. */
enum trajd_status trajd_yaml_read_key(const struct trajd_yaml_reader *reader,
                                      const struct trajd_yaml_node *node,
                                      const struct trajd_yaml_key *key, void *object);
/* Returns zeroed memory of the arena. NULL: sets the error. */
void *trajd_yaml_alloc(const struct trajd_yaml_reader *reader, size_t size);
/* Copies a text into the arena. */
enum trajd_status trajd_yaml_keep(const struct trajd_yaml_reader *reader, const char *text,
                                  const char **out);
/* Reads a scalar's text and copies it. */
enum trajd_status trajd_yaml_keep_string(const struct trajd_yaml_reader *reader,
                                         const struct trajd_yaml_node *node, const char **out);

#endif
