/* A batch of a window plan: the windows that were looked up, and the request by which the kernels
 * make them.
 *
 *   trajd_window_batch_look_up (or _clear and _add)   position -> windows and their anchors
 *   trajd_window_batch_bind                           some of these windows -> the request
 *
 * The plan is constant; everything that changes from batch to batch is here. Several batches may
 * use one plan at the same time. A batch is for one thread at a time. */
#ifndef TRAJD_WINDOW_WINDOW_BATCH_H
#define TRAJD_WINDOW_WINDOW_BATCH_H

#include "daemon/window/window_plan.h"

/* The arrays of one bracket, [G] each. */
struct trajd_batch_bracket {
    int64_t *row_begin, *row_count, *anchor;
};

/* The arrays of one target. */
struct trajd_batch_target {
    const void **bases; /* [G] */
};

/* The goals of the windows by one rule, [G] each. */
struct trajd_batch_goal {
    int64_t *anchor;    /* number of the goal's anchor in the episode */
    int64_t *anchor_ns; /* its time, from the episode's origin */
};

/* Where an output lies in the slot. The owner of the slot sets it before the first bind. */
struct trajd_batch_output {
    uint64_t offset_bytes, mask_offset_bytes;
    uint64_t augment_offset_bytes; /* of the parameters of pictures that are augmented */
    /* of an output with a transform, or hidden: [G, T] rows as the kernels resample them; else
     * NULL. They are not part of the slot */
    uint8_t *rows;
    uint8_t *row_mask; /* [G, T] of a hidden output, and of lent rows, else NULL */
    bool is_lent;      /* the rows belong to somebody else (trajd_window_batch_lend_rows) */
};

struct trajd_window_batch {
    const struct trajd_window_plan *plan;
    uint32_t window_count;        /* windows that were looked up */
    struct trajd_window *windows; /* [G] */
    int64_t *anchor_ns; /* [G]: the anchors of the windows, ns from the episode's origin */
    /* [G], ascending: the row of the batch for each window. NULL: window w is row w */
    uint32_t *window_rows;
    int64_t *
        *offsets; /* [grid_count] of [G][T]; NULL where one list of offsets serves all windows */
    struct trajd_batch_goal *goals;       /* [goal_count]; bind draws them */
    struct trajd_batch_bracket *brackets; /* [bracket_count] */
    struct trajd_batch_target *targets;   /* [target_count] */
    struct trajd_batch_output *outputs;   /* [output_count] */
    /* the request that bind fills. The streams of pictures stand behind its stream_count, only for
     * trajd_resample_resolve. Its arrays are [..._count]; they point into the arrays above */
    struct trajd_grid *request_grids;
    struct trajd_bracket *request_brackets;
    struct trajd_stream *request_streams;
    struct trajd_resample_request request;
};

/* Makes an empty batch. Set the normalisation of the plan and copy its forms before. The plan must
 * outlive the batch. Caller destroys. */
enum trajd_status trajd_window_batch_create(const struct trajd_window_plan *plan,
                                            struct trajd_window_batch **batch,
                                            struct trajd_error *error);
void trajd_window_batch_destroy(struct trajd_window_batch **batch);

/* Looks up the windows [position, position + row_count) of an epoch. */
void trajd_window_batch_look_up(struct trajd_window_batch *batch, uint64_t epoch, uint64_t position,
                                uint32_t row_count);

/* Does the same one window at a time, for a member of a mixture: clear removes all windows, add
 * appends one for a row of the batch. Rows must ascend. */
void trajd_window_batch_clear(struct trajd_window_batch *batch);
void trajd_window_batch_add(struct trajd_window_batch *batch, const struct trajd_window *window,
                            uint32_t row);

/* Returns an array of addresses: rows[k] is the first row of array selection.array_indexes[k] in
 * this episode. NULL: the episode cannot be read, and its rows are masked MISSING. Called once per
 * window. */
typedef const void *const *(*trajd_episode_rows)(void *context, uint32_t episode_index);

/* Returns from where the steps of a grid count in window w: an anchor of the episode, and its
 * time. */
int64_t trajd_window_batch_anchor(const struct trajd_window_batch *batch,
                                  const struct trajd_plan_grid *grid, uint32_t w);
int64_t trajd_window_batch_anchor_ns(const struct trajd_window_batch *batch,
                                     const struct trajd_plan_grid *grid, uint32_t w);

/* Fills batch->request for the windows [first, first + count) of those looked up, with outputs and
 * masks in `slot`. */
void trajd_window_batch_bind(struct trajd_window_batch *batch, uint32_t first, uint32_t count,
                             uint8_t *slot, trajd_episode_rows rows, void *context);

/* ---- window_batch_transform.c ---- */

/* Makes the outputs with a transform (wanted[output] or, for NULL, all of them) from the rows of
 * windows [begin, end) of those that were bound last, where 0 is `first`. Call it when they are
 * resampled. Threads may make different windows at the same time. */
void trajd_window_batch_transform(const struct trajd_window_batch *batch, uint32_t first,
                                  uint32_t begin, uint32_t end, const bool *wanted, uint8_t *slot);

/* Puts the rows of an output elsewhere, for example into a GPU's memory, with a mask of their own.
 * Borrowed until the batch is destroyed. */
void trajd_window_batch_lend_rows(struct trajd_window_batch *batch, uint32_t output_index,
                                  uint8_t *rows, uint8_t *row_mask);
/* Fills *job for the windows that were bound last, from `first` on, of an output with a transform.
 * Its scale, offset and window_rows are those of the batch. */
void trajd_window_batch_job(const struct trajd_window_batch *batch, uint32_t first,
                            uint32_t output_index, uint8_t *slot, struct trajd_transform_job *job);

/* A rotation in the rows of a target, which the kernels blend number by number. */
struct trajd_batch_blend {
    uint32_t target_index, column;
    enum trajd_rotation_form form;
};

/* Finds the rotation of a part of an output's transform: of its rows, or of its state. Returns
 * false where none is blended. */
bool trajd_window_find_blend(const struct trajd_window_plan *plan, uint32_t output_index,
                             uint32_t part_index, bool of_state, struct trajd_batch_blend *blend);

#endif
