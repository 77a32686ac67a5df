/* What the bytes of a connection cost, read in pieces of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/server/transport/zmtp.h"

enum { GREETING_BYTES = 64, MORE = 1, LONG = 2, COMMAND = 4 };

#define READY "\5READY\vSocket-Type\0\0\0\6DEALER\bIdentity"

struct stream {
    uint8_t bytes[4096];
    size_t size;
};

static void add(struct stream *stream, int flags, const void *body, size_t size)
{
    uint8_t *at = stream->bytes + stream->size;

    *at++ = (uint8_t)flags;
    if (flags & LONG) {
        memset(at, 0, 6);
        at += 6;
        *at++ = (uint8_t)(size >> 8);
    }
    *at++ = (uint8_t)size;
    memcpy(at, body, size);
    stream->size = (size_t)(at - stream->bytes) + size;
}

static struct stream greeted(void)
{
    struct stream stream = {.bytes = {0xff}, .size = GREETING_BYTES};

    add(&stream, COMMAND, READY "\0\0\0\0", sizeof READY - 1 + 4);
    return stream;
}

static bool reads(const struct stream *stream)
{
    struct trajd_zmtp zmtp;

    trajd_zmtp_begin(&zmtp);
    return trajd_zmtp_read(&zmtp, stream->bytes, stream->size);
}

static void test_frames_cut_at_any_byte(void **state)
{
    static const uint8_t body[1000];
    struct stream stream = greeted();
    const uint64_t cost = 5 * TRAJD_ZMTP_FRAME_BYTES + 0 + 33 + 300 + 1000 + 7;

    (void)state;
    add(&stream, 0, body, 0);
    add(&stream, 0, body, 33);
    add(&stream, COMMAND, "\4PING\0\0", 7);
    add(&stream, LONG, body, 300);
    add(&stream, LONG, body, 1000);
    add(&stream, COMMAND | LONG, "\4PONG", 5);
    add(&stream, LONG, body, 7);
    for (size_t cut = 0; cut <= stream.size; cut++) {
        struct trajd_zmtp zmtp;

        trajd_zmtp_begin(&zmtp);
        assert_true(trajd_zmtp_read(&zmtp, stream.bytes, cut));
        assert_true(zmtp.cost <= cost);
        assert_true(trajd_zmtp_read(&zmtp, stream.bytes + cut, stream.size - cut));
        assert_int_equal(zmtp.cost, cost);
        assert_int_equal(zmtp.remaining, 0);
    }
    struct trajd_zmtp zmtp;

    trajd_zmtp_begin(&zmtp);
    for (size_t i = 0; i < stream.size; i++)
        assert_true(trajd_zmtp_read(&zmtp, stream.bytes + i, 1));
    assert_int_equal(zmtp.cost, cost);
}

/* The cost counts before the body arrives, because libzmq allocates it then. */
static void test_a_frame_counts_from_its_header_on(void **state)
{
    struct stream stream = greeted();
    struct trajd_zmtp zmtp;

    (void)state;
    trajd_zmtp_begin(&zmtp);
    add(&stream, LONG, "", 0);
    stream.bytes[stream.size - 2] = 4; /* 1024 bytes */
    assert_true(trajd_zmtp_read(&zmtp, stream.bytes, stream.size - 1));
    assert_int_equal(zmtp.cost, 0);
    assert_true(trajd_zmtp_read(&zmtp, stream.bytes + stream.size - 1, 1));
    assert_int_equal(zmtp.cost, trajd_zmtp_cost(1024));
    assert_int_equal(zmtp.remaining, 1024);
}

static void test_what_no_worker_sends(void **state)
{
    static const struct {
        const char *body;
        size_t size;
        bool good;
    } commands[] = {
        {"\4PING\0\0", 7, true},
        {"\4PING\0\0Identity", 15, true},
        {READY "\0\0\0\0\0", sizeof READY + 4, true},
        {READY "\0\0\0\1x", sizeof READY + 4, false},
        {READY "\1\0\0\0", sizeof READY + 3, false},
        {"\5READY\b\bIdentity\0\0\0\1x", 21, false},
        {"\5READY\bIdentity\0\0\0\0\bIdentity\0\0\0\1x", 33, false},
        {"\x09SUBSCRIBE", 10, false},
        {"\6CANCEL", 7, false},
        {"\7MESSAGE", 8, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct stream stream = greeted();

        add(&stream, COMMAND, commands[i].body, commands[i].size);
        assert_int_equal(reads(&stream), commands[i].good);
    }
}

/* A worker's messages have one frame. The header alone says that another one follows. */
static void test_messages_of_several_frames(void **state)
{
    static const int flags[] = {MORE, MORE | LONG};

    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct stream stream = greeted();

        add(&stream, flags[i], "x", 1);
        stream.size--;
        assert_false(reads(&stream));
        stream.size--;
        assert_true(reads(&stream));
    }
}

static void test_lengths_that_no_worker_sends(void **state)
{
    struct stream stream = greeted();

    (void)state;
    memcpy(stream.bytes + stream.size, "\6\0\0\0\0\0\0\2\0", 9); /* a command of 512 bytes */
    stream.size += 9;
    assert_true(reads(&stream));
    stream.bytes[stream.size - 1] = 1;
    assert_false(reads(&stream));
    stream = greeted();
    memcpy(stream.bytes + stream.size, "\2\xff\xff\xff\xff\xff\xff\xff\xff", 9);
    stream.size += 9;
    assert_false(reads(&stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_cut_at_any_byte),
        cmocka_unit_test(test_a_frame_counts_from_its_header_on),
        cmocka_unit_test(test_what_no_worker_sends),
        cmocka_unit_test(test_messages_of_several_frames),
        cmocka_unit_test(test_lengths_that_no_worker_sends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
