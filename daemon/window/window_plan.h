/* A feed's specification made concrete on a dataset: its tensors, its windows in order, and, batch
 * by batch, the request that the kernels are asked. One plan serves one feed; it is bound by one
 * thread at a time.
 *
 *   spec x index  -> targets (output x source), brackets, grids        window_plan.c,
 *                 window_plan_grid.c
 *                 -> segments of allowed anchors -> sampler            window_segments.c
 *   position      -> windows -> per-window arrays of the request       window_request.c */
#ifndef TRAJD_WINDOW_WINDOW_PLAN_H
#define TRAJD_WINDOW_WINDOW_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache/dataset.h"
#include "daemon/window/order/sampler.h"
#include "daemon/window/window_spec.h"
#include "kernels/resample.h"

enum trajd_target_rule {
    TRAJD_TARGET_ROWS,         /* rows of the anchor's own clock: no search */
    TRAJD_TARGET_ANCHOR_STEPS, /* the times of anchors j + from .. j + to, seen by another clock */
    TRAJD_TARGET_OFFSETS,      /* fixed ns offsets from the anchor */
};

struct trajd_plan_grid {
    enum trajd_target_rule rule;
    int64_t from;        /* first step */
    uint32_t step_count; /* T */
    /* of a step; num 0: the anchors', which differ from episode to episode or are irregular */
    struct trajd_rate rate;
    bool per_window;
    int64_t *offsets; /* [T]; NULL where each window has its own (per_window) */
    int64_t *step_ns; /* [T]: time of a step from a step 0 at 0 ns */
    /* [T]: what floor() cut off it, in units of 1 / (anchor rate num * rate num) ns */
    uint64_t *step_fraction;
};

struct trajd_plan_bracket {
    uint32_t clock_index, grid_index;
    bool clipped; /* observations: rows behind anchor + lookahead do not exist */
    int64_t lookahead_ns;
    int64_t array_index; /* >= 0: rows are this dataset's (T + 1 rows, say); -1: the clock's */
};

#define TRAJD_PLAN_ABSENT UINT32_MAX

/* One source stream of one output. */
struct trajd_plan_target {
    uint32_t output_index;
    /* of the index; TRAJD_PLAN_ABSENT: this dataset of a mixture lacks it, its steps are MISSING */
    uint32_t stream_index;
    /* of an absent one: the stream of a dataset that has it, on a clock of this dataset */
    struct trajd_index_stream model;
    uint32_t bracket_index;
    uint32_t entry; /* which dataset of the selection; TRAJD_PLAN_ABSENT likewise */
    enum trajd_missing missing;
};

struct trajd_plan_output {
    const char *name;
    enum trajd_role role;
    enum trajd_dtype dtype;
    uint32_t step_count; /* T */
    uint32_t rank;       /* of one step */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t feature_count; /* D over all sources */
    /* [D]: normalisation in force, 1 and 0 until it is known; NULL: none */
    float *scale, *offset;
};

struct trajd_window_plan {
    const struct trajd_window_spec *spec;
    struct trajd_dataset *dataset;
    const struct trajd_plan_peer *peers; /* of a mixture; the caller's */
    uint32_t peer_count;
    int64_t anchor_clock; /* index of the clock, or -1: spec->anchor_rate */
    /* of all anchors; num 0: irregular, or not the same in all episodes */
    struct trajd_rate anchor_rate;
    uint32_t grid_count, bracket_count, target_count, output_count;
    struct trajd_plan_grid *grids;
    struct trajd_plan_bracket *brackets;
    struct trajd_plan_target *targets;
    struct trajd_plan_output *outputs;
    uint32_t *entry_arrays;
    bool *entry_as_float32;
    struct trajd_selection selection;
    struct trajd_sampler *sampler;
    uint32_t episode_count; /* episodes that have windows */
    uint32_t *episodes;
    /* dataset and window specification; independent of G, slots, tail and normalisation */
    uint64_t fingerprint;
    bool is_member;             /* of a mixture: its windows go to rows of their own in a batch */
    struct trajd_clock *clocks; /* [clocks of the dataset], as the kernels take them */
    /* [target_count], as the kernels take them, without rows, outputs and masks */
    struct trajd_stream *streams;
};

/* TRAJD_ERR_ARGUMENT with the feed's and the output's name; TRAJD_ERR_NOT_FOUND where a stream,
 * clock or filter does not exist (nearest names in the message); TRAJD_ERR_DATA where no window is
 * left. spec and dataset must outlive the plan. */
enum trajd_status trajd_window_plan_create(const struct trajd_window_spec *spec,
                                           struct trajd_dataset *dataset,
                                           struct trajd_window_plan **plan,
                                           struct trajd_error *error);

/* One dataset of a mixture, in the mixture's order. */
struct trajd_plan_peer {
    const struct trajd_window_spec *spec;
    struct trajd_dataset *dataset;
};

/* The plan of peers[index], whose windows go to rows of their own. A stream that it lacks and
 * another one has is filled where the output says `missing: zero`. peers must outlive the plan. */
enum trajd_status trajd_window_plan_create_member(const struct trajd_plan_peer *peers,
                                                  uint32_t peer_count, uint32_t index,
                                                  struct trajd_window_plan **plan,
                                                  struct trajd_error *error);
void trajd_window_plan_destroy(struct trajd_window_plan **plan);

/* The plan of the same dataset for another specification of the same outputs (batches of another
 * size, say), alone. */
enum trajd_status trajd_window_plan_create_again(const struct trajd_window_plan *plan,
                                                 const struct trajd_window_spec *spec,
                                                 struct trajd_window_plan **again,
                                                 struct trajd_error *error);

/* Whether the dataset lacks a stream of the output. */
bool trajd_window_plan_lacks(const struct trajd_window_plan *plan, uint32_t output_index);

/* Has float64 rows loaded in the forms that another plan of the same outputs has chosen: one form
 * in the cache serves both. Values are the same. Before anything is bound. */
void trajd_window_plan_copy_forms(struct trajd_window_plan *plan,
                                  const struct trajd_window_plan *other);

/* ---- window_norm.c: normalisation ---- */

struct trajd_statistics; /* statistics.h */

/* The output is normalised by figures that are computed: it waits for trajd_window_norm_set. */
bool trajd_window_norm_is_open(const struct trajd_window_plan *plan, uint32_t output_index);
/* Puts the output's rule in force with these figures: scale and offset of every feature whose mask
 * is not false,
 *   mean_std   1 / std, -mean / std
 *   min_max    2 / (max - min), -(max + min) / (max - min); q01_q99 the same with these
 * and, where a feature is flat (its std, or its range, is at most 1e-6 of the greatest magnitude in
 * it), 1 and minus its mean, min or q01: what does not move becomes 0 and is never blown up.
 * Without a value to go by: 1 and 0. TRAJD_ERR_ARGUMENT: another number of features, or figures
 * that the file lacks. */
enum trajd_status trajd_window_norm_set(struct trajd_window_plan *plan, uint32_t output_index,
                                        const struct trajd_statistics *statistics,
                                        struct trajd_error *error);
/* A number for all scales and offsets in force; 0 where nothing is normalised. Two feeds of one
 * fingerprint that differ in it deliver the same windows in the same order with other values. */
uint64_t trajd_window_norm_digest(const struct trajd_window_plan *plan);

/* ---- window_plan_facts.c ---- */

/* The stream of a target, or the one that it stands for where it is absent. */
const struct trajd_index_stream *trajd_plan_stream(const struct trajd_window_plan *plan,
                                                   const struct trajd_plan_target *target);
/* The kind that a target is resampled by: the output's, else its stream's. */
enum trajd_kind trajd_plan_kind(const struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target);
/* Time of anchor j of an episode, ns from its origin. */
int64_t trajd_plan_anchor_ns(const struct trajd_window_plan *plan,
                             const struct trajd_episode *episode, int64_t j);
/* Rows of a bracket's streams in that episode, unclipped. */
int64_t trajd_plan_row_count(const struct trajd_window_plan *plan,
                             const struct trajd_plan_bracket *bracket,
                             const struct trajd_episode *episode);

#endif
