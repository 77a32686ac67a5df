/* Connections to fd.sock in a child made by fork: closed there, and open in the parent. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/link/link.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Runs the check in a child and returns its result. */
static bool check_in_child(bool (*check)(void *context), void *context)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(check(context) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct pair {
    struct trajd_link *links;
    int fds[2];
};

static bool both_are_closed(void *context)
{
    const struct pair *pair = context;
    return pair->links[0].fd == -1 && pair->links[1].fd == -1 && !is_open(pair->fds[0]) &&
           !is_open(pair->fds[1]);
}

static void test_a_child_has_no_connection(void **state)
{
    (void)state;
    struct trajd_link links[2] = {{.fd = -1}, {.fd = -1}};
    trajd_link_open_socket(&links[0]);
    trajd_link_open_socket(&links[1]);
    struct pair pair = {.links = links, .fds = {links[0].fd, links[1].fd}};
    assert_true(is_open(pair.fds[0]) && is_open(pair.fds[1]));
    assert_true(check_in_child(both_are_closed, &pair));
    assert_true(is_open(pair.fds[0]) && is_open(pair.fds[1]));
    assert_int_equal(links[0].fd, pair.fds[0]);
    trajd_link_close_socket(&links[0]);
    trajd_link_close_socket(&links[1]);
    assert_false(is_open(pair.fds[0]) || is_open(pair.fds[1]));
}

static bool can_connect_anew(void *context)
{
    struct trajd_link *link = context, own = {.fd = -1};
    trajd_link_close_socket(link); /* not in the child's list: does nothing */
    trajd_link_open_socket(&own);
    const int fd = own.fd;
    const bool opened = is_open(fd);
    trajd_link_close_socket(&own);
    return opened && link->fd == -1 && !is_open(fd);
}

static void test_a_child_can_connect_anew(void **state)
{
    (void)state;
    struct trajd_link link = {.fd = -1};
    trajd_link_open_socket(&link);
    assert_true(check_in_child(can_connect_anew, &link));
    assert_true(is_open(link.fd));
    trajd_link_close_socket(&link);
}

static bool descriptor_is_open(void *context)
{
    return is_open(*(int *)context);
}

/* The number of a closed connection belongs to another file, which a child keeps. */
static void test_a_closed_connection_is_forgotten(void **state)
{
    (void)state;
    struct trajd_link links[2] = {{.fd = -1}, {.fd = -1}};
    trajd_link_open_socket(&links[0]);
    trajd_link_open_socket(&links[1]);
    int fd = links[0].fd;
    trajd_link_close_socket(&links[0]);
    assert_int_equal(links[0].fd, -1);
    trajd_link_close_socket(&links[0]); /* twice is fine */
    assert_int_equal(open("/dev/null", O_RDONLY | O_CLOEXEC), fd);
    assert_true(check_in_child(descriptor_is_open, &fd));
    close(fd);
    trajd_link_close_socket(&links[1]);
}

static void test_the_socket_closes_on_exec(void **state)
{
    (void)state;
    struct trajd_link link = {.fd = -1};
    trajd_link_open_socket(&link);
    assert_int_equal(fcntl(link.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(link.fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    trajd_link_close_socket(&link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_has_no_connection),
        cmocka_unit_test(test_a_child_can_connect_anew),
        cmocka_unit_test(test_a_closed_connection_is_forgotten),
        cmocka_unit_test(test_the_socket_closes_on_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
