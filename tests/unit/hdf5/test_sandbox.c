/* sandbox.c: a process in the sandbox reads files, but it can neither create nor change any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/hdf5/sandbox.h"
#include "daemon/index/helper.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

enum {
    NO_SANDBOX = 1,
    CANNOT_READ = 2,
    CAN_CREATE = 4,
    CAN_CHANGE = 8,
    HAS_SOCKETS = 16,
    CANNOT_WRITE_OPEN_FILE = 32,
    HAS_OPEN_FILES = 64
};

static char path[] = "/tmp/trajd_sandbox_XXXXXX";

static bool is_forbidden(int result)
{
    return result < 0 && errno == EPERM;
}

/* Enters the sandbox with the file as descriptor TRAJD_HELPER_SOCKET. Returns the faults. */
static int try_sandbox(bool writes)
{
    int faults = 0;
    char byte;

    if (!trajd_sandbox_limit(writes) || !trajd_sandbox_filter(writes))
        return NO_SANDBOX;
    if (fcntl(TRAJD_HELPER_SOCKET + 1, F_GETFD) >= 0)
        faults |= HAS_OPEN_FILES;
    if (pread(TRAJD_HELPER_SOCKET, &byte, 1, 0) != 1 || open(path, O_RDONLY) < 0)
        faults |= CANNOT_READ;
    if (!is_forbidden(open("/tmp/trajd_sandbox_new", O_WRONLY | O_CREAT | O_EXCL, 0600)))
        faults |= CAN_CREATE;
    if (!is_forbidden(open(path, O_RDWR)) || !is_forbidden(unlink(path)) ||
        (!writes && !is_forbidden(ftruncate(TRAJD_HELPER_SOCKET, 0))))
        faults |= CAN_CHANGE;
    if (!is_forbidden(socket(AF_INET, SOCK_STREAM, 0)))
        faults |= HAS_SOCKETS;
    if (writes && pwrite(TRAJD_HELPER_SOCKET, "y", 1, 0) != 1)
        faults |= CANNOT_WRITE_OPEN_FILE;
    return faults;
}

static int faults_of(bool writes)
{
    const pid_t pid = fork();
    int status;

    if (pid == 0) {
        const int file = open(path, O_RDWR);
        if (dup2(file, TRAJD_HELPER_SOCKET) < 0 || dup2(file, TRAJD_HELPER_SOCKET + 1) < 0)
            _exit(NO_SANDBOX);
        _exit(try_sandbox(writes));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void skip_without_filter(void)
{
#ifdef HAS_SANITIZER
    skip();
#endif
    if (access("/proc/sys/kernel/seccomp/actions_avail", F_OK))
        skip();
}

static void a_reader_changes_nothing(void **state)
{
    (void)state;
    skip_without_filter();
    assert_int_equal(faults_of(false), 0);
}

static void a_writer_writes_to_open_files_only(void **state)
{
    (void)state;
    skip_without_filter();
    assert_int_equal(faults_of(true), 0);
}

static void limits_are_set_in_the_child_alone(void **state)
{
    struct rlimit limit;
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0) {
        struct rlimit size, files;
        _exit(!(trajd_sandbox_limit(false) && !getrlimit(RLIMIT_FSIZE, &size) &&
                !getrlimit(RLIMIT_NOFILE, &files) && size.rlim_cur == 0 && files.rlim_cur == 32));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(limit.rlim_cur > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_changes_nothing),
        cmocka_unit_test(a_writer_writes_to_open_files_only),
        cmocka_unit_test(limits_are_set_in_the_child_alone),
    };
    const int file = mkstemp(path);
    int failed;

    if (file < 0 || write(file, "x", 1) != 1)
        return 1;
    close(file);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
