/* Outputs with a transform: made from the rows of a batch. */
#include "daemon/window/window_batch.h"

bool trajd_window_find_blend(const struct trajd_window_plan *plan, uint32_t o, uint32_t p,
                             bool of_state, struct trajd_batch_blend *blend)
{
    const struct trajd_plan_output *out = &plan->outputs[o];
    const struct trajd_transform_part *part = &out->transform->parts[p];
    const uint32_t output_index = of_state ? out->reference_output : o;
    uint32_t column = of_state ? part->reference_first : part->first, t = 0;
    enum trajd_kind kind;

    if (part->kind != TRAJD_PART_ROTATION || (of_state && !part->is_relative))
        return false;
    while (plan->targets[t].output_index != output_index)
        t++;
    for (; column >= plan->streams[t].feature_count; t++)
        column -= plan->streams[t].feature_count;
    kind = plan->streams[t].kind;
    *blend = (struct trajd_batch_blend){t, column, of_state ? part->reference_form : part->from};
    return kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_ANGLE; /* slerp knows quaternions */
}

static void blend_rotations(const struct trajd_window_batch *batch, uint32_t o, uint32_t begin,
                            uint32_t end)
{
    const struct trajd_plan_output *out = &batch->plan->outputs[o];
    struct trajd_batch_blend blend;

    for (uint32_t p = 0; p < out->transform->part_count; p++)
        for (int of_state = 0; of_state < 2; of_state++)
            if (trajd_window_find_blend(batch->plan, o, p, of_state, &blend))
                trajd_transform_blend(&batch->request, blend.target_index, blend.column, blend.form,
                                      begin, end);
}

void trajd_window_batch_job(const struct trajd_window_batch *batch, uint32_t first, uint32_t o,
                            uint8_t *slot, struct trajd_transform_job *job)
{
    const struct trajd_plan_output *out = &batch->plan->outputs[o],
                                   *state = &batch->plan->outputs[out->reference_output];
    const struct trajd_batch_output *place = &batch->outputs[o],
                                    *reference = &batch->outputs[out->reference_output];
    const bool is_relative = out->transform->reference_count > 0;
    const uint64_t row = batch->request.window_rows ? 0 : first;
    const uint64_t row_bytes = out->row_feature_count * trajd_dtype_size(out->row_dtype),
                   state_bytes = state->row_feature_count * trajd_dtype_size(state->row_dtype);

    *job = (struct trajd_transform_job){
        .transform = out->transform,
        .step_count = out->step_count,
        .window_rows = batch->request.window_rows,
        .source_type = out->row_dtype,
        .reference_type = state->row_dtype,
        .output_type = out->dtype,
        .source = place->rows + row * out->step_count * row_bytes,
        .reference = is_relative ? reference->rows + row * state_bytes : NULL,
        .reference_mask = is_relative ? reference->row_mask + row : NULL,
        .mask = slot + place->mask_offset_bytes + row * out->step_count,
        .edge = batch->plan->spec->edge,
        .output = slot + place->offset_bytes +
                  row * out->step_count * out->feature_count * trajd_dtype_size(out->dtype),
        .scale = out->scale,
        .offset = out->offset,
        .norm_per_step = out->norm_step_count > 1};
}

void trajd_window_batch_transform(const struct trajd_window_batch *batch, uint32_t first,
                                  uint32_t begin, uint32_t end, const bool *wanted, uint8_t *slot)
{
    struct trajd_transform_job job;

    for (uint32_t o = 0; o < batch->plan->visible_count; o++)
        if (batch->plan->outputs[o].transform && (!wanted || wanted[o])) {
            blend_rotations(batch, o, begin, end);
            trajd_window_batch_job(batch, first, o, slot, &job);
            trajd_transform_windows(&job, begin, end);
        }
}
