/* The state at the bottom of a client: texts for messages, lists of leases, the poll descriptor and
 * which thread is woken to send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/array_len.h"
#include "tests/unit/clients/c/bare_client.h"

static struct trajd_client *client;

static int open_client(void **state)
{
    (void)state;
    client = bare_client_create();
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    trajd_link_destroy(&client->link);
    trajd_client_drop(client);
    return 0;
}

static void test_good_texts(void **state)
{
    (void)state;
    assert_int_equal(trajd_client_check_text("job", NULL, 0, NULL), TRAJD_OK);
    assert_int_equal(trajd_client_check_text("job", "", 0, NULL), TRAJD_OK);
    assert_int_equal(trajd_client_check_text("job", "main", 4, NULL), TRAJD_OK);
    assert_int_equal(trajd_client_check_text("job", "Grüße \xf0\x9f\xa4\x96", 32, NULL), TRAJD_OK);
}

static void test_bad_texts(void **state)
{
    (void)state;
    struct trajd_error error;
    assert_int_equal(trajd_client_check_text("job", "mains", 4, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "job: \"mains"));
    const char *const bad[] = {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(trajd_client_check_text("job", bad[i], 32, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "byte 2"));
    }
}

static void test_a_full_list_takes_no_lease(void **state)
{
    (void)state;
    struct trajd_wire_leases *leases = calloc(1, sizeof *leases);
    for (uint32_t i = 0; i < TRAJD_WIRE_MAX_LEASES + 1; i++)
        trajd_leases_append(leases, &(struct trajd_wire_lease){.slot = i});
    assert_int_equal(leases->count, TRAJD_WIRE_MAX_LEASES);
    assert_int_equal(leases->list[TRAJD_WIRE_MAX_LEASES - 1].slot, TRAJD_WIRE_MAX_LEASES - 1);
    free(leases);
}

static bool is_readable_now(void)
{
    trajd_client_update_poll_fd(client);
    return client->poll_fd_readable;
}

static void test_the_poll_descriptor_follows_the_state(void **state)
{
    (void)state;
    client->queue.count = 1;
    assert_false(is_readable_now()); /* not used: saves a system call for each batch */
    client->poll_fd_used = true;
    assert_true(is_readable_now());
    assert_true(bare_client_was_signalled(client->poll_fd)); /* the user must not read it */
    client->queue.count = 0;
    assert_false(is_readable_now()); /* and if it did, nothing breaks */
    client->epoch_ended = true;
    assert_true(is_readable_now());
    client->epoch_ended = false;
    client->is_over = true;
    assert_true(is_readable_now());
    client->is_over = false;
    assert_false(is_readable_now());
    assert_false(bare_client_was_signalled(client->poll_fd));
    client->feed.info.credit = 2;
    client->held.count = 2; /* next() would return TRAJD_ERR_BUSY */
    assert_true(is_readable_now());
    client->held.count = 1;
    assert_false(is_readable_now());
    client->held.count = 0;
}

/* The first call finds what came before, and the I/O thread learns that it has to receive. */
static void test_the_poll_descriptor_of_a_waiting_batch(void **state)
{
    (void)state;
    client->queue.count = 1;
    assert_int_equal(trajd_client_poll_fd(client), client->poll_fd);
    assert_true(bare_client_was_signalled(client->poll_fd));
    assert_true(bare_client_was_signalled(client->io_thread_fd));
    client->queue.count = 0;
}

static void test_one_thread_is_woken_to_send(void **state)
{
    (void)state;
    client->next_sleeps = true;
    trajd_client_wake_sender(client);
    assert_true(bare_client_was_signalled(client->wake_fd));
    assert_false(bare_client_was_signalled(client->io_thread_fd));
    client->next_sleeps = false;
    trajd_client_wake_sender(client);
    assert_false(bare_client_was_signalled(client->wake_fd));
    assert_true(bare_client_was_signalled(client->io_thread_fd));
    trajd_client_wake_sender(client); /* scheduled already */
    assert_false(bare_client_was_signalled(client->io_thread_fd));
}

static void test_a_forked_child_is_refused(void **state)
{
    (void)state;
    struct trajd_error error;
    assert_int_equal(trajd_client_check_process(client, &error), TRAJD_OK);
    assert_false(trajd_client_is_forked(client));
    client->pid = getpid() + 1;
    assert_int_equal(trajd_client_check_process(client, &error), TRAJD_ERR_ARGUMENT);
    assert_true(trajd_client_is_forked(client));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_good_texts),
        TEST(test_bad_texts),
        TEST(test_a_full_list_takes_no_lease),
        TEST(test_the_poll_descriptor_follows_the_state),
        TEST(test_the_poll_descriptor_of_a_waiting_batch),
        TEST(test_one_thread_is_woken_to_send),
        TEST(test_a_forked_child_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
