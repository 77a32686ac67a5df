/* libtrajd_live as a shared library: what its symbols give, from a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "clients/live/trajd_live.h"
#include "tests/support/live_robot.h"

static void a_file_is_opened(void **state)
{
    char path[] = "/tmp/trajd_live_XXXXXX";
    const int fd = mkstemp(path);
    struct trajd_live_stream info;
    struct trajd_live *live;
    struct trajd_error error;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, live_robot, sizeof live_robot - 1), sizeof live_robot - 1);
    close(fd);
    if (trajd_live_open(path, NULL, &live, &error))
        fail_msg("%s", error.message);
    trajd_live_get_stream(live, LIVE_ROBOT_FORCE, &info);
    assert_string_equal(info.name, "force");
    assert_string_equal(info.clock, "force");
    assert_string_equal(trajd_dtype_name(info.dtype), "f32");
    assert_true(info.row_bytes == 24 && info.rank == 1 && info.shape[0] == 6);
    assert_true(info.latency_ns == 1000000 && info.interval_ns == 1000000);
    assert_true(info.capacity >= 2 * 1500);
    trajd_live_reset(live);
    trajd_live_close(&live);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file_is_opened)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
