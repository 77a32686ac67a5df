/* convert_child.c: the error after a child has ended, with a socket and a process made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/index/helper.h"
#include "clients/cli/resample/convert_child.h"
#include "daemon/index/writer_protocol.h"
#include "proto/array_len.h"

static const struct trajd_convert_options options = {.output = "out.hdf5"};
static const struct convert_plan plan = {.options = &options};

/* The child's last message is the error, even if a send notices first that it has ended. */
static void the_last_message_is_the_error(void **state)
{
    static const char text[] = "demo_3: no such object";
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_WRITER_FAILED,
                                               sizeof(uint32_t) + strlen(text)};
    const uint32_t codes[] = {0, ENOSPC};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct trajd_error error;
        struct convert_child child = {.plan = &plan, .error = &error, .is_ready = true};
        size_t length;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        assert_int_equal(write(sockets[1], &header, sizeof header), sizeof header);
        assert_int_equal(write(sockets[1], &codes[k], sizeof codes[k]), sizeof codes[k]);
        assert_int_equal(write(sockets[1], text, strlen(text)), strlen(text));
        close(sockets[1]);
        child.socket = sockets[0];
        convert_child_begin(&child);
        assert_int_equal(convert_child_send(&child, TRAJD_WRITER_FINISH, -1), TRAJD_OK);
        assert_int_equal(convert_child_reply(&child, TRAJD_WRITER_DONE, &length),
                         k ? TRAJD_ERR_IO : TRAJD_ERR_DATA);
        assert_string_equal(error.message, k ? "out.hdf5: No space left on device" : text);
        assert_int_equal(error.foreign_code, k ? ENOSPC : 0);
        convert_child_end(&child);
    }
}

/* A kill from outside, or a resource limit, is not the fault of an input. */
static void the_cause_of_the_end_is_reported(void **state)
{
    static const struct {
        int number;
        enum trajd_status status;
    } cases[] = {{SIGKILL, TRAJD_ERR_SYSTEM}, {SIGTERM, TRAJD_ERR_SYSTEM},
                 {SIGINT, TRAJD_ERR_SYSTEM},  {SIGHUP, TRAJD_ERR_SYSTEM},
                 {SIGQUIT, TRAJD_ERR_SYSTEM}, {SIGXCPU, TRAJD_ERR_SYSTEM},
                 {SIGUSR1, TRAJD_ERR_DATA}};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct trajd_error error;
        struct convert_child child = {.plan = &plan, .error = &error, .is_ready = true};
        size_t length;
        int sockets[2];
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), errno);
        child.pid = fork();
        if (!child.pid) {
            signal(cases[k].number, SIG_DFL);
            raise(cases[k].number);
            _exit(0);
        }
        close(sockets[1]);
        child.socket = sockets[0];
        assert_int_equal(convert_child_reply(&child, TRAJD_WRITER_DONE, &length), cases[k].status);
        assert_non_null(strstr(error.message, "was killed by signal"));
        assert_int_equal(strstr(error.message, "damaged") != NULL,
                         cases[k].status == TRAJD_ERR_DATA);
        convert_child_end(&child);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_message_is_the_error),
        cmocka_unit_test(the_cause_of_the_end_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
