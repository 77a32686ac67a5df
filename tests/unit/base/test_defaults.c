/* The rule for slots and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/base/defaults.h"
#include "proto/array_len.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static void small_batches_have_many_slots(void **state)
{
    static const struct {
        uint64_t slot_bytes, room_bytes;
        uint32_t count;
        const char *reason;
    } cases[] = {
        {4 * KIB, UINT64_MAX, 16, "the most: batches are small"},
        {4 * MIB, UINT64_MAX, 16, "the most: batches are small"},
        {4 * MIB + 4 * KIB, UINT64_MAX, 15, "as many as 64 MiB hold"},
        {13 * MIB, UINT64_MAX, 4, "the least: batches are large"},
        {900 * MIB, UINT64_MAX, 4, "the least: batches are large"},
        {4 * MIB, 40 * MIB, 10, "as the memory for rings allows"},
        {4 * KIB, 0, 4, "as the memory for rings allows"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const uint32_t count = trajd_default_slots(cases[i].slot_bytes, cases[i].room_bytes);
        assert_int_equal(count, cases[i].count);
        assert_string_equal(trajd_slots_reason(0, cases[i].slot_bytes, count), cases[i].reason);
        assert_string_equal(trajd_slots_reason(count, cases[i].slot_bytes, count),
                            "as the feed says");
    }
}

static void a_worker_leaves_slots_to_others(void **state)
{
    static const uint32_t credits[][2] = {{3, 3}, {4, 4},   {5, 4},    {6, 5},
                                          {8, 6}, {16, 12}, {480, 360}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(credits); i++)
        assert_int_equal(trajd_default_credit(credits[i][0]), credits[i][1]);
}

/* Lets this process use the first `count` of the cores that it may use. */
static void use_cores(const cpu_set_t *all, int count)
{
    cpu_set_t some;

    CPU_ZERO(&some);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&some) < count; core++)
        if (CPU_ISSET(core, all))
            CPU_SET(core, &some);
    assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
}

static void a_core_is_left_to_training(void **state)
{
    const struct trajd_thread_counts plain = {0}, stated = {7, 3, 5};
    struct trajd_thread_choice choice;
    char text[TRAJD_THREADS_TEXT_SIZE];
    cpu_set_t all;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    use_cores(&all, 1);
    choice = trajd_choose_threads(&plain);
    assert_int_equal(choice.counts.resample, 1);
    assert_int_equal(choice.counts.decoders, 1);
    assert_int_equal(choice.eager_decoders, 1);
    trajd_threads_text(&plain, text, sizeof text);
    assert_string_equal(text, "1 core: 1 thread to resample (the only core), 1 decoder (one per "
                              "core), 8 readers for each dataset (they mostly wait for storage)");
    choice = trajd_choose_threads(&stated);
    assert_int_equal(choice.eager_decoders, 5);
    trajd_threads_text(&stated, text, sizeof text);
    assert_string_equal(text, "1 core: 7 threads to resample (threads.resample), 5 decoders "
                              "(threads.decoders), 3 readers for each dataset (threads.readers)");
    if (CPU_COUNT(&all) < 2)
        skip();
    use_cores(&all, 2);
    choice = trajd_choose_threads(&plain);
    assert_int_equal(choice.counts.resample, 1);
    assert_int_equal(choice.counts.decoders, 2);
    assert_int_equal(choice.eager_decoders, 1);
    trajd_threads_text(&plain, text, sizeof text);
    assert_non_null(strstr(text, "2 decoders (one per core, of which one gives way to training)"));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_batches_have_many_slots),
        cmocka_unit_test(a_worker_leaves_slots_to_others),
        cmocka_unit_test(a_core_is_left_to_training),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
