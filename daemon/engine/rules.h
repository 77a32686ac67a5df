/* The rules of a plan: what a feed, or an observation of a robot, resolves to. Which steps each
 * output has on which clock, and how rows become values: kinds, limits, transforms, scales,
 * images. There are no episodes, files or addresses in it. bind.h binds windows by these rules;
 * rules_document.h writes and reads them.
 *
 *   outputs -> targets, one for each source stream of an output
 *              target -> bracket: a clock seen through a grid, with the limit of what is visible
 *                        bracket -> grid: at which steps the targets lie
 *
 * Whoever makes rules fills outputs and targets, gives each target its bracket by
 * trajd_rules_find_bracket, and completes the streams by trajd_rules_complete. After that they are
 * constant and thread-safe. Arrays have their length in [], where T is the steps and D the features
 * of an output. */
#ifndef TRAJD_ENGINE_RULES_H
#define TRAJD_ENGINE_RULES_H

#include "daemon/engine/view.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image.h"
#include "kernels/image/image_finish.h"
#include "kernels/resample.h"
#include "kernels/transform/transform.h"

enum { TRAJD_RULES_MAX_RANK = 9 };
#define TRAJD_PLAN_ABSENT UINT32_MAX

enum trajd_role {
    TRAJD_ROLE_OBS = 0, /* sees nothing after the anchor (and lookahead) */
    TRAJD_ROLE_ACTION = 1,
    TRAJD_ROLE_NEXT = 2, /* an observation after the action: it may read after the anchor */
    TRAJD_ROLE_GOAL = 3, /* an observation as the window of a later anchor has it */
};

/* What the statistics of an output weigh alike. */
enum trajd_norm_over {
    TRAJD_NORM_OVER_DEFAULT = 0, /* not given: ROWS, or as the feed of statistics_from says */
    TRAJD_NORM_OVER_ROWS = 1,    /* each row of the anchor's clock once */
    TRAJD_NORM_OVER_WINDOWS = 2, /* each step once for each window that contains it */
};

/* What happens where an episode lacks a stream. */
enum trajd_missing { TRAJD_MISSING_ERROR = 0, TRAJD_MISSING_ZERO = 1, TRAJD_MISSING_SKIP = 2 };

enum trajd_target_rule {
    TRAJD_TARGET_ROWS, /* rows of the anchor's own clock; no search */
    /* the times of the anchors `from` to `from + step_count - 1` after the window's anchor,
     * searched on another clock */
    TRAJD_TARGET_ANCHOR_STEPS,
    TRAJD_TARGET_OFFSETS, /* fixed offsets from the anchor, in ns */
};

struct trajd_plan_grid {
    enum trajd_target_rule rule;
    uint32_t goal;       /* the steps count from goal number goal - 1; 0: from the anchor */
    int64_t from;        /* first step */
    uint32_t step_count; /* T */
    /* rate of the steps; num 0: the steps are the anchors, whose rate is irregular or differs
     * between episodes */
    struct trajd_rate rate;
    bool per_window;
    int64_t *offsets; /* [T]; NULL: each window has its own (per_window) */
    int64_t *step_ns; /* [T]: time of each step, relative to step 0 */
    /* [T]: the fraction of a ns that rounding down removed from step_ns, in units of 1 /
     * (anchor_rate.num * rate.num) ns */
    uint64_t *step_fraction;
};

struct trajd_plan_bracket {
    uint32_t clock_index, grid_index;
    bool in_chunk; /* rows after the last step are hidden: a return ends there */
    bool clipped;  /* rows after anchor (or goal) + lookahead are hidden */
    /* clipped: the visible rows are searched. Otherwise the rows of the anchor's own clock end at
     * the anchor */
    bool is_searched;
    int64_t lookahead_ns;
    /* > 0: where the clock ends while the anchors go on, steps later than so many of its median
     * intervals after its last row are TOO_OLD. 0: never, as for the anchors' own clock */
    uint32_t too_old_intervals;
    /* >= 0: the array whose row count applies, for example where an episode has one observation
     * more than its clock has rows; -1: the clock's row count */
    int64_t array_index;
};

/* One source stream of one output. */
struct trajd_plan_target {
    uint32_t output_index;
    uint32_t stream_index; /* TRAJD_PLAN_ABSENT: there is none, and its steps are MISSING */
    uint32_t bracket_index;
    /* the place of its rows among the addresses of an episode; TRAJD_PLAN_ABSENT: none, or
     * images */
    uint32_t entry;
    enum trajd_missing missing;
    /* where an episode lacks it, its columns are filled, and steps stay valid that the output's other
     * streams have */
    bool is_filled;
    /* as the kernels take it, without rows, outputs and masks */
    struct trajd_stream stream;
};

struct trajd_plan_output {
    const char *name;
    enum trajd_role role;
    enum trajd_dtype dtype;
    uint32_t step_count; /* T */
    uint32_t rank;       /* of one step */
    uint64_t shape[TRAJD_RULES_MAX_RANK];
    uint64_t feature_count; /* D, over all sources, after the transform */
    /* a row as the kernels resample it: another one where there is a transform */
    enum trajd_dtype row_dtype;
    uint64_t row_feature_count;
    struct trajd_transform *transform; /* from rows to the output; NULL: they are the same */
    uint32_t reference_output;         /* of a relative transform: the output with the state */
    bool is_hidden;                    /* not delivered; hidden outputs come last */
    uint32_t norm_step_count;          /* T where each step has a scale of its own, else 1 */
    /* [norm_step_count, D]: normalisation; 1 and 0 until it is known; NULL: none */
    float *scale, *offset;
    enum trajd_norm_over norm_over; /* ROWS or WINDOWS */
    double norm_min_std;            /* mean_std: the smallest std that is divided by; 0: none */
    const struct trajd_augment *augment; /* of its image; NULL: it is not augmented */
};

/* The images of one target: how a frame of the stream is prepared, and how a prepared frame
 * becomes a step of the output. `written` is the part of `finish` that is done here, the rest is
 * the worker's: all of it, or none. */
struct trajd_plan_image {
    struct trajd_image_preparation preparation;
    struct trajd_augment augment; /* with all sizes in pixels; count 0: none */
    struct trajd_image_finish finish, written;
};

struct trajd_plan_rules {
    enum trajd_edge edge;
    int64_t anchor_clock; /* number of the clock; -1: the anchors have a rate alone */
    /* of all anchors; num 0: irregular, or different between episodes */
    struct trajd_rate anchor_rate;
    uint32_t clock_count, goal_count;
    uint32_t grid_count, bracket_count, target_count, output_count;
    uint32_t visible_count; /* of the outputs: those that are delivered */
    /* The kernels read the rows of the first targets. The others, row_target_count + p, are
     * images[p]. */
    uint32_t row_target_count, image_count;
    struct trajd_plan_grid *grids;
    struct trajd_plan_bracket *brackets;
    struct trajd_plan_target *targets;
    struct trajd_plan_image *images;
    struct trajd_plan_output *outputs;
};

static inline bool trajd_rate_is_same(struct trajd_rate a, struct trajd_rate b)
{
    return a.num == b.num && a.den == b.den;
}

/* Finds a grid with the rule, goal, steps and rate of *wanted, or adds it; there must be room in
 * grids[]. Its offsets of one batch of `window_count` windows must not exceed 2^24.
 * TRAJD_ERR_MEMORY without a message: there is no memory, or they do. */
enum trajd_status trajd_rules_find_grid(struct trajd_plan_rules *rules,
                                        const struct trajd_plan_grid *wanted, uint32_t window_count,
                                        uint32_t *grid_index);
/* Finds a bracket that is like *wanted, or adds it; there must be room in brackets[].
 * `is_regular`: rows of its clock have no stamps. Sets is_searched. */
uint32_t trajd_rules_find_bracket(struct trajd_plan_rules *rules,
                                  const struct trajd_plan_bracket *wanted, bool is_regular);
/* Completes the stream of each row target with what follows from its output: type, strides, scale
 * and the shared mask. */
void trajd_rules_complete(struct trajd_plan_rules *rules);
/* Frees the lists of the grids, and no other memory. */
void trajd_rules_clear_grids(struct trajd_plan_rules *rules);

/* Returns the first target of an output. Those of one output stand together. */
uint32_t trajd_rules_first_target(const struct trajd_plan_rules *rules, uint32_t output_index);
/* Returns the target after the last one of the output whose first target is `first`. */
uint32_t trajd_rules_end_target(const struct trajd_plan_rules *rules, uint32_t first);
/* Returns the grid of a target. */
const struct trajd_plan_grid *trajd_rules_grid(const struct trajd_plan_rules *rules,
                                               uint32_t target);
/* Returns the time of anchor j of an episode with these clocks. */
int64_t trajd_rules_anchor_ns(const struct trajd_plan_rules *rules,
                              const struct trajd_episode_clock *clocks, int64_t j);
/* Returns 1 where the fractions that floor() cut off anchor j and step t of a grid add up to a
 * whole ns, else 0. */
int64_t trajd_rules_carry_ns(const struct trajd_plan_rules *rules,
                             const struct trajd_plan_grid *grid, int64_t j, int64_t t);
/* Returns the fraction that floor() cut off anchor j. *denominator is one ns. Both are in the units
 * of grid->step_fraction. */
uint64_t trajd_rules_anchor_fraction(const struct trajd_plan_rules *rules,
                                     const struct trajd_plan_grid *grid, int64_t j,
                                     uint64_t *denominator);

#endif
