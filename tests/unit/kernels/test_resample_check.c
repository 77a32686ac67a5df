/* trajd_resample_check: bad requests are refused, with a message that names the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proto/array_len.h"
#include "unit/kernels/small_request.h"

/* Changes one field of a good request, and gives the words that the message must contain. */
struct bad {
    const char *words;
    enum trajd_status status;
    void (*change)(struct small_request *one);
};

static void set_bad_kind(struct small_request *one)
{
    one->stream.kind = (enum trajd_kind)7;
}
static void set_bad_edge(struct small_request *one)
{
    one->stream.edge = (enum trajd_edge) - 1;
}
static void set_bad_source(struct small_request *one)
{
    one->stream.source_type = TRAJD_DTYPE_NONE;
}
static void set_bad_pair(struct small_request *one)
{
    one->stream.source_type = TRAJD_F32;
}
static void set_bad_integer(struct small_request *one)
{
    one->stream.source_type = one->stream.output_type = TRAJD_I64;
}
static void set_integers(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_PREVIOUS;
    one->stream.source_type = one->stream.output_type = TRAJD_I64;
}
static void set_bad_integer_edge(struct small_request *one)
{
    set_integers(one), one->stream.edge = TRAJD_EDGE_NAN;
}
static void set_bad_integer_scale(struct small_request *one)
{
    set_integers(one), one->stream.scale = one->stream.offset = one->derivative;
}
static void set_bad_features(struct small_request *one)
{
    one->stream.feature_count = 0;
}
static void set_bad_quaternion(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_SLERP_XYZW;
}
static void set_total(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_PREVIOUS, one->stream.total = TRAJD_TOTAL_REST;
    one->grid.unit = TRAJD_GRID_ROWS;
}
static void set_bad_total(struct small_request *one)
{
    one->stream.total = TRAJD_TOTAL_COUNT;
}
static void set_bad_total_kind(struct small_request *one)
{
    set_total(one), one->stream.kind = TRAJD_KIND_LINEAR;
}
static void set_bad_total_type(struct small_request *one)
{
    set_total(one), one->stream.source_type = one->stream.output_type = TRAJD_I64;
}
static void set_bad_gamma(struct small_request *one)
{
    set_total(one), one->stream.total_gamma = NAN;
}
static void set_bad_width(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_MEAN, one->stream.mean_width = 0;
}
static void set_bad_period(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_ANGLE, one->stream.angle_period = NAN;
}
static void set_bad_low(struct small_request *one)
{
    one->stream.kind = TRAJD_KIND_ANGLE, one->stream.angle_low = INFINITY;
}
static void set_bad_row_stride(struct small_request *one)
{
    one->stream.first_column = 1;
}
static void set_bad_alignment(struct small_request *one)
{
    one->stream.base = (char *)one->rows + 4;
}
static void set_bad_base(struct small_request *one)
{
    one->stream.base = NULL;
}
static void set_bad_output(struct small_request *one)
{
    one->stream.output = NULL;
}
static void set_bad_step_stride(struct small_request *one)
{
    one->stream.step_stride_bytes = 0;
}
static void set_bad_size(struct small_request *one)
{
    one->stream.step_stride_bytes = INT64_MAX / 8 * 8;
}
static void set_bad_scale(struct small_request *one)
{
    one->stream.scale = one->derivative;
}
static void set_bad_derivative(struct small_request *one)
{
    small_request_add_derivative(one), one->stream.kind = TRAJD_KIND_NEAREST;
}
static void set_bad_join(struct small_request *one)
{
    one->stream.mask_joins_previous = 1;
}
static void set_dense_and_arrays(struct small_request *one)
{
    one->bracket.dense_row_count = 4;
}
static void set_half_of_range(struct small_request *one)
{
    static const uint32_t end = 1;

    one->bracket.too_old_end = &end;
}

static void set_bad_dense(struct small_request *one)
{
    one->bracket = (struct trajd_bracket){.dense_row_count = UINT64_MAX};
}
static void set_bad_bracket(struct small_request *one)
{
    one->stream.bracket_index = 1;
}
static void set_bad_clock_index(struct small_request *one)
{
    one->bracket.clock_index = 1;
}
static void set_bad_grid_index(struct small_request *one)
{
    one->bracket.grid_index = UINT32_MAX;
}
static void set_bad_anchor(struct small_request *one)
{
    one->bracket.anchor = NULL;
}
static void set_bad_clock(struct small_request *one)
{
    one->clock.stamps_ns = NULL;
}
static void set_bad_rate(struct small_request *one)
{
    one->clock.stamps_ns = NULL, one->clock.rate = (struct trajd_rate){-1, 1};
}
static void set_bad_both(struct small_request *one)
{
    one->clock.rate = (struct trajd_rate){1, 1};
}
static void set_bad_steps(struct small_request *one)
{
    one->grid.step_count = 0;
}
static void set_bad_offsets(struct small_request *one)
{
    one->grid.offsets = NULL;
}
static void set_bad_per_window(struct small_request *one)
{
    one->grid.offsets_per_window = 5;
}
static void set_bad_unit(struct small_request *one)
{
    one->grid.unit = (enum trajd_grid_unit)2;
}
static void set_bad_list(struct small_request *one)
{
    one->request.streams = NULL;
}

static const struct bad bads[] = {
    {"streams[0]: kind", TRAJD_ERR_ARGUMENT, set_bad_kind},
    {"edge", TRAJD_ERR_ARGUMENT, set_bad_edge},
    {"source_type", TRAJD_ERR_ARGUMENT, set_bad_source},
    {"f64 is an output of f64", TRAJD_ERR_UNSUPPORTED, set_bad_pair},
    {"integer output", TRAJD_ERR_UNSUPPORTED, set_bad_integer},
    {"edge NaN needs a floating-point output", TRAJD_ERR_UNSUPPORTED, set_bad_integer_edge},
    {"normalisation needs a floating", TRAJD_ERR_UNSUPPORTED, set_bad_integer_scale},
    {"feature_count is 0", TRAJD_ERR_ARGUMENT, set_bad_features},
    {"multiple of 4", TRAJD_ERR_ARGUMENT, set_bad_quaternion},
    {"mean_width", TRAJD_ERR_ARGUMENT, set_bad_width},
    {"total is unknown", TRAJD_ERR_ARGUMENT, set_bad_total},
    {"total needs kind previous", TRAJD_ERR_UNSUPPORTED, set_bad_total_kind},
    {"total needs a floating-point", TRAJD_ERR_UNSUPPORTED, set_bad_total_type},
    {"total_gamma", TRAJD_ERR_ARGUMENT, set_bad_gamma},
    {"angle_period", TRAJD_ERR_ARGUMENT, set_bad_period},
    {"angle_low", TRAJD_ERR_ARGUMENT, set_bad_low},
    {"row_stride_bytes", TRAJD_ERR_ARGUMENT, set_bad_row_stride},
    {"multiples of the element", TRAJD_ERR_ARGUMENT, set_bad_alignment},
    {"base and bases", TRAJD_ERR_ARGUMENT, set_bad_base},
    {"output is NULL", TRAJD_ERR_ARGUMENT, set_bad_output},
    {"strides overlap", TRAJD_ERR_ARGUMENT, set_bad_step_stride},
    {"beyond 2^63", TRAJD_ERR_ARGUMENT, set_bad_size},
    {"scale and offset", TRAJD_ERR_ARGUMENT, set_bad_scale},
    {"no derivative", TRAJD_ERR_UNSUPPORTED, set_bad_derivative},
    {"mask_joins_previous", TRAJD_ERR_ARGUMENT, set_bad_join},
    {"brackets[0]: has dense_row_count", TRAJD_ERR_ARGUMENT, set_dense_and_arrays},
    {"brackets[0]: too_old_begin and too_old_end must both be", TRAJD_ERR_ARGUMENT,
     set_half_of_range},
    {"brackets[0]: dense_row_count is too large", TRAJD_ERR_ARGUMENT, set_bad_dense},
    {"streams[0]: bracket_index", TRAJD_ERR_ARGUMENT, set_bad_bracket},
    {"brackets[0]: clock_index", TRAJD_ERR_ARGUMENT, set_bad_clock_index},
    {"grid_index", TRAJD_ERR_ARGUMENT, set_bad_grid_index},
    {"anchor is NULL", TRAJD_ERR_ARGUMENT, set_bad_anchor},
    {"needs a clock", TRAJD_ERR_ARGUMENT, set_bad_clock},
    {"clocks[0]: rate", TRAJD_ERR_ARGUMENT, set_bad_rate},
    {"both stamps and a rate", TRAJD_ERR_ARGUMENT, set_bad_both},
    {"grids[0]: step_count", TRAJD_ERR_ARGUMENT, set_bad_steps},
    {"offsets is NULL", TRAJD_ERR_ARGUMENT, set_bad_offsets},
    {"offsets_per_window", TRAJD_ERR_ARGUMENT, set_bad_per_window},
    {"unit", TRAJD_ERR_ARGUMENT, set_bad_unit},
    {"a list is NULL", TRAJD_ERR_ARGUMENT, set_bad_list},
};

static void test_bad_rows(void **state)
{
    const uint32_t equal[] = {1, 1}, down[] = {2, 1}, beyond[] = {0, 3}, good[] = {0, 2};
    struct trajd_error error;
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    one.grid.step_count = 3;
    one.request.window_count = 2;
    one.request.window_rows = good;
    one.request.output_row_count = 1;
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "2 windows into output_row_count 1"));
    one.request.output_row_count = 3;
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_OK);
    assert_int_equal(trajd_resample_check_rows(&one.request, &error), TRAJD_OK);
    for (size_t i = 0; i < 3; i++) {
        one.request.window_rows = (const uint32_t *[]){equal, down, beyond}[i];
        assert_int_equal(trajd_resample_check_rows(&one.request, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "window_rows[1]"));
    }
    one.request.window_rows = good;
    /* output rows that are not written must fit too */
    one.request.output_row_count = UINT32_MAX;
    one.stream.window_stride_bytes = UINT64_MAX / 8;
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "size"));
}

/* The derivative of a quaternion has three numbers: steps may be as close as these need. */
static void test_steps_of_a_derivative(void **state)
{
    struct trajd_error error;
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_SLERP_XYZW, 1, small_request_ramp);
    small_request_add_derivative(&one);
    one.grid.step_count = 3;
    one.stream.feature_count = 12; /* the check reads no rows */
    one.stream.row_stride_bytes = one.stream.step_stride_bytes = 12 * sizeof(double);
    one.stream.window_stride_bytes = 3 * one.stream.step_stride_bytes;
    one.stream.derivative_window_stride_bytes = 3 * 9 * sizeof(float);
    one.stream.derivative_step_stride_bytes = 9 * sizeof(float);
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_OK);
    one.stream.derivative_step_stride_bytes = 8 * sizeof(float);
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "derivative strides overlap"));
}

/* A stride counts as soon as there are two windows or two steps. */
static void test_strides_are_aligned(void **state)
{
    struct trajd_error error;
    struct small_request one;

    (void)state;
    for (uint32_t windows = 1; windows < 3; windows++)
        for (uint32_t steps = 1; steps < 3; steps++)
            for (int of_steps = 0; of_steps < 2; of_steps++) {
                small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
                one.grid.step_count = steps;
                one.request.window_count = windows;
                one.stream.window_stride_bytes = 160 + !of_steps;
                one.stream.step_stride_bytes = 16 + of_steps;
                assert_int_equal(trajd_resample_check(&one.request, &error),
                                 (of_steps ? steps : windows) > 1 ? TRAJD_ERR_ARGUMENT : TRAJD_OK);
            }
}

/* Streams of one mask: the mask, its stride and the steps are the same. */
static void test_joined_masks(void **state)
{
    static const char *const words[] = {"",
                                        "mask_joins_previous must be 0 or 1",
                                        "mask, stride or step_count differ",
                                        "mask, stride or step_count differ",
                                        "mask, stride or step_count differ",
                                        "mask strides overlap"};
    uint8_t mask[64];

    (void)state;
    for (size_t change = 0; change < ARRAY_LEN(words); change++) {
        struct trajd_error error;
        struct small_request one;
        struct trajd_bracket brackets[2];
        struct trajd_stream streams[2];
        struct trajd_grid grids[2];
        small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
        one.grid.step_count = 3;
        one.request.window_count = 2;
        one.stream.mask = mask;
        one.stream.mask_window_stride_bytes = 3;
        grids[0] = grids[1] = one.grid;
        grids[1].step_count = 2;
        brackets[0] = brackets[1] = one.bracket;
        brackets[1].grid_index = 1;
        streams[0] = streams[1] = one.stream;
        streams[1].mask_joins_previous = change == 1 ? 2 : 1;
        streams[1].mask += change == 2;
        streams[1].mask_window_stride_bytes += change == 3;
        streams[1].bracket_index = change == 4;
        streams[0].mask_window_stride_bytes -= change == 5;
        one.request.grids = grids;
        one.request.brackets = brackets;
        one.request.streams = streams;
        one.request.grid_count = one.request.bracket_count = one.request.stream_count = 2;
        if (trajd_resample_check(&one.request, &error) != (change ? TRAJD_ERR_ARGUMENT : TRAJD_OK))
            fail_msg("change %zu", change);
        if (change && !strstr(error.message, words[change]))
            fail_msg("change %zu: %s", change, error.message);
    }
}

static void test_bad_requests(void **state)
{
    struct trajd_error error;
    struct small_request one;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
        one.grid.step_count = 3;
        assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_OK);
        bads[i].change(&one);
        assert_int_equal(trajd_resample_check(&one.request, &error), bads[i].status);
        if (!strstr(error.message, bads[i].words))
            fail_msg("'%s' lacks '%s'", error.message, bads[i].words);
        assert_int_equal(trajd_resample_check(&one.request, NULL), bads[i].status);
    }
    assert_int_equal(trajd_resample_check(NULL, &error), TRAJD_ERR_ARGUMENT);
    one.request.window_count = 0;
    assert_int_equal(trajd_resample_check(&one.request, &error), TRAJD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_steps_of_a_derivative),
        cmocka_unit_test(test_strides_are_aligned),
        cmocka_unit_test(test_joined_masks),
        cmocka_unit_test(test_bad_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
