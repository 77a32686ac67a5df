/* Packs jobs into the parameters of a launch. Tested without a GPU. */
#include "kernels/transform/cuda/transform_launch.h"

#include "kernels/cuda/pack.h"

_Static_assert(sizeof(struct trajd_step_launch) <= TRAJD_STEP_PARAMETER_SIZE_MAX,
               "a launch is a kernel parameter");
_Static_assert((int)TRAJD_STEP_PARTS_MAX >= (int)TRAJD_TRANSFORM_MAX_PARTS,
               "every output fits a launch");
_Static_assert((int)TRAJD_TRANSFORM_MAX_COLUMNS * 3 <= UINT16_MAX, "columns fit a part");

static struct trajd_step_part pack_part(const struct trajd_transform_part *part)
{
    return (struct trajd_step_part){
        .period = part->period,
        .first = (uint16_t)part->first,
        .count = (uint16_t)part->count,
        .output_first = (uint16_t)part->output_first,
        .output_count = (uint16_t)part->output_count,
        .reference_first = (uint16_t)part->reference_first,
        .reference_count = (uint8_t)trajd_rotation_width(part->reference_form),
        .kind = (uint8_t)part->kind,
        .is_relative = part->is_relative,
        .from = (uint8_t)part->from,
        .to = (uint8_t)part->to,
        .reference_form = (uint8_t)part->reference_form,
        .turned_by = (int8_t)part->turned_by,
    };
}

static void pack_output(const struct trajd_transform_gpu_job *from, uint16_t part_first,
                        struct trajd_step_output *to)
{
    const struct trajd_transform_job *job = &from->job;
    const struct trajd_transform *transform = job->transform;

    *to = (struct trajd_step_output){
        .source = job->source,
        .reference = job->reference,
        .source_mask = from->source_mask,
        .reference_mask = job->reference_mask,
        .mask = job->mask,
        .output = job->output,
        .scale = job->scale,
        .offset = job->offset,
        .step_count = job->step_count,
        .column_count = transform->column_count,
        .output_count = transform->output_count,
        .reference_count = transform->reference_count,
        .part_first = part_first,
        .part_count = (uint16_t)transform->part_count,
        .source_type = (uint8_t)job->source_type,
        .reference_type = (uint8_t)job->reference_type,
        .output_type = (uint8_t)job->output_type,
        .edge = (uint8_t)job->edge,
        .frame = (uint8_t)transform->frame,
        .from_step_before = transform->from_step_before,
        .norm_per_step = job->norm_per_step,
    };
}

uint32_t trajd_step_pack(const struct trajd_transform_gpu_job *jobs, uint32_t first, uint32_t count,
                         uint32_t window_count, struct trajd_step_launch *launch)
{
    launch->window_rows = jobs[first].job.window_rows;
    launch->window_count = window_count;
    launch->output_count = launch->part_count = 0;
    for (; first < count && launch->output_count < TRAJD_STEP_OUTPUTS_MAX; first++) {
        const struct trajd_transform *transform = jobs[first].job.transform;
        if (launch->part_count + transform->part_count > TRAJD_STEP_PARTS_MAX)
            break;
        pack_output(&jobs[first], launch->part_count, &launch->outputs[launch->output_count++]);
        for (uint32_t p = 0; p < transform->part_count; p++)
            launch->parts[launch->part_count++] = pack_part(&transform->parts[p]);
    }
    return first;
}

bool trajd_blend_pack(const struct trajd_resample_request *request, uint32_t stream_index,
                      uint32_t column, enum trajd_rotation_form form,
                      struct trajd_blend_launch *launch)
{
    struct trajd_resample_request one = *request;
    struct trajd_cuda_problem problem;

    one.streams += stream_index;
    one.stream_count = 1;
    if ((one.streams->kind != TRAJD_KIND_LINEAR && one.streams->kind != TRAJD_KIND_ANGLE) ||
        one.grids[one.brackets[one.streams->bracket_index].grid_index].unit == TRAJD_GRID_ROWS)
        return false;
    trajd_cuda_pack(&one, 0, &problem);
    *launch = (struct trajd_blend_launch){.bracket = problem.brackets[0],
                                          .stream = problem.streams[0],
                                          .window_rows = request->window_rows,
                                          .window_count = request->window_count,
                                          .column = column,
                                          .form = (uint8_t)form,
                                          .width = (uint8_t)trajd_rotation_width(form)};
    return true;
}
