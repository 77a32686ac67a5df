/* Tables of measured launch shapes: good ones, bad ones, and the row found for a problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/cuda/pack.h"
#include "kernels/cuda/tuning.h"
#include "proto/array_len.h"

#define HEAD "trajd-tuning 1\n# a remark\norigin compute 90 NVIDIA H200, by hand\n"
#define SHAPE " tile 16 threads 128 tiles 1 stage 100 prefetch 1 vectors 2 producers 0 stages 0\n"
#define ROW "row path bf16 kind 0 search 1 B 32 S 100 T 256 D 128 us 3.04 style direct" SHAPE
#define LONG_ROW                                                                                   \
    "row path bf16 kind 0 search 1 B 64 S 4096 T 1024 D 32 us 6.8 style steps tile 64 threads "    \
    "128 tiles 1 stage 0 "                                                                         \
    "prefetch 2 "                                                                                  \
    "vectors 1 producers 0 stages 0\n"

static const struct trajd_device_facts h200 = {
    .cpu_threads = 1, .sm_count = 132, .compute_capability = 90};
static char memory[64] __attribute__((aligned(64)));

static enum trajd_status parse(const char *text, struct trajd_tuning **tuning,
                               struct trajd_error *error)
{
    return trajd_tuning_parse("t", text, strlen(text), tuning, error);
}

static void fill(struct trajd_cuda_problem *problem, uint32_t windows, uint32_t steps,
                 uint32_t features)
{
    static const int64_t numbers[1];
    struct trajd_clock clock = {.stamps_ns = numbers};
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = steps, .offsets = numbers};
    struct trajd_bracket bracket = {.row_begin = numbers, .row_count = numbers, .anchor = numbers};
    struct trajd_stream stream = {.source_type = TRAJD_BF16,
                                  .output_type = TRAJD_BF16,
                                  .feature_count = features,
                                  .row_stride_bytes = features * 2ull,
                                  .base = memory,
                                  .max_gap_ns = -1,
                                  .max_age_ns = -1,
                                  .output = memory,
                                  .step_stride_bytes = features * 2ull,
                                  .window_stride_bytes = (uint64_t)steps * features * 2};
    struct trajd_resample_request request = {.window_count = windows,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .bracket_count = 1,
                                             .stream_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = &bracket,
                                             .streams = &stream};

    trajd_cuda_pack(&request, 0, problem);
}

static void test_the_nearest_row_is_found(void **state)
{
    struct trajd_device_facts facts = h200;
    struct trajd_cuda_problem problem;
    struct trajd_tuning_found found;
    struct trajd_cuda_shape shape;
    struct trajd_tuning *tuning;
    struct trajd_error error;

    (void)state;
    assert_int_equal(parse(HEAD ROW LONG_ROW, &tuning, &error), TRAJD_OK);
    assert_int_equal(trajd_tuning_row_count(tuning), 2);
    fill(&problem, 40, 200, 128);
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 120, &found));
    assert_int_equal(found.line, 4);
    assert_int_equal(found.shape.style, TRAJD_CUDA_DIRECT);
    assert_int_equal(found.shape.vectors, 2);
    assert_int_equal(found.shape.stage_rows, 120); /* from the problem, not from the row */
    facts.tuning = tuning;
    shape = trajd_cuda_shape_of(&problem, &facts, 120);
    assert_int_equal(shape.tile_steps, 16);
    assert_int_equal(shape.overlaps, 1);
    /* windows of unknown length may be longer than any stage */
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 0, &found));
    assert_int_equal(found.line, 5);
    facts.compute_capability = 80;
    assert_false(trajd_tuning_find(tuning, &problem, &facts, 120, &found));
    shape = trajd_cuda_shape_of(&problem, &facts, 120);
    assert_int_equal(shape.overlaps, 0);
    trajd_tuning_destroy(&tuning);
    assert_null(tuning);
}

#define FULL_ROW(kind, search)                                                                     \
    "row path full kind " kind " search " search                                                   \
    " B 32 S 100 T 256 D 128 us 9 style tile tile 16 threads 128 tiles 1 stage 0 prefetch 0 "      \
    "vectors 1 "                                                                                   \
    "producers 0 stages 0\n"

/* Problems of different cost use different rows, even if another row is nearer in size. */
static void test_kinds_and_clocks_are_distinguished(void **state)
{
    struct trajd_cuda_problem problem;
    struct trajd_tuning_found found;
    struct trajd_tuning *tuning;
    struct trajd_error error;

    (void)state;
    assert_int_equal(
        parse(HEAD FULL_ROW("3", "1") FULL_ROW("6", "0") FULL_ROW("6", "2"), &tuning, &error),
        TRAJD_OK);
    fill(&problem, 32, 256, 128);
    problem.lean = 0;
    problem.streams[0].kind = TRAJD_KIND_SLERP_WXYZ;
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 100, &found));
    assert_int_equal(found.line, 4);
    problem.streams[0].kind = TRAJD_KIND_ANGLE;
    assert_false(trajd_tuning_find(tuning, &problem, &h200, 100, &found));
    problem.streams[0].kind = TRAJD_KIND_MEAN;
    assert_false(trajd_tuning_find(tuning, &problem, &h200, 100, &found));
    problem.brackets[0].rate = (struct trajd_rate){30, 1};
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 100, &found));
    assert_int_equal(found.line, 6);
    problem.brackets[0].unit = TRAJD_GRID_ROWS;
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 100, &found));
    assert_int_equal(found.line, 5);
    trajd_tuning_destroy(&tuning);
}

/* Reads the table that is installed beside the configuration. */
static void test_the_table_for_h200_is_read(void **state)
{
    struct trajd_tuning *tuning;
    struct trajd_error error;

    (void)state;
    assert_int_equal(
        trajd_tuning_load(TRAJD_SOURCE_DIR "/configs/tuning/nvidia-h200.tuning", &tuning, &error),
        TRAJD_OK);
    assert_int_equal(trajd_tuning_row_count(tuning), 299);
    trajd_tuning_destroy(&tuning);
}

/* For every row, the shape that is made from it fits. */
static void test_shapes_of_any_row_fit(void **state)
{
    static const uint32_t sizes[] = {1, 7, 33, 1000, 100000};
    struct trajd_device_facts facts = h200;
    struct trajd_cuda_problem problem;
    struct trajd_tuning *tuning;
    struct trajd_error error;
    char text[1024];

    (void)state;
    for (uint32_t style = 0; style < TRAJD_CUDA_STYLE_COUNT; style++) {
        snprintf(text, sizeof text,
                 HEAD "row path bf16 kind 0 search 1 B 1 S 9 T 1 D 1 us 1 style %s tile 4096 "
                      "threads 256 tiles 4096 "
                      "stage 4096 prefetch 15 "
                      "vectors 4 producers 4 stages 4\n",
                 trajd_cuda_style_name(style));
        assert_int_equal(parse(text, &tuning, &error), TRAJD_OK);
        facts.tuning = tuning;
        for (size_t t = 0; t < 5; t++)
            for (size_t d = 0; d < 5; d++) {
                struct trajd_cuda_shape shape;
                fill(&problem, 3, sizes[t], sizes[d]);
                shape = trajd_cuda_shape_of(&problem, &facts, sizes[(t + d) % 5]);
                assert_true(trajd_cuda_shape_fits(&problem, &shape));
            }
        trajd_tuning_destroy(&tuning);
    }
}

/* Rows of the style `stream`, which former releases had, are passed over. */
static void test_a_style_of_former_releases(void **state)
{
    static const char old[] =
        "row path bf16 kind 0 search 1 B 1 S 1 T 1 D 1 us 1 style stream tile 64 threads 256 tiles "
        "2 stage 16 prefetch 0 vectors 2 producers 2 stages 3\n";
    struct trajd_tuning *tuning;
    struct trajd_error error;
    char text[1024];

    (void)state;
    snprintf(text, sizeof text, HEAD "%s" ROW "%s", old, old);
    assert_int_equal(parse(text, &tuning, &error), TRAJD_OK);
    assert_int_equal(trajd_tuning_row_count(tuning), 1);
    trajd_tuning_destroy(&tuning);
}

static void test_a_row_is_read_as_it_was_written(void **state)
{
    const struct trajd_cuda_shape shape = {.tile_steps = 50,
                                           .thread_count = 64,
                                           .stage_rows = 300,
                                           .prefetch = 4,
                                           .style = TRAJD_CUDA_NARROW,
                                           .vectors = 1};
    struct trajd_cuda_problem problem;
    struct trajd_tuning_found found;
    struct trajd_tuning *tuning;
    struct trajd_error error;
    char text[1024] = HEAD;
    FILE *out;

    (void)state;
    fill(&problem, 1024, 50, 14);
    out = fmemopen(text + strlen(HEAD), sizeof text - strlen(HEAD), "w");
    trajd_tuning_print_row(out, &problem, 300, 5.25, &shape);
    fclose(out);
    assert_int_equal(parse(text, &tuning, &error), TRAJD_OK);
    assert_true(trajd_tuning_find(tuning, &problem, &h200, 300, &found));
    assert_memory_equal(&found.shape, &shape, sizeof shape);
    assert_true(found.us == 5.25);
    trajd_tuning_destroy(&tuning);
}

static void test_bad_tables(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "no rows"},
        {"trajd-tuning 2\n", "t:1: the first line is not trajd-tuning 1"},
        {HEAD, "no rows"},
        {"trajd-tuning 1\n" ROW, "t:2: a row before the first origin"},
        {"trajd-tuning 1\norigin compute 70 V100\n" ROW, "t:2: origin"},
        {HEAD "rows\n", "t:4: neither origin nor row: rows"},
        {HEAD "row path bf17 search 1\n", "t:4: path: bf17"},
        {HEAD "row path bf16 kind 0 search 3\n", "t:4: search: 3"},
        {HEAD "row path bf16 kind 0 search 1 B 0\n", "t:4: B: 0"},
        {HEAD "row path bf16 kind 0 search 1 B 99999999999\n", "t:4: B: 99999999999"},
        {HEAD "row path bf16 kind 0 search 1 B -1\n", "t:4: B: -1"},
        {HEAD "row path bf16 kind 0 search 1 B 1 S 1 T 1 D 1 us nan style direct" SHAPE,
         "t:4: us: nan"},
        {HEAD "row path bf16 kind 0 search 1 B 1 S 1 T 1 D 1 us 1 style fast" SHAPE,
         "t:4: style: fast"},
        {HEAD "row path bf16 kind 0 search 1 B\n", "t:4: no value of B"},
        {HEAD "row path bf16 kind 0 B 1\n", "t:4: a row goes on with search"},
        {HEAD "row path bf16 kind 7\n", "t:4: kind: 7"},
        {HEAD "row path bf16 kind 0 search 1 B 1 S 1 T 1 D 1 us 1 style steps tile 1 threads 33 "
              "tiles 1 stage 0 "
              "prefetch 0 vectors 1 "
              "producers 0 stages 0\n",
         "t:4: threads"},
        {HEAD "row path bf16 kind 0 search 1 B 1 S 1 T 1 D 1 us 1 style steps tile 1 threads 32 "
              "tiles 1 stage 0 "
              "prefetch 0 vectors 1 "
              "producers 0 stages 0 more\n",
         "t:4: more than a row has"},
    };
    struct trajd_tuning *tuning;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(parse(bad[i].text, &tuning, &error), TRAJD_ERR_ARGUMENT);
        assert_null(tuning);
        if (!strstr(error.message, bad[i].message))
            fail_msg("%s, expected: %s", error.message, bad[i].message);
    }
    assert_int_equal(trajd_tuning_load("/nowhere/x", &tuning, &error), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nearest_row_is_found),
        cmocka_unit_test(test_kinds_and_clocks_are_distinguished),
        cmocka_unit_test(test_the_table_for_h200_is_read),
        cmocka_unit_test(test_shapes_of_any_row_fit),
        cmocka_unit_test(test_a_style_of_former_releases),
        cmocka_unit_test(test_a_row_is_read_as_it_was_written),
        cmocka_unit_test(test_bad_tables),
    };

    return cmocka_run_group_tests_name("kernels/tuning", tests, NULL, NULL);
}
