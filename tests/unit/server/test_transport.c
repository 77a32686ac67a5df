/* Messages that wait while their peers end, and peers that libzmq would not be. So the peers speak
 * ZMTP themselves. */
#include <errno.h>
#include <poll.h>
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
#include "daemon/server/transport/connections.h"
#include "daemon/server/transport/transport.h"

enum { MESSAGES = 400, GREETING_BYTES = 64, WAIT_S = 60 };

static char folder[] = "/tmp/trajd-transport-XXXXXX", path[64];

static uint32_t lines; /* of the log, about connections that were cut */

static void count_line(void *context, const char *line)
{
    (void)context;
    lines += strstr(line, "cut off") != NULL;
}

static int start(void **state)
{
    struct trajd_transport_options options = {.path = path,
                                              .max_frame_bytes = 65536,
                                              .send_limit = 16,
                                              .max_sessions = 4,
                                              .remote.log_line = count_line};
    struct trajd_transport *transport;
    struct trajd_error error;

    memset(folder + strlen(folder) - 6, 'X', 6);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/feed.sock", folder);
    if (trajd_transport_create(&options, &transport, &error))
        fail_msg("%s", error.message);
    *state = transport;
    return 0;
}

static int stop(void **state)
{
    struct trajd_transport *transport = *state;

    trajd_transport_destroy(&transport);
    unlink(path);
    return rmdir(folder);
}

static void send_all(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Accepts peers, while libzmq's thread reads. */
static void turn(struct trajd_transport *transport)
{
    trajd_transport_wait(transport, NULL, 0, 10);
    trajd_transport_turn(transport);
    usleep(10000);
}

/* Sends a greeting of this revision of ZMTP: 3 is ZMTP 3.1, without security. */
static int greet(char revision)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char greeting[GREETING_BYTES] = {(char)0xff};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    greeting[9] = 0x7f;
    greeting[10] = revision;
    greeting[11] = 1;
    memcpy(greeting + 12, "NULL", 4);
    send(fd, greeting, sizeof greeting, MSG_NOSIGNAL); /* it may be refused already */
    return fd;
}

/* Exchanges greetings. While other connections are cut some are refused, which the next watch ends,
 * and peers come again. */
static int greet_until_accepted(void)
{
    char bytes[GREETING_BYTES];

    for (;;) {
        const int fd = greet(3);
        struct pollfd answer = {.fd = fd, .events = POLLIN};

        while (poll(&answer, 1, 20) == 0)
            trajd_connections_watch((uint64_t)trajd_now_ns());
        if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) == GREETING_BYTES)
            return fd;
        close(fd);
        usleep(20000);
    }
}

/* Connects as a DEALER. */
static int join(struct trajd_transport *transport)
{
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER";
    char bytes[64];
    const int fd = greet_until_accepted();

    send_all(fd, ready, sizeof ready - 1);
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0) /* READY of the daemon */
        turn(transport);
    return fd;
}

/* Receives the next message. Returns in how many calls. */
static uint32_t receive_next(struct trajd_transport *transport, struct trajd_incoming *incoming)
{
    const int64_t end_ns = trajd_now_ns() + WAIT_S * INT64_C(1000000000);
    uint32_t calls = 0;

    incoming->frame = NULL;
    while (!incoming->frame && trajd_now_ns() < end_ns) {
        if (trajd_transport_receive(transport, incoming))
            calls++;
        else
            trajd_transport_wait(transport, NULL, 0, 100);
        trajd_transport_turn(transport);
    }
    assert_non_null(incoming->frame);
    return calls;
}

/* Sends a message, and notes its sender as one with a session. */
static void begin_session(struct trajd_transport *transport, int fd)
{
    struct trajd_incoming incoming;

    send_all(fd, "\0\5HELLO", 7);
    receive_next(transport, &incoming);
    trajd_connections_set_session(incoming.route.descriptor, true);
}

/* Waits until the daemon has ended a connection. */
static void await_end(struct trajd_transport *transport, int fd)
{
    const int64_t end_ns = trajd_now_ns() + WAIT_S * INT64_C(1000000000);
    char bytes[256];
    ssize_t size;

    while ((size = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) != 0 &&
           (size > 0 || errno == EAGAIN) && trajd_now_ns() < end_ns)
        turn(transport);
    assert_true(trajd_now_ns() < end_ns);
    close(fd);
}

/* ---- tests ---- */

/* A peer sends messages and heartbeats, and ends before the daemon has received them. */
static void test_heartbeats_of_a_peer_that_has_ended(void **state)
{
    static const char ping[] = "\x04\x07\x04PING\0\0";
    char flood[MESSAGES * 2 + 16 * 16] = {0};
    struct trajd_transport *transport = *state;
    struct trajd_incoming incoming;
    size_t size = MESSAGES * 2; /* empty frames: flags and a length of 0 */
    const int fd = join(transport);

    for (int i = 0; i < 16; i++, size += sizeof ping - 1)
        memcpy(flood + size, ping, sizeof ping - 1);
    begin_session(transport, fd);
    send_all(fd, flood, size);
    for (int i = 0; i < 20; i++)
        turn(transport);
    close(fd);
    usleep(200000); /* it notices the end */
    for (int i = 0; i < MESSAGES; i++)
        receive_next(transport, &incoming);
}

/* The connection is cut at the first frame that another one follows. The server gets none of them.
 */
static void test_messages_of_several_frames(void **state)
{
    static const char *const frames[] = {"\1\0\0\0", "\1\0\1\0"};
    struct trajd_transport *transport = *state;
    struct trajd_incoming incoming;
    const int good = join(transport);

    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        const int bad = join(transport);

        begin_session(transport, bad);
        send_all(bad, frames[i], 4);
        await_end(transport, bad);
    }
    send_all(good, "\0\4good", 6);
    assert_int_equal(receive_next(transport, &incoming), 1);
    assert_memory_equal(incoming.frame, "good", 4);
    assert_int_equal(trajd_transport_get_counters(transport)->malformed, 0);
    close(good);
}

/* The first cut is logged, and then none until there was none for ten seconds. */
static void test_a_flood_is_logged_once(void **state)
{
    static const uint8_t seconds[] = {0, 1, 10, 19, 28}, later[] = {39, 40};
    struct trajd_transport *transport = *state;
    const uint64_t now_ns = (uint64_t)trajd_now_ns();

    for (size_t i = 0; i < sizeof seconds + sizeof later; i++) {
        const uint8_t second = i < sizeof seconds ? seconds[i] : later[i - sizeof seconds];
        const int fd = join(transport);

        send_all(fd, "\1\0", 2);
        await_end(transport, fd);
        trajd_transport_tick(transport, now_ns + second * UINT64_C(1000000000));
        assert_int_equal(lines, i < sizeof seconds ? 1 : 2);
    }
}

/* Their frames are not those that zmtp.c counts. */
static void test_older_protocols_are_refused(void **state)
{
    for (char revision = 0; revision < 2; revision++)
        await_end(*state, greet(revision));
}

/* libzmq would keep the second one for ever. */
static void test_identities_are_refused(void **state)
{
    static const char ready[] = "\x04\x14\x05READY\x08Identity\0\0\0\1x";
    for (int i = 0; i < 2; i++) {
        const int fd = greet_until_accepted();

        send_all(fd, ready, sizeof ready - 1);
        await_end(*state, fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_heartbeats_of_a_peer_that_has_ended, start, stop),
        cmocka_unit_test_setup_teardown(test_messages_of_several_frames, start, stop),
        cmocka_unit_test_setup_teardown(test_a_flood_is_logged_once, start, stop),
        cmocka_unit_test_setup_teardown(test_older_protocols_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_identities_are_refused, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
