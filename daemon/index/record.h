/* The record of one HDF5 file. A child process sends it, and the cache holds it. Both come from
 * outside the process, so one decoder checks both and trusts nothing.
 *
 * It is u32 magic and u32 version, little-endian, and then a struct of the codec (proto/codec.h)
 * with the tables in record.c. */
#ifndef TRAJD_INDEX_RECORD_H
#define TRAJD_INDEX_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/arena.h"
#include "daemon/index/rows/array.h"
#include "daemon/index/rows/packed_video.h"
#include "proto/codec.h"

#define TRAJD_RECORD_MAGIC 0x52544A54u /* "TJTR" */
#define TRAJD_RECORD_VERSION 14
#define TRAJD_RECORD_SIZE_MAX (256u << 20)
#define TRAJD_RECORD_META_MAX 4096 /* bytes of one text */
/* the refusal of a required array whose path leads to a group or a named type */
#define TRAJD_RECORD_NO_DATASET "it is not a dataset"

struct trajd_record_array {
    const char *path;    /* relative to the episode; a path with a '*' as the layout has it */
    const char *match;   /* the dataset that such a path matched; else NULL */
    const char *refusal; /* NULL, or the reason why its rows cannot be used */
    struct trajd_array extent;
    /* first rows that the child read through libhdf5, which the parent compares with its own
     * reading; 0: none */
    uint64_t check_rows;
    uint64_t check_digest; /* trajd_digest_of of their bytes */
};

/* A clock of one episode, as the parent reads it: absolute times in ns, with the policies applied,
 * without offset and latency. */
struct trajd_record_clock {
    bool present;         /* of a stamped clock: the array of stamps is there */
    uint64_t source_rows; /* of the array of stamps */
    uint64_t dropped_rows;
    uint64_t row_count;
    const int64_t *stamps_ns;
    const uint32_t *kept_rows; /* source rows; NULL: all were kept */
    bool has_start;
    int64_t start_ns;
};

struct trajd_record_episode {
    const char *id;      /* "" where a file is one episode */
    const char *problem; /* NULL, or the reason to quarantine it */
    bool is_misfit;      /* the problem: it has another structure than the layout */
    uint32_t rate_count; /* the number of the layout's clocks */
    const char **rates;  /* texts of the rate attributes; "": absent */
    /* the rate in the file's attribute trajd_resample; "": the file has no such attribute */
    const char *resampled_rate;
    uint32_t key_count;
    const char **filter_keys;
    uint32_t meta_count;
    /* in the layout's order; an absent text is NULL. Of a text in a JSON file: its key, if an
     * attribute has it */
    const char **metas;
    /* the group holds only these arrays, and subgroups on the way to them that have no
     * attributes */
    bool is_plain;
    /* of arrays that hold several episodes (the layout's key split): where this one begins, and the
     * rows of all. 0: the arrays hold one episode */
    uint64_t first_row, all_rows;
    uint32_t array_count;
    struct trajd_record_array *arrays; /* ascending by strcmp of their paths */
    /* the parent has read the stamps and compared the first rows; the members below are valid */
    bool evaluated;
    uint64_t content_digest;
    uint32_t clock_count;
    struct trajd_record_clock *clocks;
};

struct trajd_record {
    int io_errno;        /* not 0: storage failed, and the record says nothing about the file */
    const char *refusal; /* NULL, or the reason why the file gives no episode */
    bool is_misfit;      /* the refusal: it has another structure than the layout */
    uint32_t note_count; /* arrays of optional streams that were left out, with the reason */
    const char **notes;
    uint32_t episode_count;
    struct trajd_record_episode *episodes;
};

/* Raw little-endian numbers and texts, for formats that are not structs of the codec. */
void trajd_bytes_add_u32(struct trajd_bytes *bytes, uint32_t value);
void trajd_bytes_add_u64(struct trajd_bytes *bytes, uint64_t value);
/* Adds NULL as "". */
void trajd_bytes_add_text(struct trajd_bytes *bytes, const char *text);

/* Appends the record to the bytes. One that breaks a limit of the tables becomes one that refuses
 * the file by that rule. False if out of memory. */
bool trajd_record_encode(const struct trajd_record *record, struct trajd_bytes *bytes);

/* Decodes the record of a file of file_size bytes under a layout with clock_count clocks. All of it
 * is copied into `arena`. TRAJD_ERR_PROTOCOL where the bytes are not a valid record,
 * TRAJD_ERR_MEMORY. An array whose bytes lie beyond the file's end gets a refusal instead. */
enum trajd_status trajd_record_decode(const uint8_t *data, size_t length, uint64_t file_size,
                                      uint32_t clock_count, struct trajd_arena *arena,
                                      struct trajd_record *record, struct trajd_error *error);

/* Copies an array with its chunks or inline bytes into the arena. False if out of memory. */
bool trajd_record_copy_array(struct trajd_arena *arena, const struct trajd_array *from,
                             struct trajd_array *to);

struct trajd_video *trajd_record_copy_video(struct trajd_arena *arena,
                                            const struct trajd_video *from);

/* Prints a text of at most 1023 bytes into the arena. NULL if out of memory. */
char *trajd_arena_format(struct trajd_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
