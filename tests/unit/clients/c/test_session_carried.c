/* What a client keeps of a lost session, and what it reports to the next daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

/* The daemon dies after a BATCH has come, and before the ring is mapped: nothing can read the batch,
 * so the client leaves it to other workers. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_without_its_ring_is_not_kept, open_client,
                                        close_client),
        cmocka_unit_test_setup_teardown(test_a_kept_batch_is_no_lease_in_hello, open_client,
                                        close_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
