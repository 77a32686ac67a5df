/* Quaternions, and the derivatives of all kinds that have one.
 *
 * Math      let h be the angle between p and q. Slerp is proportional to (1-a) S((1-a)^2 h^2) p
 *           + a S(a^2 h^2) q, where S(h^2) = sin(h) / h. Scaling to unit length removes the
 *           common factor. h^2 = 4 asin^2(|p - q| / 2) is a series in u = |p - q|^2 / 4. Both
 *           series are cut for u <= NEAR (29 degrees, 58 of rotation); beyond it, libm.
 * Shapes    D a multiple of 4.
 * Requires  nothing.
 * Moves     each row that is used once.
 * Numerics  double. The series are within 1e-13 of the reference, so f32 results differ by at
 *           most one unit in the last place. */
#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"
#include "kernels/cpu/cpu.h"
#include "kernels/finite.h"

#define NEAR 0.0625
#define LANES 32

/* Quaternions side by side, one array per component, so that the compiler processes several at
 * once. */
struct lanes {
    double p[4][LANES], q[4][LANES]; /* as stored; q equals p if nothing is blended */
    double a[LANES];
    double out[4][LANES];
    /* |p - q|^2 / 4 of the unit quaternions, with the sign of q that is nearer to p */
    double u[LANES];
    double square[LANES]; /* squared length of p as stored */
};

/* clang-format off */
/* h^2 from u = sin^2(h / 2): 4 asin^2(sqrt(u)) = 2 sum (4u)^n / (n^2 binomial(2n, n)). */
TRAJD_INLINE double angle_square(double u)
{
    double x = 4 * u;

    return x * (1 + x * (1. / 12 + x * (1. / 90 + x * (1. / 560 + x * (1. / 3150 + x * (1. / 16632 +
           x * (1. / 84084 + x * (1. / 411840 + x * (1. / 1969110)))))))));
}

/* sin(h) / h from h^2. */
TRAJD_INLINE double sine_ratio(double z)
{
    return 1 - z * (1. / 6) *
           (1 - z * (1. / 20) *
           (1 - z * (1. / 42) *
           (1 - z * (1. / 72) * (1 - z * (1. / 110) * (1 - z * (1. / 156))))));
}
/* clang-format on */

/* Returns the factor that trajd_quaternion_make_unit multiplies by. */
TRAJD_INLINE double unit_factor(double square)
{
    double factor = 1 / sqrt(square);

    return square >= TRAJD_QUATERNION_MIN && square <= TRAJD_QUATERNION_MAX ? factor : NAN;
}

TRAJD_CLONES static void turn_lanes(struct lanes *restrict lanes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        double p0 = lanes->p[0][i], p1 = lanes->p[1][i], p2 = lanes->p[2][i], p3 = lanes->p[3][i];
        double q0 = lanes->q[0][i], q1 = lanes->q[1][i], q2 = lanes->q[2][i], q3 = lanes->q[3][i];
        double a = lanes->a[i];
        double square = p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3;
        double f = unit_factor(square), g = unit_factor(q0 * q0 + q1 * q1 + q2 * q2 + q3 * q3);
        double d0, d1, d2, d3, u, angle, weight_p, weight_q;

        g = p0 * q0 + p1 * q1 + p2 * q2 + p3 * q3 < 0 ? -g : g;
        p0 *= f, p1 *= f, p2 *= f, p3 *= f;
        q0 *= g, q1 *= g, q2 *= g, q3 *= g;
        d0 = p0 - q0, d1 = p1 - q1, d2 = p2 - q2, d3 = p3 - q3;
        u = (d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3) * 0.25;
        angle = angle_square(u);
        weight_p = (1 - a) * sine_ratio((1 - a) * (1 - a) * angle);
        weight_q = a * sine_ratio(a * a * angle);
        p0 = weight_p * p0 + weight_q * q0;
        p1 = weight_p * p1 + weight_q * q1;
        p2 = weight_p * p2 + weight_q * q2;
        p3 = weight_p * p3 + weight_q * q3;
        f = unit_factor(p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3);
        lanes->out[0][i] = p0 * f;
        lanes->out[1][i] = p1 * f;
        lanes->out[2][i] = p2 * f;
        lanes->out[3][i] = p3 * f;
        lanes->u[i] = u;
        lanes->square[i] = square;
    }
}

/* Computes slerp with libm, for angles beyond the range of the series. */
static void turn_far(struct lanes *lanes, uint32_t i)
{
    double p[4], q[4], out[4];

    for (int k = 0; k < 4; k++) {
        p[k] = lanes->p[k][i];
        q[k] = lanes->q[k][i];
    }
    trajd_quaternion_make_unit(p);
    trajd_quaternion_make_unit(q);
    trajd_quaternion_slerp(p, q, lanes->a[i], out);
    for (int k = 0; k < 4; k++)
        lanes->out[k][i] = out[k];
}

static void finish_lane(struct lanes *lanes, uint32_t i)
{
    bool unit = fabs(lanes->square[i] - 1) <= TRAJD_QUATERNION_UNIT_SLACK;

    if (lanes->a[i] > 0 && !(lanes->u[i] <= NEAR))
        turn_far(lanes, i);
    for (int k = 0; lanes->a[i] == 0 && unit && k < 4; k++)
        lanes->out[k][i] = lanes->p[k][i]; /* copy it as stored */
}

static void load4(enum trajd_dtype type, const char *from, double q[4])
{
    uint32_t size = trajd_dtype_size(type);

    for (uint32_t k = 0; k < 4; k++)
        q[k] = trajd_element_load(type, from + k * size);
}

static void fill_lane(const struct trajd_stream *stream, const struct trajd_cpu_move *move,
                      const char *from, struct lanes *lanes, uint32_t i)
{
    double p[4], q[4];

    load4(stream->source_type, from, p);
    load4(stream->source_type, move->a > 0 ? from + stream->row_stride_bytes : from, q);
    for (int k = 0; k < 4; k++) {
        lanes->p[k][i] = p[k];
        lanes->q[k][i] = q[k];
    }
    lanes->a[i] = move->a;
}

/* Processes the quaternion at feature d of every move. */
static void run_lanes(const struct trajd_stream *stream, struct trajd_cpu_move *moves,
                      uint32_t count, uint32_t d)
{
    static const double constants[TRAJD_EDGE_COUNT] = {0, 0, NAN};
    const double limit = trajd_finite_limit(stream->output_type);
    uint32_t source_size = trajd_dtype_size(stream->source_type),
             output_size = trajd_dtype_size(stream->output_type);
    struct lanes lanes = {0};

    for (uint32_t i = 0; i < count; i++)
        if (moves[i].row)
            fill_lane(stream, &moves[i], moves[i].row + (uint64_t)d * source_size, &lanes, i);
    turn_lanes(&lanes, count);
    for (uint32_t i = 0; i < count; i++) {
        bool finite = true;
        if (moves[i].row)
            finish_lane(&lanes, i);
        for (uint32_t k = 0; k < 4; k++) {
            double value = moves[i].row ? lanes.out[k][i] : constants[stream->edge];
            if (stream->scale)
                value = value * (double)stream->scale[d + k] + (double)stream->offset[d + k];
            finite &= fabs(value) < limit;
            trajd_element_store(stream->output_type, moves[i].out + (uint64_t)(d + k) * output_size,
                                value);
        }
        if (moves[i].row && !finite)
            trajd_cpu_mark_lost(&moves[i]);
    }
}

void trajd_cpu_slerp(const struct trajd_stream *stream, struct trajd_cpu_move *moves,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i += LANES)
        for (uint32_t d = 0; d < stream->feature_count; d += 4)
            run_lanes(stream, moves + i, count - i < LANES ? count - i : LANES, d);
}

/* Derives from the rows at p and after p, which are `ns` apart. */
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

void trajd_cpu_derivatives(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                           const char *rows, const struct trajd_cpu_step *steps, uint32_t count,
                           char *out)
{
    uint32_t features = stream->feature_count;
    uint64_t size =
        (trajd_kind_is_slerp(stream->kind) ? features / 4 * 3 : features) * sizeof(float);

    for (uint32_t t = 0; t < count; t++, out += stream->derivative_step_stride_bytes) {
        int64_t row = steps[t].row;
        uint64_t ns = steps[t].ns;

        if (rows && steps[t].mask == TRAJD_MASK_VALID && row == window->row_count - 1 && --row >= 0)
            ns = (uint64_t)trajd_cpu_stamp_of(window, row + 1) -
                 (uint64_t)trajd_cpu_stamp_of(window, row);
        if (rows && steps[t].mask == TRAJD_MASK_VALID && row >= 0 && ns > 0)
            derive(stream, rows + row * (int64_t)stream->row_stride_bytes, ns, (float *)out);
        else
            memset(out, 0, size);
    }
}
