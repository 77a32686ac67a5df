/* The outbox without a socket: what a message becomes, and which send references it holds. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/server_internal.h"

static void ignore_send(void *context, uint64_t session, void *user,
                        const struct trajd_wire_message *message)
{
    (void)context, (void)session, (void)user, (void)message;
}

static void ignore_wake(void *context, struct trajd_core_feed *feed)
{
    (void)context, (void)feed;
}

/* A server with a feed of one tensor [4] i64 and a ring of 3 slots, and without thread and
 * sockets. */
struct world {
    struct trajd_server server;
    struct trajd_feed feed;
    struct trajd_peer local, remote;
};

static void add_feed(struct world *world)
{
    struct trajd_error error;
    struct trajd_server_ring ring;
    assert_int_equal(trajd_server_ring_create(&ring, 3, 4096, true, &error), TRAJD_OK);
    const struct trajd_wire_tensor tensor = {
        .dtype = TRAJD_I64, .rank = 1, .shape = {4}, .offset_bytes = 64};
    world->feed.slot_sends = trajd_slot_sends_create(&ring, &tensor, 1, world->server.wake_fd);
    assert_non_null(world->feed.slot_sends);
    const struct trajd_core_feed_options options = {.name = "train",
                                                    .slot_count = 3,
                                                    .max_credit = 2,
                                                    .global_batch = 4,
                                                    .window_count = 8,
                                                    .epoch_length = 8,
                                                    .tensor_count = 1,
                                                    .tensors = world->feed.slot_sends->tensors,
                                                    .user = &world->feed};
    assert_int_equal(trajd_core_add_feed(world->server.core, &options, &world->feed.core, &error),
                     TRAJD_OK);
    world->server.feeds = &world->feed;
}

static int make_world(void **state)
{
    struct trajd_error error;
    struct world *world = calloc(1, sizeof *world);
    const struct trajd_core_options options = {
        .max_sessions = 2, .version = "test", .send = ignore_send, .wake = ignore_wake};
    world->server.options.remote.silence_ms = 1234;
    world->server.wake_fd = eventfd(0, EFD_NONBLOCK);
    pthread_mutex_init(&world->server.mutex, NULL);
    pthread_mutex_init(&world->server.send_lock, NULL);
    assert_int_equal(trajd_core_create(&options, &world->server.core, &error), TRAJD_OK);
    add_feed(world);
    world->local.route = (struct trajd_route){TRAJD_LISTENER_LOCAL, 2, "L", -1};
    world->remote.route = (struct trajd_route){TRAJD_LISTENER_REMOTE, 2, "R", -1};
    *state = world;
    return 0;
}

static int free_world(void **state)
{
    struct world *world = *state;
    trajd_outbox_drop(&world->server.outbox);
    trajd_core_destroy(&world->server.core);
    trajd_slot_sends_drop(&world->feed.slot_sends);
    close(world->server.wake_fd);
    free(world);
    return 0;
}

static struct trajd_wire_message welcome_message(void)
{
    return (struct trajd_wire_message){
        .op = TRAJD_WIRE_WELCOME,
        .welcome = {.instance = 1, .session = 7, .version = trajd_wire_text("test")}};
}

static struct trajd_wire_message batch_message(const struct world *world, uint32_t slot,
                                               const char *error)
{
    return (struct trajd_wire_message){.op = TRAJD_WIRE_BATCH,
                                       .batch = {.seq = 1,
                                                 .feed_id = trajd_core_feed_id(world->feed.core),
                                                 .slot = slot,
                                                 .generation = 1,
                                                 .row_begin = 1,
                                                 .row_count = 2,
                                                 .ready_ns = 99,
                                                 .error = trajd_wire_text(error)}};
}

/* Reads the record at *at, decodes its frame, and moves *at behind both. */
static struct trajd_outgoing_record read_record(const struct trajd_outbox *outbox, size_t *at,
                                                struct trajd_wire_message *message)
{
    struct trajd_outgoing_record record;
    uint64_t request;
    assert_true(*at + sizeof record < outbox->size);
    memcpy(&record, outbox->bytes + *at, sizeof record);
    *at += sizeof record;
    assert_int_equal(
        trajd_wire_decode(outbox->bytes + *at, record.length, NULL, message, &request, NULL),
        TRAJD_OK);
    *at += record.length;
    return record;
}

static void test_messages_keep_their_order_and_route(void **state)
{
    struct world *world = *state;
    struct trajd_wire_message message = welcome_message(), out;
    struct trajd_peer *const peers[] = {&world->local, &world->remote, &world->local};
    for (uint64_t i = 0; i < 3; i++) {
        message.welcome.session = 7 + i;
        trajd_server_send(&world->server, peers[i], &message);
    }
    size_t at = 0;
    for (uint64_t i = 0; i < 3; i++) {
        const struct trajd_outgoing_record record = read_record(&world->server.outbox, &at, &out);
        assert_int_equal(record.route.listener, peers[i]->route.listener);
        assert_memory_equal(record.route.bytes, peers[i]->route.bytes, 2);
        assert_int_equal(out.welcome.session, 7 + i);
        assert_null(record.slot_sends);
        assert_int_equal(record.ready_ns, 0);
    }
    assert_int_equal(at, world->server.outbox.size);
}

static void test_welcome_tells_the_silence_to_remote_workers_only(void **state)
{
    struct world *world = *state;
    const struct trajd_wire_message message = welcome_message();
    struct trajd_wire_message out;
    size_t at = 0;
    trajd_server_send(&world->server, &world->local, &message);
    trajd_server_send(&world->server, &world->remote, &message);
    read_record(&world->server.outbox, &at, &out);
    assert_int_equal(out.welcome.silence_ms, 0);
    read_record(&world->server.outbox, &at, &out);
    assert_int_equal(out.welcome.silence_ms, 1234);
}

static void test_a_remote_batch_holds_its_slot(void **state)
{
    struct world *world = *state;
    const struct trajd_wire_message batch = batch_message(world, 2, NULL);
    struct trajd_wire_message out;
    size_t at = 0;
    trajd_server_send(&world->server, &world->remote, &batch);
    const struct trajd_outgoing_record record = read_record(&world->server.outbox, &at, &out);
    assert_ptr_equal(record.slot_sends, world->feed.slot_sends);
    assert_int_equal(record.slot, 2);
    assert_int_equal(record.row_begin, 1);
    assert_int_equal(record.row_count, 2);
    assert_int_equal(record.ready_ns, 99);
    assert_true(trajd_slot_sends_is_in_use(world->feed.slot_sends, 2));
    trajd_outbox_drop(&world->server.outbox);
    assert_false(trajd_slot_sends_is_in_use(world->feed.slot_sends, 2));
    assert_int_equal(world->server.outbox.size, 0);
}

static void test_other_batches_hold_no_slot(void **state)
{
    struct world *world = *state;
    const struct trajd_wire_message good = batch_message(world, 0, NULL),
                                    failed = batch_message(world, 1, "demo.hdf5: unreadable");
    struct trajd_wire_message foreign = batch_message(world, 2, NULL);
    foreign.batch.feed_id += 1;
    trajd_server_send(&world->server, &world->local, &good);
    trajd_server_send(&world->server, &world->remote, &failed);
    trajd_server_send(&world->server, &world->remote, &foreign);
    assert_int_equal(trajd_slot_sends_count(world->feed.slot_sends), 0);
}

static void test_an_invalid_message_is_not_added(void **state)
{
    struct world *world = *state;
    struct trajd_wire_message message = batch_message(world, 0, NULL);
    message.batch.seq = 0; /* numbered from 1 */
    trajd_server_send(&world->server, &world->remote, &message);
    assert_true(trajd_server_outbox_is_empty(&world->server));
    assert_int_equal(trajd_slot_sends_count(world->feed.slot_sends), 0);
}

static void test_taking_swaps_the_outboxes(void **state)
{
    struct world *world = *state;
    const struct trajd_wire_message message = welcome_message();
    trajd_server_send(&world->server, &world->local, &message);
    const size_t size = world->server.outbox.size;
    trajd_server_take_outbox(&world->server);
    assert_int_equal(world->server.sending.size, size);
    assert_true(trajd_server_outbox_is_empty(&world->server));
    trajd_outbox_drop(&world->server.sending);
    assert_false(trajd_server_send_taken(&world->server)); /* nothing to send */
}

static void test_the_thread_is_woken_once(void **state)
{
    struct world *world = *state;
    uint64_t count;
    trajd_server_wake(&world->server);
    trajd_server_wake(&world->server);
    assert_true(world->server.woken);
    assert_int_equal(read(world->server.wake_fd, &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, free_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(test_messages_keep_their_order_and_route),
        WORLD(test_welcome_tells_the_silence_to_remote_workers_only),
        WORLD(test_a_remote_batch_holds_its_slot),
        WORLD(test_other_batches_hold_no_slot),
        WORLD(test_an_invalid_message_is_not_added),
        WORLD(test_taking_swaps_the_outboxes),
        WORLD(test_the_thread_is_woken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
