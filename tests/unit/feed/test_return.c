/* Sessions that return after the daemon's death, and new ones that have to wait for them. Each
 * world stands for one life of the daemon; they share a directory of journals. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core_world.h"
#include "journal_folder.h"
#include "proto/array_len.h"

#define SECOND UINT64_C(1000000000)

static struct trajd_core_feed_options options_with_journal(void)
{
    struct trajd_core_feed_options options = default_options();

    options.slot_count = 4;
    options.rejoin_wait_ns = 10 * SECOND;
    options.journal_directory = journal_folder;
    return options;
}

/* Lets the job finish a batch and end, so that it has a journal. */
static void make_journal(const struct trajd_core_feed_options *options)
{
    struct world *world = make(options);
    const uint64_t session = greet(world);

    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    publish(world, take(world));
    assert_int_equal(give_back(world, session), 1);
    trajd_core_bye(world->core, session, world->now_ns);
    destroy(world);
}

/* A daemon's life with that many sessions of a job, which got batches 0 to 3 in turn. Returns the
 * pass of the last session. */
static uint64_t die_serving(const struct trajd_core_feed_options *options, uint32_t sessions)
{
    struct world *world;
    uint64_t pass;

    make_journal(options);
    world = make(options);
    for (uint32_t i = 0; i < sessions; i++)
        assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    pass = last_sent(world, TRAJD_WIRE_OPENED)->opened.pass;
    assert_int_not_equal(pass, 0);
    for (int i = 0; i < 4; i++)
        publish(world, take(world));
    destroy(world);
    return pass;
}

static struct trajd_wire_open make_return(struct world *world, uint64_t pass)
{
    struct trajd_wire_open open = make_open(world, 0);

    open.fresh = false;
    open.pass = pass;
    open.batch = 4;
    return open;
}

static const struct trajd_wire_opened *opened(const struct world *world)
{
    return &last_sent(world, TRAJD_WIRE_OPENED)->opened;
}

static void ack_position(struct world *world, uint64_t session, uint64_t position)
{
    const struct trajd_wire_ack ack = {.positions = {1, {position}}};

    trajd_core_ack(world->core, session, &ack, world->now_ns);
}

/* The session had batches 0 (DONE, which was lost) and 1. What else it reports is ignored. */
static void test_reports(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_core_session_info info;
    struct trajd_wire_open open;
    struct world *world;
    uint64_t pass, session, thief;

    (void)state;
    pass = die_serving(&options, 1);
    world = make(&options);
    session = greet(world);
    open = make_return(world, pass);
    open.done = (struct trajd_wire_positions){4, {0, 0, 3, UINT64_MAX}};
    open.held = (struct trajd_wire_positions){5, {4, 4, 0, 5, 400}};
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(opened(world)->pass, pass);
    assert_int_equal(opened(world)->held.count, 1);
    assert_int_equal(opened(world)->held.list[0], 4);
    assert_int_equal(stats_of(world).batches_done, 1);

    thief = greet(world);
    open.request = ++world->requests;
    assert_int_equal(open_with(world, thief, open), TRAJD_OK);
    assert_int_equal(opened(world)->held.count, 0);
    ack_position(world, thief, 4);
    assert_int_equal(stats_of(world).batches_done, 1);

    assert_int_equal(take(world).position, 8);
    assert_true(trajd_core_session_info(world->core, 0, &info));
    assert_int_equal(info.held, 1); /* it counts against the credit */
    ack_position(world, session, 4);
    ack_position(world, session, 4);
    assert_int_equal(stats_of(world).batches_done, 2);
    assert_int_equal(stats_of(world).late_acks, 2);
    destroy(world);
}

/* Before the first batch is DONE, the job has no journal. A session that returns first continues
 * the pass: none of its batches comes again. */
static void test_return_without_a_journal(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_wire_open open;
    struct world *world = make(&options);
    uint64_t pass, session;

    (void)state;
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    pass = opened(world)->pass;
    publish(world, take(world));
    destroy(world);
    assert_int_equal(rmdir(journal_folder), 0); /* it is empty */
    assert_int_equal(mkdir(journal_folder, 0700), 0);

    world = make(&options);
    session = greet(world);
    open = make_return(world, pass);
    open.done = (struct trajd_wire_positions){1, {0}}; /* an ACK that died with the daemon */
    open.held = (struct trajd_wire_positions){1, {8}};
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(opened(world)->pass, pass);
    assert_int_equal(opened(world)->held.count, 1);
    assert_int_equal(opened(world)->held.list[0], 8);
    assert_int_equal(stats_of(world).batches_done, 1);
    assert_int_equal(take(world).position, 16); /* another session may have batch 4 or 12 */
    destroy(world);

    world = make(&options); /* now there is a journal */
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_ERR_BUSY);
    open = make_return(world, pass + 1); /* a pass that could not be written */
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(opened(world)->pass, pass + 1);
    trajd_core_tick(world->core, 10 * SECOND);
    assert_int_equal(take(world).position, 0);
    destroy(world);
}

static void test_reports_of_something_else(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct world *world;
    uint64_t pass;

    (void)state;
    pass = die_serving(&options, 1);
    for (int wrong = 0; wrong < 3; wrong++) {
        struct trajd_wire_open open;
        world = make(&options);
        open = make_return(world, wrong == 0 ? pass + 2 : pass);
        open.batch = wrong == 1 ? 5 : 4;
        open.epoch = wrong == 2;
        open.done = open.held = (struct trajd_wire_positions){2, {0, 4}};
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
        assert_int_equal(opened(world)->held.count, 0);
        assert_int_equal(stats_of(world).batches_done, 0);
        destroy(world);
    }
}

/* A batch goes to another session when its holder dies, and not before. */
static void test_death_of_a_holder(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t pass, session;

    (void)state;
    pass = die_serving(&options, 1);
    world = make(&options);
    session = greet(world);
    open = make_return(world, pass);
    open.held = (struct trajd_wire_positions){2, {0, 4}};
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    assert_int_equal(take(world).position, 8);
    assert_int_equal(take(world).position, 12);
    assert_int_equal(take(world).position, 16);
    trajd_core_end_session(world->core, session, 0);
    assert_int_equal(take(world).position, 0);
    assert_int_equal(stats_of(world).handed_again, 2);
    assert_int_equal(stats_of(world).dead_sessions, 1);
    destroy(world);
}

/* The daemon dies again before both sessions are back: the next one waits for both, too. */
static void test_two_deaths(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_wire_open open;
    struct trajd_core_job_info job;
    struct world *world;
    uint64_t pass;

    (void)state;
    pass = die_serving(&options, 2);
    for (int death = 0; death < 2; death++) {
        world = make(&options);
        open = make_return(world, pass);
        open.held = (struct trajd_wire_positions){1, {death ? 4 : 0}};
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
        assert_int_equal(opened(world)->held.count, 1);
        assert_true(trajd_core_job_info(world->feed, 0, &job));
        assert_int_equal(job.awaited, 1);
        /* a session may have any batch before that one */
        assert_int_equal(take(world).position, death ? 20 : 16);
        if (death == 0)
            destroy(world);
    }
    trajd_core_tick(world->core, 10 * SECOND - 1);
    assert_int_equal(take(world).position, 24);
    trajd_core_tick(world->core, 10 * SECOND);
    assert_int_equal(take(world).position, 0);
    destroy(world);
}

/* A life of the daemon in which one session returns and holds batch 1, and none other. Returns when
 * a batch comes again that another one may hold, 0: not within `life_ns`. */
static uint64_t time_until_again(const struct trajd_core_feed_options *options, uint64_t pass,
                                 bool joined_by_another, uint64_t life_ns)
{
    struct world *world = make(options);
    struct trajd_wire_open open = make_return(world, pass);
    struct trajd_fill fill;
    uint64_t again_ns = 0;

    open.held = (struct trajd_wire_positions){1, {4}};
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    if (joined_by_another)
        assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    while (!again_ns && world->now_ns < life_ns) {
        world->now_ns += SECOND / 2;
        trajd_core_tick(world->core, world->now_ns);
        while (!trajd_core_take(world->feed, world->now_ns, &fill))
            if (!fill.epoch && fill.position < 16 && !again_ns)
                again_ns = world->now_ns;
            else
                publish(world, fill);
    }
    destroy(world);
    return again_ns;
}

/* One of two sessions died with the daemon, which dies again each 6 s. The wait for it is 10 s in
 * all, and none after that. */
static void test_deaths_do_not_begin_the_wait_anew(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    uint64_t pass;

    (void)state;
    pass = die_serving(&options, 2);
    options.slot_count = 8;
    assert_int_equal(time_until_again(&options, pass, false, 6 * SECOND), 0);
    assert_int_equal(time_until_again(&options, pass, false, 6 * SECOND), 4 * SECOND);
    assert_int_equal(time_until_again(&options, pass, false, 6 * SECOND), SECOND / 2);
}

/* Another session dies with each daemon. It is waited for as long as the first one, unless the wait
 * lasts three times as long. */
static void test_sessions_that_die_later_are_waited_for(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    uint64_t pass;

    (void)state;
    pass = die_serving(&options, 2);
    options.slot_count = 8;
    for (int life = 0; life < 4; life++)
        assert_int_equal(time_until_again(&options, pass, true, 6 * SECOND), 0);
    assert_int_equal(time_until_again(&options, pass, true, 10 * SECOND), 6 * SECOND);
}

/* No session returns. The wait of a new one continues after the daemon's death. */
static void test_deaths_while_a_fresh_open_waits(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct world *world;
    uint64_t session;

    (void)state;
    die_serving(&options, 2);
    world = make(&options);
    session = greet(world);
    world->now_ns = SECOND;
    for (int i = 0; i <= 60; i++, world->now_ns += SECOND / 10)
        assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_ERR_BUSY);
    destroy(world);
    world = make(&options);
    session = greet(world);
    world->now_ns = SECOND;
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_ERR_BUSY);
    /* the journal lacks less than half a second */
    assert_in_range(last_sent(world, TRAJD_WIRE_ERROR)->error.wait_ms, 4001, 4501);
    world->now_ns = 11 * SECOND / 2;
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    destroy(world);
}

/* One session was in the next epoch, the other had not left the one before. Both return. */
static void test_a_return_to_the_epoch_before(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_core_job_info job;
    struct trajd_wire_open open;
    struct world *world;
    uint64_t passes[2], session;

    (void)state;
    options.epoch_length = 4;
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open(world, 0)), TRAJD_OK);
    passes[0] = opened(world)->pass;
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    world->sent_count = 0;
    publish(world, take(world));
    trajd_core_tick(world->core, world->now_ns);
    for (uint32_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].message.op == TRAJD_WIRE_BATCH) {
            release(world, world->sent[i].session, world->sent[i].message.batch);
            break;
        }
    assert_int_equal(count_sent(world, TRAJD_WIRE_EPOCH_END), 2);
    assert_int_equal(open_with(world, session, make_open(world, 1)), TRAJD_OK);
    passes[1] = opened(world)->pass;
    destroy(world);

    world = make(&options);
    for (int i = 1; i >= 0; i--) {
        open = make_return(world, passes[i]);
        open.epoch = (uint64_t)i;
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
        assert_true(trajd_core_job_info(world->feed, 0, &job));
        assert_int_equal(job.awaited, i);
    }
    destroy(world);
}

static void test_a_fresh_open_waits(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_core_session_info info;
    struct world *world;
    uint64_t pass, fresh;

    (void)state;
    pass = die_serving(&options, 1);
    world = make(&options);
    fresh = greet(world);
    world->now_ns = SECOND;
    assert_int_equal(open_with(world, fresh, make_open(world, 0)), TRAJD_ERR_BUSY);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.request, world->requests);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.wait_ms, 10001);
    assert_non_null(strstr(last_error(world), "within epoch 0 of job \"\" (0 of 10 batches"));
    assert_true(trajd_core_session_info(world->core, 0, &info));
    assert_int_equal(info.wait_until_ns, 11 * SECOND);
    /* an OPEN of another session of the job waits no longer than the first one */
    world->now_ns = 4 * SECOND;
    assert_int_equal(open_with(world, greet(world), make_open(world, 3)), TRAJD_ERR_BUSY);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.wait_ms, 7001);
    /* it is held back no more once a session has returned */
    assert_int_equal(open_with(world, greet(world), make_return(world, pass)), TRAJD_OK);
    assert_int_equal(open_with(world, fresh, make_open(world, 0)), TRAJD_OK);
    assert_int_equal(opened(world)->pass, pass);
    assert_true(trajd_core_session_info(world->core, 0, &info));
    assert_int_equal(info.wait_until_ns, 0);
    /* another epoch is refused as ever, and nothing waits for it */
    assert_int_equal(open_with(world, greet(world), make_open(world, 3)), TRAJD_ERR_BUSY);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.wait_ms, 0);
    assert_true(trajd_core_session_info(world->core, 3, &info));
    assert_int_equal(info.wait_until_ns, 0);
    destroy(world);
}

/* The log names the job whose epoch begins again, and what is lost. */
static void test_the_report_of_a_new_epoch(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct world *world = make(&options);
    uint64_t session = open_as(world, "run", 5);

    (void)state;
    for (int i = 0; i < 2; i++) {
        world->sent_count = 0;
        publish(world, take(world));
        if (i == 0)
            assert_int_equal(give_back(world, session), 1);
    }
    destroy(world);
    world = make(&options);
    session = greet(world);
    world->now_ns = SECOND;
    assert_int_equal(open_with(world, session, make_open_as(world, "run", 0)), TRAJD_ERR_BUSY);
    world->now_ns = 11 * SECOND;
    assert_string_equal(world->report, "");
    assert_int_equal(open_with(world, session, make_open_as(world, "run", 0)), TRAJD_OK);
    assert_string_equal(
        world->report, "job \"run\" of feed train begins epoch 0 again: 1 of 10 batches of epoch 5 "
                       "were DONE under an earlier daemon, and no worker of that run returned "
                       "within 10 s (rejoin_wait)");
    destroy(world);
}

/* A worker was further than the journal, or there is none: the log says which batches come
 * again. */
static void test_the_report_of_batches_without_a_journal(void **state)
{
    static const struct {
        uint32_t batch, mode, done, held; /* positions + 1 */
        uint64_t pass;
        bool is_reported;
    } cases[] = {
        {4, TRAJD_WIRE_QUEUE, 1, 0, 0, true},  {4, TRAJD_WIRE_QUEUE, 0, 5, 0, true},
        {4, TRAJD_WIRE_QUEUE, 0, 0, 0, false}, {5, TRAJD_WIRE_QUEUE, 1, 0, 0, false},
        {4, TRAJD_WIRE_SHARD, 1, 0, 0, false},
    };
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t pass;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        world = make(&options);
        open = make_return(world, 9);
        open.batch = cases[i].batch;
        open.mode = cases[i].mode;
        open.done = (struct trajd_wire_positions){cases[i].done > 0, {cases[i].done - 1}};
        open.held = (struct trajd_wire_positions){cases[i].held > 0, {cases[i].held - 1}};
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
        assert_string_equal(world->report,
                            cases[i].is_reported
                                ? "job \"\" of feed train begins epoch 0 again: its workers were "
                                  "beyond window 0, but there is no journal of that; batches that "
                                  "they have finished or hold come again"
                                : "");
        destroy(world);
    }
    options = options_with_journal(); /* it knows of batches up to window 16 */
    pass = die_serving(&options, 1);
    for (int i = 0; i < 3; i++) {
        world = make(&options);
        open = make_return(world, i == 0 ? pass + 2 : pass); /* + 2: another run */
        open.held = (struct trajd_wire_positions){2, {4, i == 1 ? 12 : 16}};
        assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
        assert_int_equal(strstr(world->report, "beyond window 16, but") != NULL, i == 2);
        destroy(world);
    }
}

/* A journal that cannot be written is reported once, and so is its return. */
static void test_a_journal_that_fails_and_returns(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct world *world = make(&options);
    const uint64_t session = open_as(world, "run", 0);
    char away[64];

    (void)state;
    snprintf(away, sizeof away, "%s.away", journal_folder);
    for (int i = 0; i < 5; i++) {
        if (i == 0)
            assert_int_equal(rename(journal_folder, away), 0);
        if (i == 2)
            assert_int_equal(rename(away, journal_folder), 0);
        world->report[0] = 0;
        world->sent_count = 0;
        publish(world, take(world));
        assert_int_equal(give_back(world, session), 1);
        world->now_ns += 100 * SECOND;
        trajd_core_tick(world->core, world->now_ns);
        if (i == 0)
            assert_non_null(strstr(world->report, "job \"run\" of feed train goes on without a "
                                                  "journal: "));
        else
            assert_string_equal(world->report,
                                i == 2 ? "job \"run\" of feed train has its journal again" : "");
        assert_int_equal(stats_of(world).journals_refused, 1);
    }
    destroy(world);
}

static void test_what_does_not_wait(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_wire_open open;
    struct world *world;

    (void)state;
    die_serving(&options, 1);
    world = make(&options);
    open = make_open(world, 0);
    open.next = 8; /* an explicit position */
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    destroy(world);
    world = make(&options);
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_ERR_BUSY);
    world->now_ns = 10 * SECOND; /* nobody has returned */
    assert_int_equal(open_with(world, 0, make_open(world, 0)), TRAJD_ERR_CLOSED);
    destroy(world);
    options.seed++; /* no session can continue */
    world = make(&options);
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    trajd_core_end_session(world->core, trajd_core_find_token(world->core, (uint8_t[16]){1}), 0);
    destroy(world);
    world = make(&options); /* the job had no session when the daemon died */
    assert_int_equal(open_with(world, greet(world), make_open(world, 0)), TRAJD_OK);
    destroy(world);
}

static void test_another_batch_size(void **state)
{
    struct trajd_core_feed_options options = options_with_journal();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t pass;

    (void)state;
    pass = die_serving(&options, 1);
    options.global_batch = 6;
    world = make(&options);
    open = make_return(world, pass);
    open.done = (struct trajd_wire_positions){1, {0}};
    open.held = (struct trajd_wire_positions){1, {4}};
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(opened(world)->held.count, 0);
    assert_int_equal(take(world).position, 4); /* the first window that is not DONE */
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_return_without_a_journal, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_reports, journal_folder_make, journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_reports_of_something_else, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_death_of_a_holder, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_two_deaths, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_deaths_do_not_begin_the_wait_anew, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_sessions_that_die_later_are_waited_for,
                                        journal_folder_make, journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_deaths_while_a_fresh_open_waits, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_return_to_the_epoch_before, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_fresh_open_waits, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_the_report_of_a_new_epoch, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_the_report_of_batches_without_a_journal,
                                        journal_folder_make, journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_journal_that_fails_and_returns, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_what_does_not_wait, journal_folder_make,
                                        journal_folder_remove),
        cmocka_unit_test_setup_teardown(test_another_batch_size, journal_folder_make,
                                        journal_folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
