/* Inside a window plan: what its makers (window_plan.c, window_plan_output.c, window_plan_grid.c,
 * window_norm.c, window_segments.c, window_streams.c) need of each other. */
#ifndef TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H

#include "daemon/window/window_plan.h"

/* ---- window_plan_facts.c ---- */

/* "line N: outputs.NAME: ..." */
enum trajd_status trajd_plan_output_error(const struct trajd_spec_output *output,
                                          struct trajd_error *error, enum trajd_status status,
                                          const char *format, ...)
    __attribute__((format(printf, 4, 5)));
enum trajd_status trajd_plan_no_memory(struct trajd_error *error);
uint64_t trajd_plan_rate_fraction(struct trajd_rate rate, int64_t i);
/* 1 where the fractions that floor() cut off anchor j and step t of a grid with a rate add up to a
 * whole ns, else 0. */
int64_t trajd_plan_carry_ns(const struct trajd_window_plan *plan,
                            const struct trajd_plan_grid *grid, int64_t j, int64_t t);
/* The same for all steps of an anchor: the fraction of anchor j and the whole, in the units of
 * grid->step_fraction. */
uint64_t trajd_plan_anchor_fraction(const struct trajd_window_plan *plan,
                                    const struct trajd_plan_grid *grid, int64_t j,
                                    uint64_t *denominator);
/* ---- window_plan_output.c ---- */

enum trajd_status trajd_plan_resolve_output(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error);
void trajd_plan_sort_entries(struct trajd_window_plan *plan);

/* ---- window_plan_grid.c ---- */

/* The bracket in which the output sees a stream, new if there is none like it; and so its grid. */
enum trajd_status trajd_plan_find_bracket(struct trajd_window_plan *plan,
                                          const struct trajd_spec_output *output,
                                          const struct trajd_index_stream *stream, bool is_absent,
                                          uint32_t *bracket_index, struct trajd_error *error);

/* ---- window_norm.c ---- */

/* Checks an output's `norm:` against its streams and makes room: once its sources are known. */
enum trajd_status trajd_window_norm_prepare(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error);

/* ---- window_filter.c, window_segments.c, window_streams.c ---- */

/* `filter:` of a feed. Checked against the layout first: TRAJD_ERR_NOT_FOUND for a text that it
 * does not name or no episode has. */
enum trajd_status trajd_episode_filter_check(const struct trajd_window_spec *spec,
                                             const struct trajd_index *index,
                                             struct trajd_error *error);
bool trajd_episode_filter_selects(const struct trajd_window_spec *spec,
                                  const struct trajd_index *index,
                                  const struct trajd_episode *episode);
uint64_t trajd_episode_filter_digest(const struct trajd_window_spec *spec);
/* The episodes' segments and the sampler. */
enum trajd_status trajd_window_plan_segments(struct trajd_window_plan *plan,
                                             struct trajd_error *error);
/* Decides which entries are converted when they are loaded: float64 rows that the feed only picks
 * and never blends. */
void trajd_window_plan_choose_forms(struct trajd_window_plan *plan);
/* The request's constant part. */
enum trajd_status trajd_window_plan_prepare(struct trajd_window_plan *plan,
                                            struct trajd_error *error);

#endif
