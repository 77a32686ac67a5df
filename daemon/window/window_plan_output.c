/* The outputs of a plan: from which streams each is made, and its kinds, type and shape. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/window_plan_internal.h"
#include "kernels/element_convert.h"
#include "proto/plural.h"

static enum trajd_status find_stream(const struct trajd_window_plan *plan,
                                     const struct trajd_spec_output *output, const char *name,
                                     uint32_t *stream, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    const int64_t found = trajd_index_find_stream(index, name);
    const char *names[256];
    uint32_t count = index->stream_count < 256 ? index->stream_count : 256;

    if (found >= 0) {
        *stream = (uint32_t)found;
        return TRAJD_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        names[i] = index->streams[i].name;
    return trajd_plan_output_error(output, error, TRAJD_ERR_NOT_FOUND,
                                   "no stream %s in layout %s (%s%u stream%s: trajctl inspect)",
                                   name, index->layout->name,
                                   trajd_yaml_suggest("", name, names, count, " ").text,
                                   index->stream_count, trajd_plural(index->stream_count));
}

/* Returns the stream of the same source in another dataset of the mixture. */
static const struct trajd_index_stream *find_model(const struct trajd_plan_peer *peers,
                                                   uint32_t peer_count, uint32_t output_index,
                                                   uint32_t source_index)
{
    for (uint32_t i = 0; i < peer_count; i++) {
        const struct trajd_spec_output *output = &peers[i].spec->outputs[output_index];
        const int64_t found =
            source_index < output->source_count
                ? trajd_index_find_stream(peers[i].dataset->index, output->sources[source_index])
                : -1;
        if (found >= 0)
            return &peers[i].dataset->index->streams[found];
    }
    return NULL;
}

static enum trajd_status find_target(struct trajd_window_plan *plan,
                                     const struct trajd_spec_output *output, uint32_t source_index,
                                     struct trajd_plan_target *target, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    const enum trajd_status status =
        find_stream(plan, output, output->sources[source_index], &target->stream_index, error);
    const struct trajd_index_stream *model;

    if (status != TRAJD_ERR_NOT_FOUND || !plan->peer_count)
        return status;
    model = find_model(plan->peers, plan->peer_count, target->output_index, source_index);
    if (!model || !index->clock_count)
        return status;
    if (output->missing != TRAJD_MISSING_ZERO &&
        strcmp(model->name, output->sources[source_index]) != 0)
        return status; /* the dataset has a name of its own for it, which is wrong */
    if (output->missing != TRAJD_MISSING_ZERO)
        return trajd_plan_output_error(
            output, error, status,
            "no stream %s in dataset %s, but another dataset of the mixture has it: name this "
            "dataset's stream in mix.%s.streams, or use missing: zero",
            output->sources[source_index], plan->dataset->name, plan->dataset->name);
    target->stream_index = TRAJD_PLAN_ABSENT;
    plan->models[plan->rules.target_count] = *model;
    plan->models[plan->rules.target_count].clock_index =
        plan->rules.anchor_clock >= 0 ? (uint32_t)plan->rules.anchor_clock : 0;
    return TRAJD_OK;
}

/* Finds the kind that is used, and checks that it makes sense. */
static enum trajd_status resolve_kind(const struct trajd_spec_output *output,
                                      const struct trajd_index_stream *stream,
                                      enum trajd_kind *kind, struct trajd_error *error)
{
    const bool blends = output->kind == TRAJD_KIND_LINEAR || output->kind == TRAJD_KIND_MEAN;

    *kind = output->kind == TRAJD_SPEC_KIND_FROM_STREAM ? stream->kind : output->kind;
    if (output->returns.is_given && *kind != TRAJD_KIND_PREVIOUS && *kind != TRAJD_KIND_NEAREST &&
        *kind != TRAJD_KIND_LINEAR)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "return: %s holds angles, rotations or means, which cannot "
                                       "be added",
                                       stream->name);
    if (blends && (stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ ||
                   stream->kind == TRAJD_KIND_ANGLE))
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s holds rotations, which linear and mean cannot blend: "
                                       "remove kind, or use previous or nearest",
                                       stream->name);
    if (output->has_range && *kind != TRAJD_KIND_ANGLE)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "range_low: %s is not an angle", stream->name);
    if (output->mean_width_ns && *kind != TRAJD_KIND_MEAN)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "width: only kind: mean has a width");
    if (blends && stream->never_blends)
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "%s holds images, flags or names, which are never blended: use previous or nearest",
            stream->name);
    return TRAJD_OK;
}

static bool kind_blends(enum trajd_kind kind)
{
    return kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST;
}

static uint32_t find_entry(struct trajd_window_plan *plan, uint32_t array_index)
{
    uint32_t entry = 0;

    while (entry < plan->selection.array_count && plan->entry_arrays[entry] != array_index)
        entry++;
    if (entry == plan->selection.array_count)
        plan->entry_arrays[plan->selection.array_count++] = array_index;
    return entry;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the entries: the cache needs its selection in ascending order. */
void trajd_plan_sort_entries(struct trajd_window_plan *plan)
{
    qsort(plan->entry_arrays, plan->selection.array_count, sizeof *plan->entry_arrays, compare_u32);
    plan->selection.array_indexes = plan->entry_arrays;
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        struct trajd_plan_target *target = &plan->rules.targets[t];
        target->entry =
            target->stream_index == TRAJD_PLAN_ABSENT || t >= plan->rules.row_target_count
                ? TRAJD_PLAN_ABSENT
                : find_entry(plan, plan->dataset->index->streams[target->stream_index].array_index);
    }
}

/* Adds a stream to an output's shape: the stream's own shape where it is the only source, else a
 * flat row. */
static void shape_output(struct trajd_plan_output *output, const struct trajd_index_stream *stream,
                         bool alone)
{
    output->feature_count += stream->feature_count;
    if (alone) {
        output->rank = stream->rank;
        memcpy(output->shape, stream->shape, sizeof stream->shape);
    } else {
        output->rank = 1;
        output->shape[0] = output->feature_count;
    }
}

static enum trajd_status resolve_dtype(const struct trajd_window_plan *plan, uint32_t out_index,
                                       const struct trajd_spec_output *output,
                                       const struct trajd_index_stream *stream, bool alone,
                                       struct trajd_plan_output *out, struct trajd_error *error)
{
    enum trajd_kind kind;
    enum trajd_status status = resolve_kind(output, stream, &kind, error);
    bool computes;

    if (status)
        return status;
    computes = kind_blends(kind) || output->norm_by || output->returns.is_given ||
               (stream->is_delta && output->kind == TRAJD_SPEC_KIND_FROM_STREAM);
    out->dtype = output->dtype;
    if (!out->dtype)
        out->dtype = !alone || computes || trajd_plan_has_rows(plan, out_index) ||
                             trajd_dtype_is_float(stream->dtype)
                         ? TRAJD_F32
                         : stream->dtype;
    if (!trajd_dtype_is_float(out->dtype) && (out->dtype != stream->dtype || computes))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "dtype: %s cannot hold blended or scaled values, or values of another type (%s is %s)",
            trajd_dtype_name(out->dtype), stream->name, trajd_dtype_name(stream->dtype));
    if (out->dtype == TRAJD_F64 && stream->dtype != TRAJD_F64)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "dtype: float64 is for float64 sources; %s is %s",
                                       stream->name, trajd_dtype_name(stream->dtype));
    return TRAJD_OK;
}

/* Checks an output that adds the rows of each step. */
static enum trajd_status check_sum(const struct trajd_window_plan *plan,
                                   const struct trajd_spec_output *output,
                                   const struct trajd_index_stream *stream,
                                   const struct trajd_plan_target *target,
                                   struct trajd_error *error)
{
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];

    if (!grid->rate.num)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s holds differences (semantics: delta), which are added "
                                       "over each step: give the steps a rate, for example "
                                       "{at: 0..15 @ 10}, or name a kind",
                                       stream->name);
    if (bracket->clipped && !bracket->lookahead_ns && grid->from + grid->step_count > 0)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s holds differences (semantics: delta), and step 0 adds "
                                       "those after the anchor: end at -1, set role: action, or "
                                       "name a kind",
                                       stream->name);
    if (output->chain)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s holds differences (semantics: delta), which take no "
                                       "rotation: and no relative_to:",
                                       stream->name);
    if (output->max_age_ns >= 0)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "max_age: the sum of differences over a step has no age: "
                                       "remove it, or name a kind");
    return TRAJD_OK;
}

static enum trajd_status check_return(const struct trajd_window_plan *plan,
                                      const struct trajd_spec_output *output,
                                      const struct trajd_index_stream *stream,
                                      const struct trajd_plan_target *target, bool is_image,
                                      struct trajd_error *error)
{
    const uint32_t grid = plan->rules.brackets[target->bracket_index].grid_index;

    if (is_image || stream->rank > 1)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "return: %s is not a number or a vector", stream->name);
    if (plan->rules.grids[grid].rule != TRAJD_TARGET_ROWS)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "return: adds the rows of the anchor's clock, one for each "
                                       "step: %s is on another clock, "
                                       "or the steps have another rate",
                                       stream->name);
    return TRAJD_OK;
}

bool trajd_plan_may_fill(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];

    return output->missing == TRAJD_MISSING_ZERO && output->source_count > 1 &&
           !output->image.is_given && !trajd_plan_has_rows(plan, output_index);
}

/* Adds the target of one source of an output. */
static enum trajd_status resolve_source(struct trajd_window_plan *plan, uint32_t output_index,
                                        uint32_t s, struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    struct trajd_plan_target *target = &plan->rules.targets[plan->rules.target_count];
    const bool alone = output->source_count == 1;
    const struct trajd_index_stream *stream;
    bool is_absent, is_image;
    enum trajd_status status;

    target->output_index = output_index;
    target->missing = output->missing;
    if ((status = find_target(plan, output, s, target, error)))
        return status;
    stream = trajd_plan_stream(plan, target);
    is_absent = target->stream_index == TRAJD_PLAN_ABSENT;
    is_image = trajd_spec_output_is_image(output, stream);
    target->is_filled = plan->spec->version >= 2 && trajd_plan_may_fill(plan, output_index);
    if (!alone && stream->rank > 1 && !is_image)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "%s is not a vector: it cannot be joined with other streams",
                                       stream->name);
    if ((status = is_image
                      ? trajd_plan_resolve_image(plan, output_index, stream, error)
                      : resolve_dtype(plan, output_index, output, stream, alone, out, error)) ||
        (status = trajd_plan_find_bracket(plan, output, stream, is_absent, &target->bracket_index,
                                          error)))
        return status;
    if (trajd_plan_adds(plan, target) && (status = check_sum(plan, output, stream, target, error)))
        return status;
    if (output->returns.is_given &&
        (status = check_return(plan, output, stream, target, is_image, error)))
        return status;
    if (!is_absent && !is_image)
        find_entry(plan, stream->array_index);
    plan->rules.target_count++;
    out->step_count = trajd_rules_grid(&plan->rules, plan->rules.target_count - 1)->step_count;
    if (!is_image)
        shape_output(out, stream, alone);
    return TRAJD_OK;
}

enum trajd_status trajd_plan_resolve_output(struct trajd_window_plan *plan, uint32_t output_index,
                                            struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    enum trajd_status status = TRAJD_OK;

    out->name = output->name;
    out->role = output->role;
    out->is_hidden = output->is_hidden;
    out->norm_step_count = 1;
    out->norm_over = output->norm_over          ? output->norm_over
                     : output->returns.in_chunk ? TRAJD_NORM_OVER_WINDOWS
                                                : TRAJD_NORM_OVER_ROWS;
    out->norm_min_std = output->norm_min_std;
    for (uint32_t s = 0; s < output->source_count && !status; s++)
        status = resolve_source(plan, output_index, s, error);
    return status;
}

/* ---- transforms ---- */

bool trajd_plan_has_rows(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    return output->chain || output->norm_per_step || output->is_hidden;
}

/* Lists the streams of an output. They are resampled in float64 where all are float64. */
static enum trajd_status list_sources(struct trajd_window_plan *plan, uint32_t output_index,
                                      struct trajd_chain_source *sources, uint32_t *count,
                                      struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];

    *count = 0;
    out->row_dtype = TRAJD_F64;
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_index_stream *stream = trajd_plan_stream(plan, &plan->rules.targets[t]);
        if (plan->rules.targets[t].output_index != output_index)
            continue;
        if (stream->rank > 1 || stream->dtype == TRAJD_BOOL || stream->form != TRAJD_ROWS_PLAIN)
            return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                           "%s is not a vector of numbers, which rotation, "
                                           "relative_to and norm.per need",
                                           stream->name);
        if (stream->feature_count > TRAJD_TRANSFORM_MAX_COLUMNS)
            return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                           "%s has more than %d columns, which rotation, "
                                           "relative_to and norm.per do not take",
                                           stream->name, TRAJD_TRANSFORM_MAX_COLUMNS);
        sources[(*count)++] = (struct trajd_chain_source){
            stream->name, (uint32_t)stream->feature_count, stream->kind, stream->angle_period};
        if (stream->dtype != TRAJD_F64)
            out->row_dtype = TRAJD_F32;
    }
    return TRAJD_OK;
}

/* Checks the state's streams on clocks other than the anchor's: they are blended, or a row is
 * picked, and the user says which. */
static enum trajd_status check_clocks(const struct trajd_window_plan *plan, uint32_t state,
                                      const struct trajd_chain_spec *chain,
                                      struct trajd_error *error)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
        if (target->output_index == state && !chain->has_kind &&
            (int64_t)stream->clock_index != plan->rules.anchor_clock)
            return trajd_plan_output_error(
                &plan->spec->outputs[state], error, TRAJD_ERR_ARGUMENT,
                "%s is on the clock %s, and the anchors are not: give relative_to a kind: linear "
                "(blended; rotations by slerp), previous or nearest",
                stream->name, plan->dataset->index->clocks[stream->clock_index].name);
    }
    return TRAJD_OK;
}

static enum trajd_status check_kinds(const struct trajd_window_plan *plan, uint32_t output_index,
                                     struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_transform *transform = plan->rules.outputs[output_index].transform;

    if (!transform)
        return TRAJD_OK;
    for (uint32_t p = 0; p < transform->part_count; p++)
        for (uint32_t t = 0; t < plan->rules.target_count; t++)
            if ((plan->rules.targets[t].output_index == output_index ||
                 (transform->parts[p].is_relative &&
                  plan->rules.targets[t].output_index == output->reference_output)) &&
                transform->parts[p].kind == TRAJD_PART_ROTATION &&
                trajd_plan_kind(plan, &plan->rules.targets[t]) == TRAJD_KIND_MEAN)
                return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                               "kind: mean does not average rotations: use "
                                               "linear, previous or nearest");
    return TRAJD_OK;
}

static enum trajd_status check_norm(const struct trajd_window_plan *plan, uint32_t output_index,
                                    struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];

    if (output->norm_over != TRAJD_NORM_OVER_ROWS ||
        !(output->norm_per_step || (output->chain && output->chain->is_relative)))
        return TRAJD_OK;
    return trajd_plan_output_error(
        output, error, TRAJD_ERR_ARGUMENT,
        "norm.over: rows: values that depend on the step and on the "
        "anchor have no statistics over rows: remove it, or use windows");
}

static void shape(struct trajd_plan_output *out, const struct trajd_spec_output *output)
{
    out->feature_count = out->transform->output_count;
    out->rank = 1;
    out->shape[0] = out->feature_count;
    if (output->norm_per_step)
        out->norm_step_count = out->step_count;
    if (output->norm_per_step || (output->chain && output->chain->is_relative))
        out->norm_over = TRAJD_NORM_OVER_WINDOWS;
}

enum trajd_status trajd_plan_resolve_chain(struct trajd_window_plan *plan, uint32_t output_index,
                                           struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->rules.outputs[output_index];
    struct trajd_chain_source sources[TRAJD_SPEC_MAX_SOURCES], state[TRAJD_SPEC_MAX_SOURCES];
    uint32_t source_count, state_count = 0;
    enum trajd_status status;

    out->row_dtype = out->dtype;
    out->row_feature_count = out->feature_count;
    if (!trajd_plan_has_rows(plan, output_index))
        return TRAJD_OK;
    status = list_sources(plan, output_index, sources, &source_count, error);
    if (status || output->is_hidden)
        return status;
    if (output->returns.is_given)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "a return has no rotation, relative_to and norm.per");
    if (!trajd_dtype_is_float(out->dtype))
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "dtype: %s cannot hold rotations or differences",
                                       trajd_dtype_name(out->dtype));
    if (output->chain && output->chain->is_relative) {
        out->reference_output = output->reference_output;
        status = list_sources(plan, out->reference_output, state, &state_count, error);
        if (!status)
            status = check_clocks(plan, out->reference_output, output->chain, error);
    }
    if (status)
        return status;
    out->transform = trajd_arena_array(&plan->arena, 1, sizeof *out->transform);
    if (!out->transform)
        return trajd_plan_no_memory(error);
    status = trajd_chain_resolve(output->chain, sources, source_count, state, state_count,
                                 out->transform, error);
    if (status)
        return trajd_error_prefix(error, "line %u: outputs.%s", output->line, output->name);
    shape(out, output);
    status = check_kinds(plan, output_index, error);
    return status ? status : check_norm(plan, output_index, error);
}
