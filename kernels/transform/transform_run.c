/* Transforms the windows of a batch.
 *
 * Without rotations, a window has one number per column that is subtracted, and the steps are one
 * loop over the columns that the compiler vectorises. Otherwise each row goes through
 * trajd_transform_row. Both compute in double and give the same bits. */
#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/transform/transform.h"

#define WINDOWS_PER_SLICE 16

/* of one window, on the stack of its thread */
struct scratch {
    double row[TRAJD_TRANSFORM_MAX_COLUMNS], out[TRAJD_TRANSFORM_MAX_COLUMNS * 3],
        origin[TRAJD_TRANSFORM_MAX_COLUMNS * 2], next[TRAJD_TRANSFORM_MAX_COLUMNS * 2];
};

static void load(enum trajd_dtype type, const void *array, uint64_t first, uint32_t count,
                 double *out)
{
    if (type == TRAJD_F64)
        memcpy(out, (const double *)array + first, count * sizeof *out);
    for (uint32_t d = 0; d < count && type != TRAJD_F64; d++)
        out[d] = (double)((const float *)array)[first + d];
}

static bool has_row(const struct trajd_transform_job *job, uint8_t mask)
{
    if (mask == TRAJD_MASK_MISSING)
        return false;
    return job->edge == TRAJD_EDGE_HOLD ||
           (mask != TRAJD_MASK_BEFORE_START && mask != TRAJD_MASK_AFTER_END &&
            mask != TRAJD_MASK_BAD_STAMP);
}

/* Stores a step, normalised. */
static void store(const struct trajd_transform_job *job, uint64_t row, uint32_t step,
                  const double *values)
{
    const uint32_t count = job->transform->output_count;
    const uint64_t first = (row * job->step_count + step) * count,
                   norm = job->norm_per_step ? (uint64_t)step * count : 0;
    const size_t size = trajd_dtype_size(job->output_type);
    char *to = (char *)job->output + first * size;

    if (job->output_type == TRAJD_F32) {
        float *floats = (float *)to;
        for (uint32_t d = 0; d < count && !job->scale; d++)
            floats[d] = (float)values[d];
        for (uint32_t d = 0; d < count && job->scale; d++)
            floats[d] =
                (float)(values[d] * (double)job->scale[norm + d] + (double)job->offset[norm + d]);
        return;
    }
    for (uint32_t d = 0; d < count; d++)
        trajd_element_store(job->output_type, to + d * size,
                            job->scale ? values[d] * (double)job->scale[norm + d] +
                                             (double)job->offset[norm + d]
                                       : values[d]);
}

static void store_edge(const struct trajd_transform_job *job, uint64_t row, uint32_t step,
                       struct scratch *scratch)
{
    for (uint32_t d = 0; d < job->transform->output_count; d++)
        scratch->out[d] = job->edge == TRAJD_EDGE_NAN ? NAN : 0;
    store(job, row, step, scratch->out);
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
            store_edge(job, row, step, scratch);
            return mask;
        }
        mask = TRAJD_MASK_NAN;
    }
    store(job, row, step, scratch->out);
    return mask;
}

static void transform_window(const struct trajd_transform_job *job, uint64_t row,
                             struct scratch *scratch)
{
    const struct trajd_transform *transform = job->transform;
    const bool relative = transform->reference_count > 0;
    uint8_t *mask = job->mask + row * job->step_count;
    uint8_t origin_mask = relative ? job->reference_mask[row] : TRAJD_MASK_VALID;

    if (relative) {
        load(job->reference_type, job->reference, row * transform->reference_count,
             transform->reference_count, scratch->row);
        trajd_transform_origin_of_reference(transform, scratch->row, scratch->origin);
    }
    for (uint32_t t = 0; t < job->step_count; t++) {
        const uint8_t own = mask[t];
        mask[t] = larger(own, origin_mask);
        if (has_row(job, own))
            mask[t] = transform_step(job, row, t, mask[t], scratch);
        else
            store_edge(job, row, t, scratch);
        if (transform->from_step_before && relative) {
            origin_mask = own;
            if (has_row(job, own))
                trajd_transform_origin_of_row(transform, scratch->row, scratch->origin);
        }
    }
}

/* ---- windows without rotations ---- */

static bool is_flat(const struct trajd_transform *transform)
{
    for (uint32_t p = 0; p < transform->part_count; p++)
        if (transform->parts[p].kind != TRAJD_PART_PLAIN)
            return false;
    return !transform->from_step_before;
}

/* Fills what is subtracted from each column. */
static void fill_differences(const struct trajd_transform_job *job, uint64_t row,
                             struct scratch *scratch)
{
    const struct trajd_transform *transform = job->transform;

    memset(scratch->next, 0, transform->column_count * sizeof *scratch->next);
    if (!transform->reference_count)
        return;
    load(job->reference_type, job->reference, row * transform->reference_count,
         transform->reference_count, scratch->row);
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        if (part->is_relative)
            memcpy(scratch->next + part->first, scratch->row + part->reference_first,
                   part->count * sizeof *scratch->next);
    }
}

static void transform_flat_window(const struct trajd_transform_job *job, uint64_t row,
                                  struct scratch *scratch)
{
    const uint32_t columns = job->transform->column_count;
    const uint8_t origin_mask =
        job->transform->reference_count ? job->reference_mask[row] : TRAJD_MASK_VALID;
    uint8_t *mask = job->mask + row * job->step_count;

    fill_differences(job, row, scratch);
    for (uint32_t t = 0; t < job->step_count; t++) {
        const uint8_t own = mask[t];
        mask[t] = larger(own, origin_mask);
        if (!has_row(job, own)) {
            store_edge(job, row, t, scratch);
            continue;
        }
        load(job->source_type, job->source, (row * job->step_count + t) * columns, columns,
             scratch->row);
        for (uint32_t d = 0; d < columns; d++)
            scratch->out[d] = scratch->row[d] - scratch->next[d];
        store(job, row, t, scratch->out);
    }
}

static void run_slice(void *context, uint32_t slice)
{
    const struct trajd_transform_job *job = context;
    const uint32_t begin = slice * WINDOWS_PER_SLICE;
    const uint32_t end = job->window_count - begin < WINDOWS_PER_SLICE ? job->window_count
                                                                       : begin + WINDOWS_PER_SLICE;
    const bool flat = is_flat(job->transform);
    struct scratch scratch;

    for (uint32_t w = begin; w < end; w++) {
        const uint64_t row = job->window_rows ? job->window_rows[w] : w;
        if (flat)
            transform_flat_window(job, row, &scratch);
        else
            transform_window(job, row, &scratch);
    }
}

void trajd_transform_run(const struct trajd_transform_job *job, struct trajd_pool *pool)
{
    const uint32_t slices = (job->window_count + WINDOWS_PER_SLICE - 1) / WINDOWS_PER_SLICE;

    trajd_pool_run(pool, slices, run_slice, (void *)(uintptr_t)job);
}
