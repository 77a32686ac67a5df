/* Messages that wait while their peers end. The peer speaks ZMTP itself, since libzmq would read. */
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
#include "daemon/server/transport/transport.h"

enum { MESSAGES = 400, GREETING_BYTES = 64, WAIT_S = 60 };

static void send_all(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void receive_all(int fd, size_t size)
{
    char bytes[256];

    assert_int_equal(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
}

/* Accepts peers, while libzmq's thread reads. */
static void turn(struct trajd_transport *transport)
{
    trajd_transport_wait(transport, NULL, 0, 10);
    trajd_transport_turn(transport);
    usleep(10000);
}

/* Connects as a DEALER of ZMTP 3.1 without security. */
static int greet(struct trajd_transport *transport, const char *path)
{
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char greeting[GREETING_BYTES] = {(char)0xff};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    memcpy(greeting + 12, "NULL", 4);
    send_all(fd, greeting, sizeof greeting);
    receive_all(fd, sizeof greeting);
    send_all(fd, ready, sizeof ready - 1);
    while (recv(fd, greeting, sizeof greeting, MSG_DONTWAIT) < 0) /* READY of the daemon */
        turn(transport);
    return fd;
}

/* A peer sends messages and heartbeats, and ends before the daemon has received them. */
static void test_heartbeats_of_a_peer_that_has_ended(void **state)
{
    static const char ping[] = "\x04\x07\x04PING\0\0";
    char folder[] = "/tmp/trajd-transport-XXXXXX", path[64], flood[MESSAGES * 2 + 16 * 16] = {0};
    struct trajd_transport_options options = {
        .path = path, .max_frame_bytes = 65536, .send_limit = 16, .max_sessions = 4};
    struct trajd_transport *transport;
    struct trajd_incoming incoming;
    struct trajd_error error;
    const int64_t end_ns = trajd_now_ns() + WAIT_S * INT64_C(1000000000);
    size_t size = MESSAGES * 2; /* empty frames: flags and a length of 0 */
    uint32_t received = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/feed.sock", folder);
    if (trajd_transport_create(&options, &transport, &error))
        fail_msg("%s", error.message);
    for (int i = 0; i < 16; i++, size += sizeof ping - 1)
        memcpy(flood + size, ping, sizeof ping - 1);
    const int fd = greet(transport, path);
    send_all(fd, flood, size);
    for (int i = 0; i < 20; i++)
        turn(transport);
    close(fd);
    usleep(200000); /* it notices the end */
    while (received < MESSAGES && trajd_now_ns() < end_ns) {
        if (trajd_transport_receive(transport, &incoming))
            received++;
        else
            trajd_transport_wait(transport, NULL, 0, 100);
        trajd_transport_turn(transport);
    }
    assert_int_equal(received, MESSAGES);
    trajd_transport_destroy(&transport);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heartbeats_of_a_peer_that_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
