/* Daemons that flood. The peer speaks ZMTP itself, since libzmq would stop at the worker's limits. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
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

#include "clients/c/client_clock.h"
#include "clients/c/client_internal.h"
#include "clients/c/link/link.h"
#include "clients/c/session/session.h"
#include "clients/c/trajd.h"
#include "proto/wire.h"

#define SECOND_NS UINT64_C(1000000000)

enum {
    MESSAGES = 1500,
    PINGS = 16,
    GREETING_BYTES = 64,
    WAIT_S = 60,
    LONG_FRAME = 600,
    FRAMES = 100
};

static char directory[64], endpoint[64];

/* ---- a peer ---- */

static int listen_on(const struct sockaddr *address, socklen_t size)
{
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, address, size), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int listen_locally(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/feed.sock", directory);
    snprintf(endpoint, sizeof endpoint, "%s", directory);
    return listen_on((const struct sockaddr *)&address, sizeof address);
}

static int listen_on_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int fd = listen_on((const struct sockaddr *)&address, sizeof address);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    return fd;
}

static bool send_all(int fd, const void *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t count = send(fd, (const char *)bytes + at, size - at, MSG_NOSIGNAL);
        if (count < 0)
            return false;
        at += (size_t)count;
    }
    return true;
}

static void receive_all(int fd, void *bytes, size_t size)
{
    if (recv(fd, bytes, size, MSG_WAITALL) != (ssize_t)size)
        abort();
}

/* Receives one frame of at most 255 bytes. */
static void receive_frame(int fd)
{
    unsigned char head[2], body[256];
    receive_all(fd, head, sizeof head);
    receive_all(fd, body, head[1]);
}

/* Accepts the worker as a ROUTER of ZMTP 3.1 without security. */
static int accept_worker(int listener)
{
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "ROUTER";
    char greeting[GREETING_BYTES] = {(char)0xff};
    const int fd = accept(listener, NULL, NULL);
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    memcpy(greeting + 12, "NULL", 4);
    send_all(fd, greeting, sizeof greeting);
    receive_all(fd, greeting, sizeof greeting);
    send_all(fd, ready, sizeof ready - 1);
    receive_frame(fd); /* READY */
    return fd;
}

/* ---- a daemon floods, sends heartbeats of ZeroMQ and ends; the worker reads later ---- */

static void flood_and_end(int listener)
{
    static const char message[] = "\0\1x"; /* flags, length, one byte */
    static const char ping[] = "\x04\x07\x04PING\0\0";
    static const struct linger reset = {.l_onoff = 1};
    static char flood[MESSAGES * (sizeof message - 1) + PINGS * (sizeof ping - 1)];
    char *at = flood;
    const int fd = accept_worker(listener);
    for (int i = 0; i < MESSAGES; i++, at += sizeof message - 1)
        memcpy(at, message, sizeof message - 1);
    for (int i = 0; i < PINGS; i++, at += sizeof ping - 1)
        memcpy(at, ping, sizeof ping - 1);
    assert_true(send_all(fd, flood, sizeof flood));
    usleep(200000); /* libzmq's thread reads */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    usleep(200000); /* it notices the end */
}

/* libzmq connects again, so its thread goes on. */
static bool connects_again(struct trajd_link *link, int listener)
{
    struct pollfd item = {.fd = listener, .events = POLLIN};
    const uint64_t end_ns = trajd_client_now_ns() + WAIT_S * SECOND_NS;
    char byte;
    while (poll(&item, 1, 10) == 0 && trajd_client_now_ns() < end_ns)
        while (trajd_link_receive(link, &byte, 1) > 0)
            continue;
    return (item.revents & POLLIN) != 0;
}

static void test_the_end_of(int listener)
{
    struct trajd_link link;
    struct trajd_error error;
    if (trajd_link_create(&link, &(struct trajd_link_options){.endpoint = endpoint}, &error) ||
        trajd_link_dial(&link, &error))
        fail_msg("%s", error.message);
    flood_and_end(listener);
    assert_true(connects_again(&link, listener));
    trajd_link_destroy(&link);
    close(listener);
}

static void test_the_end_of_a_local_daemon_that_floods(void **state)
{
    char path[96];
    (void)state;
    test_the_end_of(listen_locally());
    snprintf(path, sizeof path, "%s/feed.sock", directory);
    unlink(path);
}

static void test_the_end_of_a_remote_daemon_that_floods(void **state)
{
    (void)state;
    test_the_end_of(listen_on_tcp());
}

/* ---- a daemon floods for as long as the worker is connected ---- */

struct daemon {
    int listener;
    bool starts, ends; /* atomic */
};

static void send_welcome(int fd)
{
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_WELCOME, .welcome = {.instance = 9, .session = 1, .silence_ms = 60000}};
    unsigned char frame[256];
    size_t size;
    if (trajd_wire_encode(&message, frame + 2, sizeof frame - 2, &size, NULL))
        abort();
    frame[0] = 0;
    frame[1] = (unsigned char)size;
    send_all(fd, frame, size + 2);
}

static void *flood(void *context)
{
    /* long frames: flags, a length of 8 bytes, and a body that is not a message of trajd. They are
     * short enough that thousands come between two looks of the worker. */
    static unsigned char frames[FRAMES][9 + LONG_FRAME];
    struct daemon *daemon = context;
    const int fd = accept_worker(daemon->listener);
    for (int i = 0; i < FRAMES; i++) {
        frames[i][0] = 2;
        frames[i][7] = LONG_FRAME >> 8;
        frames[i][8] = LONG_FRAME & 255;
    }
    receive_frame(fd); /* HELLO */
    send_welcome(fd);
    /* acquire: pairs with the store of the test */
    while (!__atomic_load_n(&daemon->starts, __ATOMIC_ACQUIRE))
        usleep(1000);
    while (send_all(fd, frames, sizeof frames))
        continue;
    close(fd);
    __atomic_store_n(&daemon->ends, true, __ATOMIC_RELEASE);
    return NULL;
}

/* The library's own thread notices the flood: the worker itself does nothing. The thread then rests. */
static void test_a_worker_leaves_a_daemon_that_floods(void **state)
{
    struct daemon daemon = {.listener = listen_on_tcp()};
    struct trajd_client *client;
    struct trajd_batch *batch;
    struct trajd_error error;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, flood, &daemon), 0);
    if (trajd_client_connect(&(struct trajd_connect_options){.endpoint = endpoint}, &client,
                             &error))
        fail_msg("%s", error.message);
    pthread_mutex_lock(&client->io_lock);
    client->session.is_resuming = true; /* a released batch waits for the end of a resume */
    client->ack.pending.released.count = 1;
    pthread_mutex_unlock(&client->io_lock);
    __atomic_store_n(&daemon.starts, true, __ATOMIC_RELEASE);
    const uint64_t end_ns = trajd_client_now_ns() + WAIT_S * SECOND_NS;
    while (!__atomic_load_n(&daemon.ends, __ATOMIC_ACQUIRE) && trajd_client_now_ns() < end_ns)
        usleep(1000);
    if (!__atomic_load_n(&daemon.ends, __ATOMIC_ACQUIRE))
        fail_msg("the worker took all for %d s", WAIT_S);
    pthread_join(thread, NULL);
    assert_int_equal(trajd_client_next(client, 0, &batch, &error), TRAJD_ERR_PROTOCOL);
    assert_non_null(strstr(error.message, "more messages than"));
    assert_false(trajd_client_is_connected(client));
    assert_false(trajd_session_has_acks(client)); /* nothing is left that wakes the thread */
    assert_true(trajd_session_timeout_ms(client, trajd_client_now_ns()) > 1);
    trajd_client_close(&client);
    close(daemon.listener);
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-floods-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_of_a_local_daemon_that_floods),
        cmocka_unit_test(test_the_end_of_a_remote_daemon_that_floods),
        cmocka_unit_test(test_a_worker_leaves_a_daemon_that_floods),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
