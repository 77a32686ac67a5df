/* A window plan: a feed's specification resolved on one dataset. It has the outputs and where each
 * comes from, the windows in their order, and the constant part of the kernels' request.
 *
 *   spec x index -> outputs, targets (output x stream)          window_plan.c, window_plan_output.c
 *                -> brackets and grids of the targets           window_plan_grid.c
 *                -> scale and offset of each feature            window_norm.c
 *                -> segments of allowed anchors -> sampler      window_segments.c
 *                -> streams and views as the engine takes them  window_streams.c
 *   position     -> windows                                     window_batch.h
 *   windows      -> request                                     daemon/engine/bind.h
 *
 * A plan is set up by one thread: create, then trajd_window_norm_set and
 * trajd_window_plan_copy_forms where needed. After that it is constant and thread-safe. Arrays have
 * their length in [], where G is the global batch, T the steps and D the features of an output. */
#ifndef TRAJD_WINDOW_WINDOW_PLAN_H
#define TRAJD_WINDOW_WINDOW_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/text/text.h"
#include "daemon/base/arena.h"
#include "daemon/cache/dataset.h"
#include "daemon/engine/rules.h"
#include "daemon/window/order/sampler.h"
#include "daemon/window/image/image_prepared.h"
#include "daemon/window/image/image_words.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "daemon/window/transform/chain.h"

#define TRAJD_PLAN_TEXTS_MAX 64u

/* Lines for people. */
struct trajd_plan_texts {
    uint32_t count;                         /* of all texts; the list has the first of them */
    const char *list[TRAJD_PLAN_TEXTS_MAX]; /* NULL if out of memory */
};

struct trajd_window_plan {
    const struct trajd_window_spec *spec;
    struct trajd_dataset *dataset;
    const struct trajd_plan_peer *peers; /* of a mixture; borrowed */
    uint32_t peer_count;
    struct trajd_plan_rules rules; /* what the outputs are made of; see daemon/engine/rules.h */
    /* [target_count]: of a target without a stream in this dataset, a copy of the stream in another
     * dataset of the mixture, with a clock_index of this dataset */
    struct trajd_index_stream *models;
    struct trajd_goal_rule *goals; /* [goal_count], all different */
    int64_t *anchor_ends; /* [episodes of the index]: anchors before padding; NULL: no goals */
    uint32_t *entry_arrays;
    bool *entry_as_float32;
    struct trajd_selection selection;
    struct trajd_sampler *sampler;
    uint32_t episode_count; /* with windows */
    uint32_t *episodes;
    /* digest of all anchors of the selected episodes, also those that padding excludes */
    uint64_t anchors_digest;
    /* of dataset and window specification; independent of G, slots, tail and normalisation */
    uint64_t fingerprint;
    bool is_member; /* of a mixture: a batch has a row number for each of its windows */
    /* Episodes of the dataset, and files that give none, which count as one each. Quarantined are
     * those of the index, and episodes with another shape in a stream that this feed names. The
     * others are kept. */
    uint32_t found_count;
    uint32_t listed_count;               /* of them, those that `episodes:` lists */
    struct trajd_plan_texts quarantined; /* the reasons, in the order of the index */
    struct trajd_plan_texts warnings;    /* trajd_window_plan_warn */
    const char *version_changes;         /* trajd_window_plan_keeps; NULL: none */
    struct trajd_clock *clocks;          /* [clocks of the index], as the kernels take them */
    struct trajd_view *views;            /* [episodes of the index] */
    struct trajd_arena arena;            /* owns all tables and texts but grids and the sampler */
};

/* Makes a plan. Caller destroys. spec and dataset must outlive it. TRAJD_ERR_ARGUMENT with the
 * names of feed and output; TRAJD_ERR_NOT_FOUND where a stream, clock or filter does not exist,
 * with the nearest names; TRAJD_ERR_DATA where no window remains. */
enum trajd_status trajd_window_plan_create(const struct trajd_window_spec *spec,
                                           struct trajd_dataset *dataset,
                                           struct trajd_window_plan **plan,
                                           struct trajd_error *error);

/* One dataset of a mixture, in the mixture's order. */
struct trajd_plan_peer {
    const struct trajd_window_spec *spec;
    struct trajd_dataset *dataset;
};

/* Makes the plan of peers[index]. Its batches keep a row number for each window (window_rows). If
 * the output has `missing: zero`, a stream that only other datasets have gets the values of a
 * missing stream and the mask MISSING. peers must outlive the plan. */
enum trajd_status trajd_window_plan_create_member(const struct trajd_plan_peer *peers,
                                                  uint32_t peer_count, uint32_t index,
                                                  struct trajd_window_plan **plan,
                                                  struct trajd_error *error);
void trajd_window_plan_destroy(struct trajd_window_plan **plan);

/* Adds a warning about the feed's plan: one line that names the output and says what to do. Call it
 * while the plan is set up. */
void trajd_window_plan_warn(struct trajd_window_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Notes that version 1 of the configuration keeps a value of 0.1.0, with what version 2 would do:
 * one of the changes in the plan's warning about the version. Call it while the plan is set up. */
void trajd_window_plan_keeps(struct trajd_window_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints the listed texts, each on a line after `before`, and how many more there are. */
void trajd_plan_texts_print(const struct trajd_plan_texts *texts, const char *before, FILE *out);

/* Makes a plan of the same dataset alone, for another specification of the same outputs, for
 * example with another batch size. */
enum trajd_status trajd_window_plan_create_again(const struct trajd_window_plan *plan,
                                                 const struct trajd_window_spec *spec,
                                                 struct trajd_window_plan **again,
                                                 struct trajd_error *error);

/* Returns whether a target's rows make steps of the output, or the state that it is relative to. */
bool trajd_window_plan_uses(const struct trajd_window_plan *plan, uint32_t output_index,
                            uint32_t target);
/* Returns whether an episode lacks the stream of a target. */
bool trajd_plan_is_missing(const struct trajd_window_plan *plan,
                           const struct trajd_plan_target *target,
                           const struct trajd_episode *episode);
/* Returns whether the columns of an output can be filled one by one: it has several streams, whose
 * columns are delivered as they are resampled. */
bool trajd_plan_may_fill(const struct trajd_window_plan *plan, uint32_t output_index);
/* Returns how many of the feed's episodes lack the stream of a target. *lacking and *rows become how
 * many rows of the anchors' clock those have, and all; 0 where the anchors have a rate alone. Both
 * may be NULL. */
uint32_t trajd_plan_count_missing(const struct trajd_window_plan *plan, uint32_t target,
                                  uint64_t *lacking, uint64_t *rows);
/* Returns whether the dataset lacks a stream that the output uses, and so the output: where others
 * of its streams are filled in for it, only if it lacks all. */
bool trajd_window_plan_lacks(const struct trajd_window_plan *plan, uint32_t output_index);

/* Copies from another plan of the same outputs the choice which float64 arrays are cached as
 * float32, so that both plans use the same cache entries. Values do not change. Call it before a
 * batch is created. */
void trajd_window_plan_copy_forms(struct trajd_window_plan *plan,
                                  const struct trajd_window_plan *other);

/* ---- window_norm.c: normalisation ---- */

struct trajd_statistics; /* statistics.h */

/* Returns whether the output is normalised by statistics that are still to be computed and set with
 * trajd_window_norm_set. */
bool trajd_window_norm_is_open(const struct trajd_window_plan *plan, uint32_t output_index);
/* Applies the output's rule to these statistics: sets scale and offset of every feature whose mask
 * is not false. Call it before a batch is created.
 *   mean_std   1 / std, -mean / std
 *   min_max    2 / (max - min), -(max + min) / (max - min)
 *   q01_q99    as min_max, with the quantiles
 * With min_std, mean_std divides by at least that. Otherwise a flat feature gets scale 1 and offset -mean, -min or -q01, so that a constant becomes 0 and is
 * never amplified. Flat means that std or the range is at most 1e-6 of the feature's greatest
 * magnitude. A feature without values gets 1 and 0. TRAJD_ERR_ARGUMENT: another number of features,
 * or figures that the file lacks. */
enum trajd_status trajd_window_norm_set(struct trajd_window_plan *plan, uint32_t output_index,
                                        const struct trajd_statistics *statistics,
                                        struct trajd_error *error);
/* Warns of columns of numbers that hardly vary, and of what normalisation makes of them: call it
 * after trajd_window_norm_set, if the output has norm. window_columns.c */
void trajd_window_plan_warn_of_columns(struct trajd_window_plan *plan, uint32_t output_index,
                                       const struct trajd_statistics *statistics);
/* Returns true if images get another type or another order of channels. */
bool trajd_window_spec_finishes(const struct trajd_window_spec *spec);
/* Leaves type, values and order of channels of images of u8 to the worker: the outputs become
 * frames of u8 with the channels last. Call it before batches are made. The digest stays, because
 * the values of the training do. */
void trajd_window_plan_leave_unfinished(struct trajd_window_plan *plan);
/* Returns a number for all scales and offsets, also those of images; 0 where there are none. Two
 * feeds with equal fingerprints and different digests deliver the same windows in the same order
 * with other values. */
uint64_t trajd_window_norm_digest(const struct trajd_window_plan *plan);

/* Returns how many figures the statistics of an output have: scale and offset have as many. */
uint64_t trajd_plan_norm_count(const struct trajd_plan_output *output);

/* ---- window_plan_image.c: how images are made ---- */

#define TRAJD_VIDEOS_TEXT_SIZE 320
/* Writes how many frames the videos of a feed have, how much memory all images take, and how many
 * frames are decoded at most for each that is delivered. False where the feed has no videos.
 * *is_costly: much is decoded more than once. */
bool trajd_window_describe_videos(const struct trajd_window_plan *plan, bool *is_costly,
                                  char text[TRAJD_VIDEOS_TEXT_SIZE]);
/* Writes how the frames of plan->rules.images[image] were prepared in the files: "480x640, resized to
 * ...". Returns `text`; NULL: they are as recorded. */
const char *trajd_window_describe_prepared(const struct trajd_window_plan *plan, uint32_t image,
                                           char text[TRAJD_PREPARATION_WORDS_SIZE]);
/* Draws what the augmentation does to the frame of a step of plan->rules.images[image]. `seed`: of
 * the feed. The window's pass counts, too. */
void trajd_window_draw(const struct trajd_window_plan *plan, uint32_t image, uint64_t seed,
                       const struct trajd_window *window, uint32_t step,
                       struct trajd_augment_params *params);

/* Writes everything that decides the values of plan->rules.images[image], without `norm:`. */
void trajd_window_write_words(const struct trajd_window_plan *plan, uint32_t image,
                              struct trajd_image_words *words);
/* Returns a number for the words of all images; 0 where there are none. Equal fingerprints and
 * norm digests with different digests of values: the same windows in the same order, other
 * images. */
uint64_t trajd_window_values_digest(const struct trajd_window_plan *plan);

/* ---- window_plan_facts.c ---- */

/* Returns why this feed cannot use an episode; NULL: it can, and filter, where, split and padding
 * decide. */
const char *trajd_window_plan_quarantine(const struct trajd_window_plan *plan,
                                         const struct trajd_episode *episode);
/* Returns the stream of a target; for an absent stream, its `model`. */
const struct trajd_index_stream *trajd_plan_stream(const struct trajd_window_plan *plan,
                                                   const struct trajd_plan_target *target);
/* Returns the kind by which a target is resampled: the output's, else the stream's. */
enum trajd_kind trajd_plan_kind(const struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target);
/* Returns whether a target adds the rows of each step: differences at another rate or clock, where
 * the output names no kind. */
bool trajd_plan_adds(const struct trajd_window_plan *plan, const struct trajd_plan_target *target);
/* Returns the type of the stream whose bytes an output passes on unchanged (kinds previous and
 * nearest), or TRAJD_DTYPE_NONE. */
enum trajd_dtype trajd_plan_byte_type(const struct trajd_window_plan *plan, uint32_t output_index);
/* Whether an output is an image: unchanged uint8 elements of rank 2 or 3. */
bool trajd_plan_is_image(const struct trajd_window_plan *plan, uint32_t output_index);
/* Returns whether an output has frames that are decoded, resized or written in another order of
 * channels: the kernels do not read them, so the plan selects no rows for them. */
bool trajd_plan_has_frames(const struct trajd_window_plan *plan, uint32_t output_index);
/* Returns how many features the statistics of an output have: the channels of an image, else the
 * output's features. */
uint32_t trajd_plan_feature_count(const struct trajd_window_plan *plan, uint32_t output_index);
/* Writes type and shape of an output, "float32 [2,7]"; with a batch_size, "float32 [256,2,7]". */
void trajd_plan_write_tensor(const struct trajd_plan_output *output, uint32_t batch_size,
                             struct trajd_text *text);
/* Returns the time of anchor j of an episode, in ns from the episode's origin. */
int64_t trajd_plan_anchor_ns(const struct trajd_window_plan *plan,
                             const struct trajd_episode *episode, int64_t j);
/* Returns the rows of a bracket's streams in that episode, before clipping. */
int64_t trajd_plan_row_count(const struct trajd_window_plan *plan,
                             const struct trajd_plan_bracket *bracket,
                             const struct trajd_episode *episode);

#endif
