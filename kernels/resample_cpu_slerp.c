/* Quaternions, and the derivatives of every kind that has one.
 *
 * Math      With h the angle between p and q, slerp is proportional to (1-a) S((1-a)^2 h^2) p + a S(a^2 h^2) q, where S(h^2) =
 *           sin(h) / h; the common factor goes when the result is scaled to unit length. h^2 = 4 asin^2(|p - q| / 2), a series
 *           in u = |p - q|^2 / 4. Both series are cut for u <= NEAR (29 degrees, 58 of rotation); beyond it, libm.
 * Shapes    D a multiple of 4.
 * Requires  nothing.
 * Moves     each row that is used once.
 * Numerics  double; the series are within 1e-13 of the reference, so f32 results differ by at most one unit in the last place.
 */
#include <math.h>
#include <string.h>

#include "kernels/convert.h"
#include "kernels/quaternion.h"
#include "kernels/resample_cpu.h"

#define NEAR 0.0625

/* h^2 from u = sin^2(h / 2): 4 asin^2(sqrt(u)) = 2 sum (4u)^n / (n^2 binomial(2n, n)). */
static double angle_square(double u)
{
    double x = 4 * u;

    return x * (1 + x * (1. / 12 + x * (1. / 90 + x * (1. / 560 + x * (1. / 3150 + x * (1. / 16632 + x * (1. / 84084 +
           x * (1. / 411840 + x * (1. / 1969110)))))))));
}

/* sin(h) / h from h^2. */
static double sine_ratio(double z)
{
    return 1 - z / 6 * (1 - z / 20 * (1 - z / 42 * (1 - z / 72 * (1 - z / 110 * (1 - z / 156)))));
}

static void slerp(const double p[4], const double q[4], double a, double out[4])
{
    double sign = trajd_quaternion_dot(p, q) < 0 ? -1 : 1;
    double u = 0, square, weight_p, weight_q;

    for (int k = 0; k < 4; k++)
        u += (p[k] - sign * q[k]) * (p[k] - sign * q[k]) / 4;
    if (!(u <= NEAR)) {
        trajd_quaternion_slerp(p, q, a, out);
        return;
    }
    square = angle_square(u);
    weight_p = (1 - a) * sine_ratio((1 - a) * (1 - a) * square);
    weight_q = sign * a * sine_ratio(a * a * square);
    for (int k = 0; k < 4; k++)
        out[k] = weight_p * p[k] + weight_q * q[k];
    trajd_quaternion_make_unit(out);
}

static void load4(enum trajd_dtype type, const char *from, double q[4])
{
    uint32_t size = trajd_dtype_size(type);

    for (uint32_t k = 0; k < 4; k++)
        q[k] = trajd_element_load(type, from + k * size);
}

/* One quaternion of one move. */
static void form(const struct trajd_stream *stream, struct trajd_cpu_move *move, const char *from, double out[4])
{
    double p[4], q[4], square;

    load4(stream->source_type, from, p);
    memcpy(out, p, sizeof p);
    square = trajd_quaternion_make_unit(p);
    if (move->a > 0) {
        load4(stream->source_type, from + stream->row_stride_bytes, q);
        trajd_quaternion_make_unit(q);
        slerp(p, q, move->a, out);
    } else if (!(fabs(square - 1) <= TRAJD_QUATERNION_UNIT_SLACK)) {
        memcpy(out, p, sizeof p);
    }
    if (isnan(out[0]) && move->code < TRAJD_MASK_NAN)
        move->code = TRAJD_MASK_NAN;
}

void trajd_cpu_slerp(const struct trajd_stream *stream, struct trajd_cpu_move *moves, uint32_t count)
{
    uint32_t source_size = trajd_dtype_size(stream->source_type), output_size = trajd_dtype_size(stream->output_type);
    double q[4] = {0};

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t d = 0; d < stream->feature_count; d++) {
            if (d % 4 == 0 && moves[i].row)
                form(stream, &moves[i], moves[i].row + (uint64_t)d * source_size, q);
            double value = moves[i].row ? q[d % 4] : stream->edge == TRAJD_EDGE_NAN ? NAN : 0;
            if (stream->scale)
                value = value * (double)stream->scale[d] + (double)stream->offset[d];
            trajd_element_store(stream->output_type, moves[i].out + (uint64_t)d * output_size, value);
        }
    }
}

/* Rows p and p + 1, ns apart. */
static void derive(const struct trajd_stream *stream, const char *p, uint64_t ns, float *out)
{
    const char *q = p + stream->row_stride_bytes;
    uint32_t size = trajd_dtype_size(stream->source_type);
    double rate = 1e9 / (double)ns, from[4], to[4], turn[3];

    for (uint32_t d = 0; d < stream->feature_count; d++) {
        if (!trajd_kind_is_slerp(stream->kind)) {
            double difference = trajd_element_load(stream->source_type, q + (uint64_t)d * size) -
                                trajd_element_load(stream->source_type, p + (uint64_t)d * size);
            if (stream->kind == TRAJD_KIND_ANGLE)
                difference -= stream->angle_period *
                              floor((difference + stream->angle_period / 2) / stream->angle_period);
            out[d] = (float)(difference * rate);
        } else if (d % 4 == 0) {
            load4(stream->source_type, p + (uint64_t)d * size, from);
            load4(stream->source_type, q + (uint64_t)d * size, to);
            trajd_quaternion_make_unit(from);
            trajd_quaternion_make_unit(to);
            trajd_quaternion_turn(stream->kind, from, to, turn);
            for (int k = 0; k < 3; k++)
                *out++ = (float)(turn[k] * rate);
        }
    }
}

void trajd_cpu_derivatives(const struct trajd_stream *stream, const struct trajd_cpu_window *window, const char *rows,
                           const struct trajd_cpu_step *steps, uint32_t count, char *out)
{
    uint32_t features = stream->feature_count;
    uint64_t size = (trajd_kind_is_slerp(stream->kind) ? features / 4 * 3 : features) * sizeof(float);

    for (uint32_t t = 0; t < count; t++, out += stream->derivative_step_stride_bytes) {
        int64_t row = steps[t].row;
        uint64_t ns = steps[t].ns;

        if (rows && steps[t].mask == TRAJD_MASK_VALID && row == window->row_count - 1 && --row >= 0)
            ns = (uint64_t)trajd_cpu_stamp_of(window, row + 1) - (uint64_t)trajd_cpu_stamp_of(window, row);
        if (rows && steps[t].mask == TRAJD_MASK_VALID && row >= 0 && ns > 0)
            derive(stream, rows + row * (int64_t)stream->row_stride_bytes, ns, (float *)out);
        else
            memset(out, 0, size);
    }
}
