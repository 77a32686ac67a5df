/* One step of an output, in double: the code of a thread of transform_steps.cu. As C it runs on the
 * host, for tests and for the simulated GPU, with the bits of trajd_transform_windows. */
#ifndef TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_STEP_H
#define TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_STEP_H

#include "kernels/finite.h"
#include "kernels/transform/cuda/transform_launch.h"
#include "kernels/transform/rotation_numbers.h"

#ifdef __CUDACC__
#include "kernels/cuda/element.cuh"
#define TRAJD_STEP static __device__ __forceinline__
#else
#include "kernels/element_convert.h"
#define TRAJD_STEP static inline
#endif

enum {
    TRAJD_STEP_COLUMNS = 4
}; /* of a plain part that a thread has in flight; at least a position */

/* A row of numbers in memory. */
struct trajd_step_row {
    const void *array;
    uint64_t first; /* its first element */
    uint32_t type;  /* f32 or f64 */
};

/* The step that a thread makes. */
struct trajd_step {
    const struct trajd_step_output *out;
    const struct trajd_step_part *parts; /* of the output */
    struct trajd_step_row source, origin;
    uint64_t place;      /* row T + step: where the step is in outputs and masks */
    uint32_t norm;       /* the step's first scale and offset */
    bool origin_is_step; /* the origin is a row of the source, else of the reference */
    bool is_lost;        /* a number is not finite */
    /* the rotation of the origin, of that part; -1: not loaded yet */
    int turn_part;
    struct trajd_rotation turn;
};

TRAJD_STEP double trajd_step_load(const struct trajd_step_row *row, uint32_t column)
{
    const uint64_t at = row->first + column;

    return row->type == TRAJD_F64 ? ((const double *)row->array)[at]
                                  : (double)((const float *)row->array)[at];
}

/* Returns whether the number is not finite as an element of the output. */
TRAJD_STEP bool trajd_step_store(const struct trajd_step *step, uint32_t column, double value)
{
    const struct trajd_step_output *out = step->out;
    const uint64_t at = step->place * out->output_count + column;

    if (out->scale)
        value = value * (double)out->scale[step->norm + column] +
                (double)out->offset[step->norm + column];
#ifdef __CUDACC__
    store_element<double>(out->output_type, out->output, at, value);
#else
    trajd_element_store((enum trajd_dtype)out->output_type,
                        out->output + at * trajd_dtype_size((enum trajd_dtype)out->output_type),
                        value);
#endif
    return !(fabs(value) < trajd_finite_limit(out->output_type));
}

TRAJD_STEP void trajd_step_load_rotation(const struct trajd_step_row *row, uint32_t first,
                                         uint32_t count, uint32_t form,
                                         struct trajd_rotation *found)
{
    double n[TRAJD_ROTATION_MAX_WIDTH];

    for (uint32_t d = 0; d < TRAJD_ROTATION_MAX_WIDTH; d++)
        n[d] = d < count ? trajd_step_load(row, first + d) : 0;
    *found = trajd_rotation_of_numbers((enum trajd_rotation_form)form, n);
}

/* Loads the rotation that a part is relative to. */
TRAJD_STEP void trajd_step_find_turn(struct trajd_step *step, int part_index)
{
    const struct trajd_step_part *part = &step->parts[part_index];
    const bool is_step = step->origin_is_step;

    if (step->turn_part == part_index)
        return;
    trajd_step_load_rotation(&step->origin, is_step ? part->first : part->reference_first,
                             is_step ? part->count : part->reference_count,
                             is_step ? part->from : part->reference_form, &step->turn);
    step->turn_part = part_index;
}

TRAJD_STEP void trajd_step_run_rotation(struct trajd_step *step, int part_index)
{
    const struct trajd_step_part *part = &step->parts[part_index];
    struct trajd_rotation q;
    double n[TRAJD_ROTATION_MAX_WIDTH];

    trajd_step_load_rotation(&step->source, part->first, part->count, part->from, &q);
    if (part->is_relative) {
        trajd_step_find_turn(step, part_index);
        if (step->out->frame == TRAJD_FRAME_ANCHOR)
            q = trajd_rotation_product(trajd_rotation_inverse(step->turn), q);
        else
            q = trajd_rotation_product(q, trajd_rotation_inverse(step->turn));
    }
    trajd_rotation_to_numbers((enum trajd_rotation_form)part->to, q, n);
    for (uint32_t d = 0; d < TRAJD_ROTATION_MAX_WIDTH; d++)
        if (d < part->output_count)
            step->is_lost |= trajd_step_store(step, part->output_first + d, n[d]);
}

/* Columns [skipped, skipped + TRAJD_STEP_COLUMNS) of a part that is not a rotation. */
TRAJD_STEP void trajd_step_run_columns(struct trajd_step *step, const struct trajd_step_part *part,
                                       uint32_t skipped)
{
    const uint32_t origin_first = step->origin_is_step ? part->first : part->reference_first;
    double v[TRAJD_STEP_COLUMNS];

    for (uint32_t k = 0; k < TRAJD_STEP_COLUMNS; k++) {
        const bool has = skipped + k < part->count;
        v[k] = has ? trajd_step_load(&step->source, part->first + skipped + k) : 0;
        if (has && part->is_relative)
            v[k] -= trajd_step_load(&step->origin, origin_first + skipped + k);
        if (part->is_relative && part->kind == TRAJD_PART_ANGLE)
            v[k] -= part->period * floor(v[k] / part->period + 0.5);
    }
    if (part->is_relative && part->turned_by >= 0) {
        trajd_step_find_turn(step, part->turned_by);
        trajd_vector_put(
            trajd_rotation_turned(trajd_rotation_inverse(step->turn), trajd_vector_of(v)), v);
    }
    for (uint32_t k = 0; k < TRAJD_STEP_COLUMNS; k++)
        if (skipped + k < part->count)
            step->is_lost |= trajd_step_store(step, part->output_first + skipped + k, v[k]);
}

TRAJD_STEP void trajd_step_store_edge(const struct trajd_step *step)
{
    for (uint32_t d = 0; d < step->out->output_count; d++)
        trajd_step_store(step, d, step->out->edge == TRAJD_EDGE_NAN ? NAN : 0.0);
}

/* Finds the row that the step is relative to: of the last step before it that has one, else of the
 * reference. */
TRAJD_STEP void trajd_step_find_origin(struct trajd_step *step, uint64_t row, uint32_t t)
{
    const struct trajd_step_output *out = step->out;
    const uint8_t *masks = out->source_mask + row * out->step_count;

    step->origin.array = out->reference;
    step->origin.type = out->reference_type;
    step->origin.first = row * out->reference_count;
    step->origin_is_step = false;
    step->turn_part = -1;
    while (out->from_step_before && t-- > 0)
        if (trajd_transform_has_row(out->edge, masks[t])) {
            step->origin = step->source;
            step->origin.first = (row * out->step_count + t) * out->column_count;
            step->origin_is_step = true;
            return;
        }
}

/* Returns the mask of the step's origin. */
TRAJD_STEP uint8_t trajd_step_origin_mask(const struct trajd_step_output *out, uint64_t row,
                                          uint32_t t)
{
    if (!out->reference_count)
        return TRAJD_MASK_VALID;
    return out->from_step_before && t > 0 ? out->source_mask[row * out->step_count + t - 1]
                                          : out->reference_mask[row];
}

/* Transforms step t of window w of an output. */
TRAJD_STEP void trajd_step_run(const struct trajd_step_launch *launch, uint32_t output_index,
                               uint32_t w, uint32_t t)
{
    const struct trajd_step_output *out = &launch->outputs[output_index];
    const uint64_t row = launch->window_rows ? launch->window_rows[w] : w;
    struct trajd_step step;
    uint8_t own, origin, code;

    step.out = out;
    step.parts = launch->parts + out->part_first;
    step.place = row * out->step_count + t;
    step.norm = out->norm_per_step ? t * out->output_count : 0;
    step.source.array = out->source;
    step.source.type = out->source_type;
    step.source.first = step.place * out->column_count;
    step.is_lost = false;
    own = out->source_mask[step.place];
    origin = trajd_step_origin_mask(out, row, t);
    code = own > origin ? own : origin;
    if (!trajd_transform_has_row(out->edge, own)) {
        trajd_step_store_edge(&step);
        out->mask[step.place] = code;
        return;
    }
    if (out->reference_count)
        trajd_step_find_origin(&step, row, t);
    for (int p = 0; p < out->part_count; p++)
        if (step.parts[p].kind == TRAJD_PART_ROTATION)
            trajd_step_run_rotation(&step, p);
        else
            for (uint32_t c = 0; c < step.parts[p].count; c += TRAJD_STEP_COLUMNS)
                trajd_step_run_columns(&step, &step.parts[p], c);
    if (step.is_lost && code != TRAJD_MASK_VALID && code < TRAJD_MASK_NAN)
        trajd_step_store_edge(&step); /* it holds no rotation, such as zeros */
    out->mask[step.place] =
        step.is_lost && code == TRAJD_MASK_VALID ? (uint8_t)TRAJD_MASK_NAN : code;
}

#endif
