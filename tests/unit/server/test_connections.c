/* What connections may cost: accept4 and recv of this program are those of connections.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/transport/connections.h"

#define FRAME_BYTES 65536u
#define LATER_NS (UINT64_C(1) << 62)

static char bytes[8192];

/* ---- a listener and its peers ---- */

static int make_listener(int type, struct sockaddr_un *address)
{
    static int number;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* an abstract name */
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "trajd-test-%ld-%d",
             (long)getpid(), number++);
    const int listener = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)address, sizeof *address), 0);
    assert_int_equal(listen(listener, 64), 0);
    return listener;
}

/* Connects. Returns the daemon's end, or -1 if it was refused. */
static int join(int listener, const struct sockaddr_un *address, int type, int *peer)
{
    *peer = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*peer, (const struct sockaddr *)address, sizeof *address), 0);
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void start(uint32_t max_sessions)
{
    const struct trajd_connections_options options = {.max_sessions = max_sessions,
                                                      .max_frame_bytes = FRAME_BYTES};
    assert_true(trajd_connections_start(&options));
}

static struct trajd_connections_counters counters(void)
{
    struct trajd_connections_counters now;
    trajd_connections_get_counters(&now);
    return now;
}

/* Sends a piece and lets the daemon read it. Returns false if the connection is cut. */
static bool pass(int peer, int fd, size_t size)
{
    return send(peer, bytes, size, MSG_NOSIGNAL) == (ssize_t)size &&
           recv(fd, bytes, sizeof bytes, 0) == (ssize_t)size;
}

/* Returns how many pieces of this size are read before the connection is cut. */
static uint32_t count_pieces(int peer, int fd, size_t size)
{
    uint32_t count = 0;
    while (count < 100000 && pass(peer, fd, size))
        count++;
    return count;
}

/* ---- tests ---- */

static void test_unfinished_messages_are_limited(void **state)
{
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer, fd;
    start(16);
    const struct {
        bool has_session;
        size_t size;
        uint32_t count;
    } cases[] = {
        {false, 8192, 2},
        {false, 1, 65},
        {true, 8192, 65},
        {true, 1, 1025},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t cut = counters().cut;
        fd = join(listener, &address, SOCK_STREAM, &peer);
        trajd_connections_set_session(fd, cases[i].has_session);
        assert_int_equal(count_pieces(peer, fd, cases[i].size), cases[i].count);
        assert_int_equal(errno, ECONNRESET);
        assert_int_equal(counters().cut, cut + 1);
        close(fd);
        close(peer);
    }
    close(listener);
}

static void test_received_messages_cost_nothing(void **state)
{
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer;
    start(16);
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    trajd_connections_set_session(fd, true);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_true(pass(peer, fd, 1000));
        trajd_connections_consume(fd, 990); /* without the header of its frame */
    }
    for (uint32_t i = 0; i < 200; i++) /* a message in many pieces */
        assert_true(pass(peer, fd, 100));
    trajd_connections_consume(fd, 20000);
    assert_int_equal(count_pieces(peer, fd, 1), 1025);
    close(fd);
    close(peer);
    close(listener);
}

static void test_there_are_as_many_as_allowed(void **state)
{
    enum { LIMIT = 35, MORE = 5 }; /* with 2 sessions */
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peers[LIMIT + MORE], fds[LIMIT];
    const struct trajd_connections_counters before = counters();
    start(2);
    for (uint32_t i = 0; i < LIMIT + MORE; i++) {
        const int fd = join(listener, &address, SOCK_STREAM, &peers[i]);
        assert_int_equal(fd >= 0, i < LIMIT);
        if (i < LIMIT)
            fds[i] = fd;
        else
            assert_int_equal(errno, EAGAIN);
    }
    assert_int_equal(counters().refused, before.refused + MORE);
    /* a connection that was closed makes room */
    close(fds[0]);
    close(peers[LIMIT]);
    trajd_connections_watch(0);
    fds[0] = join(listener, &address, SOCK_STREAM, &peers[LIMIT]);
    assert_true(fds[0] >= 0);
    /* those that begin no session are cut */
    assert_int_equal(counters().cut, before.cut);
    trajd_connections_set_session(fds[0], true);
    trajd_connections_watch(LATER_NS);
    assert_int_equal(counters().cut, before.cut + LIMIT - 1);
    assert_true(pass(peers[LIMIT], fds[0], 1));
    assert_false(pass(peers[1], fds[1], 1));
    for (uint32_t i = 0; i < LIMIT + MORE; i++)
        close(peers[i]);
    for (uint32_t i = 0; i < LIMIT; i++)
        close(fds[i]);
    close(listener);
}

/* All together: newcomers go first, then sessions with more than their share. */
static void test_the_budget_of_all(void **state)
{
    enum { SESSIONS = 20, NEWCOMERS = 10 };
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peers[SESSIONS + NEWCOMERS], fds[SESSIONS + NEWCOMERS];
    start(SESSIONS); /* a budget of 52 MiB */
    for (uint32_t i = 0; i < SESSIONS + NEWCOMERS; i++) {
        fds[i] = join(listener, &address, SOCK_STREAM, &peers[i]);
        trajd_connections_set_session(fds[i], i < SESSIONS);
        assert_true(pass(peers[i], fds[i], i < SESSIONS ? 16 : 4096));
    }
    const uint64_t cut = counters().cut;
    trajd_connections_watch(0);
    assert_int_equal(counters().cut, cut);
    for (uint32_t i = 0; i < 4; i++) /* 16 MiB each */
        for (uint32_t k = 0; k < 60; k++)
            assert_true(pass(peers[i], fds[i], 8192));
    trajd_connections_watch(0);
    assert_int_equal(counters().cut, cut + NEWCOMERS + 4);
    assert_false(pass(peers[0], fds[0], 1));
    assert_true(pass(peers[4], fds[4], 1));
    for (uint32_t i = 0; i < SESSIONS + NEWCOMERS; i++) {
        close(peers[i]);
        close(fds[i]);
    }
    close(listener);
}

static void test_other_sockets_are_not_limited(void **state)
{
    (void)state;
    struct sockaddr_un address;
    int listener = make_listener(SOCK_STREAM, &address), peer, pair[2];
    start(16);
    /* a descriptor that had a connection and now belongs to another socket */
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    assert_int_equal(count_pieces(peer, fd, 8192), 2);
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pair[0], fd);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(pass(pair[1], pair[0], 8192));
    close(pair[0]);
    close(pair[1]);
    close(peer);
    close(listener);
    listener = make_listener(SOCK_SEQPACKET, &address);
    const int other = join(listener, &address, SOCK_SEQPACKET, &peer);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(pass(peer, other, 8192));
    close(other);
    close(peer);
    close(listener);
}

/* A peer that is cut and connects again does not keep libzmq busy. */
static void test_few_are_accepted_while_others_are_cut(void **state)
{
    enum { TRIES = 30 };
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peers[TRIES], fds[TRIES];
    uint32_t accepted = 0;
    start(64);
    fds[0] = join(listener, &address, SOCK_STREAM, &peers[0]);
    assert_int_equal(count_pieces(peers[0], fds[0], 8192), 2);
    const uint64_t refused = counters().refused;
    for (uint32_t i = 1; i < TRIES; i++) {
        fds[i] = join(listener, &address, SOCK_STREAM, &peers[i]);
        accepted += fds[i] >= 0;
    }
    assert_true(accepted >= 9);
    assert_int_equal(counters().refused - refused, TRIES - 1 - accepted);
    for (uint32_t i = 0; i < TRIES; i++) {
        close(peers[i]);
        if (fds[i] >= 0)
            close(fds[i]);
    }
    close(listener);
}

static void test_blames_end_a_connection(void **state)
{
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer;
    start(16);
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    for (uint32_t i = 0; i < 16; i++)
        trajd_connections_blame(fd);
    trajd_connections_set_session(fd, true); /* forgets them */
    for (uint32_t i = 0; i < 16; i++)
        trajd_connections_blame(fd);
    assert_true(pass(peer, fd, 1));
    trajd_connections_blame(fd);
    assert_false(pass(peer, fd, 1));
    close(fd);
    close(peer);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unfinished_messages_are_limited),
        cmocka_unit_test(test_received_messages_cost_nothing),
        cmocka_unit_test(test_there_are_as_many_as_allowed),
        cmocka_unit_test(test_the_budget_of_all),
        cmocka_unit_test(test_other_sockets_are_not_limited),
        cmocka_unit_test(test_few_are_accepted_while_others_are_cut),
        cmocka_unit_test(test_blames_end_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
