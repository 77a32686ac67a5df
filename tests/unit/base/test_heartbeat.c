/* A thread's watch: turns, waits and cancel as others see them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/heartbeat.h"

#define LIMIT_NS INT64_C(1000000000)

static int64_t later(const struct trajd_heartbeat *heartbeat)
{
    return heartbeat->last_turn_ns + LIMIT_NS + 1;
}

static void test_turns(void **state)
{
    struct trajd_heartbeat heartbeat = {0};

    (void)state;
    assert_false(trajd_heartbeat_is_stuck(&heartbeat, INT64_MAX, LIMIT_NS)); /* it has not begun */
    trajd_heartbeat_begin(&heartbeat);
    assert_true(heartbeat.last_turn_ns > 0);
    assert_false(trajd_heartbeat_is_stuck(&heartbeat, heartbeat.last_turn_ns + LIMIT_NS, LIMIT_NS));
    assert_true(trajd_heartbeat_is_stuck(&heartbeat, later(&heartbeat), LIMIT_NS));
    heartbeat.last_turn_ns = 1;
    trajd_heartbeat_turn();
    assert_true(heartbeat.last_turn_ns > 1);
    trajd_heartbeat_begin(NULL);
    heartbeat.last_turn_ns = 1;
    trajd_heartbeat_turn();
    assert_true(heartbeat.last_turn_ns == 1);
}

static void test_waits_are_not_stuck(void **state)
{
    struct trajd_heartbeat heartbeat = {0};

    (void)state;
    trajd_heartbeat_begin(&heartbeat);
    trajd_heartbeat_wait();
    trajd_heartbeat_wait();
    assert_false(trajd_heartbeat_is_stuck(&heartbeat, later(&heartbeat), LIMIT_NS));
    trajd_heartbeat_resume();
    assert_false(trajd_heartbeat_is_stuck(&heartbeat, later(&heartbeat), LIMIT_NS));
    heartbeat.last_turn_ns = 1;
    trajd_heartbeat_resume(); /* the end of a wait is a turn */
    assert_true(heartbeat.last_turn_ns > 1);
    assert_true(trajd_heartbeat_is_stuck(&heartbeat, later(&heartbeat), LIMIT_NS));
    trajd_heartbeat_begin(NULL);
}

/* The watcher of the start gives up storage after a limit, also where a thread waited in two ways. */
static void test_a_wait_goes_on(void **state)
{
    struct trajd_heartbeat heartbeat = {0};
    int64_t half_ns;

    (void)state;
    trajd_heartbeat_begin(&heartbeat);
    trajd_heartbeat_reads("disk");
    trajd_heartbeat_wait_on(3 * LIMIT_NS / 4);
    half_ns = heartbeat.last_turn_ns + LIMIT_NS / 2;
    assert_string_equal(trajd_heartbeat_hung_storage(&heartbeat, half_ns, LIMIT_NS), "disk");
    assert_null(trajd_heartbeat_hung_storage(&heartbeat, half_ns - LIMIT_NS / 3, LIMIT_NS));
    trajd_heartbeat_resume();
    trajd_heartbeat_wait();
    half_ns = heartbeat.last_turn_ns + LIMIT_NS / 2;
    assert_null(trajd_heartbeat_hung_storage(&heartbeat, half_ns, LIMIT_NS));
    assert_non_null(trajd_heartbeat_hung_storage(&heartbeat, later(&heartbeat), LIMIT_NS));
    trajd_heartbeat_resume();
    trajd_heartbeat_begin(NULL);
}

static void test_cancel(void **state)
{
    struct trajd_heartbeat heartbeat = {0};
    struct trajd_error error;

    (void)state;
    trajd_heartbeat_begin(&heartbeat);
    assert_false(trajd_heartbeat_is_cancelled());
    assert_int_equal(trajd_heartbeat_check(&error), TRAJD_OK);
    trajd_heartbeat_cancel(&heartbeat);
    assert_true(trajd_heartbeat_is_cancelled());
    assert_int_equal(trajd_heartbeat_check(&error), TRAJD_ERR_CLOSED);
    assert_int_equal(trajd_heartbeat_check(NULL), TRAJD_ERR_CLOSED);
    trajd_heartbeat_begin(NULL);
    assert_false(trajd_heartbeat_is_cancelled()); /* who has no watch is never told */
}

/* Without a signal it returns by itself and reports a turn. */
static void test_a_wait_for_a_condition_turns(void **state)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct trajd_heartbeat heartbeat = {0};
    pthread_cond_t condition;
    int64_t begin_ns;

    (void)state;
    trajd_heartbeat_init_condition(&condition);
    trajd_heartbeat_begin(&heartbeat);
    begin_ns = heartbeat.last_turn_ns;
    pthread_mutex_lock(&mutex);
    trajd_heartbeat_wait_for(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    assert_true(heartbeat.last_turn_ns > begin_ns);
    trajd_heartbeat_begin(NULL);
    pthread_cond_destroy(&condition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_waits_are_not_stuck),
        cmocka_unit_test(test_a_wait_goes_on),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_a_wait_for_a_condition_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
