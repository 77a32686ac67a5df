/* Sessions that return to the daemon that they had: what their HELLO says about each lease. */
#include <string.h>

#include "core_world.h"

static struct world *world;
static uint64_t session;
static struct trajd_wire_batch batches[8]; /* by number of arrival */

/* Makes a session that got `count` batches in `slots` slots. */
static void set_up(uint32_t slots, uint32_t count)
{
    struct trajd_core_feed_options options = default_options();
    struct trajd_wire_open open;

    options.slot_count = slots;
    world = make(&options);
    session = greet(world);
    open = make_open(world, 0);
    open.credit = 4;
    assert_int_equal(open_with(world, session, open), TRAJD_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(publish(world, take(world)));
        batches[i] = last_sent(world, TRAJD_WIRE_BATCH)->batch;
        assert_int_equal(batches[i].position, 4 * i);
    }
    world->sent_count = 0;
}

static struct trajd_wire_lease lease_of(uint32_t batch)
{
    return (struct trajd_wire_lease){batches[batch].ring, batches[batch].slot,
                                     batches[batch].generation, batches[batch].part};
}

/* The session's HELLO, after `received` batches. */
static struct trajd_wire_hello make_hello(uint64_t received)
{
    return (struct trajd_wire_hello){.client = {"c", 1},
                                     .pid = 99,
                                     .has_token = true,
                                     .token = {1},
                                     .instance = 5,
                                     .received = received};
}

static bool resume(const struct trajd_wire_hello *hello)
{
    const uint8_t fresh[TRAJD_WIRE_TOKEN_SIZE] = {77};
    uint64_t id = 0;
    void *replaced;
    bool resumed;

    assert_int_equal(trajd_core_hello(world->core, hello, fresh, NULL, world->now_ns, &id, &resumed,
                                      &replaced, NULL),
                     TRAJD_OK);
    trajd_core_welcome(world->core, id, hello, world->now_ns);
    assert_int_equal(id == session, resumed);
    assert_int_equal(last_sent(world, TRAJD_WIRE_WELCOME)->welcome.resumed, resumed);
    return resumed;
}

static uint32_t count_held(void)
{
    struct trajd_core_session_info info;

    assert_true(trajd_core_session_info(world->core, 0, &info));
    return info.held;
}

/* Of four batches the session has received three: it holds one, has finished one that it holds, and
 * has released one. The ACKs of that, and the fourth batch, were lost. */
static void test_each_lease_is_settled(void **state)
{
    struct trajd_wire_hello hello = make_hello(3);

    (void)state;
    set_up(5, 4);
    hello.held.count = 2;
    hello.held.list[0] = lease_of(0);
    hello.held.list[1] = lease_of(2);
    hello.done.count = 1;
    hello.done.list[0] = lease_of(2);
    assert_true(resume(&hello));
    assert_int_equal(count_sent(world, TRAJD_WIRE_OPENED), 1);
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 1);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.position, 12);
    assert_int_equal(last_sent(world, TRAJD_WIRE_BATCH)->batch.seq, batches[3].seq);
    assert_int_equal(stats_of(world).batches_done, 2);
    assert_int_equal(stats_of(world).late_acks, 0);
    assert_int_equal(stats_of(world).resumed_sessions, 1);
    assert_int_equal(count_held(), 3);
    release(world, session, batches[0]);
    assert_int_equal(stats_of(world).batches_done, 3);
    destroy(world);
}

/* Only a lease that agrees in all its numbers is the session's. */
static void test_other_leases_do_not_count(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) {
        struct trajd_wire_hello hello = make_hello(2);
        struct trajd_wire_lease *lease = &hello.held.list[1];
        set_up(5, 2);
        hello.held.count = 2;
        hello.held.list[0] = lease_of(0);
        *lease = lease_of(1);
        lease->ring += wrong == 0;
        lease->slot += wrong == 1;
        lease->generation += wrong == 2;
        lease->part += wrong == 3;
        assert_true(resume(&hello));
        assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 0);
        assert_int_equal(count_held(), 1);
        assert_int_equal(stats_of(world).batches_done, 1);
        assert_int_equal(stats_of(world).late_acks, 1);
        destroy(world);
    }
}

/* Batches that the session lacks are sent again in their order, wherever they lie. */
static void test_the_order_stays(void **state)
{
    const struct trajd_wire_hello hello = make_hello(1);

    (void)state;
    set_up(3, 3);
    release(world, session, batches[0]);
    assert_true(publish(world, take(world)));
    batches[3] = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    assert_int_equal(batches[3].slot, batches[0].slot);
    world->sent_count = 0;
    assert_true(resume(&hello));
    assert_int_equal(count_sent(world, TRAJD_WIRE_BATCH), 3);
    for (uint32_t i = 0, next = 1; i < world->sent_count; i++)
        if (world->sent[i].message.op == TRAJD_WIRE_BATCH)
            assert_int_equal(world->sent[i].message.batch.position, 4 * next++);
    assert_int_equal(count_held(), 3);
    destroy(world);
}

/* Another token, or that of another daemon's life, makes a new session. */
static void test_a_session_of_another_daemon(void **state)
{
    struct trajd_wire_hello hello = make_hello(2);

    (void)state;
    set_up(3, 2);
    hello.instance++;
    assert_false(resume(&hello));
    hello = make_hello(2);
    hello.token[3] = 1;
    assert_false(resume(&hello));
    hello = make_hello(2);
    hello.has_token = false;
    assert_false(resume(&hello));
    assert_int_equal(count_sent(world, TRAJD_WIRE_OPENED), 0);
    assert_int_equal(count_held(), 2);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_lease_is_settled),
        cmocka_unit_test(test_other_leases_do_not_count),
        cmocka_unit_test(test_the_order_stays),
        cmocka_unit_test(test_a_session_of_another_daemon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
