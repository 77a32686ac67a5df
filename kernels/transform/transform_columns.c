/* Between rows and columns, in blocks of four rows and four columns. With AVX-512, blocks have eight
 * rows. Those are written by hand: gcc 12 takes vectors of 64 bytes apart in functions that are
 * inlined, and was not faster than with four rows. Builds with a sanitizer test the blocks of four
 * rows, others those of eight. */
#include "kernels/transform/transform_columns.h"

#include <math.h>
#include <string.h>

#include "kernels/clones.h"
#include "kernels/element_convert.h"
#include "kernels/finite.h"

#ifdef TRAJD_HAS_CLONES
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define WIDE 8 /* rows of a block */

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

/* Four vectors, each with row l in the low half and row l + 4 in the high half, become those of four
 * columns, and the other way round: no number crosses between the halves, which is slow. */
AVX512 static inline void transpose_wide(__m256 v[4])
{
    const __m256 a = _mm256_unpacklo_ps(v[0], v[2]), b = _mm256_unpacklo_ps(v[1], v[3]),
                 c = _mm256_unpackhi_ps(v[0], v[2]), d = _mm256_unpackhi_ps(v[1], v[3]);

    v[0] = _mm256_unpacklo_ps(a, b);
    v[1] = _mm256_unpackhi_ps(a, b);
    v[2] = _mm256_unpacklo_ps(c, d);
    v[3] = _mm256_unpackhi_ps(c, d);
}

/* Gathers four columns of the first lanes. Returns of how many. */
AVX512 static uint32_t gather_wide(const float *from, const uint64_t *at, uint32_t count,
                                   trajd_column *to)
{
    uint32_t l = 0;

    for (; l + WIDE <= count; l += WIDE) {
        __m256 block[4];
        for (int k = 0; k < 4; k++)
            block[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + at[l + k])),
                                            _mm_loadu_ps(from + at[l + k + 4]), 1);
        transpose_wide(block);
        for (int k = 0; k < 4; k++)
            _mm512_storeu_pd(&to[k][l], _mm512_cvtps_pd(block[k]));
    }
    return l;
}

/* Normalises four columns and stores them in the first rows. Returns in how many. Adds the numbers
 * to `sum`. */
AVX512 static uint32_t store_wide(double *const *columns, const double *scale, const double *offset,
                                  const uint64_t *at, uint32_t count, float *to, float *sum)
{
    const __m512d scales[4] = {_mm512_set1_pd(scale[0]), _mm512_set1_pd(scale[1]),
                               _mm512_set1_pd(scale[2]), _mm512_set1_pd(scale[3])},
                  offsets[4] = {_mm512_set1_pd(offset[0]), _mm512_set1_pd(offset[1]),
                                _mm512_set1_pd(offset[2]), _mm512_set1_pd(offset[3])};
    const double *from[4] = {columns[0], columns[1], columns[2], columns[3]};
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                      _mm256_setzero_ps()};
    float parts[WIDE];
    uint32_t l = 0;

    for (; l + WIDE <= count; l += WIDE) {
        __m256 block[4];
        for (int k = 0; k < 4; k++) {
            const __m512d scaled = _mm512_mul_pd(_mm512_loadu_pd(from[k] + l), scales[k]);
            block[k] = _mm512_cvtpd_ps(_mm512_add_pd(scaled, offsets[k]));
            sums[k] = _mm256_add_ps(sums[k], block[k]);
        }
        transpose_wide(block);
        for (int k = 0; k < 4; k++) {
            _mm_storeu_ps(to + at[l + k], _mm256_castps256_ps128(block[k]));
            _mm_storeu_ps(to + at[l + k + 4], _mm256_extractf128_ps(block[k], 1));
        }
    }
    _mm256_storeu_ps(
        parts, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    for (int k = 0; k < WIDE; k++)
        *sum += parts[k];
    return l;
}
#else
static bool has_avx512(void)
{
    return false;
}

static uint32_t gather_wide(const float *from, const uint64_t *at, uint32_t count, trajd_column *to)
{
    (void)from, (void)at, (void)count, (void)to;
    return 0;
}

static uint32_t store_wide(double *const *columns, const double *scale, const double *offset,
                           const uint64_t *at, uint32_t count, float *to, float *sum)
{
    (void)columns, (void)scale, (void)offset, (void)at, (void)count, (void)to, (void)sum;
    return 0;
}
#endif

/* ---- blocks of 4 x 4 numbers ---- */

typedef float four_floats __attribute__((vector_size(16)));
typedef double four_doubles __attribute__((vector_size(32)));
typedef int64_t four_masks __attribute__((vector_size(32)));

/* zip_low returns a0 b0 a1 b1, and zip_high a2 b2 a3 b3. Of doubles: a0 b0 a2 b2, and a1 b1 a3 b3,
 * which takes one instruction; join_low returns a0 a1 b0 b1, and join_high a2 a3 b2 b3. */
#ifdef __clang__
#define ZIP(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t four_places __attribute__((vector_size(16)));
#define ZIP(a, b, i, j, k, l)                                                                      \
    __builtin_shuffle(a, b,                                                                        \
                      __builtin_choose_expr(sizeof(a) == 16, ((four_places){i, j, k, l}),          \
                                            ((four_masks){i, j, k, l})))
#endif

TRAJD_INLINE void transpose(four_floats rows[4])
{
    const four_floats a = ZIP(rows[0], rows[2], 0, 4, 1, 5), b = ZIP(rows[1], rows[3], 0, 4, 1, 5),
                      c = ZIP(rows[0], rows[2], 2, 6, 3, 7), d = ZIP(rows[1], rows[3], 2, 6, 3, 7);

    rows[0] = ZIP(a, b, 0, 4, 1, 5);
    rows[1] = ZIP(a, b, 2, 6, 3, 7);
    rows[2] = ZIP(c, d, 0, 4, 1, 5);
    rows[3] = ZIP(c, d, 2, 6, 3, 7);
}

TRAJD_INLINE void transpose_doubles(four_doubles rows[4])
{
    const four_doubles a = ZIP(rows[0], rows[1], 0, 4, 2, 6), b = ZIP(rows[0], rows[1], 1, 5, 3, 7),
                       c = ZIP(rows[2], rows[3], 0, 4, 2, 6), d = ZIP(rows[2], rows[3], 1, 5, 3, 7);

    rows[0] = ZIP(a, c, 0, 1, 4, 5);
    rows[1] = ZIP(b, d, 0, 1, 4, 5);
    rows[2] = ZIP(a, c, 2, 3, 6, 7);
    rows[3] = ZIP(b, d, 2, 3, 6, 7);
}

/* ---- rows to columns ---- */

/* Gathers four columns, which are all in the rows. Widening them in a loop of its own is faster
 * than __builtin_convertvector of gcc 12. */
TRAJD_CLONES static void gather_floats(const float *restrict from, const uint64_t *restrict at,
                                       uint32_t begin, uint32_t count, trajd_column *restrict to)
{
    const uint32_t lanes = (count + 3) / 4 * 4;
    float columns[4][TRAJD_LANES];
    four_floats block[4];

    for (size_t l = begin; l < lanes; l += 4) {
        for (int k = 0; k < 4; k++)
            memcpy(&block[k], from + at[l + k], sizeof block[k]);
        transpose(block);
        for (int k = 0; k < 4; k++)
            memcpy(&columns[k][l], &block[k], sizeof block[k]);
    }
    for (int k = 0; k < 4; k++)
        for (size_t l = begin; l < lanes; l++)
            to[k][l] = (double)columns[k][l];
}

TRAJD_CLONES static void gather_doubles(const double *restrict from, const uint64_t *restrict at,
                                        uint32_t count, trajd_column *restrict to)
{
    four_doubles block[4];

    for (size_t l = 0; l < count; l += 4) {
        for (int k = 0; k < 4; k++)
            memcpy(&block[k], from + at[l + k], sizeof block[k]);
        transpose_doubles(block);
        for (int k = 0; k < 4; k++)
            memcpy(&to[k][l], &block[k], sizeof block[k]);
    }
}

static void gather_fours(const struct trajd_column_source *source, uint32_t first, trajd_column *to)
{
    const float *floats = (const float *)source->array + first;
    uint32_t done = 0;

    if (source->type == TRAJD_F64) {
        gather_doubles((const double *)source->array + first, source->at, source->count, to);
        return;
    }
    if (has_avx512())
        done = gather_wide(floats, source->at, source->count, to);
    if (done < source->count)
        gather_floats(floats, source->at, done, source->count, to);
}

static void gather_column(const struct trajd_column_source *source, uint32_t first, double *to)
{
    for (uint32_t l = 0; l < source->count; l++) {
        const uint64_t at = source->at[l] + first;
        to[l] = source->type == TRAJD_F64 ? ((const double *)source->array)[at]
                                          : (double)((const float *)source->array)[at];
    }
}

/* Groups of four begin earlier where they would go beyond the row. */
trajd_column *trajd_columns_gather(const struct trajd_column_source *source, uint32_t first,
                                   uint32_t count, trajd_column *room)
{
    const uint32_t columns = count < 4 ? 4 : count;
    const uint32_t begin = first + columns > source->width ? source->width - columns : first;
    uint32_t c = 0;

    if (source->width < 4) {
        for (; c < count; c++)
            gather_column(source, first + c, room[c]);
        return room;
    }
    for (; c + 4 <= columns; c += 4)
        gather_fours(source, begin + c, room + c);
    if (c < columns)
        gather_fours(source, begin + columns - 4, room + columns - 4);
    return room + (first - begin);
}

/* ---- columns to rows ---- */

/* At most four columns, on their way to rows of floats. */
struct store {
    double *const *from;
    const uint64_t *at;
    uint32_t begin, count; /* lanes that are stored already; of lanes */
    double scale[4], offset[4];
    float *to;
};

/* Stores up to four rows, and adds the numbers of each column to its sum. */
TRAJD_INLINE void store_rows(const struct store *store, const double *const from[4],
                             uint32_t columns, size_t l, uint32_t rows, four_floats sums[4])
{
    four_doubles wide;
    four_floats block[4] = {0};

    for (uint32_t k = 0; k < columns; k++) {
        memcpy(&wide, &from[k][l], sizeof wide);
        wide = wide * store->scale[k] + store->offset[k];
        block[k] = __builtin_convertvector(wide, four_floats);
        sums[k] += block[k];
    }
    transpose(block);
    for (uint32_t k = 0; k < rows; k++)
        memcpy(store->to + store->at[l + k], &block[k], columns * sizeof *store->to);
}

/* Returns whether a number may not be finite: whether the sum of all of them is not. */
TRAJD_INLINE bool store_block(const struct store *store, uint32_t columns)
{
    const struct store own = *store; /* which no store through a pointer changes */
    const double *from[4] = {NULL};
    four_floats sums[4] = {{0}}, sum;
    size_t l = own.begin;

    for (uint32_t k = 0; k < columns; k++)
        from[k] = own.from[k];
    for (; l + 4 <= own.count; l += 4)
        store_rows(&own, from, columns, l, 4, sums);
    if (l < own.count)
        store_rows(&own, from, columns, l, own.count - (uint32_t)l, sums);
    sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return !isfinite((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

TRAJD_CLONES static bool store_1(const struct store *store)
{
    return store_block(store, 1);
}

TRAJD_CLONES static bool store_2(const struct store *store)
{
    return store_block(store, 2);
}

TRAJD_CLONES static bool store_3(const struct store *store)
{
    return store_block(store, 3);
}

TRAJD_CLONES static bool store_4(const struct store *store)
{
    return store_block(store, 4);
}

static bool store_fours(const struct trajd_column_target *target, uint32_t first, uint32_t count,
                        double *const *columns)
{
    static bool (*const stores[4])(const struct store *) = {store_1, store_2, store_3, store_4};
    struct store store = {.from = columns,
                          .at = target->at,
                          .count = target->count,
                          .to = (float *)target->array + first};
    float sum = 0;
    bool may_be_lost;

    for (uint32_t k = 0; k < count; k++) {
        store.scale[k] = target->scale ? (double)target->scale[first + k] : 1;
        store.offset[k] =
            target->scale ? (double)target->offset[first + k] : -0.0; /* x + -0 is x */
    }
    if (count == 4 && has_avx512())
        store.begin = store_wide(columns, store.scale, store.offset, target->at, target->count,
                                 store.to, &sum);
    may_be_lost = store.begin < store.count && stores[count - 1](&store);
    return may_be_lost || !isfinite(sum);
}

/* The last four columns overlap the four before them. */
static bool store_floats(const struct trajd_column_target *target, uint32_t first, uint32_t count,
                         double *const *columns)
{
    bool may_be_lost = false;
    uint32_t c = 0;

    if (count < 4)
        return store_fours(target, first, count, columns);
    for (; c + 4 <= count; c += 4)
        may_be_lost |= store_fours(target, first + c, 4, columns + c);
    if (c < count)
        may_be_lost |= store_fours(target, first + count - 4, 4, columns + count - 4);
    return may_be_lost;
}

static double normalised(const struct trajd_column_target *target, uint32_t d, double value)
{
    return target->scale ? value * (double)target->scale[d] + (double)target->offset[d] : value;
}

static void store_elements(const struct trajd_column_target *target, uint32_t first, uint32_t count,
                           double *const *columns)
{
    const uint32_t size = trajd_dtype_size(target->type);

    for (uint32_t l = 0; l < target->count; l++)
        for (uint32_t d = first; d < first + count; d++)
            trajd_element_store(target->type, (char *)target->array + (target->at[l] + d) * size,
                                normalised(target, d, columns[d - first][l]));
}

bool trajd_columns_store(const struct trajd_column_target *target, uint32_t first, uint32_t count,
                         double *const *columns)
{
    if (target->type == TRAJD_F32)
        return store_floats(target, first, count, columns);
    store_elements(target, first, count, columns);
    return true;
}

void trajd_columns_find_lost(const struct trajd_column_target *target, uint32_t first,
                             uint32_t count, double *const *columns, bool *lost)
{
    const double limit = trajd_finite_limit(target->type);

    for (uint32_t d = first; d < first + count; d++)
        for (uint32_t l = 0; l < target->count; l++)
            lost[l] |= !(fabs(normalised(target, d, columns[d - first][l])) < limit);
}
