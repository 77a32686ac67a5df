/* Shared by a producer's files: producer.c (create, destroy, thread), producer_norm.c
 * (normalisation), producer_schema.c (tensors of a slot), producer_rows.c (rows and windows),
 * producer_publish.c (hands batches over), producer_report.c (the feed in words). Called by the
 * producer's thread: functions that take a fill, and pin_windows, unpin_windows, wait_for_others,
 * pause_for_room. All others are called before that thread starts, or after it has ended. */
#ifndef TRAJD_PRODUCER_PRODUCER_INTERNAL_H
#define TRAJD_PRODUCER_PRODUCER_INTERNAL_H

#include <pthread.h>

#include "daemon/producer/counter.h"
#include "daemon/window/mixture_plan.h"
#include "daemon/producer/producer.h"

enum {
    TRAJD_PRODUCER_BATCHES,
    TRAJD_PRODUCER_WINDOWS,
    TRAJD_PRODUCER_FAILED,
    TRAJD_PRODUCER_WAIT_NS,
    TRAJD_PRODUCER_LOAD_NS,
    TRAJD_PRODUCER_FRAMES_NS,
    TRAJD_PRODUCER_RESAMPLE_NS,
    TRAJD_PRODUCER_COUNTERS
};

/* One dataset of the feed. */
struct trajd_producer_member {
    struct trajd_dataset *dataset;
    const struct trajd_window_plan *plan; /* the mixture plan's */
    struct trajd_window_batch *batch;     /* the mixture batch's */
    struct trajd_plan *kernel_plan;
    /* the arrays that batches read from the cache: the plan's, without those on the GPU */
    const struct trajd_selection *selection;
    /* every cache entry stays pinned while the feed lives, and nothing is pinned per batch */
    bool resident;
    const void **rows; /* [index episodes][arrays], of the episodes pinned now */
    uint8_t *pinned;   /* [index episodes]: 1 pinned, 2 unreadable (bad_rows: keep) */
    uint32_t *ahead;   /* [G]: episodes to prefetch for one batch */
    uint32_t ahead_count;
    struct trajd_producer_picture *pictures; /* [plan->picture_count] */
    struct trajd_counter windows;
};

/* The last batch that could not be made. The producer's threads write it and the status reads
 * it. */
struct trajd_producer_failure {
    pthread_mutex_t mutex;
    struct trajd_error error; /* TRAJD_OK: there is none */
};

struct trajd_producer {
    char *name, *text;
    struct trajd_window_spec *spec;
    bool owns_spec;
    struct trajd_pool *pool;
    struct trajd_server *server;
    const struct trajd_log *log;
    struct trajd_stats_service *stats_service;
    bool norm_is_known;              /* the statistics that outputs are normalised by are set */
    struct trajd_mixture_plan *plan; /* constant once its normalisation is set */
    struct trajd_mixture_batch *batch;
    struct trajd_producer_member *members; /* [plan->member_count] */
    struct trajd_feed_schema schema;
    uint32_t slot_count;
    char *mask_names; /* "NAME.mask" and "NAME.augment" of outputs, NUL-separated */
    struct trajd_feed *feed;
    pthread_t thread;
    bool running;
    bool stop;                        /* atomic: asks the thread to end */
    struct trajd_heartbeat heartbeat; /* of the thread */
    struct trajd_window *next;        /* [G]: windows of a batch that is prefetched */
    uint64_t prefetched_run_id, prefetched_until;
    /* a batch that is made later, for its pictures; NULL: the feed has none */
    struct trajd_mixture_batch *ahead_batch;
    uint64_t wanted_run_id, wanted_epoch, wanted_until;
    struct trajd_counter counters[TRAJD_PRODUCER_COUNTERS];
    struct trajd_producer_failure last_failure;
    uint64_t published_work_ns[TRAJD_WORK_COUNT]; /* what the batches up to the last one took */
    bool is_unfinished;                           /* as in trajd_producer_options */
    struct trajd_gpu *gpu;                        /* NULL: batches are made on the CPU */
    struct trajd_producer_gpu *on_gpu; /* state of production on `gpu` (producer_gpu.c), or NULL */
    uint64_t rings_remaining_bytes;    /* of memory.rings, when the producer was made */
    /* of memory.rings: pinned buffers for the streamed rows of production on a GPU */
    uint64_t pinned_bytes;
    void (*gpu_lost)(void *context);
    void *lost_context;
};

/* ---- producer_norm.c ---- */

/* Sets the statistics that the outputs are normalised by. Computes them where they are unknown,
 * unless there is no server (--check). Blocks while they are computed. */
enum trajd_status trajd_producer_normalise(struct trajd_producer *producer,
                                           const struct trajd_producer_options *options,
                                           struct trajd_error *error);
/* Returns the name of an output that trajd 0.1.0 would normalise otherwise, because its statistics
 * are over rows or it has min_std. NULL: there is none. */
const char *trajd_producer_changed_norm(const struct trajd_producer *producer);
/* Writes one line for each normalised output. */
void trajd_producer_report_norm(const struct trajd_producer *producer, FILE *out);

/* ---- producer_failure.c ---- */

/* Counts and logs a batch that cannot be made. Puts its id before the message of *error. */
void trajd_producer_fail_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                               struct trajd_error *error);
/* Writes the member last_failure, a text, if a batch has failed. Thread-safe. */
void trajd_producer_describe_failure(struct trajd_producer_failure *last, struct trajd_json *json);

/* ---- producer_schema.c ---- */

/* Lays out a slot: each output followed by its mask, then the ids. Sets the outputs' offsets in the
 * batch. */
enum trajd_status trajd_producer_make_schema(struct trajd_producer *producer,
                                             struct trajd_error *error);
/* Writes the ids of the windows that were looked up last to the slot. */
void trajd_producer_write_ids(const struct trajd_producer *producer, const struct trajd_fill *fill);

/* ---- producer_rows.c ---- */

/* Loads rows into the cache as far as they fit. Where all of a member's rows fit and leave room for
 * other feeds, pins them for the feed's life. Blocks. */
enum trajd_status trajd_producer_load_rows(struct trajd_producer *producer,
                                           struct trajd_error *error);
/* Pins the rows of the windows [first, first + count) of those looked up last. Does nothing where
 * the member is resident. The caller unpins also after an error. TRAJD_ERR_MEMORY: the cache has no
 * room for all of them at once. */
enum trajd_status trajd_producer_pin_windows(struct trajd_producer *producer,
                                             struct trajd_producer_member *member, uint32_t first,
                                             uint32_t count, struct trajd_error *error);
void trajd_producer_unpin_windows(struct trajd_producer_member *member, uint32_t first,
                                  uint32_t count);
/* Called when the rows of one window do not fit the cache (*error). Returns true after a pause
 * where other feeds have pinned the room, so that the caller tries again. */
bool trajd_producer_wait_for_others(const struct trajd_producer *producer,
                                    const struct trajd_producer_member *member, uint32_t episode,
                                    const struct trajd_error *error);
/* Called when there was no room for a frame (*error). Returns true after a pause in which other
 * feeds may have given room back; false where the machine has no memory, or the producer is being
 * stopped. */
bool trajd_producer_pause_for_room(const struct trajd_producer *producer,
                                   const struct trajd_error *error);
/* Frees what load_rows has made, also after it failed. */
void trajd_producer_drop_rows(struct trajd_producer *producer);
/* Prefetches the episodes of the batches after this one, each batch once. Does not block. */
void trajd_producer_prefetch(struct trajd_producer *producer, const struct trajd_fill *fill);
/* Makes the windows looked up last that belong to these rows of the batch, dataset by dataset.
 * Where they need more rows at once than the cache can hold, makes each half of them on its own. */
enum trajd_status trajd_producer_make_rows(struct trajd_producer *producer,
                                           const struct trajd_fill *fill, struct trajd_rows rows,
                                           struct trajd_error *error);

/* Returns true where workers of this node read that row of the batch. Later batches have the same
 * rows for the same workers. */
static inline bool trajd_producer_reads_row(const struct trajd_fill *fill, uint64_t row)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        if (row >= fill->ranges[r].begin && row - fill->ranges[r].begin < fill->ranges[r].count)
            return true;
    return false;
}

/* ---- producer_pictures.c ---- */

/* Opens the views of a member's pictures, and closes them, also after opening failed. */
enum trajd_status trajd_producer_open_pictures(struct trajd_producer *producer,
                                               struct trajd_producer_member *member,
                                               struct trajd_error *error);
void trajd_producer_close_pictures(struct trajd_producer_member *member);
/* Asks for the frames of the batches after this one, each batch once. Does not block. */
void trajd_producer_want_pictures(struct trajd_producer *producer, const struct trajd_fill *fill);
/* Makes the pictures of the windows [first, first + count), which are bound. Blocks until their
 * frames are decoded. TRAJD_ERR_MEMORY: there is no room for all of them at once. */
enum trajd_status trajd_producer_make_pictures(struct trajd_producer *producer,
                                               struct trajd_producer_member *member,
                                               const struct trajd_fill *fill, uint32_t first,
                                               uint32_t count, struct trajd_error *error);

/* ---- producer_publish.c ---- */

/* Counts the batch, and publishes it with the work since the batch before it. `failure` NULL: the
 * batch is good. */
void trajd_producer_publish(struct trajd_producer *producer, const struct trajd_fill *fill,
                            const struct trajd_error *failure);

/* ---- producer_report.c ---- */

/* Returns what the feed leaves out of its datasets. The texts are borrowed from the plan. */
struct trajd_feed_data trajd_producer_data(const struct trajd_producer *producer);

#endif
