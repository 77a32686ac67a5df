/* A dataset as the daemon holds it: its index, its row cache, its frames, and the concatenated
 * stamps of each clock for the kernels. Immutable after opening, but for cache and frames. */
#ifndef TRAJD_CACHE_DATASET_H
#define TRAJD_CACHE_DATASET_H

#include <stdint.h>

#include "daemon/index/index.h"
#include "daemon/cache/cache.h"
#include "daemon/cache/frames.h"

struct trajd_dataset {
    char *name;
    struct trajd_index *index;
    struct trajd_cache *cache;
    struct trajd_frames *frames; /* NULL: opened without a decoder */
    /* [clock_count]: the stamps of all kept episodes, in episode order, in ns. Zero is the
     * episode's origin; for a regular clock it is the clock's first row. NULL where one rate serves
     * all episodes. A regular clock whose rate differs between episodes has stamps too */
    int64_t **clock_stamps_ns;
    /* [clock_count][episode_count]: where an episode's stamps begin in them; NULL with a rate */
    int64_t **clock_row_begin;
    int64_t *clock_stamp_count;     /* [clock_count]: length of clock_stamps_ns */
    struct trajd_rate *clock_rates; /* [clock_count]; num 0 with stamps */
    /* the mount whose reads do not return, and since when, as control found it; NULL: none */
    const char *hung_mount;
    int64_t hung_since_ns;
};

struct trajd_dataset_options {
    const char *name;
    struct trajd_index_options index;
    uint64_t cache_budget_bytes;
    uint32_t reader_count;
    /* must outlive the dataset; NULL: images are not decoded */
    struct trajd_decoder_pool *decoders;
    uint32_t decoder_count; /* threads that have images decoded, >= 1 with decoders */
};

/* Indexes the files, or reads the index from its cache, and starts the row cache. Reads no rows
 * yet. Blocks. Caller destroys. */
enum trajd_status trajd_dataset_open(const struct trajd_dataset_options *options,
                                     struct trajd_dataset **dataset, struct trajd_error *error);
/* Returns the mount of which a read has not returned for limit_ns, or NULL. Borrowed from the
 * dataset. Thread-safe. */
const char *trajd_dataset_find_hung(const struct trajd_dataset *dataset, int64_t now_ns,
                                    int64_t limit_ns);
void trajd_dataset_destroy(struct trajd_dataset **dataset);

#endif
