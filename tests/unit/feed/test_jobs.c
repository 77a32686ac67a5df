/* Rules of jobs over several runs: checkpoints, and ranks that stay away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core_world.h"
#include "daemon/feed/checkpoint_token.h"
#include "proto/array_len.h"

#define SECOND UINT64_C(1000000000)

struct token {
    uint8_t bytes[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES];
    uint32_t size;
};

static struct token checkpoint(struct world *world, uint64_t session)
{
    struct token token = {.size = 0};

    world->sent_count = 0;
    trajd_core_checkpoint(world->core, session, ++world->requests, world->now_ns);
    for (uint32_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].message.op == TRAJD_WIRE_CHECKPOINTED) {
            assert_int_equal(world->sent[i].message.checkpointed.request, world->requests);
            token.size = world->sent[i].message.checkpointed.token.size;
            memcpy(token.bytes, world->sent[i].token, token.size);
        }
    return token;
}

static struct trajd_wire_open make_open_from(struct world *world, uint64_t epoch,
                                             const struct token *token)
{
    struct trajd_wire_open open = make_open(world, epoch);

    open.resume = (struct trajd_wire_bytes){token->bytes, token->size};
    return open;
}

/* Takes, publishes and releases until the epoch is over. Returns the count of batches, and their
 * positions in the order of takes. */
static uint32_t finish(struct world *world, uint64_t session, uint64_t positions[64])
{
    struct trajd_fill fill;
    uint32_t count = 0;

    while (!last_sent(world, TRAJD_WIRE_EPOCH_END) && count < 64) {
        world->sent_count = 0;
        assert_int_equal(trajd_core_take(world->feed, world->now_ns, &fill), TRAJD_OK);
        positions[count++] = fill.position;
        publish(world, fill);
        for (uint32_t i = 0; i < world->sent_count; i++)
            if (world->sent[i].message.op == TRAJD_WIRE_BATCH)
                release(world, session, world->sent[i].message.batch);
    }
    return count;
}

/* Makes a job that has DONE batches 0 and 2 of ten, and holds 1 and 3. */
static struct world *halfway(const struct trajd_core_feed_options *options, uint64_t *session)
{
    struct world *world = make(options);
    struct trajd_wire_batch batches[4];
    struct trajd_wire_open open = make_open(world, 3);

    *session = greet(world);
    open.credit = 4;
    assert_int_equal(open_with(world, *session, open), TRAJD_OK);
    for (int b = 0; b < 4; b++) {
        publish(world, take(world));
        batches[b] = last_sent(world, TRAJD_WIRE_BATCH)->batch;
        if (b == 0 || b == 2)
            release(world, *session, batches[b]);
    }
    return world;
}

static void test_checkpoint_lists_what_is_done(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_journal_state decoded;
    struct world *world;
    struct token token;
    uint64_t session;

    (void)state;
    world = halfway(&options, &session);
    token = checkpoint(world, session);
    assert_int_equal(trajd_checkpoint_token_decode(token.bytes, token.size, &decoded, NULL),
                     TRAJD_OK);
    assert_int_equal(decoded.key.fingerprint, 7);
    assert_int_equal(decoded.key.seed, 8);
    assert_int_equal(decoded.key.epoch, 3);
    assert_int_equal(decoded.key.batch, 4);
    assert_int_equal(decoded.high, 4);
    assert_int_equal(decoded.undone_count, 2);
    assert_int_equal(decoded.undone[0], 1);
    assert_int_equal(decoded.undone[1], 3);
    destroy(world);
}

static void test_resume_completes_the_file(void **state)
{
    struct trajd_core_feed_options options = default_options();
    uint64_t session, positions[64];
    struct world *world;
    struct token token;

    (void)state;
    world = halfway(&options, &session);
    token = checkpoint(world, session);
    destroy(world); /* another run, another node */
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_int_equal(finish(world, session, positions), 8);
    assert_int_equal(positions[0], 4);
    assert_int_equal(positions[1], 12);
    for (uint64_t b = 4; b < 10; b++)
        assert_int_equal(positions[b - 2], 4 * b);
    /* a checkpoint at the end of the epoch */
    token = checkpoint(world, session);
    assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 10);
    destroy(world);
}

static void test_resume_with_another_batch(void **state)
{
    struct trajd_core_feed_options options = default_options();
    uint64_t session, positions[64];
    struct world *world;
    struct token token;

    (void)state;
    world = halfway(&options, &session);
    token = checkpoint(world, session);
    destroy(world);
    options.global_batch = 6;
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
    /* the first window that is not DONE */
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 4);
    assert_int_equal(finish(world, session, positions), 6);
    assert_int_equal(positions[0], 4);
    assert_int_equal(positions[5], 34);
    destroy(world);
}

static void test_checkpoint_beats_the_journal(void **state)
{
    char directory[] = "/tmp/trajd-jobs-XXXXXX", command[64];
    struct trajd_core_feed_options options = default_options();
    uint64_t session, positions[64];
    struct trajd_wire_open open;
    struct world *world;
    struct token token;

    (void)state;
    assert_non_null(mkdtemp(directory));
    options.journal_directory = directory;
    world = halfway(&options, &session);
    token = checkpoint(world, session);
    trajd_core_end_session(world->core, session, 0);
    session = greet(world);
    open = make_open(world, 3);
    open.fresh = false;
    /* goes on from its position to the end */
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    for (uint32_t i = world->sent_count; i-- > 0;)
        if (world->sent[i].message.op == TRAJD_WIRE_BATCH)
            release(world, session, world->sent[i].message.batch);
    finish(world, session, positions);
    destroy(world);
    world = make(&options);
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_int_equal(finish(world, session, positions),
                     8); /* the checkpoint counts, not the journal, which has all DONE */
    /* what is DONE from here on survives the next death of the daemon */
    assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
    publish(world, take(world));
    release(world, session, last_sent(world, TRAJD_WIRE_BATCH)->batch);
    destroy(world);
    world = make(&options);
    session = greet(world);
    open = make_open(world, 3);
    open.fresh = false;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    assert_int_equal(finish(world, session, positions), 7);
    assert_int_equal(positions[0], 12);
    destroy(world);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static void test_resume_is_a_whole_jobs(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    struct token token, later;
    uint64_t first, second;

    (void)state;
    world = halfway(&options, &first);
    token = checkpoint(world, first);
    release(world, first, (struct trajd_wire_batch){.ring = 1, .slot = 0, .generation = 2});
    later = checkpoint(world, first);
    second = greet(world);
    assert_int_not_equal(open_with(world, second, make_open_from(world, 3, &token)), TRAJD_OK);
    /* until the first has left */
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_BUSY);
    assert_int_equal(open_with(world, first, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_int_equal(open_with(world, second, make_open_from(world, 3, &later)), TRAJD_ERR_BUSY);
    assert_int_equal(open_with(world, second, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_int_equal(take(world).position, 4);
    destroy(world);
}

/* Finishes the epoch that the session is in, whose batches were not taken yet. */
static void finish_all(struct world *world, uint64_t session)
{
    uint64_t positions[64];

    world->sent_count = 0;
    finish(world, session, positions);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
}

/* A worker restarts late with the checkpoint of the job's run. If the other workers have finished
 * the epoch of the checkpoint and are in the next one, it hears that this epoch is over. */
static void test_a_worker_with_the_checkpoint_comes_an_epoch_late(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    struct token token, later;
    uint64_t first, late;

    (void)state;
    world = halfway(&options, &first);
    token = checkpoint(world, first);
    release(world, first, (struct trajd_wire_batch){.ring = 1, .slot = 0, .generation = 2});
    later = checkpoint(world, first);
    destroy(world);
    world = make(&options);
    first = greet(world);
    assert_int_equal(open_with(world, first, make_open_from(world, 3, &token)), TRAJD_OK);
    finish_all(world, first);
    assert_int_equal(open_with(world, first, make_open(world, 4)), TRAJD_OK);
    late = greet(world);
    /* another checkpoint of that epoch is not the one from which the job began */
    assert_int_equal(open_with(world, late, make_open_from(world, 3, &later)), TRAJD_ERR_BUSY);
    assert_int_equal(open_with(world, late, make_open_from(world, 3, &token)), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.epoch, 3);
    assert_non_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.epoch, 3);
    assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 10);
    assert_null(last_sent(world, TRAJD_WIRE_BATCH));
    /* the epoch of the others goes on, and the late worker joins it next */
    assert_int_equal(take(world).position, 0);
    assert_int_equal(open_with(world, late, make_open(world, 4)), TRAJD_OK);
    assert_null(last_sent(world, TRAJD_WIRE_EPOCH_END));
    destroy(world);
}

/* Two epochs later, and after an epoch without a checkpoint, the checkpoint is refused: the job
 * cannot go back while others work on it. */
static void test_a_checkpoint_holds_for_one_epoch(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    struct token token;
    uint64_t first;

    (void)state;
    world = halfway(&options, &first);
    token = checkpoint(world, first);
    trajd_core_end_session(world->core, first, 0);
    first = greet(world);
    assert_int_equal(open_with(world, first, make_open(world, 3)), TRAJD_OK);
    finish_all(world, first);
    assert_int_equal(open_with(world, first, make_open(world, 4)), TRAJD_OK);
    assert_int_equal(open_with(world, greet(world), make_open_from(world, 3, &token)),
                     TRAJD_ERR_BUSY);
    assert_non_null(strstr(last_error(world), "did not begin from this checkpoint"));
    destroy(world);
    world = make(&options);
    first = greet(world);
    assert_int_equal(open_with(world, first, make_open_from(world, 3, &token)), TRAJD_OK);
    for (uint64_t epoch = 4; epoch < 6; epoch++) {
        finish_all(world, first);
        assert_int_equal(open_with(world, first, make_open(world, epoch)), TRAJD_OK);
    }
    assert_int_equal(open_with(world, greet(world), make_open_from(world, 3, &token)),
                     TRAJD_ERR_BUSY);
    destroy(world);
}

static void test_tokens_are_input(void **state)
{
    struct trajd_core_feed_options options = default_options(), other = options;
    struct world *world;
    struct token token, bad;
    uint64_t session;

    (void)state;
    world = halfway(&options, &session);
    token = checkpoint(world, session);
    /* cut at every byte; size 0 means no checkpoint */
    for (uint32_t size = 0; size < token.size; size++) {
        bad = token;
        bad.size = size;
        assert_int_equal(open_with(world, session, make_open_from(world, 3, &bad)),
                         size ? TRAJD_ERR_ARGUMENT : TRAJD_OK);
    }
    for (uint32_t bit = 0; bit < 8 * token.size; bit++) {
        bad = token;
        bad.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(open_with(world, session, make_open_from(world, 3, &bad)),
                         TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(last_error(world), "resume: "));
    }
    assert_int_equal(open_with(world, session, make_open_from(world, 4, &token)),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(last_error(world), "epoch: the checkpoint is of epoch 3, but epoch 4"));
    destroy(world);
    other.fingerprint = 9;
    world = make(&other);
    assert_int_equal(open_with(world, greet(world), make_open_from(world, 3, &token)),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(last_error(world), "fingerprint: the checkpoint has 0000000000000007"));
    destroy(world);
    other = options;
    other.seed = 1;
    world = make(&other);
    assert_int_equal(open_with(world, greet(world), make_open_from(world, 3, &token)),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(last_error(world), "seed: the checkpoint has 8"));
    destroy(world);
}

/* A token with a correct checksum can still have impossible values. */
static void test_tokens_with_impossible_values(void **state)
{
    const struct trajd_journal_state good = {
        .key = {.batch = 4, .length = 40}, .high = 4, .undone_count = 2, .undone = {1, 3}};
    struct trajd_journal_state cases[] = {good, good, good, good, good, good}, decoded;
    uint8_t bytes[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES];

    (void)state;
    assert_int_equal(trajd_checkpoint_token_decode(
                         bytes, trajd_checkpoint_token_encode(&good, bytes), &decoded, NULL),
                     TRAJD_OK);
    cases[0].key.batch = 0;
    cases[1].key.begin = 41;
    cases[2].high = 11;
    cases[3].undone[1] = 1;
    cases[4].undone[1] = 4;
    cases[5].key.length = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(
            trajd_checkpoint_token_decode(bytes, trajd_checkpoint_token_encode(&cases[i], bytes),
                                          &decoded, NULL),
            TRAJD_ERR_ARGUMENT);
}

/* The token lists batches after the end of the epoch, as from a feed with a short last batch. They
 * are ignored. */
static void test_tokens_that_go_past_the_end(void **state)
{
    struct trajd_journal_state past = {.key = {.fingerprint = 7,
                                               .seed = 8,
                                               .epoch = 3,
                                               .requested = 1,
                                               .begin = 1,
                                               .length = 40,
                                               .batch = 4},
                                       .high = 10};
    struct trajd_core_feed_options options =
        default_options(); /* nine batches from position 1 on */
    uint64_t session, positions[64];

    (void)state;
    for (uint32_t undone = 0; undone < 3; undone++) {
        struct world *world = make(&options);
        struct token token;
        past.undone_count = undone;
        past.undone[0] = undone == 1 ? 9 : 2;
        past.undone[1] = 9;
        token.size = (uint32_t)trajd_checkpoint_token_encode(&past, token.bytes);
        session = greet(world);
        assert_int_equal(open_with(world, session, make_open_from(world, 3, &token)), TRAJD_OK);
        assert_int_equal(finish(world, session, positions), undone == 2);
        assert_int_equal(last_sent(world, TRAJD_WIRE_EPOCH_END)->epoch_end.batches, 9);
        destroy(world);
    }
}

/* ---- ranks ---- */

static void test_rank_that_never_comes(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    uint64_t session;

    (void)state;
    options.rank_timeout_ns = 10 * SECOND;
    world = make(&options);
    world->now_ns = 100 * SECOND;
    session = greet(world);
    assert_int_equal(open_with(world, session, make_open_rank_as(world, "", 0, 1, 4)), TRAJD_OK);
    trajd_core_tick(world->core, 100 * SECOND - 1); /* a tick with an earlier time */
    trajd_core_tick(world->core, 109 * SECOND);
    assert_null(last_sent(world, TRAJD_WIRE_ERROR));
    trajd_core_tick(world->core, 111 * SECOND);
    assert_non_null(last_sent(world, TRAJD_WIRE_ERROR));
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(last_error(world),
                           "rank 0 of 4 of job \"\" and 2 others did not open the epoch for 11 s"));
    assert_int_equal(stats_of(world).rank_timeouts, 1);
    /* the feed works as before */
    world->now_ns = 112 * SECOND;
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(
            open_with(world, r ? greet(world) : session, make_open_rank_as(world, "", 0, r, 4)),
            TRAJD_OK);
    publish(world, take(world));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 4);
    destroy(world);
}

static void test_rank_that_stays_away(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t ranks[2];

    (void)state;
    options.rank_timeout_ns = 10 * SECOND;
    world = make(&options);
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = greet(world);
        open_with(world, ranks[r], make_open_rank_as(world, "", 0, r, 2));
    }
    for (int i = 0; i < 3; i++)
        publish(world, take(world));
    trajd_core_end_session(world->core, ranks[1], 20 * SECOND);
    trajd_core_tick(world->core, 40 * SECOND); /* rank 0 has batches to read: no rank waits */
    assert_null(last_sent(world, TRAJD_WIRE_ERROR));
    for (uint32_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].message.op == TRAJD_WIRE_BATCH && world->sent[i].session == ranks[0])
            release(world, ranks[0], world->sent[i].message.batch);
    trajd_core_tick(world->core, 41 * SECOND);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(last_error(world), "rank 1 of 2 of job \"\" was away for 21 s"));
    /* both go on from their positions */
    world->now_ns = 42 * SECOND;
    open = make_open_rank_as(world, "", 0, 0, 2);
    open.fresh = false;
    open.next = 12;
    assert_int_equal(open_with(world, ranks[0], open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 12);
    trajd_core_tick(world->core, 50 * SECOND); /* a new wait has begun */
    assert_null(last_sent(world, TRAJD_WIRE_ERROR));
    open = make_open_rank_as(world, "", 0, 1, 2);
    open.fresh = false;
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_OPENED)->opened.next, 0);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 4);
    destroy(world);
}

static const char *last_notice(const struct world *world, uint32_t *wait_ms)
{
    for (uint32_t i = world->sent_count; i-- > 0;)
        if (world->sent[i].message.op == TRAJD_WIRE_NOTICE) {
            *wait_ms = world->sent[i].message.notice.wait_ms;
            return world->sent[i].text;
        }
    return "";
}

/* The others get a report at once: which rank died or left, for how long they wait, and that it is
 * back.
 */
static void test_ranks_are_told_whom_they_wait_for(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;
    struct world *world;
    uint64_t ranks[3];
    uint32_t wait_ms;

    (void)state;
    options.rank_timeout_ns = 60 * SECOND;
    world = make(&options);
    ranks[0] = greet(world);
    world->now_ns = 100 * SECOND;
    open_with(world, ranks[0], make_open_rank_as(world, "run", 0, 0, 3));
    trajd_core_tick(world->core, 109 * SECOND);
    assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), 0);
    trajd_core_tick(world->core, 110 * SECOND);
    assert_string_equal(
        last_notice(world, &wait_ms),
        "rank 1 of 3 of job \"run\" and 1 other did not open the epoch for 10 s: the "
        "other ranks wait for another 50 s (rank_timeout is 60 s)");
    assert_int_equal(wait_ms, 50000);
    trajd_core_tick(world->core, 111 * SECOND);
    assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), 1); /* once */
    for (uint32_t r = 1; r < 3; r++) {
        ranks[r] = greet(world);
        assert_int_equal(open_with(world, ranks[r], make_open_rank_as(world, "run", 0, r, 3)),
                         TRAJD_OK);
        assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), r); /* not to itself */
    }
    assert_string_equal(last_notice(world, &wait_ms), "rank 2 of 3 of job \"run\" is back");
    assert_int_equal(wait_ms, 0);

    world->sent_count = 0;
    trajd_core_end_session(world->core, ranks[1], 120 * SECOND);
    assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), 2);
    assert_string_equal(last_notice(world, &wait_ms),
                        "rank 1 of 3 of job \"run\" (c, process 99) died: the other ranks wait for "
                        "another 60 s (rank_timeout is 60 s)");
    assert_int_equal(wait_ms, 60000);
    assert_non_null(strstr(world->report, "rank 1 of 3"));
    open = make_open_rank_as(world, "run", 0, 1, 3);
    open.fresh = false;
    assert_int_equal(open_with(world, greet(world), open), TRAJD_OK);
    assert_string_equal(last_notice(world, &wait_ms), "rank 1 of 3 of job \"run\" is back");
    trajd_core_bye(world->core, ranks[2], 130 * SECOND);
    assert_non_null(strstr(last_notice(world, &wait_ms), "closed its feed within the epoch: "));
    destroy(world);
}

/* Nobody waits for the rank in these cases. */
static void test_ranks_that_nobody_waits_for(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world = make(&options);
    struct trajd_wire_open open = make_open_rank_as(world, "", 0, 0, 2);
    uint64_t session = greet(world), other;

    (void)state;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    open = make_open_rank_as(world, "", 0, 1, 2);
    open.next = options.epoch_length; /* it is at the end of the epoch */
    open.fresh = false;
    other = greet(world);
    assert_int_equal(open_with(world, other, open), TRAJD_OK);
    trajd_core_end_session(world->core, other, 0);
    trajd_core_end_session(world->core, session, 0); /* the last one */
    assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), 0);
    session = open_as(world, "queue", 0);
    open_as(world, "queue", 0);
    trajd_core_end_session(world->core, session, 0);
    assert_int_equal(count_sent(world, TRAJD_WIRE_NOTICE), 0);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_lists_what_is_done),
        cmocka_unit_test(test_resume_completes_the_file),
        cmocka_unit_test(test_resume_with_another_batch),
        cmocka_unit_test(test_checkpoint_beats_the_journal),
        cmocka_unit_test(test_resume_is_a_whole_jobs),
        cmocka_unit_test(test_a_worker_with_the_checkpoint_comes_an_epoch_late),
        cmocka_unit_test(test_a_checkpoint_holds_for_one_epoch),
        cmocka_unit_test(test_tokens_are_input),
        cmocka_unit_test(test_tokens_with_impossible_values),
        cmocka_unit_test(test_tokens_that_go_past_the_end),
        cmocka_unit_test(test_rank_that_never_comes),
        cmocka_unit_test(test_rank_that_stays_away),
        cmocka_unit_test(test_ranks_are_told_whom_they_wait_for),
        cmocka_unit_test(test_ranks_that_nobody_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
