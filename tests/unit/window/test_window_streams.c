/* What a plan fixes about its streams: in which form the cache keeps float64 rows, the digest of
 * their normalisation, and the report of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_fixture.h"
#include "daemon/window/window_report.h"
#include "proto/array_len.h"

static struct trajd_window_plan *plan_of(struct fixture *f, const char *outputs,
                                         struct trajd_window_spec **spec)
{
    struct trajd_window_plan *plan;
    struct trajd_error error;
    char text[512];

    snprintf(text, sizeof text,
             "{dataset: test, global_batch: 4, anchor: {clock: camera}, outputs: {%s}}", outputs);
    plan = make_plan(f, text, spec, &error);
    if (!plan)
        fail_msg("%s: %s", outputs, error.message);
    return plan;
}

/* Gives all arrays this type. The wrench becomes an angle, the others blend. */
static void set_type(struct fixture *f, enum trajd_dtype dtype)
{
    for (int s = 0; s < STREAMS; s++) {
        f->streams[s].dtype = dtype;
        f->streams[s].kind = s == 2 ? TRAJD_KIND_ANGLE : TRAJD_KIND_LINEAR;
        f->streams[s].angle_period = s == 2 ? 360 : 0;
        for (int e = 0; e < 2; e++) {
            f->arrays[e][s].dtype = dtype;
            f->arrays[e][s].size_bytes = f->arrays[e][s].shape[0] * trajd_dtype_size(dtype);
        }
    }
}

/* float64 rows are kept as float32 only where every output copies them into float32 as they are.
 * Anything that computes with them needs all their digits. */
static void test_which_rows_are_kept_as_float32(void **state)
{
    static const struct {
        const char *outputs;
        bool as_float32;
    } cases[] = {
        {"x: {from: cam, at: -1..0}", true},
        {"x: {from: cam, at: -1..0, dtype: float32}", true},
        {"x: {from: cam, at: -1..0, dtype: float64}", false},
        {"x: {from: cam, at: -1..0, dtype: float16}", false},
        {"x: {from: cam, at: -1..0, norm: {scale: [2], offset: [0]}}", false},
        {"x: {from: wrench, at: -1..0}", true},
        {"x: {from: wrench, at: -1..0, range_low: -180}", false},
        {"x: {from: arm, at: -50ms..0ms @ 100}", false},
        {"x: {from: arm, at: -50ms..0ms @ 100, kind: mean}", false},
        {"x: {from: arm, at: -50ms..0ms @ 100, kind: previous}", true},
        {"x: {from: arm, at: -50ms..0ms @ 100, kind: nearest}", true},
        {"x: {from: arm, at: -50ms..0ms @ 100, kind: previous, dtype: float64}", false},
        {"x: {from: cam, at: 0}, y: {from: cam, at: -1..0}", true},
        {"x: {from: cam, at: 0}, y: {from: cam, at: 0, dtype: float64}", false},
        {"x: {from: cam, at: 0, dtype: float64}, y: {from: cam, at: 0}", false},
    };
    struct fixture *f = *state;

    set_type(f, TRAJD_F64);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan = plan_of(f, cases[i].outputs, &spec);
        assert_int_equal(plan->selection.array_count, 1);
        if (plan->selection.as_float32[0] != cases[i].as_float32)
            fail_msg("%s: %s", cases[i].outputs,
                     cases[i].as_float32 ? "kept as float64" : "rounded");
        for (uint32_t t = 0; t < plan->rules.target_count; t++) {
            assert_int_equal(plan->rules.targets[t].stream.source_type,
                             cases[i].as_float32 ? TRAJD_F32 : TRAJD_F64);
            assert_int_equal(plan->rules.targets[t].stream.row_stride_bytes,
                             cases[i].as_float32 ? 4 : 8);
        }
        destroy(&plan, &spec);
    }
}

/* Each array is decided on its own. Other types stay as they are. */
static void test_forms_of_several_arrays(void **state)
{
    static const enum trajd_dtype types[] = {TRAJD_F32, TRAJD_I64, TRAJD_U8};
    struct fixture *f = *state;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan;

    set_type(f, TRAJD_F64);
    plan = plan_of(f, "x: {from: cam, at: 0}, y: {from: wrench, at: 0, dtype: float64}", &spec);
    assert_int_equal(plan->selection.array_count, 2);
    assert_true(plan->selection.as_float32[plan->rules.targets[0].entry]);
    assert_false(plan->selection.as_float32[plan->rules.targets[1].entry]);
    assert_int_equal(plan->rules.targets[0].stream.source_type, TRAJD_F32);
    assert_int_equal(plan->rules.targets[1].stream.source_type, TRAJD_F64);
    destroy(&plan, &spec);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        set_type(f, types[i]);
        plan = plan_of(f, "x: {from: cam, at: 0, kind: previous, dtype: float32}", &spec);
        assert_false(plan->selection.as_float32[0]);
        assert_int_equal(plan->rules.targets[0].stream.source_type, types[i]);
        assert_int_equal(plan->rules.targets[0].stream.row_stride_bytes,
                         trajd_dtype_size(types[i]));
        destroy(&plan, &spec);
    }
}

/* A plan that only counts windows takes the forms of the plan that makes batches, array by
 * array. */
static void test_forms_of_another_plan(void **state)
{
    struct fixture *f = *state;
    struct trajd_window_spec *spec, *other_spec;
    struct trajd_window_plan *plan, *other;

    set_type(f, TRAJD_F64);
    plan = plan_of(f, "x: {from: wrench, at: 0}, y: {from: cam, at: 0}", &spec);
    other =
        plan_of(f, "x: {from: cam, at: 0, dtype: float64}, y: {from: wrench, at: 0}", &other_spec);
    trajd_window_plan_copy_forms(plan, other);
    assert_int_equal(plan->rules.targets[0].stream.source_type, TRAJD_F32);
    assert_int_equal(plan->rules.targets[0].stream.row_stride_bytes, 4);
    assert_int_equal(plan->rules.targets[1].stream.source_type, TRAJD_F64);
    assert_int_equal(plan->rules.targets[1].stream.row_stride_bytes, 8);
    destroy(&plan, &spec);
    destroy(&other, &other_spec);
}

static uint64_t digest_of(struct fixture *f, const char *outputs)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = plan_of(f, outputs, &spec);
    const uint64_t digest = trajd_window_norm_digest(plan);

    destroy(&plan, &spec);
    return digest;
}

/* Each number of a normalisation is in its digest, so a run that goes on with other numbers is
 * noticed. */
static void test_the_digest_of_normalisation(void **state)
{
    static const char *const different[] = {
        "x: {from: cam, at: 0, norm: {scale: [2], offset: [1]}}",
        "x: {from: cam, at: 0, norm: {scale: [3], offset: [1]}}",
        "x: {from: cam, at: 0, norm: {scale: [2], offset: [3]}}",
        "x: {from: cam, at: 0, norm: {scale: [1], offset: [2]}}",
        "y: {from: cam, at: 0, norm: {scale: [2], offset: [1]}}",
        "x: {from: cam, at: 0, norm: {scale: [2], offset: [1]}}, "
        "y: {from: cam, at: 0, norm: {scale: [2], offset: [1]}}",
        "x: {from: [cam, wrench], at: 0, norm: {scale: [2, 2], offset: [1, 1]}}",
        "x: {from: [cam, wrench], at: 0, norm: {scale: [2, 3], offset: [1, 1]}}",
        "x: {from: [cam, wrench], at: 0, norm: {scale: [2, 2], offset: [1, 3]}}",
    };
    uint64_t digests[ARRAY_LEN(different)];
    struct fixture *f = *state;

    set_type(f, TRAJD_F64);
    for (size_t i = 0; i < ARRAY_LEN(different); i++) {
        digests[i] = digest_of(f, different[i]);
        assert_true(digests[i] != 0);
        for (size_t k = 0; k < i; k++)
            if (digests[i] == digests[k])
                fail_msg("%s has the digest of %s", different[i], different[k]);
    }
    /* Clients keep this number with their state, also across versions. */
    assert_true(digests[0] == UINT64_C(0x696f25000bd416cb));
    /* What is not normalised has no part in it. */
    assert_true(digest_of(f, "x: {from: cam, at: 0}") == 0);
    assert_true(digest_of(f,
                          "z: {from: cam, at: 0}, "
                          "x: {from: cam, at: 0, norm: {scale: [2], offset: [1]}}") == digests[0]);
}

/* What an output says about gaps and ages replaces what the stream says, also 0. */
static void test_gaps_and_ages(void **state)
{
    static const struct {
        const char *keys;
        int64_t max_gap_ns, max_age_ns;
    } cases[] = {{"", 70, INT64_MAX},
                 {", max_gap: 0ms", 0, INT64_MAX},
                 {", max_gap: 2ms, max_age: 0ms", 2000000, 0},
                 {", max_age: 3ms", 70, 3000000},
                 {", role: action", 70, -1}};
    struct fixture *f = *state;

    f->streams[0].max_gap_ns = 70;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        char outputs[128];

        snprintf(outputs, sizeof outputs, "x: {from: cam, at: 0%s}", cases[i].keys);
        plan = plan_of(f, outputs, &spec);
        assert_int_equal(plan->rules.targets[0].stream.max_gap_ns, cases[i].max_gap_ns);
        assert_int_equal(plan->rules.targets[0].stream.max_age_ns, cases[i].max_age_ns);
        destroy(&plan, &spec);
    }
}

/* Returns the report of a feed on the fixture, with single spaces; the caller frees it. */
static char *report_of(struct fixture *f, const char *outputs)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = plan_of(f, outputs, &spec);
    const struct trajd_mixture_plan all = {
        .spec = spec, .member_count = 1, .members = &plan, .fingerprint = 0x1234};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    trajd_window_report(&all, out);
    fclose(out);
    destroy(&plan, &spec);
    for (char *from = text, *to = text; from == text || from[-1]; from++)
        if (*from != ' ' || from[1] != ' ')
            *to++ = *from;
    return text;
}

/* The text that `trajctl check` prints: each column of a row of each kind of grid. */
static void test_the_report(void **state)
{
    static const char *const lines[] = {
        "feed feed: 180 windows of 2 episodes (2 of 2 kept), batches of 4, 0 left over\n"
        " fingerprint 0000000000001234\n",
        "\n rows camera 30 Hz linear rows -1..0 obs f32 [4,2] cam\n",
        "\n action arm stamped linear 0..5 @ 20 Hz action f64 [4,6] arm\n",
        "\n steps arm stamped previous -2..0 of camera obs f32 [4,3,2] arm\n",
        "\n steps camera 30 Hz previous rows -2..0 obs f32 [4,3,2] wrench\n",
    };
    struct fixture *f = *state;
    char *text;

    set_type(f, TRAJD_F64);
    text = report_of(f, "rows: {from: cam, at: -1..0}, "
                        "action: {from: arm, at: 0ms..250ms @ 20, dtype: float64}, "
                        "steps: {from: [arm, wrench], at: -2..0, kind: previous}");
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s\nis not in:\n%s", lines[i], text);
    free(text);
    f->episodes[1].quarantine = "for a reason";
    text = report_of(f, "rows: {from: cam, at: -1..0}");
    assert_non_null(strstr(text, "feed feed: 90 windows of 1 episode (1 of 2 kept, 1 "
                                 "quarantined), batches of 4, 2 left over"));
    assert_non_null(strstr(text, "\n quarantined: for a reason\n"));
    assert_null(strstr(text, "warning"));
    free(text);
    text = report_of(f, "rows: {from: cam, at: -1..0 @ 75}");
    assert_non_null(
        strstr(text, "\n warning: rows: kind: linear from 30 Hz to 75 Hz makes 2.5 steps "));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_which_rows_are_kept_as_float32, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_forms_of_several_arrays, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_forms_of_another_plan, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_the_digest_of_normalisation, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_gaps_and_ages, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_the_report, make_fixture, free_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
