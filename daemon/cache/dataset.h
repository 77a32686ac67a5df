/* A dataset as the daemon holds it: its index, its cache, and the stamps of each clock end to end
 * for the kernels. */
#ifndef TRAJD_CACHE_DATASET_H
#define TRAJD_CACHE_DATASET_H

#include <stdint.h>

#include "daemon/index/index.h"
#include "daemon/cache/cache.h"

struct trajd_dataset {
    char *name;
    struct trajd_index *index;
    struct trajd_cache *cache;
    /* per clock; stamps of all kept episodes in episode order, from the clock's zero. NULL where
     * one rate serves all episodes; a regular clock whose rate differs between episodes has its
     * stamps written out. */
    int64_t **clock_stamps_ns;
    /* [episode_count]: where an episode's stamps begin there; NULL with a rate */
    int64_t **clock_row_begin;
    int64_t *clock_stamp_count;     /* of clock_stamps_ns */
    struct trajd_rate *clock_rates; /* num 0 with stamps */
};

struct trajd_dataset_options {
    const char *name;
    struct trajd_index_options index;
    uint64_t cache_budget_bytes;
    uint32_t reader_count;
};

/* Indexes (or reads the cache) and starts the cache; reads no rows yet. Blocks. Caller destroys. */
enum trajd_status trajd_dataset_open(const struct trajd_dataset_options *options,
                                     struct trajd_dataset **dataset, struct trajd_error *error);
void trajd_dataset_destroy(struct trajd_dataset **dataset);

/* Time of row n of a clock in ns from the episode's origin. n may lie outside the rows: a stamped
 * clock is then continued with its mean interval (one second where it has a single row). */
int64_t trajd_clock_row_ns(const struct trajd_episode_clock *clock, int64_t n);
/* How many rows stand at or before x ns from the origin. */
int64_t trajd_clock_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                               int64_t x_ns);
/* Has the stamps that the same question will look at brought into the cache, and does not wait for
 * them. */
void trajd_clock_fetch_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                                  int64_t x_ns);

#endif
