/* The definition of a transform: one row in double, and its inverse. */
#include <math.h>
#include <string.h>

#include "kernels/transform/rotation_numbers.h"
#include "support/references/references.h"

static struct trajd_rotation pack(const double q[4])
{
    return (struct trajd_rotation){q[0], q[1], q[2], q[3]};
}

static void unpack(struct trajd_rotation p, double q[4])
{
    memcpy(q, (const double[]){p.x, p.y, p.z, p.w}, 4 * sizeof *q);
}

/* out = p q: turns by q first, then by p. out may be p or q. */
static void multiply(const double p[4], const double q[4], double out[4])
{
    unpack(trajd_rotation_product(pack(p), pack(q)), out);
}

static void invert(const double q[4], double out[4])
{
    unpack(trajd_rotation_inverse(pack(q)), out);
}

/* out = R v. out may be v. */
static void turn(const double q[4], const double v[3], double out[3])
{
    trajd_vector_put(trajd_rotation_turned(pack(q), trajd_vector_of(v)), out);
}

void trajd_transform_origin_of_reference(const struct trajd_transform *transform,
                                         const double *reference, double *origin)
{
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const double *from = reference + part->reference_first;
        if (!part->is_relative)
            continue;
        if (part->kind == TRAJD_PART_ROTATION)
            trajd_rotation_load(part->reference_form, from, origin + part->origin_first);
        else
            memcpy(origin + part->origin_first, from, part->count * sizeof *origin);
    }
}

void trajd_transform_origin_of_row(const struct trajd_transform *transform, const double *row,
                                   double *origin)
{
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        if (!part->is_relative)
            continue;
        if (part->kind == TRAJD_PART_ROTATION)
            trajd_rotation_load(part->from, row + part->first, origin + part->origin_first);
        else
            memcpy(origin + part->origin_first, row + part->first, part->count * sizeof *origin);
    }
}

static double wrap(double difference, double period)
{
    return difference - period * floor(difference / period + 0.5);
}

static const double *turn_of(const struct trajd_transform *transform,
                             const struct trajd_transform_part *part, const double *origin)
{
    return origin + transform->parts[part->turned_by].origin_first;
}

static void forward_rotation(const struct trajd_transform *transform,
                             const struct trajd_transform_part *part, const double *origin,
                             const double *row, double *out)
{
    double q[4], inverse[4];

    trajd_rotation_load(part->from, row, q);
    if (part->is_relative) {
        invert(origin, inverse);
        if (transform->frame == TRAJD_FRAME_ANCHOR)
            multiply(inverse, q, q);
        else
            multiply(q, inverse, q);
    }
    trajd_rotation_store(part->to, q, out);
}

void trajd_transform_row(const struct trajd_transform *transform, const double *origin,
                         const double *row, double *out)
{
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const double *from = row + part->first, *zero = origin + part->origin_first;
        double *to = out + part->output_first, inverse[4];

        if (part->kind == TRAJD_PART_ROTATION) {
            forward_rotation(transform, part, zero, from, to);
            continue;
        }
        for (uint32_t d = 0; d < part->count; d++)
            to[d] = part->is_relative ? from[d] - zero[d] : from[d];
        for (uint32_t d = 0; d < part->count && part->kind == TRAJD_PART_ANGLE; d++)
            to[d] = part->is_relative ? wrap(to[d], part->period) : to[d];
        if (part->turned_by >= 0) {
            invert(turn_of(transform, part, origin), inverse);
            turn(inverse, to, to);
        }
    }
}

static void invert_rotation(const struct trajd_transform *transform,
                            const struct trajd_transform_part *part, const double *origin,
                            const double *out, double *row)
{
    double q[4];

    trajd_rotation_load(part->to, out, q);
    if (part->is_relative && transform->frame == TRAJD_FRAME_ANCHOR)
        multiply(origin, q, q);
    else if (part->is_relative)
        multiply(q, origin, q);
    trajd_rotation_store(part->from, q, row);
}

void trajd_transform_invert(const struct trajd_transform *transform, const double *origin,
                            const double *out, double *row)
{
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const double *from = out + part->output_first, *zero = origin + part->origin_first;
        double *to = row + part->first;

        if (part->kind == TRAJD_PART_ROTATION) {
            invert_rotation(transform, part, zero, from, to);
            continue;
        }
        memcpy(to, from, part->count * sizeof *to);
        if (part->turned_by >= 0)
            turn(turn_of(transform, part, origin), to, to);
        for (uint32_t d = 0; d < part->count && part->is_relative; d++)
            to[d] += zero[d];
    }
}
