/* What a client keeps of a lost session, and what it reports to the next daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"
#include "tests/unit/clients/c/bare_client.h"

static struct trajd_client *client;

static int open_client(void **state)
{
    (void)state;
    client = bare_client_create();
    client->carried.pass = 7;
    client->feed.schema = calloc(1, sizeof *client->feed.schema);
    client->feed.schema->references = 1;
    client->feed.info.global_batch = 4;
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    trajd_carried_drop(client);
    trajd_link_destroy(&client->link);
    trajd_client_drop(client);
    return 0;
}

/* The daemon dies after a BATCH has come, and before the ring is mapped: nothing can read the
 * batch, so the client leaves it to other workers. */
static void test_a_batch_without_its_ring_is_not_kept(void **state)
{
    struct trajd_wire_open open = {.request = 1};
    (void)state;
    client->queue.entries[0] = (struct trajd_delivery){.position = 8, .row_count = 4};
    client->queue.count = 1;
    trajd_carried_keep(client);
    trajd_carried_list(client, &open);
    assert_int_equal(open.pass, 7);
    assert_int_equal(open.held.count, 0);
    assert_int_equal(client->queue.count, 0);
}

/* Leases of an earlier daemon mean nothing to this one. */
static void test_a_kept_batch_is_no_lease_in_hello(void **state)
{
    const struct trajd_wire_lease kept = {.ring = 1, .slot = 2, .generation = 1},
                                  leased = {.ring = 1, .slot = 3, .generation = 1};
    struct trajd_wire_message message;
    uint64_t request;
    size_t size = 1;
    (void)state;
    client->queue.entries[0] = (struct trajd_delivery){.lease = kept, .is_carried = true};
    client->queue.entries[1] = (struct trajd_delivery){.lease = leased};
    client->queue.count = 2;
    client->session.is_resuming = true;
    client->name = strdup("worker");
    trajd_session_send_hello(client, 0);
    /* there is no daemon; the message is still in the buffer, and no shorter part of it decodes */
    while (size < TRAJD_WIRE_MAX_FRAME &&
           trajd_wire_decode(client->session.frame, size, client->session.tensors, &message,
                             &request, NULL))
        size++;
    assert_int_equal(message.op, TRAJD_WIRE_HELLO);
    assert_int_equal(message.hello.held.count, 1);
    assert_int_equal(message.hello.held.list[0].slot, 3);
}

/* Puts `count` batches of this session into the caller's hands: positions 0, 4, 8, ... The last one
 * is what next() returned last. */
static void hold(struct trajd_batch *batches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        batches[i] = (struct trajd_batch){.client = client,
                                          .incarnation = client->incarnation,
                                          .lease = {.slot = i},
                                          .held_index = i,
                                          .info = {.position = 4 * i}};
        client->held.batches[i] = &batches[i];
    }
    client->held.count = count;
    client->held.previous = &batches[count - 1];
}

static void test_a_done_names_its_lease_once(void **state)
{
    struct trajd_batch batches[3] = {0};
    const struct trajd_wire_leases *done = &client->ack.pending.done;
    (void)state;
    hold(batches, 3);
    trajd_batch_mark_done(&batches[1]);
    trajd_batch_mark_done(&batches[1]);
    assert_int_equal(done->count, 1);
    assert_int_equal(done->list[0].slot, 1);
    assert_ptr_equal(client->held.previous, &batches[2]); /* next() marks it when it is called */
    trajd_batch_mark_done(&batches[2]);
    assert_null(client->held.previous);
    assert_int_equal(client->held.count, 3); /* DONE is not a release */
    batches[0].is_superseded = true;
    trajd_batch_mark_done(&batches[0]);
    assert_int_equal(done->count, 2);
    /* a later session reports the positions */
    assert_int_equal(client->carried.done.count, 2);
    assert_int_equal(client->carried.done.list[0], 4);
    assert_int_equal(client->carried.done.list[1], 8);
    client->held.count = 0;
}

/* A batch of a lost session has no lease: its DONE is a position, and ends its stay. */
static void test_a_carried_batch_is_done_by_its_position(void **state)
{
    struct trajd_batch batches[3] = {0};
    const struct trajd_wire_opened opened = {.pass = 7, .held = {.count = 2, .list = {0, 8}}};
    struct trajd_wire_open open = {.request = 1};
    (void)state;
    hold(batches, 3);
    trajd_batch_mark_done(&batches[1]);
    trajd_carried_keep(client);
    assert_int_equal(client->ack.pending.done.count, 0);
    trajd_carried_list(client, &open);
    assert_int_equal(open.batch, 4);
    assert_int_equal(open.done.count, 1);
    assert_int_equal(open.done.list[0], 4);
    assert_int_equal(open.held.count, 2);
    assert_int_equal(open.held.list[1], 8);
    trajd_carried_settle(client, &opened);
    assert_int_equal(client->held.count, 2);
    assert_ptr_equal(client->held.previous, &batches[2]);

    trajd_batch_mark_done(&batches[0]);
    trajd_batch_mark_done(&batches[0]);
    assert_int_equal(client->ack.pending.done.count, 0);
    assert_int_equal(client->ack.pending.positions.count, 1);
    assert_int_equal(client->ack.pending.positions.list[0], 0);
    assert_int_equal(client->held.count, 1);
    assert_ptr_equal(client->held.batches[0], &batches[2]);
    assert_int_equal(batches[2].held_index, 0);
    assert_int_equal(batches[0].incarnation, 0);
    assert_ptr_equal(client->held.previous, &batches[2]);
    trajd_batch_mark_done(&batches[2]);
    assert_int_equal(client->held.count, 0);
    assert_null(client->held.previous);
    /* the ACK may be lost: after a reconnect it is said again */
    client->ack.pending.positions.count = 0;
    trajd_carried_report_done(client);
    assert_int_equal(client->ack.pending.positions.count, 2);
}

/* Without reconnection nothing of the session is kept, and next() has nothing to return. */
static void test_a_lost_session_leaves_nothing(void **state)
{
    struct trajd_batch batches[2] = {0};
    const uint32_t incarnation = client->incarnation;
    (void)state;
    hold(batches, 2);
    client->queue.entries[0] = (struct trajd_delivery){.position = 8};
    client->queue.count = client->ack.pending.done.count = client->ack.pending.released.count = 1;
    client->epoch_ended = client->poll_fd_used = client->poll_fd_readable = true;
    trajd_session_clear_batches(client);
    assert_int_equal(client->queue.count, 0);
    assert_int_equal(client->held.count, 0);
    assert_null(client->held.previous);
    assert_int_equal(client->ack.pending.done.count, 0);
    assert_int_equal(client->ack.pending.released.count, 0);
    assert_false(client->epoch_ended);
    assert_false(client->poll_fd_readable);
    assert_int_not_equal(client->incarnation, incarnation);
}

/* The next daemon may have given a batch to another worker, or be in another pass. */
static void test_a_daemon_that_wants_less(void **state)
{
    struct trajd_batch batches[3] = {0};
    struct trajd_wire_opened opened = {.pass = 7, .held = {.count = 2, .list = {4, 16}}};
    (void)state;
    hold(batches, 3);
    client->held.previous = &batches[0];
    client->queue.entries[0] = (struct trajd_delivery){.position = 12, .is_carried = true};
    client->queue.entries[1] = (struct trajd_delivery){.position = 16, .is_carried = true};
    client->queue.count = 2;
    trajd_carried_keep(client);
    assert_int_equal(client->queue.count, 0);
    assert_int_equal(client->carried.waiting_count, 2);
    client->poll_fd_used = true;
    trajd_carried_settle(client, &opened);
    assert_true(client->poll_fd_readable);
    assert_int_equal(client->held.count, 1);
    assert_ptr_equal(client->held.batches[0], &batches[1]);
    assert_int_equal(batches[1].held_index, 0);
    assert_null(client->held.previous);
    assert_int_equal(batches[0].incarnation, 0);
    assert_int_equal(client->queue.count, 1);
    assert_int_equal(client->queue.entries[client->queue.first].position, 16);
    assert_int_equal(client->carried.waiting_count, 0);

    /* the same again: what next() returned last stays that, although others go */
    hold(batches, 3);
    client->held.previous = &batches[1];
    trajd_carried_keep(client);
    trajd_carried_settle(client, &opened);
    assert_ptr_equal(client->held.previous, &batches[1]);

    trajd_batch_mark_done(&batches[1]);
    trajd_carried_keep(client);
    opened = (struct trajd_wire_opened){.pass = 8};
    trajd_carried_settle(client, &opened);
    assert_int_equal(client->carried.pass, 8);
    assert_int_equal(client->carried.done.count, 0);
    assert_int_equal(client->queue.count, 0);
}

/* An OPEN of something else ends the pass. The batches stay readable. */
static void test_the_end_of_a_pass(void **state)
{
    struct trajd_batch batches[3] = {0};
    (void)state;
    hold(batches, 2);
    client->carried.waiting[0] = (struct trajd_delivery){.is_carried = true};
    client->carried.waiting_count = 1;
    client->ack.pending.positions.count = client->carried.kept.count = 1;
    batches[0].is_carried = true;
    trajd_carried_drop(client);
    assert_int_equal(client->held.count, 1);
    assert_ptr_equal(client->held.batches[0], &batches[1]);
    assert_int_equal(batches[1].held_index, 0);
    assert_int_equal(batches[0].incarnation, 0);
    assert_ptr_equal(client->held.previous, &batches[1]);
    assert_int_equal(client->carried.waiting_count, 0);
    assert_int_equal(client->carried.pass, 0);
    assert_int_equal(client->carried.done.count, 0);
    assert_int_equal(client->carried.kept.count, 0);
    assert_int_equal(client->ack.pending.positions.count, 0);
    client->held.count = 0;
}

/* Batches that next() has not returned yet are kept with what reads them. */
static void test_what_waits_is_kept(void **state)
{
    struct trajd_wire_open open = {.request = 1};
    const struct trajd_delivery *waiting = client->carried.waiting;
    (void)state;
    client->queue.first = TRAJD_CLIENT_QUEUE - 1;
    client->queue.count = 2;
    client->queue.entries[TRAJD_CLIENT_QUEUE - 1] =
        (struct trajd_delivery){.position = 8, .failure = strdup("made to fail")};
    client->queue.entries[0] = (struct trajd_delivery){.position = 12};
    client->carried.kept.count = 1;
    client->epoch_ended = client->poll_fd_used = client->poll_fd_readable = true;
    trajd_carried_keep(client);
    assert_int_equal(client->carried.waiting_count, 1);
    assert_true(waiting[0].is_carried);
    assert_ptr_equal(waiting[0].schema, client->feed.schema);
    assert_int_equal(client->feed.schema->references, 2);
    assert_int_equal(client->carried.kept.count, 0);
    assert_false(client->epoch_ended);
    assert_false(client->poll_fd_readable);
    client->carried.pass = 1;
    trajd_carried_list(client, &open);
    assert_int_equal(open.batch, 4);
    assert_int_equal(open.held.count, 1);
    assert_int_equal(open.held.list[0], 8);
    open = (struct trajd_wire_open){.request = 2};
    client->carried.pass = 0; /* nothing is said without a pass */
    trajd_carried_list(client, &open);
    assert_int_equal(open.batch, 0);
    assert_int_equal(open.held.count, 0);
}

/* A client that is closed while batches are held is freed by its I/O thread, after the last one. */
static void test_the_last_batch_of_a_closed_client(void **state)
{
    struct trajd_batch batches[2] = {0};
    (void)state;
    hold(batches, 2);
    client->flush_scheduled = true; /* the ACK wakes nobody */
    client->closing = true;
    trajd_batch_return(&batches[1]);
    assert_false(bare_client_was_signalled(client->io_thread_fd));
    trajd_batch_return(&batches[0]);
    assert_true(bare_client_was_signalled(client->io_thread_fd));
    assert_int_equal(client->ack.pending.released.count, 2);
    assert_int_equal(client->ack.pending.done.count, 0); /* the release is the DONE */
    assert_int_equal(client->carried.done.count, 2);
    assert_int_equal(client->held.count, 0);
}

/* An OPEN names as many batches as fit. */
static void test_more_than_an_open_names(void **state)
{
    struct trajd_batch batches[2] = {0};
    struct trajd_wire_open open = {.request = 1};
    (void)state;
    hold(batches, 2);
    trajd_carried_keep(client);
    client->carried.waiting_count = TRAJD_WIRE_MAX_LEASES;
    for (uint64_t i = 0; i < TRAJD_WIRE_MAX_LEASES; i++)
        client->carried.waiting[i] = (struct trajd_delivery){.position = 100 + i};
    trajd_carried_list(client, &open);
    assert_int_equal(open.held.count, TRAJD_WIRE_MAX_LEASES);
    assert_int_equal(open.held.list[0], 0);
    assert_int_equal(open.held.list[TRAJD_WIRE_MAX_LEASES - 1], 100 + TRAJD_WIRE_MAX_LEASES - 3);
    client->carried.waiting_count = 0;
}

/* A later OPEN ended the epoch of the batch that next() returned last. */
static void test_the_previous_batch_of_another_epoch(void **state)
{
    struct trajd_batch batches[2] = {0};
    (void)state;
    hold(batches, 2);
    batches[1].is_superseded = true;
    trajd_carried_keep(client);
    assert_int_equal(client->held.count, 1);
    assert_null(client->held.previous);
}

/* The list of what is DONE keeps the last ones. */
static void test_a_long_pass(void **state)
{
    const struct trajd_wire_positions *done = &client->carried.done;
    (void)state;
    for (uint64_t i = 0; i < TRAJD_WIRE_MAX_LEASES + 2; i++)
        trajd_carried_note_done(client, i);
    assert_int_equal(done->count, TRAJD_WIRE_MAX_LEASES);
    assert_int_equal(done->list[0], 2);
    assert_int_equal(done->list[TRAJD_WIRE_MAX_LEASES - 1], TRAJD_WIRE_MAX_LEASES + 1);
    client->carried.pass = 0;
    trajd_carried_note_done(client, 9);
    assert_int_equal(done->list[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_without_its_ring_is_not_kept, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_kept_batch_is_no_lease_in_hello, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_done_names_its_lease_once, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_carried_batch_is_done_by_its_position, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_lost_session_leaves_nothing, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_daemon_that_wants_less, open_client, close_client),
        cmocka_unit_test_setup_teardown(test_the_end_of_a_pass, open_client, close_client),
        cmocka_unit_test_setup_teardown(test_what_waits_is_kept, open_client, close_client),
        cmocka_unit_test_setup_teardown(test_the_last_batch_of_a_closed_client, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_more_than_an_open_names, open_client, close_client),
        cmocka_unit_test_setup_teardown(test_the_previous_batch_of_another_epoch, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_long_pass, open_client, close_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
