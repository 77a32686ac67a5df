/* Answers "explain": says for each step of a window which rows, stamps and weights it comes from,
 * and why it is masked.
 *
 * The window is planned and bound again as in production, in a plan of its own for one window.
 * Steps are resolved by the function that the reference resampling uses, so the answer describes
 * what production does. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/query.h"
#include "daemon/window/window_batch.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

struct explanation {
    struct trajd_window_spec spec; /* of the window's dataset, for batches of one window */
    struct trajd_window_plan *plan;
    struct trajd_binding *batch;
    const struct trajd_episode *episode;
    const void **rows; /* [arrays of the selection] */
    bool pinned;
    const char *unreadable; /* why the rows could not be read */
    bool masked_missing;    /* bad_rows: keep: production masks these rows and goes on */
    uint64_t seed;          /* of the feed */
    struct trajd_error error;
};

static const void *const *rows_of(void *context, uint32_t episode)
{
    struct explanation *e = context;
    (void)episode;
    return e->masked_missing ? NULL : e->rows;
}

/* Pins the window's rows. Where they cannot be read, sets an arbitrary address for each array that
 * the episode has: steps are then resolved from stamps, and rows are not read. */
static void pin_rows(struct explanation *e)
{
    const struct trajd_selection *selection = &e->plan->selection;
    const uint32_t episode = e->batch->windows[0].episode_index;
    const enum trajd_status status =
        trajd_cache_pin(e->plan->dataset->cache, selection, episode, e->rows, &e->error);

    e->pinned = !status;
    if (e->pinned)
        return;
    e->unreadable = e->error.message;
    e->masked_missing =
        status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_CLOSED && e->spec.keep_bad_rows;
    for (uint32_t p = 0; p < selection->array_count; p++) {
        const struct trajd_array *array = &e->episode->extents[selection->array_indexes[p]];
        e->rows[p] = array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes
                         ? NULL
                         : (const void *)e->rows;
    }
}

static enum trajd_status prepare(struct explanation *e, const struct trajd_mixture_plan *feed,
                                 const struct trajd_window *window, struct trajd_error *error)
{
    const struct trajd_window_plan *member = feed->members[window->dataset_index];
    enum trajd_status status;

    e->seed = feed->spec->seed;
    e->spec = *member->spec;
    e->spec.global_batch = 1;
    status = trajd_window_plan_create_again(member, &e->spec, &e->plan, error);
    if (!status)
        status = trajd_window_batch_create(e->plan, &e->batch, error);
    if (status)
        return status;
    trajd_window_batch_add(e->batch, window, 0);
    e->episode = &e->plan->dataset->index->episodes[window->episode_index];
    e->rows = calloc(e->plan->selection.array_count + 1, sizeof *e->rows);
    if (!e->rows)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of a window");
    pin_rows(e);
    /* any address: outputs are not written */
    trajd_bind_windows(e->batch, 0, 1, (uint8_t *)e->rows, rows_of, e);
    return TRAJD_OK;
}

static void clean_up(struct explanation *e)
{
    if (e->pinned)
        trajd_cache_unpin(e->plan->dataset->cache, &e->plan->selection,
                          e->batch->windows[0].episode_index);
    trajd_binding_destroy(&e->batch);
    trajd_window_plan_destroy(&e->plan);
    free(e->rows);
}

/* ---- one source of one step ---- */

struct source {
    const struct trajd_plan_target *target;
    uint32_t stream_index; /* in the request */
    const struct trajd_episode_clock *clock;
    bool in_rows;
    struct trajd_resample_step step;
    enum trajd_mask mask;
    char reason[TRAJD_REASON_SIZE]; /* "" where the step is valid */
    char frame[TRAJD_REASON_SIZE];  /* why its frame could not be made at present, or "" */
};

static bool is_image(const struct trajd_window_plan *plan, uint32_t target)
{
    return target >= plan->rules.row_target_count;
}

/* Looks at the frame of a step. A bad one masks the step, as in production. */
static void resolve_frame(const struct explanation *e, uint32_t t, struct source *source)
{
    const struct trajd_window_plan *plan = e->plan;
    char reason[TRAJD_REASON_SIZE];
    const enum trajd_mask mask =
        trajd_explain_frame(plan, t - plan->rules.row_target_count,
                            e->batch->windows[0].episode_index, source->step.row, reason);

    if (mask > source->mask)
        source->mask = mask;
    snprintf(mask ? source->reason : source->frame, TRAJD_REASON_SIZE, "%s", reason);
}

static void resolve_source(const struct explanation *e, uint32_t t, uint32_t step,
                           struct source *source)
{
    const struct trajd_window_plan *plan = e->plan;
    const struct trajd_plan_target *target = &plan->rules.targets[t];
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    struct trajd_reason_facts facts;

    *source = (struct source){.target = target,
                              .stream_index = t,
                              .clock = &e->episode->clocks[bracket->clock_index],
                              .in_rows =
                                  plan->rules.grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS};
    trajd_resample_resolve(&e->batch->request, t, 0, step, &source->step);
    source->mask = source->step.mask;
    facts = (struct trajd_reason_facts){.step = &source->step,
                                        .stream = &plan->rules.targets[t].stream,
                                        .stream_name = stream->name,
                                        .in_rows = source->in_rows,
                                        .clipped = bracket->clipped,
                                        .row_count =
                                            e->batch->brackets[target->bracket_index].row_count[0],
                                        .kept_rows = source->clock->kept_rows,
                                        .median_ns = source->clock->median_ns,
                                        .unreadable = e->masked_missing ? e->unreadable : NULL,
                                        .lost_feature = -1};
    if (facts.row_count > 0 && !source->in_rows)
        facts.first_ns = trajd_clock_row_ns(source->clock, 0) -
                         (source->clock->stamps_ns ? 0 : source->clock->start_ns);
    if (e->pinned && !is_image(plan, t))
        facts.lost_feature = trajd_resample_find_nan(&e->batch->request, t, 0, &source->step);
    if (facts.lost_feature >= 0 && source->mask < TRAJD_MASK_NAN)
        source->mask = TRAJD_MASK_NAN;
    if (source->mask != TRAJD_MASK_VALID)
        trajd_reason_write(&facts, source->mask, source->reason);
    if (is_image(plan, t) && source->step.has_row)
        resolve_frame(e, t, source);
}

/* Writes [row in the file, ns, weight]. */
static void write_row(const struct source *source, int64_t row, double weight,
                      struct trajd_json *json)
{
    const int64_t in_file = source->clock->kept_rows && row < source->clock->row_count
                                ? source->clock->kept_rows[row]
                                : row;

    trajd_json_open_array(json, NULL);
    trajd_json_i64(json, NULL, in_file);
    trajd_json_i64(json, NULL, trajd_clock_row_ns(source->clock, row));
    trajd_json_number(json, NULL, "%.17g", weight);
    trajd_json_close_array(json);
}

static void write_rows(const struct explanation *e, const struct source *source,
                       struct trajd_json *json)
{
    const struct trajd_resample_step *step = &source->step;
    const bool averages =
        e->plan->rules.targets[source->stream_index].stream.kind == TRAJD_KIND_MEAN &&
        step->mean_first < step->row;
    const struct trajd_stream *stream = &e->plan->rules.targets[source->stream_index].stream;
    const double fraction = step->blends ? (double)step->past_ns / (double)step->width_ns : 0;

    trajd_json_open_array(json, "rows");
    if (step->has_row && stream->total) {
        if (step->added > 0)
            write_row(source, step->row, 1, json);
        if (step->added > 1)
            write_row(source, step->row + step->added - 1,
                      stream->total == TRAJD_TOTAL_STEP
                          ? 1
                          : pow(stream->total_gamma, (double)(step->added - 1)),
                      json);
    } else if (step->has_row && averages) {
        const double weight = 1.0 / (double)(step->row - step->mean_first + 1);
        write_row(source, step->mean_first, weight, json);
        write_row(source, step->row, weight, json);
    } else if (step->has_row) {
        write_row(source, step->row, 1 - fraction, json);
        if (step->blends)
            write_row(source, step->row + 1, fraction, json);
    }
    trajd_json_close_array(json);
    if (step->has_row && stream->total)
        trajd_json_i64(json, "added", step->added);
    if (step->has_row && averages)
        trajd_json_i64(json, "averaged", step->row - step->mean_first + 1);
    if (step->blends) {
        trajd_json_open_array(json, "fraction");
        trajd_json_u64(json, NULL, step->past_ns);
        trajd_json_u64(json, NULL, step->width_ns);
        trajd_json_close_array(json);
    }
}

/* ---- outputs and steps ---- */

/* Finds the targets of an output, which stand side by side: [*first, *end). */
static void find_targets(const struct trajd_window_plan *plan, uint32_t output, uint32_t *first,
                         uint32_t *end)
{
    *first = trajd_rules_first_target(&plan->rules, output);
    *end = trajd_rules_end_target(&plan->rules, *first);
}

static const char *edge_name(enum trajd_edge edge)
{
    return edge == TRAJD_EDGE_HOLD ? "edge" : edge == TRAJD_EDGE_ZERO ? "zero" : "nan";
}

static void write_stream(const struct explanation *e, const struct trajd_plan_target *target,
                         struct trajd_json *json)
{
    const struct trajd_index_stream *stream = trajd_plan_stream(e->plan, target);
    const struct trajd_index *index = e->plan->dataset->index;
    const bool is_absent = target->stream_index == TRAJD_PLAN_ABSENT;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "stream", stream->name);
    trajd_json_string(json, "path", is_absent ? "" : index->arrays[stream->array_index].path);
    trajd_json_u64(json, "first_column", stream->first_column);
    trajd_json_u64(json, "columns", stream->feature_count);
    trajd_json_string(json, "clock", index->clocks[stream->clock_index].name);
    trajd_json_string(json, "kind", trajd_window_target_kind_name(e->plan, target));
    trajd_json_i64(json, "visible_rows", e->batch->brackets[target->bracket_index].row_count[0]);
    trajd_json_close_object(json);
}

/* Writes the anchor from which the steps of a goal output count. */
static void write_goal(const struct explanation *e, uint32_t target, struct trajd_json *json)
{
    const struct trajd_plan_bracket *bracket =
        &e->plan->rules.brackets[e->plan->rules.targets[target].bracket_index];
    const struct trajd_plan_grid *grid = &e->plan->rules.grids[bracket->grid_index];

    if (!grid->goal)
        return;
    trajd_json_i64(json, "goal", trajd_binding_anchor(e->batch, grid, 0));
    trajd_json_i64(json, "goal_ns", trajd_binding_anchor_ns(e->batch, grid, 0));
}

/* Opens the output's object and its list of steps. */
static void open_output(const struct explanation *e, uint32_t o, struct trajd_json *json)
{
    const struct trajd_plan_output *output = &e->plan->rules.outputs[o];
    uint32_t first, end;

    find_targets(e->plan, o, &first, &end);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", output->name);
    trajd_json_string(json, "role", trajd_role_name(output->role));
    trajd_json_string(json, "edge", edge_name(e->plan->spec->edge));
    trajd_json_u64(json, "step_count", output->step_count);
    write_goal(e, first, json);
    if (output->transform) {
        char text[1024];
        trajd_chain_describe(output->transform, text, sizeof text);
        trajd_json_string(json, "transform", text);
    }
    if (is_image(e->plan, first))
        trajd_explain_image(e->plan, first - e->plan->rules.row_target_count, json);
    trajd_json_open_array(json, "sources");
    for (uint32_t t = first; t < end; t++)
        write_stream(e, &e->plan->rules.targets[t], json);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "items");
}

/* Returns the time of the target in ns from the episode's origin. */
static int64_t target_ns(const struct source *source)
{
    return source->in_rows
               ? trajd_clock_row_ns(source->clock, source->step.x)
               : source->step.x + (source->clock->stamps_ns ? 0 : source->clock->start_ns);
}

static void write_step(const struct explanation *e, uint32_t o, uint32_t step,
                       struct trajd_json *json)
{
    enum trajd_mask mask = TRAJD_MASK_VALID;
    struct source source;
    uint32_t first, end, missing = 0;
    bool is_filled;

    find_targets(e->plan, o, &first, &end);
    is_filled = e->plan->rules.targets[first].is_filled;
    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "step", step);
    for (uint32_t t = first; t < end; t++) {
        resolve_source(e, t, step, &source);
        if (t == first) { /* the step has the time of its first source */
            trajd_json_i64(json, "ns", target_ns(&source));
            trajd_json_open_array(json, "sources");
        }
        trajd_json_open_object(json, NULL);
        write_rows(e, &source, json);
        trajd_json_u64(json, "mask", source.mask);
        if (*source.reason)
            trajd_json_string(json, "reason", source.reason);
        if (*source.frame)
            trajd_json_string(json, "frame", source.frame);
        trajd_json_close_object(json);
        /* the output's other streams decide, where there are any */
        missing += is_filled && source.mask == TRAJD_MASK_MISSING;
        if (!is_filled || source.mask != TRAJD_MASK_MISSING)
            mask = source.mask > mask ? source.mask : mask;
    }
    if (missing == end - first)
        mask = TRAJD_MASK_MISSING;
    trajd_json_close_array(json);
    trajd_json_u64(json, "mask", mask);
    if (is_image(e->plan, first) && mask != TRAJD_MASK_BAD_FRAME && source.step.has_row)
        trajd_explain_draws(e->plan, first - e->plan->rules.row_target_count, e->seed,
                            &e->batch->windows[0], step, json);
    trajd_json_close_object(json);
}

/* ---- the document ---- */

static enum trajd_status find_output(const struct trajd_window_plan *plan, const char *name,
                                     uint32_t *output, struct trajd_error *error)
{
    const char *names[TRAJD_SPEC_MAX_OUTPUTS];

    for (*output = 0; *output < plan->rules.output_count; ++*output) {
        names[*output] = plan->rules.outputs[*output].name;
        if (strcmp(names[*output], name) == 0)
            return TRAJD_OK;
    }
    return trajd_error_set(
        error, TRAJD_ERR_NOT_FOUND, 0, "no output %s%s", name,
        trajd_yaml_suggest(" (", name, names, plan->rules.output_count, ")").text);
}

static bool draws_images(const struct trajd_window_plan *plan)
{
    for (uint32_t p = 0; p < plan->rules.image_count; p++)
        if (plan->rules.images[p].augment.count)
            return true;
    return false;
}

static void write_head(const struct explanation *e, const struct trajd_producer *producer,
                       struct trajd_json *json)
{
    const struct trajd_window *window = &e->batch->windows[0];
    const struct trajd_index *index = e->plan->dataset->index;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
    trajd_json_u64(json, "window_id", window->window_id);
    trajd_json_string(json, "dataset", e->plan->dataset->name);
    trajd_json_u64(json, "dataset_index", window->dataset_index);
    trajd_json_string(json, "file", index->files[e->episode->file_index].relative_path);
    trajd_json_string(json, "episode", e->episode->id);
    trajd_json_u64(json, "episode_index", window->episode_index);
    trajd_json_i64(json, "origin_ns", e->episode->origin_ns);
    trajd_json_i64(json, "anchor", window->anchor);
    trajd_json_i64(json, "anchor_ns", e->batch->anchor_ns[0]);
    if (e->plan->rules.goal_count || draws_images(e->plan))
        trajd_json_u64(json, "pass", window->pass);
    if (e->unreadable)
        trajd_json_string(json, "unreadable", e->unreadable);
}

/* Writes the steps of outputs [begin, end) that the query asks for. Steps are numbered through all
 * outputs: first those of the first output, then those of the next. */
static enum trajd_status write_steps(const struct explanation *e, const struct trajd_query *query,
                                     uint32_t begin, uint32_t end, struct trajd_json *json,
                                     struct trajd_error *error)
{
    const uint64_t last = query->count && query->count < UINT64_MAX - query->first
                              ? query->first + query->count
                              : UINT64_MAX;
    uint64_t number = 0, total = 0, next = query->first;
    bool full = false;

    for (uint32_t o = begin; o < end; o++)
        total += e->plan->rules.outputs[o].step_count;
    if (query->first >= total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "step %" PRIu64 " does not exist: there %s %" PRIu64 " step%s",
                               query->first, total == 1 ? "is" : "are", total, trajd_plural(total));
    trajd_json_u64(json, "steps", total);
    trajd_json_u64(json, "first", query->first);
    trajd_json_open_array(json, "outputs");
    for (uint32_t o = begin; o < end && !full && next < last;
         number += e->plan->rules.outputs[o++].step_count) {
        const uint64_t steps = e->plan->rules.outputs[o].step_count;
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        const uint64_t before = next;
        if (next >= number + steps)
            continue;
        open_output(e, o, json);
        for (; next < number + steps && next < last; next++) {
            const struct trajd_json_mark step_mark = trajd_json_get_mark(json);
            write_step(e, o, (uint32_t)(next - number), json);
            full = !trajd_query_fits(json, step_mark);
            if (full)
                break;
        }
        trajd_json_close_array(json);
        trajd_json_close_object(json);
        if (next == before)
            trajd_json_go_back(json, mark); /* not even the first step of this output fits */
    }
    if (next == query->first)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "step %" PRIu64 " alone is longer than an answer may be", next);
    trajd_query_end_page(json, next, total);
    return TRAJD_OK;
}

enum trajd_status trajd_query_explain(const struct trajd_query *query,
                                      const struct trajd_producer *producer,
                                      struct trajd_json *json, struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = producer->plan;
    uint32_t begin = 0, end = plan->members[0]->rules.output_count;
    struct trajd_window window;
    struct explanation e = {.plan = NULL};
    enum trajd_status status = TRAJD_OK;

    if (!trajd_mixture_plan_window(plan, query->window, &window))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "window %" PRIu64 " does not exist: there are %" PRIu64 " windows",
                               query->window, trajd_mixture_plan_number_count(plan));
    if (*query->name) {
        status = find_output(plan->members[0], query->name, &begin, error);
        end = begin + 1;
    }
    window.pass = query->pass;
    if (!status)
        status = prepare(&e, plan, &window, error);
    if (!status) {
        write_head(&e, producer, json);
        status = write_steps(&e, query, begin, end, json, error);
    }
    clean_up(&e);
    return status;
}
