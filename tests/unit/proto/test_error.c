/* Errors: filling, prefixes, and messages that are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/array_len.h"
#include "proto/error.h"

static void test_an_error_is_filled_and_prefixed(void **state)
{
    (void)state;
    struct trajd_error error;
    assert_int_equal(trajd_error_set(&error, TRAJD_ERR_DATA, 5, "row %d: %s", 7, "bad"),
                     TRAJD_ERR_DATA);
    assert_int_equal(error.foreign_code, 5);
    assert_int_equal(trajd_error_prefix(&error, "file %s", "a.hdf5"), TRAJD_ERR_DATA);
    assert_string_equal(error.message, "file a.hdf5: row 7: bad");
    assert_int_equal(error.foreign_code, 5);
}

static void test_an_error_is_optional(void **state)
{
    (void)state;
    assert_int_equal(trajd_error_set(NULL, TRAJD_ERR_BUSY, 0, "x"), TRAJD_ERR_BUSY);
    assert_int_equal(trajd_error_prefix(NULL, "x"), TRAJD_ERR_SYSTEM);
}

/* Every length of prefix and message gives the beginning of "PREFIX: MESSAGE". */
static void test_long_messages_are_cut(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 200, 308, 309, 310, 311, 508, 509, 510, 511, 600};
    char prefix[601], message[601], expected[1300];
    struct trajd_error error;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t j = 0; j < ARRAY_LEN(lengths); j++) {
            memset(prefix, 'p', lengths[i]);
            prefix[lengths[i]] = '\0';
            memset(message, 'm', lengths[j]);
            message[lengths[j]] = '\0';
            trajd_error_set(&error, TRAJD_ERR_IO, 0, "%s", message);
            trajd_error_prefix(&error, "%s", prefix);
            snprintf(expected, sizeof expected, "%s: %s", prefix, message);
            expected[TRAJD_ERROR_MESSAGE_SIZE - 1] = '\0';
            assert_string_equal(error.message, expected);
        }
}

static void test_status_names_differ(void **state)
{
    (void)state;
    for (int i = TRAJD_OK; i <= TRAJD_END_OF_EPOCH; i++)
        for (int j = TRAJD_OK; j < i; j++)
            assert_string_not_equal(trajd_status_name((enum trajd_status)i),
                                    trajd_status_name((enum trajd_status)j));
    assert_string_equal(trajd_status_name((enum trajd_status)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_error_is_filled_and_prefixed),
        cmocka_unit_test(test_an_error_is_optional),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_status_names_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
