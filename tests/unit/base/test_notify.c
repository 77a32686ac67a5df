/* Tests the messages to the service manager, with a socket in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/clock.h"
#include "daemon/base/notify.h"
#include "proto/array_len.h"

/* The manager's end: a bound datagram socket; `name` is what NOTIFY_SOCKET would say. */
static int listen_as(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path, name, strlen(name));
    if (*name == '@')
        address.sun_path[0] = 0;
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    return fd;
}

static void expect_message(int fd, const char *expected)
{
    char message[2048];
    ssize_t length = recv(fd, message, sizeof message - 1, 0);

    assert_true(length >= 0);
    message[length] = 0;
    assert_string_equal(message, expected);
}

static void set_environment(const char *socket_name, const char *watchdog_us, long watched_pid)
{
    char pid[32];

    setenv("NOTIFY_SOCKET", socket_name, 1);
    setenv("WATCHDOG_USEC", watchdog_us, 1);
    snprintf(pid, sizeof pid, "%ld", watched_pid);
    setenv("WATCHDOG_PID", pid, 1);
}

static void expect_clean_environment(void)
{
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
}

static void talk(const char *name)
{
    int manager = listen_as(name);
    struct trajd_notify notify;
    struct trajd_error error;
    long long before_us = trajd_now_ns() / 1000, at_us = 0;
    char message[256];
    ssize_t length;

    set_environment(name, "3000000", getpid());
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_OK);
    expect_clean_environment();
    assert_true(notify.watchdog_ns == INT64_C(3000000000));
    assert_int_equal(trajd_notify_send(&notify, &error, "READY=1\nSTATUS=%d feeds", 3), TRAJD_OK);
    expect_message(manager, "READY=1\nSTATUS=3 feeds");
    assert_int_equal(trajd_notify_reloading(&notify, &error), TRAJD_OK);
    length = recv(manager, message, sizeof message - 1, 0);
    assert_true(length > 0);
    message[length] = 0;
    assert_int_equal(sscanf(message, "RELOADING=1\nMONOTONIC_USEC=%lld", &at_us), 1);
    assert_true(at_us >= before_us && at_us <= trajd_now_ns() / 1000);
    close(manager);
    assert_int_equal(trajd_notify_send(&notify, &error, "STOPPING=1"), TRAJD_ERR_SYSTEM);
    trajd_notify_close(&notify);
    assert_int_equal(trajd_notify_send(&notify, &error, "STOPPING=1"), TRAJD_OK);
}

static void test_path_and_abstract(void **state)
{
    char path[64], abstract[64];

    (void)state;
    snprintf(path, sizeof path, "/tmp/trajd-notify-%d", (int)getpid());
    snprintf(abstract, sizeof abstract, "@trajd-notify-%d", (int)getpid());
    talk(path);
    unlink(path);
    talk(abstract);
}

static void test_nobody_listens(void **state)
{
    struct trajd_notify notify;
    struct trajd_error error;

    (void)state;
    unsetenv("NOTIFY_SOCKET");
    setenv("WATCHDOG_USEC", "3000000", 1);
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_OK);
    expect_clean_environment();
    assert_int_equal(notify.fd, -1);
    assert_true(notify.watchdog_ns == 0);
    assert_int_equal(trajd_notify_send(&notify, &error, "READY=1"), TRAJD_OK);
    assert_int_equal(trajd_notify_reloading(&notify, &error), TRAJD_OK);
    trajd_notify_close(&notify);
}

static void test_bad_environment(void **state)
{
    static const char *const names[] = {"relative", "vsock:2:1234", "@", "/"};
    char long_name[200];
    struct trajd_notify notify;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        set_environment(names[i], "1", 1);
        assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_ERR_UNSUPPORTED);
        expect_clean_environment();
        assert_int_equal(notify.fd, -1);
    }
    memset(long_name, '/', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    set_environment(long_name, "1", 1);
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_ERR_UNSUPPORTED);
    set_environment("/nonexistent/notify", "1", 1);
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "/nonexistent/notify"));
}

static void test_watchdog_of_others_and_nonsense(void **state)
{
    static const char *const intervals[] = {"0", "-5", "abc", "99999999999999999999"};
    struct trajd_notify notify;
    struct trajd_error error;
    char message[1200];
    char name[64];
    int manager;

    (void)state;
    snprintf(name, sizeof name, "@trajd-watchdog-%d", (int)getpid());
    manager = listen_as(name);
    set_environment(name, "3000000", getpid() + 1);
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_OK);
    assert_true(notify.watchdog_ns == 0);
    trajd_notify_close(&notify);
    for (size_t i = 0; i < ARRAY_LEN(intervals); i++) {
        set_environment(name, intervals[i], getpid());
        assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_OK);
        assert_true(notify.watchdog_ns == 0);
        trajd_notify_close(&notify);
    }
    set_environment(name, "1", getpid());
    assert_int_equal(trajd_notify_open(&notify, &error), TRAJD_OK);
    memset(message, 'x', sizeof message - 1);
    message[sizeof message - 1] = 0;
    assert_int_equal(trajd_notify_send(&notify, &error, "STATUS=%s", message), TRAJD_ERR_ARGUMENT);
    trajd_notify_close(&notify);
    close(manager);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_and_abstract),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_bad_environment),
        cmocka_unit_test(test_watchdog_of_others_and_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
