/* The reference and cpu_rows against values computed by numpy and scipy
 * (tests/tools/resample_vectors.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/dispatch/plan.h"
#include "kernels/quaternion.h"

#define NUMBER_LIMIT 4096

struct golden {
    char name[64];
    int kind;
    struct trajd_rate rate;
    uint32_t rows, features, steps, slopes;
    double period, low;
    int64_t width;
    int64_t stamps[NUMBER_LIMIT], targets[NUMBER_LIMIT];
    double source[NUMBER_LIMIT], values[NUMBER_LIMIT], derivative[NUMBER_LIMIT];
    uint8_t mask[NUMBER_LIMIT];
    double out[2][NUMBER_LIMIT]; /* two rows: the window is written to either */
    float out_derivative[2][NUMBER_LIMIT];
    uint8_t out_mask[2][NUMBER_LIMIT];
};

static FILE *open_golden(const char *name)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/golden/resample/%s", TRAJD_SOURCE_DIR, name);
    file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    return file;
}

static double read_number(FILE *file)
{
    char word[64];

    assert_int_equal(fscanf(file, "%63s", word), 1);
    return strtod(word, NULL);
}

static void read_numbers(FILE *file, const char *title, uint32_t count, double *numbers)
{
    char word[64];

    assert_true(count <= NUMBER_LIMIT);
    assert_int_equal(fscanf(file, "%63s", word), 1);
    assert_string_equal(word, title);
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = read_number(file);
}

/* Times in these files are far below 2^53. */
static void read_times(FILE *file, const char *title, uint32_t count, int64_t *times)
{
    static double numbers[NUMBER_LIMIT];

    read_numbers(file, title, count, numbers);
    for (uint32_t i = 0; i < count; i++)
        times[i] = (int64_t)numbers[i];
}

static bool read_case(FILE *file, struct golden *golden)
{
    static double mask[NUMBER_LIMIT];
    char low[32];

    memset(golden, 0, sizeof *golden);
    if (fscanf(file,
               " case %63s kind %d rate %ld %ld rows %u features %u steps %u period %lf low %31s "
               "width %ld "
               "slopes %u",
               golden->name, &golden->kind, &golden->rate.num, &golden->rate.den, &golden->rows,
               &golden->features, &golden->steps, &golden->period, low, &golden->width,
               &golden->slopes) != 11)
        return false;
    golden->low = strtod(low, NULL);
    if (golden->rate.num == 0)
        read_times(file, "stamps", golden->rows, golden->stamps);
    read_numbers(file, "rows", golden->rows * golden->features, golden->source);
    read_times(file, "targets", golden->steps, golden->targets);
    read_numbers(file, "values", golden->steps * golden->features, golden->values);
    read_numbers(file, "mask", golden->steps, mask);
    for (uint32_t t = 0; t < golden->steps; t++)
        golden->mask[t] = (uint8_t)mask[t];
    if (golden->slopes)
        read_numbers(file, "derivative", golden->steps * golden->slopes, golden->derivative);
    return true;
}

static void run(struct golden *golden, const char *variant, const uint32_t *row)
{
    const struct trajd_device_facts facts = {.cpu_threads = 1};
    int64_t zero = 0, count = golden->rows;
    struct trajd_clock clock = {.stamps_ns = golden->rate.num ? NULL : golden->stamps,
                                .rate = golden->rate};
    struct trajd_grid grid = {
        .unit = TRAJD_GRID_NS, .step_count = golden->steps, .offsets = golden->targets};
    struct trajd_bracket bracket = {.row_begin = &zero, .row_count = &count, .anchor = &zero};
    struct trajd_stream stream = {.kind = (enum trajd_kind)golden->kind,
                                  .source_type = TRAJD_F64,
                                  .feature_count = golden->features,
                                  .row_stride_bytes = golden->features * 8,
                                  .base = golden->source,
                                  .max_gap_ns = -1,
                                  .max_age_ns = -1,
                                  .mean_width = golden->width,
                                  .angle_period = golden->period,
                                  .angle_low = golden->low,
                                  .output_type = TRAJD_F64,
                                  .output = golden->out[0],
                                  .window_stride_bytes = sizeof golden->out[0],
                                  .step_stride_bytes = golden->features * 8,
                                  .mask = golden->out_mask[0],
                                  .mask_window_stride_bytes = NUMBER_LIMIT,
                                  .derivative = golden->slopes ? golden->out_derivative[0] : NULL,
                                  .derivative_window_stride_bytes =
                                      sizeof golden->out_derivative[0],
                                  .derivative_step_stride_bytes = golden->slopes * sizeof(float)};
    struct trajd_resample_request request = {.window_count = 1,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .bracket_count = 1,
                                             .stream_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = &bracket,
                                             .streams = &stream,
                                             .window_rows = row,
                                             .output_row_count = 2};
    struct trajd_error error = {0};
    struct trajd_plan *plan;

    if (trajd_plan_create(&request, &facts, variant, &plan, &error) ||
        trajd_plan_run(plan, &request, NULL, &error))
        fail_msg("%s: %s", golden->name, error.message);
    trajd_plan_destroy(&plan);
}

/* q and -q are the same rotation. Gives the expected value the sign of the output. */
static void align_signs(struct golden *golden, const double *out)
{
    for (uint32_t i = 0;
         trajd_kind_is_slerp((enum trajd_kind)golden->kind) && i < golden->steps * 4; i += 4)
        if (trajd_quaternion_dot(golden->values + i, out + i) < 0)
            for (int k = 0; k < 4; k++)
                golden->values[i + k] = -golden->values[i + k];
}

/* `row`: the output row of the window, or NULL. */
static void compare(struct golden *golden, const char *variant, const uint32_t *row, double slack)
{
    const double *out = golden->out[row ? *row : 0];
    const float *out_derivative = golden->out_derivative[row ? *row : 0];

    run(golden, variant, row);
    align_signs(golden, out);
    for (uint32_t i = 0; i < golden->steps * golden->features; i++)
        if (!(isnan(golden->values[i]) && isnan(out[i])) &&
            !(fabs(golden->values[i] - out[i]) <= slack * (1 + golden->period)))
            fail_msg("%s, %s: value %u is %.17g, expected %.17g", variant, golden->name, i, out[i],
                     golden->values[i]);
    assert_memory_equal(golden->out_mask[row ? *row : 0], golden->mask, golden->steps);
    for (uint32_t i = 0; i < golden->steps * golden->slopes; i++)
        if (!(fabs(golden->derivative[i] - (double)out_derivative[i]) <=
              1e-7 * fabs(golden->derivative[i]) + 1e-8))
            fail_msg("%s, %s: derivative %u is %.9g, expected %.17g", variant, golden->name, i,
                     (double)out_derivative[i], golden->derivative[i]);
}

static void compare_file(const char *name, double slack, int least)
{
    static struct golden golden;
    const uint32_t second = 1;
    FILE *file = open_golden(name);
    int count = 0;

    for (; read_case(file, &golden); count++) {
        compare(&golden, "reference", NULL, slack);
        compare(&golden, "cpu_rows", NULL, slack);
        compare(&golden, "reference", &second, slack);
        compare(&golden, "cpu_rows", &second, slack);
    }
    assert_true(feof(file) && count >= least);
    fclose(file);
}

static void test_linear(void **state)
{
    (void)state;
    compare_file("linear.txt", 4e-15, 8);
}

static void test_previous_and_nearest_are_exact(void **state)
{
    (void)state;
    compare_file("previous.txt", 0, 8);
    compare_file("nearest.txt", 0, 8);
}

static void test_slerp(void **state)
{
    (void)state;
    compare_file("slerp_xyzw.txt", 1e-12, 3);
    compare_file("slerp_wxyz.txt", 1e-12, 3);
}

static void test_angle(void **state)
{
    (void)state;
    compare_file("angle.txt", 1e-14, 6);
}

static void test_mean(void **state)
{
    (void)state;
    compare_file("mean.txt", 4e-15, 4);
}

static void test_halves(void **state)
{
    FILE *file = open_golden("halves.txt");
    double value;
    unsigned f16, bf16;
    int count = 0;

    (void)state;
    for (; fscanf(file, "%lf %u %u", &value, &f16, &bf16) == 3; count++) {
        if (trajd_f16_from_double(value) != f16 || trajd_bf16_from_double(value) != bf16)
            fail_msg("%.17g: f16 %u, expected %u; bf16 %u, expected %u", value,
                     trajd_f16_from_double(value), f16, trajd_bf16_from_double(value), bf16);
    }
    assert_true(feof(file) && count > 200);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_previous_and_nearest_are_exact),
        cmocka_unit_test(test_slerp),  cmocka_unit_test(test_angle),
        cmocka_unit_test(test_mean),   cmocka_unit_test(test_halves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
