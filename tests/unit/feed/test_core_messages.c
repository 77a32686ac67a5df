/* Messages of the core to its sessions: every figure that they have. */
#include <stdlib.h>
#include <string.h>

#include "core_world.h"

#define TEXT(text)                                                                                 \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static const struct trajd_wire_tensor tensors[] = {
    {TEXT("obs/joints"), TEXT("obs"), {0}, TRAJD_F32, 3, {4, 2, 7}, 0, 0, 0, {0}, {0}},
    {TEXT("obs/joints/mask"),
     TEXT("mask"),
     TEXT("obs/joints"),
     TRAJD_U8,
     2,
     {4, 2},
     256,
     0,
     0,
     {0},
     {0}},
};

/* Returns the options of a feed of which no two figures are equal. */
static struct trajd_core_feed_options distinct_options(void)
{
    struct trajd_core_feed_options options = default_options();

    options.job_count = 2;
    options.norm_digest = 11;
    options.values_digest = 13;
    options.ring_size_bytes = 65536;
    options.slot_size_bytes = 16384;
    options.writable = true;
    options.gpu = trajd_wire_text("GPU-00112233-4455-6677-8899-aabbccddeeff");
    options.handle = (struct trajd_wire_bytes){"a handle", 8};
    options.tensor_count = 2;
    options.tensors = tensors;
    options.data.found_count = 19;
    options.data.kept_count = 17;
    options.data.used_count = 15;
    options.data.quarantined =
        (struct trajd_wire_texts){2, {TEXT("a.hdf5: 0 rows"), TEXT("b.hdf5: NaN")}};
    options.data.warnings = (struct trajd_wire_texts){1, {TEXT("one camera is dark")}};
    return options;
}

/* Compares the message of that op that was sent last with the expected one, as they are encoded. */
static void check_sent(const struct world *world, const struct trajd_wire_message *expected)
{
    static uint8_t got[TRAJD_WIRE_MAX_FRAME], wanted[TRAJD_WIRE_MAX_FRAME];
    const struct trajd_wire_message *sent = last_sent(world, expected->op);
    size_t got_size, wanted_size;

    assert_non_null(sent);
    assert_int_equal(trajd_wire_encode(sent, got, sizeof got, &got_size, NULL), TRAJD_OK);
    assert_int_equal(trajd_wire_encode(expected, wanted, sizeof wanted, &wanted_size, NULL),
                     TRAJD_OK);
    assert_int_equal(got_size, wanted_size);
    assert_memory_equal(got, wanted, wanted_size);
}

/* Adds the figures of the feed, and checks the OPENED that was sent last. */
static void check_opened(const struct world *world, struct trajd_wire_opened expected)
{
    const struct trajd_core_feed_options options = distinct_options();
    struct trajd_wire_message message = {.op = TRAJD_WIRE_OPENED};

    expected.feed_id = expected.ring = trajd_core_feed_id(world->feed);
    expected.ring_size_bytes = 65536;
    expected.slot_count = 3;
    expected.slot_size_bytes = 16384;
    expected.writable = true;
    expected.gpu = options.gpu;
    expected.handle = options.handle;
    expected.batch = 4;
    expected.length = 40;
    expected.windows = 42;
    expected.dropped = 2;
    expected.fingerprint = 7;
    expected.norm = 11;
    expected.values = 13;
    expected.seed = 8;
    expected.tensor_count = 2;
    expected.tensors = tensors;
    expected.found = 19;
    expected.kept = 17;
    expected.used = 15;
    expected.quarantined = options.data.quarantined;
    expected.warnings = options.data.warnings;
    message.opened = expected;
    check_sent(world, &message);
}

static void test_opened(void **state)
{
    const struct trajd_core_feed_options options = distinct_options();
    struct world *world = make(&options);
    const uint64_t queue = greet(world), rank = greet(world);
    struct trajd_wire_open open = make_open_as(world, "queue", 6);
    const struct trajd_wire_message *sent;

    (void)state;
    open.mode = TRAJD_WIRE_QUEUE;
    assert_int_equal(open_with(world, queue, open), TRAJD_OK);
    sent = last_sent(world, TRAJD_WIRE_OPENED);
    assert_true(sent->opened.pass > 1); /* any number, but not 0 */
    check_opened(world, (struct trajd_wire_opened){.request = open.request,
                                                   .row_count = 4,
                                                   .credit = 2,
                                                   .epoch = 6,
                                                   .pass = sent->opened.pass});
    open = make_open_rank_as(world, "ranks", 6, 1, 2);
    open.next = 8;
    open.credit = 3;
    assert_int_equal(open_with(world, rank, open), TRAJD_OK);
    check_opened(world, (struct trajd_wire_opened){.request = open.request,
                                                   .row_begin = 2,
                                                   .row_count = 2,
                                                   .part = TRAJD_CORE_MAX_WORLD + 1,
                                                   .credit = 3,
                                                   .epoch = 6,
                                                   .next = 8});
    destroy(world);
}

/* Adds a second feed, so that its number is not that of all other things. */
static struct world *make_with_two_feeds(struct trajd_core_feed_options *options)
{
    struct world *world = make(options);
    const uint32_t first = trajd_core_feed_id(world->feed);

    options->name = "eval";
    assert_int_equal(trajd_core_add_feed(world->core, options, &world->feed, NULL), TRAJD_OK);
    assert_int_not_equal(trajd_core_feed_id(world->feed), first);
    return world;
}

/* The second batch of rank 1 of the second job. */
static void test_batch(void **state)
{
    const struct trajd_error failure = {.message = "made to fail"};
    struct trajd_core_feed_options options = distinct_options();
    struct world *world = make_with_two_feeds(&options);
    const uint64_t queue = greet(world), ranks[] = {greet(world), greet(world)};
    struct trajd_fill fill;

    (void)state;
    assert_int_equal(open_with(world, queue, make_open_as(world, "queue", 6)), TRAJD_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(open_with(world, ranks[r], make_open_rank_as(world, "ranks", 6, r, 2)),
                         TRAJD_OK);
    assert_true(publish(world, take(world)));
    fill = take(world);
    world->now_ns = 1000;
    assert_true(trajd_core_publish(world->feed, &fill, &failure, world->now_ns));
    check_sent(world,
               &(struct trajd_wire_message){TRAJD_WIRE_BATCH,
                                            {.batch = {.seq = 2,
                                                       .feed_id = trajd_core_feed_id(world->feed),
                                                       .ring = trajd_core_feed_id(world->feed),
                                                       .slot = fill.slot,
                                                       .generation = fill.generation,
                                                       .part = TRAJD_CORE_MAX_WORLD + 1,
                                                       .epoch = 6,
                                                       .position = 4,
                                                       .row_begin = 2,
                                                       .row_count = 2,
                                                       .ready_ns = 1000,
                                                       .error = TEXT("made to fail")}}});
    destroy(world);
}

static void test_epoch_end(void **state)
{
    struct trajd_core_feed_options options = distinct_options();
    struct world *world = make_with_two_feeds(&options);
    const uint64_t session = greet(world);
    struct trajd_wire_open open = make_open(world, 6);

    (void)state;
    open.next = 36;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_true(publish(world, take(world)));
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    check_sent(world, &(struct trajd_wire_message){
                          TRAJD_WIRE_EPOCH_END,
                          {.epoch_end = {.feed_id = trajd_core_feed_id(world->feed),
                                         .epoch = 6,
                                         .batches = 1,
                                         .windows = 4,
                                         .dropped = 2}}});
    destroy(world);
}

static void test_welcome(void **state)
{
    static const char *const names[] = {"train", "eval", NULL};
    const struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session;

    (void)state;
    trajd_core_set_feed_names(world->core, names);
    greet(world);
    world->sent_count = 0;
    session = greet(world);
    check_sent(world,
               &(struct trajd_wire_message){TRAJD_WIRE_WELCOME,
                                            {.welcome = {.minor = TRAJD_WIRE_MINOR,
                                                         .instance = 5,
                                                         .token = {2},
                                                         .session = session,
                                                         .version = TEXT("test"),
                                                         .feed_count = 2,
                                                         .feeds = {TEXT("train"), TEXT("eval")}}}});
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opened),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_epoch_end),
        cmocka_unit_test(test_welcome),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
