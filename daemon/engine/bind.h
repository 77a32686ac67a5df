/* A batch of windows, and the request by which the kernels make their values:
 *
 *   windows, anchor_ns, goals, bases     by the owner: which windows, and where their rows are
 *   trajd_bind_windows                     some of these windows -> the request
 *   the kernels, or trajd_resample_cpu   rows of the recording -> rows of the batch
 *   trajd_binding_finish                   these rows -> outputs that have a transform; the masks
 *                                          of steps that lack some of an output's streams
 *
 * The rules are constant; everything that changes from batch to batch is here. Several batches may
 * use the same rules at the same time. A batch is for one thread at a time. G is the number of
 * windows that it has room for. */
#ifndef TRAJD_ENGINE_BIND_H
#define TRAJD_ENGINE_BIND_H

#include "daemon/base/arena.h"
#include "daemon/engine/rules.h"
#include "daemon/engine/view.h"

struct trajd_window_plan; /* daemon/window */

/* The arrays of one bracket, [G] each. */
struct trajd_binding_bracket {
    int64_t *row_begin, *row_count, *anchor;
    uint32_t *too_old_begin, *too_old_end; /* of brackets with too_old_intervals */
};

/* The arrays of one target. */
struct trajd_binding_target {
    const void **bases; /* [G] */
};

/* The goals of the windows by one rule, [G] each. */
struct trajd_binding_goal {
    int64_t *anchor;    /* number of the goal's anchor in the episode */
    int64_t *anchor_ns; /* its time, from the episode's origin */
};

/* Where an output is in the slot. The owner of the slot sets it before the first bind. */
struct trajd_binding_output {
    uint64_t offset_bytes, mask_offset_bytes;
    uint64_t augment_offset_bytes; /* of the parameters of images that are augmented */
    /* of an output with a transform, or hidden: [G, T] rows as the kernels resample them; else
     * NULL. They are not part of the slot */
    uint8_t *rows;
    uint8_t *row_mask; /* [G, T] of a hidden output, and of lent rows, else NULL */
    bool is_lent;      /* the rows belong to somebody else (trajd_binding_lend_rows) */
};

struct trajd_binding {
    const struct trajd_plan_rules *rules;
    const struct trajd_window_plan *plan; /* the owner's; the engine does not look into it */
    const struct trajd_view *views;       /* by episode_index of the windows */
    uint32_t window_count;                /* windows that were looked up */
    struct trajd_window *windows;         /* [G] */
    int64_t *anchor_ns; /* [G]: the anchors of the windows, ns from the episode's origin */
    /* [G], ascending: the row of the batch for each window. NULL: window w is row w */
    uint32_t *window_rows;
    struct trajd_binding_goal *goals; /* [goal_count] */
    /* [grid_count] of [G][T]; NULL where one list of offsets serves all windows */
    int64_t **offsets;
    struct trajd_binding_bracket *brackets; /* [bracket_count] */
    struct trajd_binding_target *targets;   /* [target_count] */
    struct trajd_binding_output *outputs;   /* [output_count] */
    uint8_t *slot;                          /* of the windows that were bound last */
    /* the request that bind fills. The streams of images stand behind its stream_count, only for
     * trajd_resample_resolve. Its arrays are [..._count]; they point into the arrays above */
    struct trajd_grid *request_grids;
    struct trajd_bracket *request_brackets;
    struct trajd_stream *request_streams;
    struct trajd_resample_request request;
    struct trajd_arena arena; /* owns all arrays but the rows of outputs */
};

struct trajd_binding_options {
    const struct trajd_plan_rules *rules; /* complete; borrowed */
    const struct trajd_view *views;       /* borrowed; their contents may change between batches */
    const struct trajd_clock *clocks;     /* [clock_count]: as the kernels take them; borrowed */
    uint32_t window_limit;                /* G */
    bool has_window_rows;                 /* each window has a row number */
};

/* Makes an empty batch. Caller destroys. TRAJD_ERR_MEMORY without a message. */
enum trajd_status trajd_binding_create(const struct trajd_binding_options *options,
                                       struct trajd_binding **batch);
void trajd_binding_destroy(struct trajd_binding **batch);

/* Returns from where the steps of a grid count in window w: an anchor of the episode, and its
 * time. */
int64_t trajd_binding_anchor(const struct trajd_binding *batch, const struct trajd_plan_grid *grid,
                             uint32_t w);
int64_t trajd_binding_anchor_ns(const struct trajd_binding *batch,
                                const struct trajd_plan_grid *grid, uint32_t w);

/* Returns the addresses of an episode: the element `entry` of a target is the first row of its
 * stream. NULL: the episode cannot be read, and its rows are masked MISSING. Called once per
 * window. */
typedef const void *const *(*trajd_episode_rows)(void *context, uint32_t episode_index);

/* Binds the windows [first, first + count) of those looked up: fills batch->request, with outputs
 * and masks in `slot`. The bases of images, which the kernels do not read, become the address of
 * the episode's view where `rows` gives an address, else NULL. */
void trajd_bind_windows(struct trajd_binding *batch, uint32_t first, uint32_t count, uint8_t *slot,
                        trajd_episode_rows rows, void *context);
/* The parts of it, for an owner that finds the rows only when it knows the times of the steps:
 * place writes the offsets of grids that differ between windows, see the rest but for the bases. */
void trajd_bind_steps(struct trajd_binding *batch, uint32_t first, uint32_t count);
void trajd_bind_rows(struct trajd_binding *batch, uint32_t first, uint32_t count, uint8_t *slot);

/* ---- after the kernels ---- */

/* Makes the outputs with a transform (wanted[output] or, for NULL, all of them) from the rows of
 * windows [begin, end) of those that were bound last, where 0 is `first`. In windows that lack some
 * streams of an output, and not all, it masks steps as the others have them (is_filled). Call it
 * when they are resampled. Threads may make different windows at the same time. */
void trajd_binding_finish(const struct trajd_binding *batch, uint32_t first, uint32_t begin,
                          uint32_t end, const bool *wanted);

/* Puts the rows of an output elsewhere, for example into a GPU's memory, with a mask of their own.
 * Borrowed until the batch is destroyed. */
void trajd_binding_lend_rows(struct trajd_binding *batch, uint32_t output_index, uint8_t *rows,
                             uint8_t *row_mask);
/* Fills *job for the windows that were bound last, from `first` on, of an output with a transform.
 * Its scale, offset and window_rows are those of the batch. */
void trajd_binding_job(const struct trajd_binding *batch, uint32_t first, uint32_t output_index,
                       struct trajd_transform_job *job);

/* A rotation in the rows of a target, which the kernels blend number by number. */
struct trajd_binding_blend {
    uint32_t target_index, column;
    enum trajd_rotation_form form;
};

/* Finds the rotation of a part of an output's transform: of its rows, or of its state. Returns
 * false where none is blended. */
bool trajd_rules_find_blend(const struct trajd_plan_rules *rules, uint32_t output_index,
                            uint32_t part_index, bool of_state, struct trajd_binding_blend *blend);

#endif
