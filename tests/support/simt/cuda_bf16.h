/* What the kernels need of CUDA's header, for the CPU. */
#ifndef TRAJD_TESTS_CUDA_BF16_H
#define TRAJD_TESTS_CUDA_BF16_H

#include "kernels/element_convert.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return {trajd_bf16_from_double((double)value)};
}

#endif
