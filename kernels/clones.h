/* Functions that are compiled several times: for every processor, for AVX2 and for AVX-512. Inline functions also
 * compile as CUDA code, for host and device. */
#ifndef TRAJD_KERNELS_CLONES_H
#define TRAJD_KERNELS_CLONES_H

/* Compiles a hot function also for AVX2. The loader picks one at program start, before sanitizers
 * are ready, so there are no clones with a sanitizer. Only fused multiply-add would change results:
 * AVX2 does not have it, and -ffp-contract=off forbids it where there are clones for AVX-512.
 * Functions called by a clone are inlined, so that they are compiled for all of them.
 * TRAJD_WIDE_CLONES: also for AVX-512, for arithmetic in double that takes longer than its loads.
 * TRAJD_CLANG_CLONES: this Clang has no sanitizer, and a library that knows the processor. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) &&      \
    (!defined(__clang__) || defined(TRAJD_CLANG_CLONES))
#define TRAJD_HAS_CLONES
#define TRAJD_CLONES __attribute__((target_clones("avx2", "default")))
#define TRAJD_WIDE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRAJD_CLONES
#define TRAJD_WIDE_CLONES
#endif
#ifdef __CUDACC__
#define TRAJD_INLINE static __host__ __device__ __forceinline__
#else
#define TRAJD_INLINE static inline __attribute__((always_inline))
#endif

#endif
