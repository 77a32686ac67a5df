/* Elements and vectors of elements: loads, stores, and one rounding to nearest even. */
#ifndef TRAJD_KERNELS_CUDA_ELEMENT_CUH
#define TRAJD_KERNELS_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/problem.h"

/* The integer type that moves BYTES bytes at once. */
template <int BYTES> struct raw_of;
template <> struct raw_of<1> {
    typedef unsigned char type;
};
template <> struct raw_of<2> {
    typedef unsigned short type;
};
template <> struct raw_of<4> {
    typedef unsigned int type;
};
template <> struct raw_of<8> {
    typedef uint2 type;
};
template <> struct raw_of<16> {
    typedef uint4 type;
};

/* V elements as they are in memory. */
template <typename E, int V> union vector_of {
    typename raw_of<sizeof(E) * V>::type raw;
    E elements[V];
    __device__ __forceinline__ vector_of()
    {
    }
};

template <typename E, int V>
__device__ __forceinline__ vector_of<E, V> load_vector(const char *address)
{
    vector_of<E, V> loaded;

    loaded.raw = __ldg((const typename raw_of<sizeof(E) * V>::type *)address);
    return loaded;
}

/* Loads V elements. Rows may be in shared or global memory. */
template <typename E, int V>
__device__ __forceinline__ vector_of<E, V> load_any(const char *address)
{
    vector_of<E, V> loaded;

    loaded.raw = *(const typename raw_of<sizeof(E) * V>::type *)address;
    return loaded;
}

template <typename E, int V>
__device__ __forceinline__ void store_vector(char *address, const vector_of<E, V> &vector)
{
    *(typename raw_of<sizeof(E) * V>::type *)address = vector.raw;
}

/* Stores to an output that is larger than the L2 cache. These lines are evicted first. */
template <typename E, int V>
__device__ __forceinline__ void store_streaming(char *address, const vector_of<E, V> &vector)
{
    __stcs((typename raw_of<sizeof(E) * V>::type *)address, vector.raw);
}

__device__ __forceinline__ float as_float(float value)
{
    return value;
}

__device__ __forceinline__ float as_float(__half value)
{
    return __half2float(value);
}

__device__ __forceinline__ float as_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

__device__ __forceinline__ void round_to(float value, float &out)
{
    out = value;
}

__device__ __forceinline__ void round_to(float value, __half &out)
{
    out = __float2half_rn(value);
}

__device__ __forceinline__ void round_to(float value, __nv_bfloat16 &out)
{
    out = __float2bfloat16_rn(value);
}

__device__ __forceinline__ void round_to(double value, float &out)
{
    out = (float)value;
}

__device__ __forceinline__ void round_to(double value, __half &out)
{
    out = __double2half(value);
}

__device__ __forceinline__ void round_to(double value, __nv_bfloat16 &out)
{
    out = __double2bfloat16(value);
}

/* Rounds two values with one instruction. An instruction for one value would use the slow unit. */
__device__ __forceinline__ void round_pair(float first, float second, float *out)
{
    out[0] = first;
    out[1] = second;
}

__device__ __forceinline__ void round_pair(float first, float second, __half *out)
{
    *(__half2 *)out = __floats2half2_rn(first, second);
}

__device__ __forceinline__ void round_pair(float first, float second, __nv_bfloat16 *out)
{
    *(__nv_bfloat162 *)out = __floats2bfloat162_rn(first, second);
}

template <typename O, int V>
__device__ __forceinline__ vector_of<O, V> pack_vector(const float (&values)[V])
{
    vector_of<O, V> packed;

#pragma unroll
    for (int v = 0; v + 1 < V; v += 2)
        round_pair(values[v], values[v + 1], packed.elements + v);
    if (V == 1)
        round_to(values[0], packed.elements[0]);
    return packed;
}

/* Converts to float within one unit of the last place, on the fast units. A conversion from 64 bits
 * takes as long as eight other instructions. */
__device__ __forceinline__ float float_of(uint64_t value)
{
    return fmaf((float)(uint32_t)(value >> 32), 4294967296.0f, (float)(uint32_t)value);
}

/* Loads one element of any type as T (float or double). Exact, except for 64-bit integers beyond
 * 2^53. */
template <typename T>
__device__ __forceinline__ T load_element(uint32_t type, const char *row, uint64_t d)
{
    switch (type) {
    case TRAJD_F16:
        return (T)__half2float(((const __half *)row)[d]);
    case TRAJD_BF16:
        return (T)__bfloat162float(((const __nv_bfloat16 *)row)[d]);
    case TRAJD_F32:
        return (T)((const float *)row)[d];
    case TRAJD_F64:
        return (T)((const double *)row)[d];
    case TRAJD_I8:
        return (T)((const int8_t *)row)[d];
    case TRAJD_I16:
        return (T)((const int16_t *)row)[d];
    case TRAJD_I32:
        return (T)((const int32_t *)row)[d];
    case TRAJD_I64:
        return (T)((const int64_t *)row)[d];
    case TRAJD_U16:
        return (T)((const uint16_t *)row)[d];
    case TRAJD_U32:
        return (T)((const uint32_t *)row)[d];
    case TRAJD_U64:
        return (T)((const uint64_t *)row)[d];
    default:
        return (T)((const uint8_t *)row)[d];
    }
}

template <typename T>
__device__ __forceinline__ void store_element(uint32_t type, char *row, uint64_t d, T value)
{
    switch (type) {
    case TRAJD_F64:
        ((double *)row)[d] = (double)value;
        break;
    case TRAJD_F32:
        ((float *)row)[d] = (float)value;
        break;
    case TRAJD_F16:
        ((__half *)row)[d] =
            sizeof(T) == 8 ? __double2half((double)value) : __float2half_rn((float)value);
        break;
    default:
        ((__nv_bfloat16 *)row)[d] =
            sizeof(T) == 8 ? __double2bfloat16((double)value) : __float2bfloat16_rn((float)value);
    }
}

/* Copies the bytes of one element without interpreting them. */
__device__ __forceinline__ void copy_element(uint32_t size_bytes, const char *from, char *to,
                                             uint64_t d)
{
    switch (size_bytes) {
    case 8:
        ((uint64_t *)to)[d] = ((const uint64_t *)from)[d];
        break;
    case 4:
        ((uint32_t *)to)[d] = ((const uint32_t *)from)[d];
        break;
    case 2:
        ((uint16_t *)to)[d] = ((const uint16_t *)from)[d];
        break;
    default:
        ((uint8_t *)to)[d] = ((const uint8_t *)from)[d];
    }
}

#endif
