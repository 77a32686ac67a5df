/* producer_internal.h: no step of a counter is lost when threads add to it at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/producer/producer_internal.h"

enum { THREADS = 4, STEPS = 5000 };

static void *add_steps(void *counter)
{
    for (int i = 0; i < STEPS; i++)
        trajd_counter_add(counter, 2);
    return NULL;
}

static void test_threads_add_at_once(void **state)
{
    uint64_t counter = 0;
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_steps, &counter), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(trajd_counter_read(&counter), 2 * THREADS * STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_add_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
