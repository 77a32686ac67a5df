/* The server over its real sockets, with a raw peer: which messages it answers and drops, and how
 * feeds come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "daemon/base/yaml.h"
#include "server_fixture.h"

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
    struct trajd_wire_tensor tensor = {.name = trajd_wire_text("x"),
                                       .role = trajd_wire_text("obs"),
                                       .dtype = TRAJD_F32,
                                       .rank = 2,
                                       .shape = {4, 1}};
    struct trajd_feed_schema schema = {.global_batch = 4, .tensor_count = 1, .tensors = &tensor};
    struct trajd_error error;
    struct trajd_feed *feed;
    assert_int_equal(trajd_feed_schema_layout(&schema, &error), TRAJD_OK);
    const struct trajd_core_feed_options options = {.name = name,
                                                    .is_hidden = true,
                                                    .slot_count = 3,
                                                    .max_credit = 2,
                                                    .window_count = 8,
                                                    .epoch_length = 8};
    assert_int_equal(
        trajd_server_add_feed(producer_server(producer), &options, &schema, NULL, &feed, &error),
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
    for (uint32_t i = 0; i < 13; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)rand();
        zmq_send(peer->socket, bytes, i * 40, 0);
    }
    /* containers that claim millions of members, which an unpacker must not try to read */
    memcpy(bytes, "TRJD\x01\x01\0\0\xdf\xff\xff\xff\xff", 13);
    zmq_send(peer->socket, bytes, 13, 0);
    memcpy(bytes,
           "TRJD\x01\x03\0\0\x81\xa4"
           "done"
           "\xdd\xff\0\0\0",
           19);
    zmq_send(peer->socket, bytes, 19, 0);
    assert_int_equal(status_number(peer, "dropped_messages") - before, 15);
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

/* Control characters take six bytes as JSON, so the sessions do not fit a status document. */
static void test_status_leaves_out_what_does_not_fit(void **state)
{
    enum { COUNT = 160 };
    const struct producer_options options = {.directory = directory, .sessions = COUNT + 1};
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO, .hello = {.pid = 1}};
    struct trajd_error error;
    struct trajd_yaml *yaml;
    struct peer *peers[COUNT];
    char client[TRAJD_WIRE_MAX_CLIENT + 1] = "", number[16];
    const struct trajd_yaml_node *root;
    uint32_t shown;

    (void)state;
    producer_stop(&producer);
    assert_int_equal(producer_start(&options, &producer, &error), TRAJD_OK);
    memset(client, '\x01', sizeof client - 1);
    for (int p = 0; p < COUNT; p++) {
        struct trajd_wire_message welcome;
        peers[p] = peer_open();
        message.hello.client = trajd_wire_text(client);
        send_message(peers[p], &message);
        await(peers[p], TRAJD_WIRE_WELCOME, &welcome);
    }
    send_message(peers[0],
                 &(struct trajd_wire_message){.op = TRAJD_WIRE_STATUS, .status = {.request = 9}});
    await(peers[0], TRAJD_WIRE_STATE, &message);
    assert_in_range(message.state.status.size, TRAJD_WIRE_MAX_STATUS - 1024, TRAJD_WIRE_MAX_STATUS);
    assert_int_equal(trajd_yaml_parse("status", message.state.status.data,
                                      message.state.status.size, &yaml, &error),
                     TRAJD_OK);
    root = trajd_yaml_root(yaml);
    assert_string_equal(trajd_yaml_get(root, "producer")->value, "fake");
    shown = trajd_yaml_get(root, "sessions")->child_count;
    assert_in_range(shown, 1, COUNT - 1);
    snprintf(number, sizeof number, "%u", COUNT - shown);
    assert_string_equal(trajd_yaml_get(root, "sessions_not_shown")->value, number);
    trajd_yaml_destroy(&yaml);
    for (int p = 0; p < COUNT; p++)
        peer_close(peers[p]);
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
        cmocka_unit_test_setup_teardown(test_status_leaves_out_what_does_not_fit, start, stop),
        cmocka_unit_test_setup_teardown(test_a_connection_without_session_gets_an_error, start,
                                        stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
