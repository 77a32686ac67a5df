/* Encoder and decoder: golden frames in both directions, and all faults that a frame can have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire_vectors.h"

static uint8_t frame[TRAJD_WIRE_MAX_FRAME];
static struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
static struct trajd_wire_message message;
static uint64_t request;

static enum trajd_status decode(const void *bytes, size_t size)
{
    return trajd_wire_decode(bytes, size, tensors, &message, &request, NULL);
}

/* Decodes a frame of the op with this msgpack body. */
static enum trajd_status decode_body(uint8_t op, const char *body, size_t size)
{
    memcpy(frame, "TRJD\x01\x00\x00\x00", 8);
    frame[5] = op;
    memcpy(frame + 8, body, size);
    return decode(frame, 8 + size);
}

#define BODY(op, string) decode_body(op, string, sizeof string - 1)

static size_t read_golden(const char *name, uint8_t *bytes, size_t room)
{
    char path[4096];
    unsigned value;
    size_t size = 0;
    FILE *file;

    snprintf(path, sizeof path, TRAJD_SOURCE_DIR "/tests/golden/wire/%s.hex", name);
    file = fopen(path, "r");
    assert_non_null(file);
    while (size < room && fscanf(file, "%2x", &value) == 1)
        bytes[size++] = (uint8_t)value;
    fclose(file);
    return size;
}

static void test_golden_frames(void **state)
{
    static uint8_t golden[TRAJD_WIRE_MAX_FRAME];

    (void)state;
    for (size_t i = 0; i < wire_vector_count; i++) {
        size_t size, golden_size = read_golden(wire_vectors[i].name, golden, sizeof golden);
        assert_int_equal(
            trajd_wire_encode(&wire_vectors[i].message, frame, sizeof frame, &size, NULL),
            TRAJD_OK);
        assert_int_equal(size, golden_size);
        assert_memory_equal(frame, golden, size);
        assert_int_equal(decode(golden, golden_size), TRAJD_OK);
        assert_int_equal(message.op, wire_vectors[i].message.op);
        memset(frame, 0, sizeof frame);
        assert_int_equal(trajd_wire_encode(&message, frame, sizeof frame, &size, NULL), TRAJD_OK);
        assert_int_equal(size, golden_size);
        assert_memory_equal(frame, golden, size);
    }
}

static void test_fields_arrive(void **state)
{
    uint8_t golden[4096];
    size_t size;

    (void)state;
    assert_int_equal(decode(golden, read_golden("hello_resumed", golden, sizeof golden)), TRAJD_OK);
    assert_true(message.hello.has_token);
    assert_int_equal(message.hello.token[15], 255);
    assert_int_equal(message.hello.instance, UINT64_C(0xfedcba9876543210));
    assert_int_equal(message.hello.held.count, 2);
    assert_int_equal(message.hello.held.list[1].generation, UINT64_C(5000000000));
    assert_int_equal(decode(golden, read_golden("opened", golden, sizeof golden)), TRAJD_OK);
    assert_int_equal(message.opened.tensor_count, 3);
    assert_int_equal(message.opened.tensors[0].shape[2], 7);
    assert_true(trajd_wire_text_equals(message.opened.tensors[1].of, "obs/joints"));
    assert_int_equal(message.opened.row_begin, 64);
    assert_int_equal(message.opened.found, 0);
    assert_int_equal(decode(golden, read_golden("opened_data", golden, sizeof golden)), TRAJD_OK);
    assert_int_equal(message.opened.kept, 48);
    assert_int_equal(message.opened.quarantined.count, 2);
    assert_true(trajd_wire_text_equals(message.opened.quarantined.list[1], "Zürich.hdf5: 0 rows"));
    assert_int_equal(message.opened.warnings.count, 1);
    /* a text that is too long is cut, and bytes that are not UTF-8 are replaced */
    memset(frame, 'x', TRAJD_WIRE_MAX_WARNING + 10);
    frame[7] = 0xff;
    message.opened.warnings.list[0] = (struct trajd_wire_text){
        memcpy(golden + 1024, frame, TRAJD_WIRE_MAX_WARNING + 10), TRAJD_WIRE_MAX_WARNING + 10};
    assert_int_equal(trajd_wire_encode(&message, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_int_equal(message.opened.warnings.list[0].size, TRAJD_WIRE_MAX_WARNING);
    assert_int_equal(message.opened.warnings.list[0].data[7], '?');
    message.opened.warnings.count = TRAJD_WIRE_MAX_TEXTS + 1;
    assert_int_equal(trajd_wire_encode(&message, golden, sizeof golden, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(decode(golden, read_golden("open_share", golden, sizeof golden)), TRAJD_OK);
    assert_int_equal(message.open.world, 1);
    assert_int_equal(message.open.next, 0);
    assert_true(message.open.fresh);
    assert_int_equal(decode(golden, read_golden("error", golden, sizeof golden)), TRAJD_OK);
    assert_int_equal(message.error.status, TRAJD_ERR_NOT_FOUND);
}

/* Cuts every frame at every length, and changes each of its bytes. The result is refused, or
 * decodes to a message within the limits. */
static void test_cut_and_changed_frames(void **state)
{
    static uint8_t golden[TRAJD_WIRE_MAX_FRAME];
    size_t size, refused = 0;

    (void)state;
    for (size_t i = 0; i < wire_vector_count; i++) {
        size_t golden_size = read_golden(wire_vectors[i].name, golden, sizeof golden);
        for (size_t cut = 0; cut < golden_size; cut++) {
            /* allocated with that size, so that a sanitizer detects a read behind it */
            uint8_t *copy = malloc(cut ? cut : 1);
            assert_non_null(copy);
            memcpy(copy, golden, cut);
            assert_int_equal(decode(copy, cut), TRAJD_ERR_DATA);
            free(copy);
        }
        for (size_t at = 0; at < golden_size; at++)
            for (unsigned bit = 0; bit < 8; bit++) {
                golden[at] ^= (uint8_t)(1u << bit);
                if (decode(golden, golden_size))
                    refused++;
                else
                    assert_int_equal(trajd_wire_encode(&message, frame, sizeof frame, &size, NULL),
                                     TRAJD_OK);
                golden[at] ^= (uint8_t)(1u << bit);
            }
    }
    assert_true(refused > 1000);
}

/* A buffer of any size that is too small is an error, and nothing is written behind it. */
static void test_buffers_that_are_too_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < wire_vector_count; i++) {
        size_t whole, size;
        assert_int_equal(
            trajd_wire_encode(&wire_vectors[i].message, frame, sizeof frame, &whole, NULL),
            TRAJD_OK);
        for (size_t room = 0; room < whole; room++) {
            uint8_t *small = malloc(room ? room : 1);
            assert_non_null(small);
            if (trajd_wire_encode(&wire_vectors[i].message, small, room, &size, NULL) !=
                TRAJD_ERR_MEMORY)
                fail_msg("%s fits into %zu of %zu bytes", wire_vectors[i].name, room, whole);
            free(small);
        }
    }
}

struct item {
    size_t begin, end;
};

static uint32_t read_length(const uint8_t *bytes, size_t size)
{
    uint32_t length = 0;

    for (size_t i = 0; i < size; i++)
        length = length << 8 | bytes[i];
    return length;
}

/* Lists the values of a msgpack item that trajd encodes, with those inside arrays and maps, but no
 * keys. Returns the place behind the item. */
static size_t list_values(const uint8_t *bytes, size_t at, bool is_key, struct item *items,
                          size_t *count)
{
    const uint8_t type = bytes[at];
    const size_t begin = at, own = is_key ? SIZE_MAX : (*count)++;
    uint32_t children = 0;

    at++;
    if ((type & 0xe0) == 0xa0)
        at += type & 0x1f;
    else if (type == 0xc4 || type == 0xd9)
        at += 1 + read_length(bytes + at, 1);
    else if (type == 0xc5 || type == 0xda)
        at += 2 + read_length(bytes + at, 2);
    else if (type >= 0xcc && type <= 0xcf)
        at += (size_t)1 << (type - 0xcc);
    else if ((type & 0xf0) == 0x90)
        children = type & 0x0f;
    else if ((type & 0xf0) == 0x80)
        children = 2 * (type & 0x0fu);
    else if (type == 0xdc || type == 0xde) {
        children = read_length(bytes + at, 2) * (type == 0xde ? 2 : 1);
        at += 2;
    } else
        assert_true(type < 0x80 || type == 0xc2 || type == 0xc3);
    for (uint32_t i = 0; i < children; i++)
        at = list_values(bytes, at, ((type & 0xf0) == 0x80 || type == 0xde) && i % 2 == 0, items,
                         count);
    if (!is_key)
        items[own] = (struct item){begin, at};
    return at;
}

/* Puts a number with a fraction, which no field has, in the place of each value of each message. */
static void test_values_of_another_type(void **state)
{
    static uint8_t golden[TRAJD_WIRE_MAX_FRAME], other[TRAJD_WIRE_MAX_FRAME + 8];
    static struct item items[TRAJD_WIRE_MAX_ITEMS];

    (void)state;
    for (size_t i = 0; i < wire_vector_count; i++) {
        const size_t size = read_golden(wire_vectors[i].name, golden, sizeof golden);
        size_t count = 0;
        assert_int_equal(list_values(golden, 8, false, items, &count), size);
        for (size_t k = 0; k < count; k++) {
            memcpy(other, golden, items[k].begin);
            memcpy(other + items[k].begin, "\xca\x3f\x00\x00\x00", 5);
            memcpy(other + items[k].begin + 5, golden + items[k].end, size - items[k].end);
            if (!decode(other, size - (items[k].end - items[k].begin) + 5))
                fail_msg("%s: the value at byte %zu", wire_vectors[i].name, items[k].begin);
        }
    }
}

static void test_header(void **state)
{
    (void)state;
    assert_int_equal(decode("TRJD\x01\x05\x00\x00\x80", 9), TRAJD_OK);
    assert_int_equal(message.op, TRAJD_WIRE_BYE);
    assert_int_equal(decode("TRJX\x01\x05\x00\x00\x80", 9), TRAJD_ERR_DATA);
    assert_int_equal(message.op, 0);
    assert_int_equal(decode("TRJD\x02\x05\x00\x00\x80", 9), TRAJD_ERR_UNSUPPORTED);
    assert_int_equal(decode("TRJD\x02\x05\x00\x00garbage", 15), TRAJD_ERR_UNSUPPORTED);
    assert_int_equal(decode("TRJD\x01\x05\x01\x00\x80", 9), TRAJD_ERR_DATA);
    assert_int_equal(decode("TRJD\x01\x01\x00\x00\x80", 9), TRAJD_ERR_PROTOCOL);
    assert_int_equal(message.op, TRAJD_WIRE_HELLO); /* an op that is known, without its keys */
    assert_int_equal(decode("TRJD\x01\x63\x00\x00\x80", 9), TRAJD_ERR_PROTOCOL);
    assert_int_equal(message.op, 0);
    assert_int_equal(decode("", 0), TRAJD_ERR_DATA);
    assert_int_equal(trajd_wire_decode(frame, sizeof frame + 1, NULL, &message, &request, NULL),
                     TRAJD_ERR_DATA);
}

static void test_scan(void **state)
{
    static uint8_t many[4096];

    (void)state;
    assert_true(trajd_wire_scan("\x80", 1, 16));
    /* a byte behind the map */
    assert_false(trajd_wire_scan("\x80\x80", 2, 16));
    assert_false(trajd_wire_scan("\x90", 1, 16)); /* no map */
    assert_false(trajd_wire_scan("\xc0", 1, 16));
    assert_true(trajd_wire_scan("\x81\xa1x\x91\x91\x91\xc0", 7, 16));      /* depth 4 */
    assert_false(trajd_wire_scan("\x81\xa1x\x91\x91\x91\x91\xc0", 8, 16)); /* depth 5 */
    assert_false(trajd_wire_scan("\x81\xa1x\xd4\x01\x00", 6, 16));         /* extension */
    assert_false(trajd_wire_scan("\x81\xa1x\xc7\x00\x01", 6, 16));
    assert_false(trajd_wire_scan("\x81\xa1x\xc1", 4, 16)); /* never used */
    /* a string of 4 GiB */
    assert_false(trajd_wire_scan("\x81\xa1x\xdb\xff\xff\xff\xff", 8, 16));
    /* an array of 4 G elements */
    assert_false(trajd_wire_scan("\x81\xa1x\xdd\xff\xff\xff\xff", 8, 16));
    assert_false(trajd_wire_scan("\xdf\xff\xff\xff\xff", 5, 16));
    /* a count that overflows when doubled */
    assert_false(trajd_wire_scan("\xdf\x80\x00\x00\x00", 5, 16));
    assert_true(trajd_wire_scan("\x81\xa1x\xcb\x00\x00\x00\x00\x00\x00\x00\x00", 12, 16));
    assert_true(trajd_wire_scan("\x81\xa1x\x90", 4, 3));
    assert_false(trajd_wire_scan("\x81\xa1x\x91\xc0", 5, 3)); /* four items */
    memcpy(many, "\x81\xa1x\xdc\x0f\x00", 6);
    assert_true(trajd_wire_scan(many, 6 + 0xf00, 4096));
    assert_false(trajd_wire_scan(many, 6 + 0xf00, 1024));
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\x05"), TRAJD_OK);
    assert_int_equal(message.ping.time, 5);
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\xd3\x00\x00\x00\x00\x00\x00\x00\x07"),
                     TRAJD_OK);
    assert_int_equal(message.ping.time, 7);
    /* -1 */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\xff"), TRAJD_ERR_PROTOCOL);
    /* -128 */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\xd0\x80"), TRAJD_ERR_PROTOCOL);
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\xca\x00\x00\x00\x00"), TRAJD_ERR_PROTOCOL);
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x81\xa4time\xa1"
                                           "5"),
                     TRAJD_ERR_PROTOCOL);
    /* missing */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x80"), TRAJD_ERR_PROTOCOL);
    /* twice */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x82\xa4time\x05\xa4time\x05"), TRAJD_ERR_PROTOCOL);
    /* a number as key */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x82\xa4time\x05\x07\x05"), TRAJD_ERR_PROTOCOL);
    /* ignored */
    assert_int_equal(BODY(TRAJD_WIRE_PING, "\x82\xa4time\x05\xa3new\x92\x81\xa1x\xc3\xc0"),
                     TRAJD_OK);
    /* numbered from 1 */
    assert_int_equal(BODY(TRAJD_WIRE_STATUS, "\x81\xa7request\x00"), TRAJD_ERR_PROTOCOL);
}

static void test_open_rules(void **state)
{
    struct trajd_wire_message open = {TRAJD_WIRE_OPEN,
                                      {.open = {.request = 9,
                                                .mode = TRAJD_WIRE_SHARD,
                                                .world = 2,
                                                .rank = 1,
                                                .credit = 2,
                                                .feed = {"f", 1}}}};
    size_t size;

    (void)state;
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    open.open.rank = 2;
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL);
    assert_int_equal(request, 9); /* for the answer */
    open.open.rank = 0;
    open.open.mode = TRAJD_WIRE_QUEUE;
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL); /* queue has a world of 1 */
    open.open.world = 1;
    open.open.spec = trajd_wire_text("x: 1");
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL); /* feed or spec */
    open.open.spec.size = 0;
    open.open.local = (struct trajd_wire_ranks){1, {0}};
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL); /* queue has no ranks */
    open.open.mode = TRAJD_WIRE_SHARD;
    open.open.world = 4;
    open.open.local = (struct trajd_wire_ranks){3, {0, 2, 3}};
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_int_equal(message.open.local.list[2], 3);
    for (uint32_t last = 2; last < 6; last += 2) { /* a rank twice, or not below the world */
        open.open.local.list[2] = last;
        assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
        assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL);
    }
    open.open.local = (struct trajd_wire_ranks){2, {1, 2}}; /* without the own rank */
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL);
    open.open.local.count = 0;
    open.open.resume = (struct trajd_wire_bytes){"token", 5}; /* only for queue */
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_ERR_PROTOCOL);
    open.open.resume.size = 0;
    open.open.credit = 1;
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
}

static void test_texts(void **state)
{
    static char long_spec[TRAJD_WIRE_MAX_SPEC + 1];
    struct trajd_wire_message error = {TRAJD_WIRE_ERROR,
                                       {.error = {0, TRAJD_ERR_DATA, {"bad \xff\xc3 name", 11}}}};
    struct trajd_wire_message open = {TRAJD_WIRE_OPEN,
                                      {.open = {.request = 1, .world = 1, .credit = 2}}};
    char copy[4];
    size_t size;

    (void)state;
    assert_int_equal(trajd_wire_encode(&error, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_true(trajd_wire_text_equals(message.error.message, "bad ?? name"));
    open.open.feed = (struct trajd_wire_text){"bad \xff", 5};
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
    open.open.feed.size = 0;
    memset(long_spec, 'a', sizeof long_spec);
    open.open.spec = (struct trajd_wire_text){long_spec, TRAJD_WIRE_MAX_SPEC};
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_int_equal(trajd_wire_encode(&open, frame, 1000, &size, NULL), TRAJD_ERR_MEMORY);
    open.open.spec.size++;
    assert_int_equal(trajd_wire_encode(&open, frame, sizeof frame, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
    /* overlong NUL */
    assert_int_equal(BODY(TRAJD_WIRE_GOAWAY, "\x81\xa6reason\xa2\xc0\x80"), TRAJD_ERR_PROTOCOL);
    assert_int_equal(BODY(TRAJD_WIRE_GOAWAY, "\x81\xa6reason\xa1\x00"), TRAJD_ERR_PROTOCOL);
    /* a surrogate */
    assert_int_equal(BODY(TRAJD_WIRE_GOAWAY, "\x81\xa6reason\xa3\xed\xa0\x80"), TRAJD_ERR_PROTOCOL);
    trajd_wire_text_copy(trajd_wire_text("ab\xc3\xbc"), copy, sizeof copy);
    assert_string_equal(copy, "ab"); /* never half a character */
}

/* One tensor that cannot be encoded, the last of several, spoils the message. */
static void test_a_tensor_without_a_valid_name(void **state)
{
    uint32_t tried = 0;
    size_t size;

    (void)state;
    for (size_t i = 0; i < wire_vector_count; i++) {
        struct trajd_wire_message opened = wire_vectors[i].message;
        struct trajd_wire_tensor changed[TRAJD_WIRE_MAX_TENSORS];
        if (opened.op != TRAJD_WIRE_OPENED || !opened.opened.tensor_count)
            continue;
        memcpy(changed, opened.opened.tensors, opened.opened.tensor_count * sizeof *changed);
        opened.opened.tensors = changed;
        assert_int_equal(trajd_wire_encode(&opened, frame, sizeof frame, &size, NULL), TRAJD_OK);
        changed[opened.opened.tensor_count - 1].name = (struct trajd_wire_text){"bad \xff", 5};
        assert_int_equal(trajd_wire_encode(&opened, frame, sizeof frame, &size, NULL),
                         TRAJD_ERR_ARGUMENT);
        tried++;
    }
    assert_true(tried > 0);
}

/* A name that cannot be sent is refused, and not cut: it would be another feed's. */
static void test_names_of_feeds(void **state)
{
    static char name[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_wire_message welcome = {0};
    size_t size;

    (void)state;
    for (size_t i = 0; i < wire_vector_count && welcome.op != TRAJD_WIRE_WELCOME; i++)
        welcome = wire_vectors[i].message;
    assert_int_equal(welcome.op, TRAJD_WIRE_WELCOME);
    memset(name, 'a', sizeof name);
    welcome.welcome.feed_count = 2;
    welcome.welcome.feeds[0] = trajd_wire_text("train");
    welcome.welcome.feeds[1] = (struct trajd_wire_text){name, TRAJD_WIRE_MAX_NAME};
    assert_int_equal(trajd_wire_encode(&welcome, frame, sizeof frame, &size, NULL), TRAJD_OK);
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_int_equal(message.welcome.feeds[1].size, TRAJD_WIRE_MAX_NAME);
    welcome.welcome.feeds[1].size++;
    assert_int_equal(trajd_wire_encode(&welcome, frame, sizeof frame, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
    welcome.welcome.feeds[1] = (struct trajd_wire_text){"bad \xff", 5};
    assert_int_equal(trajd_wire_encode(&welcome, frame, sizeof frame, &size, NULL),
                     TRAJD_ERR_ARGUMENT);
}

static void test_lists(void **state)
{
    struct trajd_wire_message ack = {.op = TRAJD_WIRE_ACK};
    size_t size;

    (void)state;
    ack.ack.done.count = ack.ack.released.count = TRAJD_WIRE_MAX_LEASES;
    for (uint32_t i = 0; i < TRAJD_WIRE_MAX_LEASES; i++)
        ack.ack.done.list[i] = ack.ack.released.list[i] =
            (struct trajd_wire_lease){UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT32_MAX - i};
    assert_int_equal(trajd_wire_encode(&ack, frame, 4096, &size, NULL), TRAJD_OK); /* the largest */
    assert_int_equal(decode(frame, size), TRAJD_OK);
    assert_int_equal(message.ack.released.list[63].part, UINT32_MAX - 63);
    ack.ack.done.count++;
    assert_int_equal(trajd_wire_encode(&ack, frame, sizeof frame, &size, NULL), TRAJD_ERR_ARGUMENT);
    assert_int_equal(BODY(TRAJD_WIRE_ACK, "\x81\xa4"
                                          "done\x91\x93\x01\x02\x03"),
                     TRAJD_ERR_PROTOCOL);
    assert_int_equal(BODY(TRAJD_WIRE_ACK,
                          "\x81\xa4"
                          "done\x91\x94\x01\x02\x03\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
                     TRAJD_ERR_PROTOCOL); /* a part beyond 32 bits */
    assert_int_equal(decode_body(TRAJD_WIRE_OPENED, "\x80", 1), TRAJD_ERR_PROTOCOL);
    assert_int_equal(trajd_wire_decode(frame, 9, NULL, &message, &request, NULL),
                     TRAJD_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_frames),
        cmocka_unit_test(test_fields_arrive),
        cmocka_unit_test(test_cut_and_changed_frames),
        cmocka_unit_test(test_buffers_that_are_too_small),
        cmocka_unit_test(test_values_of_another_type),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_open_rules),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_a_tensor_without_a_valid_name),
        cmocka_unit_test(test_names_of_feeds),
        cmocka_unit_test(test_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
