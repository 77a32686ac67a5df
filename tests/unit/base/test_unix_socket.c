/* The places of a table of connections, and what they are to each user. Descriptors that travel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

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

static void test_a_descriptor_travels(void **state)
{
    int sockets[2], ends[2], fd;
    char bytes[4] = "";

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(trajd_send_fd(sockets[0], "abc", 3, ends[1], 0), 3);
    assert_int_equal(trajd_receive_fd(sockets[1], bytes, sizeof bytes, &fd), 3);
    assert_string_equal(bytes, "abc");
    assert_int_equal(write(fd, "x", 1), 1); /* it is the pipe's other end */
    assert_int_equal(read(ends[0], bytes, sizeof bytes), 1);
    close(fd);
    assert_int_equal(trajd_send_fd(sockets[0], "d", 1, -1, 0), 1);
    assert_int_equal(trajd_receive_fd(sockets[1], bytes, sizeof bytes, &fd), 1);
    assert_int_equal(fd, -1);
    close(sockets[0]);
    assert_int_equal(trajd_receive_fd(sockets[1], bytes, sizeof bytes, &fd), 0);
    close(sockets[1]);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_free_place_comes_first),
        cmocka_unit_test(test_the_user_with_the_most_gives_its_least_recently_used_place),
        cmocka_unit_test(test_equal_shares_stay),
        cmocka_unit_test(test_a_descriptor_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
