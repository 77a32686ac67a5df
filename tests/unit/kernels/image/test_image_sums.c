/* The sums of image_sums.c, by AVX2 where the processor has it and in plain C, against their
 * definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* This program has the functions of image_sums.c itself, and says whether they may use AVX2. */
static bool may_use_avx2;
#define __builtin_cpu_supports(feature) (may_use_avx2 && __builtin_cpu_supports(feature))
#include "kernels/image/image_sums.c"

#define MAX_TAPS 9
#define MAX_COUNT 131
#define COLUMNS 5
#define CHANNELS 3
#define PIXELS 14
#define CANARY 0x5a5a

/* All int16, the ends of their range among them. */
static int16_t any_value(void)
{
    const int choice = rand() % 16;

    return choice == 0 ? INT16_MIN : choice == 1 ? INT16_MAX : (int16_t)(rand() & 0xffff);
}

static void fill(int16_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = any_value();
}

/* Returns sum + value * weight / 2^15, rounded, with the 16 bits that a vector keeps. */
static uint16_t add(uint16_t sum, int16_t value, int16_t weight)
{
    return (uint16_t)(sum + (uint16_t)((((int32_t)value * weight >> 14) + 1) >> 1));
}

static void check_rows(uint32_t taps, uint32_t count)
{
    static int16_t values[MAX_TAPS][MAX_COUNT], weights[MAX_TAPS], out[MAX_COUNT + 1];
    const int16_t *rows[MAX_TAPS];

    fill(values[0], MAX_TAPS * MAX_COUNT);
    fill(weights, MAX_TAPS);
    for (uint32_t k = 0; k < taps; k++)
        rows[k] = values[k];
    out[count] = CANARY;
    trajd_image_sum_rows(out, rows, weights, taps, count);
    assert_int_equal(out[count], CANARY);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t sum = 0;
        for (uint32_t k = 0; k < taps; k++)
            sum = add(sum, values[k][i], weights[k]);
        assert_int_equal((uint16_t)out[i], sum);
    }
}

static void check_columns(uint32_t channels)
{
    static int16_t in[PIXELS * CHANNELS * TRAJD_IMAGE_ROWS], weights[COLUMNS * MAX_TAPS],
        out[COLUMNS * CHANNELS * TRAJD_IMAGE_ROWS + 1];
    uint32_t starts[COLUMNS], lengths[COLUMNS];
    const struct trajd_image_axis axis = {
        .taps = {.starts = starts, .lengths = lengths, .count = COLUMNS, .stride = MAX_TAPS},
        .weights = weights};
    const uint32_t size = COLUMNS * channels * TRAJD_IMAGE_ROWS;

    fill(in, sizeof in / sizeof *in);
    fill(weights, sizeof weights / sizeof *weights);
    for (uint32_t c = 0; c < COLUMNS; c++) {
        lengths[c] = 1 + (uint32_t)rand() % MAX_TAPS;
        starts[c] = (uint32_t)rand() % (PIXELS - lengths[c] + 1);
    }
    out[size] = CANARY;
    trajd_image_sum_columns(out, in, &axis, channels, 0);
    assert_int_equal(out[size], CANARY);
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t c = i / (channels * TRAJD_IMAGE_ROWS),
                       lane = i % (channels * TRAJD_IMAGE_ROWS);
        uint16_t sum = 0;
        for (uint32_t k = 0; k < lengths[c]; k++)
            sum = add(sum, in[(starts[c] + k) * channels * TRAJD_IMAGE_ROWS + lane],
                      weights[c * MAX_TAPS + k]);
        assert_int_equal((uint16_t)out[i], sum);
    }
}

static void check_all(void)
{
    for (uint32_t taps = 1; taps <= MAX_TAPS; taps++)
        for (uint32_t count = 1; count <= MAX_COUNT; count++)
            check_rows(taps, count);
    for (int turn = 0; turn < 50; turn++) {
        check_columns(1);
        check_columns(CHANNELS);
    }
}

static void test_plain(void **state)
{
    (void)state;
    may_use_avx2 = false;
    check_all();
}

static void test_avx2(void **state)
{
    (void)state;
    may_use_avx2 = true;
    check_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_avx2)};

    srand(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
