/* Slots whose bytes are being sent: the segments of a payload, and the counts of send
 * references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/slot_sends.h"

/* A ring of 3 slots with the tensors [6] i64 and [6, 2, 5] u8. */
static struct trajd_slot_sends *make_slot_sends(int wake_fd)
{
    struct trajd_error error;
    struct trajd_server_ring ring;
    assert_int_equal(trajd_server_ring_create(&ring, 3, 4096, true, &error), TRAJD_OK);
    const struct trajd_wire_tensor tensors[] = {
        {.dtype = TRAJD_I64, .rank = 1, .shape = {6}, .offset_bytes = 64},
        {.dtype = TRAJD_U8, .rank = 3, .shape = {6, 2, 5}, .offset_bytes = 128}};
    struct trajd_slot_sends *slot_sends = trajd_slot_sends_create(&ring, tensors, 2, wake_fd);
    assert_non_null(slot_sends);
    assert_int_equal(ring.fd, -1); /* slot_sends owns it now */
    return slot_sends;
}

static void test_a_payload_has_the_rows_of_every_tensor(void **state)
{
    (void)state;
    struct trajd_payload_segment segments[2];
    struct trajd_slot_sends *slot_sends = make_slot_sends(-1);
    unsigned char *slot = trajd_server_ring_slot(&slot_sends->ring, 2);
    assert_int_equal(trajd_slot_sends_payload(slot_sends, 2, 2, 3, segments), 2);
    assert_ptr_equal(segments[0].data, slot + 64 + 16);
    assert_int_equal(segments[0].size_bytes, 24);
    assert_int_equal(segments[0].zeros, 40);
    assert_ptr_equal(segments[1].data, slot + 128 + 20);
    assert_int_equal(segments[1].size_bytes, 30);
    assert_int_equal(segments[1].zeros, 34);
    assert_int_equal(trajd_slot_sends_payload(slot_sends, 2, 6, 0, segments), 0);
    trajd_slot_sends_drop(&slot_sends);
    assert_null(slot_sends);
}

static void test_a_slot_is_in_use_until_its_last_reference_returns(void **state)
{
    (void)state;
    struct trajd_slot_sends *slot_sends = make_slot_sends(-1);
    unsigned char *slot = trajd_server_ring_slot(&slot_sends->ring, 2);
    trajd_slot_sends_acquire(slot_sends, 2);
    trajd_slot_sends_acquire(slot_sends, 2);
    assert_int_equal(trajd_slot_sends_count(slot_sends), 1);
    assert_true(trajd_slot_sends_is_in_use(slot_sends, 2));
    assert_false(trajd_slot_sends_is_in_use(slot_sends, 1));
    trajd_slot_sends_release(slot + 4095, slot_sends); /* any byte of the slot */
    assert_false(trajd_slot_sends_take_returned(slot_sends));
    trajd_slot_sends_return(slot_sends, 2);
    assert_true(trajd_slot_sends_take_returned(slot_sends));
    assert_false(trajd_slot_sends_take_returned(slot_sends));
    assert_false(trajd_slot_sends_is_in_use(slot_sends, 2));
    assert_int_equal(trajd_slot_sends_count(slot_sends), 0);
    trajd_slot_sends_drop(&slot_sends);
}

static void test_a_return_wakes_only_if_a_taker_waits(void **state)
{
    (void)state;
    uint64_t count;
    int wake_fd = eventfd(0, EFD_NONBLOCK);
    struct trajd_slot_sends *slot_sends = make_slot_sends(wake_fd);
    trajd_slot_sends_acquire(slot_sends, 1);
    trajd_slot_sends_return(slot_sends, 1);
    assert_int_equal(read(wake_fd, &count, sizeof count), -1);
    trajd_slot_sends_acquire(slot_sends, 1);
    assert_true(trajd_slot_sends_is_in_use(slot_sends, 1));
    trajd_slot_sends_return(slot_sends, 1);
    assert_int_equal(read(wake_fd, &count, sizeof count), sizeof count);
    trajd_slot_sends_drop(&slot_sends);
    close(wake_fd);
}

static void test_the_memory_outlives_its_feed(void **state)
{
    (void)state;
    struct trajd_slot_sends *slot_sends = make_slot_sends(-1);
    unsigned char *slot = trajd_server_ring_slot(&slot_sends->ring, 0);
    trajd_slot_sends_acquire(slot_sends, 0);
    struct trajd_slot_sends *kept = slot_sends;
    trajd_slot_sends_drop(&slot_sends);
    slot[0] = 1; /* still mapped */
    trajd_slot_sends_return(kept, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_payload_has_the_rows_of_every_tensor),
        cmocka_unit_test(test_a_slot_is_in_use_until_its_last_reference_returns),
        cmocka_unit_test(test_a_return_wakes_only_if_a_taker_waits),
        cmocka_unit_test(test_the_memory_outlives_its_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
