/* Functions that are compiled twice: for every processor, and for AVX2. Inline functions also
 * compile as CUDA code, for host and device. */
#ifndef TRAJD_KERNELS_CLONES_H
#define TRAJD_KERNELS_CLONES_H

/* Compiles a hot function also for AVX2. The loader picks one at program start, before sanitizers
 * are ready, so there are no clones with a sanitizer. Only -mfma would change results, and it is
 * not enabled. Functions called by a clone are inlined, so that they are compiled for both.
 * TRAJD_CLANG_CLONES: this Clang has no sanitizer, and a library that knows the processor. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) &&      \
    (!defined(__clang__) || defined(TRAJD_CLANG_CLONES))
#define TRAJD_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TRAJD_CLONES
#endif
#ifdef __CUDACC__
#define TRAJD_INLINE static __host__ __device__ __forceinline__
#else
#define TRAJD_INLINE static inline __attribute__((always_inline))
#endif

#endif
