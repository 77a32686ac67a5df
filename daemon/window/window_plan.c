#include "daemon/window/window_plan_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t trajd_plan_anchor_ns(const struct trajd_window_plan *plan,
                             const struct trajd_episode *episode, int64_t j)
{
    return plan->anchor_clock >= 0 ? trajd_clock_row_ns(&episode->clocks[plan->anchor_clock], j)
                                   : trajd_rate_row_ns(plan->spec->anchor_rate, j);
}

int64_t trajd_plan_row_count(const struct trajd_window_plan *plan,
                             const struct trajd_plan_bracket *bracket,
                             const struct trajd_episode *episode)
{
    (void)plan;
    if (bracket->array_index >= 0)
        return (int64_t)trajd_array_row_count(&episode->extents[bracket->array_index]);
    return episode->clocks[bracket->clock_index].row_count;
}

const struct trajd_index_stream *trajd_plan_stream(const struct trajd_window_plan *plan,
                                                   const struct trajd_plan_target *target)
{
    return target->stream_index == TRAJD_PLAN_ABSENT
               ? &target->model
               : &plan->dataset->index->streams[target->stream_index];
}

enum trajd_kind trajd_plan_kind(const struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target)
{
    const enum trajd_kind kind = plan->spec->outputs[target->output_index].kind;
    return kind == TRAJD_SPEC_KIND_FROM_STREAM ? trajd_plan_stream(plan, target)->kind : kind;
}

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a window plan");
}

enum trajd_status trajd_plan_output_error(const struct trajd_spec_output *output,
                                          struct trajd_error *error, enum trajd_status status,
                                          const char *format, ...)
{
    char text[384];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return trajd_error_set(error, status, 0, "line %u: outputs.%s: %s", output->line, output->name,
                           text);
}

static enum trajd_status find_stream(const struct trajd_window_plan *plan,
                                     const struct trajd_spec_output *output, const char *name,
                                     uint32_t *stream, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    const int64_t found = trajd_index_find_stream(index, name);
    const char *names[256], *nearest;
    uint32_t count = index->stream_count < 256 ? index->stream_count : 256;

    if (found >= 0) {
        *stream = (uint32_t)found;
        return TRAJD_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        names[i] = index->streams[i].name;
    nearest = trajd_yaml_nearest(name, names, count);
    return trajd_plan_output_error(output, error, TRAJD_ERR_NOT_FOUND,
                                   "no stream %s in layout %s (%s%s%s%u streams: trajctl inspect)",
                                   name, index->layout->name, nearest ? "did you mean " : "",
                                   nearest ? nearest : "", nearest ? "? " : "",
                                   index->stream_count);
}

/* The same stream of another dataset of the mixture. */
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

static enum trajd_status find_target(const struct trajd_window_plan *plan,
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
    if (output->missing != TRAJD_MISSING_ZERO)
        return trajd_plan_output_error(output, error, status,
                                       "no stream %s in dataset %s: others of the mixture have it "
                                       "(what is it called here? mix.%s.streams "
                                       "renames, missing: zero fills)",
                                       output->sources[source_index], plan->dataset->name,
                                       plan->dataset->name);
    target->stream_index = TRAJD_PLAN_ABSENT;
    target->model = *model;
    target->model.clock_index = plan->anchor_clock >= 0 ? (uint32_t)plan->anchor_clock : 0;
    return TRAJD_OK;
}

/* The kind that is used, and why not where it makes no sense. */
static enum trajd_status resolve_kind(const struct trajd_spec_output *output,
                                      const struct trajd_index_stream *stream,
                                      enum trajd_kind *kind, struct trajd_error *error)
{
    const bool blends = output->kind == TRAJD_KIND_LINEAR || output->kind == TRAJD_KIND_MEAN;

    *kind = output->kind == TRAJD_SPEC_KIND_FROM_STREAM ? stream->kind : output->kind;
    if (blends && (stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ ||
                   stream->kind == TRAJD_KIND_ANGLE))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "%s holds rotations: blended by their own kind, or previous, or nearest", stream->name);
    if (output->has_range && *kind != TRAJD_KIND_ANGLE)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "range_low: %s is no angle", stream->name);
    if (output->mean_width_ns && *kind != TRAJD_KIND_MEAN)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "width: only kind: mean has one");
    if (blends && (stream->dtype == TRAJD_BOOL || (stream->dtype == TRAJD_U8 && stream->rank >= 2)))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "%s holds images or flags: these are never blended; use previous or nearest",
            stream->name);
    return TRAJD_OK;
}

static bool is_floating(enum trajd_dtype dtype)
{
    return dtype == TRAJD_F16 || dtype == TRAJD_BF16 || dtype == TRAJD_F32 || dtype == TRAJD_F64;
}

static bool kind_blends(enum trajd_kind kind)
{
    return kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST;
}

static uint32_t find_entry(struct trajd_window_plan *plan, uint32_t dataset_index)
{
    uint32_t entry = 0;

    while (entry < plan->selection.array_count && plan->entry_arrays[entry] != dataset_index)
        entry++;
    if (entry == plan->selection.array_count)
        plan->entry_arrays[plan->selection.array_count++] = dataset_index;
    return entry;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The cache wants its selection ascending. */
static void sort_entries(struct trajd_window_plan *plan)
{
    qsort(plan->entry_arrays, plan->selection.array_count, sizeof *plan->entry_arrays, compare_u32);
    plan->selection.array_indexes = plan->entry_arrays;
    for (uint32_t t = 0; t < plan->target_count; t++) {
        struct trajd_plan_target *target = &plan->targets[t];
        target->entry =
            target->stream_index == TRAJD_PLAN_ABSENT
                ? TRAJD_PLAN_ABSENT
                : find_entry(plan, plan->dataset->index->streams[target->stream_index].array_index);
    }
}

/* The shape of one step: the stream's own where it stands alone, a flat row where several are
 * joined. */
static void shape_output(struct trajd_plan_output *output, const struct trajd_index_stream *stream,
                         bool alone)
{
    output->feature_count += stream->feature_count;
    if (alone) {
        output->rank = stream->rank;
        memcpy(output->shape, stream->shape, sizeof output->shape);
    } else {
        output->rank = 1;
        output->shape[0] = output->feature_count;
    }
}

static enum trajd_status resolve_dtype(const struct trajd_spec_output *output,
                                       const struct trajd_index_stream *stream, bool alone,
                                       struct trajd_plan_output *out, struct trajd_error *error)
{
    enum trajd_kind kind;
    enum trajd_status status = resolve_kind(output, stream, &kind, error);

    if (status)
        return status;
    out->dtype = output->dtype;
    if (!out->dtype)
        out->dtype = !alone || kind_blends(kind) || is_floating(stream->dtype) || output->norm_by
                         ? TRAJD_F32
                         : stream->dtype;
    if (!is_floating(out->dtype) &&
        (out->dtype != stream->dtype || kind_blends(kind) || output->norm_by))
        return trajd_plan_output_error(
            output, error, TRAJD_ERR_ARGUMENT,
            "dtype: %s holds neither blended nor scaled values, and no other type's (%s is %s)",
            trajd_dtype_name(out->dtype), stream->name, trajd_dtype_name(stream->dtype));
    if (out->dtype == TRAJD_F64 && stream->dtype != TRAJD_F64)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "dtype: float64 is for float64 sources; %s is %s",
                                       stream->name, trajd_dtype_name(stream->dtype));
    return TRAJD_OK;
}

static enum trajd_status resolve_output(struct trajd_window_plan *plan, uint32_t output_index,
                                        struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    struct trajd_plan_output *out = &plan->outputs[output_index];
    const bool alone = output->source_count == 1;
    enum trajd_status status;

    out->name = output->name;
    out->role = output->role;
    for (uint32_t s = 0; s < output->source_count; s++) {
        struct trajd_plan_target *target = &plan->targets[plan->target_count];
        const struct trajd_index_stream *stream;
        bool is_absent;

        target->output_index = output_index;
        target->missing = output->missing;
        if ((status = find_target(plan, output, s, target, error)))
            return status;
        stream = trajd_plan_stream(plan, target);
        is_absent = target->stream_index == TRAJD_PLAN_ABSENT;
        if (!alone && stream->rank > 1)
            return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                           "%s is no vector: it cannot be joined with others",
                                           stream->name);
        if ((status = resolve_dtype(output, stream, alone, out, error)) ||
            (status = trajd_plan_find_bracket(plan, output, stream, is_absent,
                                              &target->bracket_index, error)))
            return status;
        if (!is_absent)
            find_entry(plan, stream->array_index);
        target->bases = calloc(plan->spec->global_batch, sizeof *target->bases);
        if (!target->bases)
            return no_memory(error);
        plan->target_count++;
        out->step_count = plan->grids[plan->brackets[target->bracket_index].grid_index].step_count;
        shape_output(out, stream, alone);
    }
    return output->norm_by ? trajd_window_norm_prepare(plan, output_index, error) : TRAJD_OK;
}

static enum trajd_status resolve_anchor(struct trajd_window_plan *plan, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    const char *names[256], *nearest;
    uint32_t count = index->clock_count < 256 ? index->clock_count : 256;

    plan->anchor_clock = -1;
    if (plan->spec->anchor_clock) {
        plan->anchor_clock = trajd_index_find_clock(index, plan->spec->anchor_clock);
        if (plan->anchor_clock < 0) {
            for (uint32_t c = 0; c < count; c++)
                names[c] = index->clocks[c].name;
            nearest = trajd_yaml_nearest(plan->spec->anchor_clock, names, count);
            return trajd_error_set(
                error, TRAJD_ERR_NOT_FOUND, 0, "anchor.clock: no clock %s in layout %s%s%s%s",
                plan->spec->anchor_clock, index->layout->name, nearest ? " (did you mean " : "",
                nearest ? nearest : "", nearest ? "?)" : "");
        }
    }
    plan->anchor_rate = plan->anchor_clock >= 0 ? plan->dataset->clock_rates[plan->anchor_clock]
                                                : plan->spec->anchor_rate;
    return TRAJD_OK;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    while (size--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Everything that decides which windows there are and what is in them; not G, slots, tail, seed,
 * and not how values are normalised: that moves no window (trajd_window_norm_digest tells it). */
static uint64_t hash_spec(const struct trajd_window_spec *spec)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const uint64_t filter = trajd_episode_filter_digest(spec);
    const uint64_t numbers[] = {(uint64_t)spec->rate.num,
                                (uint64_t)spec->rate.den,
                                (uint64_t)spec->anchor_rate.num,
                                (uint64_t)spec->anchor_rate.den,
                                spec->pad_before,
                                spec->pad_after,
                                spec->edge,
                                spec->order,
                                spec->block_windows,
                                spec->block_neighbours,
                                spec->keep_bad_rows,
                                TRAJD_SAMPLER_VERSION};

    hash = hash_bytes(hash, numbers, sizeof numbers);
    hash = hash_text(hash_text(hash, spec->filter), spec->anchor_clock);
    hash = hash_bytes(hash, &spec->split_begin, sizeof spec->split_begin);
    hash = hash_bytes(hash, &spec->split_end, sizeof spec->split_end);
    hash = hash_bytes(hash, &filter, spec->episode_filter_count ? sizeof filter : 0);
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct trajd_spec_output *output = &spec->outputs[o];
        const uint64_t fields[] = {output->at.in_time,
                                   (uint64_t)output->at.from,
                                   (uint64_t)output->at.to,
                                   (uint64_t)output->at.rate.num,
                                   (uint64_t)output->at.rate.den,
                                   output->role,
                                   output->kind,
                                   output->dtype,
                                   (uint64_t)output->max_age_ns,
                                   (uint64_t)output->max_gap_ns,
                                   (uint64_t)output->lookahead_ns,
                                   (uint64_t)output->mean_width_ns,
                                   output->missing,
                                   0,
                                   output->has_range};
        hash = hash_bytes(hash_text(hash, output->name), fields, sizeof fields);
        hash = hash_bytes(hash, &output->range_low, sizeof output->range_low);
        for (uint32_t s = 0; s < output->source_count; s++)
            hash = hash_text(hash, output->sources[s]);
    }
    return hash;
}

static enum trajd_status allocate(struct trajd_window_plan *plan, bool is_member,
                                  struct trajd_error *error)
{
    size_t targets = 0;

    for (uint32_t o = 0; o < plan->spec->output_count; o++)
        targets += plan->spec->outputs[o].source_count;
    plan->output_count = plan->spec->output_count;
    plan->outputs = calloc(plan->output_count, sizeof *plan->outputs);
    plan->targets = calloc(targets, sizeof *plan->targets);
    plan->grids = calloc(targets, sizeof *plan->grids);
    plan->brackets = calloc(targets, sizeof *plan->brackets);
    plan->entry_arrays = calloc(targets, sizeof *plan->entry_arrays);
    plan->entry_as_float32 = calloc(targets, sizeof *plan->entry_as_float32);
    plan->windows = calloc(plan->spec->global_batch, sizeof *plan->windows);
    plan->anchor_ns = calloc(plan->spec->global_batch, sizeof *plan->anchor_ns);
    if (is_member &&
        !(plan->window_rows = calloc(plan->spec->global_batch, sizeof *plan->window_rows)))
        return no_memory(error);
    return plan->outputs && plan->targets && plan->grids && plan->brackets && plan->entry_arrays &&
                   plan->entry_as_float32 && plan->windows && plan->anchor_ns
               ? TRAJD_OK
               : no_memory(error);
}

static enum trajd_status create(const struct trajd_plan_peer *peer,
                                const struct trajd_plan_peer *peers, uint32_t peer_count,
                                bool is_member, struct trajd_window_plan **out,
                                struct trajd_error *error)
{
    const struct trajd_window_spec *spec = peer->spec;
    struct trajd_dataset *dataset = peer->dataset;
    struct trajd_window_plan *plan = calloc(1, sizeof *plan);
    const uint64_t hashes[] = {dataset->index->fingerprint, hash_spec(spec)};
    enum trajd_status status;

    *out = NULL;
    if (!plan)
        return no_memory(error);
    plan->spec = spec;
    plan->dataset = dataset;
    plan->peers = peers;
    plan->peer_count = peer_count;
    plan->fingerprint = trajd_mix(hashes, 2);
    status = allocate(plan, is_member, error);
    if (!status)
        status = resolve_anchor(plan, error);
    for (uint32_t o = 0; o < spec->output_count && !status; o++)
        status = resolve_output(plan, o, error);
    if (!status) {
        sort_entries(plan);
        trajd_window_plan_choose_forms(plan);
    }
    if (!status)
        status = trajd_window_plan_segments(plan, error);
    if (!status)
        status = trajd_window_plan_prepare(plan, error);
    if (status) {
        trajd_error_prefix(error, "feed %s", spec->feed_name);
        trajd_window_plan_destroy(&plan);
    }
    *out = plan;
    return status;
}

enum trajd_status trajd_window_plan_create(const struct trajd_window_spec *spec,
                                           struct trajd_dataset *dataset,
                                           struct trajd_window_plan **plan,
                                           struct trajd_error *error)
{
    const struct trajd_plan_peer alone = {spec, dataset};

    return create(&alone, NULL, 0, false, plan, error);
}

enum trajd_status trajd_window_plan_create_member(const struct trajd_plan_peer *peers,
                                                  uint32_t peer_count, uint32_t index,
                                                  struct trajd_window_plan **plan,
                                                  struct trajd_error *error)
{
    return create(&peers[index], peers, peer_count, true, plan, error);
}

enum trajd_status trajd_window_plan_create_again(const struct trajd_window_plan *plan,
                                                 const struct trajd_window_spec *spec,
                                                 struct trajd_window_plan **again,
                                                 struct trajd_error *error)
{
    const struct trajd_plan_peer alone = {spec, plan->dataset};

    return create(&alone, plan->peers, plan->peer_count, false, again, error);
}

bool trajd_window_plan_lacks(const struct trajd_window_plan *plan, uint32_t output_index)
{
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (plan->targets[t].output_index == output_index &&
            plan->targets[t].stream_index == TRAJD_PLAN_ABSENT)
            return true;
    return false;
}

void trajd_window_plan_destroy(struct trajd_window_plan **out)
{
    struct trajd_window_plan *plan = *out;

    *out = NULL;
    if (!plan)
        return;
    for (uint32_t g = 0; g < plan->grid_count; g++) {
        free(plan->grids[g].offsets);
        free(plan->grids[g].step_ns);
        free(plan->grids[g].step_fraction);
    }
    for (uint32_t b = 0; b < plan->bracket_count; b++) {
        free(plan->brackets[b].row_begin);
        free(plan->brackets[b].row_count);
        free(plan->brackets[b].anchor);
    }
    for (uint32_t t = 0; plan->targets && t < plan->target_count; t++)
        free(plan->targets[t].bases);
    trajd_sampler_destroy(&plan->sampler);
    for (uint32_t o = 0; plan->outputs && o < plan->output_count; o++) {
        free(plan->outputs[o].scale);
        free(plan->outputs[o].offset);
    }
    free(plan->outputs);
    free(plan->targets);
    free(plan->grids);
    free(plan->brackets);
    free(plan->entry_arrays);
    free(plan->entry_as_float32);
    free(plan->windows);
    free(plan->anchor_ns);
    free(plan->window_rows);
    free(plan->episodes);
    free(plan->request_clocks);
    free(plan->request_grids);
    free(plan->request_brackets);
    free(plan->request_streams);
    free(plan);
}
