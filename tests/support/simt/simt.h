/* Runs CUDA kernels on the CPU, for tests without a GPU.
 *
 * A test includes this file and then the .cu file of a kernel, so the kernel's own source runs. All
 * threads of a block, or of a cluster of blocks, run in turns: one goes on until it waits for others,
 * at a barrier or in an instruction of a whole warp. So a test sees wrong indices, missed elements,
 * hangs and lanes that do not come to an instruction of their warp. It does not see races.
 *
 * Bulk loads poison what they will write, and end later than they begin. What they read must be in
 * memory that the test has declared: simt_memory.h. */
#ifndef TRAJD_TESTS_SIMT_H
#define TRAJD_TESTS_SIMT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <functional>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline)) /* files may use the same names */
#define __grid_constant__
#define __align__(bytes)
#define __launch_bounds__(...)
#define __CUDA_ARCH__ 900

struct dim3 {
    uint32_t x, y, z;

    dim3(uint32_t columns = 1, uint32_t rows = 1, uint32_t layers = 1)
        : x(columns), y(rows), z(layers)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* The dynamic shared memory of the block that runs. */
extern char memory[];

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

using std::max;
using std::min;

namespace simt
{

enum { WARP = 32, SHARED_BYTES = 227 * 1024 };

/* Runs a kernel: all blocks, clusters of `cluster` blocks together. Aborts with a line where it hangs
 * or goes beyond its memory. */
void run(dim3 grid, uint32_t cluster, uint32_t threads, uint32_t shared_bytes,
         const std::function<void()> &kernel);

/* Lets the other threads run. */
void yield();
/* Waits for all lanes of the warp. The last one calls `together` with what each of them brought. */
void with_warp(void *mine, void (*together)(void *const *all));
/* Waits until `count` threads of the block have come to a barrier. */
void wait_at(uint32_t barrier, uint32_t count);
void wait_for_cluster();
/* Returns where an address in shared memory is in another block of the cluster. */
void *in_block(void *address, uint32_t block);

} // namespace simt

/* instructions.cuh */
#define TRAJD_KERNELS_IMAGE_CUDA_INSTRUCTIONS_CUH

void barrier_init(uint64_t *barrier, uint32_t arrivals);
void barrier_arrive(uint64_t *barrier);
void barrier_arrive_expecting(uint64_t *barrier, uint32_t bytes);
void barrier_wait(uint64_t *barrier, uint32_t parity);
void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier);

static inline void bulk_fence()
{
}

static inline void wait_for_threads(uint32_t barrier, uint32_t threads)
{
    simt::wait_at(barrier, threads);
}

static inline void cluster_arrive()
{
}

static inline void cluster_wait()
{
    simt::wait_for_cluster();
}

void send_to_block(float value, float *place, uint64_t *barrier, uint32_t block);
void load_matrices(uint32_t (&a)[4], const void *from);
void load_matrices(uint32_t (&a)[2], const void *from);
void multiply(float (&d)[4], const uint4 &a, uint32_t b0, uint32_t b1);
void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b);

template <int BRANCH> void keep_apart()
{
}

static inline float reciprocal(float x)
{
    return 1 / x;
}

static inline float choose(bool condition, float a, float b)
{
    return condition ? a : b;
}

static inline void keep(float &)
{
}

/* CUDA's own */
static inline void __syncthreads()
{
    simt::wait_at(0, blockDim.x);
}

static inline void __syncwarp()
{
    simt::with_warp(nullptr, nullptr);
}

float __shfl_xor_sync(uint32_t mask, float value, int lanes);
unsigned long long __shfl_xor_sync(uint32_t mask, unsigned long long value, int lanes);

/* Of the lane itself: the kernels use it to keep a value in a register. */
template <typename V> V __shfl_sync(uint32_t, V value, uint32_t lane)
{
    if (lane != threadIdx.x % 32)
        abort();
    return value;
}

static inline void atomicAdd(unsigned long long *sum, unsigned long long value)
{
    *sum += value;
}

static inline float __uint_as_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Nibbles of the selector choose bytes 0 to 3 of x, 4 to 7 of y. */
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t result = 0;

    for (int i = 0; i < 4; i++)
        result |= (uint32_t)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return result;
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t bits)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (bits & 31));
}

/* Adds the products of four pairs of bytes. */
static inline uint32_t __dp4a(uint32_t x, uint32_t y, uint32_t sum)
{
    for (int i = 0; i < 4; i++)
        sum += (x >> 8 * i & 255) * (y >> 8 * i & 255);
    return sum;
}

static inline uint32_t __umulhi(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}

static inline float __saturatef(float value)
{
    return value > 0 ? value < 1 ? value : 1 : 0;
}

static inline float __fadd_rn(float x, float y)
{
    return x + y;
}

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaLaunchAttributeClusterDimension, cudaFuncAttributeMaxDynamicSharedMemorySize };

struct cudaLaunchAttribute {
    int id;
    struct {
        dim3 clusterDim;
    } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    uint32_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    uint32_t numAttrs;
};

template <typename K> static inline cudaError_t cudaFuncSetAttribute(K *, int, int)
{
    return 0;
}

template <typename... P>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                             const P &...problem)
{
    simt::run(config->gridDim, config->numAttrs ? config->attrs->val.clusterDim.x : 1,
              config->blockDim.x, config->dynamicSmemBytes, [&] { kernel(problem...); });
    return 0;
}

static inline int cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t)
{
    memset(memory, value, bytes);
    return 0;
}

#endif
