/* The arithmetic of resizing u8 frames: 16 bits.
 *
 * **Math.** A value v in 0..255 is v * 2^7 as int16, a weight w is w * 2^15. Their product is
 * (((v * w) >> 14) + 1) >> 1, rounded: one instruction for 16 values with AVX2, for which
 * the sums are written by hand, because only GCC finds it in plain C. Filters with
 * negative weights have v * 2^6 and w * 2^14, which leaves room for sums outside 0..255.
 *
 * **Order.** Along y first, because rows are long: a row of the result is a weighted sum of whole
 * source rows. 16 such rows are transposed. So the sums along x are sums of whole vectors as well.
 * Filters that round between the axes (Pillow's bicubic and lanczos) begin with x, with sums of 32
 * bits. So they equal Pillow bit for bit.
 *
 * **Bound.** Each product is off by at most 2^-8 levels (2^-6 for filters with negative weights), and
 * the rounded weights of a pixel add up to exactly 1. So the result is within one level of the
 * reference for images that shrink to an eighth or more, and mostly equal to it.
 *
 * **Moves.** Each source row is read from memory once, and each output byte is written once. What
 * lies between fits into the second cache: 16 rows of the width of the crop box. */
#include "kernels/image/image_sums.h"

#include <string.h>

#include "kernels/clones.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define VECTOR 16 /* of int16 in a vector */

AVX2 static inline __m256i load_16(const int16_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

AVX2 static inline void store_16(int16_t *to, __m256i values)
{
    _mm256_storeu_si256((__m256i *)to, values);
}

/* Returns sum + values * weight. */
AVX2 static inline __m256i add_product(__m256i sum, const int16_t *values, int16_t weight)
{
    return _mm256_add_epi16(sum, _mm256_mulhrs_epi16(load_16(values), _mm256_set1_epi16(weight)));
}

AVX2 static void sum_16(int16_t *restrict out, const int16_t *const *rows, const int16_t *weights,
                        uint32_t taps, uint32_t at)
{
    __m256i sum = _mm256_setzero_si256();

    for (uint32_t k = 0; k < taps; k++)
        sum = add_product(sum, rows[k] + at, weights[k]);
    store_16(out + at, sum);
}

/* The last 16 elements are summed once more where `count` is not a multiple of 16. */
AVX2 static uint32_t sum_rows_avx2(int16_t *restrict out, const int16_t *const *rows,
                                   const int16_t *weights, uint32_t taps, uint32_t count)
{
    uint32_t i = 0;

    if (count < VECTOR)
        return 0;
    for (; count - i >= 4 * VECTOR; i += 4 * VECTOR) {
        __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
        for (uint32_t k = 0; k < taps; k++) {
            const int16_t *row = rows[k] + i;
            a = add_product(a, row, weights[k]);
            b = add_product(b, row + VECTOR, weights[k]);
            c = add_product(c, row + 2 * VECTOR, weights[k]);
            d = add_product(d, row + 3 * VECTOR, weights[k]);
        }
        store_16(out + i, a);
        store_16(out + i + VECTOR, b);
        store_16(out + i + 2 * VECTOR, c);
        store_16(out + i + 3 * VECTOR, d);
    }
    for (; count - i >= VECTOR; i += VECTOR)
        sum_16(out, rows, weights, taps, i);
    if (count % VECTOR)
        sum_16(out, rows, weights, taps, count - VECTOR);
    return count;
}

/* Pixels are `step` elements apart, channels `channel_step`. Three channels share each weight. */
AVX2 static void sum_columns_avx2(int16_t *restrict out, const int16_t *restrict in,
                                  const struct trajd_image_axis *x, uint32_t channels, size_t step,
                                  size_t channel_step)
{
    const struct trajd_image_taps taps = x->taps; /* a copy: the stores do not change it */
    const int16_t *weights = x->weights;

    for (uint32_t c = 0; c < taps.count; c++, weights += taps.stride) {
        const int16_t *from = in + taps.starts[c] * step;
        const uint32_t length = taps.lengths[c];
        __m256i a = _mm256_setzero_si256(), b = a, d = a;
        for (uint32_t k = 0; k < length && channels == 3; k++) {
            a = add_product(a, from + k * step, weights[k]);
            b = add_product(b, from + k * step + channel_step, weights[k]);
            d = add_product(d, from + k * step + 2 * channel_step, weights[k]);
        }
        for (uint32_t k = 0; k < length && channels == 1; k++)
            a = add_product(a, from + k * step, weights[k]);
        store_16(out, a);
        if (channels == 3) {
            store_16(out + TRAJD_IMAGE_ROWS, b);
            store_16(out + 2 * TRAJD_IMAGE_ROWS, d);
        }
        out += channels * TRAJD_IMAGE_ROWS;
    }
}

/* Returns whether the processor has the instructions. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
static bool has_avx2(void)
{
    return false;
}

static uint32_t sum_rows_avx2(int16_t *restrict out, const int16_t *const *rows,
                              const int16_t *weights, uint32_t taps, uint32_t count)
{
    (void)out, (void)rows, (void)weights, (void)taps, (void)count;
    return 0;
}

static void sum_columns_avx2(int16_t *restrict out, const int16_t *restrict in,
                             const struct trajd_image_axis *x, uint32_t channels, size_t step,
                             size_t channel_step)
{
    (void)out, (void)in, (void)x, (void)channels, (void)step, (void)channel_step;
}
#endif

TRAJD_INLINE int16_t product(int16_t value, int16_t weight)
{
    return (int16_t)((((int32_t)value * weight >> 14) + 1) >> 1);
}

/* A product, because the compiler widens a shift to 32 bits first: twice the time. */
TRAJD_CLONES void trajd_image_widen(int16_t *restrict out, const uint8_t *restrict in,
                                    uint32_t count, int shift)
{
    const uint16_t factor = (uint16_t)(1 << shift);

    for (uint32_t i = 0; i < count; i++)
        out[i] = (int16_t)(uint16_t)(in[i] * factor);
}

/* The sum of a few rows, from element `begin` on. `taps` is a constant where this is inlined. */
TRAJD_INLINE void sum_few(int16_t *restrict out, const int16_t *const *rows, const int16_t *weights,
                          uint32_t taps, uint32_t begin, uint32_t count, bool add)
{
    for (uint32_t i = begin; i < count; i++) {
        int16_t sum = add ? out[i] : 0;
        for (uint32_t k = 0; k < taps; k++)
            sum = (int16_t)(sum + product(rows[k][i], weights[k]));
        out[i] = sum;
    }
}

void trajd_image_sum_rows(int16_t *restrict out, const int16_t *const *rows, const int16_t *weights,
                          uint32_t taps, uint32_t count)
{
    const uint32_t begin = has_avx2() ? sum_rows_avx2(out, rows, weights, taps, count) : 0;
    uint32_t done = 0;

    for (; taps - done >= 4; done += 4)
        sum_few(out, rows + done, weights + done, 4, begin, count, done > 0);
    if (taps - done == 3)
        sum_few(out, rows + done, weights + done, 3, begin, count, done > 0);
    else if (taps - done == 2)
        sum_few(out, rows + done, weights + done, 2, begin, count, done > 0);
    else if (taps - done == 1)
        sum_few(out, rows + done, weights + done, 1, begin, count, done > 0);
}

/* One column of an image that is transposed: 16 rows. */
TRAJD_INLINE void sum_column(int16_t *restrict out, const int16_t *restrict in,
                             const int16_t *weights, uint32_t taps, size_t step)
{
    int16_t sum[TRAJD_IMAGE_ROWS] = {0};

    for (uint32_t k = 0; k < taps; k++)
        for (uint32_t i = 0; i < TRAJD_IMAGE_ROWS; i++)
            sum[i] = (int16_t)(sum[i] + product(in[k * step + i], weights[k]));
    for (uint32_t i = 0; i < TRAJD_IMAGE_ROWS; i++)
        out[i] = sum[i];
}

void trajd_image_sum_columns(int16_t *restrict out, const int16_t *restrict in,
                             const struct trajd_image_axis *x, uint32_t channels, uint32_t plane)
{
    const size_t step = (size_t)(plane ? 1 : channels) * TRAJD_IMAGE_ROWS;
    const size_t channel_step = (size_t)(plane ? plane : 1) * TRAJD_IMAGE_ROWS;

    if (has_avx2()) {
        sum_columns_avx2(out, in, x, channels, step, channel_step);
        return;
    }
    for (uint32_t c = 0; c < x->taps.count; c++)
        for (uint32_t d = 0; d < channels; d++)
            sum_column(out + (c * channels + d) * TRAJD_IMAGE_ROWS,
                       in + x->taps.starts[c] * step + d * channel_step,
                       x->weights + (size_t)c * x->taps.stride, x->taps.lengths[c], step);
}

TRAJD_INLINE int32_t round_exact(int32_t sum)
{
    const int32_t value = (sum + (1 << (TRAJD_IMAGE_EXACT_BITS - 1))) >> TRAJD_IMAGE_EXACT_BITS;

    return value < 0 ? 0 : value > 255 ? 255 : value;
}

enum { EXACT_COLUMNS = 64 }; /* summed together: the sums stay in the first cache */

TRAJD_CLONES void trajd_image_sum_rows_exact(uint8_t *restrict out, const uint8_t *const *rows,
                                             const int32_t *weights, uint32_t taps, uint32_t count)
{
    for (uint32_t begin = 0; begin < count; begin += EXACT_COLUMNS) {
        const uint32_t width = count - begin < EXACT_COLUMNS ? count - begin : EXACT_COLUMNS;
        int32_t sums[EXACT_COLUMNS] = {0};
        for (uint32_t k = 0; k < taps; k++)
            for (uint32_t i = 0; i < width; i++)
                sums[i] += rows[k][begin + i] * weights[k];
        for (uint32_t i = 0; i < width; i++)
            out[begin + i] = (uint8_t)round_exact(sums[i]);
    }
}

TRAJD_CLONES void trajd_image_sum_columns_exact(int16_t *restrict out, const int16_t *restrict in,
                                                const struct trajd_image_axis *x, uint32_t channels)
{
    for (uint32_t c = 0; c < x->taps.count * channels; c++) {
        const uint32_t pixel = c / channels, channel = c % channels;
        const int32_t *weights = x->exact + (size_t)pixel * x->taps.stride;
        const int16_t *from = in + (x->taps.starts[pixel] * channels + channel) * TRAJD_IMAGE_ROWS;
        int32_t sums[TRAJD_IMAGE_ROWS] = {0};
        for (uint32_t k = 0; k < x->taps.lengths[pixel]; k++, from += channels * TRAJD_IMAGE_ROWS)
            for (uint32_t i = 0; i < TRAJD_IMAGE_ROWS; i++)
                sums[i] += from[i] * weights[k];
        for (uint32_t i = 0; i < TRAJD_IMAGE_ROWS; i++)
            out[c * TRAJD_IMAGE_ROWS + i] = (int16_t)round_exact(sums[i]);
    }
}

typedef int16_t lanes __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint8_t bytes __attribute__((vector_size(8)));

/* Chooses 8 of the 16 elements of two vectors. Clang has no __builtin_shuffle, and GCC has
 * __builtin_shufflevector from version 12 on. */
#ifdef __clang__
#define CHOOSE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define CHOOSE(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif
#define LOW_1 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_1 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_2 0, 1, 8, 9, 2, 3, 10, 11
#define HIGH_2 4, 5, 12, 13, 6, 7, 14, 15
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15

/* Transposes 8 x 8 elements. */
TRAJD_INLINE void turn_block(int16_t *out, uint32_t out_step, const int16_t *in, uint32_t in_step)
{
    lanes a[8], b[8];

    for (int i = 0; i < 8; i++)
        a[i] = *(const lanes *)(in + (size_t)i * in_step);
    for (int i = 0; i < 4; i++) {
        b[2 * i] = CHOOSE(a[2 * i], a[2 * i + 1], LOW_1);
        b[2 * i + 1] = CHOOSE(a[2 * i], a[2 * i + 1], HIGH_1);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = CHOOSE(b[i], b[i + 2], LOW_2);
        a[i + 1] = CHOOSE(b[i], b[i + 2], HIGH_2);
        a[i + 2] = CHOOSE(b[i + 1], b[i + 3], LOW_2);
        a[i + 3] = CHOOSE(b[i + 1], b[i + 3], HIGH_2);
    }
    for (int i = 0; i < 4; i++) {
        *(lanes *)(out + (size_t)(2 * i) * out_step) = CHOOSE(a[i], a[i + 4], LOW_4);
        *(lanes *)(out + (size_t)(2 * i + 1) * out_step) = CHOOSE(a[i], a[i + 4], HIGH_4);
    }
}

/* Transposes TRAJD_IMAGE_ROWS rows of `count` elements, a multiple of 8. */
TRAJD_CLONES void trajd_image_turn(int16_t *out, const int16_t *in, uint32_t count)
{
    for (uint32_t x = 0; x < count; x += 8)
        for (uint32_t r = 0; r < TRAJD_IMAGE_ROWS; r += 8)
            turn_block(out + (size_t)x * TRAJD_IMAGE_ROWS + r, TRAJD_IMAGE_ROWS,
                       in + (size_t)r * count + x, count);
}

/* Rounds the eight values of a vector, and clips them to 0..255. */
TRAJD_INLINE void finish_8(uint8_t *out, lanes values, int shift)
{
    const lanes rounded = (values + (int16_t)(1 << shift >> 1)) >> shift;
#ifdef __SSE2__
    const __m128i result = _mm_packus_epi16((__m128i)rounded, (__m128i)rounded);
#else
    const lanes positive = rounded & ~(rounded >> 15), above = positive > 255;
    const lanes clipped = (positive & ~above) | (above & 255);
    const bytes result = __builtin_convertvector(clipped, bytes);
#endif

    memcpy(out, &result, sizeof(bytes));
}

/* Transposes the result back: `rows` rows of `count` elements, `step` bytes apart. */
TRAJD_CLONES void trajd_image_store(uint8_t *out, uint64_t step, const int16_t *result,
                                    uint32_t rows, uint32_t count, int shift)
{
    for (uint32_t x = 0; x < count; x += 8) {
        const uint32_t width = count - x < 8 ? count - x : 8;
        int16_t block[TRAJD_IMAGE_ROWS * 8];
        turn_block(block, 8, result + (size_t)x * TRAJD_IMAGE_ROWS, TRAJD_IMAGE_ROWS);
        turn_block(block + 64, 8, result + (size_t)x * TRAJD_IMAGE_ROWS + 8, TRAJD_IMAGE_ROWS);
        for (uint32_t r = 0; r < rows; r++) {
            uint8_t row[8];
            finish_8(row, *(const lanes *)(block + (size_t)8 * r), shift);
            if (width == 8)
                memcpy(out + r * step + x, row, 8);
            else
                memcpy(out + r * step + x, row, width);
        }
    }
}
