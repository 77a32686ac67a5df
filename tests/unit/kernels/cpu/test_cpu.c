/* CPU variants against the reference: equal bit for bit, and within a bound for slerp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/dispatch/plan.h"
#include "kernels/pool.h"
#include "kernels/quaternion.h"
#include "proto/array_len.h"
#include "tests/support/random_problem.h"

static const uint32_t sizes[] = {1, 2, 7, 31, 32, 33, 1000};
static const struct trajd_device_facts one_thread = {.cpu_threads = 1};

/* Returns whether both are the same bytes, both NaN, or floats within the slack. */
static bool close_enough(enum trajd_dtype type, const void *a, const void *b, uint64_t count,
                         double slack)
{
    uint32_t size = trajd_dtype_size(type);

    for (uint64_t i = 0; i < count; i++) {
        const char *p = (const char *)a + i * size, *q = (const char *)b + i * size;
        double x, y;

        if (memcmp(p, q, size) == 0)
            continue;
        if (!trajd_dtype_is_float(type))
            return false;
        x = trajd_element_load(type, p);
        y = trajd_element_load(type, q);
        if (x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= slack))
            return false;
    }
    return true;
}

/* Returns one unit in the last place of the largest slerp value. With scale and offset in [-1, 1]
 * the values are below 4. */
static double slerp_slack(enum trajd_dtype type)
{
    switch (type) {
    case TRAJD_F16:
        return 0x1p-9;
    case TRAJD_BF16:
        return 0x1p-6;
    case TRAJD_F32:
        return 0x1p-22;
    default:
        return 4e-13;
    }
}

static void run_plan(struct problem *problem, const char *variant, uint32_t threads,
                     struct trajd_pool *pool)
{
    struct trajd_device_facts facts = {.cpu_threads = threads};
    struct trajd_error error = {0};
    struct trajd_plan *plan;

    if (trajd_plan_create(&problem->request, &facts, variant, &plan, &error) ||
        trajd_plan_run(plan, &problem->request, pool, &error))
        fail_msg("%s", error.message);
    trajd_plan_destroy(&plan);
    assert_null(plan);
}

/* If stamps do not ascend, the row that is found is unspecified. Then only the bytes outside the
 * outputs are compared. */
static void compare(const struct problem_spec *spec)
{
    struct problem problem;
    struct trajd_stream wanted;
    double slack = trajd_kind_is_slerp(spec->kind) ? slerp_slack(spec->output) : 0;
    bool defined = spec->unit == TRAJD_GRID_ROWS ||
                   (spec->stamps != STAMPS_REVERSED && spec->stamps != STAMPS_WILD);
    char name[256];

    problem_create(&problem, spec);
    trajd_resample_reference(&problem.request, 0, spec->windows);
    if (!problem_canaries_live(&problem))
        fail_msg("reference writes outside: %s", problem_name(&problem, name, sizeof name));
    wanted = problem.stream;
    problem_new_outputs(&problem);
    run_plan(&problem, "cpu_rows", 1, NULL);
    if (!problem_canaries_live(&problem))
        fail_msg("cpu_rows writes outside: %s", problem_name(&problem, name, sizeof name));
    if (defined && !close_enough(spec->output, wanted.output, problem.stream.output,
                                 problem.output_bytes / trajd_dtype_size(spec->output), slack))
        fail_msg("values differ: %s", problem_name(&problem, name, sizeof name));
    if (defined && wanted.mask && memcmp(wanted.mask, problem.stream.mask, problem.mask_bytes) != 0)
        fail_msg("masks differ: %s", problem_name(&problem, name, sizeof name));
    if (defined && wanted.derivative &&
        !close_enough(TRAJD_F32, wanted.derivative, problem.stream.derivative,
                      problem.derivative_bytes / 4, 0))
        fail_msg("derivatives differ: %s", problem_name(&problem, name, sizeof name));
    problem_destroy(&problem);
}

/* Compares two outputs: row w of the dense one with row window_rows[w] of the scattered one. */
static bool same_rows(const struct problem *problem, const void *dense, const void *scattered,
                      uint64_t stride)
{
    for (uint32_t w = 0; dense && w < problem->spec.windows; w++)
        if (memcmp((const char *)dense + w * stride,
                   (const char *)scattered + problem->request.window_rows[w] * stride, stride) != 0)
            return false;
    return true;
}

/* Checks that the rows in window_rows have the same bytes, and that other rows are unchanged. */
static void compare_scattered(const struct problem_spec *spec, const char *variant,
                              uint32_t threads, struct trajd_pool *pool)
{
    struct problem problem;
    struct trajd_stream dense;
    char name[256];

    problem_create(&problem, spec);
    run_plan(&problem, variant, threads, pool);
    dense = problem.stream;
    problem_scatter(&problem);
    run_plan(&problem, variant, threads, pool);
    if (!problem_canaries_live(&problem) || !problem_other_rows_live(&problem))
        fail_msg("%s writes rows of no window: %s", variant,
                 problem_name(&problem, name, sizeof name));
    if (!same_rows(&problem, dense.output, problem.stream.output, dense.window_stride_bytes) ||
        !same_rows(&problem, dense.mask, problem.stream.mask, dense.mask_window_stride_bytes) ||
        !same_rows(&problem, dense.derivative, problem.stream.derivative,
                   dense.derivative_window_stride_bytes))
        fail_msg("%s: rows differ: %s", variant, problem_name(&problem, name, sizeof name));
    problem_destroy(&problem);
}

static bool pair_exists(enum trajd_kind kind, enum trajd_dtype source, enum trajd_dtype output)
{
    if (output == TRAJD_F64)
        return source == TRAJD_F64;
    if (trajd_dtype_is_float(output))
        return true;
    return output == source && (kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST);
}

/* Compares every kind and pair of types at one size, with all stamp patterns and both grids. */
static void compare_types(enum trajd_kind kind, uint32_t features, uint64_t seed)
{
    if (trajd_kind_is_slerp(kind))
        features = (features + 3) / 4 * 4;
    for (int source = TRAJD_F16; source < TRAJD_DTYPE_COUNT; source++)
        for (int output = TRAJD_F16; output < TRAJD_DTYPE_COUNT; output++) {
            struct problem_spec spec = {
                .seed = ++seed,
                .windows = 1 + (uint32_t)(seed % 5),
                .rows = 1 + (uint32_t)(seed % 37),
                .steps = sizes[seed % 6],
                .features = features,
                .kind = kind,
                .source = (enum trajd_dtype)source,
                .output = (enum trajd_dtype)output,
                .stamps = (enum stamps_flavour)(seed % STAMPS_COUNT),
                .unit = seed % 4 == 0 ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
            };
            if (pair_exists(kind, spec.source, spec.output))
                compare(&spec);
        }
}

static void test_every_type_kind_and_size(void **state)
{
    (void)state;
    for (int kind = 0; kind < TRAJD_KIND_COUNT; kind++)
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
            compare_types((enum trajd_kind)kind, sizes[i], (uint64_t)kind * 1000003 + i * 997);
}

static void test_many_random_problems(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6000; seed++) {
        enum trajd_kind kind = (enum trajd_kind)(seed % TRAJD_KIND_COUNT);
        struct problem_spec spec = {
            .seed = seed * 7919,
            .windows = 1 + (uint32_t)(seed % 7),
            .rows = (uint32_t)(seed % 61) + (seed % 5 == 0 ? 500 : 1),
            .steps = 1 + (uint32_t)(seed % 19),
            .features = trajd_kind_is_slerp(kind) ? 4 : 1 + (uint32_t)(seed % 9),
            .kind = kind,
            .source = seed % 3 ? TRAJD_F32 : TRAJD_F64,
            .output = seed % 6 ? TRAJD_F32 : TRAJD_F64,
            .stamps = (enum stamps_flavour)(seed / 7 % STAMPS_COUNT),
            .unit = seed % 11 < 3 ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
        };
        compare(&spec);
    }
}

static void test_rows_of_windows(void **state)
{
    struct trajd_pool *pool;

    (void)state;
    assert_int_equal(trajd_pool_create(3, "test", &pool, NULL), TRAJD_OK);
    for (uint64_t seed = 1; seed <= 600; seed++) {
        const struct problem_spec spec = {
            .seed = seed * 6700417,
            .windows = seed % 20 ? 1 + (uint32_t)(seed % 9) : 700,
            .rows = 1 + (uint32_t)(seed % 41),
            .steps = seed % 50 ? 1 + (uint32_t)(seed % 19) : 300,
            .features = 4,
            .kind = (enum trajd_kind)(seed % TRAJD_KIND_COUNT),
            .source = TRAJD_F32,
            .output = TRAJD_F32,
            .stamps = seed % 2 ? STAMPS_JITTER : STAMPS_REGULAR,
            .unit = seed % 3 ? TRAJD_GRID_NS : TRAJD_GRID_ROWS,
        };
        compare_scattered(&spec, "cpu_rows", seed % 2 ? 1 : 3, seed % 2 ? NULL : pool);
        compare_scattered(&spec, "reference", 1, NULL);
    }
    trajd_pool_destroy(&pool);
}

static void test_longer_than_a_chunk(void **state)
{
    (void)state;
    for (int kind = 0; kind < TRAJD_KIND_COUNT; kind++)
        for (uint32_t steps = 255; steps <= 1000; steps += 255) {
            struct problem_spec spec = {
                steps,     3,         300,           steps,        4, (enum trajd_kind)kind,
                TRAJD_F32, TRAJD_F32, STAMPS_JITTER, TRAJD_GRID_NS};
            compare(&spec);
        }
}

/* Sums share work between steps and windows. The bits are those of the reference, which shares none. */
static void test_totals(void **state)
{
    static const uint32_t features[] = {1, 2, 64, 65, 130};

    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const struct problem_spec spec = {.seed = seed * 104729,
                                          .windows = 1 + (uint32_t)(seed % 9),
                                          .rows = 1 + (uint32_t)(seed % 41),
                                          .steps = seed % 50 ? 1 + (uint32_t)(seed % 19) : 300,
                                          .features = features[seed % 5],
                                          .kind = TRAJD_KIND_PREVIOUS,
                                          .source = seed % 3   ? TRAJD_F32
                                                    : seed % 2 ? TRAJD_F64
                                                               : TRAJD_U8,
                                          .output = seed % 4 ? TRAJD_F32 : TRAJD_BF16,
                                          .stamps = seed % 4 < 2 ? STAMPS_REGULAR : STAMPS_JITTER,
                                          .unit = seed % 2 ? TRAJD_GRID_ROWS : TRAJD_GRID_NS};
        struct problem problem;
        struct trajd_stream wanted;
        char name[256];

        problem_create(&problem, &spec);
        problem.stream.total = seed % 2 ? TRAJD_TOTAL_REST : TRAJD_TOTAL_STEP;
        problem.stream.total_width = 1 + (int64_t)(seed * 7919 % 90000000);
        problem.stream.total_gamma = seed % 7 ? 1 - 1 / (double)(seed % 7 + 1) : 1;
        trajd_resample_reference(&problem.request, 0, spec.windows);
        wanted = problem.stream;
        problem_new_outputs(&problem);
        run_plan(&problem, "cpu_rows", 1, NULL);
        if (!problem_canaries_live(&problem) ||
            !close_enough(spec.output, wanted.output, problem.stream.output,
                          problem.output_bytes / trajd_dtype_size(spec.output), 0) ||
            (wanted.mask && memcmp(wanted.mask, problem.stream.mask, problem.mask_bytes) != 0))
            fail_msg("totals differ: %s", problem_name(&problem, name, sizeof name));
        problem_destroy(&problem);
    }
}

/* The result has the same bits for any number of threads, with enough windows for many slices. */
static void test_threads_change_nothing(void **state)
{
    struct trajd_pool *pool;

    (void)state;
    assert_int_equal(trajd_pool_create(4, "test", &pool, NULL), TRAJD_OK);
    for (int kind = 0; kind < TRAJD_KIND_COUNT; kind++) {
        struct problem_spec spec = {(uint64_t)kind + 5,
                                    700,
                                    40,
                                    33,
                                    8,
                                    (enum trajd_kind)kind,
                                    TRAJD_F64,
                                    TRAJD_F32,
                                    STAMPS_JITTER,
                                    TRAJD_GRID_NS};
        struct problem problem;
        struct trajd_stream alone;

        problem_create(&problem, &spec);
        run_plan(&problem, NULL, 1, NULL);
        alone = problem.stream;
        problem_new_outputs(&problem);
        run_plan(&problem, "auto", 4, pool);
        assert_memory_equal(alone.output, problem.stream.output, problem.output_bytes);
        if (alone.mask)
            assert_memory_equal(alone.mask, problem.stream.mask, problem.mask_bytes);
        problem_destroy(&problem);
    }
    trajd_pool_destroy(&pool);
}

/* Two streams of different brackets share a mask. The largest code wins, in either order. */
static void test_joined_masks(void **state)
{
    int64_t stamps[] = {0, 10, 20}, begin = 0, three = 3, one = 1, anchor = 20,
            offsets[] = {-30, -10, 0};
    float v[] = {1, NAN, 3}, out[2][3];
    uint8_t mask[3], wanted[] = {TRAJD_MASK_BEFORE_START, TRAJD_MASK_NAN, TRAJD_MASK_AFTER_END};
    struct trajd_clock clock = {.stamps_ns = stamps};
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = 3, .offsets = offsets};
    struct trajd_bracket brackets[] = {
        {.row_begin = &begin, .row_count = &three, .anchor = &anchor},
        {.row_begin = &begin, .row_count = &one, .anchor = &anchor}};
    struct trajd_stream streams[2];
    struct trajd_resample_request request = {.window_count = 1,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .bracket_count = 2,
                                             .stream_count = 2,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = brackets,
                                             .streams = streams};
    struct trajd_plan *plan;

    (void)state;
    for (uint32_t s = 0; s < 2; s++)
        streams[s] = (struct trajd_stream){.bracket_index = 1 - s,
                                           .source_type = TRAJD_F32,
                                           .feature_count = 1,
                                           .row_stride_bytes = 4,
                                           .base = v,
                                           .max_gap_ns = -1,
                                           .max_age_ns = -1,
                                           .output_type = TRAJD_F32,
                                           .output = out[s],
                                           .window_stride_bytes = 12,
                                           .step_stride_bytes = 4,
                                           .mask = mask,
                                           .mask_window_stride_bytes = 3,
                                           .mask_joins_previous = (uint8_t)s};
    for (int variant = 0; variant < 2; variant++) {
        memset(mask, 0xee, sizeof mask);
        assert_int_equal(trajd_plan_create(&request, &one_thread,
                                           variant ? "reference" : "cpu_rows", &plan, NULL),
                         0);
        assert_int_equal(trajd_plan_run(plan, &request, NULL, NULL), TRAJD_OK);
        assert_memory_equal(mask, wanted, sizeof mask);
        assert_true(out[0][2] == 1 && out[1][2] == 3);
        trajd_plan_destroy(&plan);
    }
}

/* A row of NaN alone, among others, for each number of features and each pair of types that has
 * code of its own. */
static void test_rows_of_nan(void **state)
{
    static const uint32_t counts[] = {1, 3, 4, 5, 7, 8, 15, 16, 31, 32, 64, 100};
    static const enum trajd_dtype sources[] = {TRAJD_F32, TRAJD_F64, TRAJD_F16};
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_PREVIOUS,
                                            TRAJD_KIND_MEAN};

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(counts); c++)
        for (size_t t = 0; t < ARRAY_LEN(sources); t++)
            for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
                struct problem_spec spec = {k + 1,        4,         30,
                                            20,           counts[c], kinds[k],
                                            sources[t],   TRAJD_F32, STAMPS_JITTER,
                                            TRAJD_GRID_NS};
                struct trajd_stream wanted;
                struct problem problem;
                char name[256];
                problem_create(&problem, &spec);
                for (uint32_t row = 3; row < spec.rows; row += 7)
                    for (uint32_t d = 0; d < counts[c]; d++)
                        trajd_element_store(
                            sources[t],
                            (char *)problem.stream.base + row * problem.stream.row_stride_bytes +
                                (problem.stream.first_column + d) * trajd_dtype_size(sources[t]),
                            NAN);
                trajd_resample_reference(&problem.request, 0, spec.windows);
                wanted = problem.stream;
                problem_new_outputs(&problem);
                run_plan(&problem, "cpu_rows", 1, NULL);
                if (wanted.mask &&
                    memcmp(wanted.mask, problem.stream.mask, problem.mask_bytes) != 0)
                    fail_msg("masks differ: %s", problem_name(&problem, name, sizeof name));
                if (!close_enough(TRAJD_F32, wanted.output, problem.stream.output,
                                  problem.output_bytes / 4, 0))
                    fail_msg("values differ: %s", problem_name(&problem, name, sizeof name));
                problem_destroy(&problem);
            }
}

/* Whatever a plan was made for must be the same in a run. */
static void test_plan_refuses_other_shapes(void **state)
{
    struct problem_spec spec = {
        1, 4, 10, 5, 4, TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, STAMPS_JITTER, TRAJD_GRID_NS};
    struct trajd_bracket brackets[2];
    struct trajd_stream streams[2];
    struct problem problem;
    struct trajd_error error;
    struct trajd_plan *plan;

    (void)state;
    problem_create(&problem, &spec);
    problem.stream.derivative = NULL;
    brackets[0] = brackets[1] = problem.bracket;
    streams[0] = streams[1] = problem.stream;
    problem.request.brackets = brackets;
    problem.request.streams = streams;
    assert_int_equal(trajd_plan_create(&problem.request, &one_thread, NULL, &plan, &error),
                     TRAJD_OK);
    for (int change = 0; change < 9; change++) {
        struct trajd_grid grid = problem.grid;
        problem.request.bracket_count = change == 6 || change == 7 ? 2 : 1;
        problem.request.stream_count = change == 8 ? 2 : 1;
        problem.request.grids = &grid;
        streams[0] = problem.stream;
        streams[0].kind = change == 1 ? TRAJD_KIND_NEAREST : streams[0].kind;
        streams[0].source_type = change == 2 ? TRAJD_F16 : TRAJD_F32;
        streams[0].output_type = change == 3 ? TRAJD_F16 : TRAJD_F32;
        streams[0].feature_count -= change == 4;
        grid.step_count -= change == 5;
        streams[0].bracket_index = change == 6;
        if (trajd_plan_run(plan, &problem.request, NULL, &error) !=
            (change ? TRAJD_ERR_ARGUMENT : TRAJD_OK))
            fail_msg("change %d", change);
        if (change && !strstr(error.message, change < 6 ? "differ from the plan's"
                                                        : "number of streams or brackets differs"))
            fail_msg("change %d: %s", change, error.message);
    }
    trajd_plan_destroy(&plan);
    problem.request.window_count = 0;
    problem.request.bracket_count = problem.request.stream_count = 1;
    assert_int_equal(trajd_plan_create(&problem.request, &one_thread, NULL, &plan, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "window_count is 0"));
    problem_destroy(&problem);
}

static void test_plan_refuses(void **state)
{
    struct problem_spec spec = {
        1, 4, 10, 5, 3, TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, STAMPS_JITTER, TRAJD_GRID_NS};
    struct problem problem;
    struct trajd_error error;
    struct trajd_plan *plan;

    (void)state;
    problem_create(&problem, &spec);
    assert_int_equal(trajd_plan_create(&problem.request, &one_thread, "cpu_rowz", &plan, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "cpu_rows"));
    assert_null(plan);
    assert_int_equal(trajd_plan_create(&problem.request, &one_thread, NULL, &plan, &error),
                     TRAJD_OK);
    assert_non_null(strstr(trajd_plan_describe(plan), "cpu_rows"));
    problem.request.window_rows = (const uint32_t[]){0, 1, 2, 3};
    problem.request.output_row_count = 4;
    assert_int_equal(trajd_plan_run(plan, &problem.request, NULL, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "window_rows"));
    problem.request.window_rows = NULL;
    problem.request.window_count = 5;
    assert_int_equal(trajd_plan_run(plan, &problem.request, NULL, &error), TRAJD_ERR_ARGUMENT);
    problem.request.window_count = 0;
    assert_int_equal(trajd_plan_run(plan, &problem.request, NULL, &error), TRAJD_OK);
    problem.request.window_count = 3;
    assert_int_equal(trajd_plan_run(plan, &problem.request, NULL, &error), TRAJD_OK);
    problem.stream.kind = TRAJD_KIND_ANGLE;
    problem.stream.derivative = NULL;
    assert_int_equal(trajd_plan_run(plan, &problem.request, NULL, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "streams[0]"));
    trajd_plan_destroy(&plan);
    trajd_plan_destroy(&plan);
    problem_destroy(&problem);
}

/* A plan can be made before there are buffers. */
static void test_plan_from_shape_alone(void **state)
{
    struct trajd_clock clock = {.stamps_ns = NULL};
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = 4, .offsets = NULL};
    struct trajd_bracket bracket = {0};
    struct trajd_stream stream = {.source_type = TRAJD_F32,
                                  .output_type = TRAJD_F32,
                                  .feature_count = 2,
                                  .row_stride_bytes = 8,
                                  .window_stride_bytes = 32,
                                  .step_stride_bytes = 8};
    struct trajd_resample_request shape = {.window_count = 16,
                                           .clock_count = 1,
                                           .grid_count = 1,
                                           .bracket_count = 1,
                                           .stream_count = 1,
                                           .clocks = &clock,
                                           .grids = &grid,
                                           .brackets = &bracket,
                                           .streams = &stream};
    struct trajd_error error;
    struct trajd_plan *plan;

    (void)state;
    assert_int_equal(trajd_plan_create(&shape, &one_thread, "auto", &plan, &error), TRAJD_OK);
    assert_int_equal(trajd_plan_run(plan, &shape, NULL, &error), TRAJD_ERR_ARGUMENT);
    trajd_plan_destroy(&plan);
}

/* The threads share the work of request and `then`, which counts for the choice. */
static void test_then_is_work(void **state)
{
    static const struct trajd_device_facts two_threads = {.cpu_threads = 2};
    struct problem_spec spec = {
        1, 64, 10, 5, 3, TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, STAMPS_JITTER, TRAJD_GRID_NS};
    struct problem problem;
    struct trajd_error error;
    struct trajd_plan *plan;

    (void)state;
    problem_create(&problem, &spec);
    problem.stream.derivative = NULL;
    for (int long_then = 0; long_then < 2; long_then++) {
        assert_int_equal(trajd_plan_create_then(&problem.request, long_then ? 80000 : 0,
                                                &two_threads, NULL, &plan, &error),
                         TRAJD_OK);
        assert_non_null(
            strstr(trajd_plan_describe(plan), long_then ? "2 threads, 8" : "1 thread, "));
        trajd_plan_destroy(&plan);
    }
    problem_destroy(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_kind_and_size),
        cmocka_unit_test(test_many_random_problems),
        cmocka_unit_test(test_rows_of_windows),
        cmocka_unit_test(test_longer_than_a_chunk),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_joined_masks),
        cmocka_unit_test(test_rows_of_nan),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_plan_refuses_other_shapes),
        cmocka_unit_test(test_plan_from_shape_alone),
        cmocka_unit_test(test_then_is_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
