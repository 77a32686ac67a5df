/* Inside the cache: its entries and their states. cache_entry.c is at the bottom; cache_reader.c
 * (threads) and cache_fill.c (calls) use it; cache.c makes and destroys the cache. The caller of
 * every function here holds trajd_cache.lock unless the function says otherwise.
 *
 * Each filesystem has three queues, first in first out: demand (a pin waits), fill, and ahead
 * (prefetched). An entry may be in several queues. A queue skips an entry that is no longer wanted
 * there when its turn comes.
 *
 * Room is accounted before memory is allocated. The bytes of pinned entries never exceed the
 * budget, so a pin that waits for room gets it: every other entry can be evicted now, or after the
 * read that is under way. */
#ifndef TRAJD_CACHE_CACHE_INTERNAL_H
#define TRAJD_CACHE_CACHE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/index/rows/array.h"
#include "daemon/base/arena.h"
#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache.h"

#define NO_ENTRY UINT32_MAX
#define NO_USE UINT32_MAX
#define NEVER UINT64_MAX

enum entry_state { ENTRY_ABSENT, ENTRY_LOADING, ENTRY_RESIDENT, ENTRY_FAILED };
enum queue_kind { QUEUE_DEMAND, QUEUE_FILL, QUEUE_AHEAD, QUEUE_COUNT };

/* Where a file has bytes. */
struct place {
    uint64_t begin, end;
};

struct entry {
    void *rows; /* while resident */
    /* as accounted: rounded up to what the allocation takes; 0: nothing to load */
    uint64_t bytes;
    struct place place;                  /* of its rows; since it was first queued */
    uint64_t last_use;                   /* the cache's tick at the last unpin */
    struct trajd_error *failure;         /* while failed */
    uint32_t pins;                       /* includes pins that wait */
    uint32_t retains;                    /* pins that are long-lived */
    uint32_t heap_index;                 /* while resident and not pinned, else NO_ENTRY */
    uint32_t first_use, last_prefetched; /* list of prefetched uses, oldest first */
    uint32_t next[QUEUE_COUNT];
    bool queued[QUEUE_COUNT];
    uint8_t state; /* enum entry_state */
};

struct queue {
    uint32_t first, last;
};

struct filesystem {
    dev_t device;
    const char *mount; /* the folder where it is mounted; NULL: no memory for its name */
    uint32_t reads_in_flight;
    struct queue queues[QUEUE_COUNT];
};

/* A prefetched use of an entry. Uses are in a ring: a new use overwrites the oldest one, so uses of
 * a closed feed disappear after some time. Memory that no use has reached is not touched. */
struct use {
    uint64_t when : 63, is_noted : 1; /* all zero at first: not noted */
    uint32_t entry;
    uint32_t next;
};

struct open_file {
    int fd; /* -1: closed */
    uint32_t users;
    uint64_t last_use;
    uint32_t filesystem; /* index into the cache's filesystems; constant */
    uint32_t place;      /* while it is open: where open_files has it */
};

struct trajd_cache {
    struct trajd_arena arena; /* of all tables */
    const struct trajd_index *index;
    uint64_t budget_bytes;
    pthread_mutex_t lock;
    pthread_cond_t work; /* a reader may find something to do */
    pthread_cond_t done; /* an entry has changed its state */
    bool stopping;
    /* episode_count * array_count * 2 forms; the entries of an episode are adjacent */
    uint32_t entry_count;
    struct entry *entries;
    int64_t *array_clock; /* per array: the clock whose kept rows filter it, or -1 */
    bool *array_named;    /* per array and form: whether a selection has named it */
    uint64_t pinned_bytes, retained_bytes;
    uint64_t lent_bytes; /* of the first budget, by trajd_cache_lend */
    uint64_t tick;
    /* eviction order: a heap of resident entries without pins; the first to be evicted is on top */
    uint32_t *heap;
    uint32_t heap_count;
    struct use *uses;
    uint32_t next_use;
    uint32_t filesystem_count, next_filesystem;
    struct filesystem *filesystems;
    uint32_t reads_per_filesystem;
    struct open_file *files;          /* per file of the index */
    uint32_t open_count, *open_files; /* [file_count]: the numbers of the open files come first */
    uint64_t file_tick;
    uint32_t reader_count; /* started */
    pthread_t *readers;
    struct trajd_heartbeat *heartbeats; /* [reader_count] */
    struct trajd_cache_stats stats;     /* includes budget and resident bytes */
};

/* Returns the number of an entry. Form 0: as in the file; form 1: converted to float32. */
static inline uint32_t trajd_cache_entry(const struct trajd_cache *cache,
                                         const struct trajd_selection *selection, uint32_t k,
                                         uint32_t episode_index)
{
    const bool form = selection->as_float32 && selection->as_float32[k];
    return (episode_index * cache->index->array_count + selection->array_indexes[k]) * 2 + form;
}

static inline uint32_t trajd_cache_entry_array_index(const struct trajd_cache *cache,
                                                     uint32_t entry)
{
    return entry / 2 % cache->index->array_count;
}

static inline uint32_t trajd_cache_entry_episode(const struct trajd_cache *cache, uint32_t entry)
{
    return entry / 2 / cache->index->array_count;
}

/* Returns whether the entry's rows are converted when they are read. They then take half the bytes
 * that they have in the file. */
static inline bool trajd_cache_entry_converts(const struct trajd_array *array, uint32_t entry)
{
    return entry % 2 && array->dtype == TRAJD_F64;
}

/* ---- cache_entry.c ---- */

const struct trajd_array *trajd_cache_entry_array(const struct trajd_cache *cache, uint32_t entry);
/* Returns the rows of the array that the entry keeps, ascending, or NULL for all. *count is how
 * many there are. Needs no lock. */
const uint32_t *trajd_cache_entry_rows(const struct trajd_cache *cache, uint32_t entry,
                                       uint64_t *count);
/* Returns the place of the entry's array in its file: entries that lie side by side are read
 * together. Needs no lock. */
struct place trajd_cache_find_place(const struct trajd_cache *cache, uint32_t entry);
void trajd_cache_enqueue(struct trajd_cache *cache, enum queue_kind kind, uint32_t entry);
/* Adds the arrays that no selection has named before to total_bytes. */
void trajd_cache_name_arrays(struct trajd_cache *cache, const struct trajd_selection *selection);
/* Returns the bytes of the entry's rows; 0 where its episode is in quarantine. Needs no lock. */
uint64_t trajd_cache_entry_row_bytes(const struct trajd_cache *cache, uint32_t entry);
/* Forgets an I/O error that no pin waits for, so that the next pin tries again: storage recovers. An
 * error in the data stays. */
void trajd_cache_forget_failure(struct entry *p);
uint64_t trajd_cache_footprint(uint64_t bytes);
void *trajd_cache_allocate(uint64_t bytes);        /* without the lock */
void trajd_cache_free(void *rows, uint64_t bytes); /* without the lock */

/* Which entry is evicted. */
uint64_t trajd_cache_next_use(const struct trajd_cache *cache, uint32_t entry);
void trajd_cache_heap_add(struct trajd_cache *cache, uint32_t entry);
/* Evicts a resident entry. Adds its block to a chain, which is freed without the lock. */
void trajd_cache_evict(struct trajd_cache *cache, uint32_t entry, void **chain);
void trajd_cache_free_evicted(void *chain);

/* ---- cache_reader.c ---- */
enum trajd_status trajd_cache_start_readers(struct trajd_cache *cache, uint32_t count,
                                            struct trajd_error *error);

#endif
