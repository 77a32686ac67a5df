// libs: trajd_feed
/* Measures what a batch costs in the state machine and the codec only: take, publish, BATCH encoded
 * and decoded, ACK encoded and decoded. */
#include <stdio.h>
#include <time.h>

#include "daemon/feed/core.h"

#define BATCHES 1000000u

struct world {
    struct trajd_wire_batch batch;
    uint64_t sent;
    uint8_t frame[4096];
};

static void on_send(void *context, uint64_t session, void *user,
                    const struct trajd_wire_message *message)
{
    static struct trajd_wire_message received;
    struct world *world = context;
    uint64_t request;
    size_t size;

    (void)session;
    (void)user;
    if (message->op != TRAJD_WIRE_BATCH ||
        trajd_wire_encode(message, world->frame, sizeof world->frame, &size, NULL) ||
        trajd_wire_decode(world->frame, size, NULL, &received, &request, NULL))
        return;
    world->batch = received.batch;
    world->sent++;
}

static void on_wake(void *context, struct trajd_core_feed *feed)
{
    (void)context;
    (void)feed;
}

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Releases a batch through the wire format, as a worker does. */
static void acknowledge(struct trajd_core *core, struct world *world, uint64_t session)
{
    static struct trajd_wire_message message, received;
    uint64_t request;
    size_t size;

    message.op = TRAJD_WIRE_ACK;
    message.ack.released.count = 1;
    message.ack.released.list[0] = (struct trajd_wire_lease){
        world->batch.ring, world->batch.slot, world->batch.generation, world->batch.part};
    if (!trajd_wire_encode(&message, world->frame, sizeof world->frame, &size, NULL) &&
        !trajd_wire_decode(world->frame, size, NULL, &received, &request, NULL))
        trajd_core_ack(core, session, &received.ack, 0);
}

int main(void)
{
    static struct world world;
    struct trajd_core_options options = {.instance_id = 1,
                                         .max_sessions = 64,
                                         .version = "bench",
                                         .send = on_send,
                                         .wake = on_wake,
                                         .context = &world};
    struct trajd_core_feed_options feed_options = {.name = "bench",
                                                   .slot_count = 8,
                                                   .max_credit = 4,
                                                   .global_batch = 1,
                                                   .epoch_length = BATCHES};
    struct trajd_wire_open open = {.request = 1, .world = 1, .credit = 4, .fresh = true};
    struct trajd_wire_hello hello = {.minor = 0};
    struct trajd_core_feed *feed;
    struct trajd_core *core;
    struct trajd_error error;
    uint64_t session, begin_ns;
    void *replaced;
    bool resumed;

    if (trajd_core_create(&options, &core, &error) ||
        trajd_core_add_feed(core, &feed_options, &feed, &error) ||
        trajd_core_hello(core, &hello, (const uint8_t[TRAJD_WIRE_TOKEN_SIZE]){1}, NULL, 0, &session,
                         &resumed, &replaced, &error) ||
        trajd_core_open(core, session, &open, feed, 0)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    begin_ns = now_ns();
    for (uint32_t i = 0; i < BATCHES; i++) {
        struct trajd_fill fill;
        if (trajd_core_take(feed, 0, &fill))
            break;
        trajd_core_publish(feed, &fill, NULL, 0);
        acknowledge(core, &world, session);
    }
    printf("core and codec: %llu batches, %.0f ns each\n", (unsigned long long)world.sent,
           (double)(now_ns() - begin_ns) / (double)world.sent);
    trajd_core_destroy(&core);
    return world.sent != BATCHES;
}
