/* Plans of feeds with several datasets: what they refuse, how they count and number windows, which
 * rows of a batch are whose, and the report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_fixture.h"
#include "daemon/base/yaml.h"
#include "daemon/window/window_batch.h"
#include "daemon/window/window_report.h"
#include "proto/array_len.h"

#define DATASETS 2
#define BATCH 8

struct two {
    struct fixture *fixtures[DATASETS];
    struct trajd_dataset *datasets[DATASETS];
    struct trajd_window_spec *spec;
    struct trajd_mixture_plan *plan;
    struct trajd_error error;
};

static int make_two(void **state)
{
    struct two *two = calloc(1, sizeof *two);
    void *made;

    for (int d = 0; d < DATASETS; d++) {
        make_fixture(&made);
        two->fixtures[d] = made;
        two->datasets[d] = &two->fixtures[d]->dataset;
        two->datasets[d]->name = d ? "lab" : "droid";
        two->fixtures[d]->index.fingerprint += (uint64_t)d;
    }
    *state = two;
    return 0;
}

static int free_two(void **state)
{
    struct two *two = *state;

    for (int d = 0; d < DATASETS; d++)
        free(two->fixtures[d]);
    free(two);
    return 0;
}

static void end(struct two *two)
{
    trajd_mixture_plan_destroy(&two->plan);
    trajd_window_spec_destroy(&two->spec);
}

/* Makes the plan of a feed with these keys. Returns its status; the caller calls end(). */
static enum trajd_status plan_feed(struct two *two, const char *keys)
{
    char text[512];
    struct trajd_yaml *yaml;

    snprintf(text, sizeof text, "{global_batch: %d, anchor: {clock: camera}, %s}", BATCH, keys);
    assert_int_equal(trajd_yaml_parse("test", text, strlen(text), &yaml, &two->error), TRAJD_OK);
    if (trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 2, &two->spec, &two->error))
        fail_msg("%s: %s", keys, two->error.message);
    trajd_yaml_destroy(&yaml);
    return trajd_mixture_plan_create(two->spec, two->datasets, &two->plan, &two->error);
}

static void must_plan(struct two *two, const char *keys)
{
    if (plan_feed(two, keys))
        fail_msg("%s: %s", keys, two->error.message);
}

/* The rows of an output have to fit in one tensor, whichever dataset they come from. */
static void test_outputs_that_differ(void **state)
{
    static const char of_lab[] = "mix: {droid: 1, lab: {weight: 1, streams: {x: %s}}}, "
                                 "outputs: {x: {from: cam, at: -1..0}}";
    struct two *two = *state;
    struct trajd_index_stream *stream = &two->fixtures[1]->streams[0];
    char keys[256];

    snprintf(keys, sizeof keys, of_lab, "wrench");
    must_plan(two, keys);
    end(two);
    snprintf(keys, sizeof keys, of_lab, "[wrench, cam]");
    assert_int_equal(plan_feed(two, keys), TRAJD_ERR_ARGUMENT);
    assert_null(two->plan);
    assert_string_equal(
        two->error.message,
        "feed feed: line 1: outputs.x: a window is i64 [2] in dataset droid and f32 "
        "[2,2] in dataset lab: all datasets of a mixture need the same type and shape");
    end(two);

    snprintf(keys, sizeof keys, of_lab, "cam");
    stream->dtype = TRAJD_I32;
    assert_int_equal(plan_feed(two, keys), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(two->error.message, "i64 [2] in dataset droid and i32 [2] in "));
    end(two);
    stream->dtype = TRAJD_I64;
    for (int d = 0; d < DATASETS; d++) {
        two->fixtures[d]->streams[0].rank = 2;
        two->fixtures[d]->streams[0].shape[0] = 1;
        two->fixtures[d]->streams[0].shape[1] = 1;
    }
    must_plan(two, keys);
    end(two);
    stream->feature_count = 3;
    stream->shape[1] = 3; /* the last number of the shape */
    assert_int_equal(plan_feed(two, keys), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(two->error.message, "i64 [2,1,1] in dataset droid and i64 [2,1,3] in "));
    end(two);
}

/* Datasets may differ in the steps, their rate and the anchors, as long as each has as many steps. */
static void test_steps_that_differ(void **state)
{
    static const char of_lab[] = "epoch: 75,\nmix: {droid: 3,\nlab: {weight: 1, %s}},\n"
                                 "outputs: {x: {from: cam, at: 0..7, role: action}}";
    struct two *two = *state;
    const struct trajd_plan_rules *droid, *lab;
    const struct trajd_plan_grid *grid;
    uint64_t fingerprint;
    char keys[256];

    snprintf(keys, sizeof keys, of_lab, "outputs: {x: {at: 0..7}}");
    must_plan(two, keys);
    fingerprint = two->plan->fingerprint;
    end(two);
    must_plan(two, "mix: {droid: 3, lab: 1}, epoch: 75, outputs: {x: {from: cam, at: 0..7, role: "
                   "action}}");
    assert_int_equal(two->plan->fingerprint, fingerprint); /* the same feed, said twice */
    end(two);

    snprintf(keys, sizeof keys, of_lab, "outputs: {x: {at: -1..6}}");
    must_plan(two, keys);
    assert_int_not_equal(two->plan->fingerprint, fingerprint);
    droid = &two->plan->members[0]->rules;
    lab = &two->plan->members[1]->rules;
    assert_true(droid->grids[0].from == 0 && lab->grids[0].from == -1);
    assert_true(droid->grids[0].step_count == 8 && lab->grids[0].step_count == 8);
    end(two);

    snprintf(keys, sizeof keys, of_lab,
             "anchor: {rate: 15}, outputs: {x: {from: arm, kind: nearest}}");
    must_plan(two, keys);
    droid = &two->plan->members[0]->rules;
    lab = &two->plan->members[1]->rules;
    assert_true(droid->anchor_clock == 0 && droid->grids[0].rule == TRAJD_TARGET_ROWS);
    assert_true(lab->anchor_clock == -1 && lab->anchor_rate.num == 15);
    grid = &lab->grids[0];
    assert_true(grid->rule == TRAJD_TARGET_ANCHOR_STEPS && grid->rate.num == 15);
    assert_int_equal(two->plan->members[1]->spec->outputs[0].kind, TRAJD_KIND_NEAREST);
    end(two);

    snprintf(keys, sizeof keys, of_lab, "rate: 15, outputs: {x: {at: 0ms..500ms}}");
    must_plan(two, keys); /* 500 ms at 15 Hz: 8 steps */
    grid = &two->plan->members[1]->rules.grids[0];
    assert_true(grid->rule == TRAJD_TARGET_OFFSETS && grid->rate.num == 15 && grid->from == 0);
    end(two);

    snprintf(keys, sizeof keys, of_lab, "rate: 10, outputs: {x: {at: 0ms..500ms}}");
    assert_int_equal(plan_feed(two, keys), TRAJD_ERR_ARGUMENT);
    assert_string_equal(
        two->error.message,
        "feed feed: line 3: outputs.x: a window is i64 [8] in dataset droid and i64 "
        "[6] in dataset lab: all datasets of a mixture need the same type and "
        "shape");
    end(two);
    assert_int_equal(plan_feed(two, "mix: {droid: {weight: 1,\noutputs: {x: {at: 0..3}}},\nlab: "
                                    "1},\noutputs: {x: {from: cam, at: 0..7, role: action}}"),
                     TRAJD_ERR_ARGUMENT); /* the line is that of the dataset with own keys */
    assert_memory_equal(two->error.message, "feed feed: line 2: outputs.x: a window is i64 [4]",
                        49);
    end(two);
    snprintf(keys, sizeof keys, of_lab, "outputs: {x: {from: can}}");
    assert_int_equal(plan_feed(two, keys), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(two->error.message, "line 3: outputs.x: no stream can"));
    assert_non_null(strstr(two->error.message, "(did you mean cam?"));
    end(two);
}

/* An error in a member names its dataset. */
static void test_a_member_that_has_no_plan(void **state)
{
    struct two *two = *state;

    two->fixtures[1]->streams[0].name = "other";
    assert_int_not_equal(
        plan_feed(two, "mix: {droid: 1, lab: 1}, outputs: {x: {from: cam, at: 0}}"), TRAJD_OK);
    assert_null(two->plan);
    assert_memory_equal(two->error.message, "dataset lab: ", 13);
    end(two);
    assert_int_equal(plan_feed(two, "mix: {droid: 1, lab: 1}, epoch: 7, "
                                    "outputs: {x: {from: arm, at: 0}}"),
                     TRAJD_ERR_ARGUMENT); /* no batch of 8 */
    assert_memory_equal(two->error.message, "feed feed: mix: ", 16);
    assert_null(two->plan);
    end(two);
    must_plan(two, "mix: {droid: 1, lab: 1}, epoch: 8, outputs: {x: {from: arm, at: 0}}");
    end(two);
}

static void test_counts_and_numbers(void **state)
{
    struct two *two = *state;
    struct trajd_window window, again[3];

    must_plan(two, "mix: {droid: 3, lab: 1}, epoch: 75, outputs: {x: {from: cam, at: 0}}");
    assert_int_equal(two->plan->member_count, DATASETS);
    assert_int_equal(trajd_mixture_plan_window_count(two->plan), 75);
    assert_int_equal(trajd_mixture_plan_epoch_length(two->plan), 72);
    assert_int_equal(trajd_mixture_plan_dropped_count(two->plan), 3);
    assert_int_equal(trajd_mixture_plan_number_count(two->plan), 2 * 180);
    for (uint64_t id = 0; id < 360; id++) {
        assert_true(trajd_mixture_plan_window(two->plan, id, &window));
        assert_int_equal(window.window_id, id);
        assert_int_equal(window.dataset_index, id / 180);
    }
    assert_false(trajd_mixture_plan_window(two->plan, 360, &window));
    assert_false(trajd_mixture_plan_window(two->plan, UINT64_MAX, &window));
    trajd_mixture_plan_run(two->plan, 1, 70, 3, again);
    for (int i = 0; i < 3; i++) {
        trajd_mixture_run(two->plan->mixture, 1, 70 + (uint64_t)i, 1, &window);
        assert_int_equal(window.window_id, again[i].window_id);
        assert_int_equal(window.wrapped, again[i].wrapped);
    }
    end(two);

    must_plan(two, "dataset: droid, outputs: {x: {from: cam, at: 0}}");
    assert_int_equal(two->plan->member_count, 1);
    assert_null(two->plan->mixture);
    assert_int_equal(two->plan->fingerprint, two->plan->members[0]->fingerprint);
    assert_int_equal(trajd_mixture_plan_window_count(two->plan), 180);
    assert_int_equal(trajd_mixture_plan_epoch_length(two->plan), 176);
    assert_int_equal(trajd_mixture_plan_dropped_count(two->plan), 4);
    assert_int_equal(trajd_mixture_plan_number_count(two->plan), 180);
    assert_true(trajd_mixture_plan_window(two->plan, 179, &window));
    assert_int_equal(window.window_id, 179);
    assert_false(trajd_mixture_plan_window(two->plan, 180, &window));
    trajd_mixture_plan_run(two->plan, 1, 175, 3, again);
    for (int i = 0; i < 3; i++) {
        trajd_sampler_run(two->plan->members[0]->sampler, 1, 175 + (uint64_t)i, 1, &window);
        assert_int_equal(window.window_id, again[i].window_id);
    }
    end(two);
}

/* Everything that decides the order is in the fingerprint, and nothing else. */
static void test_what_the_fingerprint_has(void **state)
{
    static const char *const others[] = {
        "mix: {droid: 3, lab: 2}, epoch: 80, outputs: {x: {from: cam, at: 0}}",
        "mix: {droid: 4, lab: 1}, epoch: 80, outputs: {x: {from: cam, at: 0}}",
        "mix: {droid: 3, lab: 1}, epoch: 81, outputs: {x: {from: cam, at: 0}}",
        "mix: {droid: 3, lab: 1}, outputs: {x: {from: cam, at: 0}}",
        "mix: {droid: 3, lab: {weight: 1, filter: train}}, epoch: 80, outputs: {x: {from: cam, at: "
        "0}}",
        "mix: {droid: {weight: 3, filter: train}, lab: 1}, epoch: 80, outputs: {x: {from: cam, at: "
        "0}}",
        "mix: {by: size, datasets: [droid, lab]}, epoch: 80, outputs: {x: {from: cam, at: 0}}",
    };
    static const char keys[] = "mix: {droid: 3, lab: 1}, epoch: 80, tail: short, "
                               "outputs: {x: {from: cam, at: 0}}";
    struct two *two = *state;
    uint64_t fingerprint, all[ARRAY_LEN(others)];

    must_plan(two, keys);
    fingerprint = two->plan->fingerprint;
    end(two);
    must_plan(two, keys + 0); /* equal feeds agree */
    assert_int_equal(two->plan->fingerprint, fingerprint);
    end(two);
    must_plan(two, "mix: {droid: 3, lab: 1}, epoch: 80, outputs: {x: {from: cam, at: 0}}");
    assert_int_equal(two->plan->fingerprint, fingerprint); /* the tail is not part of it */
    end(two);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        must_plan(two, others[i]);
        all[i] = two->plan->fingerprint;
        assert_int_not_equal(all[i], fingerprint);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(all[i], all[k]);
        end(two);
    }
    two->fixtures[1]->index.fingerprint++;
    must_plan(two, keys);
    assert_int_not_equal(two->plan->fingerprint, fingerprint);
    end(two);
}

static uint64_t digest_of(struct two *two, const char *keys)
{
    uint64_t digest;

    must_plan(two, keys);
    digest = trajd_mixture_plan_norm_digest(two->plan);
    end(two);
    return digest;
}

static void test_the_digest_of_normalisation(void **state)
{
    static const char x[] = "outputs: {x: {from: cam, at: 0, dtype: float32, norm: "
                            "{scale: [%d], offset: [0]}}}",
                      mix[] = "mix: {droid: 1, lab: 1}, ", one[] = "dataset: droid, ";
    struct two *two = *state;
    char keys[256];
    uint64_t digests[3];

    assert_int_equal(digest_of(two, "mix: {droid: 1, lab: 1}, outputs: {x: {from: cam, at: 0}}"),
                     0);
    for (int i = 0; i < 2; i++) {
        snprintf(keys, sizeof keys, "%s", mix);
        snprintf(keys + strlen(keys), sizeof keys - strlen(keys), x, 2 + i);
        digests[i] = digest_of(two, keys);
        assert_int_not_equal(digests[i], 0);
    }
    assert_int_not_equal(digests[0], digests[1]);
    snprintf(keys, sizeof keys, "%s", one);
    snprintf(keys + strlen(keys), sizeof keys - strlen(keys), x, 2);
    digests[2] = digest_of(two, keys);
    assert_int_not_equal(digests[2], 0);
    assert_int_not_equal(digests[2], digests[0]); /* of two members */
    must_plan(two, keys);
    assert_int_equal(digests[2], trajd_window_norm_digest(two->plan->members[0]));
    end(two);
}

static void test_the_limit_of_quarantine(void **state)
{
    static const struct {
        int64_t at_most[DATASETS];
        enum trajd_status status;
    } cases[] = {
        {{-1, -1}, TRAJD_OK},       {{0, 1}, TRAJD_OK},        {{0, 2}, TRAJD_OK},
        {{0, 0}, TRAJD_ERR_DATA},   {{-1, 0}, TRAJD_ERR_DATA}, {{0, -1}, TRAJD_OK},
        {{1, INT64_MAX}, TRAJD_OK},
    };
    struct two *two = *state;

    two->fixtures[1]->episodes[1].quarantine = "its stamps go back";
    must_plan(two, "mix: {droid: 1, lab: 1}, outputs: {x: {from: cam, at: 0}}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(
            trajd_mixture_plan_check_quarantine(two->plan, cases[i].at_most, &two->error),
            cases[i].status);
    assert_int_equal(trajd_mixture_plan_check_quarantine(two->plan, cases[3].at_most, &two->error),
                     TRAJD_ERR_DATA);
    assert_non_null(strstr(two->error.message,
                           "feed feed: 1 of 2 episodes of dataset lab are quarantined, and "
                           "datasets.lab.quarantine.at_most is 0; the first: "));
    assert_non_null(strstr(two->error.message, "its stamps go back"));
    end(two);
}

/* A member's batch has its windows in the order of rows, and a slice has those of its rows. */
static void test_rows_of_a_batch(void **state)
{
    struct two *two = *state;
    struct trajd_mixture_batch *batch;
    struct trajd_window windows[BATCH];

    must_plan(two, "mix: {droid: 3, lab: 1}, outputs: {x: {from: cam, at: 0}}");
    assert_int_equal(trajd_mixture_batch_create(two->plan, &batch, &two->error), TRAJD_OK);
    for (uint32_t rows = BATCH; rows + 3 > BATCH;
         rows--) { /* the second look-up replaces the first */
        trajd_mixture_batch_look_up(batch, 2, 16, rows);
        trajd_mixture_plan_run(two->plan, 2, 16, rows, windows);
        for (uint32_t d = 0; d < DATASETS; d++) {
            const struct trajd_binding *member = batch->members[d];
            uint32_t count = 0;
            for (uint32_t row = 0; row < rows; row++) {
                if (windows[row].dataset_index != d)
                    continue;
                assert_true(count < member->window_count);
                assert_int_equal(member->window_rows[count++], row);
            }
            assert_int_equal(member->window_count, count);
            for (uint32_t begin = 0; begin <= rows; begin++)
                for (uint32_t n = 0; begin + n <= rows; n++) {
                    uint32_t first, window_count, before = 0, inside = 0;
                    for (uint32_t row = 0; row < begin + n; row++)
                        *(row < begin ? &before : &inside) += windows[row].dataset_index == d;
                    trajd_mixture_batch_slice(member, begin, n, &first, &window_count);
                    assert_int_equal(first, before);
                    assert_int_equal(window_count, inside);
                }
        }
    }
    trajd_mixture_batch_destroy(&batch);
    end(two);

    must_plan(two, "dataset: droid, outputs: {x: {from: cam, at: 0}}");
    assert_int_equal(trajd_mixture_batch_create(two->plan, &batch, &two->error), TRAJD_OK);
    trajd_mixture_batch_look_up(batch, 0, 0, 5);
    assert_int_equal(batch->members[0]->window_count, 5);
    for (uint32_t begin = 0; begin <= 6; begin++)
        for (uint32_t n = 0; n <= 6; n++) {
            uint32_t first, count;
            trajd_mixture_batch_slice(batch->members[0], begin, n, &first, &count);
            assert_int_equal(first, begin < 5 ? begin : 5);
            assert_int_equal(first + count, begin + n < 5 ? begin + n : 5);
        }
    trajd_mixture_batch_destroy(&batch);
    end(two);
}

/* The text that `trajctl check` prints. */
static void test_the_report_of_a_mixture(void **state)
{
    static const char *const lines[] = {
        "feed feed: 2 datasets, epochs of 75 windows, batches of 8, 3 left over\n  fingerprint ",
        "\n 0 droid: 3 of 4 windows (75%), 180 windows of 2 episodes (2 of 2 kept)\n",
        "\n 1 lab: 1 of 4 windows (25%), 90 windows of 1 episode (1 of 2 kept, 1 quarantined)\n",
        "\n  x       camera 30 Hz  previous  rows -1..0  obs   i64 [8,2]  cam\n",
        "  (none: filled)\n  quarantined: ",
        "\n  quarantined: dataset lab: its stamps go back\n",
    };
    static const char *const own[] = {
        "\n  x       camera 30 Hz  previous  rows 0..3  action  i64 [8,4]  cam\n",
        "\n  x       arm stamped  nearest  -1..2 of the anchors, 15 Hz  action  i64 [8,4]  arm\n",
    };
    struct two *two = *state;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    must_plan(two,
              "mix: {droid: 3, lab: {weight: 1, anchor: {rate: 15}, outputs: {x: {from: arm, "
              "at: -1..2, kind: nearest}}}}, outputs: {x: {from: cam, at: 0..3, role: action}}");
    trajd_window_report(two->plan, out);
    fclose(out);
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (!strstr(text, own[i]))
            fail_msg("%s\nis not in:\n%s", own[i], text);
    free(text);
    end(two);
    out = open_memstream(&text, &size);

    two->fixtures[1]->episodes[1].quarantine = "its stamps go back";
    two->fixtures[1]->streams[2].name = "other";
    must_plan(two, "mix: {droid: 3, lab: 1}, epoch: 75, outputs: {x: {from: cam, at: -1..0}, "
                   "y: {from: wrench, at: 0, missing: zero}}");
    trajd_window_report(two->plan, out);
    fclose(out);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s\nis not in:\n%s", lines[i], text);
    free(text);
    end(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_outputs_that_differ, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_steps_that_differ, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_a_member_that_has_no_plan, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_counts_and_numbers, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_what_the_fingerprint_has, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_the_digest_of_normalisation, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_the_limit_of_quarantine, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_rows_of_a_batch, make_two, free_two),
        cmocka_unit_test_setup_teardown(test_the_report_of_a_mixture, make_two, free_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
