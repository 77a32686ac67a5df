/* Streams of any kind and type, element by element or quaternion by quaternion, with their
 * derivatives.
 *
 * Numerics  T is float, or double if the source is f64 or an integer of 32 bits and more. Sums
 *           of a mean are double. Where float cannot tell two ways round apart, it gives NaN.
 *           What is not finite in float is formed again in double. */
#ifndef TRAJD_KERNELS_CUDA_FULL_CUH
#define TRAJD_KERNELS_CUDA_FULL_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/finite.h"

/* The same values as in kernels/quaternion.h. */
#define QUATERNION_SQUARE_MIN 1e-30
#define QUATERNION_SQUARE_MAX 1e30
#define QUATERNION_UNIT_SLACK 1e-5
#define QUATERNION_TIE 1e-12

/* A stream whose types are known at compile time. 0: not known. */
template <int SOURCE, int OUTPUT> struct typed_stream : trajd_cuda_stream {
};

__device__ __forceinline__ uint32_t source_type_of(const trajd_cuda_stream &stream)
{
    return stream.source_type;
}

__device__ __forceinline__ uint32_t output_type_of(const trajd_cuda_stream &stream)
{
    return stream.output_type;
}

template <int SOURCE, int OUTPUT>
__device__ __forceinline__ uint32_t source_type_of(const typed_stream<SOURCE, OUTPUT> &stream)
{
    return SOURCE ? (uint32_t)SOURCE : stream.source_type;
}

template <int SOURCE, int OUTPUT>
__device__ __forceinline__ uint32_t output_type_of(const typed_stream<SOURCE, OUTPUT> &stream)
{
    return OUTPUT ? (uint32_t)OUTPUT : stream.output_type;
}

__device__ __forceinline__ bool is_slerp(uint32_t kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

__device__ __forceinline__ bool picks_rows(const trajd_cuda_stream &stream)
{
    return stream.kind == TRAJD_KIND_PREVIOUS || stream.kind == TRAJD_KIND_NEAREST;
}

template <typename T> __device__ __forceinline__ T nan_of();
template <> __device__ __forceinline__ float nan_of<float>()
{
    return __int_as_float(0x7fc00000);
}
template <> __device__ __forceinline__ double nan_of<double>()
{
    return __longlong_as_double(0x7ff8000000000000);
}

/* Wraps the difference into [-period/2, period/2). */
template <typename T> __device__ __forceinline__ T wrapped(T difference, T period)
{
    return difference - period * floor((difference + period / 2) / period);
}

/* NaN in float near the ends of the range, where rounding could choose the other end. */
template <typename T> __device__ __forceinline__ T into_range(T value, T low, T period)
{
    const T result = value - period * floor((value - low) / period);
    const T slack = (T)4e-7 * (fabs(value) + period);

    if (sizeof(T) == 4 && !(result > low + slack && result < low + period - slack))
        return nan_of<T>();
    return result < low || result >= low + period ? low : result;
}

/* Returns the wrapped difference of two angles. NaN in float near half a turn, where rounding could
 * choose the other way round. */
template <typename T> __device__ __forceinline__ T angle_between(T from, T to, T period)
{
    const T difference = wrapped(to - from, period);
    const T slack = (T)4e-7 * (fabs(from) + fabs(to) + period);

    return sizeof(T) == 4 && fabs(difference) > period / 2 - slack ? nan_of<T>() : difference;
}

template <typename T, typename STREAM>
__device__ __forceinline__ T mean_value(const STREAM &stream, const char *row, int64_t count,
                                        uint64_t d)
{
    double sum = 0;
    int64_t used = 0;

    if (count < 1)
        return load_element<T>(source_type_of(stream), row, d);
    for (int64_t i = count - 1; i >= 0; i--) {
        T value =
            load_element<T>(source_type_of(stream), row - i * (int64_t)stream.row_stride_bytes, d);
        if (!isnan(value)) {
            sum += (double)value;
            used++;
        }
    }
    return used ? (T)(sum / (double)used) : nan_of<T>();
}

template <typename T, typename STREAM>
__device__ __forceinline__ T scalar_value(const STREAM &stream, const entry &entry,
                                          const full_entry &full, uint64_t d)
{
    T value = stream.kind == TRAJD_KIND_MEAN
                  ? mean_value<T>(stream, entry.row, full.mean_count, d)
                  : load_element<T>(source_type_of(stream), entry.row, d);

    if (full.blends) {
        T next = load_element<T>(source_type_of(stream), entry.row + stream.row_stride_bytes, d),
          a = (T)full.a;
        if (stream.kind == TRAJD_KIND_ANGLE)
            value += a * angle_between(value, next, (T)stream.angle_period);
        else
            value += a * (next - value);
    }
    if (stream.kind == TRAJD_KIND_ANGLE && !isnan(stream.angle_low))
        value = into_range(value, (T)stream.angle_low, (T)stream.angle_period);
    return value;
}

/* Returns 1 / sqrt(x) within two units of the last place, as the sine below. A quaternion's error
 * stays below 1e-6. */
__device__ __forceinline__ float reciprocal_root(float x)
{
    return rsqrtf(x);
}

__device__ __forceinline__ double reciprocal_root(double x)
{
    return 1 / sqrt(x);
}

/* Returns the sine of an angle in [0, pi / 2]. */
__device__ __forceinline__ float sine_of(float angle)
{
    return __sinf(angle);
}

__device__ __forceinline__ double sine_of(double angle)
{
    return sin(angle);
}

__device__ __forceinline__ float dot(const float (&p)[4], const float (&q)[4])
{
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2] + p[3] * q[3];
}

/* Rounds as the CPU, so that a square is on the same side of every bound. */
__device__ __forceinline__ double dot(const double (&p)[4], const double (&q)[4])
{
    double sum = __dmul_rn(p[0], q[0]);

#pragma unroll
    for (int k = 1; k < 4; k++)
        sum = __dadd_rn(sum, __dmul_rn(p[k], q[k]));
    return sum;
}

/* As trajd_quaternion_side. NaN in float where rounding could choose the side. */
__device__ __forceinline__ float side_of(float dot)
{
    return fabs(dot) < 1e-5f ? nan_of<float>() : dot < 0 ? -1.0f : 1.0f;
}

__device__ __forceinline__ double side_of(double dot)
{
    return dot < -QUATERNION_TIE ? -1 : 1;
}

/* NaN in float also near the bounds. */
template <typename T> __device__ __forceinline__ void make_unit(T (&q)[4])
{
    const T margin = sizeof(T) == 8 ? 1 : 10, square = dot(q, q);
    const T factor =
        square >= (T)QUATERNION_SQUARE_MIN * margin && square <= (T)QUATERNION_SQUARE_MAX / margin
            ? reciprocal_root(square)
            : nan_of<T>();

#pragma unroll
    for (int k = 0; k < 4; k++)
        q[k] *= factor;
}

template <typename T, typename STREAM>
__device__ __forceinline__ void load_quaternion(const STREAM &stream, const char *row, uint64_t d,
                                                T (&q)[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        q[k] = load_element<T>(source_type_of(stream), row, d + k);
}

/* Interpolates unit quaternions on the shorter arc. Below a small angle it uses the chord. The
 * result is scaled to unit length. */
template <typename T>
__device__ __forceinline__ void slerp(const T (&p)[4], const T (&q)[4], T a, T (&out)[4])
{
    /* the error of the weights is its square over 6 */
    const T parallel = sizeof(T) == 8 ? (T)1e-6 : (T)1e-3;
    T sign = side_of(dot(p, q)), sum = 0, difference = 0, weight_p = 1 - a, weight_q = a;

#pragma unroll
    for (int k = 0; k < 4; k++) {
        sum += (p[k] + sign * q[k]) * (p[k] + sign * q[k]);
        difference += (p[k] - sign * q[k]) * (p[k] - sign * q[k]);
    }
    T angle = 2 * atan2(sqrt(difference), sqrt(sum));
    T sine = sine_of(angle);
    if (sine > parallel) {
        weight_p = sine_of((1 - a) * angle) / sine;
        weight_q = sine_of(a * angle) / sine;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[k] = weight_p * p[k] + sign * weight_q * q[k];
    make_unit(out);
}

template <typename T, typename STREAM>
__device__ __forceinline__ void quaternion_value(const STREAM &stream, const entry &entry,
                                                 const full_entry &full, uint64_t d, T (&out)[4])
{
    T stored[4], p[4], q[4];

    load_quaternion(stream, entry.row, d, p);
#pragma unroll
    for (int k = 0; k < 4; k++)
        stored[k] = p[k];
    make_unit(p);
    if (full.blends) {
        load_quaternion(stream, entry.row + stream.row_stride_bytes, d, q);
        make_unit(q);
        slerp(p, q, (T)full.a, out);
    } else {
        /* formed as in the reference, because a difference in rounding could change the side of the
         * slack */
        const double wide[4] = {(double)stored[0], (double)stored[1], (double)stored[2],
                                (double)stored[3]};
        bool unit = fabs(dot(wide, wide) - 1) <= QUATERNION_UNIT_SLACK;
#pragma unroll
        for (int k = 0; k < 4; k++)
            out[k] = unit ? stored[k] : p[k];
    }
}

/* Computes the rotation vector of q p^-1 in the fixed frame, on the shorter way. p and q are unit
 * quaternions in xyzw. */
template <typename T>
__device__ __forceinline__ void turn(const T (&p)[4], const T (&q)[4], T (&out)[3])
{
    T scalar = q[3] * p[3] + p[0] * q[0] + p[1] * q[1] + p[2] * q[2];
    T x = p[3] * q[0] - q[3] * p[0] - (q[1] * p[2] - q[2] * p[1]);
    T y = p[3] * q[1] - q[3] * p[1] - (q[2] * p[0] - q[0] * p[2]);
    T z = p[3] * q[2] - q[3] * p[2] - (q[0] * p[1] - q[1] * p[0]);
    T sine = sqrt(x * x + y * y + z * z);
    T factor = sine > 0 ? 2 * atan2(sine, fabs(scalar)) / sine : (T)2;

    factor *= side_of(scalar);
    out[0] = factor * x;
    out[1] = factor * y;
    out[2] = factor * z;
}

template <typename T> __device__ __forceinline__ void to_xyzw(uint32_t kind, T (&q)[4])
{
    if (kind == TRAJD_KIND_SLERP_WXYZ) {
        T w = q[0];
        q[0] = q[1];
        q[1] = q[2];
        q[2] = q[3];
        q[3] = w;
    }
}

/* Returns whether a slope is not finite. */
template <typename T, typename STREAM>
__device__ __forceinline__ bool form_derivative(const STREAM &stream, const entry &entry,
                                                const full_entry &full, uint32_t unit, float *out)
{
    const char *row = entry.row - (full.interval_before ? stream.row_stride_bytes : 0);
    const char *next = row + stream.row_stride_bytes;
    bool slerps = is_slerp(stream.kind), finite = true;

    if (full.per_second == 0) {
        for (uint32_t k = 0; k < (slerps ? 3 : 1); k++)
            out[(uint64_t)unit * (slerps ? 3 : 1) + k] = 0;
    } else if (slerps) {
        T p[4], q[4], rates[3];
        load_quaternion(stream, row, (uint64_t)unit * 4, p);
        load_quaternion(stream, next, (uint64_t)unit * 4, q);
        make_unit(p);
        make_unit(q);
        to_xyzw(stream.kind, p);
        to_xyzw(stream.kind, q);
        turn(p, q, rates);
        for (int k = 0; k < 3; k++) {
            const float slope = (float)(rates[k] * (T)full.per_second);
            out[(uint64_t)unit * 3 + k] = slope;
            finite &= isfinite(slope);
        }
    } else {
        const T from = load_element<T>(source_type_of(stream), row, unit),
                to = load_element<T>(source_type_of(stream), next, unit);
        const T difference = stream.kind == TRAJD_KIND_ANGLE
                                 ? angle_between(from, to, (T)stream.angle_period)
                                 : to - from;
        out[unit] = (float)(difference * (T)full.per_second);
        finite = isfinite(out[unit]);
    }
    return !finite;
}

/* The same in double, for what float could not form. Rare, so it is a function of its own. */
template <typename STREAM>
__device__ __noinline__ void form_derivative_again(const STREAM &stream, entry entry,
                                                   full_entry full, uint32_t unit, float *out)
{
    form_derivative<double>(stream, entry, full, unit, out);
}

template <typename STREAM>
__device__ __forceinline__ void write_derivative(const STREAM &stream, const entry &entry,
                                                 const full_entry &full, uint32_t unit, float *out)
{
    if (is_wide(source_type_of(stream)))
        form_derivative<double>(stream, entry, full, unit, out);
    else if (form_derivative<float>(stream, entry, full, unit, out))
        form_derivative_again(stream, entry, full, unit, out);
}

/* Returns whether the element is not finite. */
template <typename T, typename STREAM>
__device__ __forceinline__ bool write_normalised(const STREAM &stream, char *output, uint64_t d,
                                                 T value)
{
    if (stream.scale)
        value = value * (T)stream.scale[d] + (T)stream.offset[d];
    store_element<T>(output_type_of(stream), output, d, value);
    return !(fabs(value) < (T)trajd_finite_limit(output_type_of(stream)));
}

/* Forms one unit (element or quaternion) of one target. Returns whether a result of rows is not
 * finite. */
template <typename T, typename STREAM>
__device__ __forceinline__ bool form_unit(const STREAM &stream, const entry &entry,
                                          const full_entry &full, uint32_t unit, char *output)
{
    bool lost = false;

    if (is_slerp(stream.kind)) {
        T q[4] = {0, 0, 0, 0};
        if (entry.row)
            quaternion_value<T>(stream, entry, full, (uint64_t)unit * 4, q);
        else if (stream.edge == TRAJD_EDGE_NAN)
            q[0] = q[1] = q[2] = q[3] = nan_of<T>();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lost |= write_normalised<T>(stream, output, (uint64_t)unit * 4 + k, q[k]);
    } else {
        T value = stream.edge == TRAJD_EDGE_NAN ? nan_of<T>() : (T)0;
        if (entry.row)
            value = scalar_value<T>(stream, entry, full, unit);
        lost = write_normalised<T>(stream, output, unit, value);
    }
    return lost && entry.row;
}

/* The same in double, for what float could not form. Rare, so it is a function of its own. */
template <typename STREAM>
__device__ __noinline__ bool form_unit_again(const STREAM &stream, entry entry, full_entry full,
                                             uint32_t unit, char *output)
{
    return form_unit<double>(stream, entry, full, unit, output);
}

template <typename STREAM>
__device__ __forceinline__ bool write_unit(const STREAM &stream, const entry &entry,
                                           const full_entry &full, uint32_t unit, char *output)
{
    if (is_wide(source_type_of(stream)))
        return form_unit<double>(stream, entry, full, unit, output);
    return form_unit<float>(stream, entry, full, unit, output) &&
           form_unit_again(stream, entry, full, unit, output);
}

/* Copies bytes, for previous and nearest into the stream's own type. */
template <typename STREAM>
__device__ __forceinline__ bool copy_unit(const STREAM &stream, const entry &entry,
                                          uint32_t size_bytes, uint32_t unit, char *output)
{
    const uint64_t zero = 0;

    copy_element(size_bytes,
                 entry.row ? entry.row + (uint64_t)unit * size_bytes : (const char *)&zero,
                 output + (uint64_t)unit * size_bytes, 0);
    if (!entry.row && stream.edge == TRAJD_EDGE_NAN)
        store_element<double>(output_type_of(stream), output, unit, nan_of<double>());
    return entry.row && source_type_of(stream) <= TRAJD_F64 &&
           !isfinite(load_element<double>(source_type_of(stream), entry.row, unit));
}

__device__ __forceinline__ uint32_t element_size(uint32_t type)
{
    switch (type) {
    case TRAJD_F64:
    case TRAJD_I64:
    case TRAJD_U64:
        return 8;
    case TRAJD_F32:
    case TRAJD_I32:
    case TRAJD_U32:
        return 4;
    case TRAJD_F16:
    case TRAJD_BF16:
    case TRAJD_I16:
    case TRAJD_U16:
        return 2;
    default:
        return 1;
    }
}

static __device__ __forceinline__ void write_full(const team &team, const trajd_cuda_stream &stream,
                                                  const entry *entries, const full_entry *fulls,
                                                  uint32_t step_count, char *output,
                                                  float *derivative, uint32_t *mask)
{
    bool copies = picks_rows(stream) && !stream.scale && stream.source_type == stream.output_type;
    const lane_place lane = place_lane(team, stream.vector_count);

#pragma unroll 1
    for (uint32_t unit = lane.vector; unit < stream.vector_count; unit += lane.vector_step)
#pragma unroll 1
        for (uint32_t t = lane.slot; t < step_count; t += lane.slots) {
            const entry entry = entries[t];
            const full_entry full = fulls[t];
            char *out = output + t * stream.step_stride_bytes;
            bool lost = copies
                            ? copy_unit(stream, entry, element_size(stream.source_type), unit, out)
                            : write_unit(stream, entry, full, unit, out);

            if (lost && mask)
                atomicMax(mask + t, (uint32_t)TRAJD_MASK_NAN);
            if (derivative) {
                float *slopes =
                    (float *)((char *)derivative + t * stream.derivative_step_stride_bytes);
                write_derivative(stream, entry, full, unit, slopes);
            }
        }
}

typedef tile_output<uint64_t, joined_mask> full_output;

template <typename S, typename O>
__device__ __forceinline__ void write_width(const team &team, const trajd_cuda_stream &stream,
                                            const entry *entries, uint32_t step_count, bool aligned,
                                            const full_output &out)
{
    if (stream.vector_width == 4 && aligned)
        write_values<S, O, 4, true>(team, stream, stream.vector_count, entries, step_count, out);
    else
        write_values<S, O, 1, true>(team, stream, stream.feature_count, entries, step_count, out);
}

/* Writes one stream's part of a tile, for any path. Only two vector widths per path, which keeps
 * the kernel small. */
__device__ __forceinline__ void write_stream(const team &team, const trajd_cuda_stream &stream,
                                             const entry *entries, const full_entry *fulls,
                                             uint32_t step_count, bool aligned,
                                             const full_output &out, float *derivative)
{
    switch (stream.path) {
    case TRAJD_CUDA_BF16:
        write_width<__nv_bfloat16, __nv_bfloat16>(team, stream, entries, step_count, aligned, out);
        break;
    case TRAJD_CUDA_F32:
        write_width<float, float>(team, stream, entries, step_count, aligned, out);
        break;
    case TRAJD_CUDA_F16:
        write_width<__half, __half>(team, stream, entries, step_count, aligned, out);
        break;
    case TRAJD_CUDA_F32_BF16:
        write_width<float, __nv_bfloat16>(team, stream, entries, step_count, aligned, out);
        break;
    case TRAJD_CUDA_BF16_F32:
        write_width<__nv_bfloat16, float>(team, stream, entries, step_count, aligned, out);
        break;
    case TRAJD_CUDA_COPY:
        if (stream.vector_width == 16 && aligned)
            copy_values<16>(team, stream.vector_count, entries, step_count, out);
        else
            copy_values<1>(team, stream.vector_count * stream.vector_width, entries, step_count,
                           out);
        break;
    default:
        write_full(team, stream, entries, fulls, step_count, out.first, derivative, out.mask.steps);
    }
}

#endif
