/* Runs the thread that speaks the protocol with one fault. */
#include "faulty_daemon.h"

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

static void send_frame(struct daemon *daemon, const void *frame, size_t size)
{
    zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
    zmq_send(daemon->router, frame, size, 0);
}

/* Sends every prefix of the frame, an unknown op, an invalid body, and a message of two frames. */
static void make_noise(struct daemon *daemon, size_t size)
{
    unsigned char other[64] = {0};
    for (size_t cut = 0; cut < size; cut++)
        send_frame(daemon, daemon->frame, cut);
    memcpy(other, "TRJD\x01\x6f\0\0\x80", 9);
    send_frame(daemon, other, 9);
    memset(other + 8, 0xdf, sizeof other - 8);
    send_frame(daemon, other, sizeof other);
    zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
    zmq_send(daemon->router, daemon->frame, size, ZMQ_SNDMORE);
    zmq_send(daemon->router, daemon->frame, size, 0);
}

static void send_message(struct daemon *daemon, struct trajd_wire_message *message)
{
    const struct fault *fault = daemon->fault;
    const bool altered = fault && fault->op == message->op;
    size_t size = 0;
    if (altered && fault->alter)
        fault->alter(message);
    if (trajd_wire_encode(message, daemon->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL))
        abort();
    unsigned char *key =
        altered && fault->key ? memmem(daemon->frame, size, fault->key, strlen(fault->key)) : NULL;
    if (key)
        key[strlen(fault->key)] = fault->value;
    if (daemon->major != 0)
        daemon->frame[4] = daemon->major;
    if (daemon->noisy)
        make_noise(daemon, size);
    for (uint32_t i = 0; i < (altered && fault->copies > 0 ? fault->copies : 1); i++) {
        if (i > 0) {
            message->batch.seq = ++daemon->sequence;
            trajd_wire_encode(message, daemon->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL);
        }
        send_frame(daemon, daemon->frame, size);
    }
}

void daemon_send_fds(int fd, const void *words, size_t size, const int *fds, uint32_t fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)words, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void answer_open(struct daemon *daemon, uint64_t request)
{
    const struct fault *fault = daemon->fault;
    struct trajd_wire_tensor tensor = {.name = trajd_wire_text("window_id"),
                                       .role = trajd_wire_text("ids"),
                                       .dtype = TRAJD_I64,
                                       .rank = 1,
                                       .shape = {ROWS},
                                       .offset_bytes = 64};
    struct trajd_wire_message opened = {.op = TRAJD_WIRE_OPENED,
                                        .opened = {.request = request,
                                                   .feed_id = RING,
                                                   .ring = RING,
                                                   .ring_size_bytes = daemon->ring.size_bytes,
                                                   .slot_count = SLOTS,
                                                   .slot_size_bytes = daemon->ring.slot_size_bytes,
                                                   .writable = true,
                                                   .batch = ROWS,
                                                   .row_count = ROWS,
                                                   .credit = 4,
                                                   .length = 800,
                                                   .windows = 800,
                                                   .tensor_count = 1,
                                                   .tensors = &tensor}};
    send_message(daemon, &opened);
    const uint64_t words[2] = {RING, daemon->ring.size_bytes};
    if (fault && fault->send_fds)
        fault->send_fds(daemon->connection, &daemon->ring);
    else
        daemon_send_fds(daemon->connection, words, sizeof words, &daemon->ring.fd, 1);
    struct trajd_wire_message batch = {.op = TRAJD_WIRE_BATCH,
                                       .batch = {.seq = ++daemon->sequence,
                                                 .feed_id = RING,
                                                 .ring = RING,
                                                 .slot = 1,
                                                 .generation = 1,
                                                 .row_count = ROWS}};
    send_message(daemon, &batch);
}

static void receive_message(struct daemon *daemon)
{
    struct trajd_wire_message message,
        welcome = {.op = TRAJD_WIRE_WELCOME, .welcome = {.instance = INSTANCE, .session = 1}},
        late_error = {
            .op = TRAJD_WIRE_ERROR,
            .error = {.status = daemon->late_error, .message = trajd_wire_text("it is closed")}};
    uint64_t request;
    int size = zmq_recv(daemon->router, daemon->route, sizeof daemon->route, ZMQ_DONTWAIT);
    if (size < 0)
        return;
    daemon->route_size = size;
    size = zmq_recv(daemon->router, daemon->frame, sizeof daemon->frame, 0);
    if (trajd_wire_decode(daemon->frame, (size_t)size, NULL, &message, &request, NULL))
        abort();
    if (message.op == TRAJD_WIRE_HELLO)
        send_message(daemon, &welcome);
    if (message.op == TRAJD_WIRE_OPEN && daemon->late_error)
        send_message(daemon, &late_error);
    if (message.op == TRAJD_WIRE_OPEN)
        answer_open(daemon, message.open.request);
    if (message.op == TRAJD_WIRE_BYE && daemon->connection >= 0)
        shutdown(daemon->connection, SHUT_RDWR);
}

static void accept_worker(struct daemon *daemon)
{
    char token[64];
    if (daemon->connection >= 0)
        close(daemon->connection);
    daemon->connection = accept(daemon->listener, NULL, NULL);
    if (recv(daemon->connection, token, sizeof token, 0) < 0)
        return;
    if (daemon->fault && daemon->fault->greet)
        daemon->fault->greet(daemon->connection);
    else
        send(daemon->connection, "", 1, MSG_NOSIGNAL);
}

static void *run(void *context)
{
    struct daemon *daemon = context;
    /* acquire: sees all that the test wrote before it stopped the thread */
    while (!__atomic_load_n(&daemon->stop, __ATOMIC_ACQUIRE)) {
        zmq_pollitem_t items[] = {{.socket = daemon->router, .events = ZMQ_POLLIN},
                                  {.fd = daemon->listener, .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, 5);
        if (items[1].revents != 0)
            accept_worker(daemon);
        receive_message(daemon);
    }
    return NULL;
}

void daemon_start(struct daemon *daemon, const char *directory)
{
    struct trajd_error error;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char endpoint[96];
    const int no_linger = 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory);
    unlink(address.sun_path);
    daemon->connection = -1;
    daemon->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(daemon->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(daemon->listener, 8), 0);
    daemon->context = zmq_ctx_new();
    daemon->router = zmq_socket(daemon->context, ZMQ_ROUTER);
    zmq_setsockopt(daemon->router, ZMQ_LINGER, &no_linger, sizeof no_linger);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/feed.sock", directory);
    assert_int_equal(zmq_bind(daemon->router, endpoint), 0);
    assert_int_equal(
        trajd_server_ring_create(&daemon->ring, SLOTS, TRAJD_RING_ALIGNMENT, true, &error),
        TRAJD_OK);
    trajd_server_ring_name(&daemon->ring, RING, INSTANCE);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        trajd_server_ring_stamp(&daemon->ring, slot,
                                &(struct trajd_slot_header){.generation = 1, .row_count = ROWS});
    assert_int_equal(pthread_create(&daemon->thread, NULL, run, daemon), 0);
}

void daemon_stop(struct daemon *daemon)
{
    __atomic_store_n(&daemon->stop, true, __ATOMIC_RELEASE);
    pthread_join(daemon->thread, NULL);
    zmq_close(daemon->router);
    zmq_ctx_term(daemon->context);
    close(daemon->listener);
    if (daemon->connection >= 0)
        close(daemon->connection);
    trajd_server_ring_destroy(&daemon->ring);
}
