/* The places of a table of connections, and what they are to each user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/unix_socket.h"

enum { NONE = UINT32_MAX };

static void test_a_free_place_comes_first(void **state)
{
    (void)state;
    const struct trajd_unix_place places[] = {{5, 1, 1}, {-1, 1, 0}, {6, 1, 2}};
    assert_int_equal(trajd_unix_choose_place(places, 3, 1), 1);
    assert_int_equal(trajd_unix_choose_place(places, 0, 1), NONE);
}

static void test_the_user_with_the_most_gives_its_least_recently_used_place(void **state)
{
    (void)state;
    const struct trajd_unix_place places[] = {{5, 1, 1}, {6, 2, 9}, {7, 2, 7}, {8, 2, 8}};
    assert_int_equal(trajd_unix_choose_place(places, 4, 3), 2);
    assert_int_equal(trajd_unix_choose_place(places, 4, 1), 2);
    assert_int_equal(trajd_unix_choose_place(places, 4, 2), 2); /* its own */
}

static void test_equal_shares_stay(void **state)
{
    (void)state;
    const struct trajd_unix_place places[] = {{5, 1, 1}, {6, 1, 2}, {7, 2, 3}, {8, 2, 4}};
    assert_int_equal(trajd_unix_choose_place(places, 4, 2), 2); /* its own, not an older one */
    assert_int_equal(trajd_unix_choose_place(places, 4, 1), 0);
    assert_int_equal(trajd_unix_choose_place(places, 4, 3), 0);
    const struct trajd_unix_place one_each[] = {{5, 1, 1}, {6, 2, 2}};
    assert_int_equal(trajd_unix_choose_place(one_each, 2, 3), NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_free_place_comes_first),
        cmocka_unit_test(test_the_user_with_the_most_gives_its_least_recently_used_place),
        cmocka_unit_test(test_equal_shares_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
