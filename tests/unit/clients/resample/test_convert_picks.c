/* Which source rows the steps take, on a plan made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "clients/cli/resample/plan/convert_plan.h"
#include "proto/array_len.h"

#define MS INT64_C(1000000)

enum { FRAMES, COPIES, DEPTH, TORQUE, MASKS, NEAR, DATASETS };

static struct trajd_convert_stream streams[] = {
    {.kind = TRAJD_KIND_PREVIOUS}, {.kind = TRAJD_KIND_LINEAR}, {.kind = TRAJD_KIND_NEAREST}};
static struct convert_lane held[] = {{.stream = &streams[0]}, {.stream = &streams[1]}};
static struct convert_lane nearest[] = {{.stream = &streams[0]}, {.stream = &streams[2]}};

/* In the input the datasets stand in another order. */
static struct convert_dataset datasets[DATASETS] = {
    [FRAMES] = {.from = TRAJD_U8, .clock = 0, .lanes = held, .lane_count = 2},
    [COPIES] = {.from = TRAJD_U8, .clock = 0, .lanes = held, .lane_count = 1},
    [DEPTH] = {.from = TRAJD_F64, .clock = 0, .lanes = nearest, .lane_count = 2},
    [TORQUE] = {.from = TRAJD_F64, .clock = 1, .lanes = held, .lane_count = 2},
    [MASKS] = {.from = TRAJD_U8, .clock = 0, .lanes = held, .lane_count = 1},
    [NEAR] = {.from = TRAJD_U8, .clock = 0, .lanes = nearest, .lane_count = 2},
};
static const uint32_t order[DATASETS] = {5, 4, 3, 2, 1, 0};
static const uint32_t *const orders[] = {order};

#define ROWS(n)                                                                                    \
    {                                                                                              \
        .rank = 1, .shape = {n}, .storage = TRAJD_STORAGE_CONTIGUOUS                               \
    }
static struct trajd_array extents[] = {ROWS(9), ROWS(10), ROWS(4), ROWS(9), ROWS(9), ROWS(9)};
static const int64_t stamps[] = {0, 40 * MS, 100 * MS, 200 * MS};
static const uint32_t kept_rows[] = {0, 2, 3, 7, 8, 9, 10, 11, 12, 13};
static struct trajd_episode_clock clocks[] = {{.row_count = 9, .rate = {20, 1}},
                                              {.row_count = 4, .stamps_ns = stamps}};
static struct trajd_episode episode = {.extents = extents, .clocks = clocks};
static const struct trajd_index input = {.episode_count = 1, .episodes = &episode};
static const struct trajd_index *const inputs[] = {&input};
static const struct trajd_convert_options options = {
    .indexes = inputs, .index_count = 1, .rate = {10, 1}};
static const struct convert_plan plan = {.options = &options,
                                         .dataset_count = DATASETS,
                                         .datasets = datasets,
                                         .source_datasets = (uint32_t *const *)orders};
static struct convert_array arrays[] = {
    {.dataset = TORQUE, .rows = 4}, {.dataset = DEPTH, .rows = 9}, {.dataset = FRAMES, .rows = 9},
    {.dataset = COPIES, .rows = 9}, {.dataset = MASKS, .rows = 9}, {.dataset = NEAR, .rows = 9}};
static const struct convert_episode made = {
    .begin_ns = 30 * MS, .array_count = ARRAY_LEN(arrays), .arrays = arrays};

static void the_ways_to_pick_are_found_once(void **state)
{
    static const uint32_t expected[ARRAY_LEN(arrays)] = {3, 0, 0, 0, 1, 2};
    struct convert_pick picks[CONVERT_PICKS_MAX];
    uint32_t of[ARRAY_LEN(arrays)];

    (void)state;
    /* frames, masks (of more rows), near (of the nearest row), then torque. Copies are picked as
     * frames are, and depth has the rows of frames. */
    assert_int_equal(convert_picks_find(&plan, &made, picks, of), 4);
    assert_true(picks[0].row_count == 9 && picks[0].kind == TRAJD_KIND_PREVIOUS);
    assert_true(picks[1].row_count == 10 && picks[1].kind == TRAJD_KIND_PREVIOUS);
    assert_true(picks[2].row_count == 9 && picks[2].kind == TRAJD_KIND_NEAREST);
    assert_true(picks[3].row_count == 4 && picks[3].clock == 1 && picks[3].rows == 4);
    assert_memory_equal(of, expected, sizeof of);
}

static void steps_take_previous_or_nearest_rows(void **state)
{
    static const struct {
        struct convert_pick pick;
        uint64_t rows[3]; /* of the steps at 30, 130 and 230 ms */
    } cases[] = {
        {{.clock = 0, .kind = TRAJD_KIND_PREVIOUS, .rows = 9}, {0, 2, 4}},
        {{.clock = 0, .kind = TRAJD_KIND_NEAREST, .rows = 9}, {1, 3, 5}},
        {{.clock = 0, .kind = TRAJD_KIND_NEAREST, .rows = 4}, {1, 3, 3}},
        {{.clock = 1, .kind = TRAJD_KIND_PREVIOUS, .rows = 4}, {0, 2, 3}},
        {{.clock = 1, .kind = TRAJD_KIND_NEAREST, .rows = 4}, {1, 2, 3}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (uint64_t step = 0; step < 3; step++)
            if (convert_pick_row(&plan, &made, &cases[i].pick, step) != cases[i].rows[step])
                fail_msg("case %zu, step %u", i, (unsigned)step);
}

/* In the middle between two rows the later one is taken. Rows of the file that the clock left out
 * are counted. */
static void rows_in_the_middle_and_left_out(void **state)
{
    const struct convert_pick pick = {.clock = 0, .kind = TRAJD_KIND_NEAREST, .rows = 9};
    struct convert_episode middle = made;

    (void)state;
    middle.begin_ns = 25 * MS;
    assert_int_equal(convert_pick_row(&plan, &middle, &pick, 0), 1);
    middle.begin_ns--;
    assert_int_equal(convert_pick_row(&plan, &middle, &pick, 0), 0);
    clocks[0].kept_rows = kept_rows;
    assert_int_equal(convert_pick_row(&plan, &made, &pick, 1), 7);
    clocks[0].kept_rows = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ways_to_pick_are_found_once),
        cmocka_unit_test(steps_take_previous_or_nearest_rows),
        cmocka_unit_test(rows_in_the_middle_and_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
