/* An index for people and for programs: `trajctl inspect`. */
#ifndef TRAJD_CLI_INSPECT_H
#define TRAJD_CLI_INSPECT_H

#include "daemon/base/json.h"
#include "daemon/index/index.h"

#define INSPECT_STORAGE_SIZE 640

/* Prints the index of the files at `path`. */
void inspect_print(const char *path, const struct trajd_index *index);
/* Writes it as an object. */
void inspect_write(struct trajd_json *json, const char *path, const struct trajd_index *index);

/* ---- inspect_facts.c ---- */

/* A clock over all kept episodes. */
struct inspect_clock_summary {
    uint64_t rows, dropped;
    double sum_s; /* sum of the intervals */
    uint64_t intervals;
    int64_t shortest_ns, longest_ns;
};
struct inspect_clock_summary inspect_summarize_clock(const struct trajd_index *index,
                                                     uint32_t which);
/* Returns the dataset's array in the first kept episode that has it, or NULL. */
const struct trajd_array *inspect_example_array(const struct trajd_index *index, uint32_t dataset);
/* Writes "contiguous", or "jpeg 480x640 rgb (layout), padded, chunked gzip", with who says it is rgb;
 * of prepared frames also how they were made, as in the file. */
void inspect_describe_storage(const struct trajd_array *array,
                              const struct trajd_index_stream *stream, char *text, size_t size);
/* Writes "(T,3)". */
void inspect_describe_shape(const struct trajd_index_stream *stream, char *text, size_t size);
/* Counts the kept episodes that have the dataset, and its fewest and most rows. */
void inspect_count_rows(const struct trajd_index *index, uint32_t dataset, uint64_t *least,
                        uint64_t *most, uint32_t *episodes);

#endif
