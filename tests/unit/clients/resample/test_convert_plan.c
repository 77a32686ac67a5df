/* The files in plan/: datasets, grids and segments, on an index made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "clients/cli/resample/convert_rows.h"
#include "proto/array_len.h"

#define LAYOUT                                                                                     \
    "layout: hand\n"                                                                               \
    "episodes: {files: \"*.hdf5\", groups: /data/demo_*}\n"                                        \
    "clocks: {slow: {rate: 20, start: {path: t0, unit: ns}}, arm: {path: t, unit: ns}}\n"          \
    "streams:\n"                                                                                   \
    "  pos: {path: pose, columns: \"0:3\", clock: slow, kind: linear}\n"                           \
    "  quat: {path: pose, columns: \"3:7\", clock: slow, kind: slerp, order: wxyz}\n"              \
    "  joints: {path: joints, clock: arm, kind: angle}\n"

/* Datasets: 0 joints (arm), 1 pose (slow, 8 columns), 2 t. Episode: pose rows at 0, 50, 100, 150,
 * 200 ms; joints at 30, 41, 119, 170 ms. */
struct hand {
    struct trajd_layout *layout;
    struct trajd_index_file file;
    struct trajd_index_array datasets[3];
    struct trajd_index_stream streams[3];
    struct trajd_index_clock clocks[2];
    struct trajd_array arrays[3];
    int64_t stamps[4];
    struct trajd_episode_clock episode_clocks[2];
    const char *keys[2];
    struct trajd_episode episodes[2];
    struct trajd_index index;
};

static struct trajd_array array_of(uint64_t rows, uint64_t columns, enum trajd_dtype dtype)
{
    return (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                .dtype = dtype,
                                .rank = columns ? 2 : 1,
                                .shape = {rows, columns},
                                .offset = 4096,
                                .size_bytes =
                                    rows * (columns ? columns : 1) * trajd_dtype_size(dtype)};
}

static void set_up(struct hand *hand)
{
    static const int64_t stamps[] = {30000000, 41000000, 119000000, 170000000};
    struct trajd_error error;

    *hand = (struct hand){.file = {.path = "/x/hand.hdf5", .relative_path = "hand.hdf5"},
                          .datasets = {{"joints"}, {"pose"}, {"t"}},
                          .keys = {"train"}};
    assert_int_equal(trajd_layout_parse("hand", LAYOUT, strlen(LAYOUT), &hand->layout, &error),
                     TRAJD_OK);
    hand->streams[0] = (struct trajd_index_stream){.name = "pos",
                                                   .array_index = 1,
                                                   .clock_index = 0,
                                                   .kind = TRAJD_KIND_LINEAR,
                                                   .dtype = TRAJD_F64,
                                                   .feature_count = 3,
                                                   .rank = 1,
                                                   .shape = {3},
                                                   .max_gap_ns = -1};
    hand->streams[1] = (struct trajd_index_stream){.name = "quat",
                                                   .array_index = 1,
                                                   .clock_index = 0,
                                                   .kind = TRAJD_KIND_SLERP_WXYZ,
                                                   .dtype = TRAJD_F64,
                                                   .first_column = 3,
                                                   .feature_count = 4,
                                                   .rank = 1,
                                                   .shape = {4},
                                                   .max_gap_ns = -1};
    hand->streams[2] = (struct trajd_index_stream){.name = "joints",
                                                   .array_index = 0,
                                                   .clock_index = 1,
                                                   .kind = TRAJD_KIND_ANGLE,
                                                   .dtype = TRAJD_F32,
                                                   .feature_count = 7,
                                                   .rank = 1,
                                                   .shape = {7},
                                                   .max_gap_ns = -1,
                                                   .angle_period = 6.28};
    hand->clocks[0] = (struct trajd_index_clock){"slow", true};
    hand->clocks[1] = (struct trajd_index_clock){"arm", false};
    hand->arrays[0] = array_of(4, 7, TRAJD_F32);
    hand->arrays[1] = array_of(5, 8, TRAJD_F64);
    hand->arrays[2] = array_of(4, 0, TRAJD_I64);
    memcpy(hand->stamps, stamps, sizeof stamps);
    hand->episode_clocks[0] = (struct trajd_episode_clock){.row_count = 5, .rate = {20, 1}};
    hand->episode_clocks[1] =
        (struct trajd_episode_clock){.row_count = 4, .stamps_ns = hand->stamps};
    for (int e = 0; e < 2; e++)
        hand->episodes[e] = (struct trajd_episode){.id = e ? "demo_7" : "demo_3",
                                                   .extents = hand->arrays,
                                                   .clocks = hand->episode_clocks,
                                                   .filter_keys = e ? hand->keys : NULL};
    hand->index = (struct trajd_index){.layout = hand->layout,
                                       .file_count = 1,
                                       .files = &hand->file,
                                       .array_count = 3,
                                       .arrays = hand->datasets,
                                       .stream_count = 3,
                                       .streams = hand->streams,
                                       .clock_count = 2,
                                       .clocks = hand->clocks,
                                       .episode_count = 2,
                                       .episodes = hand->episodes,
                                       .kept_count = 2};
}

static struct trajd_convert_options options_of(const struct trajd_index *const *indexes,
                                               int64_t num, int64_t den)
{
    return (struct trajd_convert_options){.indexes = indexes, .index_count = 1, .rate = {num, den}};
}

static const struct convert_dataset *find(const struct convert_plan *plan, const char *path)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (!strcmp(plan->datasets[d].path, path))
            return &plan->datasets[d];
    return NULL;
}

static void the_grid_is_the_span_of_all_streams(void **state)
{
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 2);
    /* joints begin last, and end first: at 170 ms */
    assert_int_equal(plan.episodes[0].begin_ns, 30000000);
    assert_int_equal(plan.episodes[0].step_count, 15);
    assert_int_equal(plan.step_count, 30);
    assert_int_equal(plan.duration_ns, 2 * 140000000);
    trajd_arena_free(&plan.arena);
    /* 33366666.6 ns: four of them are 133.5 ms, a fifth is outside */
    options.rate = (struct trajd_rate){30000, 1001};
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episodes[1].step_count, 5);
    assert_int_equal(convert_step_ns(&plan, 3), 100100000);
    trajd_arena_free(&plan.arena);
    hand.episode_clocks[0].start_ns = 170000000; /* the streams overlap at a single time */
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episodes[0].step_count, 1);
    trajd_arena_free(&plan.arena);
    hand.episode_clocks[0].start_ns = 170000001;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_ERR_DATA);
    assert_int_equal(plan.left_out, 2);
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}

static void count_note(void *context, const char *text)
{
    if (strstr(text, "quaternion"))
        ++*(int *)context;
}

/* Steps that are rows blend nothing, but a mean does. */
static void quaternions_that_are_blended_are_noted(void **state)
{
    static const struct {
        enum trajd_kind kind;
        int64_t rate;
        int notes;
    } cases[] = {{TRAJD_KIND_LINEAR, 10, 0},
                 {TRAJD_KIND_LINEAR, 30, 1},
                 {TRAJD_KIND_PREVIOUS, 30, 0},
                 {TRAJD_KIND_MEAN, 10, 1}};
    const struct trajd_quaternion quaternion = {.column = 3};
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_convert_options options = options_of(indexes, cases[i].rate, 1);
        struct convert_plan plan;
        struct trajd_error error;
        int notes = 0;
        set_up(&hand);
        hand.index.clock_count = 1; /* the arm's clock is left out, with its stream */
        hand.index.stream_count = 2;
        hand.datasets[1].quaternions = &quaternion;
        hand.datasets[1].quaternion_count = 1;
        hand.streams[1].kind = cases[i].kind;
        options.on_note = count_note;
        options.context = &notes;
        if (convert_plan_make(&options, &plan, &error))
            fail_msg("%s", error.message);
        assert_int_equal(notes, cases[i].notes);
        trajd_arena_free(&plan.arena);
        trajd_layout_destroy(&hand.layout);
    }
}

static void columns_belong_to_their_streams(void **state)
{
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    const char *chosen[] = {"quat"};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    const struct convert_dataset *pose, *stamps;
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.dataset_count, 3);
    pose = find(&plan, "pose");
    assert_int_equal(pose->lane_count, 3); /* 0:3, 3:7, and column 7 without a stream */
    assert_int_equal(pose->lanes[1].stream->kind, TRAJD_KIND_SLERP_WXYZ);
    assert_int_equal(pose->lanes[1].first_column, 3);
    assert_null(pose->lanes[2].stream->source);
    assert_int_equal(pose->lanes[2].stream->kind, TRAJD_KIND_PREVIOUS);
    stamps = find(&plan, "t");
    assert_int_equal(stamps->stamps_column, 0);
    assert_int_equal(stamps->lane_count, 0);
    trajd_arena_free(&plan.arena);
    /* the whole dataset is included, the dataset of the other clock is not */
    options.streams = chosen;
    options.stream_count = 1;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.dataset_count, 1);
    assert_int_equal(plan.stream_count, 2);
    assert_int_equal(plan.episodes[0].begin_ns, 0);
    assert_int_equal(plan.episodes[0].step_count, 21);
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}

static void episodes_with_other_row_shapes_are_left_out(void **state)
{
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct trajd_array arrays[3];
    struct trajd_episode_clock clocks[2];
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    memcpy(arrays, hand.arrays, sizeof arrays);
    memcpy(clocks, hand.episode_clocks, sizeof clocks);
    hand.episodes[1].extents = arrays;
    hand.episodes[1].clocks = clocks;
    arrays[1] = array_of(5, 9, TRAJD_F64); /* its streams are columns 0:7, which are unchanged */
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 1);
    assert_int_equal(plan.left_out, 1);
    trajd_arena_free(&plan.arena);
    arrays[1] = array_of(5, 8, TRAJD_F32);
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.left_out, 1);
    trajd_arena_free(&plan.arena);
    arrays[1] = hand.arrays[1]; /* no joints, so no stream uses the stamps that exist */
    arrays[0].storage = TRAJD_STORAGE_ABSENT;
    clocks[1] = (struct trajd_episode_clock){0};
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 2);
    assert_int_equal(plan.episodes[1].array_count, 1);
    assert_int_equal(plan.episodes[1].begin_ns, 0);
    trajd_arena_free(&plan.arena);
    ((struct trajd_layout_clock *)hand.layout->clocks)[1].stamps_column = 3;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "column 3"));
    trajd_arena_free(&plan.arena);
    ((struct trajd_layout_clock *)hand.layout->clocks)[1].stamps_column = 0;
    ((struct trajd_layout_clock *)hand.layout->clocks)[1].unit = TRAJD_UNIT_MS;
    options.rate = (struct trajd_rate){1000, 1};
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    trajd_arena_free(&plan.arena);
    options.rate = (struct trajd_rate){1001, 1}; /* two steps in one millisecond */
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "which would repeat at 1001 Hz"));
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}
static void rules_are_checked(void **state)
{
    static const struct {
        struct trajd_convert_rule rule;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {{.stream = "pos", .kind = TRAJD_KIND_SLERP_XYZW}, TRAJD_ERR_ARGUMENT, "multiple of 4"},
        {{.stream = "quad", .kind = TRAJD_KIND_LINEAR}, TRAJD_ERR_NOT_FOUND, "did you mean quat?"},
        {{.stream = "joints", .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F64},
         TRAJD_ERR_UNSUPPORTED,
         "cannot be widened"},
        {{.stream = "joints", .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_I32},
         TRAJD_ERR_ARGUMENT,
         "cannot be written"},
        {{.stream = NULL, .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_BF16},
         TRAJD_ERR_UNSUPPORTED,
         "bfloat16"},
        {{.stream = "pos", .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F32}, TRAJD_OK, NULL},
        {{.stream = "joints", .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 78000000},
         TRAJD_OK,
         NULL},
        {{.stream = "joints", .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 77999999},
         TRAJD_OK,
         NULL},
        {{.stream = NULL, .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 1},
         TRAJD_ERR_DATA,
         "were left out"},
        {{.stream = "quat", .kind = TRAJD_KIND_SLERP_XYZW, .layout_order = true}, TRAJD_OK, NULL},
    };
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    options.rule_count = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        options.rules = &cases[i].rule;
        assert_int_equal(convert_plan_make(&options, &plan, &error), cases[i].status);
        if (cases[i].word)
            assert_non_null(strstr(error.message, cases[i].word));
        else if (cases[i].rule.layout_order)
            assert_int_equal(plan.streams[1]->kind, TRAJD_KIND_SLERP_WXYZ);
        else if (cases[i].rule.dtype) /* one dataset has one type, so quat has it, too */
            assert_int_equal(plan.streams[1]->to, TRAJD_F32);
        trajd_arena_free(&plan.arena);
    }
    trajd_layout_destroy(&hand.layout);
}

/* joints at 30, 41, 119, 170 ms. */
static void episodes_are_split_at_gaps(void **state)
{
    const struct trajd_convert_rule rules[] = {
        {.stream = "joints", .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 77999999}};
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct convert_plan plan;
    struct trajd_error error;
    char *text;

    (void)state;
    set_up(&hand);
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    text = convert_part_json(&plan, &plan.episodes[1]);
    assert_string_equal(text, "");
    free(text);
    trajd_arena_free(&plan.arena);
    options.rules = rules;
    options.rule_count = 1;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 4);
    assert_int_equal(plan.cut_count, 2);
    assert_int_equal(plan.left_out, 0);
    for (uint32_t e = 0; e < 4; e++) {
        const struct convert_episode *made = &plan.episodes[e];
        const char *const names[] = {"demo_0", "demo_1", "demo_2", "demo_3"};
        assert_string_equal(made->id, names[e]);
        assert_int_equal(made->episode, e / 2);
        assert_int_equal(made->part, e % 2);
        assert_int_equal(made->part_count, 2);
        assert_int_equal(made->begin_ns, e % 2 ? 119000000 : 30000000);
        assert_int_equal(made->step_count, e % 2 ? 6 : 2);
        for (uint32_t a = 0; a < made->array_count; a++)
            assert_int_equal(made->arrays[a].first_row,
                             e % 2 && plan.datasets[made->arrays[a].dataset].clock == 1 ? 2 : 0);
    }
    assert_int_equal(plan.step_count, 16);
    text = convert_part_json(&plan, &plan.episodes[3]);
    assert_string_equal(
        text, "{\"episode\":\"demo_7\",\"part\":1,\"parts\":2,\"ns\":[119000000,170000000],"
              "\"rows\":{\"slow\":[3,4],\"arm\":[2,4]}}");
    free(text);
    trajd_arena_free(&plan.arena);
    /* the part before the gap has one step; the remaining part keeps its name */
    options.rate = (struct trajd_rate){30, 1};
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 2);
    assert_string_equal(plan.episodes[1].id, "demo_7");
    assert_int_equal(plan.episodes[1].part_count, 1);
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}

static void rates_and_episodes_are_checked(void **state)
{
    static const struct trajd_rate rates[] = {
        {0, 1}, {-20, 1}, {20, 0}, {TRAJD_CONVERT_RATE_MAX + 1, 1}};
    static const struct {
        const char *item;
        uint32_t episodes; /* 0: there is no such key */
    } cases[] = {{"demo_3", 1}, {"demo_*", 2}, {"3", 1},  {"0..9", 2}, {"4..9", 1},
                 {"demo_4", 0}, {"9..4", 0},   {"..", 0}, {"3..", 0}};
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        options.episodes = &cases[i].item;
        options.episode_count = 1;
        assert_int_equal(convert_plan_make(&options, &plan, &error),
                         cases[i].episodes ? TRAJD_OK : TRAJD_ERR_NOT_FOUND);
        assert_int_equal(plan.episode_count, cases[i].episodes);
        trajd_arena_free(&plan.arena);
    }
    hand.episodes[1].id = "demo_2_12"; /* its number is the last one */
    for (int k = 0; k < 4; k++) {
        static const char *const items[] = {"12", "10..12", "2", "13..20"};
        options.episodes = &items[k];
        assert_int_equal(convert_plan_make(&options, &plan, &error),
                         k < 2 ? TRAJD_OK : TRAJD_ERR_NOT_FOUND);
        trajd_arena_free(&plan.arena);
    }
    hand.episodes[1].id = "demo_7";
    options.episode_count = 0;
    options.filter = "train";
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.episode_count, 1);
    assert_string_equal(plan.episodes[0].id, "demo_7");
    trajd_arena_free(&plan.arena);
    options.filter = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        options.rate = rates[i];
        assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_ERR_ARGUMENT);
        trajd_arena_free(&plan.arena);
    }
    trajd_layout_destroy(&hand.layout);
}

/* Every step of every dataset is in exactly one segment, in order, however it is divided. */
static void segments_cover_everything_once(void **state)
{
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 1000000, 1);
    struct convert_segment *segments;
    struct convert_plan plan;
    struct trajd_error error;
    uint64_t seen[2][2] = {{0}}, count;

    (void)state;
    set_up(&hand);
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    /* one group for each clock: joints with their stamps, and the pose */
    assert_int_equal(plan.group_count, 2);
    segments = convert_segments_list(&plan, &count);
    for (const struct convert_segment *segment = segments; segment < segments + count; segment++) {
        assert_int_equal(segment->step_begin, seen[segment->episode][segment->group]);
        assert_true(segment->step_end > segment->step_begin &&
                    segment->step_end - segment->step_begin <= 65536);
        seen[segment->episode][segment->group] = segment->step_end;
    }
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t g = 0; g < 2; g++)
            assert_int_equal(seen[e][g], 140001);
    free(segments);
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}

static void rows_are_found_by_their_times(void **state)
{
    static const int64_t stamps[] = {-5, 0, 7, 7000};
    const struct trajd_episode_clock stamped = {.row_count = 4, .stamps_ns = stamps};
    const struct trajd_episode_clock regular = {
        .row_count = 10, .start_ns = 100, .rate = {30000, 1001}};

    (void)state;
    assert_int_equal(trajd_clock_rows_until(&stamped, 4, -6) - 1, -1);
    assert_int_equal(trajd_clock_rows_until(&stamped, 4, -5) - 1, 0);
    assert_int_equal(trajd_clock_rows_until(&stamped, 4, 6999) - 1, 2);
    assert_int_equal(trajd_clock_rows_until(&stamped, 4, INT64_MAX) - 1, 3);
    assert_int_equal(trajd_clock_rows_until(&stamped, 2, INT64_MAX) - 1, 1);
    assert_int_equal(trajd_clock_rows_until(&regular, 10, 99) - 1, -1);
    for (int64_t row = 0; row < 10; row++) {
        assert_int_equal(
            trajd_clock_rows_until(&regular, 10, trajd_clock_row_ns(&regular, row)) - 1, row);
        assert_int_equal(
            trajd_clock_rows_until(&regular, 10, trajd_clock_row_ns(&regular, row) - 1) - 1,
            row - 1);
    }
    assert_int_equal(trajd_clock_rows_until(&regular, 10, INT64_C(1) << 40) - 1, 9);
}

static void assumed_rates_are_refused(void **state)
{
    const char *joints = "joints";
    struct hand hand;
    const struct trajd_index *indexes[] = {&hand.index};
    struct trajd_convert_options options = options_of(indexes, 100, 1);
    struct convert_plan plan;
    struct trajd_error error;

    (void)state;
    set_up(&hand);
    /* the layout says where the rate would stand */
    ((struct trajd_layout_clock *)hand.layout->clocks)[0].rate_attribute = "/data@hz";
    hand.episode_clocks[0].rate_source = TRAJD_RATE_ASSUMED;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message,
                           "/x/hand.hdf5: clock slow: 20 Hz (assumed): the file does not "
                           "state the rate in /data@hz. It is only the `rate:`"));
    trajd_arena_free(&plan.arena);
    options.accepts_assumed_rates = true;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    assert_int_equal(plan.streams[0]->rates.source, TRAJD_RATE_ASSUMED);
    assert_int_equal(plan.streams[2]->rates.source, TRAJD_RATE_MEASURED);
    trajd_arena_free(&plan.arena);
    options.accepts_assumed_rates = false;
    options.streams = &joints; /* on another clock, which has stamps */
    options.stream_count = 1;
    assert_int_equal(convert_plan_make(&options, &plan, &error), TRAJD_OK);
    trajd_arena_free(&plan.arena);
    trajd_layout_destroy(&hand.layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_grid_is_the_span_of_all_streams),
        cmocka_unit_test(quaternions_that_are_blended_are_noted),
        cmocka_unit_test(columns_belong_to_their_streams),
        cmocka_unit_test(rules_are_checked),
        cmocka_unit_test(rates_and_episodes_are_checked),
        cmocka_unit_test(episodes_are_split_at_gaps),
        cmocka_unit_test(assumed_rates_are_refused),
        cmocka_unit_test(episodes_with_other_row_shapes_are_left_out),
        cmocka_unit_test(segments_cover_everything_once),
        cmocka_unit_test(rows_are_found_by_their_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
