/* What the kernels need of CUDA's header, for the CPU. */
#ifndef TRAJD_TESTS_CUDA_FP16_H
#define TRAJD_TESTS_CUDA_FP16_H

#include "kernels/element_convert.h"

struct __half {
    uint16_t bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

static inline __half __float2half_rn(float value)
{
    return {trajd_f16_from_double((double)value)};
}

static inline __half2 __floats2half2_rn(float low, float high)
{
    return {__float2half_rn(low), __float2half_rn(high)};
}

static inline float __half2float(__half value)
{
    return (float)trajd_f16_to_double(value.bits);
}

#endif
