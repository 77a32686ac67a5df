/* Instructions of the image kernels that C++ has no words for. tests/support/simt has the same
 * functions for the CPU. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_INSTRUCTIONS_CUH
#define TRAJD_KERNELS_IMAGE_CUDA_INSTRUCTIONS_CUH

#include <stdint.h>

#include <cuda_fp16.h>

/* ---- bulk copies, and the barriers in shared memory that they complete on ---- */

__device__ __forceinline__ uint32_t shared_address(const void *address)
{
    return (uint32_t)__cvta_generic_to_shared(address);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory");
}

/* Arrives at the barrier and keeps its phase open until `bytes` more bytes have arrived. */
__device__ __forceinline__ void barrier_arrive_expecting(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase with this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], %1;\n"
                 "@over bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Loads bytes into shared memory. Addresses and size must be multiples of 16. */
__device__ __forceinline__ void bulk_load(void *shared, const void *global, uint32_t bytes,
                                          uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

/* Stands between what a warp wrote to shared memory and bulk copies of it. */
__device__ __forceinline__ void bulk_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- threads and blocks ---- */

/* Waits until `threads` threads of the block have come to a barrier, 1 to 15. */
__device__ __forceinline__ void wait_for_threads(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Tells the other blocks of the cluster that this one has begun and that its barriers are ready. Each
 * thread calls it once, and cluster_wait once. */
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed;" ::
                     : "memory");
}

/* Waits until all threads of the cluster have arrived. */
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* Sends a number to a block of the cluster: to where `place` lies there. It arrives at that block's
 * barrier as 4 bytes. */
__device__ __forceinline__ void send_to_block(float value, float *place, uint64_t *barrier,
                                              uint32_t block)
{
    asm volatile("{\n"
                 ".reg .b32 there, its_barrier;\n"
                 "mapa.shared::cluster.u32 there, %0, %3;\n"
                 "mapa.shared::cluster.u32 its_barrier, %1, %3;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %2, "
                 "[its_barrier];\n"
                 "}" ::"r"(shared_address(place)),
                 "r"(shared_address(barrier)), "f"(value), "r"(block)
                 : "memory");
}

/* Loads matrices of 8 rows of 16 bytes from shared memory. Lane i has the address of row i % 8 of
 * matrix i / 8, and gets the word i % 4 of row i / 4 of each. */
__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], const void *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared_address(from))
                 : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&a)[2], const void *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(a[0]), "=r"(a[1])
                 : "r"(shared_address(from))
                 : "memory");
}

/* d[16][8] += a[16][16] * b[16][8]. With g = lane / 4 and t = lane % 4: a has the pairs of columns at
 * (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); b the pairs of rows at (2t, g), (2t + 8, g); d
 * (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). */
__device__ __forceinline__ void multiply(float (&d)[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* d[16][8] += a[16][8] * b[8][8]: the left half of a, the upper half of b. */
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

/* Marks a branch, so that the compiler does not merge it with branches that look alike. */
template <int BRANCH> __device__ __forceinline__ void keep_apart()
{
    asm volatile("// branch %0" ::"n"(BRANCH));
}

/* 1 / x within 1 unit in the last place, by one instruction. */
__device__ __forceinline__ float reciprocal(float x)
{
    float result;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* Returns a where the condition holds, else b, without a branch. */
__device__ __forceinline__ float choose(bool condition, float a, float b)
{
    float result;

    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
        : "=f"(result)
        : "f"(a), "f"(b), "r"((uint32_t)condition));
    return result;
}

/* Keeps a value in a register. The compiler would load it from the parameters at each use. */
__device__ __forceinline__ void keep(float &value)
{
    asm volatile("" : "+f"(value));
}

#endif
