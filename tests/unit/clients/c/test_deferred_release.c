/* Releases of batches on a GPU: which leases go back, when, and in which order. The GPU is a table
 * of streams in this file, which takes the place of cuda.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/batch_internal.h"
#include "proto/array_len.h"
#include "tests/unit/clients/c/bare_client.h"

/* ---- the GPU ---- */

#define STREAMS 16

static struct {
    bool busy, captured, broken;
    uint32_t busy_queries; /* becomes idle after so many queries; 0: only by hand */
} streams[STREAMS];
static int events_alive, contexts_closed;
static struct trajd_cuda *const gpu = (struct trajd_cuda *)&streams;

enum trajd_cuda_progress trajd_cuda_record_event(const struct trajd_cuda *cuda, void **event,
                                                 uintptr_t stream)
{
    (void)cuda;
    assert_null(*event);
    if (streams[stream].captured)
        return TRAJD_CUDA_CAPTURED;
    if (streams[stream].broken)
        return TRAJD_CUDA_UNTRACKED;
    uintptr_t *recorded = malloc(sizeof *recorded);
    *recorded = stream;
    *event = recorded;
    events_alive++;
    return TRAJD_CUDA_PENDING;
}

enum trajd_cuda_progress trajd_cuda_query_event(const struct trajd_cuda *cuda, void *event)
{
    (void)cuda;
    const uintptr_t stream = *(uintptr_t *)event;
    if (streams[stream].busy_queries > 0 && --streams[stream].busy_queries == 0)
        streams[stream].busy = false;
    return streams[stream].busy ? TRAJD_CUDA_PENDING : TRAJD_CUDA_COMPLETED;
}

enum trajd_cuda_progress trajd_cuda_synchronize(const struct trajd_cuda *cuda)
{
    (void)cuda;
    for (size_t i = 0; i < STREAMS; i++)
        if (streams[i].captured)
            return TRAJD_CUDA_CAPTURED;
    for (size_t i = 0; i < STREAMS; i++)
        streams[i].busy = false;
    return TRAJD_CUDA_COMPLETED;
}

void trajd_cuda_destroy_event(const struct trajd_cuda *cuda, void *event)
{
    (void)cuda;
    events_alive -= event != NULL;
    free(event);
}

void trajd_cuda_close(struct trajd_cuda **cuda)
{
    contexts_closed += *cuda != NULL;
    *cuda = NULL;
}

int trajd_cuda_ordinal(const struct trajd_cuda *cuda)
{
    (void)cuda;
    return 0;
}

/* mapping.c and batch.c refer to these. No test calls them. */
enum trajd_status trajd_cuda_uuid(int ordinal, char uuid[TRAJD_CUDA_UUID_SIZE],
                                  struct trajd_error *error)
{
    (void)ordinal, (void)uuid, (void)error;
    abort();
}

enum trajd_status trajd_cuda_open(const char *uuid, struct trajd_cuda **cuda,
                                  struct trajd_error *error)
{
    (void)uuid, (void)cuda, (void)error;
    abort();
}

enum trajd_status trajd_cuda_map(const struct trajd_cuda *cuda, const void *handle,
                                 size_t handle_size_bytes, void **memory, struct trajd_error *error)
{
    (void)cuda, (void)handle, (void)handle_size_bytes, (void)memory, (void)error;
    abort();
}

void trajd_cuda_unmap(const struct trajd_cuda *cuda, void *memory)
{
    (void)cuda, (void)memory;
    abort();
}

enum trajd_status trajd_cuda_check_extent(const struct trajd_cuda *cuda, const void *memory,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          struct trajd_error *error)
{
    (void)cuda, (void)memory, (void)offset_bytes, (void)size_bytes, (void)error;
    abort();
}

enum trajd_status trajd_cuda_read(const struct trajd_cuda *cuda, void *to, const void *from,
                                  size_t size_bytes, struct trajd_error *error)
{
    (void)cuda, (void)to, (void)from, (void)size_bytes, (void)error;
    abort();
}

/* ---- a client with a feed on it ---- */

static struct trajd_client *client;
static struct trajd_mapping *mapping;

static int open_client(void **state)
{
    (void)state;
    const struct trajd_wire_opened opened = {.batch = 4, .slot_size_bytes = 4096};
    memset(streams, 0, sizeof streams);
    events_alive = contexts_closed = 0;
    client = bare_client_create();
    mapping = calloc(1, sizeof *mapping);
    mapping->gpu = gpu;
    mapping->terms.is_device = true;
    mapping->references = 1;
    client->feed.mapping = mapping;
    client->feed.info.credit = 16;
    return trajd_schema_create(&opened, &client->feed.schema, NULL);
}

static int close_client(void **state)
{
    (void)state;
    memset(streams, 0, sizeof streams); /* a test that failed may leave one busy */
    trajd_deferred_end(client);
    trajd_mapping_drop(client->feed.mapping);
    trajd_link_destroy(&client->link);
    trajd_client_drop(client);
    return events_alive;
}

/* Returns what next() would: a batch with lease slot == sequence. */
static struct trajd_batch *deliver(uint32_t sequence)
{
    const struct trajd_delivery delivery = {.lease = {.slot = sequence}, .sequence = sequence};
    struct trajd_batch *batch = trajd_batch_create(client, &delivery);
    batch->incarnation = client->incarnation;
    batch->held_index = client->held.count;
    client->held.batches[client->held.count++] = batch;
    return batch;
}

static struct trajd_batch *deliver_on(uint32_t sequence, uintptr_t stream)
{
    struct trajd_batch *batch = deliver(sequence);
    assert_int_equal(trajd_batch_use_stream(batch, stream, NULL), TRAJD_OK);
    streams[stream].busy = true;
    return batch;
}

static void assert_leases(const struct trajd_wire_leases *leases, uint32_t count,
                          const uint32_t *slots)
{
    assert_int_equal(leases->count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(leases->list[i].slot, slots[i]);
}

static void assert_released(uint32_t count, const uint32_t *slots)
{
    assert_leases(&client->ack.pending.released, count, slots);
}

/* ---- the order ---- */

static void test_a_batch_without_streams_goes_back_at_once(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver(1);
    trajd_batch_release(&batch);
    assert_null(batch);
    assert_released(1, (uint32_t[]){1});
    assert_int_equal(client->held.count, 0);
    assert_null(client->deferred.first);
    assert_true(bare_client_was_signalled(client->io_thread_fd));
}

/* The thread in next() sends the DONE, and the I/O thread queries the stream. */
static void test_a_deferred_release_wakes_both_threads(void **state)
{
    (void)state;
    client->next_sleeps = true;
    struct trajd_batch *batch = deliver_on(1, 3);
    trajd_batch_release(&batch);
    assert_true(bare_client_was_signalled(client->wake_fd));
    assert_true(bare_client_was_signalled(client->io_thread_fd));
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
}

/* next() refuses more batches than the credit. Each way to give one back allows it again. */
static void test_the_poll_descriptor_follows_what_is_held(void **state)
{
    void (*const ways[])(struct trajd_batch **) = {trajd_batch_release, trajd_batch_abandon};
    (void)state;
    client->feed.info.credit = 1;
    client->poll_fd_used = true;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct trajd_batch *batch = deliver((uint32_t)i);
        trajd_client_update_poll_fd(client);
        assert_true(client->poll_fd_readable);
        ways[i](&batch);
        assert_false(client->poll_fd_readable);
    }
    struct trajd_batch *busy = deliver_on(2, 3); /* released, but its lease is still held */
    trajd_client_update_poll_fd(client);
    assert_true(client->poll_fd_readable);
    trajd_batch_release(&busy);
    assert_int_equal(client->held.count, 1);
    assert_false(client->poll_fd_readable);
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
    struct trajd_batch *carried = deliver(3);
    carried->is_carried = true; /* its DONE ends its stay */
    trajd_client_update_poll_fd(client);
    assert_true(client->poll_fd_readable);
    trajd_batch_done(carried);
    assert_false(client->poll_fd_readable);
    trajd_batch_release(&carried);
}

static void test_a_done_is_sent_without_a_release(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver(1);
    trajd_batch_done(batch);
    assert_leases(&client->ack.pending.done, 1, (uint32_t[]){1});
    assert_released(0, NULL);
    assert_true(bare_client_was_signalled(client->io_thread_fd));
    trajd_batch_release(&batch);
}

static void test_a_busy_stream_defers_the_release_only(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    trajd_batch_release(&batch);
    assert_leases(&client->ack.pending.done, 1, (uint32_t[]){1}); /* it is worked on */
    assert_released(0, NULL);
    assert_int_equal(trajd_deferred_count(client), 1);
    assert_true(trajd_deferred_collect(client));
    assert_released(0, NULL);
    assert_int_equal(events_alive, 1);
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(1, (uint32_t[]){1});
    assert_leases(&client->ack.pending.done, 1, (uint32_t[]){1}); /* once */
    assert_int_equal(client->held.count, 0);
    assert_int_equal(events_alive, 0);
    assert_false(trajd_deferred_collect(client));
}

static void test_finished_batches_go_back_in_release_order(void **state)
{
    (void)state;
    struct trajd_batch *batches[] = {deliver_on(1, 3), deliver_on(2, 4), deliver_on(3, 5)};
    trajd_batch_release(&batches[1]);
    trajd_batch_release(&batches[0]);
    trajd_batch_release(&batches[2]);
    streams[3].busy = streams[4].busy = streams[5].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(3, (uint32_t[]){2, 1, 3});
}

static void test_a_later_batch_does_not_wait_for_an_earlier_one(void **state)
{
    (void)state;
    struct trajd_batch *batches[] = {deliver_on(1, 3), deliver_on(2, 4), deliver_on(3, 5)};
    for (size_t i = 0; i < 3; i++)
        trajd_batch_release(&batches[i]);
    streams[5].busy = false; /* the last of the list */
    assert_true(trajd_deferred_collect(client));
    assert_released(1, (uint32_t[]){3});
    struct trajd_batch *fourth = deliver_on(4, 6); /* the list's end is still right */
    trajd_batch_release(&fourth);
    streams[3].busy = streams[4].busy = streams[6].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(4, (uint32_t[]){3, 1, 2, 4});
}

static void test_all_streams_of_a_batch_have_to_finish(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    assert_int_equal(trajd_batch_use_stream(batch, 4, NULL), TRAJD_OK);
    streams[4].busy = true;
    trajd_batch_release(&batch);
    assert_int_equal(events_alive, 2);
    streams[4].busy = false;
    assert_true(trajd_deferred_collect(client));
    assert_int_equal(events_alive, 1);
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(1, (uint32_t[]){1});
}

/* ---- batches whose lease does not go back ---- */

static void test_an_abandoned_batch_is_not_acknowledged(void **state)
{
    (void)state;
    struct trajd_batch *idle = deliver(1), *busy = deliver_on(2, 3);
    trajd_batch_abandon(&idle);
    trajd_batch_abandon(&busy);
    assert_int_equal(client->held.count, 0);
    assert_int_equal(trajd_deferred_count(client), 0); /* no credit waits for it */
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(0, NULL);
    assert_int_equal(client->ack.pending.done.count, 0);
}

static void test_batches_of_an_earlier_session_are_not_acknowledged(void **state)
{
    (void)state;
    struct trajd_batch *deferred = deliver_on(1, 3), *held = deliver_on(2, 4);
    trajd_batch_release(&deferred);
    client->incarnation++; /* as trajd_session_clear_batches does */
    client->held.count = client->ack.pending.done.count = 0;
    trajd_batch_done(held);
    trajd_batch_release(&held);
    assert_int_equal(trajd_deferred_count(client), 0);
    streams[3].busy = streams[4].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(0, NULL);
    assert_int_equal(client->ack.pending.done.count, 0);
}

static void test_a_forked_child_releases_nothing(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver(1), *same = batch;
    client->pid = getpid() + 1;
    trajd_batch_done(batch);
    trajd_batch_release(&batch);
    assert_null(batch);
    assert_released(0, NULL);
    client->pid = getpid();
    trajd_batch_release(&same);
    assert_released(1, (uint32_t[]){1});
}

/* ---- streams that cannot be queried ---- */

static void test_a_captured_stream_is_recorded_after_the_capture(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    streams[3].captured = true;
    trajd_batch_release(&batch);
    assert_true(trajd_deferred_collect(client));
    assert_int_equal(events_alive, 0);
    streams[3].captured = false;
    assert_true(trajd_deferred_collect(client)); /* records */
    assert_int_equal(events_alive, 1);
    streams[3].busy = false;
    assert_false(trajd_deferred_collect(client));
    assert_released(1, (uint32_t[]){1});
}

static void test_an_untracked_stream_needs_a_synchronized_context(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    streams[3].broken = true;
    trajd_batch_release(&batch);
    streams[3].busy = false;
    assert_true(trajd_deferred_collect(client)); /* not known */
    streams[7].captured = true;
    trajd_deferred_synchronize(client); /* refused while a graph is captured */
    assert_true(trajd_deferred_collect(client));
    streams[7].captured = false;
    trajd_deferred_synchronize(client);
    assert_false(trajd_deferred_collect(client));
    assert_released(1, (uint32_t[]){1});
}

static void *use_default_stream(void *batch)
{
    trajd_batch_use_stream(batch, 2, NULL);
    return NULL;
}

static void test_default_streams_of_two_threads_are_untracked(void **state)
{
    (void)state;
    pthread_t thread;
    struct trajd_batch *batch = deliver_on(1, 2);
    assert_int_equal(trajd_batch_use_stream(batch, 2, NULL), TRAJD_OK);
    assert_false(batch->is_untracked); /* the same thread again */
    assert_int_equal(pthread_create(&thread, NULL, use_default_stream, batch), 0);
    pthread_join(thread, NULL);
    assert_true(batch->is_untracked);
    assert_int_equal(batch->stream_count, 1);
    trajd_batch_release(&batch);
    streams[2].busy = false;
    assert_true(trajd_deferred_collect(client));
    trajd_deferred_synchronize(client);
    assert_false(trajd_deferred_collect(client));
}

static void test_a_batch_has_eight_streams_at_most(void **state)
{
    (void)state;
    struct trajd_error error;
    struct trajd_batch *batch = deliver(1);
    for (uintptr_t stream = 3; stream < 3 + TRAJD_BATCH_MAX_STREAMS; stream++)
        assert_int_equal(trajd_batch_use_stream(batch, stream, &error), TRAJD_OK);
    assert_int_equal(trajd_batch_use_stream(batch, 3, &error), TRAJD_OK); /* named already */
    assert_int_equal(trajd_batch_use_stream(batch, 12, &error), TRAJD_ERR_MEMORY);
    assert_non_null(strstr(error.message, "8 streams"));
    trajd_batch_release(&batch);
    assert_int_equal(trajd_deferred_collect(client), false);
}

/* ---- the end of a session ---- */

static void test_after_the_end_a_release_waits_itself(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    trajd_deferred_end(client);
    streams[3].busy_queries = 3;
    trajd_batch_release(&batch);
    assert_false(streams[3].busy); /* it was waited for */
    assert_int_equal(events_alive, 0);
    assert_int_equal(mapping->references, 1);
}

/* The captured graph refers to the memory, which therefore stays mapped. */
static void test_after_the_end_a_captured_batch_stays_mapped(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver_on(1, 3);
    trajd_deferred_end(client);
    streams[3].captured = true;
    trajd_batch_release(&batch);
    assert_int_equal(mapping->references, 2);
    trajd_mapping_drop(mapping);
}

/* ---- bursts ---- */

static void test_releases_wait_while_there_is_other_work(void **state)
{
    (void)state;
    struct trajd_batch *batches[] = {deliver(1), deliver(2), deliver_on(3, 3), deliver_on(4, 4)};
    client->queue.count = 1;
    trajd_batch_release(&batches[2]); /* deferred: the GPU has yet to work on it */
    trajd_batch_release(&batches[0]);
    const uint64_t wait_ns = trajd_release_burst_ns(client);
    assert_true(wait_ns > 0 && wait_ns <= 100 * TRAJD_NS_PER_MS);
    trajd_batch_release(&batches[1]);
    assert_int_equal(trajd_release_burst_ns(client), 0); /* half: 2 of 1 queued and 1 ahead */
    client->ack.pending.released.count = 1;
    assert_true(trajd_release_burst_ns(client) > 0);
    client->ack.burst_since_ns -= 100 * TRAJD_NS_PER_MS; /* old enough */
    assert_int_equal(trajd_release_burst_ns(client), 0);
    client->queue.count = 0;
    streams[3].busy = streams[4].busy = false;
    trajd_batch_release(&batches[3]);
    trajd_deferred_collect(client);
}

static void test_releases_do_not_wait_without_other_work(void **state)
{
    (void)state;
    struct trajd_batch *batch = deliver(1);
    trajd_batch_release(&batch);
    assert_int_equal(trajd_release_burst_ns(client), 0); /* nothing is queued */
    client->queue.count = 8;
    assert_true(trajd_release_burst_ns(client) > 0);
    client->closing = true;
    assert_int_equal(trajd_release_burst_ns(client), 0);
    client->queue.count = 0;
}

static void test_a_batch_that_was_overtaken_is_no_other_work(void **state)
{
    (void)state;
    struct trajd_batch *first = deliver_on(1, 3), *second = deliver(2);
    trajd_batch_release(&first);
    trajd_batch_release(&second);
    assert_int_equal(trajd_deferred_count(client), 1);
    assert_int_equal(trajd_release_burst_ns(client), 0); /* the GPU is past it already */
    streams[3].busy = false;
}

static void test_the_pause_grows_between_its_limits(void **state)
{
    (void)state;
    client->deferred.changed_ns = trajd_client_now_ns();
    assert_int_equal(trajd_deferred_pause_ns(client), 50000);
    client->deferred.changed_ns = trajd_client_now_ns() - 1000 * TRAJD_NS_PER_MS;
    assert_int_equal(trajd_deferred_pause_ns(client), 1000000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_batch_without_streams_goes_back_at_once),
        TEST(test_a_deferred_release_wakes_both_threads),
        TEST(test_the_poll_descriptor_follows_what_is_held),
        TEST(test_a_done_is_sent_without_a_release),
        TEST(test_a_busy_stream_defers_the_release_only),
        TEST(test_finished_batches_go_back_in_release_order),
        TEST(test_a_later_batch_does_not_wait_for_an_earlier_one),
        TEST(test_all_streams_of_a_batch_have_to_finish),
        TEST(test_an_abandoned_batch_is_not_acknowledged),
        TEST(test_batches_of_an_earlier_session_are_not_acknowledged),
        TEST(test_a_forked_child_releases_nothing),
        TEST(test_a_captured_stream_is_recorded_after_the_capture),
        TEST(test_an_untracked_stream_needs_a_synchronized_context),
        TEST(test_default_streams_of_two_threads_are_untracked),
        TEST(test_a_batch_has_eight_streams_at_most),
        TEST(test_after_the_end_a_release_waits_itself),
        TEST(test_after_the_end_a_captured_batch_stays_mapped),
        TEST(test_releases_wait_while_there_is_other_work),
        TEST(test_releases_do_not_wait_without_other_work),
        TEST(test_a_batch_that_was_overtaken_is_no_other_work),
        TEST(test_the_pause_grows_between_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
