/* Transforms of an output's rows: what a policy is trained on, made from what was recorded. The
 * contract between the daemon and the code here.
 *
 * A transform goes over the columns of an output in parts, one after another:
 *   plain     copied, or minus the same columns of the origin
 *   angle     minus the angle of the origin, the short way round
 *   rotation  converted from one form to another, and taken relative to the rotation of the origin
 *
 * The origin of a step is a row that the step is relative to: the reference row of the window (a
 * state at its anchor), or the step before it, where step 0 has the reference row.
 *
 *   frame anchor   a pose is seen from the origin's pose:  R' = R0^-1 R   p' = R0^-1 (p - p0)
 *   frame base     differences along the axes of the base: R' = R R0^-1   p' = p - p0
 *
 * Each part has an inverse: a step and its origin give the row back. Rows have D columns before and
 * E after the transform; B, T as in resample.h. Functions are thread-safe. */
#ifndef TRAJD_KERNELS_TRANSFORM_TRANSFORM_H
#define TRAJD_KERNELS_TRANSFORM_TRANSFORM_H

#include "kernels/resample.h"
#include "kernels/transform/rotation_forms.h"

enum { TRAJD_TRANSFORM_MAX_PARTS = 64, TRAJD_TRANSFORM_MAX_COLUMNS = 1024 };

enum trajd_part_kind { TRAJD_PART_PLAIN = 0, TRAJD_PART_ANGLE = 1, TRAJD_PART_ROTATION = 2 };
enum trajd_frame { TRAJD_FRAME_ANCHOR = 0, TRAJD_FRAME_BASE = 1 };

struct trajd_transform_part {
    enum trajd_part_kind kind;
    bool is_relative;
    uint32_t first, count;               /* columns of a row */
    uint32_t output_first, output_count; /* columns after the transform */
    uint32_t reference_first;            /* column of the reference row, of a relative part */
    uint32_t origin_first; /* place in an origin: `count` numbers, or 4 of a rotation */
    double period;         /* of an angle */
    enum trajd_rotation_form from, to, reference_form; /* of a rotation */
    /* of a position (plain, three columns) in the frame of the anchor: the part whose rotation
     * turns it; -1: none */
    int32_t turned_by;
};

struct trajd_transform {
    uint32_t part_count;
    struct trajd_transform_part parts[TRAJD_TRANSFORM_MAX_PARTS];
    uint32_t column_count;    /* D */
    uint32_t output_count;    /* E */
    uint32_t reference_count; /* columns of the reference row; 0: no part is relative */
    uint32_t origin_count;
    enum trajd_frame frame;
    bool from_step_before; /* the origin is the step before; else the reference row */
};

/* Returns whether a step with that mask has a row of the recording. */
TRAJD_BOTH_SIDES bool trajd_transform_has_row(uint32_t edge, uint8_t mask)
{
    if (mask == TRAJD_MASK_MISSING)
        return false;
    return edge == TRAJD_EDGE_HOLD ||
           (mask != TRAJD_MASK_BEFORE_START && mask != TRAJD_MASK_AFTER_END &&
            mask != TRAJD_MASK_BAD_STAMP);
}

/* ---- transform_blend.c ---- */

/* Replaces a rotation that a request blended number by number (kinds linear and angle) with the one
 * on the shortest arc between the two rows: columns [column, column + width) of the stream, which
 * has `bases`. Steps that are rows, and other kinds, stay as they are. Blends windows [begin, end) in
 * the caller's thread; call it when they are resampled. */
void trajd_transform_blend(const struct trajd_resample_request *request, uint32_t stream_index,
                           uint32_t column, enum trajd_rotation_form form, uint32_t begin,
                           uint32_t end);

/* ---- transform_run.c: all windows of a batch ---- */

/* Arrays are dense. Row w of the batch is window_rows[w], or w. */
struct trajd_transform_job {
    const struct trajd_transform *transform;
    uint32_t step_count;                                       /* T */
    const uint32_t *window_rows;                               /* [B] or NULL */
    enum trajd_dtype source_type, reference_type, output_type; /* the first two: f32 or f64 */
    const void *source;                                        /* [rows, T, D] */
    const void *reference;         /* [rows, reference_count]; unused without a reference */
    const uint8_t *reference_mask; /* [rows] */
    /* [rows, T]: the mask of the source. A step also gets the mask of its origin (the larger code
     * wins), and NAN where a number of the result is not finite. */
    uint8_t *mask;
    enum trajd_edge edge;
    void *output; /* [rows, T, E] */
    /* normalisation after the transform: [E], or [T, E] if norm_per_step; or both NULL */
    const float *scale, *offset;
    bool norm_per_step;
};

/* Transforms windows [begin, end) of the batch in the caller's thread. All arithmetic is in double and is rounded once.
 * Steps without a row of the recording get the value of `edge` before normalisation: zero or NaN.
 * Those are steps that are masked BEFORE_START, AFTER_END or BAD_STAMP unless `edge` is HOLD, and
 * steps that are masked MISSING. */
void trajd_transform_windows(const struct trajd_transform_job *job, uint32_t begin, uint32_t end);

/* Estimates the time of a step on one thread, in ns. */
double trajd_transform_step_ns(const struct trajd_transform *transform);

#endif
