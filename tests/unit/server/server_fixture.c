/* Starts a server in this process, and sends and receives raw messages. */
#include "server_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

char directory[64];
struct producer *producer;

int start(void **state)
{
    struct trajd_error error;
    const struct producer_options options = {.directory = directory, .length = 1000, .slots = 4};
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-server-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    enum trajd_status status = producer_start(&options, &producer, &error);
    if (status)
        fprintf(stderr, "%s\n", error.message);
    return !status ? 0 : -1;
}

int stop(void **state)
{
    char path[96];
    (void)state;
    producer_stop(&producer);
    snprintf(path, sizeof path, "%s/lock", directory);
    unlink(path);
    return rmdir(directory); /* fails if a socket file remains */
}

struct peer *peer_open(void)
{
    char endpoint[96];
    const int timeout_ms = 60000, no_linger = 0;
    struct peer *peer = calloc(1, sizeof *peer);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/feed.sock", directory);
    peer->context = zmq_ctx_new();
    peer->socket = zmq_socket(peer->context, ZMQ_DEALER);
    zmq_setsockopt(peer->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(peer->socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
    assert_int_equal(zmq_connect(peer->socket, endpoint), 0);
    return peer;
}

void peer_close(struct peer *peer)
{
    zmq_close(peer->socket);
    zmq_ctx_term(peer->context);
    free(peer);
}

void send_message(struct peer *peer, const struct trajd_wire_message *message)
{
    size_t size;
    struct trajd_error error;
    assert_int_equal(trajd_wire_encode(message, peer->frame, sizeof peer->frame, &size, &error),
                     TRAJD_OK);
    assert_int_equal(zmq_send(peer->socket, peer->frame, size, 0), (int)size);
}

bool receive_message(struct peer *peer, struct trajd_wire_message *message)
{
    uint64_t request;
    int size = zmq_recv(peer->socket, peer->frame, sizeof peer->frame, 0);
    return size > 0 &&
           !trajd_wire_decode(peer->frame, (size_t)size, peer->tensors, message, &request, NULL);
}

void await(struct peer *peer, enum trajd_wire_op op, struct trajd_wire_message *message)
{
    do
        assert_true(receive_message(peer, message));
    while (message->op != op);
}

struct trajd_wire_welcome hello(struct peer *peer)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO,
                                         .hello = {.client = trajd_wire_text("raw"), .pid = 1}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_WELCOME, &message);
    return message.welcome;
}

int connect_fd(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

ssize_t read_fd(int fd)
{
    unsigned char bytes[64];
    struct pollfd item = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&item, 1, 10000), 1);
    return recv(fd, bytes, sizeof bytes, 0);
}

int attach(const struct trajd_wire_welcome *welcome)
{
    int fd = connect_fd();
    assert_int_equal(send(fd, welcome->token, sizeof welcome->token, MSG_NOSIGNAL),
                     sizeof welcome->token);
    assert_int_equal(read_fd(fd), 1);
    return fd;
}

void open_train(struct peer *peer, uint32_t credit)
{
    send_message(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_OPEN,
                                                    .open = {.request = 5,
                                                             .feed = trajd_wire_text("train"),
                                                             .world = 1,
                                                             .credit = credit,
                                                             .fresh = true}});
}

struct trajd_wire_lease lease_of(const struct trajd_wire_batch *batch)
{
    return (struct trajd_wire_lease){.ring = batch->ring,
                                     .slot = batch->slot,
                                     .generation = batch->generation,
                                     .part = batch->part};
}

uint64_t status_number(struct peer *peer, const char *name)
{
    char document[4096], pattern[64];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_STATUS, .status = {.request = 9}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_STATE, &message);
    trajd_wire_text_copy(message.state.status, document, sizeof document);
    snprintf(pattern, sizeof pattern, "\"%s\":", name);
    const char *found = strstr(document, pattern);
    assert_non_null(found);
    return strtoull(found + strlen(pattern), NULL, 10);
}
