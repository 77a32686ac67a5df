/* Messages of several frames. The peer is a socket of this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

#include "clients/c/link/link.h"

#define ROOM 8

static struct trajd_link link;
static void *peer;

static int open_link(void **state)
{
    const int unlimited = 0;
    (void)state;
    link = (struct trajd_link){.context = zmq_ctx_new()};
    link.dealer = zmq_socket(link.context, ZMQ_DEALER);
    peer = zmq_socket(link.context, ZMQ_DEALER);
    zmq_setsockopt(link.dealer, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(peer, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    return zmq_bind(peer, "inproc://peer") || zmq_connect(link.dealer, "inproc://peer");
}

static int close_link(void **state)
{
    (void)state;
    zmq_close(link.dealer);
    zmq_close(peer);
    return zmq_ctx_term(link.context);
}

/* Sends one message with a frame for each word of the text. "-" is an empty frame. */
static void send_frames(const char *text)
{
    char words[64], *rest = NULL;
    strcpy(words, text);
    for (char *word = strtok_r(words, " ", &rest); word;) {
        char *next = strtok_r(NULL, " ", &rest);
        const size_t size = strcmp(word, "-") ? strlen(word) : 0;
        assert_int_equal(zmq_send(peer, word, size, next ? ZMQ_SNDMORE : 0), size);
        word = next;
    }
}

static void expect(const char *text)
{
    char frame[ROOM + 1] = "";
    const size_t size = trajd_link_receive(&link, frame, ROOM);
    frame[size] = 0;
    assert_string_equal(frame, text);
}

static void test_a_local_message_is_one_frame(void **state)
{
    (void)state;
    link.remote = false;
    send_frames("two frames");
    send_frames("muchtoolong");
    send_frames("-");
    send_frames("muchtoolong indeed");
    send_frames("12345678"); /* it just fits */
    send_frames("last");
    expect("12345678");
    expect("last");
    expect("");
}

static void test_a_payload_follows(void **state)
{
    char payload[8] = "";
    (void)state;
    link.remote = true;
    send_frames("first ab cde f");
    send_frames("second");
    send_frames("third xyz");
    expect("first");
    assert_true(link.has_payload);
    assert_true(trajd_link_receive_payload(&link, payload, 6));
    assert_memory_equal(payload, "abcdef", 6);
    assert_false(link.has_payload);
    expect("second");
    assert_false(link.has_payload);
    expect("third"); /* its payload is not received */
    assert_true(link.has_payload);
    expect("");
    assert_false(link.has_payload);
}

static void test_a_payload_of_another_size(void **state)
{
    char payload[8];
    (void)state;
    link.remote = true;
    send_frames("short abc");
    send_frames("long abc def gh");
    send_frames("empty abc - def");
    send_frames("- abc");
    send_frames("muchtoolong abc");
    send_frames("last abcd");
    expect("short");
    assert_false(trajd_link_receive_payload(&link, payload, 4));
    expect("long");
    assert_false(trajd_link_receive_payload(&link, payload, 4));
    assert_false(link.has_payload);
    expect("empty");
    assert_false(trajd_link_receive_payload(&link, payload, 6));
    expect("last");
    assert_true(trajd_link_receive_payload(&link, payload, 4));
    assert_memory_equal(payload, "abcd", 4);
    assert_true(trajd_link_receive_payload(&link, payload, 0));
}

static void send_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        send_frames("many");
}

static void receive_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        expect("many");
}

static void test_a_flood_is_noticed(void **state)
{
    (void)state;
    link.remote = false;
    send_many(TRAJD_LINK_MAX_WAITING);
    receive_many(TRAJD_LINK_MAX_WAITING);
    expect("");
    assert_false(link.is_flooded);
    send_many(TRAJD_LINK_MAX_WAITING);
    send_frames("two frames"); /* counts too, although it is dropped */
    receive_many(TRAJD_LINK_MAX_WAITING);
    expect("");
    assert_true(link.is_flooded);
    expect("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_local_message_is_one_frame, open_link, close_link),
        cmocka_unit_test_setup_teardown(test_a_payload_follows, open_link, close_link),
        cmocka_unit_test_setup_teardown(test_a_payload_of_another_size, open_link, close_link),
        cmocka_unit_test_setup_teardown(test_a_flood_is_noticed, open_link, close_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
