/* The row cache: rows of episodes in memory. Reader threads fill it ahead of use, within a byte
 * budget.
 *
 * The unit of loading is an entry: one array of one episode in one form. Its rows are dense. Rows
 * that the clock drops are left out. The element type is that of the file, or float32 in place of
 * float64 where a selection asks for it. Entries that fit the budget stay. When the cache is full,
 * entries without a prefetched use are evicted first, beginning with the least recently used. Then
 * comes the entry whose next prefetched use is latest.
 *
 *   absent --prefetch or pin, then a reader--> loading --> resident --pin/unpin--> resident
 *     --evict--> absent
 *                                   \--> failed (the error is kept, and returned by the next pin)
 *
 * Where files lie on several filesystems, at most half the readers read from one, so that a dead
 * mount does not stop the others. A thread that waits for rows reports its heartbeat; cancelled, it
 * gets TRAJD_ERR_CLOSED (base/heartbeat.h).
 *
 * All functions but create and destroy are thread-safe. */
#ifndef TRAJD_CACHE_CACHE_H
#define TRAJD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/index.h"
#include "proto/error.h"

struct trajd_cache;

/* Prefetched uses that a cache can note. Further ones take the place of the oldest. */
#define TRAJD_CACHE_USES (1u << 18)

struct trajd_cache_options {
    const struct trajd_index *index; /* borrowed; must outlive the cache */
    uint64_t budget_bytes;           /* limit of resident rows */
    uint32_t reader_count;           /* threads, >= 1 */
};

/* The arrays of the index that a feed needs. Feeds whose selections name the same array share its
 * entries. The caller owns a selection and must not change it during a call. */
struct trajd_selection {
    const uint32_t *array_indexes; /* into index->arrays, ascending */
    uint32_t array_count;
    /* [array_count]: whether float64 rows are converted when they are loaded. NULL: all as in the
     * file */
    const bool *as_float32;
};

struct trajd_cache_stats {
    /* budget: with what is lent. total: all entries of the arrays that selections have named so
     * far */
    uint64_t resident_bytes, budget_bytes, total_bytes;
    uint64_t pinned_bytes;
    uint64_t bytes_read, entries_loaded, entries_evicted, pin_waits, read_errors;
    uint64_t missing_chunks; /* chunks that were never written; they read as the fill value */
};

/* Creates an empty cache and starts its readers. Caller destroys. */
enum trajd_status trajd_cache_create(const struct trajd_cache_options *options,
                                     struct trajd_cache **cache, struct trajd_error *error);
/* Joins the readers and frees everything. No pin may be held. */
void trajd_cache_destroy(struct trajd_cache **cache);

/* Loads all entries of the selection that fit beside those already resident, in file order, and
 * waits. episode_indexes NULL: all episodes that are not in quarantine. *complete: all entries are
 * resident now. Rows that cannot be read are not an error here: the next pin returns their
 * error. */
enum trajd_status trajd_cache_fill(struct trajd_cache *cache,
                                   const struct trajd_selection *selection,
                                   const uint32_t *episode_indexes, uint32_t episode_count,
                                   bool *complete, struct trajd_error *error);

/* Requests that the selection's entries of these episodes be loaded before they are pinned. The
 * readers load entries in ascending `when`. `when` counts batches and must ascend per caller. Never
 * blocks. A hint: nothing is guaranteed. */
void trajd_cache_prefetch(struct trajd_cache *cache, const struct trajd_selection *selection,
                          const uint32_t *episode_indexes, uint32_t count, uint64_t when);

/* Makes the entries of one episode resident and keeps them so until unpin. rows[k] is the first row
 * of selection->array_indexes[k], NULL where the episode lacks that array. Blocks until all are
 * loaded. Each pin consumes the oldest prefetch of its entries.
 *
 * The rows contain only those that the array's clock kept. If the array has fewer rows than its
 * clock, it has those kept rows that lie below its own row count.
 *
 * TRAJD_ERR_MEMORY: the rows do not fit into the budget beside the pinned rows; with the foreign
 * code ENOMEM: the budget has room, but the machine has no memory. TRAJD_ERR_DATA or TRAJD_ERR_IO,
 * with file, array and row: loading failed. An I/O error is retried three times, and again by the
 * next pin. */
enum trajd_status trajd_cache_pin(struct trajd_cache *cache,
                                  const struct trajd_selection *selection, uint32_t episode_index,
                                  const void **rows, struct trajd_error *error);
void trajd_cache_unpin(struct trajd_cache *cache, const struct trajd_selection *selection,
                       uint32_t episode_index);

/* Marks the caller's pins of that episode as long-lived, so that a caller that finds no room does
 * not wait for these pins to end. Call release before unpin. */
void trajd_cache_retain(struct trajd_cache *cache, const struct trajd_selection *selection,
                        uint32_t episode_index);
void trajd_cache_release(struct trajd_cache *cache, const struct trajd_selection *selection,
                         uint32_t episode_index);
/* Returns whether the episode fits beside the retained entries. Call it after trajd_cache_pin
 * returned TRAJD_ERR_MEMORY. If it returns true, a later attempt can succeed. */
bool trajd_cache_will_have_room(const struct trajd_cache *cache,
                                const struct trajd_selection *selection, uint32_t episode_index);

/* Adds to the budget from now on. */
void trajd_cache_raise_budget(struct trajd_cache *cache, uint64_t more_bytes);
/* Takes bytes from the budget for other use (frames.h). Evicts rows where that is necessary.
 * Returns false where the rows that feeds have named need the budget, up to half of what it was. */
bool trajd_cache_lend(struct trajd_cache *cache, uint64_t bytes);
/* Ends such a use of bytes. */
void trajd_cache_give_back(struct trajd_cache *cache, uint64_t bytes);

/* Opens a file of the index for reading, or shares an open descriptor, and checks that the file is
 * as it was indexed. Give the descriptor back with release; is_broken: reading failed, and the
 * descriptor is not used again. TRAJD_ERR_IO. */
enum trajd_status trajd_cache_file_acquire(struct trajd_cache *cache, uint32_t file_index, int *fd,
                                           struct trajd_error *error);
void trajd_cache_file_release(struct trajd_cache *cache, uint32_t file_index, int fd,
                              bool is_broken);
/* Return how many filesystems the files of the index lie on, the number of a file's, from 0, and
 * the folder where it is mounted. */
uint32_t trajd_cache_filesystem_count(const struct trajd_cache *cache);
uint32_t trajd_cache_filesystem(const struct trajd_cache *cache, uint32_t file_index);
const char *trajd_cache_mount(const struct trajd_cache *cache, uint32_t file_index);
/* Returns the mount of which a read of rows has not returned for limit_ns, or NULL. */
const char *trajd_cache_find_hung(const struct trajd_cache *cache, int64_t now_ns,
                                  int64_t limit_ns);
/* Returns the bytes of the rows that pin gives for selection->array_indexes[k]. 0: the episode
 * lacks that array. */
uint64_t trajd_cache_entry_bytes(const struct trajd_cache *cache,
                                 const struct trajd_selection *selection, uint32_t k,
                                 uint32_t episode_index);

void trajd_cache_get_stats(const struct trajd_cache *cache, struct trajd_cache_stats *stats);

#endif
