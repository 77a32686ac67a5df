/* What a client does with messages of its daemon. The frames are made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/session/session.h"
#include "proto/array_len.h"
#include "tests/unit/clients/c/bare_client.h"

#define MS UINT64_C(1000000)

static struct trajd_client *client;

static int open_client(void **state)
{
    (void)state;
    client = bare_client_create();
    client->link.fd = eventfd(0, EFD_CLOEXEC); /* it looks attached */
    client->session.phase = TRAJD_PHASE_OPEN;
    client->session.hello_sent_ns = 5;
    client->feed.is_granted = true;
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    trajd_link_destroy(&client->link);
    trajd_client_drop(client);
    return 0;
}

static void handle(const struct trajd_wire_message *message)
{
    static uint8_t frame[TRAJD_WIRE_MAX_FRAME];
    struct trajd_error error;
    size_t size;
    if (trajd_wire_encode(message, frame, sizeof frame, &size, &error))
        fail_msg("%s", error.message);
    trajd_session_handle(client, frame, size);
}

static void handle_error(uint64_t request, enum trajd_status status, uint32_t wait_ms)
{
    handle(&(struct trajd_wire_message){
        TRAJD_WIRE_ERROR, {.error = {request, status, trajd_wire_text("it broke"), wait_ms}}});
}

static void test_an_error_ends_the_session(void **state)
{
    (void)state;
    client->poll_fd_used = true;
    handle_error(0, TRAJD_ERR_IO, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
    assert_int_equal(client->session.failure.status, TRAJD_ERR_IO);
    assert_string_equal(client->session.failure.message, "it broke");
    assert_true(client->is_over && client->poll_fd_readable);
}

/* next() returns TIMEOUT where no batch came in time, so the end of a session has another
 * status. */
static void test_a_timeout_of_the_session_is_its_end(void **state)
{
    (void)state;
    handle_error(0, TRAJD_ERR_TIMEOUT, 0);
    assert_int_equal(client->session.failure.status, TRAJD_ERR_CLOSED);
}

static void test_an_unknown_session_says_hello_again(void **state)
{
    (void)state;
    handle_error(0, TRAJD_ERR_NOT_FOUND, 0);
    assert_true(client->session.is_resuming);
    assert_int_equal(client->session.hello_sent_ns, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPEN);
    client->session.hello_sent_ns = 7; /* it was sent: a second ERROR sends no other one */
    handle_error(0, TRAJD_ERR_NOT_FOUND, 0);
    assert_int_equal(client->session.hello_sent_ns, 7);
    client->session.phase = TRAJD_PHASE_GREETING; /* without a session it is a failure */
    handle_error(0, TRAJD_ERR_NOT_FOUND, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
}

static void test_a_daemon_that_ends_is_waited_for(void **state)
{
    (void)state;
    client->reconnect = client->session.is_ending = true;
    handle_error(0, TRAJD_ERR_CLOSED, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPEN);
    client->session.is_ending = false; /* its feed alone was removed */
    handle_error(0, TRAJD_ERR_CLOSED, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
}

/* Errors of the feed that the OPEN under way replaces. */
static void test_an_error_of_the_previous_feed(void **state)
{
    static const enum trajd_status passed[] = {TRAJD_ERR_DEVICE, TRAJD_ERR_CLOSED,
                                               TRAJD_ERR_TIMEOUT};
    (void)state;
    client->session.phase = TRAJD_PHASE_OPENING;
    client->open.request = 9;
    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        handle_error(0, passed[i], 0);
        assert_int_equal(client->session.phase, TRAJD_PHASE_OPENING);
    }
    handle_error(8, TRAJD_ERR_CLOSED, 0); /* nobody waits for that request */
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPENING);
    handle_error(0, TRAJD_ERR_IO, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
}

static void begin_opening(bool is_fresh)
{
    client->session.phase = TRAJD_PHASE_OPENING;
    client->session.retry_at_ns = client->open.wait_until_ns = 0;
    client->open.request = 9;
    client->open.is_fresh = is_fresh;
}

static void test_a_refused_open(void **state)
{
    (void)state;
    begin_opening(true);
    handle_error(9, TRAJD_ERR_ARGUMENT, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_READY);
    assert_true(client->open.is_refused);
    assert_int_equal(client->open.request, 0);
    assert_string_equal(client->session.failure.message, "it broke");
    begin_opening(false); /* one that is repeated after a reconnect: nobody waits for it */
    handle_error(9, TRAJD_ERR_ARGUMENT, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
}

/* An OPENED for another OPEN is passed over, whatever it says. */
static void test_an_opened_of_another_open(void **state)
{
    struct trajd_wire_message opened = {
        TRAJD_WIRE_OPENED,
        {.opened = {.request = 8, .batch = 4, .row_begin = 2, .row_count = 3, .credit = 2}}};
    (void)state;
    begin_opening(true);
    handle(&opened);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPENING);
    assert_int_equal(client->open.request, 9);
    opened.opened.request = 9; /* row 4 lies behind the batch */
    handle(&opened);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
    assert_int_equal(client->session.failure.status, TRAJD_ERR_PROTOCOL);
}

static void test_an_open_that_has_to_wait(void **state)
{
    uint64_t now_ns = trajd_client_now_ns();
    (void)state;
    begin_opening(true);
    handle_error(9, TRAJD_ERR_BUSY, 0);
    assert_in_range(client->session.retry_at_ns, now_ns + 20 * MS, now_ns + 5000 * MS);
    assert_int_equal(client->open.wait_until_ns, 0);
    assert_false(client->open.is_refused);
    begin_opening(true);
    now_ns = trajd_client_now_ns();
    handle_error(9, TRAJD_ERR_BUSY, 9000); /* and a second for the way */
    assert_in_range(client->session.retry_at_ns, now_ns + 100 * MS, now_ns + 5000 * MS);
    assert_in_range(client->open.wait_until_ns, now_ns + 10000 * MS, now_ns + 15000 * MS);
    begin_opening(true);
    handle_error(9, TRAJD_ERR_CLOSED, 0);
    assert_true(client->open.is_refused);
    begin_opening(true);
    client->open.is_refused = false;
    client->reconnect = true; /* the daemon ends, and is waited for */
    handle_error(9, TRAJD_ERR_CLOSED, 0);
    assert_false(client->open.is_refused);
    assert_true(client->session.retry_at_ns > 0);
}

/* A GPU that fails is given up for the host's memory, once. */
static void test_a_gpu_that_fails(void **state)
{
    (void)state;
    client->open.terms.gpu = strdup("GPU-1");
    client->open.terms.feed = strdup("train");
    client->incarnation = 3;
    handle_error(0, TRAJD_ERR_DEVICE, 0);
    assert_true(client->open.gpu_refused);
    assert_string_equal(client->open.gpu_refusal, "it broke");
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPENING);
    assert_int_equal(client->incarnation, 4);
    assert_true(client->open.request > 0);
    client->session.phase = TRAJD_PHASE_OPEN;
    handle_error(0, TRAJD_ERR_DEVICE, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
}

static void test_a_feed_on_the_host_has_no_device(void **state)
{
    (void)state;
    client->open.terms.gpu = strdup("");
    handle_error(0, TRAJD_ERR_DEVICE, 0);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
    assert_false(client->open.gpu_refused);
}

static void test_queries_and_checkpoints(void **state)
{
    struct trajd_wire_message reply = {TRAJD_WIRE_STATE,
                                       {.state = {.request = 4, .status = trajd_wire_text("{}")}}};
    (void)state;
    client->query.request = 5;
    handle(&reply); /* of an earlier request */
    assert_false(client->query.is_answered);
    reply.state.request = 5;
    handle(&reply);
    assert_true(client->query.is_answered);
    assert_string_equal(client->query.answer, "{}");
    reply.state.status = trajd_wire_text("{1}");
    handle(&reply); /* a second reply */
    assert_string_equal(client->query.answer, "{}");
    free(client->query.answer);
    client->query = (struct trajd_client_query){.request = 6};
    handle_error(6, TRAJD_ERR_IO, 0);
    assert_true(client->query.is_answered);
    assert_int_equal(client->query.error.status, TRAJD_ERR_IO);

    handle_error(6, TRAJD_ERR_BUSY, 0);
    assert_int_equal(client->query.error.status, TRAJD_ERR_IO);
    client->query = (struct trajd_client_query){.request = 7};
    reply = (struct trajd_wire_message){TRAJD_WIRE_CHECKPOINTED,
                                        {.checkpointed = {7, {(const uint8_t *)"token", 5}}}};
    handle(&reply);
    assert_true(client->query.is_answered);
    assert_int_equal(client->query.size_bytes, 5);
    assert_memory_equal(client->query.answer, "token", 6);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPEN);
}

/* An error of a daemon that ends is none of the next daemon, which gets the query once more. */
static void test_a_query_of_a_lost_session_is_sent_again(void **state)
{
    const struct trajd_wire_message late = {
        TRAJD_WIRE_STATE, {.state = {.request = 5, .status = trajd_wire_text("{}")}}};
    (void)state;
    client->reconnect = client->session.is_ending = true;
    client->query.request = 5;
    client->feed.id = 3;
    handle_error(5, TRAJD_ERR_ARGUMENT, 0);
    assert_false(client->query.is_answered);
    assert_int_equal(client->query.request, 5);
    trajd_session_end(client);
    assert_int_equal(client->query.request, 0);
    assert_int_equal(client->feed.id, 0);
    client->session.is_resuming = true;
    client->query.request = 6;
    handle(&(struct trajd_wire_message){
        TRAJD_WIRE_WELCOME, {.welcome = {.session = 12, .instance = 34, .resumed = true}}});
    assert_int_equal(client->query.request, 0);
    handle(&late);
    assert_false(client->query.is_answered);
}

static void test_goaway(void **state)
{
    const struct trajd_wire_message goaway = {TRAJD_WIRE_GOAWAY, {.goaway = {{"stop", 4}}}};
    (void)state;
    client->reconnect = client->poll_fd_used = true;
    handle(&goaway);
    assert_true(client->session.is_ending);
    assert_false(client->is_over);
    client->reconnect = false;
    handle(&goaway);
    assert_true(client->is_over && client->poll_fd_readable);
}

static void test_welcome(void **state)
{
    struct trajd_wire_message welcome = {
        TRAJD_WIRE_WELCOME, {.welcome = {.session = 12, .instance = 34, .silence_ms = 2000}}};
    (void)state;
    welcome.welcome.token[3] = 56;
    handle(&welcome); /* a second reply, to a repeated HELLO */
    assert_int_equal(client->session.id, 0);
    client->session.phase = TRAJD_PHASE_HELLO;
    client->session.retry_at_ns = 9;
    handle(&welcome);
    assert_int_equal(client->session.phase, TRAJD_PHASE_GREETING);
    assert_int_equal(client->session.id, 12);
    assert_int_equal(client->session.instance, 34);
    assert_int_equal(client->session.token[3], 56);
    assert_int_equal(client->session.retry_at_ns, 0);
    assert_int_equal(client->link.silence_timeout_ns, 2000 * MS);
    assert_int_equal(client->session.ping_ns, 1000 * MS); /* a local daemon sees the end anyway */

    client->session.phase = TRAJD_PHASE_HELLO;
    client->link.remote = true;
    handle(&welcome);
    assert_int_equal(client->session.ping_ns, 500 * MS);
    client->session.phase = TRAJD_PHASE_HELLO;
    welcome.welcome.silence_ms = 0;
    handle(&welcome);
    assert_int_equal(client->link.silence_timeout_ns, 10000 * MS);
    client->link.remote = false;
}

static void test_a_session_that_is_resumed(void **state)
{
    struct trajd_wire_message welcome = {
        TRAJD_WIRE_WELCOME, {.welcome = {.session = 12, .instance = 34, .resumed = true}}};
    (void)state;
    client->session.is_resuming = true;
    client->session.phase = TRAJD_PHASE_OPENING;
    client->open.terms.feed = strdup("train");
    client->open.terms.gpu = strdup("");
    client->open.request = 9;
    client->session.last_sent_ns = 0;
    handle(&welcome);
    assert_false(client->session.is_resuming);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPENING);
    assert_int_equal(client->open.request, 9); /* the same OPEN again */
    assert_int_equal(client->session.id, 0);
    /* the daemon does not know the session */
    client->session.is_resuming = client->session.was_ready = true;
    welcome.welcome.resumed = false;
    handle(&welcome);
    assert_int_equal(client->session.phase, TRAJD_PHASE_FAILED);
    assert_int_equal(client->session.failure.status, TRAJD_ERR_CLOSED);
}

/* Frames that no daemon of this version sends are passed over; another major version is the end. */
static void test_frames_of_other_versions(void **state)
{
    const struct trajd_wire_message goaway = {TRAJD_WIRE_GOAWAY, {.goaway = {{"stop", 4}}}};
    (void)state;
    trajd_session_handle(client, "x", 1);
    assert_int_equal(client->session.phase, TRAJD_PHASE_OPEN);
    client->link.has_payload = true; /* only a BATCH has one */
    handle(&goaway);
    assert_false(client->session.is_ending);
    client->link.has_payload = false;
}

/* An OPEN of another feed gives back what next() has not returned. */
static void test_queued_batches_go_back(void **state)
{
    const struct trajd_wire_leases *released = &client->ack.pending.released;
    (void)state;
    client->queue.first = TRAJD_CLIENT_QUEUE - 1;
    client->queue.count = 4;
    for (uint32_t i = 0; i < 4; i++)
        client->queue.entries[(TRAJD_CLIENT_QUEUE - 1 + i) % TRAJD_CLIENT_QUEUE] =
            (struct trajd_delivery){.lease = {.slot = i}};
    client->queue.entries[1].is_carried = true; /* of a lost session: it has no lease */
    client->epoch_ended = client->is_over = true;
    client->poll_fd_used = client->poll_fd_readable = true;
    trajd_session_return_queue(client);
    assert_int_equal(client->queue.count, 0);
    assert_int_equal(released->count, 3);
    assert_int_equal(released->list[0].slot, 0);
    assert_int_equal(released->list[1].slot, 1);
    assert_int_equal(released->list[2].slot, 3);
    assert_false(client->epoch_ended || client->is_over);
    assert_false(client->poll_fd_readable);
}

/* A PING needs a session that both sides know. */
static void test_when_a_ping_is_sent(void **state)
{
    static const struct {
        bool is_resuming, is_sent;
        enum trajd_client_phase phase;
    } cases[] = {{false, true, TRAJD_PHASE_OPEN},
                 {false, true, TRAJD_PHASE_READY},
                 {true, false, TRAJD_PHASE_OPEN},
                 {false, false, TRAJD_PHASE_GREETING}};
    int sockets[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    close(client->link.fd);
    client->link.fd = sockets[0];
    client->session.ping_ns = 1000;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        client->session.is_resuming = cases[i].is_resuming;
        client->session.phase = cases[i].phase;
        client->session.hello_sent_ns = trajd_client_now_ns(); /* no HELLO is due */
        client->session.retry_at_ns = UINT64_MAX;
        client->session.last_sent_ns = 0;
        trajd_session_turn(client);
        assert_int_equal(client->session.phase, cases[i].phase);
        assert_int_equal(client->session.last_sent_ns > 0, cases[i].is_sent);
    }
    close(sockets[1]);
}

/* A daemon that writes on fd.sock without end holds up no call. */
static void test_a_flood_on_the_second_connection(void **state)
{
    int sockets[2];
    char byte;
    uint32_t left = 0;
    (void)state;
    close(client->link.fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    client->link.fd = sockets[0];
    for (int i = 0; i < 100; i++)
        assert_int_equal(send(sockets[1], "", 1, 0), 1);
    trajd_session_turn(client);
    while (recv(sockets[0], &byte, 1, MSG_DONTWAIT) == 1)
        left++;
    assert_in_range(left, 1, 99);
    close(sockets[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_error_ends_the_session),
        TEST(test_a_timeout_of_the_session_is_its_end),
        TEST(test_an_unknown_session_says_hello_again),
        TEST(test_a_daemon_that_ends_is_waited_for),
        TEST(test_an_error_of_the_previous_feed),
        TEST(test_a_refused_open),
        TEST(test_an_opened_of_another_open),
        TEST(test_an_open_that_has_to_wait),
        TEST(test_a_gpu_that_fails),
        TEST(test_a_feed_on_the_host_has_no_device),
        TEST(test_queries_and_checkpoints),
        TEST(test_a_query_of_a_lost_session_is_sent_again),
        TEST(test_goaway),
        TEST(test_welcome),
        TEST(test_a_session_that_is_resumed),
        TEST(test_frames_of_other_versions),
        TEST(test_queued_batches_go_back),
        TEST(test_when_a_ping_is_sent),
        TEST(test_a_flood_on_the_second_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
