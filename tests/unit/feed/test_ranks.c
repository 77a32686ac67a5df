/* Rules of jobs with ranks on several nodes. */
#include <string.h>

#include "core_world.h"
#include "proto/array_len.h"

static struct trajd_wire_open make_open_local(struct world *world, uint32_t rank)
{
    struct trajd_wire_open open = make_open_rank_as(world, "", 0, rank, 4);

    open.local = (struct trajd_wire_ranks){2, {1, 3}};
    return open;
}

static void test_local_ranks(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_fill fill;
    struct trajd_wire_open open;
    uint64_t first, second, third;
    struct world *world;

    (void)state;
    options.global_batch = 9;
    world = make(&options);
    first = greet(world);
    second = greet(world);
    assert_int_equal(open_with(world, first, make_open_local(world, 1)), TRAJD_OK);
    open = make_open_local(world, 3);
    open.local = (struct trajd_wire_ranks){2, {2, 3}};
    assert_int_equal(open_with(world, second, open), TRAJD_ERR_BUSY);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(last_error(world), "local: "));
    assert_int_equal(open_with(world, second, make_open_local(world, 3)), TRAJD_OK);
    third = greet(world);
    /* each rank has only one session */
    assert_int_not_equal(open_with(world, third, make_open_local(world, 3)), TRAJD_OK);
    fill = take(world); /* no rank waits for ranks 0 and 2, and their rows are not produced */
    assert_int_equal(fill.row_count, 9);
    assert_int_equal(fill.range_count, 2);
    assert_int_equal(fill.ranges[0].begin, 2);
    assert_int_equal(fill.ranges[0].count, 2);
    assert_int_equal(fill.ranges[1].begin, 6);
    assert_int_equal(fill.ranges[1].count, 3);
    publish(world, fill);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    for (uint64_t position = 0;; position += 9) {
        for (uint32_t i = 0; i < world->sent_count; i++)
            if (world->sent[i].message.op == TRAJD_WIRE_BATCH) {
                assert_int_equal(world->sent[i].message.batch.position, position);
                release(world, world->sent[i].session, world->sent[i].message.batch);
            }
        if (last_sent(world, TRAJD_WIRE_EPOCH_END))
            break;
        world->sent_count = 0;
        publish(world, take(world));
    }
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 4);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.windows, 4 * 5);
    destroy(world);
}

/* Sessions of one job agree on its mode, its world and its local ranks. */
static void test_a_session_that_differs_from_its_job(void **state)
{
    static const struct {
        uint32_t mode, world, local;
        const char *text;
    } cases[] = {
        {TRAJD_WIRE_SHARD, 3, 1, "shard with world 3, but job \"\" runs as shard with world 2"},
        {TRAJD_WIRE_QUEUE, 1, 0, "queue with world 1, but job \"\" runs as shard with world 2"},
        {TRAJD_WIRE_SHARD, 2, 2,
         "local: 2 ranks (0 first), but the other ranks of job \"\" list 1"},
    };
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    struct trajd_wire_open open = make_open_rank_as(world, "", 0, 0, 2);

    (void)state;
    open.local = (struct trajd_wire_ranks){1, {0}};
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open = make_open_rank_as(world, "", 0, 0, cases[i].world);
        open.mode = cases[i].mode;
        open.local = (struct trajd_wire_ranks){cases[i].local, {0, 1}};
        open_with(world, greet(world), open);
        assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_ARGUMENT);
        assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.request, open.request);
        if (!strstr(last_error(world), cases[i].text))
            fail_msg("%s", last_error(world));
    }
    destroy(world);
}

static void test_neighbouring_ranks_are_one_range(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_fill fill;
    struct trajd_wire_open open;
    struct world *world;

    (void)state;
    options.global_batch = 3; /* as many rows as ranks: all ranges touch */
    options.epoch_length = 40;
    options.tail_short = true;
    world = make(&options);
    for (uint32_t r = 1; r < 3; r++) {
        open = make_open_rank_as(world, "", 0, r, 3);
        open.local = (struct trajd_wire_ranks){2, {1, 2}};
        open.next = 36;
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    }
    fill = take(world);
    assert_int_equal(fill.range_count, 1);
    assert_int_equal(fill.ranges[0].begin, 1);
    assert_int_equal(fill.ranges[0].count, 2);
    publish(world, fill);
    fill = take(world); /* one row remains, which belongs to the last rank */
    assert_int_equal(fill.row_count, 1);
    assert_int_equal(fill.range_count, 1);
    assert_int_equal(fill.ranges[0].begin, 0);
    publish(world, fill);
    destroy(world);
}

/* A rank that is elsewhere gets the advice in full, however long the names and positions are. */
static void test_the_advice_for_a_rank_elsewhere(void **state)
{
    struct trajd_core_feed_options options = default_options();
    char name[TRAJD_WIRE_MAX_NAME + 1];
    struct trajd_wire_open open;
    struct world *world;

    (void)state;
    memset(name, 'n', TRAJD_WIRE_MAX_NAME);
    name[TRAJD_WIRE_MAX_NAME] = 0;
    options.global_batch = 8;
    world = make(&options);
    for (uint32_t r = 0; r < 3; r++) {
        open = make_open_rank_as(world, name, UINT64_MAX / 2, r, 5);
        open.fresh = false;
        open.next = 8 * r;
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    }
    open = make_open_rank_as(world, name, UINT64_MAX / 2 + 2, 4, 5);
    assert_int_equal(open_with(world, greet(world), open), TRAJD_ERR_BUSY);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_BUSY);
    assert_non_null(strstr(last_error(world), "If this lasts, stop all ranks and restart them from "
                                              "one checkpoint (the same epoch and position): "
                                              "rank 0 is at window 0 of epoch "));
    destroy(world);
    world = make(&options);
    for (uint32_t r = 0; r < 3; r++) {
        open = make_open_rank_as(world, "run", 3, r, 5);
        open.fresh = false;
        open.next = 8 * r;
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    }
    open = make_open_rank_as(world, "run", 3, 4, 5);
    open.next = 5;
    open_with(world, greet(world), open);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_ARGUMENT);
    assert_string_equal(
        last_error(world),
        "next: rank 4 asks for window 5 of epoch 3, but job \"run\" is in epoch 3. Stop all ranks "
        "and restart them from one checkpoint (the same epoch and position): rank 0 is at window 0 "
        "of epoch 3, rank 1 is at window 8 of epoch 3, rank 2 is at window 16 of epoch 3");
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_ranks),
        cmocka_unit_test(test_a_session_that_differs_from_its_job),
        cmocka_unit_test(test_neighbouring_ranks_are_one_range),
        cmocka_unit_test(test_the_advice_for_a_rank_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
