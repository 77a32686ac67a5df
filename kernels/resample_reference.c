/* The definition of correct, for every kind: scalar, in double, one element at a time. Steps share
 * no work.
 *
 * Math      resample.h. A target is resolved into a row, a fraction and a mask code. The value
 *           and value * scale + offset are formed in double. The store rounds once.
 * Shapes    any that trajd_resample_check accepts.
 * Requires  host memory. Rows, stamps and counts are not checked beforehand and cannot make it
 *           fail.
 * Moves     every source row once per step that uses it. It does not try to be fast.
 * Threads   the caller's. Windows are independent, so several callers may run ranges of windows
 *           of one request.
 * Numerics  the error against exact arithmetic is that of double. i64 and u64 beyond 2^53 are
 *           rounded to double first.
 * Chosen    if no other variant serves a request: the last row of the table in choose.c. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/finite.h"
#include "kernels/quaternion.h"
#include "kernels/resample.h"
#include "kernels/resample_resolve.h"
#include "kernels/resample_target.h"

static double element(const struct trajd_view *view, int64_t row, uint32_t d)
{
    const struct trajd_stream *stream = view->stream;

    return trajd_element_load(stream->source_type,
                              view->rows + row * (int64_t)stream->row_stride_bytes +
                                  (uint64_t)d * trajd_dtype_size(stream->source_type));
}

/* Wraps the difference into [-period/2, period/2). */
static double wrapped(double difference, double period)
{
    return difference - period * floor((difference + period / 2) / period);
}

static double into_range(double value, double low, double period)
{
    double result = value - period * floor((value - low) / period);

    return result < low || result >= low + period ? low : result; /* rounding near the ends */
}

static double mean(const struct trajd_view *view, const struct trajd_target *target, uint32_t d)
{
    double sum = 0;
    int64_t count = 0;

    if (target->mean_first > target->row)
        return element(view, target->row, d);
    for (int64_t row = target->mean_first; row <= target->row; row++) {
        double value = element(view, row, d);
        if (!isnan(value)) {
            sum += value;
            count++;
        }
    }
    return count ? sum / (double)count : NAN;
}

/* Forms the sum of the target's rows, the last row first. */
static double total(const struct trajd_view *view, const struct trajd_target *target, uint32_t d)
{
    const double gamma = view->stream->total == TRAJD_TOTAL_REST ? view->stream->total_gamma : 1;
    double sum = 0;

    for (int64_t row = target->total_end - 1; row >= target->row; row--)
        sum = element(view, row, d) + gamma * sum;
    return sum;
}

/* Forms one value of the kinds that work feature by feature. */
static double scalar_value(const struct trajd_view *view, const struct trajd_target *target,
                           uint32_t d)
{
    const struct trajd_stream *stream = view->stream;
    double value = stream->total                     ? total(view, target, d)
                   : stream->kind == TRAJD_KIND_MEAN ? mean(view, target, d)
                                                     : element(view, target->row, d);

    if (target->blends) {
        double next = element(view, target->row + 1, d);
        if (stream->kind == TRAJD_KIND_ANGLE)
            value += target->a * wrapped(next - value, stream->angle_period);
        else
            value += target->a * (next - value);
    }
    if (stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low))
        value = into_range(value, stream->angle_low, stream->angle_period);
    return value;
}

/* Loads quaternion number d / 4 of a row, scaled to unit length. */
static void load_unit(const struct trajd_view *view, int64_t row, uint32_t d, double q[4])
{
    for (uint32_t k = 0; k < 4; k++)
        q[k] = element(view, row, d + k);
    trajd_quaternion_make_unit(q);
}

static void quaternion_value(const struct trajd_view *view, const struct trajd_target *target,
                             uint32_t d, double out[4])
{
    double stored[4], p[4], q[4];
    double square;

    for (uint32_t k = 0; k < 4; k++)
        p[k] = stored[k] = element(view, target->row, d + k);
    square = trajd_quaternion_make_unit(p);
    if (target->blends) {
        load_unit(view, target->row + 1, d, q);
        trajd_quaternion_slerp(p, q, target->a, out);
    } else {
        memcpy(out, fabs(square - 1) <= TRAJD_QUATERNION_UNIT_SLACK ? stored : p, sizeof p);
    }
}

static void write_derivative(const struct trajd_view *view, const struct trajd_target *target,
                             float *out)
{
    const struct trajd_stream *stream = view->stream;
    uint32_t count =
        trajd_kind_is_slerp(stream->kind) ? stream->feature_count / 4 * 3 : stream->feature_count;
    double rate = target->interval_ns ? 1e9 / (double)target->interval_ns : 0;
    int64_t row = target->interval_row;
    double p[4], q[4], turn[3];

    if (row < 0 || target->interval_ns == 0) {
        memset(out, 0, count * sizeof *out);
        return;
    }
    for (uint32_t d = 0; d < count; d++) {
        if (trajd_kind_is_slerp(stream->kind)) {
            if (d % 3 == 0) {
                load_unit(view, row, d / 3 * 4, p);
                load_unit(view, row + 1, d / 3 * 4, q);
                trajd_quaternion_turn(stream->kind, p, q, turn);
            }
            out[d] = (float)(turn[d % 3] * rate);
        } else {
            double difference = element(view, row + 1, d) - element(view, row, d);
            if (stream->kind == TRAJD_KIND_ANGLE)
                difference = wrapped(difference, stream->angle_period);
            out[d] = (float)(difference * rate);
        }
    }
}

static double normalised(const struct trajd_stream *stream, uint32_t d, double value)
{
    return stream->scale ? value * (double)stream->scale[d] + (double)stream->offset[d] : value;
}

static void store_value(const struct trajd_stream *stream, char *out, uint32_t d, double value)
{
    trajd_element_store(stream->output_type,
                        out + (uint64_t)d * trajd_dtype_size(stream->output_type), value);
}

/* Raises the mask if a value is not finite as an element of the output. */
static void see_lost(const struct trajd_stream *stream, double value, uint8_t *mask)
{
    if (!(fabs(value) < trajd_finite_limit(stream->output_type)) && *mask < TRAJD_MASK_NAN)
        *mask = TRAJD_MASK_NAN;
}

/* Copies a row for previous and nearest into the source's own type. It copies bytes, so that 64-bit
 * integers and NaN payloads stay as they are. */
static void copy_row(const struct trajd_view *view, const struct trajd_target *target, char *out,
                     uint8_t *mask)
{
    const struct trajd_stream *stream = view->stream;
    uint32_t size = trajd_dtype_size(stream->source_type);

    memcpy(out, view->rows + target->row * (int64_t)stream->row_stride_bytes,
           (uint64_t)stream->feature_count * size);
    for (uint32_t d = 0; d < stream->feature_count; d++)
        see_lost(stream, element(view, target->row, d), mask);
}

static void write_edge(const struct trajd_stream *stream, char *out)
{
    double constant = stream->edge == TRAJD_EDGE_NAN ? NAN : 0;

    if (!trajd_dtype_is_float(stream->output_type)) {
        memset(out, 0, (uint64_t)stream->feature_count * trajd_dtype_size(stream->output_type));
        return;
    }
    for (uint32_t d = 0; d < stream->feature_count; d++)
        store_value(stream, out, d, normalised(stream, d, constant));
}

/* Forms feature d of a step. A quaternion is formed at its first feature, and kept in q. */
static double value_of(const struct trajd_view *view, const struct trajd_target *target, uint32_t d,
                       double q[4])
{
    if (!trajd_kind_is_slerp(view->stream->kind))
        return scalar_value(view, target, d);
    if (d % 4 == 0)
        quaternion_value(view, target, d, q);
    return q[d % 4];
}

static void write_row(const struct trajd_view *view, const struct trajd_target *target, char *out,
                      uint8_t *mask)
{
    const struct trajd_stream *stream = view->stream;
    double q[4];

    if ((stream->kind == TRAJD_KIND_PREVIOUS || stream->kind == TRAJD_KIND_NEAREST) &&
        !stream->scale && !stream->total && stream->output_type == stream->source_type) {
        copy_row(view, target, out, mask);
        return;
    }
    for (uint32_t d = 0; d < stream->feature_count; d++) {
        const double value = normalised(stream, d, value_of(view, target, d, q));
        see_lost(stream, value, mask);
        store_value(stream, out, d, value);
    }
}

static void resample_step(const struct trajd_view *view, uint32_t w, uint64_t row, uint32_t t)
{
    const struct trajd_stream *stream = view->stream;
    struct trajd_target target = trajd_target_resolve(view, w, t);
    char *out =
        (char *)stream->output + row * stream->window_stride_bytes + t * stream->step_stride_bytes;

    if (target.has_row)
        write_row(view, &target, out, &target.mask);
    else
        write_edge(stream, out);
    if (stream->derivative)
        write_derivative(view, &target,
                         (float *)((char *)stream->derivative +
                                   row * stream->derivative_window_stride_bytes +
                                   t * stream->derivative_step_stride_bytes));
    if (stream->mask) {
        uint8_t *mask = stream->mask + row * stream->mask_window_stride_bytes + t;
        if (!stream->mask_joins_previous || target.mask > *mask)
            *mask = target.mask;
    }
}

void trajd_resample_reference(const struct trajd_resample_request *request, uint32_t window_begin,
                              uint32_t window_end)
{
    for (uint32_t w = window_begin; w < window_end; w++)
        for (uint32_t s = 0; s < request->stream_count; s++) {
            struct trajd_view view = trajd_view_of(request, &request->streams[s], w);
            for (uint32_t t = 0; t < view.grid->step_count; t++)
                resample_step(&view, w, trajd_window_row(request, w), t);
        }
}

int64_t trajd_resample_find_nan(const struct trajd_resample_request *request, uint32_t stream_index,
                                uint32_t window, const struct trajd_resample_step *step)
{
    const struct trajd_view view = trajd_view_of(request, &request->streams[stream_index], window);
    const struct trajd_target target = {
        .has_row = step->has_row,
        .blends = step->blends,
        .row = step->row,
        .mean_first = step->mean_first,
        .total_end = step->row + step->added,
        .a = step->blends ? (double)step->past_ns / (double)step->width_ns : 0};
    uint8_t mask = TRAJD_MASK_VALID;
    double q[4];

    if (!step->has_row || !view.rows)
        return -1;
    for (uint32_t d = 0; d < view.stream->feature_count; d++) {
        see_lost(view.stream, normalised(view.stream, d, value_of(&view, &target, d, q)), &mask);
        if (mask == TRAJD_MASK_NAN)
            return d;
    }
    return -1;
}
