/* Shared by a producer's files: producer_create.c (create, destroy, the tensors of a slot),
 * producer.c (the thread: rows, windows, ids, hand-over), producer_norm.c (normalisation),
 * producer_images.c, producer_report.c (the feed in words). Called by the producer's thread:
 * functions that take a fill, and pin_windows, unpin_windows, wait_for_others, pause_for_room. All
 * others are called before that thread starts, or after it has ended. */
#ifndef TRAJD_PRODUCER_PRODUCER_INTERNAL_H
#define TRAJD_PRODUCER_PRODUCER_INTERNAL_H

#include "daemon/base/clock.h"
#include "daemon/producer/producer.h"
#include "daemon/window/window_batch.h"

#define TRAJD_PRODUCER_ID_COUNT 4 /* window_id, dataset_index, episode_index, anchor_ns */

/* One dataset of the feed. */
struct trajd_producer_member {
    struct trajd_dataset *dataset;
    const struct trajd_window_plan *plan; /* the mixture plan's */
    struct trajd_binding *batch;          /* the mixture batch's */
    struct trajd_plan *kernel_plan;
    /* the arrays that batches read from the cache: the plan's, without those on the GPU */
    const struct trajd_selection *selection;
    /* every cache entry stays pinned while the feed lives, and nothing is pinned per batch */
    bool resident;
    const void **rows; /* [index episodes][arrays], of the episodes pinned now */
    uint8_t *pinned;   /* [index episodes]: 1 pinned, 2 unreadable (bad_rows: keep) */
    uint32_t *ahead;   /* [G]: episodes to prefetch for one batch */
    uint32_t ahead_count;
    struct trajd_producer_image *images; /* [plan->rules.image_count] */
    uint64_t windows;                    /* made; atomic */
};

/* All accesses of counters are relaxed: they order no other memory. Atomicity alone makes sure that
 * no step is lost. */
static inline void trajd_counter_add(uint64_t *counter, uint64_t step)
{
    __atomic_fetch_add(counter, step, __ATOMIC_RELAXED);
}

static inline uint64_t trajd_counter_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Adds the time since begin_ns to a counter. Returns the time. */
static inline int64_t trajd_producer_count_time(struct trajd_producer *producer, int counter,
                                                int64_t begin_ns)
{
    const int64_t now_ns = trajd_now_ns();

    trajd_counter_add(&producer->counters[counter], (uint64_t)(now_ns - begin_ns));
    return now_ns;
}

/* ---- producer_norm.c ---- */

/* Sets the statistics that the outputs are normalised by. Computes them where they are unknown,
 * unless there is no server (--check). Blocks while they are computed. */
enum trajd_status trajd_producer_normalise(struct trajd_producer *producer,
                                           struct trajd_error *error);
/* ---- producer.c ---- */

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
/* Prefetch the rows, and the frames, of the batches after this one, each batch once. Do not
 * block. */
void trajd_producer_prefetch_rows(struct trajd_producer *producer, const struct trajd_fill *fill);
void trajd_producer_prefetch_frames(struct trajd_producer *producer, const struct trajd_fill *fill);
/* Makes the windows looked up last that belong to these rows of the batch, dataset by dataset.
 * Where they need more rows at once than the cache can hold, makes each half of them on its own. */
enum trajd_status trajd_producer_make_rows(struct trajd_producer *producer,
                                           const struct trajd_fill *fill, struct trajd_rows rows,
                                           struct trajd_error *error);

/* Writes the ids of the windows that were looked up last to the slot. */
void trajd_producer_write_ids(const struct trajd_producer *producer, const struct trajd_fill *fill);
/* Returns whether columns of an output are filled where episodes lack them: it then has a tensor
 * that says which, behind the ids. */
bool trajd_producer_fills(const struct trajd_producer *producer, uint32_t output_index);
/* Counts the batch, and publishes it with the work since the batch before it. `failure` NULL: the
 * batch is good. */
void trajd_producer_publish(struct trajd_producer *producer, const struct trajd_fill *fill,
                            const struct trajd_error *failure);
/* Runs the thread of a producer on the CPU until the feed is closed. */
void *trajd_producer_run(void *producer);

/* Returns true where workers of this node read that row of the batch. Later batches have the same
 * rows for the same workers. */
static inline bool trajd_producer_reads_row(const struct trajd_fill *fill, uint64_t row)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        if (row >= fill->ranges[r].begin && row - fill->ranges[r].begin < fill->ranges[r].count)
            return true;
    return false;
}

/* ---- producer_images.c ---- */

/* Opens the views of a member's images, and closes them, also after opening failed. */
enum trajd_status trajd_producer_open_images(struct trajd_producer *producer,
                                             struct trajd_producer_member *member,
                                             struct trajd_error *error);
void trajd_producer_close_images(struct trajd_producer_member *member);
/* Asks for the frames of the batch at `position`, which is that of `fill` or one after it. Does not
 * block. False where there is no room for all of them. */
bool trajd_producer_want_frames(struct trajd_producer *producer, const struct trajd_fill *fill,
                                uint64_t position, uint32_t count);
/* Forgets what another run asked for. */
void trajd_producer_forget_frames(struct trajd_producer *producer);
/* Makes the images of the windows [first, first + count), which are bound. Blocks until their
 * frames are decoded. TRAJD_ERR_MEMORY: there is no room for all of them at once. */
enum trajd_status trajd_producer_make_images(struct trajd_producer *producer,
                                             struct trajd_producer_member *member, uint32_t first,
                                             uint32_t count, struct trajd_error *error);

/* ---- producer_report.c ---- */

/* Returns the name of an output that trajd 0.1.0 would normalise otherwise, because its statistics
 * are over rows or it has min_std. NULL: there is none. */
const char *trajd_producer_changed_norm(const struct trajd_producer *producer);
/* Writes one line for each normalised output. */
void trajd_producer_report_norm(const struct trajd_producer *producer, FILE *out);
/* Returns what the feed leaves out of its datasets. The texts are borrowed from the plan. */
struct trajd_feed_data trajd_producer_data(const struct trajd_producer *producer);

#endif
