/* Histograms: quantiles against sorting, moments against long double, for many kinds of values,
 * weights and counts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stats/histogram.h"
#include "proto/array_len.h"

#define MOST 5000

static uint64_t seed = 1;

static uint32_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns a value of a distribution: spread over all floats, clustered, few different ones,
 * denormal, or constant. */
static double make_value(int shape, enum trajd_dtype dtype)
{
    const uint32_t bits = next_random() << 1 ^ next_random();
    float single;

    switch (shape) {
    case 0:
        memcpy(&single, &bits, sizeof single);
        return isfinite(single) ? (double)single : 0;
    case 1:
        return (double)(float)(1e4 + next_random() % 1000 * 1e-3);
    case 2:
        return (double)(next_random() % 3) - 1;
    case 3:
        return (double)((float)(next_random() % 100) * 1e-44f);
    case 4:
        return 7.25;
    default:
        return dtype == TRAJD_F64
                   ? ldexp((double)next_random() - 1e9, (int)(next_random() % 400) - 200)
                   : (double)(float)next_random();
    }
}

static void cache(enum trajd_dtype dtype, void *at, double value)
{
    const float single = (float)value;

    if (dtype == TRAJD_F64)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &single, sizeof single);
}

/* Runs all sweeps, with the values in two pieces. */
static struct trajd_feature_statistics count(enum trajd_dtype dtype, uint32_t level_bits,
                                             const struct trajd_histogram_values *values)
{
    struct trajd_histogram histogram;
    struct trajd_error error;
    struct trajd_feature_statistics found;
    bool more = true;

    assert_int_equal(
        trajd_histogram_begin(&histogram, trajd_histogram_key_bits(dtype), level_bits, &error),
        TRAJD_OK);
    while (more) {
        struct trajd_histogram_values member = *values;
        member.row_count = values->row_count / 3;
        trajd_histogram_add(&histogram, &member);
        member.base = (const char *)values->base + member.row_count * member.row_stride_bytes;
        member.weights = member.weights ? member.weights + member.row_count : NULL;
        member.row_count = values->row_count - member.row_count;
        trajd_histogram_add(&histogram, &member);
        assert_int_equal(trajd_histogram_next(&histogram, &more, &error), TRAJD_OK);
    }
    found = histogram.found;
    trajd_histogram_end(&histogram);
    return found;
}

static void check(const struct trajd_feature_statistics *found, double *sorted, uint64_t n)
{
    long double sum = 0, squares = 0, mean;

    qsort(sorted, n, sizeof *sorted, compare);
    for (uint64_t i = 0; i < n; i++)
        sum += sorted[i];
    mean = sum / n;
    for (uint64_t i = 0; i < n; i++)
        squares += (sorted[i] - mean) * (sorted[i] - mean);
    assert_int_equal(found->count, n);
    assert_true(found->min == sorted[0] && found->max == sorted[n - 1]);
    assert_true(fabsl(found->mean - mean) <=
                1e-13L * fmaxl(fabsl(sorted[0]), fabsl(sorted[n - 1])));
    assert_true(fabsl(found->std - sqrtl(squares / n)) <= 1e-12L * sqrtl(squares / n));
    for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++) {
        const double place = trajd_histogram_quantiles[q] * (double)(n - 1),
                     member = place - floor(place);
        const double a = sorted[(uint64_t)place],
                     b = sorted[(uint64_t)place + 1 < n ? (uint64_t)place + 1 : n - 1];
        const double want = member < 0.5 ? a + (b - a) * member : b - (b - a) * (1 - member);
        if (found->quantiles[q] != want)
            fail_msg("quantile %d of %llu is %.17g, not %.17g", q, (unsigned long long)n,
                     found->quantiles[q], want);
    }
}

static void test_against_sorting(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 11, 100, 511, 512, 513, MOST};
    char *rows = malloc(MOST * 8 * 3);
    double *sorted = malloc(MOST * 3 * sizeof *sorted);
    uint32_t *weights = malloc(MOST * sizeof *weights);

    (void)state;
    for (int shape = 0; shape < 6; shape++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            for (int variant = 0; variant < 4; variant++) {
                const enum trajd_dtype dtype = variant & 1 ? TRAJD_F64 : TRAJD_F32;
                const uint32_t stride = trajd_dtype_size(dtype) * 3;
                struct trajd_histogram_values values = {.base = rows,
                                                        .dtype = dtype,
                                                        .row_count = sizes[s],
                                                        .row_stride_bytes = stride,
                                                        .group = 1,
                                                        .weights = variant & 2 ? weights : NULL};
                struct trajd_feature_statistics found;
                uint64_t n = 0;
                for (uint64_t i = 0; i < sizes[s]; i++) {
                    const double value = make_value(shape, dtype);
                    cache(dtype, rows + i * stride, value);
                    weights[i] = i == 0 ? 1 : next_random() % 4;
                    for (uint32_t w = 0; w < (variant & 2 ? weights[i] : 1); w++)
                        sorted[n++] = value;
                }
                found = count(dtype, TRAJD_HISTOGRAM_FEW_BITS, &values);
                check(&found, sorted, n);
                found = count(dtype, TRAJD_HISTOGRAM_MANY_BITS, &values);
                check(&found, sorted, n);
            }
    free(rows);
    free(sorted);
    free(weights);
}

static void test_bytes(void **state)
{
    uint8_t images[50][4][3];
    double sorted[3][200];

    (void)state;
    for (int i = 0; i < 50; i++)
        for (int p = 0; p < 4; p++)
            for (int c = 0; c < 3; c++)
                sorted[c][4 * i + p] = images[i][p][c] = (uint8_t)(c == 2 ? 255 : next_random());
    for (int c = 0; c < 3; c++) {
        const struct trajd_histogram_values values = {.base = &images[0][0][c],
                                                      .dtype = TRAJD_U8,
                                                      .row_count = 50,
                                                      .row_stride_bytes = sizeof images[0],
                                                      .group = 4,
                                                      .group_stride_bytes = 3};
        const struct trajd_feature_statistics found =
            count(TRAJD_U8, TRAJD_HISTOGRAM_FEW_BITS, &values);
        check(&found, sorted[c], 200);
    }
}

static void test_values_that_are_left_out(void **state)
{
    const float some[] = {NAN, 1, INFINITY, 3, -INFINITY, NAN}, none[] = {NAN, NAN};
    const double wide[] = {1e300, -1e300, 5};
    struct trajd_histogram_values values = {
        .base = some, .dtype = TRAJD_F32, .row_count = 6, .row_stride_bytes = 4, .group = 1};
    struct trajd_feature_statistics found = count(TRAJD_F32, TRAJD_HISTOGRAM_FEW_BITS, &values);

    (void)state;
    assert_int_equal(found.count, 2);
    assert_int_equal(found.nan, 2);
    assert_int_equal(found.infinite, 2);
    assert_true(found.mean == 2 && found.std == 1 && found.min == 1 && found.max == 3 &&
                found.quantiles[2] == 2);
    values.base = none;
    values.row_count = 2;
    found = count(TRAJD_F32, TRAJD_HISTOGRAM_FEW_BITS, &values);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.nan, 2);
    assert_true(isnan(found.mean) && isnan(found.std) && isnan(found.min) &&
                isnan(found.quantiles[0]));
    values = (struct trajd_histogram_values){
        .base = wide, .dtype = TRAJD_F64, .row_count = 3, .row_stride_bytes = 8, .group = 1};
    found = count(TRAJD_F64, TRAJD_HISTOGRAM_FEW_BITS, &values); /* the variance exceeds a double */
    assert_true(found.min == -1e300 && found.max == 1e300 && found.quantiles[2] == 5 &&
                isinf(found.std));
}

/* A block in which no value has a weight changes nothing. */
static void test_values_without_weight(void **state)
{
    static const float values[] = {3, 5, 1000, -1000};
    static const uint32_t weights[][4] = {{1, 1, 0, 0}, {0, 0, 0, 0}, {1, 1, 0, 0}};
    struct trajd_histogram histogram;
    struct trajd_error error;
    bool more = true;

    (void)state;
    assert_int_equal(trajd_histogram_begin(&histogram, trajd_histogram_key_bits(TRAJD_F32),
                                           TRAJD_HISTOGRAM_FEW_BITS, &error),
                     TRAJD_OK);
    while (more) {
        for (size_t block = 0; block < 3; block++)
            trajd_histogram_add(
                &histogram, &(struct trajd_histogram_values){.base = values,
                                                             .dtype = TRAJD_F32,
                                                             .row_count = 4,
                                                             .row_stride_bytes = sizeof values[0],
                                                             .group = 1,
                                                             .weights = weights[block]});
        assert_int_equal(trajd_histogram_next(&histogram, &more, &error), TRAJD_OK);
    }
    assert_int_equal(histogram.found.count, 4);
    assert_true(histogram.found.mean == 4 && histogram.found.std == 1);
    assert_true(histogram.found.min == 3 && histogram.found.max == 5);
    assert_true(histogram.found.quantiles[2] == 4);
    trajd_histogram_end(&histogram);
}

/* Tiles of values that count once, some of them not finite, against sorting. */
static void test_tiles(void **state)
{
    double values[900], sorted[900];
    struct trajd_histogram histogram;
    struct trajd_error error;
    bool more = true;

    (void)state;
    for (int variant = 0; variant < 4; variant++, more = true) {
        const enum trajd_dtype dtype = variant & 1 ? TRAJD_F64 : TRAJD_F32;
        uint64_t n = 0;
        for (int i = 0; i < 900; i++) {
            values[i] = i % 90 == 7    ? (i % 4 ? INFINITY : -INFINITY)
                        : i % 90 == 50 ? NAN
                                       : make_value(i % 2 ? 5 : 0, dtype);
            if (isfinite(values[i]))
                sorted[n++] = values[i] *= fabs(values[i]) > 1e30 ? 0x1p-64 : 1;
        }
        assert_int_equal(trajd_histogram_begin(&histogram, trajd_histogram_key_bits(dtype),
                                               variant & 2 ? TRAJD_HISTOGRAM_MANY_BITS
                                                           : TRAJD_HISTOGRAM_FEW_BITS,
                                               &error),
                         TRAJD_OK);
        while (more) {
            for (uint32_t i = 0; i < 900; i += 250)
                trajd_histogram_add_tile(&histogram, values + i, i + 250 > 900 ? 900 - i : 250);
            assert_int_equal(trajd_histogram_next(&histogram, &more, &error), TRAJD_OK);
        }
        check(&histogram.found, sorted, n);
        assert_int_equal(histogram.found.nan, 10);
        assert_int_equal(histogram.found.infinite, 10);
        trajd_histogram_end(&histogram);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sorting),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_values_that_are_left_out),
        cmocka_unit_test(test_values_without_weight),
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
