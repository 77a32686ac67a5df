/* An observation: a batch of one window, made of the rows that came. */
#include <inttypes.h>
#include <string.h>

#include "clients/live/live_state.h"
#include "kernels/cpu/cpu.h"

/* ---- rows ---- */

/* Returns the first row that a source reads: the last one at or before its first target. */
static uint64_t first_row(const struct trajd_live *live, const struct trajd_live_source *source,
                          const struct trajd_live_input *input, bool *is_before)
{
    const struct trajd_live_target *output = &live->outputs[source->output];
    const struct trajd_stream *stream = &live->request_streams[source - live->sources];
    int64_t x_ns = live->anchor_ns + output->offsets_ns[0];
    uint64_t after;

    if (source->rule == TRAJD_LIVE_ROWS) {
        const int64_t row = (int64_t)input->anchor_row + output->from;
        *is_before = row < (int64_t)input->seen.begin;
        return *is_before                       ? input->seen.begin
               : row < (int64_t)input->seen.end ? (uint64_t)row
                                                : input->seen.end;
    }
    if (stream->kind == TRAJD_KIND_MEAN && __builtin_sub_overflow(x_ns, stream->mean_width, &x_ns))
        x_ns = INT64_MIN;
    after = trajd_live_ring_after(&input->ring, input->seen, x_ns);
    *is_before = after == input->seen.begin;
    return *is_before ? after : after - 1;
}

/* Adds rows to those that are copied, as far as they are kept. */
static void add_rows(struct trajd_live_input *input, uint64_t first, uint64_t end)
{
    /* a number below 0 has wrapped around */
    first = first > end || first < input->seen.begin ? input->seen.begin : first;
    if (!input->count || first < input->first) {
        input->count += input->count ? input->first - first : 0;
        input->first = first;
    }
    if (end > input->first + input->count)
        input->count = end - input->first;
}

/* Finds which rows a source sees, and adds them to those that are copied. */
static enum trajd_status see_rows(struct trajd_live *live, struct trajd_live_source *source,
                                  unsigned flags, struct trajd_error *error)
{
    struct trajd_live_input *input = &live->inputs[source->input];
    const bool in_rows = source->rule == TRAJD_LIVE_ROWS && !source->lookahead_ns;
    bool is_before;
    uint64_t first;

    source->end = in_rows ? input->anchor_row + 1
                          : trajd_live_ring_after(&input->ring, input->seen,
                                                  live->anchor_ns + source->lookahead_ns);
    if (input->seen.begin == input->seen.end)
        source->end = input->seen.end;
    first = first_row(live, source, input, &is_before);
    if (is_before && input->seen.is_cut)
        return trajd_live_too_far(live, input, error);
    if (source->end == input->seen.begin && !(flags & TRAJD_LIVE_PARTIAL) &&
        !(source->may_lack && input->seen.begin == input->seen.end))
        return trajd_live_not_yet(input, live->anchor_ns, error);
    first = first < source->end ? first : source->end ? source->end - 1 : 0;
    add_rows(input, first, source->end);
    return TRAJD_OK;
}

static enum trajd_status copy_rows(struct trajd_live *live, unsigned flags,
                                   struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < live->source_count && !status; s++)
        if (live->sources[s].input >= 0)
            status = see_rows(live, &live->sources[s], flags, error);
    for (uint32_t i = 0; i < live->input_count && !status; i++) {
        struct trajd_live_input *input = &live->inputs[i];
        trajd_live_ring_copy(&input->ring, input->first, input->first + input->count,
                             input->stamps_ns, input->rows);
        if (!trajd_live_ring_kept(&input->ring, input->seen))
            status = trajd_live_too_far(live, input, error);
    }
    return status;
}

/* ---- the request ---- */

static void bind_source(struct trajd_live *live, uint32_t s, uint8_t *out)
{
    struct trajd_live_source *source = &live->sources[s];
    const struct trajd_live_target *output = &live->outputs[source->output];
    struct trajd_stream *stream = &live->request_streams[s];
    const uint64_t element = trajd_dtype_size(output->row_dtype);

    source->row_begin = 0;
    source->row_count = 0;
    source->anchor = source->rule == TRAJD_LIVE_ROWS ? 0 : live->anchor_ns;
    source->base = NULL;
    if (source->input >= 0) {
        const struct trajd_live_input *input = &live->inputs[source->input];
        const bool is_missing = source->may_lack && input->seen.begin == input->seen.end;
        source->base = is_missing ? NULL : input->rows;
        if (source->end > input->first)
            source->row_count = (int64_t)(source->end - input->first);
        if (source->rule == TRAJD_LIVE_ROWS && !is_missing)
            source->anchor = (int64_t)input->anchor_row - (int64_t)input->first;
    }
    stream->output = output->rows ? output->rows : out + output->offset_bytes;
    stream->mask = output->row_mask ? output->row_mask : out + output->mask_offset_bytes;
    if (stream->mask_joins_previous) {
        const struct trajd_stream *before = &live->request_streams[s - 1];
        stream->output = (uint8_t *)before->output + before->feature_count * element;
    }
}

/* Masks steps that are rows where the stream lost a row that another stream on the anchor's clock
 * has: from there backwards its rows are those of other anchors. Recordings have no such windows. */
static void mask_lost_rows(const struct trajd_live *live, const struct trajd_live_source *source)
{
    const struct trajd_live_target *output = &live->outputs[source->output];
    const struct trajd_live_input *input = &live->inputs[source->input];
    uint8_t *mask = live->request_streams[source - live->sources].mask;

    for (uint32_t t = 0; t < output->step_count; t++) {
        const int64_t step = output->row_offsets[t];
        const int64_t row = (int64_t)input->anchor_row - (int64_t)input->first + step;
        if (step < 0 && row >= 0 && -step < (int64_t)live->anchor_count &&
            input->stamps_ns[row] != live->anchors_ns[-step] && mask[t] < TRAJD_MASK_GAP)
            mask[t] = TRAJD_MASK_GAP;
    }
}

/* ---- transforms ---- */

static void blend_rotation(const struct trajd_live *live, const struct trajd_live_target *output,
                           uint32_t column, enum trajd_rotation_form form)
{
    uint32_t s = output->first_source;

    while (column >= live->request_streams[s].feature_count)
        column -= live->request_streams[s++].feature_count;
    trajd_transform_blend(&live->request, s, column, form, 0, 1);
}

static void transform_output(const struct trajd_live *live, const struct trajd_live_target *output,
                             uint8_t *out)
{
    const struct trajd_transform *transform = output->transform;
    const struct trajd_live_target *state = &live->outputs[output->state];
    const bool is_relative = transform->reference_count > 0;
    const struct trajd_transform_job job = {.transform = transform,
                                            .step_count = output->step_count,
                                            .source_type = output->row_dtype,
                                            .reference_type = state->row_dtype,
                                            .output_type = output->dtype,
                                            .source = output->rows,
                                            .reference = is_relative ? state->rows : NULL,
                                            .reference_mask = is_relative ? state->row_mask : NULL,
                                            .mask = out + output->mask_offset_bytes,
                                            .edge = live->edge,
                                            .output = out + output->offset_bytes,
                                            .scale = output->scale,
                                            .offset = output->offset,
                                            .norm_per_step = output->norm_steps > 1};

    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        if (part->kind != TRAJD_PART_ROTATION)
            continue;
        blend_rotation(live, output, part->first, part->from);
        if (part->is_relative)
            blend_rotation(live, state, part->reference_first, part->reference_form);
    }
    trajd_transform_windows(&job, 0, 1);
}

/* ---- all of it ---- */

static void make_values(struct trajd_live *live, uint8_t *out)
{
    for (uint32_t s = 0; s < live->source_count; s++)
        bind_source(live, s, out);
    trajd_resample_cpu(&live->request, 0, 1);
    for (uint32_t p = 0; p < live->picture_count; p++)
        trajd_live_picture_write(live, &live->pictures[p], out);
    for (uint32_t s = 0; s < live->source_count; s++)
        if (live->sources[s].rule == TRAJD_LIVE_ROWS && live->sources[s].base)
            mask_lost_rows(live, &live->sources[s]);
    for (uint32_t o = 0; o < live->visible_count; o++)
        if (live->outputs[o].transform)
            transform_output(live, &live->outputs[o], out);
}

static enum trajd_status observe(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                 uint8_t *out, struct trajd_error *error)
{
    enum trajd_status status;

    for (uint32_t i = 0; i < live->input_count; i++) {
        struct trajd_live_input *input = &live->inputs[i];
        input->seen = trajd_live_ring_rows(&input->ring);
        input->anchor_row = input->seen.begin;
        input->first = input->seen.begin;
        input->count = 0;
    }
    status = trajd_live_find_anchor(live, t_ns, error);
    if (!status)
        status = trajd_live_place_steps(live, error);
    if (!status)
        status = copy_rows(live, flags, error);
    if (!status)
        make_values(live, out);
    for (uint32_t p = 0; p < live->picture_count && !status; p++) {
        const struct trajd_live_input *input = &live->inputs[live->pictures[p].input];
        if (!trajd_live_ring_kept(&input->ring, input->seen))
            status = trajd_live_too_far(live, input, error);
    }
    return status;
}

enum trajd_status trajd_live_observe(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                     void *out, int64_t *anchor_ns, struct trajd_error *error)
{
    enum trajd_status status;

    if (t_ns > TRAJD_LIVE_FAR_NS || t_ns < -TRAJD_LIVE_FAR_NS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "the time %" PRId64 " is beyond 2^61 ns", t_ns);
    if (__atomic_exchange_n(&live->is_observing, 1, __ATOMIC_ACQUIRE))
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "another thread observes");
    status = observe(live, t_ns, flags, out, error);
    if (!status && anchor_ns)
        *anchor_ns = live->anchor_ns;
    __atomic_store_n(&live->is_observing, 0, __ATOMIC_RELEASE);
    return status;
}
