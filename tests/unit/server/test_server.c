/* The server over its real sockets, with raw peers: which messages it answers and drops, and that
 * it survives them. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "proto/wire.h"
#include "tests/support/processes.h"
#include "tests/support/test_producer.h"

struct peer {
    void *context, *socket;
    struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    unsigned char frame[TRAJD_WIRE_MAX_FRAME];
};

static char directory[64];
static struct producer *producer;

static int start(void **state)
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

static int stop(void **state)
{
    char path[96];
    (void)state;
    producer_stop(&producer);
    snprintf(path, sizeof path, "%s/lock", directory);
    unlink(path);
    return rmdir(directory); /* fails if a socket file remains */
}

/* ---- a peer ---- */

static struct peer *peer_open(void)
{
    char endpoint[96];
    const int timeout_ms = 10000, no_linger = 0;
    struct peer *peer = calloc(1, sizeof *peer);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/feed.sock", directory);
    peer->context = zmq_ctx_new();
    peer->socket = zmq_socket(peer->context, ZMQ_DEALER);
    zmq_setsockopt(peer->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(peer->socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
    assert_int_equal(zmq_connect(peer->socket, endpoint), 0);
    return peer;
}

static void peer_close(struct peer *peer)
{
    zmq_close(peer->socket);
    zmq_ctx_term(peer->context);
    free(peer);
}

static void send_message(struct peer *peer, const struct trajd_wire_message *message)
{
    size_t size;
    struct trajd_error error;
    assert_int_equal(trajd_wire_encode(message, peer->frame, sizeof peer->frame, &size, &error),
                     TRAJD_OK);
    assert_int_equal(zmq_send(peer->socket, peer->frame, size, 0), (int)size);
}

static bool receive_message(struct peer *peer, struct trajd_wire_message *message)
{
    uint64_t request;
    int size = zmq_recv(peer->socket, peer->frame, sizeof peer->frame, 0);
    return size > 0 &&
           !trajd_wire_decode(peer->frame, (size_t)size, peer->tensors, message, &request, NULL);
}

/* Receives the next message of that op, and ignores others. */
static void await(struct peer *peer, enum trajd_wire_op op, struct trajd_wire_message *message)
{
    do
        assert_true(receive_message(peer, message));
    while (message->op != op);
}

static struct trajd_wire_welcome hello(struct peer *peer)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO,
                                         .hello = {.client = trajd_wire_text("raw"), .pid = 1}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_WELCOME, &message);
    return message.welcome;
}

static int connect_fd(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Returns the bytes of the next message, or 0 at the end of file. Waits at most 10 s. */
static ssize_t read_fd(int fd)
{
    unsigned char bytes[64];
    struct pollfd item = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&item, 1, 10000), 1);
    return recv(fd, bytes, sizeof bytes, 0);
}

static int attach(const struct trajd_wire_welcome *welcome)
{
    int fd = connect_fd();
    assert_int_equal(send(fd, welcome->token, sizeof welcome->token, MSG_NOSIGNAL),
                     sizeof welcome->token);
    assert_int_equal(read_fd(fd), 1);
    return fd;
}

static void open_train(struct peer *peer, uint32_t credit)
{
    send_message(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_OPEN,
                                                    .open = {.request = 5,
                                                             .feed = trajd_wire_text("train"),
                                                             .world = 1,
                                                             .credit = credit,
                                                             .fresh = true}});
}

static struct trajd_wire_lease lease_of(const struct trajd_wire_batch *batch)
{
    return (struct trajd_wire_lease){.ring = batch->ring,
                                     .slot = batch->slot,
                                     .generation = batch->generation,
                                     .part = batch->part};
}

static uint64_t status_number(struct peer *peer, const char *name)
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

/* ---- tests ---- */

static void test_a_batch_from_hello_to_release(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    assert_int_equal(welcome.feed_count, 1);
    assert_false(welcome.resumed);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_OPENED, &message);
    assert_int_equal(message.opened.request, 5);
    assert_int_equal(message.opened.credit, 2);
    assert_int_equal(message.opened.tensor_count, 3);
    assert_int_equal(read_fd(fd), 16);
    await(peer, TRAJD_WIRE_BATCH, &message);
    assert_int_equal(message.batch.seq, 1);
    const struct trajd_wire_lease lease = lease_of(&message.batch);
    await(peer, TRAJD_WIRE_BATCH, &message); /* the last one, as the credit is 2 */
    assert_int_equal(status_number(peer, "batches_sent"), 2);
    send_message(peer,
                 &(struct trajd_wire_message){.op = TRAJD_WIRE_ACK,
                                              .ack = {.released = {.count = 1, .list = {lease}}}});
    await(peer, TRAJD_WIRE_BATCH, &message);
    assert_int_equal(message.batch.position, 16);
    assert_int_equal(status_number(peer, "batches_done"), 1);
    close(fd);
    peer_close(peer);
}

static void test_late_acks_are_counted(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_BATCH, &message);
    const struct trajd_wire_lease lease = lease_of(&message.batch);
    struct trajd_wire_message ack = {
        .op = TRAJD_WIRE_ACK,
        .ack = {.released = {.count = 4, .list = {lease, lease, lease, lease}}}};
    ack.ack.released.list[2].generation += 100;
    ack.ack.released.list[3].slot = 4000;
    send_message(peer, &ack);
    assert_int_equal(status_number(peer, "late_acks"),
                     3); /* a repeated lease, another generation, no such slot */
    assert_int_equal(status_number(peer, "batches_done"), 1);
    close(fd);
    peer_close(peer);
}

static void test_resample_is_refused_on_feed_sock(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLE,
                                         .resample = {.request = 6, .size_bytes = 64}};
    send_message(peer, &message); /* is answered */
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.request, 6);
    assert_int_equal(message.error.status, TRAJD_ERR_PROTOCOL);
    peer_close(peer);
}

static void test_unknown_feeds_and_specs_go_to_the_producer(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_OPEN,
        .open = {
            .request = 6, .feed = trajd_wire_text("nope"), .world = 1, .credit = 2, .fresh = true}};
    struct trajd_wire_welcome welcome = hello(peer);
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_ERROR, &message); /* the session is not attached yet */
    assert_int_equal(message.error.status, TRAJD_ERR_PROTOCOL);
    int fd = attach(&welcome);
    message = (struct trajd_wire_message){
        .op = TRAJD_WIRE_OPEN,
        .open = {
            .request = 7, .feed = trajd_wire_text("nope"), .world = 1, .credit = 2, .fresh = true}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.request, 7);
    assert_int_equal(message.error.status, TRAJD_ERR_NOT_FOUND);
    message = (struct trajd_wire_message){.op = TRAJD_WIRE_OPEN,
                                          .open = {.request = 8,
                                                   .spec = trajd_wire_text("dataset: x"),
                                                   .world = 1,
                                                   .credit = 2,
                                                   .fresh = true}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_OPENED, &message);
    assert_int_equal(message.opened.request, 8);
    close(fd);
    peer_close(peer);
}

static enum trajd_wire_op open_feed(struct peer *peer, const char *name)
{
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_OPEN,
        .open = {
            .request = 11, .feed = trajd_wire_text(name), .world = 1, .credit = 2, .fresh = true}};
    send_message(peer, &message);
    do
        assert_true(receive_message(peer, &message));
    while (message.op == TRAJD_WIRE_BATCH);
    return message.op;
}

/* A second OPEN, which is answered at once, arrives while the first one waits for the producer: the
 * second one counts. */
static void test_the_last_open_counts(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_welcome welcome = hello(peer);
    struct trajd_wire_message message;
    int fd = attach(&welcome);
    for (uint64_t i = 1; i <= 50; i++) { /* so often that both arrive in one turn of the server */
        struct trajd_wire_message open = {.op = TRAJD_WIRE_OPEN,
                                          .open = {.request = 2 * i,
                                                   .spec = trajd_wire_text("any"),
                                                   .world = 1,
                                                   .credit = 2,
                                                   .epoch = 1000 + i,
                                                   .fresh = true}};
        send_message(peer, &open);
        open.open = (struct trajd_wire_open){.request = 2 * i + 1,
                                             .feed = trajd_wire_text("train"),
                                             .world = 1,
                                             .credit = 2,
                                             .epoch = i,
                                             .fresh = true};
        send_message(peer, &open);
        send_message(
            peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_STATUS, .status = {.request = 9}});
        await(peer, TRAJD_WIRE_STATE, &message);
        send_message(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_CHECKPOINT,
                                                        .checkpoint = {.request = 10 * i}});
        uint64_t last = 0;
        do {
            assert_true(receive_message(peer, &message));
            last = message.op == TRAJD_WIRE_OPENED ? message.opened.epoch : last;
        } while (message.op != TRAJD_WIRE_CHECKPOINTED);
        assert_true(last == 0 || last == i);
    }
    close(fd);
    peer_close(peer);
}

static struct trajd_feed *add_hidden(const char *name)
{
    struct trajd_feed_tensor tensor = {
        .name = "x", .role = "obs", .dtype = TRAJD_F32, .rank = 2, .shape = {4, 1}};
    struct trajd_feed_schema schema = {.global_batch = 4, .tensor_count = 1, .tensors = &tensor};
    struct trajd_error error;
    struct trajd_feed *feed;
    assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_OK);
    const struct trajd_feed_options options = {.name = name,
                                               .is_hidden = true,
                                               .schema = &schema,
                                               .slot_count = 3,
                                               .max_credit = 2,
                                               .window_count = 8,
                                               .epoch_length = 8};
    assert_int_equal(trajd_server_add_feed(producer_server(producer), &options, &feed, &error),
                     TRAJD_OK);
    return feed;
}

/* Feeds are replaced together, and not at all while one of the old ones is read. */
static void test_feeds_change_together(void **state)
{
    (void)state;
    static const char *const names[] = {"late", "later", NULL};
    struct trajd_server *server = producer_server(producer);
    struct trajd_feed *late = add_hidden("late"), *again = add_hidden("late"),
                      *later = add_hidden("later");
    struct trajd_feed *second[] = {again, later};
    struct trajd_server_change change = {
        .in = &late, .in_count = 1, .feed_names = names, .feed_idle_ms = 1000};
    struct peer *peer = peer_open();
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    uint32_t busy = 9;
    assert_int_equal(open_feed(peer, "late"), TRAJD_WIRE_ERROR);
    assert_int_equal(trajd_server_change(server, &change, &busy), TRAJD_OK);
    assert_int_equal(open_feed(peer, "late"), TRAJD_WIRE_OPENED);
    assert_false(trajd_feed_is_idle(late));
    change = (struct trajd_server_change){.out = &late,
                                          .out_count = 1,
                                          .in = second,
                                          .in_count = 2,
                                          .feed_names = names,
                                          .feed_idle_ms = 1000};
    assert_int_equal(trajd_server_change(server, &change, &busy), TRAJD_ERR_BUSY);
    assert_int_equal(busy, 0);
    /* a refused OPEN leaves the feed, too */
    assert_int_equal(open_feed(peer, "later"), TRAJD_WIRE_ERROR);
    assert_true(trajd_feed_is_idle(late));
    assert_int_equal(trajd_server_change(server, &change, &busy), TRAJD_OK);
    struct trajd_fill fill;
    assert_int_equal(trajd_feed_take(late, 10, &fill), TRAJD_ERR_CLOSED);
    assert_int_equal(open_feed(peer, "late"), TRAJD_WIRE_OPENED); /* the new feed of that name */
    assert_false(trajd_feed_is_idle(again));
    assert_int_equal(open_feed(peer, "later"), TRAJD_WIRE_OPENED);
    trajd_server_remove_feed(server, &late);
    struct peer *other = peer_open();
    assert_int_equal(hello(other).feed_count, 2);
    peer_close(other);
    close(fd);
    peer_close(peer);
}

static void test_an_idle_feed_that_is_closed_is_not_found(void **state)
{
    (void)state;
    static const char *const names[] = {"short", NULL};
    struct trajd_server *server = producer_server(producer);
    struct trajd_feed *feed = add_hidden("short");
    const struct trajd_server_change change = {
        .in = &feed, .in_count = 1, .feed_names = names, .feed_idle_ms = 1000};
    struct peer *peer = peer_open();
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    uint32_t busy;
    assert_int_equal(trajd_server_change(server, &change, &busy), TRAJD_OK);
    assert_int_equal(open_feed(peer, "short"), TRAJD_WIRE_OPENED);
    assert_false(trajd_feed_close_if_idle(feed));
    /* a refused OPEN leaves the feed, too */
    assert_int_equal(open_feed(peer, "another"), TRAJD_WIRE_ERROR);
    assert_true(trajd_feed_close_if_idle(feed));
    assert_int_equal(open_feed(peer, "short"), TRAJD_WIRE_ERROR);
    assert_true(trajd_feed_is_idle(feed));
    trajd_server_remove_feed(server, &feed);
    close(fd);
    peer_close(peer);
}

static void test_garbage_is_dropped_and_counted(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message;
    unsigned char bytes[512];
    hello(peer);
    const uint64_t before = status_number(peer, "dropped_messages");
    srand(1);
    for (uint32_t i = 0; i < 200; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)rand();
        zmq_send(peer->socket, bytes, i, 0);
    }
    zmq_send(peer->socket, "TRJD", 4, ZMQ_SNDMORE); /* two frames */
    zmq_send(peer->socket, "x", 1, 0);
    /* containers that claim millions of members, which an unpacker must not try to read */
    memcpy(bytes, "TRJD\x01\x01\0\0\xdf\xff\xff\xff\xff", 13);
    zmq_send(peer->socket, bytes, 13, 0);
    memcpy(bytes,
           "TRJD\x01\x03\0\0\x81\xa4"
           "done"
           "\xdd\xff\0\0\0",
           19);
    zmq_send(peer->socket, bytes, 19, 0);
    assert_int_equal(status_number(peer, "dropped_messages") - before, 203);
    memcpy(bytes, "TRJD\x02\x01\0\0\x80", 9); /* another major version */
    zmq_send(peer->socket, bytes, 9, 0);
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.status, TRAJD_ERR_UNSUPPORTED);
    memcpy(bytes, "TRJD\x01\x2a\0\0\x80", 9); /* an unknown op */
    zmq_send(peer->socket, bytes, 9, 0);
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.status, TRAJD_ERR_PROTOCOL);
    peer_close(peer);
}

static void test_a_connection_without_session_gets_an_error(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message = {.op = TRAJD_WIRE_PING, .ping = {.time = 3}};
    send_message(peer, &message);
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.status, TRAJD_ERR_NOT_FOUND);
    struct trajd_wire_welcome welcome = hello(peer);
    /* a repeated HELLO gets the same session */
    assert_memory_equal(hello(peer).token, welcome.token, sizeof welcome.token);
    int fd = attach(&welcome);
    send_message(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING, .ping = {.time = 3}});
    await(peer, TRAJD_WIRE_PONG, &message);
    assert_int_equal(message.pong.time, 3);
    send_message(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_HELLO,
                                                    .hello = {.client = trajd_wire_text("again")}});
    await(peer, TRAJD_WIRE_ERROR, &message);
    assert_int_equal(message.error.status, TRAJD_ERR_PROTOCOL);
    close(fd);
    peer_close(peer);
}

static void test_a_token_attaches_one_connection(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_welcome welcome = hello(peer);
    uint8_t wrong[16] = {1, 2, 3};
    int fd = connect_fd();
    send(fd, wrong, sizeof wrong, MSG_NOSIGNAL);
    assert_int_equal(read_fd(fd), 0);
    close(fd);
    fd = connect_fd();
    send(fd, welcome.token, 15, MSG_NOSIGNAL);
    assert_int_equal(read_fd(fd), 0);
    close(fd);
    int first = attach(&welcome);
    int second = connect_fd(); /* of another process: the session is attached already */
    send(second, welcome.token, sizeof welcome.token, MSG_NOSIGNAL);
    assert_int_equal(read_fd(second), 0);
    close(second);
    assert_int_equal(status_number(peer, "session_count"), 1);
    int silent = connect_fd();
    assert_int_equal(read_fd(silent), 0); /* after two seconds */
    close(silent);
    close(first);
    peer_close(peer);
}

static void test_a_session_is_resumed_by_its_token(void **state)
{
    (void)state;
    struct peer *peer = peer_open(), *later = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 3);
    await(peer, TRAJD_WIRE_BATCH, &message);
    const struct trajd_wire_lease held = lease_of(&message.batch);
    await(peer, TRAJD_WIRE_BATCH, &message);
    const uint64_t second = message.batch.position;
    peer_close(peer); /* as if the connection was cut; fd.sock stays */
    message = (struct trajd_wire_message){.op = TRAJD_WIRE_HELLO,
                                          .hello = {.client = trajd_wire_text("raw"),
                                                    .has_token = true,
                                                    .instance = welcome.instance,
                                                    .received = 1,
                                                    .held = {.count = 1, .list = {held}}}};
    memcpy(message.hello.token, welcome.token, sizeof welcome.token);
    send_message(later, &message);
    await(later, TRAJD_WIRE_WELCOME, &message);
    assert_true(message.welcome.resumed);
    assert_int_equal(message.welcome.session, welcome.session);
    await(later, TRAJD_WIRE_BATCH, &message); /* again, with its old seq */
    assert_int_equal(message.batch.seq, 2);
    assert_int_equal(message.batch.position, second);
    close(fd);
    peer_close(later);
}

static void test_a_session_ends_with_its_connection_on_fd_sock(void **state)
{
    (void)state;
    struct peer *peer = peer_open(), *survivor = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_BATCH, &message);
    assert_int_equal(message.batch.position, 0);
    struct trajd_wire_welcome other = hello(survivor);
    int other_fd = attach(&other);
    open_train(survivor, 16);
    await(survivor, TRAJD_WIRE_OPENED, &message);
    close(fd);
    bool seen[2] = {false};
    while (!seen[0] || !seen[1]) { /* the other session gets the batches of the dead one */
        await(survivor, TRAJD_WIRE_BATCH, &message);
        if (message.batch.position <= 8)
            seen[message.batch.position / 8] = true;
        send_message(survivor,
                     &(struct trajd_wire_message){
                         .op = TRAJD_WIRE_ACK,
                         .ack = {.released = {.count = 1, .list = {lease_of(&message.batch)}}}});
    }
    assert_int_equal(status_number(survivor, "dead_sessions"), 1);
    close(other_fd);
    peer_close(peer);
    peer_close(survivor);
}

static void test_goaway_waits_for_leases(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_BATCH, &message);
    await(peer, TRAJD_WIRE_BATCH, &message);
    trajd_server_drain(producer_server(producer), 50); /* times out, as both batches are held */
    await(peer, TRAJD_WIRE_GOAWAY, &message);
    close(fd);
    /* returns as soon as the server knows of the death */
    trajd_server_drain(producer_server(producer), 10000);
    peer_close(peer);
}

static void test_a_second_daemon_is_refused(void **state)
{
    (void)state;
    struct producer *second = NULL;
    struct trajd_error error;
    const struct producer_options options = {.directory = directory};
    char pid[32];
    assert_int_equal(producer_start(&options, &second, &error), TRAJD_ERR_BUSY);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_non_null(strstr(error.message, pid));
    struct peer *peer = peer_open(); /* the first daemon still has its sockets */
    hello(peer);
    peer_close(peer);
}

static void test_bad_directories_are_refused(void **state)
{
    (void)state;
    struct producer *none = NULL;
    struct trajd_error error;
    char path[256];
    snprintf(path, sizeof path, "%s/%0120d", directory, 0);
    assert_int_equal(mkdir(path, 0700), 0);
    const struct producer_options long_one = {.directory = path};
    assert_int_equal(producer_start(&long_one, &none, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "107"));
    strcat(path, "/lock");
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    const struct producer_options absent = {.directory = "/nonexistent/trajd"};
    assert_int_equal(producer_start(&absent, &none, &error), TRAJD_ERR_SYSTEM);
    const struct producer_options crowded = {.directory = directory, .sessions = 100000000};
    assert_int_not_equal(producer_start(&crowded, &none, &error), TRAJD_OK);
    assert_null(none);
}

static void test_sockets_are_private(void **state)
{
    (void)state;
    const char *const names[] = {"feed.sock", "fd.sock"};
    for (size_t i = 0; i < 2; i++) {
        struct stat file;
        char path[96];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_mode & 0777, 0700);
    }
}

/* ---- a flood, against a process with few descriptors ---- */

static void test_a_flood_of_connections_is_survived(void **state)
{
    enum { FLOOD = 3000 };
    (void)state;
    char path[64], line[256];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int *sockets = malloc(FLOOD * sizeof *sockets);
    snprintf(path, sizeof path, "/tmp/trajd-flood-XXXXXX");
    assert_non_null(mkdtemp(path));
    struct process daemon =
        process_start("fake_producer", path, "descriptors=256 sessions=16 length=400");
    assert_true(process_read(&daemon, line, sizeof line));
    assert_string_equal(line, "READY");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/feed.sock", path);
    for (uint32_t i = 0; i < FLOOD; i++) {
        sockets[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(sockets[i] >= 0);
        /* a refused connection is fine, too */
        connect(sockets[i], (struct sockaddr *)&address, sizeof address);
    }
    for (uint32_t i = 0; i < FLOOD; i++)
        close(sockets[i]);
    free(sockets);
    /* on a busy machine the daemon needs seconds to recover, and cuts other connections
     * meanwhile */
    struct process worker = process_start("fake_worker", path, "credit=4 timeout_ms=50000");
    uint32_t batches = 0;
    while (process_read(&worker, line, sizeof line) && line[0] == 'B')
        batches++;
    assert_string_equal(line, "E 0");
    assert_int_equal(batches, 50);
    assert_int_equal(process_wait(&worker), 0);
    assert_int_equal(waitpid(daemon.pid, NULL, WNOHANG), 0); /* the daemon still runs */
    process_signal(&daemon, SIGTERM);
    assert_int_equal(process_wait(&daemon), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_from_hello_to_release, start, stop),
        cmocka_unit_test_setup_teardown(test_late_acks_are_counted, start, stop),
        cmocka_unit_test_setup_teardown(test_resample_is_refused_on_feed_sock, start, stop),
        cmocka_unit_test_setup_teardown(test_unknown_feeds_and_specs_go_to_the_producer, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_the_last_open_counts, start, stop),
        cmocka_unit_test_setup_teardown(test_feeds_change_together, start, stop),
        cmocka_unit_test_setup_teardown(test_an_idle_feed_that_is_closed_is_not_found, start, stop),
        cmocka_unit_test_setup_teardown(test_garbage_is_dropped_and_counted, start, stop),
        cmocka_unit_test_setup_teardown(test_a_connection_without_session_gets_an_error, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_a_token_attaches_one_connection, start, stop),
        cmocka_unit_test_setup_teardown(test_a_session_is_resumed_by_its_token, start, stop),
        cmocka_unit_test_setup_teardown(test_a_session_ends_with_its_connection_on_fd_sock, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_goaway_waits_for_leases, start, stop),
        cmocka_unit_test_setup_teardown(test_a_second_daemon_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_bad_directories_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_sockets_are_private, start, stop),
        cmocka_unit_test(test_a_flood_of_connections_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
