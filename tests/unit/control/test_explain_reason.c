/* answer.c: the words and numbers for each mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/control/query.h"
#include "daemon/window/window_report.h"

#define MS INT64_C(1000000)

static void expect(const struct trajd_reason_facts *facts, enum trajd_mask mask, const char *wanted)
{
    char text[TRAJD_REASON_SIZE];

    trajd_reason_write(facts, mask, text);
    assert_string_equal(text, wanted);
}

static void masks_have_names(void **state)
{
    (void)state;
    assert_string_equal(trajd_window_mask_name(TRAJD_MASK_VALID), "valid");
    assert_string_equal(trajd_window_mask_name(TRAJD_MASK_GAP), "gap");
    assert_string_equal(trajd_window_mask_name(TRAJD_MASK_MISSING), "missing");
    assert_string_equal(trajd_window_mask_name((enum trajd_mask)99), "?");
}

static void before_and_after_the_episode(void **state)
{
    struct trajd_resample_step step = {.x = -83 * MS, .past_ns = 1500 * MS};
    const uint32_t kept[] = {2, 5, 9};
    struct trajd_reason_facts facts = {.step = &step, .row_count = 3};

    (void)state;
    expect(&facts, TRAJD_MASK_BEFORE_START, "83 ms before start (row 0)");
    expect(&facts, TRAJD_MASK_AFTER_END, "1.5 s after end (row 2)");
    facts.clipped = true;
    facts.kept_rows = kept; /* reasons number rows as the file does */
    facts.first_ns = MS / 1000;
    expect(&facts, TRAJD_MASK_BEFORE_START, "83.001 ms before start (row 2)");
    expect(&facts, TRAJD_MASK_AFTER_END, "1.5 s after end (row 9, the last up to the anchor)");
    facts.in_rows = true;
    step.x = -4;
    expect(&facts, TRAJD_MASK_BEFORE_START, "before start: row -4");
    step.x = 7;
    expect(&facts, TRAJD_MASK_AFTER_END, "after end: 5 rows after the last (row 9)");
    facts.row_count = 0;
    expect(&facts, TRAJD_MASK_BEFORE_START,
           "before start: the episode has no row up to the anchor");
}

static void sums_of_steps(void **state)
{
    const struct trajd_stream stream = {.max_gap_ns = 25 * MS, .total = TRAJD_TOTAL_STEP};
    const struct trajd_resample_step step = {.has_row = true, .row = 4};
    const struct trajd_reason_facts facts = {.step = &step, .stream = &stream, .row_count = 9};

    (void)state;
    expect(&facts, TRAJD_MASK_GAP, "a gap > max_gap 25 ms within the step: the sum lacks rows");
    expect(&facts, TRAJD_MASK_AFTER_END,
           "the rows end within the step (row 8): the sum would lack some");
}

static void gaps_and_ages(void **state)
{
    const struct trajd_stream stream = {.max_gap_ns = 25 * MS, .max_age_ns = 12500};
    const struct trajd_resample_step step = {.before = 4, .width_ns = 40 * MS, .past_ns = 70000};
    const struct trajd_reason_facts facts = {.step = &step, .stream = &stream, .row_count = 9};

    (void)state;
    expect(&facts, TRAJD_MASK_GAP, "gap of 40 ms (rows 4, 5) > max_gap 25 ms");
    expect(&facts, TRAJD_MASK_TOO_OLD, "held row 4 is 70 us old, max_age is 12.5 us");
    expect(&facts, TRAJD_MASK_BAD_STAMP, "the stamp of row 5 is not later than that of row 4");
}

static void missing_rows(void **state)
{
    const struct trajd_resample_step step = {0};
    struct trajd_reason_facts facts = {.step = &step, .stream_name = "wrist"};

    (void)state;
    expect(&facts, TRAJD_MASK_MISSING, "the episode has no wrist");
    facts.unreadable = "rows.h5: gone";
    expect(&facts, TRAJD_MASK_MISSING, "the rows cannot be read: rows.h5: gone");
}

static void nan_in_rows(void **state)
{
    struct trajd_stream stream = {.kind = TRAJD_KIND_LINEAR};
    struct trajd_resample_step step = {.row = 6, .mean_first = 6};
    const struct trajd_reason_facts facts = {
        .step = &step, .stream = &stream, .row_count = 9, .lost_feature = 5};

    (void)state;
    expect(&facts, TRAJD_MASK_NAN, "feature 5 is NaN, infinite or too large in row 6");
    step.blends = true;
    expect(&facts, TRAJD_MASK_NAN, "feature 5 is NaN, infinite or too large in row 6 or 7");
    step.blends = false;
    stream.kind = TRAJD_KIND_MEAN;
    step.mean_first = 3;
    expect(&facts, TRAJD_MASK_NAN, "feature 5 is NaN, infinite or too large in rows 3 to 6");
    stream.kind = TRAJD_KIND_SLERP_XYZW;
    expect(&facts, TRAJD_MASK_NAN, "quaternion 1 is NaN or has no direction in row 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_have_names), cmocka_unit_test(before_and_after_the_episode),
        cmocka_unit_test(sums_of_steps),    cmocka_unit_test(gaps_and_ages),
        cmocka_unit_test(missing_rows),     cmocka_unit_test(nan_in_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
