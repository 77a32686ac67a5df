/* Rules of several jobs that read the same slots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core_world.h"

#define SECOND UINT64_C(1000000000)

static struct trajd_core_feed_options two_jobs(void)
{
    struct trajd_core_feed_options options = default_options();

    options.job_count = 2;
    return options;
}

static struct trajd_core_job_info job_info(const struct world *world, uint32_t index)
{
    struct trajd_core_job_info info = {.name = NULL};

    trajd_core_job_info(world->feed, index, &info);
    return info;
}

static void test_one_production_for_both(void **state)
{
    struct trajd_core_feed_options options = two_jobs();
    struct world *world = make(&options);
    uint64_t first = open_as(world, "a", 0), second = open_as(world, "b", 0);
    struct trajd_fill none;
    uint32_t batches = 0, ends = 0;

    (void)state;
    world->sent_count = 0;
    publish(world, take(world));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    assert_int_equal(world->sent[0].message.batch.slot, world->sent[1].message.batch.slot);
    assert_int_not_equal(world->sent[0].message.batch.part, world->sent[1].message.batch.part);
    for (int i = 0; i < 2; i++)
        publish(world, take(world));
    assert_int_equal(give_back(world, first), 3);
    /* the second job still has all of them */
    assert_int_equal(trajd_core_take(world->feed, 0, &none), TRAJD_ERR_TIMEOUT);
    assert_string_equal(job_info(world, 1).name, "b");
    assert_int_equal(job_info(world, 0).batches_remaining, 7);
    assert_int_equal(job_info(world, 1).batches_remaining, 10);
    for (int i = 0; i < 10; i++) {
        batches += give_back(world, first) + give_back(world, second);
        fill_all(world);
    }
    assert_int_equal(batches, 17);
    ends = count_sent(world, TRAJD_WIRE_EPOCH_END);
    assert_int_equal(ends, 2);
    assert_int_equal(stats_of(world).batches_done, 20);
    destroy(world);
}

static void test_a_job_elsewhere_gets_no_part(void **state)
{
    struct trajd_core_feed_options options = two_jobs();
    struct world *world = make(&options);
    uint64_t first = open_as(world, "a", 0), second = greet(world);
    struct trajd_wire_open open = make_open_as(world, "b", 5);
    struct trajd_wire_batch held;

    (void)state;
    publish(world, take(world));
    held = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    assert_null(trajd_core_choose(world->core, second, &open, world->feed)); /* another epoch */
    assert_int_equal(open_with(world, second, open), TRAJD_ERR_BUSY);
    open = make_open_as(world, "b", 0);
    open.next = 2; /* other batches */
    assert_null(trajd_core_choose(world->core, second, &open, world->feed));
    open = make_open_as(world, "b", 0);
    open.mode = TRAJD_WIRE_SHARD;
    open.world = 2;
    open.local =
        (struct trajd_wire_ranks){1, {0}}; /* the rows of rank 1 would be missing for others */
    assert_null(trajd_core_choose(world->core, second, &open, world->feed));
    open.local.count = 0;
    assert_ptr_equal(trajd_core_choose(world->core, second, &open, world->feed), world->feed);
    release(world, first,
            held); /* the slot is free: ranks cannot get its batch in order any more */
    assert_null(trajd_core_choose(world->core, second, &open, world->feed));
    open = make_open_as(world, "b", 0); /* under queue the batch is made again */
    assert_ptr_equal(trajd_core_choose(world->core, second, &open, world->feed), world->feed);
    assert_int_equal(open_with(world, second, open), TRAJD_OK);
    assert_int_equal(take(world).position, 0);
    open = make_open_as(world, "c", 0); /* a third job */
    assert_null(trajd_core_choose(world->core, greet(world), &open, world->feed));
    destroy(world);
}

static void test_shard_beside_queue(void **state)
{
    struct trajd_core_feed_options options = two_jobs();
    struct world *world = make(&options);
    struct trajd_wire_open open = make_open_as(world, "ranks", 0);
    uint64_t ranks[2], other;

    (void)state;
    open.mode = TRAJD_WIRE_SHARD;
    open.world = 2;
    ranks[0] = greet(world);
    assert_int_equal(open_with(world, ranks[0], open), TRAJD_OK);
    other = open_as(world, "queue", 0); /* while the ranks gather */
    publish(world, take(world));
    assert_int_equal(give_back(world, other), 1);
    ranks[1] = greet(world);
    open.request = ++world->requests;
    open.rank = 1;
    assert_int_equal(open_with(world, ranks[1], open), TRAJD_OK);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2); /* the slot was kept for them */
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 0);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.row_count, 2);
    destroy(world);
}

/* Lets the first job release everything and the second nothing, until no slot is FREE. */
static void stall(struct world *world, uint64_t first)
{
    for (int i = 0; i < 4; i++) {
        fill_all(world);
        give_back(world, first);
    }
}

static void test_a_slow_job_blocks_or_leaves(void **state)
{
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        struct trajd_core_feed_options options = two_jobs();
        struct world *world;
        uint64_t first, second;
        options.slow_leaves = leaves == 1;
        options.slow_after_ns = 10 * SECOND;
        options.rank_timeout_ns = 10 * SECOND;
        world = make(&options);
        first = open_as(world, "a", 0);
        second = open_as(world, "b", 0);
        world->sent_count = 0;
        stall(world, first);
        for (uint64_t s = 1; s <= 9; s++)
            trajd_core_tick(world->core, s * SECOND);
        assert_null(last_sent(world, TRAJD_WIRE_ERROR));
        assert_true(job_info(world, 1).stalled_ns >= 8 * SECOND);
        assert_int_equal(job_info(world, 0).stalled_ns, 0);
        trajd_core_tick(world->core, 30 * SECOND);
        if (leaves) {
            assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_CLOSED);
            assert_int_equal(stats_of(world).slow_jobs, 1);
            assert_string_equal(job_info(world, 0).name, "a");
            assert_null(job_info(world, 1).name);
        } else {
            assert_null(last_sent(world, TRAJD_WIRE_ERROR));
            assert_int_equal(stats_of(world).slow_jobs, 0);
        }
        trajd_core_end_session(world->core, second,
                               31 * SECOND); /* its leases come back in both cases */
        world->now_ns = 60 * SECOND;
        /* an absent job is waited for no longer than rank_timeout */
        trajd_core_tick(world->core, 60 * SECOND);
        assert_int_equal(take(world).position, 12);
        destroy(world);
    }
}

static void test_a_job_that_says_bye_holds_up_nobody(void **state)
{
    struct trajd_core_feed_options options = two_jobs();
    struct world *world = make(&options);
    uint64_t first = open_as(world, "a", 0), second = open_as(world, "b", 0);
    struct trajd_fill none;

    (void)state;
    world->sent_count = 0;
    stall(world, first);
    assert_int_equal(trajd_core_take(world->feed, 0, &none), TRAJD_ERR_TIMEOUT);
    trajd_core_bye(world->core, second, 0);
    assert_int_equal(take(world).position, 12);
    destroy(world);
}

static void test_the_next_epoch_is_kept_for_both(void **state)
{
    struct trajd_core_feed_options options = two_jobs();
    struct world *world;
    uint64_t first, second;

    (void)state;
    options.epoch_length = 8; /* two batches, three slots */
    world = make(&options);
    first = open_as(world, "a", 0);
    second = open_as(world, "b", 0);
    world->sent_count = 0;
    fill_all(world);
    give_back(world, first);
    give_back(world, second);
    assert_int_equal(count_sent(world, TRAJD_WIRE_EPOCH_END), 2);
    fill_all(world);
    assert_int_equal(open_with(world, first, make_open_as(world, "a", 1)), TRAJD_OK);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    give_back(world, first);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    fill_all(world);
    /* the first job is ahead of the second */
    assert_int_equal(open_with(world, first, make_open_as(world, "a", 2)), TRAJD_OK);
    assert_int_equal(give_back(world, first), 1);
    assert_int_equal(open_with(world, second, make_open_as(world, "b", 1)), TRAJD_OK);
    assert_int_equal(give_back(world, second), 2);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    fill_all(world);
    assert_int_equal(give_back(world, first), 1);
    assert_int_equal(open_with(world, second, make_open_as(world, "b", 2)), TRAJD_OK);
    assert_int_equal(give_back(world, second), 2);
    destroy(world);
}

/* After the daemon's death both jobs get what they had not DONE, from one production again. */
static void test_return_of_the_daemon(void **state)
{
    char directory[] = "/tmp/trajd-fan-XXXXXX", command[64];
    struct trajd_core_feed_options options = two_jobs();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t first, second;
    uint32_t done;

    (void)state;
    assert_non_null(mkdtemp(directory));
    options.journal_directory = directory;
    world = make(&options);
    first = open_as(world, "a", 0);
    second = open_as(world, "b", 0);
    world->sent_count = 0;
    for (int i = 0; i < 3; i++)
        publish(world, take(world));
    for (uint32_t i = 0; i < world->sent_count; i++) /* a has done 0, b has done 4 */
        if (world->sent[i].message.op == TRAJD_WIRE_BATCH &&
            world->sent[i].message.batch.position == (world->sent[i].session == first ? 0 : 4))
            release(world, world->sent[i].session, world->sent[i].message.batch);
    done = (uint32_t)stats_of(world).batches_done;
    assert_int_equal(done, 2);
    destroy(world);
    world = make(&options);
    for (int j = 0; j < 2; j++) {
        uint64_t session = greet(world);
        open = make_open_as(world, j ? "b" : "a", 0);
        open.fresh = false;
        assert_ptr_equal(trajd_core_choose(world->core, session, &open, world->feed), world->feed);
        assert_int_equal(open_with(world, session, open), TRAJD_OK);
        first = j ? first : session;
        second = session;
    }
    assert_int_equal(job_info(world, 0).batches_remaining, 9);
    assert_int_equal(job_info(world, 1).batches_remaining, 9);
    for (int i = 0; i < 3; i++) {
        world->sent_count = 0;
        publish(world, take(world));
        for (uint32_t s = 0; s < world->sent_count; s++) {
            const struct trajd_wire_batch *batch = &world->sent[s].message.batch;
            assert_int_equal(world->sent[s].message.op, TRAJD_WIRE_BATCH);
            assert_true(batch->position != (world->sent[s].session == first ? 0 : 4));
        }
        assert_int_equal(world->sent_count, i == 1 ? 2 : 1); /* 4 for a, 8 for both, 0 for b */
        give_back(world, first);
        give_back(world, second);
    }
    destroy(world);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_production_for_both),
        cmocka_unit_test(test_a_job_elsewhere_gets_no_part),
        cmocka_unit_test(test_shard_beside_queue),
        cmocka_unit_test(test_a_slow_job_blocks_or_leaves),
        cmocka_unit_test(test_a_job_that_says_bye_holds_up_nobody),
        cmocka_unit_test(test_the_next_epoch_is_kept_for_both),
        cmocka_unit_test(test_return_of_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
