/* Takes pixels of three channels apart into planes of float32, and puts them together. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_PLANES_H
#define TRAJD_KERNELS_IMAGE_IMAGE_PLANES_H

#include <stdint.h>

/* Vectors of 8, which the compiler makes of what the processor has. */
typedef int32_t trajd_words __attribute__((vector_size(32), may_alias));
typedef float trajd_floats __attribute__((vector_size(32), may_alias));

/* Chooses elements of a vector of a type. Clang has no __builtin_shuffle, and GCC has
 * __builtin_shufflevector from version 12 on. */
#ifdef __clang__
#define TRAJD_CHOOSE(type, v, ...) __builtin_shufflevector((type)(v), (type)(v), __VA_ARGS__)
#else
#define TRAJD_CHOOSE(type, v, ...) __builtin_shuffle((type)(v), (type){__VA_ARGS__})
#endif

/* a, b, c = channel * scale + offset of `count` pixels. A product and a sum, each rounded. */
void trajd_image_take_apart(float *restrict a, float *restrict b, float *restrict c,
                            const uint8_t *restrict pixels, uint32_t count, const float *scale,
                            const float *offset);

/* pixels = a, b, c, rounded to the nearest. The values are 0 to 255. */
void trajd_image_put_together(uint8_t *restrict pixels, const float *restrict a,
                              const float *restrict b, const float *restrict c, uint32_t count);

#endif
