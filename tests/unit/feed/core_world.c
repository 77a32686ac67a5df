/* Makes a core with one feed, and records its messages. */
#include "core_world.h"

#include <stdlib.h>
#include <string.h>

static void on_send(void *context, uint64_t session, void *user,
                    const struct trajd_wire_message *message)
{
    struct world *world = context;
    struct sent *sent = &world->sent[world->sent_count++];

    (void)user;
    assert_true(world->sent_count <= SENT_ROOM);
    sent->session = session;
    sent->message = *message;
    if (message->op == TRAJD_WIRE_ERROR)
        trajd_wire_text_copy(message->error.message, sent->text, sizeof sent->text);
    if (message->op == TRAJD_WIRE_NOTICE)
        trajd_wire_text_copy(message->notice.message, sent->text, sizeof sent->text);
    if (message->op == TRAJD_WIRE_BATCH)
        trajd_wire_text_copy(message->batch.error, sent->text, sizeof sent->text);
    if (message->op == TRAJD_WIRE_CHECKPOINTED)
        memcpy(sent->token, message->checkpointed.token.data, message->checkpointed.token.size);
}

static void on_report(void *context, const char *text)
{
    struct world *world = context;

    trajd_wire_text_copy(trajd_wire_text(text), world->report, sizeof world->report);
}

static void on_wake(void *context, struct trajd_core_feed *feed)
{
    (void)feed;
    ((struct world *)context)->wakes++;
}

struct trajd_core_feed_options default_options(void)
{
    return (struct trajd_core_feed_options){.name = "train",
                                            .slot_count = 3,
                                            .max_credit = 4,
                                            .global_batch = 4,
                                            .fingerprint = 7,
                                            .seed = 8,
                                            .window_count = 42,
                                            .epoch_length = 40,
                                            .dropped_count = 2};
}

struct world *make(const struct trajd_core_feed_options *options)
{
    struct world *world = calloc(1, sizeof *world);
    struct trajd_core_options core = {.instance_id = 5,
                                      .max_sessions = 4,
                                      .version = "test",
                                      .send = on_send,
                                      .wake = on_wake,
                                      .report = on_report,
                                      .context = world};

    assert_non_null(world);
    assert_int_equal(trajd_core_create(&core, &world->core, NULL), TRAJD_OK);
    assert_int_equal(trajd_core_add_feed(world->core, options, &world->feed, NULL), TRAJD_OK);
    return world;
}

void destroy(struct world *world)
{
    trajd_core_destroy(&world->core);
    assert_null(world->core);
    free(world);
}

uint64_t greet(struct world *world)
{
    struct trajd_wire_hello hello = {.client = {"c", 1}, .pid = 99};
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE] = {++world->tokens};
    uint64_t session = 0;
    void *replaced;
    bool resumed;

    assert_int_equal(
        trajd_core_hello(world->core, &hello, token, NULL, 0, &session, &resumed, &replaced, NULL),
        TRAJD_OK);
    trajd_core_welcome(world->core, session, &hello, 0);
    assert_int_equal(trajd_core_find_token(world->core, token), session);
    return session;
}

struct trajd_wire_open make_open(struct world *world, uint64_t epoch)
{
    return (struct trajd_wire_open){
        .request = ++world->requests, .world = 1, .credit = 2, .epoch = epoch, .fresh = true};
}

enum trajd_status open_with(struct world *world, uint64_t session, struct trajd_wire_open open)
{
    world->sent_count = 0;
    return trajd_core_open(world->core, session, &open, world->feed, world->now_ns);
}

struct trajd_fill take(struct world *world)
{
    struct trajd_fill fill = {0};

    assert_int_equal(trajd_core_take(world->feed, world->now_ns, &fill), TRAJD_OK);
    return fill;
}

bool publish(struct world *world, struct trajd_fill fill)
{
    return trajd_core_publish(world->feed, &fill, NULL, world->now_ns);
}

const struct trajd_wire_message *last_sent(const struct world *world, enum trajd_wire_op op)
{
    for (uint32_t i = world->sent_count; i-- > 0;)
        if (world->sent[i].message.op == op)
            return &world->sent[i].message;
    return NULL;
}

const char *last_error(const struct world *world)
{
    for (uint32_t i = world->sent_count; i-- > 0;)
        if (world->sent[i].message.op == TRAJD_WIRE_ERROR)
            return world->sent[i].text;
    return "";
}

uint32_t count_sent(const struct world *world, enum trajd_wire_op op)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < world->sent_count; i++)
        count += world->sent[i].message.op == op;
    return count;
}

void release(struct world *world, uint64_t session, struct trajd_wire_batch batch)
{
    struct trajd_wire_ack ack = {
        .released = {1, {{batch.ring, batch.slot, batch.generation, batch.part}}}};

    trajd_core_ack(world->core, session, &ack, world->now_ns);
}

struct trajd_core_stats stats_of(const struct world *world)
{
    struct trajd_core_stats stats;

    trajd_core_get_stats(world->core, &stats);
    return stats;
}

struct trajd_wire_open make_open_as(struct world *world, const char *job, uint64_t epoch)
{
    struct trajd_wire_open open = make_open(world, epoch);

    open.job = trajd_wire_text(job);
    return open;
}

struct trajd_wire_open make_open_rank_as(struct world *world, const char *job, uint64_t epoch,
                                         uint32_t rank, uint32_t ranks)
{
    struct trajd_wire_open open = make_open_as(world, job, epoch);

    open.mode = TRAJD_WIRE_SHARD;
    open.rank = rank;
    open.world = ranks;
    return open;
}

uint64_t open_as(struct world *world, const char *job, uint64_t epoch)
{
    uint64_t session = greet(world);

    assert_int_equal(open_with(world, session, make_open_as(world, job, epoch)), TRAJD_OK);
    return session;
}

uint32_t give_back(struct world *world, uint64_t session)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].session == session && world->sent[i].message.op == TRAJD_WIRE_BATCH) {
            world->sent[i].message.op = 0;
            release(world, session, world->sent[i].message.batch);
            count++;
        }
    return count;
}

void fill_all(struct world *world)
{
    struct trajd_fill fill;

    while (!trajd_core_take(world->feed, world->now_ns, &fill))
        publish(world, fill);
}
