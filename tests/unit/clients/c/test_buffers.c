/* Buffers of remote payloads: reuse, limits, and buffers that outlive their pool. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clients/c/buffers.h"
#include "proto/array_len.h"

#define KEEP 3u
#define ROUNDS 2000u

static void test_size_is_rounded_up_to_the_alignment(void **state)
{
    (void)state;
    const struct {
        size_t requested, expected;
    } cases[] = {{0, 0}, {1, 64}, {64, 64}, {65, 128}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_buffers *buffers = trajd_buffers_create(cases[i].requested, KEEP);
        assert_int_equal(trajd_buffers_size(buffers), cases[i].expected);
        void *buffer = trajd_buffers_take(buffers); /* of 0 bytes too */
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer % TRAJD_BUFFERS_ALIGNMENT, 0);
        memset(buffer, 0x5a, cases[i].expected);
        trajd_buffers_give(buffers, buffer);
        trajd_buffers_drop(buffers);
    }
}

static void test_idle_buffers_are_reused(void **state)
{
    (void)state;
    struct trajd_buffers *buffers = trajd_buffers_create(100, KEEP);
    void *first = trajd_buffers_take(buffers);
    trajd_buffers_give(buffers, first);
    assert_ptr_equal(trajd_buffers_take(buffers), first);
    void *second = trajd_buffers_take(buffers);
    assert_ptr_not_equal(first, second);
    trajd_buffers_give(buffers, first);
    trajd_buffers_give(buffers, second);
    assert_ptr_equal(trajd_buffers_take(buffers), second); /* the last one is still in the cache */
    trajd_buffers_give(buffers, second);
    trajd_buffers_drop(buffers);
}

/* The sanitizers check that nothing leaks and nothing is freed twice. */
static void test_more_buffers_than_are_kept(void **state)
{
    (void)state;
    void *taken[KEEP + 2];
    struct trajd_buffers *buffers = trajd_buffers_create(100, KEEP);
    for (size_t i = 0; i < KEEP + 2; i++)
        taken[i] = trajd_buffers_take(buffers);
    for (size_t i = 0; i < KEEP + 2; i++)
        trajd_buffers_give(buffers, taken[i]);
    trajd_buffers_drop(buffers);
}

static void test_a_buffer_outlives_its_pool(void **state)
{
    (void)state;
    struct trajd_buffers *buffers = trajd_buffers_create(100, KEEP);
    unsigned char *kept = trajd_buffers_take(buffers);
    trajd_buffers_give(buffers, trajd_buffers_take(buffers));
    trajd_buffers_drop(buffers);
    memset(kept, 0x5a, 100);
    trajd_buffers_give(buffers, kept); /* frees the pool */
}

static void test_null_is_fine(void **state)
{
    (void)state;
    struct trajd_buffers *buffers = trajd_buffers_create(100, 0);
    trajd_buffers_give(buffers, NULL);
    trajd_buffers_give(buffers, trajd_buffers_take(buffers)); /* none is kept */
    trajd_buffers_drop(buffers);
    trajd_buffers_drop(NULL);
    trajd_buffers_give(NULL, NULL);
}

static void *take_and_give(void *context)
{
    struct trajd_buffers *buffers = context;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        unsigned char *buffer = trajd_buffers_take(buffers);
        memset(buffer, (int)i, 100);
        trajd_buffers_give(buffers, buffer);
    }
    return NULL;
}

static void test_threads_share_a_pool(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct trajd_buffers *buffers = trajd_buffers_create(100, KEEP);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, buffers), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    trajd_buffers_drop(buffers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_is_rounded_up_to_the_alignment),
        cmocka_unit_test(test_idle_buffers_are_reused),
        cmocka_unit_test(test_more_buffers_than_are_kept),
        cmocka_unit_test(test_a_buffer_outlives_its_pool),
        cmocka_unit_test(test_null_is_fine),
        cmocka_unit_test(test_threads_share_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
