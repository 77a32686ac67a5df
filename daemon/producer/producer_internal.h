/* Between a producer's files: its life and thread (producer.c), the tensors of its slots
 * (producer_schema.c), rows and windows (producer_rows.c). The thread that owns a fill calls what
 * takes one; the rest is called before that thread runs, or after. */
#ifndef TRAJD_PRODUCER_PRODUCER_INTERNAL_H
#define TRAJD_PRODUCER_PRODUCER_INTERNAL_H

#include <pthread.h>

#include "daemon/base/counter.h"
#include "daemon/window/mixture_plan.h"
#include "daemon/producer/producer.h"

enum {
    TRAJD_PRODUCER_BATCHES,
    TRAJD_PRODUCER_WINDOWS,
    TRAJD_PRODUCER_FAILED,
    TRAJD_PRODUCER_WAIT_NS,
    TRAJD_PRODUCER_LOAD_NS,
    TRAJD_PRODUCER_RESAMPLE_NS,
    TRAJD_PRODUCER_COUNTERS
};

/* One dataset of the feed. */
struct trajd_producer_member {
    struct trajd_dataset *dataset;
    const struct trajd_window_plan *plan; /* the mixture plan's */
    struct trajd_window_batch *batch;     /* the mixture batch's */
    struct trajd_plan *kernel_plan;
    /* what batches read from the cache: the plan's, or what of it is not on the GPU */
    const struct trajd_selection *selection;
    /* every entry stays in the cache while the feed lives: nothing is pinned per batch */
    bool resident;
    const void **rows; /* [index episodes][entries], of the episodes pinned now */
    uint8_t *pinned;   /* [index episodes]: 1 pinned, 2 unreadable (bad_rows: keep) */
    uint32_t *ahead;   /* [G]: episodes prefetched */
    uint32_t ahead_count;
    struct trajd_counter windows;
};

struct trajd_producer {
    char *name, *text;
    struct trajd_window_spec *spec;
    bool owns_spec;
    struct trajd_pool *pool;
    struct trajd_server *server;
    const struct trajd_log *log;
    struct trajd_stats_service *stats_service;
    bool norm_is_known;              /* statistics that the outputs go by are in force */
    struct trajd_mixture_plan *plan; /* constant once its normalisation is in force */
    struct trajd_mixture_batch *batch;
    struct trajd_producer_member *members; /* [plan->member_count] */
    struct trajd_feed_schema schema;
    uint32_t slot_count;
    char *mask_names; /* "NAME.mask" of each output, NUL-separated */
    struct trajd_feed *feed;
    pthread_t thread;
    bool running;
    bool stop;                        /* atomic: the thread is to end */
    struct trajd_heartbeat heartbeat; /* the thread's */
    struct trajd_window *next;        /* [G]: windows prefetched */
    uint64_t prefetched_run_id, prefetched_until;
    struct trajd_counter counters[TRAJD_PRODUCER_COUNTERS];
    struct trajd_gpu *where;        /* NULL: host memory */
    struct trajd_producer_gpu *gpu; /* producer_gpu.c; NULL likewise */
    uint64_t rings_left_bytes;      /* of memory.rings, when it was made */
    /* what a production on a GPU has of them: on their way there, rows that are not resident */
    uint64_t pinned_bytes;
    void (*gpu_lost)(void *context);
    void *lost_context;
};

/* ---- producer_norm.c ---- */

/* Puts the statistics in force that the outputs go by. Without a server only if they are known. */
enum trajd_status trajd_producer_normalise(struct trajd_producer *producer,
                                           const struct trajd_producer_options *options,
                                           struct trajd_error *error);
/* A line an output that is normalised. */
void trajd_producer_describe_norm(const struct trajd_producer *producer, FILE *out);

/* ---- producer_schema.c ---- */

/* Tensors: output and mask in turn, then the ids; tells the batch where outputs lie in a slot.
 */
enum trajd_status trajd_producer_make_schema(struct trajd_producer *producer,
                                             struct trajd_error *error);
/* Writes the ids of the windows looked up last into the slot. */
void trajd_producer_write_ids(const struct trajd_producer *producer, const struct trajd_fill *fill);

/* ---- producer_rows.c ---- */

/* Loads what fits; where all of it does and leaves room, pins it for the feed's life. Blocks. */
enum trajd_status trajd_producer_load_rows(struct trajd_producer *producer,
                                           struct trajd_error *error);
/* Rows of the windows [first, first + count) of those looked up last, until they are unpinned;
 * nothing is done where the part is resident. Whatever comes of it, what was pinned is to be
 * unpinned. TRAJD_ERR_MEMORY: the cache has no room for as many. */
enum trajd_status trajd_producer_pin_windows(struct trajd_producer *producer,
                                             struct trajd_producer_member *member, uint32_t first,
                                             uint32_t count, struct trajd_error *error);
void trajd_producer_unpin_windows(struct trajd_producer_member *member, uint32_t first,
                                  uint32_t count);
/* The rows of one window do not fit the cache, as *error tells: true after a pause, if others have
 * pinned what is missing. */
bool trajd_producer_wait_for_others(const struct trajd_producer *producer,
                                    const struct trajd_producer_member *member, uint32_t episode,
                                    const struct trajd_error *error);
/* What load_rows has made, in whatever state. */
void trajd_producer_drop_rows(struct trajd_producer *producer);
/* Tells the cache which episodes the batches behind this one will want, each batch once. */
void trajd_producer_prefetch(struct trajd_producer *producer, const struct trajd_fill *fill);
/* Makes the windows looked up last that go to these rows, dataset by dataset. Where they need more
 * rows at once than a cache may hold: half of them, then the rest. */
enum trajd_status trajd_producer_make_rows(struct trajd_producer *producer,
                                           const struct trajd_fill *fill, struct trajd_rows rows,
                                           struct trajd_error *error);

#endif
