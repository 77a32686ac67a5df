/* The host cache: rows of episodes in memory, filled by reader threads ahead of use, within a byte
 * budget.
 *
 * Unit of loading: one dataset of one episode in one form ("entry"), rows filtered by the clock's
 * kept rows, dense, element type as in the file, or float32 in place of float64 where a selection
 * asks for it. What fits stays; what does not is evicted by the latest next use among the batches
 * prefetched, then least recently used.
 *
 *   absent --prefetch--> queued --reader--> resident --pin/unpin--> resident --evict--> absent
 *                                   \--> failed (the error is kept and given to whoever pins it)
 *
 * Where files lie on several filesystems, at most half the readers read from one: a dead mount
 * stops nobody else. Who waits for rows takes turns and is told TRAJD_ERR_CLOSED when it is to end
 * (base/heartbeat.h). */
#ifndef TRAJD_CACHE_CACHE_H
#define TRAJD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/index.h"
#include "proto/error.h"

struct trajd_cache;

struct trajd_cache_options {
    const struct trajd_index *index; /* must outlive the cache */
    uint64_t budget_bytes;           /* of resident rows */
    uint32_t reader_count;           /* reader threads, >= 1 */
};

/* Which datasets of the index a feed needs. Feeds with different selections share the entries that
 * both name: a cache is made once per dataset and serves feeds that come later. Owned by the
 * caller; must stay as it is during a call. */
struct trajd_selection {
    const uint32_t *array_indexes; /* into index->arrays, ascending */
    uint32_t array_count;
    /* [array_count]: rows of float64 converted once, when they are loaded; NULL: as in the file
     */
    const bool *as_float32;
};

struct trajd_cache_stats {
    /* total: all entries of the datasets that selections named so far */
    uint64_t resident_bytes, budget_bytes, total_bytes;
    uint64_t pinned_bytes;
    uint64_t bytes_read, entries_loaded, entries_evicted, pin_waits, read_errors;
    uint64_t missing_chunks; /* chunks that were never written and read as the fill value */
};

/* Starts the readers. Nothing is read yet. */
enum trajd_status trajd_cache_create(const struct trajd_cache_options *options,
                                     struct trajd_cache **cache, struct trajd_error *error);
/* Joins the readers and frees everything; no pin may be held. */
void trajd_cache_destroy(struct trajd_cache **cache);

/* Loads all entries of the selection (of the episodes named; NULL: every kept one) that fit the
 * budget beside what is there, in file order, and waits. *complete: all of them are resident now.
 * Rows that cannot be read are no error here: they are told to whoever pins them. */
enum trajd_status trajd_cache_fill(struct trajd_cache *cache,
                                   const struct trajd_selection *selection,
                                   const uint32_t *episode_indexes, uint32_t episode_count,
                                   bool *complete, struct trajd_error *error);

/* Says that the entries (episode_indexes[i], dataset) for all datasets of the selection will be
 * pinned at `when` (batches count up per caller): readers load them ahead in that order. Never
 * blocks; a hint. */
void trajd_cache_prefetch(struct trajd_cache *cache, const struct trajd_selection *selection,
                          const uint32_t *episode_indexes, uint32_t count, uint64_t when);

/* A pin uses up the oldest announcement of each of its entries.
 *
 * Makes the entries of one episode resident and keeps them so until unpin. rows[k] is the first row
 * of selection->array_indexes[k], NULL where the episode lacks it. Blocks until loaded.
 * TRAJD_ERR_MEMORY where all the budget is pinned, with the code ENOMEM where the machine has no
 * memory for what the budget allows; TRAJD_ERR_DATA / TRAJD_ERR_IO (with file, dataset and row)
 * where loading failed: IO is retried three times first, and again for the next one who pins. A
 * dataset on a clock that drops rows has those rows dropped; where it has fewer rows than the
 * clock, the kept ones that it has. */
enum trajd_status trajd_cache_pin(struct trajd_cache *cache,
                                  const struct trajd_selection *selection, uint32_t episode_index,
                                  const void **rows, struct trajd_error *error);
void trajd_cache_unpin(struct trajd_cache *cache, const struct trajd_selection *selection,
                       uint32_t episode_index);

/* The caller's pins of that episode stay for long, so that nobody waits for their room; let_go
 * before they are unpinned. */
void trajd_cache_retain(struct trajd_cache *cache, const struct trajd_selection *selection,
                        uint32_t episode_index);
void trajd_cache_release(struct trajd_cache *cache, const struct trajd_selection *selection,
                         uint32_t episode_index);
/* After a pin that found no room: the episode has room beside what is kept, so that it is worth
 * while to wait a moment and try again. */
bool trajd_cache_will_have_room(const struct trajd_cache *cache,
                                const struct trajd_selection *selection, uint32_t episode_index);

/* More room, from now on. */
void trajd_cache_raise_budget(struct trajd_cache *cache, uint64_t more_bytes);
/* Bytes of the rows that pin gives for selection->array_indexes[k]; 0: the episode lacks it. */
uint64_t trajd_cache_entry_bytes(const struct trajd_cache *cache,
                                 const struct trajd_selection *selection, uint32_t k,
                                 uint32_t episode_index);

void trajd_cache_get_stats(const struct trajd_cache *cache, struct trajd_cache_stats *stats);

#endif
