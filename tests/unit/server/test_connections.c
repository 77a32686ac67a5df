/* What connections may cost: accept4 and recv of this program are those of connections.c. */
#include <arpa/inet.h>
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
#include "daemon/server/transport/zmtp.h"

#define FRAME_BYTES 65536u
#define SESSION_COST (8 * FRAME_BYTES + 256 * TRAJD_ZMTP_FRAME_BYTES)
#define NEWCOMER_COST 16384u
#define GREETING_BYTES 64
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

/* Sends a piece and lets the daemon read it. Returns false if the connection is cut. */
static bool pass(int peer, int fd, const void *piece, size_t size)
{
    return send(peer, piece, size, MSG_NOSIGNAL) == (ssize_t)size &&
           recv(fd, bytes, sizeof bytes, 0) == (ssize_t)size;
}

/* Connects. Returns the daemon's end, or -1 if it was refused. */
static int join(int listener, const struct sockaddr_un *address, int type, int *peer)
{
    static const char greeting[GREETING_BYTES] = {(char)0xff};
    *peer = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*peer, (const struct sockaddr *)address, sizeof *address), 0);
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd < 0 || pass(*peer, fd, greeting, sizeof greeting));
    return fd;
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

/* Sends a message. */
static bool pass_frame(int peer, int fd, uint8_t body_bytes)
{
    uint8_t frame[2 + UINT8_MAX] = {0, body_bytes};
    return pass(peer, fd, frame, 2u + body_bytes);
}

/* Returns how many frames of this size are read before the connection is cut. */
static uint32_t count_frames(int peer, int fd, uint8_t body_bytes)
{
    uint32_t count = 0;
    while (count < 100000 && pass_frame(peer, fd, body_bytes))
        count++;
    return count;
}

/* ---- tests ---- */

static void test_messages_are_limited(void **state)
{
    static const uint8_t sizes[] = {0, 1, 33, 34, 255};
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer, fd;
    for (size_t i = 0; i < 2 * sizeof sizes; i++) {
        start(16); /* no connection of before was cut */
        const bool has_session = i % 2;
        const uint64_t cut = counters().cut, limit = has_session ? SESSION_COST : NEWCOMER_COST;
        fd = join(listener, &address, SOCK_STREAM, &peer);
        trajd_connections_set_session(fd, has_session);
        assert_int_equal(count_frames(peer, fd, sizes[i / 2]),
                         limit / trajd_zmtp_cost(sizes[i / 2]));
        assert_int_equal(errno, ECONNRESET);
        assert_int_equal(counters().cut, cut + 1);
        close(fd);
        close(peer);
    }
    close(listener);
}

/* libzmq gets nothing of a read that is too much: 4096 frames. */
static void test_one_read_is_limited(void **state)
{
    static const uint8_t frames[8192];
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer;
    start(16);
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    assert_false(pass(peer, fd, frames, sizeof frames));
    assert_int_equal(errno, ECONNRESET);
    close(fd);
    close(peer);
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
    for (uint32_t i = 0; i < 20000; i++) {
        assert_true(pass(peer, fd, "\4\7\4PING\0\0", 9)); /* is not a message */
        assert_true(pass_frame(peer, fd, (uint8_t)i));
        trajd_connections_consume(fd, (uint8_t)i);
    }
    /* what was never sent is not counted for later */
    trajd_connections_consume(fd, SESSION_COST);
    assert_int_equal(count_frames(peer, fd, 0), SESSION_COST / TRAJD_ZMTP_FRAME_BYTES);
    close(fd);
    close(peer);
    close(listener);
}

/* Each may have what a session may, but not all of them at once: then those with more than an equal
 * share are cut, and others go on. */
static void test_all_connections_together_are_limited(void **state)
{
    enum { PEERS = 64, SUM = 4194304, HONEST = 48000 / TRAJD_ZMTP_FRAME_BYTES };
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peers[PEERS], fds[PEERS];
    uint64_t sum = 0;
    start(PEERS);
    for (uint32_t i = 0; i < PEERS; i++) {
        fds[i] = join(listener, &address, SOCK_STREAM, &peers[i]);
        trajd_connections_set_session(fds[i], true);
    }
    for (uint32_t i = 0; i < HONEST; i++)
        assert_true(pass_frame(peers[0], fds[0], 0));
    for (uint32_t i = 1; i < PEERS; i++) {
        uint32_t count = 0;
        while (count < SUM / TRAJD_ZMTP_FRAME_BYTES && pass_frame(peers[i], fds[i], 0))
            count++;
        sum += count * TRAJD_ZMTP_FRAME_BYTES;
    }
    assert_in_range(sum, SUM, 2 * SUM);
    assert_true(pass_frame(peers[0], fds[0], 0));
    for (uint32_t i = 1; i < PEERS; i++) {
        close(fds[i]);
        close(peers[i]);
    }
    trajd_connections_watch(LATER_NS); /* what is left of the closed ones counts no longer */
    assert_int_equal(count_frames(peers[0], fds[0], 0),
                     SESSION_COST / TRAJD_ZMTP_FRAME_BYTES - HONEST - 1);
    close(fds[0]);
    close(peers[0]);
    close(listener);
}

/* What waits for a peer is limited for each, and for all of them together. */
static void test_what_waits_for_peers_is_limited(void **state)
{
    enum { PEERS = 64, ANSWER = 65536, QUEUES = TRAJD_CONNECTIONS_QUEUES };
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peers[PEERS], fds[PEERS];
    uint64_t sum = 0, number = 0;
    start(PEERS);
    for (uint32_t i = 0; i < PEERS; i++)
        fds[i] = join(listener, &address, SOCK_STREAM, &peers[i]);
    for (uint32_t i = 0; i < PEERS; i++) {
        for (int queue = 0; queue < QUEUES; queue++)
            while (!trajd_connections_is_queue_full(fds[i], queue, ANSWER)) {
                number = trajd_connections_add_queued(fds[i], queue, ANSWER);
                sum += ANSWER;
            }
        assert_true(i > 0 || sum == QUEUES * 4 * ANSWER);
    }
    assert_in_range(sum, 4194304, 4194304 + PEERS * QUEUES * ANSWER);
    /* the last one gets more where it has read all */
    trajd_connections_remove_queued(fds[PEERS - 1], 1, number, ANSWER);
    assert_false(trajd_connections_is_queue_full(fds[PEERS - 1], 1, ANSWER));
    /* what an earlier connection of this descriptor has left is not removed from the next one */
    close(fds[PEERS - 1]);
    close(peers[PEERS - 1]);
    fds[PEERS - 1] = join(listener, &address, SOCK_STREAM, &peers[PEERS - 1]);
    trajd_connections_remove_queued(fds[PEERS - 1], 0, number, ANSWER);
    assert_false(trajd_connections_is_queue_full(fds[PEERS - 1], 0, ANSWER));
    for (uint32_t i = 0; i < PEERS; i++) {
        close(fds[i]);
        close(peers[i]);
    }
    close(listener);
}

/* A worker with 64 batches returns all of them while the daemon does not answer, and asks for the
 * status in vain. */
static void test_a_worker_of_a_daemon_that_stalls(void **state)
{
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer;
    start(16);
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    trajd_connections_set_session(fd, true);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(pass_frame(peer, fd, i < 64 ? 255 : 40));
    close(fd);
    close(peer);
    close(listener);
}

/* CURVE hides which frames of 40 bytes are heartbeats. One each second is none. */
static void test_heartbeats_over_tcp(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    uint64_t now_ns = LATER_NS;

    (void)state;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    start(16);
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer, (struct sockaddr *)&address, sizeof address), 0);
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(pass(peer, fd, bytes, GREETING_BYTES));
    for (uint32_t i = 0; i < 5000; i++, now_ns += 1000000000) {
        assert_true(pass_frame(peer, fd, 40));
        for (uint32_t k = 0; k < 10; k++)
            trajd_connections_watch(now_ns + k);
    }
    assert_int_equal(count_frames(peer, fd, 40), NEWCOMER_COST / trajd_zmtp_cost(40));
    close(fd);
    close(peer);
    close(listener);
}

/* What ended connections have left counts until the server has received everything. */
static void test_ended_connections_leave_messages(void **state)
{
    enum { MOST = 8388608 / (NEWCOMER_COST - TRAJD_ZMTP_FRAME_BYTES) + 2 };
    (void)state;
    struct sockaddr_un address;
    const int listener = make_listener(SOCK_STREAM, &address);
    int peer, fd = 0;
    uint32_t count = 0;
    start(16);
    for (uint32_t round = 0; round < 2; round++) {
        for (count = 0; count < 2 * MOST; count++) {
            fd = join(listener, &address, SOCK_STREAM, &peer);
            if (fd < 0)
                break;
            for (uint32_t i = 0; i < NEWCOMER_COST / TRAJD_ZMTP_FRAME_BYTES; i++)
                assert_true(pass_frame(peer, fd, 0));
            close(fd);
            close(peer);
        }
        assert_in_range(count, 500, MOST);
        close(peer);
        trajd_connections_consume_all();
    }
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
    assert_true(pass_frame(peers[LIMIT], fds[0], 1));
    assert_false(pass_frame(peers[1], fds[1], 1));
    for (uint32_t i = 0; i < LIMIT + MORE; i++)
        close(peers[i]);
    for (uint32_t i = 0; i < LIMIT; i++)
        close(fds[i]);
    close(listener);
}

static void test_other_sockets_are_not_limited(void **state)
{
    static const char other[8192];
    (void)state;
    struct sockaddr_un address;
    int listener = make_listener(SOCK_STREAM, &address), peer, pair[2];
    start(16);
    /* a descriptor that had a connection and now belongs to another socket */
    const int fd = join(listener, &address, SOCK_STREAM, &peer);
    assert_int_equal(count_frames(peer, fd, 0), NEWCOMER_COST / TRAJD_ZMTP_FRAME_BYTES);
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pair[0], fd);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(pass(pair[1], pair[0], other, sizeof other));
    close(pair[0]);
    close(pair[1]);
    close(peer);
    close(listener);
    listener = make_listener(SOCK_SEQPACKET, &address);
    const int packets = join(listener, &address, SOCK_SEQPACKET, &peer);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(pass(peer, packets, other, sizeof other));
    close(packets);
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
    assert_int_equal(count_frames(peers[0], fds[0], 0), NEWCOMER_COST / TRAJD_ZMTP_FRAME_BYTES);
    const uint64_t refused = counters().refused;
    for (uint32_t i = 1; i < TRIES; i++) {
        fds[i] = join(listener, &address, SOCK_STREAM, &peers[i]);
        accepted += fds[i] >= 0;
    }
    assert_true(accepted >= 3);
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
    int fd = join(listener, &address, SOCK_STREAM, &peer);
    for (uint32_t i = 0; i < 16; i++)
        trajd_connections_blame(fd);
    trajd_connections_set_session(fd, true); /* forgets them */
    for (uint32_t i = 0; i < 16; i++)
        trajd_connections_blame(fd);
    assert_true(pass_frame(peer, fd, 1));
    trajd_connections_blame(fd);
    assert_false(pass_frame(peer, fd, 1));
    close(fd);
    close(peer);
    fd = join(listener, &address, SOCK_STREAM, &peer);
    trajd_connections_cut(fd);
    assert_true(trajd_connections_is_cut(fd));
    assert_false(pass_frame(peer, fd, 1));
    close(fd);
    close(peer);
    close(listener);
}

/* Otherwise a peer that connects again as soon as it is refused would wake libzmq's thread again and
 * again. */
static void test_a_refused_connection_is_closed_later(void **state)
{
    enum { HELD = 32, REFUSED = HELD + 8 };
    struct sockaddr_un address;
    int peers[REFUSED], fds[64], peer, held = 0;
    uint32_t count = 0;

    (void)state;
    start(1);
    const int listener = make_listener(SOCK_STREAM, &address);
    while ((fds[count] = join(listener, &address, SOCK_STREAM, &peer)) >= 0)
        close(peer), count++;
    close(peer);
    for (int i = 0; i < REFUSED; i++) {
        assert_int_equal(join(listener, &address, SOCK_STREAM, &peers[i]), -1);
        held += recv(peers[i], bytes, 1, MSG_DONTWAIT) < 0;
    }
    assert_int_equal(held, HELD - 1); /* one of them is the first that was refused */
    trajd_connections_watch(1);
    for (int i = 0; i < REFUSED; i++) {
        assert_int_equal(recv(peers[i], bytes, 1, MSG_DONTWAIT), 0);
        close(peers[i]);
    }
    while (count > 0)
        close(fds[--count]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_limited),
        cmocka_unit_test(test_one_read_is_limited),
        cmocka_unit_test(test_received_messages_cost_nothing),
        cmocka_unit_test(test_all_connections_together_are_limited),
        cmocka_unit_test(test_what_waits_for_peers_is_limited),
        cmocka_unit_test(test_a_worker_of_a_daemon_that_stalls),
        cmocka_unit_test(test_heartbeats_over_tcp),
        cmocka_unit_test(test_ended_connections_leave_messages),
        cmocka_unit_test(test_there_are_as_many_as_allowed),
        cmocka_unit_test(test_other_sockets_are_not_limited),
        cmocka_unit_test(test_few_are_accepted_while_others_are_cut),
        cmocka_unit_test(test_blames_end_a_connection),
        cmocka_unit_test(test_a_refused_connection_is_closed_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
