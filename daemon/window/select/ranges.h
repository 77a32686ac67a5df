/* Ranges of rows, by episode: the content of a `ranges:` file, or of such a mapping in a feed.
 *
 *   { "EPISODE": [[begin, end], ...], ... }        end is the first row that is not in the range
 *
 * A key is the id of an episode, the path of a file with one episode, FILE:EPISODE, or that of
 * openpi's keep_ranges files, FOLDER--FILE. Immutable once it is finished, and then thread-safe. */
#ifndef TRAJD_WINDOW_SELECT_RANGES_H
#define TRAJD_WINDOW_SELECT_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define TRAJD_RANGES_MAX_BYTES ((size_t)256 << 20) /* of a file */
#define TRAJD_RANGES_MAX_NAME 4095                 /* bytes of a key */

struct trajd_range {
    int64_t begin, end;
};

struct trajd_ranges_entry {
    size_t name; /* trajd_ranges_name */
    uint32_t first, count;
};

struct trajd_ranges {
    struct trajd_ranges *next; /* for the owner of several */
    char *source;              /* the file, or the place of the mapping; for messages */
    uint64_t digest;           /* of all keys and ranges in their order */
    uint32_t entry_count, range_count;
    struct trajd_ranges_entry *entries; /* [entry_count], in the order of the file */
    struct trajd_range *ranges;         /* [range_count]; those of an entry ascend, none overlap */
    char *names;
    size_t names_length;
};

/* Reads a file. The caller destroys. TRAJD_ERR_ARGUMENT for what is not of that form, with the line
 * and the key; TRAJD_ERR_NOT_FOUND and TRAJD_ERR_IO for the file. */
enum trajd_status trajd_ranges_load(const char *path, struct trajd_ranges **ranges,
                                    struct trajd_error *error);
/* Reads a text. `source` begins the messages. */
enum trajd_status trajd_ranges_parse(const char *source, const char *text, size_t length,
                                     struct trajd_ranges **ranges, struct trajd_error *error);
void trajd_ranges_destroy(struct trajd_ranges **ranges);

/* Returns the key of an entry. */
const char *trajd_ranges_name(const struct trajd_ranges *ranges,
                              const struct trajd_ranges_entry *entry);

/* ---- ranges.c: makes ranges one by one ---- */

/* Returns NULL if out of memory. */
struct trajd_ranges *trajd_ranges_new(const char *source);
/* Adds an entry, then ranges to it. They return NULL, or what is wrong. */
const char *trajd_ranges_add_entry(struct trajd_ranges *ranges, const char *name, size_t length);
const char *trajd_ranges_add(struct trajd_ranges *ranges, int64_t begin, int64_t end);
/* Checks that no key comes twice, and sets the digest. */
enum trajd_status trajd_ranges_finish(struct trajd_ranges *ranges, struct trajd_error *error);

#endif
