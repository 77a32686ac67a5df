/* OPENED: every figure that it has of the feed, the job and the session. */
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
    options.found_count = 19;
    options.kept_count = 17;
    options.used_count = 15;
    options.quarantined =
        (struct trajd_wire_texts){2, {TEXT("a.hdf5: 0 rows"), TEXT("b.hdf5: NaN")}};
    options.warnings = (struct trajd_wire_texts){1, {TEXT("one camera is dark")}};
    return options;
}

/* Compares the OPENED that was sent last with the message that has these figures and the feed's. */
static void check_opened(const struct world *world, struct trajd_wire_opened expected)
{
    const struct trajd_core_feed_options options = distinct_options();
    const struct trajd_wire_message *sent = last_sent(world, TRAJD_WIRE_OPENED);
    struct trajd_wire_message message = {.op = TRAJD_WIRE_OPENED};
    static uint8_t got[TRAJD_WIRE_MAX_FRAME], wanted[TRAJD_WIRE_MAX_FRAME];
    size_t got_size, wanted_size;

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
    expected.quarantined = options.quarantined;
    expected.warnings = options.warnings;
    message.opened = expected;
    assert_non_null(sent);
    assert_int_equal(trajd_wire_encode(sent, got, sizeof got, &got_size, NULL), TRAJD_OK);
    assert_int_equal(trajd_wire_encode(&message, wanted, sizeof wanted, &wanted_size, NULL),
                     TRAJD_OK);
    assert_int_equal(got_size, wanted_size);
    assert_memory_equal(got, wanted, wanted_size);
}

static void test_all_figures(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
