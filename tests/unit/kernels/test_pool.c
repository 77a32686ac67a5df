/* Tests the pool: every slice runs once, callers take turns, and limits hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "kernels/pool.h"

#define SLICES 1000

struct histogram {
    uint32_t seen[SLICES]; /* not atomic: each slice has its own */
};

static void count(void *context, uint32_t index)
{
    struct histogram *histogram = context;

    histogram->seen[index]++;
}

static void expect_each_once(struct trajd_pool *pool, uint32_t slices)
{
    struct histogram histogram = {0};

    trajd_pool_run(pool, slices, count, &histogram);
    for (uint32_t i = 0; i < SLICES; i++)
        assert_int_equal(histogram.seen[i], i < slices);
}

static void test_every_slice_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 9; threads += 2) {
        struct trajd_pool *pool;
        assert_int_equal(trajd_pool_create(threads, "test", &pool, NULL), TRAJD_OK);
        assert_int_equal(trajd_pool_thread_count(pool), threads);
        for (uint32_t slices = 0; slices <= 20; slices++)
            expect_each_once(pool, slices);
        for (int round = 0; round < 200; round++)
            expect_each_once(pool, SLICES);
        trajd_pool_destroy(&pool);
        assert_null(pool);
        trajd_pool_destroy(&pool);
    }
}

static void test_no_pool_runs_inline(void **state)
{
    (void)state;
    assert_int_equal(trajd_pool_thread_count(NULL), 1);
    expect_each_once(NULL, 7);
}

static void *caller(void *pool)
{
    for (int round = 0; round < 200; round++)
        expect_each_once(pool, 64);
    return NULL;
}

static void test_callers_take_turns(void **state)
{
    struct trajd_pool *pool;
    pthread_t callers[3];

    (void)state;
    assert_int_equal(trajd_pool_create(3, "turns", &pool, NULL), TRAJD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, caller, pool), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(callers[i], NULL);
    trajd_pool_destroy(&pool);
}

struct meeting {
    pthread_barrier_t barrier;
    pthread_t caller;
    uint32_t open; /* threads of the pool that had an unblocked signal */
};

/* Makes both slices wait for each other, so they must run on two threads. */
static void meet(void *context, uint32_t index)
{
    struct meeting *meeting = context;
    sigset_t blocked;

    (void)index;
    pthread_barrier_wait(&meeting->barrier);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!pthread_equal(pthread_self(), meeting->caller) && !sigismember(&blocked, SIGTERM))
        __atomic_fetch_add(&meeting->open, 1, __ATOMIC_RELAXED);
}

static void test_threads_start_with_signals_blocked(void **state)
{
    struct meeting meeting = {.caller = pthread_self()};
    struct trajd_pool *pool;

    (void)state;
    assert_int_equal(trajd_pool_create(2, "a name longer than the kernel's", &pool, NULL),
                     TRAJD_OK);
    pthread_barrier_init(&meeting.barrier, NULL, 2);
    for (int round = 0; round < 50; round++)
        trajd_pool_run(pool, 2, meet, &meeting);
    assert_int_equal(meeting.open, 0);
    pthread_barrier_destroy(&meeting.barrier);
    trajd_pool_destroy(&pool);
}

static void test_limits(void **state)
{
    struct trajd_error error;
    struct trajd_pool *pool;

    (void)state;
    assert_int_equal(trajd_pool_create(0, "none", &pool, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "0 threads"));
    assert_null(pool);
    assert_int_equal(trajd_pool_create(1025, "many", &pool, &error), TRAJD_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_slice_once),
        cmocka_unit_test(test_no_pool_runs_inline),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_threads_start_with_signals_blocked),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
