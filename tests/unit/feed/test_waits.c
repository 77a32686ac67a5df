/* The time in which sessions have no batch, by what production did meanwhile. */
#include "core_world.h"

enum { MS = 1000000 };

static struct trajd_core_session_info info_of(const struct world *world, uint64_t session)
{
    struct trajd_core_session_info info = {0};

    for (uint32_t i = 0; trajd_core_session_info(world->core, i, &info); i++)
        if (info.session == session)
            return info;
    fail_msg("no such session");
    return info;
}

/* Takes a batch and publishes it `after_ms` later. */
static void make_batch(struct world *world, uint64_t after_ms, uint64_t rows_ms,
                       uint64_t kernels_ms)
{
    struct trajd_fill fill = take(world);

    world->now_ns += after_ms * MS;
    fill.work_ns[TRAJD_WORK_ROWS] = rows_ms * MS;
    fill.work_ns[TRAJD_WORK_KERNELS] = kernels_ms * MS;
    assert_true(publish(world, fill));
}

static void test_a_wait_is_divided_by_the_work(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t session = greet(world);
    struct trajd_core_session_info info;
    struct trajd_core_feed_info feed;

    (void)state;
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    world->now_ns = 5 * MS; /* nothing is made yet */
    make_batch(world, 40, 30, 10);
    info = info_of(world, session);
    assert_int_equal(info.waited_ns[TRAJD_WORK_ROWS], 30 * MS);
    assert_int_equal(info.waited_ns[TRAJD_WORK_KERNELS], 10 * MS);
    assert_int_equal(info.waited_ns[TRAJD_WAIT_OTHER], 5 * MS);
    assert_int_equal(info.waited_ns[TRAJD_WORK_DECODE], 0);
    /* it has a batch to work on: slow production costs it nothing */
    make_batch(world, 100, 90, 10);
    assert_int_equal(info_of(world, session).waited_ns[TRAJD_WORK_ROWS], 30 * MS);
    /* a wait that begins in the middle of the work has its share of each kind */
    give_back(world, session);
    world->sent_count = 0;
    struct trajd_fill fill = take(world);
    world->now_ns += 8 * MS;
    fill.work_ns[TRAJD_WORK_ROWS] = 60 * MS;
    fill.work_ns[TRAJD_WORK_DECODE] = 20 * MS;
    assert_true(publish(world, fill));
    info = info_of(world, session);
    assert_int_equal(info.waited_ns[TRAJD_WORK_ROWS], 36 * MS);
    assert_int_equal(info.waited_ns[TRAJD_WORK_DECODE], 2 * MS);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.waited_ns[TRAJD_WORK_ROWS], 36 * MS);
    /* the feed keeps its sums when the session is gone */
    trajd_core_end_session(world->core, session, world->now_ns);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.waited_ns[TRAJD_WORK_ROWS], 36 * MS);
    destroy(world);
}

static void test_a_worker_waits_for_the_slots_of_others(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t greedy = greet(world), late = greet(world);
    struct trajd_wire_open open = make_open(world, 0);

    (void)state;
    open.credit = 3;
    assert_int_equal(open_with(world, greedy, open), TRAJD_OK);
    for (int i = 0; i < 3; i++)
        make_batch(world, 0, 0, 0);
    assert_int_equal(open_with(world, late, make_open(world, 0)), TRAJD_OK);
    world->now_ns += 7 * MS;
    trajd_core_tick(world->core, world->now_ns);
    assert_int_equal(info_of(world, late).waited_ns[TRAJD_WAIT_SLOTS], 7 * MS);
    assert_int_equal(info_of(world, greedy).waited_ns[TRAJD_WAIT_SLOTS], 0);
    assert_int_equal(info_of(world, greedy).stalled_ns, 7 * MS);
    assert_int_equal(info_of(world, late).stalled_ns, 0);
    destroy(world);
}

/* The oldest batch is nobody's: a session died with it, and the job's others have all the batches
 * that they take. Production waits for these, and not for the sessions of another job. */
static void test_production_waits_for_sessions_without_credit(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_batch first = {0};
    struct trajd_wire_open open;
    struct world *world;
    uint64_t full, dead, other;

    (void)state;
    options.job_count = 2;
    world = make(&options);
    full = greet(world);
    dead = greet(world);
    other = greet(world);
    open = make_open(world, 0);
    open.credit = 1;
    assert_int_equal(open_with(world, full, open), TRAJD_OK);
    open = make_open_as(world, "other", 0);
    open.credit = 4;
    assert_int_equal(open_with(world, other, open), TRAJD_OK);
    make_batch(world, 0, 0, 0);
    for (uint32_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].session == full && world->sent[i].message.op == TRAJD_WIRE_BATCH)
            first = world->sent[i].message.batch;
    assert_int_equal(give_back(world, other), 1);
    open = make_open(world, 0);
    open.credit = 2;
    assert_int_equal(open_with(world, dead, open), TRAJD_OK);
    make_batch(world, 0, 0, 0);
    make_batch(world, 0, 0, 0);
    release(world, full, first);
    make_batch(world, 0, 0, 0); /* `full` has this one, and `dead` the two older ones */
    assert_int_equal(give_back(world, other), 3);
    world->sent_count = 0;
    trajd_core_end_session(world->core, dead, world->now_ns);
    assert_null(last_sent(world, TRAJD_WIRE_BATCH));
    world->now_ns += 7 * MS;
    trajd_core_tick(world->core, world->now_ns);
    assert_int_equal(info_of(world, full).stalled_ns, 7 * MS);
    assert_int_equal(info_of(world, other).stalled_ns, 0);
    destroy(world);
}

/* A session waits only for batches that are still to come. */
static void test_a_session_whose_job_has_no_more_does_not_wait(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t busy = greet(world), idle = greet(world);
    struct trajd_wire_open open = make_open(world, 0);

    (void)state;
    open.credit = 1;
    assert_int_equal(open_with(world, busy, open), TRAJD_OK);
    make_batch(world, 0, 0, 0);
    assert_int_equal(open_with(world, idle, make_open(world, 0)), TRAJD_OK);
    for (int i = 1; i < 10; i++) {
        world->sent_count = 0;
        make_batch(world, 0, 0, 0);
        assert_int_equal(give_back(world, idle), 1);
    }
    for (int ahead = 0; ahead < 3; ahead++) {
        world->now_ns += 7 * MS;
        trajd_core_tick(world->core, world->now_ns);
        for (int w = 0; w < TRAJD_WAIT_COUNT; w++)
            assert_int_equal(info_of(world, idle).waited_ns[w], 0);
        if (ahead < 2)
            make_batch(world, 0, 0, 0); /* of the next epoch */
    }
    destroy(world);
}

/* In mode shard, the rows of a rank without a session are waited for. */
static void test_production_waits_for_an_absent_rank(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t here = greet(world), gone = greet(world);
    struct trajd_wire_open opens[2] = {make_open_rank_as(world, "", 0, 0, 2),
                                       make_open_rank_as(world, "", 0, 1, 2)};
    struct trajd_core_job_info job;

    (void)state;
    assert_int_equal(open_with(world, here, opens[0]), TRAJD_OK);
    assert_int_equal(open_with(world, gone, opens[1]), TRAJD_OK);
    for (int i = 0; i < 3; i++)
        make_batch(world, 0, 0, 0);
    give_back(world, here);
    trajd_core_end_session(world->core, gone, world->now_ns);
    world->now_ns += 9 * MS;
    trajd_core_tick(world->core, world->now_ns);
    assert_true(trajd_core_job_info(world->feed, 0, &job));
    assert_int_equal(job.absent_ns, 9 * MS);
    assert_int_equal(job.absent_rank, 1);
    assert_int_equal(job.stalled_ns, 9 * MS);
    assert_int_equal(info_of(world, here).stalled_ns, 0);
    destroy(world);
}

/* In mode shard a slot is free when all ranks have finished their rows of it. */
static void test_a_rank_waits_for_a_slow_rank(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t fast = greet(world), slow = greet(world);
    struct trajd_wire_open opens[2] = {make_open_rank_as(world, "", 0, 0, 2),
                                       make_open_rank_as(world, "", 0, 1, 2)};

    (void)state;
    opens[0].credit = opens[1].credit = 3;
    assert_int_equal(open_with(world, fast, opens[0]), TRAJD_OK);
    assert_int_equal(open_with(world, slow, opens[1]), TRAJD_OK);
    for (int i = 0; i < 3; i++)
        make_batch(world, 0, 0, 0);
    assert_int_equal(give_back(world, fast), 3);
    world->now_ns += 9 * MS;
    trajd_core_tick(world->core, world->now_ns);
    assert_int_equal(info_of(world, fast).waited_ns[TRAJD_WAIT_SLOTS], 9 * MS);
    assert_int_equal(info_of(world, fast).stalled_ns, 0);
    assert_int_equal(info_of(world, slow).waited_ns[TRAJD_WAIT_SLOTS], 0);
    assert_int_equal(info_of(world, slow).stalled_ns, 9 * MS);
    destroy(world);
}

static void test_no_session_waits_after_the_end(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t session = greet(world);
    uint64_t sum_ns = 0;

    (void)state;
    open_with(world, session, make_open(world, 0));
    for (int i = 0; i < 10; i++) {
        make_batch(world, 2, 1, 1);
        give_back(world, session);
        world->sent_count = 0;
    }
    world->now_ns += 1000 * MS; /* the epoch is over */
    trajd_core_tick(world->core, world->now_ns);
    for (int w = 0; w < TRAJD_WAIT_COUNT; w++)
        sum_ns += info_of(world, session).waited_ns[w];
    assert_int_equal(sum_ns, 20 * MS); /* the last batch counts too, which the cursor has passed */
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wait_is_divided_by_the_work),
        cmocka_unit_test(test_a_worker_waits_for_the_slots_of_others),
        cmocka_unit_test(test_production_waits_for_sessions_without_credit),
        cmocka_unit_test(test_a_session_whose_job_has_no_more_does_not_wait),
        cmocka_unit_test(test_production_waits_for_an_absent_rank),
        cmocka_unit_test(test_a_rank_waits_for_a_slow_rank),
        cmocka_unit_test(test_no_session_waits_after_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
