/* proto/timebase.h against vectors of Python's big integers (tests/golden/sampler/timebase.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"
#include "proto/timebase.h"

static void vectors_of_big_integers_hold(void **state)
{
    FILE *file = fopen(TRAJD_SOURCE_DIR "/tests/golden/sampler/timebase.txt", "r");
    struct trajd_rate rate;
    int64_t in, expected;
    int lines = 0;
    char word[16];

    (void)state;
    assert_non_null(file);
    while (fscanf(file, "%15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, word, &rate.num,
                  &rate.den, &in, &expected) == 5) {
        int64_t got =
            strcmp(word, "row_ns") == 0 ? trajd_rate_row_ns(rate, in) : trajd_rate_row_at(rate, in);
        if (got != expected)
            fail_msg("%s of %" PRId64 " at %" PRId64 "/%" PRId64 " Hz is %" PRId64
                     ", expected %" PRId64,
                     word, in, rate.num, rate.den, got, expected);
        lines++;
    }
    assert_true(feof(file));
    assert_true(lines > 900);
    fclose(file);
}

/* Every time between two rows belongs to the earlier row, and below 1 GHz no two rows coincide. */
static void a_row_is_found_by_its_own_time(void **state)
{
    static const struct trajd_rate rates[] = {{15, 1}, {30, 1},   {30000, 1001},
                                              {60, 1}, {1000, 1}, {1, 7}};

    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rates); r++)
        for (int64_t row = -20000; row < 20000; row++) {
            int64_t here = trajd_rate_row_ns(rates[r], row),
                    next = trajd_rate_row_ns(rates[r], row + 1);
            assert_true(here < next);
            assert_true(trajd_rate_row_at(rates[r], here) == row);
            assert_true(trajd_rate_row_at(rates[r], next - 1) == row);
        }
}

static void stamps_are_counted_until_a_time(void **state)
{
    static const int64_t stamps[] = {-5, 0, 0, 7};

    (void)state;
    assert_int_equal(trajd_stamps_until(stamps, 0, 100), 0);
    assert_int_equal(trajd_stamps_until(stamps, 4, -6), 0);
    assert_int_equal(trajd_stamps_until(stamps, 4, -5), 1);
    assert_int_equal(trajd_stamps_until(stamps, 4, 0), 3);
    assert_int_equal(trajd_stamps_until(stamps, 4, 6), 3);
    assert_int_equal(trajd_stamps_until(stamps, 4, INT64_MAX), 4);
    assert_int_equal(trajd_stamps_until(stamps, 2, INT64_MAX), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_big_integers_hold),
        cmocka_unit_test(a_row_is_found_by_its_own_time),
        cmocka_unit_test(stamps_are_counted_until_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
