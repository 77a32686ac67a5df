/* Transforms the windows of a batch: groups of steps side by side where the origin is the reference
 * row, and step after step where it is the step before. Both compute in double and give the same
 * bits as trajd_transform_row. */
#include <math.h>
#include <string.h>

#include "kernels/transform/transform.h"
#include "kernels/transform/transform_lanes.h"

static uint64_t row_of(const struct trajd_transform_job *job, uint32_t window)
{
    return job->window_rows ? job->window_rows[window] : window;
}

/* ---- relative to the step before ---- */

/* of one window, on the stack of its thread */
struct scratch {
    double row[TRAJD_TRANSFORM_MAX_COLUMNS], out[TRAJD_TRANSFORM_MAX_COLUMNS * 3],
        origin[TRAJD_TRANSFORM_MAX_COLUMNS * 2];
};

static void load(enum trajd_dtype type, const void *array, uint64_t first, uint32_t count,
                 double *out)
{
    if (type == TRAJD_F64)
        memcpy(out, (const double *)array + first, count * sizeof *out);
    for (uint32_t d = 0; d < count && type != TRAJD_F64; d++)
        out[d] = (double)((const float *)array)[first + d];
}

static bool any_nan(const double *values, uint32_t count)
{
    bool found = false;

    for (uint32_t d = 0; d < count; d++)
        found |= isnan(values[d]);
    return found;
}

static uint8_t larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* Transforms a step with a row. Returns its mask. */
static uint8_t transform_step(const struct trajd_transform_job *job, uint64_t row, uint32_t step,
                              uint8_t mask, struct scratch *scratch)
{
    const struct trajd_transform *transform = job->transform;

    load(job->source_type, job->source, (row * job->step_count + step) * transform->column_count,
         transform->column_count, scratch->row);
    trajd_transform_row(transform, scratch->origin, scratch->row, scratch->out);
    if (any_nan(scratch->out, transform->output_count) && mask < TRAJD_MASK_NAN) {
        if (mask != TRAJD_MASK_VALID) { /* a step that holds no rotation, such as zeros */
            trajd_transform_store_edge(job, row, step);
            return mask;
        }
        mask = TRAJD_MASK_NAN;
    }
    trajd_transform_store(job, row, step, scratch->out);
    return mask;
}

static void transform_window(const struct trajd_transform_job *job, uint64_t row,
                             struct scratch *scratch)
{
    const struct trajd_transform *transform = job->transform;
    uint8_t *mask = job->mask + row * job->step_count;
    uint8_t origin_mask = job->reference_mask[row];

    load(job->reference_type, job->reference, row * transform->reference_count,
         transform->reference_count, scratch->row);
    trajd_transform_origin_of_reference(transform, scratch->row, scratch->origin);
    for (uint32_t t = 0; t < job->step_count; t++) {
        const uint8_t own = mask[t];
        mask[t] = larger(own, origin_mask);
        if (trajd_transform_has_row(job, own))
            mask[t] = transform_step(job, row, t, mask[t], scratch);
        else
            trajd_transform_store_edge(job, row, t);
        origin_mask = own;
        if (trajd_transform_has_row(job, own))
            trajd_transform_origin_of_row(transform, scratch->row, scratch->origin);
    }
}

static void transform_one_by_one(const struct trajd_transform_job *job, uint32_t begin,
                                 uint32_t end)
{
    struct scratch scratch;

    for (uint32_t w = begin; w < end; w++)
        transform_window(job, row_of(job, w), &scratch);
}

/* ---- relative to the reference row ---- */

/* Transforms windows [begin, end) in groups: several whole windows, or some steps of a window. */
static void transform_side_by_side(const struct trajd_transform_job *job, uint32_t begin,
                                   uint32_t end)
{
    const uint32_t steps = job->step_count < TRAJD_LANES ? job->step_count : TRAJD_LANES,
                   windows = TRAJD_LANES / steps;
    struct trajd_transform_group group;

    group.job = job;
    for (uint32_t w = begin; w < end; w += group.window_count) {
        group.window_count = end - w < windows ? end - w : windows;
        for (uint32_t k = 0; k < group.window_count; k++)
            group.windows[k] = row_of(job, w + k);
        for (uint32_t t = 0; t < job->step_count; t += group.step_count) {
            group.first_step = t;
            group.step_count = job->step_count - t < steps ? job->step_count - t : steps;
            trajd_transform_group_run(&group);
        }
    }
}

void trajd_transform_windows(const struct trajd_transform_job *job, uint32_t begin, uint32_t end)
{
    if (job->transform->from_step_before && job->transform->reference_count)
        transform_one_by_one(job, begin, end);
    else
        transform_side_by_side(job, begin, end);
}
