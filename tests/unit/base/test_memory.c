/* Tests the figures of free memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/memory.h"

static void test_figures_are_there_and_the_smaller_one_counts(void **state)
{
    struct trajd_memory memory;

    (void)state;
    trajd_memory_read(&memory);
    assert_true(memory.machine_bytes > UINT64_C(1) << 20 && memory.machine_bytes < UINT64_C(1)
                                                                                       << 50);
    assert_true(trajd_memory_available(&memory) <= memory.machine_bytes);
    memory = (struct trajd_memory){.machine_bytes = 5, .cgroup_bytes = 3};
    assert_int_equal(trajd_memory_available(&memory), 3);
    memory.cgroup_bytes = UINT64_MAX;
    assert_int_equal(trajd_memory_available(&memory), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_are_there_and_the_smaller_one_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
