/* Jobs that come, go and move while other jobs are there. Schedules of the model test have found
 * each of these cases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core_world.h"

#define SECOND UINT64_C(1000000000)

static void test_an_open_that_is_repeated_stays_where_it_is(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t session;

    (void)state;
    options.job_count = 2;
    world = make(&options);
    session = greet(world);
    open = make_open_rank_as(world, "a", 0, 0, 1);
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    fill_all(world);
    open_as(world, "b", 0);
    assert_ptr_equal(trajd_core_choose(world->core, session, &open, world->feed), world->feed);
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_non_null(last_sent(world, TRAJD_WIRE_OPENED));
    assert_null(last_sent(world, TRAJD_WIRE_BATCH)); /* nothing but OPENED is sent again */
    open.request++;
    /* a new OPEN begins the epoch again, in another place */
    assert_null(trajd_core_choose(world->core, session, &open, world->feed));
    destroy(world);
}

/* A queue job dies, and a shard job takes its entry. The queue job returns on another instance and
 * finds its journal. */
static void test_a_journal_moves_with_its_job(void **state)
{
    char directory[] = "/tmp/trajd-jobs-XXXXXX", command[64];
    struct trajd_core_feed_options options = default_options(), other = default_options();
    struct trajd_core_feed *second = NULL;
    struct trajd_wire_open open;
    struct world *world;
    uint64_t session;

    (void)state;
    assert_non_null(mkdtemp(directory));
    options.journal_directory = other.journal_directory = directory;
    other.name = "train#2";
    other.instance_of = "train";
    world = make(&options);
    session = open_as(world, "shared", 0);
    fill_all(world);
    give_back(world, session);
    trajd_core_end_session(world->core, session, 0);
    assert_int_equal(open_with(world, greet(world), make_open_rank_as(world, "ranks", 0, 0, 1)),
                     TRAJD_OK);
    assert_int_equal(trajd_core_add_feed(world->core, &other, &second, NULL), TRAJD_OK);
    open = make_open_as(world, "shared", 0);
    open.fresh = false;
    session = greet(world);
    assert_ptr_equal(trajd_core_choose(world->core, session, &open, world->feed), second);
    assert_int_equal(trajd_core_open(world->core, session, &open, second, 0), TRAJD_OK);
    assert_int_equal(stats_of(world).journals_refused, 0);
    world->feed = second;
    assert_int_equal(take(world).position, 12);
    destroy(world);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

/* Ranks begin the next epoch at a position between the batches that were produced ahead. They must
 * not keep those batches, and a job that comes meanwhile must not pin them there. */
static void test_ranks_that_begin_off_the_grid(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t ranks[2];

    (void)state;
    options.job_count = 2;
    options.epoch_length = 4;
    world = make(&options);
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = greet(world);
        assert_int_equal(open_with(world, ranks[r], make_open_rank_as(world, "ranks", 0, r, 2)),
                         TRAJD_OK);
    }
    fill_all(world); /* fills batches of the next epoch, too */
    for (uint32_t r = 0; r < 2; r++)
        give_back(world, ranks[r]);
    fill_all(world);
    for (uint32_t r = 0; r < 2; r++) {
        open = make_open_rank_as(world, "ranks", 1, r, 2);
        open.next = 3;
        assert_int_equal(open_with(world, ranks[r], open), TRAJD_OK);
        if (r == 0)
            open_with(world, greet(world), make_open_as(world, "other", 1));
    }
    destroy(world);
}

static void test_production_moves_for_one_job_and_the_other_returns(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t first, second;

    (void)state;
    options.job_count = 2;
    world = make(&options);
    first = open_as(world, "a", 0);
    fill_all(world);
    trajd_core_end_session(world->core, first, 0);
    second = greet(world);
    open = make_open_rank_as(world, "b", 0, 0, 2);
    /* as after a daemon's death: the ranks gather before their begin is known */
    open.fresh = false;
    open.next = 8;
    assert_int_equal(open_with(world, second, open), TRAJD_OK);
    first = greet(world);
    open = make_open_as(world, "a", 0);
    open.fresh = false;
    /* the batches that it had got are gone */
    assert_null(trajd_core_choose(world->core, first, &open, world->feed));
    assert_int_equal(open_with(world, first, open), TRAJD_ERR_BUSY);
    destroy(world);
}

/* The session is removed from its feed while its connection is down. */
static void test_a_removed_session_gets_the_error_when_it_reconnects(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_hello hello = {.has_token = true, .token = {1}, .instance = 5};
    struct world *world;
    uint64_t session;
    void *replaced;
    bool resumed;

    (void)state;
    options.rank_timeout_ns = SECOND;
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open_rank_as(world, "", 0, 1, 2)), TRAJD_OK);
    trajd_core_tick(world->core, 3 * SECOND);
    for (int again = 0; again < 2; again++) {
        world->sent_count = 0;
        assert_int_equal(trajd_core_hello(world->core, &hello, hello.token, world, 0, &session,
                                          &resumed, &replaced, NULL),
                         TRAJD_OK);
        assert_true(resumed);
        trajd_core_welcome(world->core, session, &hello, 0);
        assert_int_equal(count_sent(world, TRAJD_WIRE_ERROR), 1 - again);
        if (again)
            break;
        assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.request, 0);
        assert_non_null(strstr(world->sent[world->sent_count - 1].text, "rank 0 of 2"));
        world->now_ns = 4 * SECOND;
        assert_int_equal(open_with(world, session, make_open_rank_as(world, "", 0, 1, 2)),
                         TRAJD_OK);
    }
    destroy(world);
}

/* The rank's OPEN says that a batch is DONE whose lease it still holds. */
static void test_a_rank_does_not_fall_behind_its_open(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t ranks[2];
    struct trajd_wire_open open;
    struct trajd_wire_batch held;

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = greet(world);
        assert_int_equal(open_with(world, ranks[r], make_open_rank_as(world, "", 0, r, 2)),
                         TRAJD_OK);
    }
    publish(world, take(world));
    held = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    assert_int_equal(held.part, 1);
    open = make_open_rank_as(world, "", 0, 1, 2);
    open.fresh = false;
    open.next = 4;
    assert_int_equal(open_with(world, ranks[1], open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 4);
    release(world, ranks[1], held);
    world->sent_count = 0;
    publish(world, take(world));
    /* both at position 4: what is DONE does not come again */
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    assert_int_equal(world->sent[0].message.batch.position, 4);
    assert_int_equal(world->sent[1].message.batch.position, 4);
    destroy(world);
}

/* After the daemon's death the ranks are far apart. One of them opens again, at a position that
 * production has not reached. */
static void test_a_rank_that_stands_far_ahead_goes_on(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t ranks[2], batches = 0;
    struct trajd_wire_open open;

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = greet(world);
        open = make_open_rank_as(world, "", 0, r, 2);
        open.fresh = false;
        open.next = 20 * r;
        assert_int_equal(open_with(world, ranks[r], open), TRAJD_OK);
    }
    open = make_open_rank_as(world, "", 0, 1, 2);
    open.fresh = false;
    open.next = 24;
    assert_int_equal(open_with(world, ranks[1], open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 24);
    while (!last_sent(world, TRAJD_WIRE_EPOCH_END) && batches < 64) {
        world->sent_count = 0;
        publish(world, take(world));
        for (uint32_t r = 0; r < 2; r++)
            batches += give_back(world, ranks[r]);
    }
    assert_int_equal(batches, 10 + 4);
    destroy(world);
}

/* Two workers begin from a checkpoint. The first finishes the epoch before the second opens it. */
static void test_a_late_session_from_a_checkpoint_gets_the_end(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session = greet(world), late = greet(world);
    struct trajd_wire_open open = make_open_as(world, "", 0);
    uint8_t token[TRAJD_WIRE_MAX_CHECKPOINT];
    uint32_t size;

    (void)state;
    open.next = 36; /* one batch remains */
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    trajd_core_checkpoint(world->core, session, ++world->requests, 0);
    size = last_sent(world, TRAJD_WIRE_CHECKPOINTED)->checkpointed.token.size;
    memcpy(token, world->sent[world->sent_count - 1].token, size);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        open = make_open_as(world, "", epoch);
        open.resume = (struct trajd_wire_bytes){epoch ? NULL : token, epoch ? 0 : size};
        assert_int_equal(open_with(world, session, open), TRAJD_OK);
        fill_all(world);
        give_back(world, session);
    }
    open = make_open_as(world, "", 0);
    open.resume = (struct trajd_wire_bytes){token, size};
    assert_int_equal(open_with(world, late, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.epoch, 0);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 1);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_open_that_is_repeated_stays_where_it_is),
        cmocka_unit_test(test_a_journal_moves_with_its_job),
        cmocka_unit_test(test_ranks_that_begin_off_the_grid),
        cmocka_unit_test(test_production_moves_for_one_job_and_the_other_returns),
        cmocka_unit_test(test_a_removed_session_gets_the_error_when_it_reconnects),
        cmocka_unit_test(test_a_late_session_from_a_checkpoint_gets_the_end),
        cmocka_unit_test(test_a_rank_does_not_fall_behind_its_open),
        cmocka_unit_test(test_a_rank_that_stands_far_ahead_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
