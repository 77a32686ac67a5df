/* Tests the parsing of sizes, durations, rates and periods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/quantity.h"
#include "proto/array_len.h"

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"64 MiB", 64 << 20},
        {"1GiB", 1 << 30},
        {"1.5 KiB", 1536},
        {"2kB", 2000},
        {"2.000000000000000000000 MB", 2000000},
        {"0.5KiB", 512},
        {"3TiB", UINT64_C(3) << 40},
        {" 7 B ", 7},
        {"18446744073709551615", UINT64_MAX},
        {"-0", 0},
    };
    static const char *const bad[] = {"",
                                      " ",
                                      "MiB",
                                      "-1",
                                      "1.5",
                                      "64 mib",
                                      "64 MB x",
                                      "1e6",
                                      "0x10",
                                      "1,000",
                                      "1..5",
                                      "18446744073709551616",
                                      "16777216 TiB",
                                      "0.0001 KiB",
                                      "1.",
                                      ".5 MiB",
                                      "nan",
                                      "64\tMiB"};
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (!trajd_parse_size(good[i].text, &bytes))
            fail_msg("refused: %s", good[i].text);
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 42;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (trajd_parse_size(bad[i], &bytes))
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(bytes, 42);
}

static void test_durations(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {
        {"38ms", 38000000},
        {"1.5s", 1500000000},
        {"20us", 20000},
        {"100ns", 100},
        {"-200ms", -200000000},
        {"0", 0},
        {"0.0", 0},
        {"-0s", 0},
        {"1 h", INT64_C(3600000000000)},
        {"10min", INT64_C(600000000000)},
        {"90d", INT64_C(7776000000000000)},
        {"0.1s", 100000000},
        {"0.000000001s", 1},
        {"1.1ms", 1100000},
        {"9223372036854775807ns", INT64_MAX},
        {"-9223372036854775807ns", -INT64_MAX},
        {"9223372036.854775807s", INT64_MAX},
        {"+5ms", 5000000},
        {"2.500000000000000000000000us", 2500},
    };
    static const char *const bad[] = {"",
                                      "38",
                                      "1.5",
                                      "ms",
                                      "38 m s",
                                      "38msec",
                                      "0.5ns",
                                      "0.0000000001s",
                                      "1e3ms",
                                      "--1s",
                                      "9223372036854775808ns",
                                      "9223372037s",
                                      "2562048h",
                                      "99999999999999999999s",
                                      "38ms..",
                                      "inf s",
                                      "1.s",
                                      "0x1s"};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (!trajd_parse_duration(good[i].text, &ns))
            fail_msg("refused: %s", good[i].text);
        assert_true(ns == good[i].ns);
    }
    ns = 42;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (trajd_parse_duration(bad[i], &ns))
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(ns, 42);
}

static void test_rates(void **state)
{
    static const struct {
        const char *text;
        int64_t num, den;
    } good[] = {
        {"20", 20, 1},
        {"20.0", 20, 1},
        {"12.5", 25, 2},
        {"29.97", 30000, 1001},
        {"29.970", 30000, 1001},
        {"23.976", 24000, 1001},
        {"59.94", 60000, 1001},
        {"119.88", 120000, 1001},
        {"30000/1001", 30000, 1001},
        {"60000 / 2002", 30000, 1001},
        {"29.971", 29971, 1000},
        {"0.1", 1, 10},
        {"1000000000", 1000000000, 1},
        {"0.000001", 1, 1000000},
        {" 15 ", 15, 1},
        {"2997/100", 2997, 100},
        {"33.333333", 33333333, 1000000},
    };
    static const char *const bad[] = {"",
                                      "0",
                                      "-20",
                                      "0/1",
                                      "1/0",
                                      "20Hz",
                                      "20 fps",
                                      "1/2/3",
                                      "1.5/2",
                                      "3/1.5",
                                      "/2",
                                      "2/",
                                      "1000000001",
                                      "0.0000009",
                                      "1/1000001",
                                      "4294967296/4294967295",
                                      "1e2",
                                      "33.33333333333333",
                                      "18446744073709551616",
                                      "nan"};
    struct trajd_rate rate;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (!trajd_parse_rate(good[i].text, &rate))
            fail_msg("refused: %s", good[i].text);
        assert_int_equal(rate.num, good[i].num);
        assert_int_equal(rate.den, good[i].den);
    }
    rate = (struct trajd_rate){42, 43};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (trajd_parse_rate(bad[i], &rate))
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(rate.num, 42);
    assert_int_equal(rate.den, 43);
}

static void test_periods(void **state)
{
    static const struct {
        const char *text;
        uint32_t per_second;
        int64_t num, den;
    } good[] = {
        {"0.05", 1, 20, 1},
        {"50", 1000, 20, 1},
        {"33.333", 1000, 30, 1},
        {"0.033333335", 1, 30, 1},
        {"0.016667", 1, 60, 1},
        {"0.015", 1, 200, 3},
        {"2", 1, 1, 2},
        {"16666.7", 1000000, 60, 1},
        {"0.0333667", 1, 10000000, 333667},
        {"0.0000001", 1, 10000000, 1},
    };
    static const char *const bad[] = {"0", "-0.05", "", "0.05 s", "1e-2", "nan", "20/1", "2000001"};
    struct trajd_rate rate;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (!trajd_parse_period(good[i].text, good[i].per_second, &rate))
            fail_msg("refused: %s", good[i].text);
        assert_int_equal(rate.num, good[i].num);
        assert_int_equal(rate.den, good[i].den);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (trajd_parse_period(bad[i], 1, &rate))
            fail_msg("taken: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_periods),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
