#include "kernels/image/image_sums_avx2.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define LANES 16 /* of int16 in a vector */

AVX2 static inline __m256i load(const int16_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

AVX2 static inline void store(int16_t *to, __m256i values)
{
    _mm256_storeu_si256((__m256i *)to, values);
}

/* Returns sum + values * weight. */
AVX2 static inline __m256i add_product(__m256i sum, const int16_t *values, int16_t weight)
{
    return _mm256_add_epi16(sum, _mm256_mulhrs_epi16(load(values), _mm256_set1_epi16(weight)));
}

AVX2 static void sum_16(int16_t *restrict out, const int16_t *const *rows, const int16_t *weights,
                        uint32_t taps, uint32_t at)
{
    __m256i sum = _mm256_setzero_si256();

    for (uint32_t k = 0; k < taps; k++)
        sum = add_product(sum, rows[k] + at, weights[k]);
    store(out + at, sum);
}

/* The last 16 elements are summed once more where `count` is no multiple of 16. */
AVX2 static uint32_t sum_rows(int16_t *restrict out, const int16_t *const *rows,
                              const int16_t *weights, uint32_t taps, uint32_t count)
{
    uint32_t i = 0;

    if (count < LANES)
        return 0;
    for (; count - i >= 2 * LANES; i += 2 * LANES) {
        __m256i low = _mm256_setzero_si256(), high = low;
        for (uint32_t k = 0; k < taps; k++) {
            low = add_product(low, rows[k] + i, weights[k]);
            high = add_product(high, rows[k] + i + LANES, weights[k]);
        }
        store(out + i, low);
        store(out + i + LANES, high);
    }
    if (count - i >= LANES)
        sum_16(out, rows, weights, taps, i);
    if (count % LANES)
        sum_16(out, rows, weights, taps, count - LANES);
    return count;
}

AVX2 static void sum_columns(int16_t *restrict out, const int16_t *restrict in,
                             const struct trajd_image_axis *x, uint32_t channels)
{
    const size_t step = (size_t)channels * TRAJD_IMAGE_ROWS;
    const struct trajd_image_taps taps = x->taps; /* a copy: the stores do not change it */
    const int16_t *weights = x->weights;

    for (uint32_t c = 0; c < taps.count; c++, weights += taps.stride) {
        const uint32_t length = taps.lengths[c];
        for (uint32_t d = 0; d < channels; d++) {
            const int16_t *from = in + taps.starts[c] * step + d * TRAJD_IMAGE_ROWS;
            __m256i sum = _mm256_setzero_si256();
            for (uint32_t k = 0; k < length; k++)
                sum = add_product(sum, from + k * step, weights[k]);
            store(out + c * step + d * TRAJD_IMAGE_ROWS, sum);
        }
    }
}

uint32_t trajd_image_sum_rows_avx2(int16_t *restrict out, const int16_t *const *rows,
                                   const int16_t *weights, uint32_t taps, uint32_t count)
{
    return __builtin_cpu_supports("avx2") ? sum_rows(out, rows, weights, taps, count) : 0;
}

bool trajd_image_sum_columns_avx2(int16_t *restrict out, const int16_t *restrict in,
                                  const struct trajd_image_axis *x, uint32_t channels)
{
    if (!__builtin_cpu_supports("avx2"))
        return false;
    sum_columns(out, in, x, channels);
    return true;
}
#else
uint32_t trajd_image_sum_rows_avx2(int16_t *restrict out, const int16_t *const *rows,
                                   const int16_t *weights, uint32_t taps, uint32_t count)
{
    (void)out, (void)rows, (void)weights, (void)taps, (void)count;
    return 0;
}

bool trajd_image_sum_columns_avx2(int16_t *restrict out, const int16_t *restrict in,
                                  const struct trajd_image_axis *x, uint32_t channels)
{
    (void)out, (void)in, (void)x, (void)channels;
    return false;
}
#endif
