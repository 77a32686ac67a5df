/* From levels to elements of a tensor, and their stores. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_OUT_CUH
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_OUT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/image/cuda/image_program.h"
#include "kernels/image/cuda/instructions.cuh"

/* Numbers of 2^23 and above have no fraction: adding it rounds to a whole number, and a byte in its
 * lowest bits is 2^23 + byte. */
#define TWO_23 8388608.0F

/* Returns 2^23 + byte `Byte` of the word, without a conversion. */
template <int BYTE> __device__ __forceinline__ float lift(uint32_t word)
{
    return __uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 + BYTE));
}

/* (lifted - 2^23) * scale, rounded once: the product is exact inside the fused multiply-add, and
 * `down` is -2^23 * scale, exact too. */
__device__ __forceinline__ float scaled(float lifted, float scale, float down)
{
    return fmaf(lifted, scale, down);
}

template <typename T> __device__ __forceinline__ T element(float value);
template <> __device__ __forceinline__ float element<float>(float value)
{
    return value;
}
template <> __device__ __forceinline__ __nv_bfloat16 element<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}
template <> __device__ __forceinline__ __half element<__half>(float value)
{
    return __float2half_rn(value);
}

/* What makes elements of the lifted levels of a channel. */
struct out_channel {
    float scale, down, offset;
};

template <typename T> __device__ __forceinline__ T made(const out_channel &c, float lifted)
{
    return element<T>(__fadd_rn(scaled(lifted, c.scale, c.down), c.offset));
}
template <> __device__ __forceinline__ uint8_t made<uint8_t>(const out_channel &, float lifted)
{
    return (uint8_t)__float_as_uint(lifted);
}

/* A tensor, as a thread writes it. Indices of elements fit into 32 bits. */
template <typename T> struct out_tensor {
    out_channel channels[3];
    T *elements;
    uint32_t plane, width; /* elements of a plane; pixels of a row */
    bool is_whole;         /* all groups of N pixels can be stored at once */
};

template <typename T, int N>
__device__ __forceinline__ out_tensor<T> open_tensor(const struct trajd_image_program &p,
                                                     void *output)
{
    out_tensor<T> t = {{},
                       (T *)output,
                       p.height * p.width,
                       p.width,
                       p.width % N == 0 && (uintptr_t)output % (N * sizeof(T)) == 0};

#pragma unroll
    for (int c = 0; c < 3; c++)
        t.channels[c] = {p.scale[c], -TWO_23 * p.scale[c], p.offset[c]};
    return t;
}

template <typename T> __device__ __forceinline__ void keep_channels(out_tensor<T> &t)
{
#pragma unroll
    for (int c = 0; c < 3; c++) {
        keep(t.channels[c].scale);
        keep(t.channels[c].down);
        keep(t.channels[c].offset);
    }
}

/* Elements side by side, moved by one store. */
template <typename T, int COUNT> struct alignas(sizeof(T) * COUNT) bunch {
    T v[COUNT];
};

/* Stores N pixels side by side: of lifted levels [pixel][channel]. Where the tensor is not whole, only
 * those inside a row. */
template <typename T, bool CHW, int N>
__device__ __forceinline__ void store_pixels(const out_tensor<T> &t, uint32_t y, uint32_t x,
                                             const float (&lifted)[N][3])
{
    const uint32_t pixel = y * t.width + x;

    if (t.is_whole && CHW) {
#pragma unroll
        for (int c = 0; c < 3; c++) {
            bunch<T, N> all;
#pragma unroll
            for (int i = 0; i < N; i++)
                all.v[i] = made<T>(t.channels[c], lifted[i][c]);
            *(bunch<T, N> *)(t.elements + (c * t.plane + pixel)) = all;
        }
        return;
    }
    if (t.is_whole) {
        bunch<T, N> all[3];
#pragma unroll
        for (int i = 0; i < 3 * N; i++)
            all[i / N].v[i % N] = made<T>(t.channels[i % 3], lifted[i / 3][i % 3]);
#pragma unroll
        for (int i = 0; i < 3; i++)
            ((bunch<T, N> *)(t.elements + pixel * 3))[i] = all[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int c = 0; c < 3; c++)
            if (x + i < t.width)
                t.elements[CHW ? c * t.plane + pixel + i : (pixel + i) * 3 + c] =
                    made<T>(t.channels[c], lifted[i][c]);
}

/* Returns the kernel that `choose` returns for an element of the type of a program's tensors. */
template <typename Choose>
static auto kernel_for(const struct trajd_image_program *program, const Choose &choose)
{
    switch (program->type) {
    case TRAJD_U8:
        return choose(uint8_t());
    case TRAJD_F16:
        return choose(__half());
    case TRAJD_BF16:
        return choose(__nv_bfloat16());
    default:
        return choose(float());
    }
}

#endif
