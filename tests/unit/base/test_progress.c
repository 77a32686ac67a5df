/* progress.c: the line, when lines are shown, and what begins another work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/base/progress/progress.h"
#include "proto/array_len.h"

static void the_line_has_done_total_rate_and_time_left(void **state)
{
    static const struct {
        const char *unit;
        uint64_t done, total, fresh;
        int64_t elapsed_ns;
        const char *text;
    } cases[] = {
        {"files", 1200, 10000, 1000, INT64_C(2000000000),
         "index: 1200 of 10000 files, 500 files/s, 18 s left"},
        {"files", 2, 10, 1, INT64_C(4000000000), "index: 2 of 10 files, 0.2 files/s, 32 s left"},
        {"bytes", 2500000, 10000000, 2500000, INT64_C(1000000000),
         "index: 2.5 of 10.0 MB, 2.5 MB/s, 3 s left"},
        {"windows", 1, 601, 1, INT64_C(1000000000),
         "index: 1 of 601 windows, 1.0 windows/s, 10 min left"},
        {"windows", 1, 36001, 1, INT64_C(1000000000),
         "index: 1 of 36001 windows, 1.0 windows/s, 10.0 h left"},
        {"files", 0, 10, 0, INT64_C(1000000000), "index: 0 of 10 files"}, /* no rate yet */
        {"files", 3, 10, 3, 0, "index: 3 of 10 files"},
        {"files", UINT64_MAX - 1, UINT64_MAX, 1, 1,
         "index: 18446744073709551616 of 18446744073709551616 files, 1000000000 files/s, 0 s left"},
    };
    char text[TRAJD_PROGRESS_TEXT_SIZE], work[400];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        trajd_progress_text("index", cases[i].unit, cases[i].done, cases[i].total, cases[i].fresh,
                            cases[i].elapsed_ns, text);
        assert_string_equal(text, cases[i].text);
    }
    memset(work, 'w', sizeof work - 1);
    work[sizeof work - 1] = '\0';
    trajd_progress_text(work, "files", 1, 2, 1, 1, text);
    assert_non_null(strstr(text, "www: 1 of 2 files, "));
}

struct shown {
    unsigned lines, ends;
    char last[TRAJD_PROGRESS_TEXT_SIZE];
};

static void show(void *context, const char *text)
{
    struct shown *shown = context;

    shown->lines += text != NULL;
    shown->ends += text == NULL;
    if (text)
        snprintf(shown->last, sizeof shown->last, "%s", text);
}

static void each_report_is_a_line_without_an_interval(void **state)
{
    struct shown shown = {0};
    struct trajd_progress progress = {.show = show, .context = &shown};

    (void)state;
    trajd_progress_report("index", "files", 1, 3); /* no observer */
    trajd_progress_begin(&progress);
    trajd_progress_report("index", "files", 1, 3);
    trajd_progress_report("index", "files", 2, 3);
    assert_int_equal(shown.lines, 2);
    assert_int_equal(strncmp(shown.last, "index: 2 of 3 files, ", 21), 0);
    trajd_progress_report("index", "files", 3, 3);
    assert_int_equal(shown.lines, 2);
    assert_int_equal(shown.ends, 1);
    trajd_progress_report("nothing", "files", 0, 0);
    assert_int_equal(shown.lines, 2);
    trajd_progress_begin(NULL);
    trajd_progress_report("index", "files", 1, 3);
    assert_int_equal(shown.lines, 2);
}

static void the_rate_counts_from_the_begin_of_a_work(void **state)
{
    struct shown shown = {0};
    struct trajd_progress progress = {.show = show, .context = &shown};

    (void)state;
    trajd_progress_update(&progress, "index of a", "files", 500, 1000); /* resumed: no rate yet */
    assert_string_equal(shown.last, "index of a: 500 of 1000 files");
    trajd_progress_update(&progress, "index of a", "files", 501, 1000);
    assert_non_null(strstr(shown.last, "s left"));
    trajd_progress_update(&progress, "index of b", "files", 700, 1000);
    assert_string_equal(shown.last, "index of b: 700 of 1000 files");
    trajd_progress_update(&progress, "index of b", "files", 2, 1000); /* begun again */
    assert_string_equal(shown.last, "index of b: 2 of 1000 files");
}

static void lines_are_as_far_apart_as_the_interval(void **state)
{
    struct shown shown = {0};
    struct trajd_progress progress = {
        .show = show, .context = &shown, .interval_ns = INT64_C(3600000000000)};

    (void)state;
    for (uint64_t done = 0; done < 1000; done++)
        trajd_progress_update(&progress, "index", "files", done, 1000);
    assert_int_equal(shown.lines, 0);
    progress.begun_ns = progress.shown_ns -= INT64_C(3600000000000);
    trajd_progress_update(&progress, "index", "files", 999, 1000);
    trajd_progress_update(&progress, "index", "files", 999, 1000);
    assert_int_equal(shown.lines, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_has_done_total_rate_and_time_left),
        cmocka_unit_test(each_report_is_a_line_without_an_interval),
        cmocka_unit_test(the_rate_counts_from_the_begin_of_a_work),
        cmocka_unit_test(lines_are_as_far_apart_as_the_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
