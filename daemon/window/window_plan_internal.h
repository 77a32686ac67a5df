/* Inside a window plan: functions that its makers (window_plan.c, window_plan_output.c,
 * window_plan_grid.c, window_norm.c, window_segments.c, window_streams.c) and window_batch.c
 * share. */
#ifndef TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H

#include "daemon/window/window_plan.h"

/* ---- window_plan_facts.c ---- */

/* Sets "line N: outputs.NAME: ..." and returns `status`. */
enum trajd_status trajd_plan_output_error(const struct trajd_spec_output *output,
                                          struct trajd_error *error, enum trajd_status status,
                                          const char *format, ...)
    __attribute__((format(printf, 4, 5)));
enum trajd_status trajd_plan_no_memory(struct trajd_error *error);
/* Adds a line about the plan's dataset, which must live as long as the plan. In a mixture the line
 * names the dataset first. */
void trajd_plan_texts_add(struct trajd_window_plan *plan, struct trajd_plan_texts *texts,
                          const char *line);
enum { TRAJD_PLAN_REACH_SIZE = 96 };
/* Returns whether the anchor and the steps of a target span more than the longest episode, so that
 * no window is without padding. Then the text has both lengths: "reach over 50 s, and ...". */
bool trajd_plan_reaches_out(const struct trajd_window_plan *plan,
                            const struct trajd_plan_target *target,
                            char text[TRAJD_PLAN_REACH_SIZE]);

/* ---- window_plan_output.c ---- */

enum trajd_status trajd_plan_resolve_output(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error);
void trajd_plan_sort_entries(struct trajd_window_plan *plan);

/* ---- window_plan_image.c ---- */

/* Returns whether an output takes frames of the stream, and not its rows as they are. */
bool trajd_spec_output_is_image(const struct trajd_spec_output *output,
                                const struct trajd_index_stream *stream);
/* Adds an image to the plan, and sets type and shape of its output. */
enum trajd_status trajd_plan_resolve_image(struct trajd_window_plan *plan, uint32_t output_index,
                                           const struct trajd_index_stream *stream,
                                           struct trajd_error *error);
/* Sorts the targets: rows first, then images, both in the order of the outputs. */
enum trajd_status trajd_plan_put_images_last(struct trajd_window_plan *plan,
                                             struct trajd_error *error);
/* Resolves the transform of an output, and checks what its normalisation has to do with it. Call it
 * when all outputs are resolved. */
enum trajd_status trajd_plan_resolve_chain(struct trajd_window_plan *plan, uint32_t output_index,
                                           struct trajd_error *error);
/* Returns whether the output's rows go through a transform, or are the state of one. */
bool trajd_plan_has_rows(const struct trajd_window_plan *plan, uint32_t output_index);

/* ---- window_plan_grid.c ---- */

/* Finds the bracket through which the output sees a stream, or adds it and its grid. */
enum trajd_status trajd_plan_find_bracket(struct trajd_window_plan *plan,
                                          const struct trajd_spec_output *output,
                                          const struct trajd_index_stream *stream, bool is_absent,
                                          uint32_t *bracket_index, struct trajd_error *error);

/* ---- window_norm.c ---- */

/* Checks an output's `norm:` against its streams and allocates scale and offset. Call it when the
 * output's sources are known. */
enum trajd_status trajd_window_norm_prepare(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error);

/* ---- window_segments.c, window_streams.c ---- */

/* Finds the episodes' segments and makes the sampler. */
enum trajd_status trajd_window_plan_segments(struct trajd_window_plan *plan,
                                             struct trajd_error *error);
/* Decides which entries are converted to float32 when they are loaded: float64 rows that the feed
 * only picks and never blends. */
void trajd_window_plan_choose_forms(struct trajd_window_plan *plan);
/* Fills plan->clocks, plan->views and the streams of the targets. */
enum trajd_status trajd_window_plan_prepare(struct trajd_window_plan *plan,
                                            struct trajd_error *error);

/* ---- window_warnings.c ---- */

/* Adds the warnings that need the whole plan. */
void trajd_window_plan_find_warnings(struct trajd_window_plan *plan);

#endif
