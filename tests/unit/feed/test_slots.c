/* Single rules of the core. The model test runs schedules of all of them. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core_world.h"

static void test_order_of_publishing(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session = greet(world);
    struct trajd_fill first, second, none;

    (void)state;
    /* no job needs a batch */
    assert_int_equal(trajd_core_take(world->feed, 0, &none), TRAJD_ERR_TIMEOUT);
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    assert_true(world->wakes > 0);
    first = take(world);
    second = take(world);
    assert_int_equal(first.position, 0);
    assert_int_equal(second.position, 4);
    assert_int_equal(first.generation, 1);
    assert_true(publish(world, second));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 0);
    assert_true(publish(world, first));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 4);
    assert_false(publish(world, first)); /* twice */
    first.slot = 1000;
    assert_false(publish(world, first));
    assert_int_equal(stats_of(world).late_publishes, 2);
    destroy(world);
}

static void test_credit_and_release(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session = greet(world);
    struct trajd_wire_ack done = {.done.count = 1};
    struct trajd_wire_batch held;
    struct trajd_fill none;

    (void)state;
    open_with(world, session, make_open(world, 0));
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.credit, 2);
    for (int i = 0; i < 3; i++)
        publish(world, take(world));
    /* no more credit */
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    /* no slot is FREE */
    assert_int_equal(trajd_core_take(world->feed, 0, &none), TRAJD_ERR_TIMEOUT);
    held = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    done.done.list[0] = (struct trajd_wire_lease){held.ring, held.slot, held.generation, held.part};
    trajd_core_ack(world->core, session, &done, 0);
    assert_int_equal(stats_of(world).batches_done, 1);
    assert_int_equal(trajd_core_lease_count(world->core), 2); /* DONE is not a release */
    trajd_core_ack(world->core, session, &done, 0);
    assert_int_equal(stats_of(world).late_acks, 1);
    world->wakes = 0;
    release(world, session, held);
    assert_true(world->wakes > 0);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 3);
    assert_int_equal(stats_of(world).batches_done, 1);
    release(world, session, held); /* a second release is late */
    held.generation++;
    release(world, session, held);
    held.ring = 9;
    release(world, session, held);
    assert_int_equal(stats_of(world).late_acks, 4);
    assert_int_equal(take(world).generation, 2); /* the slot's second use */
    destroy(world);
}

static void test_dead_sessions_batches_first(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t first = greet(world), second = greet(world);

    (void)state;
    open_with(world, first, make_open(world, 0));
    publish(world, take(world));
    publish(world, take(world));
    assert_int_equal(open_with(world, second, make_open(world, 0)), TRAJD_OK);
    publish(world, take(world));
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 8);
    release(world, second, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    world->sent_count = 0;
    trajd_core_end_session(world->core, first, 0);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 2);
    assert_int_equal(world->sent[0].session, second);
    assert_int_equal(world->sent[0].message.batch.position, 0);
    assert_int_equal(world->sent[0].message.batch.seq, 2);
    assert_int_equal(stats_of(world).dead_sessions, 1);
    assert_int_equal(stats_of(world).handed_again, 2);
    trajd_core_end_session(world->core, first, 0); /* the session has ended already */
    assert_int_equal(stats_of(world).sessions, 1);
    destroy(world);
}

static void test_failed_and_short_batches(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_error failure = {TRAJD_ERR_DATA, 0, "demo.hdf5: row 3"};
    struct trajd_fill fill;
    struct world *world;
    uint64_t session;

    (void)state;
    options.epoch_length = 6;
    options.tail_short = true;
    world = make(&options);
    session = greet(world);
    open_with(world, session, make_open(world, 0));
    fill = take(world);
    trajd_core_publish(world->feed, &fill, &failure, 0);
    assert_string_equal(world->sent[world->sent_count - 1].text, "demo.hdf5: row 3");
    fill = take(world);
    assert_int_equal(fill.row_count, 2);
    publish(world, fill);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.row_count, 2);
    assert_string_equal(world->sent[world->sent_count - 1].text, "");
    release(world, session, world->sent[1].message.batch);
    assert_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    release(world, session, world->sent[2].message.batch);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 2);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.windows, 6);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.dropped, 2);
    destroy(world);
}

static void test_ranks(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t ranks[3];

    (void)state;
    options.global_batch = 5;
    world = make(&options);
    for (uint32_t r = 0; r < 3; r++) {
        ranks[r] = greet(world);
        open = make_open(world, 0);
        open.mode = TRAJD_WIRE_SHARD;
        open.world = 3;
        open.rank = r;
        if (r ==
            2) { /* nothing is sent before all ranks are here, and a rank has only one session */
            struct trajd_fill none;
            assert_int_equal(trajd_core_take(world->feed, 0, &none), TRAJD_ERR_TIMEOUT);
            open.rank = 1;
            assert_int_not_equal(open_with(world, ranks[r], open), TRAJD_OK);
            assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_BUSY);
            open.rank = 2;
            open.next = 5; /* fresh ranks must be at the same position */
            assert_int_not_equal(open_with(world, ranks[r], open), TRAJD_OK);
            open.next = 0;
        }
        assert_int_equal(open_with(world, ranks[r], open), TRAJD_OK);
    }
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.row_begin, 3);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.row_count, 2);
    publish(world, take(world));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 3);
    /* rank 1 dies, comes back and gets what is not DONE */
    trajd_core_end_session(world->core, ranks[1], 0);
    open = make_open(world, 0);
    open.mode = TRAJD_WIRE_SHARD;
    open.world = 3;
    open.rank = 1;
    ranks[1] = greet(world);
    assert_int_equal(open_with(world, ranks[1], open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.part, 1);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 0);
    open.request++;
    open.world = 6; /* more ranks than rows */
    assert_int_not_equal(open_with(world, ranks[1], open), TRAJD_OK);
    destroy(world);
}

static void test_refusals(void **state)
{
    struct trajd_core_feed_options options = default_options();
    options.values_digest = 13;
    struct world *world = make(&options);
    uint64_t first = greet(world), second = greet(world);
    struct trajd_wire_open open = make_open(world, 0);

    (void)state;
    open.fingerprint = 1;
    assert_int_not_equal(open_with(world, first, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_ARGUMENT);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.request, open.request);
    open.fingerprint = 7;
    open.next = 41;
    assert_int_not_equal(open_with(world, first, open), TRAJD_OK);
    open.next = 40; /* the end: no batch remains */
    assert_int_equal(open_with(world, first, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.request, open.request);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.values, 13);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.length, 40);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.windows, 42);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.dropped, 2);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.batch, 4);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.slot_count, 3);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 40);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.row_begin, 0);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.row_count, 4);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 0);
    assert_int_equal(open_with(world, first, make_open(world, 0)), TRAJD_OK);
    open = make_open(world, 0);
    open.job = trajd_wire_text("other");
    assert_int_not_equal(open_with(world, second, open), TRAJD_OK);
    assert_non_null(strstr(world->sent[0].text, "in use by job"));
    assert_int_not_equal(open_with(world, second, make_open(world, 3)),
                         TRAJD_OK); /* another epoch while one runs */
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_BUSY);
    trajd_core_goaway(world->core, "stop", 0);
    assert_non_null(last_sent(world, TRAJD_WIRE_GOAWAY));
    assert_int_not_equal(open_with(world, second, make_open(world, 0)), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_CLOSED);
    destroy(world);
}

/* After GOAWAY what sessions hold still counts, but they get nothing more. */
static void test_nothing_is_sent_after_goaway(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t session = greet(world);
    struct trajd_wire_open open = make_open(world, 0);
    struct trajd_wire_batch batch;

    (void)state;
    open.credit = 1;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_true(publish(world, take(world)));
    assert_true(publish(world, take(world)));
    batch = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    trajd_core_goaway(world->core, "stop", 0);
    trajd_core_goaway(world->core, "stop", 0);
    assert_int_equal(count_sent(world, TRAJD_WIRE_GOAWAY), 1);
    world->sent_count = 0;
    release(world, session, batch);
    trajd_core_tick(world->core, 1);
    assert_int_equal(world->sent_count, 0);
    assert_int_equal(stats_of(world).batches_done, 1);
    destroy(world);
}

/* The last batch of an epoch after GOAWAY does not end it: the next daemon does. */
static void test_no_epoch_ends_after_goaway(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    uint64_t session;

    (void)state;
    options.epoch_length = options.window_count = 4;
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    assert_true(publish(world, take(world)));
    trajd_core_goaway(world->core, "stop", 0);
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    assert_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    destroy(world);
}

/* A job that opens a feed again wants its values scaled as before. Without `norm` it was opened by
 * trajd 0.1.0. */
static void test_other_normalisation_is_refused(void **state)
{
    static const struct {
        bool fresh;
        uint64_t norm;
        const char *changed, *refusal;
    } cases[] = {
        {true, 0, NULL, NULL},
        {true, 0, "actions", NULL}, /* a new job takes what there is */
        {false, 11, "actions", NULL},
        {false, 13, NULL,
         "values scaled as 000000000000000d, but feed train now has "
         "000000000000000b"},
        {true, 13, NULL, "000000000000000d"},
        {false, 0, NULL, NULL}, /* of 0.1.0, and scaled as it would */
        {false, 0, "actions",
         "trajd 0.1.0 (daemon or libtrajd), whose statistics weigh windows, but output actions of "
         "feed train weighs rows"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trajd_core_feed_options options = default_options();
        struct trajd_wire_open open;
        struct world *world;
        uint64_t session;

        options.norm_digest = 11;
        options.changed_norm = cases[i].changed;
        world = make(&options);
        session = greet(world);
        open = make_open(world, 0);
        open.fresh = cases[i].fresh;
        open.norm = cases[i].norm;
        if (!cases[i].refusal) {
            assert_int_equal(open_with(world, session, open), TRAJD_OK);
            assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.norm, 11);
        } else {
            assert_int_not_equal(open_with(world, session, open), TRAJD_OK);
            assert_non_null(strstr(last_error(world), cases[i].refusal));
        }
        destroy(world);
    }
}

static void test_prefetch(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_fill ahead;
    struct world *world;
    uint64_t session;

    (void)state;
    options.epoch_length = 4; /* one batch */
    world = make(&options);
    session = greet(world);
    open_with(world, session, make_open(world, 0));
    publish(world, take(world));
    ahead = take(world);
    assert_int_equal(ahead.epoch, 1);
    publish(world, ahead);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 1); /* not before an OPEN of that epoch */
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    open_with(world, session, make_open(world, 1));
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.generation, ahead.generation);
    ahead = take(world); /* of epoch 2, which is not opened next */
    assert_int_equal(ahead.epoch, 2);
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    open_with(world, session, make_open(world, 9));
    assert_true(publish(world, ahead));
    assert_null(last_sent(world, TRAJD_WIRE_BATCH));
    assert_int_equal(take(world).epoch, 9);
    destroy(world);
}

static void test_stalls_are_named(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    struct trajd_core_session_info info;
    struct trajd_core_feed_info feed;
    uint64_t session = greet(world);

    (void)state;
    open_with(world, session, make_open(world, 0));
    for (int i = 0; i < 3; i++)
        publish(world, take(world));
    world->now_ns = 5000;
    trajd_core_tick(world->core, world->now_ns);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.stalled_ns, 5000);
    trajd_core_tick(world->core, 4000); /* a call with an earlier time: nothing is counted twice */
    trajd_core_tick(world->core, 5000);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.stalled_ns, 5000);
    assert_true(trajd_core_session_info(world->core, 0, &info));
    assert_int_equal(info.stalled_ns, 5000);
    assert_false(trajd_core_session_info(world->core, 1, &info));
    world->now_ns = 6000; /* it counts up to the release, whenever the next tick is */
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    world->now_ns = 9000; /* a slot is FREE: the producer is slow, no session stalls it */
    trajd_core_tick(world->core, world->now_ns);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.stalled_ns, 6000);
    assert_true(trajd_core_session_info(world->core, 0, &info));
    assert_int_equal(info.stalled_ns, 6000);
    trajd_core_end_session(world->core, session, 9500);
    trajd_core_feed_info(world->feed, &feed);
    assert_int_equal(feed.idle_since_ns, 9500);
    destroy(world);
}

static void ignore_send(void *context, uint64_t session, void *user,
                        const struct trajd_wire_message *message)
{
    (void)context, (void)session, (void)user, (void)message;
}

static void ignore_wake(void *context, struct trajd_core_feed *feed)
{
    (void)context, (void)feed;
}

static void test_a_core_needs_its_options(void **state)
{
    const struct trajd_core_options good = {
        .max_sessions = 1, .send = ignore_send, .wake = ignore_wake};
    struct trajd_core_options bad[] = {good, good, good};
    struct trajd_core *core = NULL;

    (void)state;
    bad[0].max_sessions = 0;
    bad[1].send = NULL;
    bad[2].wake = NULL;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(trajd_core_create(&bad[i], &core, NULL), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_core_create(&good, &core, NULL), TRAJD_OK);
    trajd_core_destroy(&core);
    assert_null(core);
}

/* A session that is alone may go on anywhere in its epoch. */
static void test_a_session_that_is_alone_chooses_its_place(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    struct trajd_wire_open open = make_open(world, 0);
    const uint64_t session = greet(world);

    (void)state;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.part, 0);
    open = make_open(world, 0);
    open.fresh = false;
    open.next = 8;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 8);
    assert_int_equal(take(world).position, 8);
    /* not beside another one */
    open.next = 12;
    assert_int_equal(open_with(world, greet(world), open), TRAJD_ERR_BUSY);
    assert_non_null(strstr(last_error(world), "next: 12 was requested, but epoch 0 of the job"));
    destroy(world);
}

static void test_a_session_that_is_gone_gets_no_welcome(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const struct trajd_wire_hello hello = {.client = {"c", 1}};

    (void)state;
    world->sent_count = 0;
    trajd_core_welcome(world->core, 77, &hello, 0);
    assert_int_equal(world->sent_count, 0);
    destroy(world);
}

static const char *phase_of(const struct world *world)
{
    struct trajd_core_feed_info feed;

    trajd_core_feed_info(world->feed, &feed);
    return feed.job.phase;
}

static void test_phases_of_a_job(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    struct trajd_wire_open open = make_open_rank_as(world, "", 0, 0, 2);
    uint64_t first = greet(world), second = greet(world);

    (void)state;
    assert_string_equal(phase_of(world), "none");
    assert_int_equal(open_with(world, first, open), TRAJD_OK);
    assert_string_equal(phase_of(world), "gathering");
    open = make_open_rank_as(world, "", 0, 1, 2);
    assert_int_equal(open_with(world, second, open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.part, 1);
    assert_string_equal(phase_of(world), "running");
    while (strcmp(phase_of(world), "running") == 0) {
        world->sent_count = 0;
        publish(world, take(world));
        give_back(world, first);
        give_back(world, second);
    }
    assert_string_equal(phase_of(world), "ended");
    destroy(world);
}

/* An epoch of one batch: the next one is ready before it is opened, and production sleeps. Opening
 * it wakes production for the epoch after. */
static void test_an_epoch_that_is_ready_wakes_production(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    struct trajd_fill fill;
    uint64_t session;
    uint32_t wakes;

    (void)state;
    options.epoch_length = options.window_count = 4;
    options.dropped_count = 0;
    world = make(&options);
    session = greet(world);
    open_with(world, session, make_open(world, 0));
    publish(world, take(world));
    give_back(world, session);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    while (!trajd_core_take(world->feed, world->now_ns, &fill))
        publish(world, fill);
    wakes = world->wakes;
    open_with(world, session, make_open(world, 1));
    assert_non_null(last_sent(world, TRAJD_WIRE_BATCH));
    assert_true(world->wakes > wakes);
    assert_int_equal(take(world).epoch, 2);
    destroy(world);
}

static void remove_journals(const char *path)
{
    DIR *folder = opendir(path);

    for (struct dirent *entry; folder && (entry = readdir(folder));)
        unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

/* The daemon dies with batch 0 leased and batch 1 DONE. It comes back with the same batch size,
 * then with another. */
static void test_return_of_the_daemon(void **state)
{
    struct trajd_core_feed_options options = default_options();
    char directory[] = "/tmp/trajd-slots-XXXXXX";
    struct trajd_wire_open open;
    struct world *world;
    uint64_t session;

    (void)state;
    assert_non_null(mkdtemp(directory));
    options.journal_directory = directory;
    world = make(&options);
    session = greet(world);
    open_with(world, session, make_open(world, 6));
    publish(world, take(world));
    publish(world, take(world));
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    destroy(world);

    world = make(&options);
    open = make_open(world, 6);
    open.fresh = false;
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(take(world).position, 0); /* it was LEASED, not DONE */
    assert_int_equal(take(world).position, 8); /* batch 4 is DONE */
    destroy(world);

    options.global_batch = 6;
    world = make(&options);
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(take(world).position, 0); /* the first window that is not DONE */
    destroy(world);

    options.seed++;
    world = make(&options);
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next,
                     0); /* another order, of which nothing is DONE */
    assert_int_equal(stats_of(world).damaged_journals, 0);
    destroy(world);
    remove_journals(directory);
}

static void test_resuming(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session = greet(world), again;
    struct trajd_wire_hello hello = {.has_token = true, .token = {1}, .instance = 5, .received = 1};
    bool resumed;
    void *replaced;

    (void)state;
    open_with(world, session, make_open(world, 0));
    publish(world, take(world));
    publish(world, take(world));
    world->sent_count = 0;
    assert_int_equal(trajd_core_hello(world->core, &hello, hello.token, world, 0, &again, &resumed,
                                      &replaced, NULL),
                     TRAJD_OK);
    assert_true(resumed);
    assert_int_equal(again, session);
    trajd_core_welcome(world->core, again, &hello, 0);
    assert_true(world->sent[0].message.welcome.resumed);
    assert_int_equal(stats_of(world).batches_done,
                     1); /* the first BATCH was received and is not held */
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 1);
    /* the second BATCH never arrived */
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.seq, 2);
    hello.instance = 4; /* of an earlier run */
    assert_int_equal(trajd_core_hello(world->core, &hello, (uint8_t[16]){9}, world, 0, &again,
                                      &resumed, &replaced, NULL),
                     TRAJD_OK);
    assert_false(resumed);
    assert_int_not_equal(again, session);
    greet(world);
    greet(world);
    hello.has_token = false;
    assert_int_equal(trajd_core_hello(world->core, &hello, (uint8_t[16]){8}, world, 0, &again,
                                      &resumed, &replaced, NULL),
                     TRAJD_ERR_BUSY); /* max_sessions */
    destroy(world);
}

static void test_removed_feed(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t session = greet(world);
    struct trajd_wire_batch batch;

    (void)state;
    assert_int_equal(trajd_core_add_feed(world->core, &options, &world->feed, NULL),
                     TRAJD_ERR_BUSY);
    open_with(world, session, make_open(world, 0));
    publish(world, take(world));
    batch = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    trajd_core_remove_feed(world->core, &world->feed, 0);
    assert_null(world->feed);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_CLOSED);
    assert_int_equal(trajd_core_lease_count(world->core), 0);
    release(world, session, batch);
    assert_int_equal(stats_of(world).late_acks, 1);
    options.slot_count = 2;
    assert_int_equal(trajd_core_add_feed(world->core, &options, &world->feed, NULL),
                     TRAJD_ERR_ARGUMENT);
    destroy(world);
}

static void test_options_of_a_feed(void **state)
{
    static char longest[TRAJD_WIRE_MAX_NAME + 2];
    const struct trajd_core_feed_options good = default_options();
    struct trajd_core_feed_options bad[11];
    struct world *world = make(&good);
    struct trajd_core_feed *feed;
    struct trajd_error error;
    size_t count = 0;

    (void)state;
    memset(longest, 'n', TRAJD_WIRE_MAX_NAME + 1);
    for (size_t i = 0; i < 11; i++)
        bad[i] = good;
    bad[count++].name = NULL;
    bad[count++].name = "";
    bad[count++].name = longest;
    bad[count++].slot_count = 2;
    bad[count++].slot_count = TRAJD_CORE_MAX_SLOTS + 1;
    bad[count++].max_credit = 1;
    bad[count++].global_batch = 0;
    bad[count++].epoch_length = (uint64_t)INT64_MAX + 1;
    bad[count++].job_count = TRAJD_CORE_MAX_JOBS + 1;
    bad[count++].tensor_count = TRAJD_WIRE_MAX_TENSORS + 1;
    bad[count++] = good; /* the name exists */
    for (size_t i = 0; i < count; i++) {
        feed = NULL;
        assert_int_equal(trajd_core_add_feed(world->core, &bad[i], &feed, &error),
                         i + 1 < count ? TRAJD_ERR_ARGUMENT : TRAJD_ERR_BUSY);
        assert_null(feed);
    }
    longest[TRAJD_WIRE_MAX_NAME] = 0;
    for (size_t i = 0; i < 2; i++) { /* the most and the least that is possible */
        struct trajd_core_feed_options edge = good;
        edge.name = i ? "n" : longest;
        edge.slot_count = i ? 3 : TRAJD_CORE_MAX_SLOTS;
        edge.max_credit = i ? 2 : UINT32_MAX;
        edge.global_batch = i ? 1 : UINT32_MAX;
        edge.job_count = i ? 0 : TRAJD_CORE_MAX_JOBS;
        assert_int_equal(trajd_core_add_feed(world->core, &edge, &feed, &error), TRAJD_OK);
    }
    destroy(world);
}

/* Of sessions that hold equally many batches, the one that was served longest ago gets the next. */
static void test_sessions_take_turns(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    uint64_t sessions[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        sessions[i] = open_as(world, "run", 0);
    for (uint32_t i = 0; i < 9; i++) {
        const struct trajd_wire_message *sent;
        world->sent_count = 0;
        publish(world, take(world));
        assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 1);
        sent = last_sent(world, TRAJD_WIRE_BATCH);
        for (uint32_t k = 0; k < world->sent_count; k++)
            if (&world->sent[k].message == sent)
                assert_int_equal(world->sent[k].session, sessions[i % 3]);
        assert_int_equal(give_back(world, sessions[i % 3]), 1);
    }
    destroy(world);
}

/* Each OPEN that is refused gets one ERROR, which names the key and what it may be. */
static void test_refused_opens(void **state)
{
    static const struct {
        struct trajd_wire_open open;
        enum trajd_status status;
        const char *text;
    } cases[] = {
        {{.world = 1, .credit = 2, .next = 41, .fresh = true},
         TRAJD_ERR_ARGUMENT,
         "next: 41 is after the end of the epoch, which has 40 windows"},
        {{.world = 1, .credit = 2, .fingerprint = 9},
         TRAJD_ERR_ARGUMENT,
         "fingerprint: the job needs 0000000000000009, but feed train has 0000000000000007"},
        {{.world = 5, .mode = TRAJD_WIRE_SHARD, .credit = 2, .fresh = true},
         TRAJD_ERR_ARGUMENT,
         "world: a batch of 4 windows cannot be split among 5 ranks"},
        {{.world = 1, .credit = 2, .norm = 3},
         TRAJD_ERR_ARGUMENT,
         "norm: the job was opened with values scaled as 0000000000000003"},
    };
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    const uint64_t session = greet(world);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trajd_wire_open open = cases[i].open;
        open.request = ++world->requests;
        assert_int_not_equal(open_with(world, session, open), TRAJD_OK);
        assert_int_equal(count_sent(world, TRAJD_WIRE_ERROR), 1);
        assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, cases[i].status);
        assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.request, open.request);
        if (!strstr(last_error(world), cases[i].text))
            fail_msg("%s\nsaid: %s", cases[i].text, last_error(world));
    }
    open_with(world, session, make_open(world, 0)); /* the session can open the feed after that */
    assert_non_null(last_sent(world, TRAJD_WIRE_OPENED));
    trajd_core_goaway(world->core, "end", world->now_ns);
    assert_int_not_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    assert_non_null(strstr(last_error(world), "the daemon is shutting down"));
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions_take_turns),
        cmocka_unit_test(test_refused_opens),
        cmocka_unit_test(test_order_of_publishing),
        cmocka_unit_test(test_credit_and_release),
        cmocka_unit_test(test_dead_sessions_batches_first),
        cmocka_unit_test(test_failed_and_short_batches),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing_is_sent_after_goaway),
        cmocka_unit_test(test_no_epoch_ends_after_goaway),
        cmocka_unit_test(test_other_normalisation_is_refused),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_stalls_are_named),
        cmocka_unit_test(test_a_session_that_is_alone_chooses_its_place),
        cmocka_unit_test(test_a_session_that_is_gone_gets_no_welcome),
        cmocka_unit_test(test_a_core_needs_its_options),
        cmocka_unit_test(test_options_of_a_feed),
        cmocka_unit_test(test_phases_of_a_job),
        cmocka_unit_test(test_an_epoch_that_is_ready_wakes_production),
        cmocka_unit_test(test_return_of_the_daemon),
        cmocka_unit_test(test_resuming),
        cmocka_unit_test(test_removed_feed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
