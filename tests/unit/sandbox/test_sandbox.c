/* sandbox.c: a process in the sandbox reads the descriptors that it has. It can open no file and
 * look up no path, make no memory executable, and signal no other process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox.h"
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
    HAS_OPEN_FILES = 64,
    CAN_RUN_DATA = 128,
    CAN_SIGNAL = 256,
    CAN_OPEN = 512,
    CAN_LOOK_UP = 1024,
};

static pid_t parent;
static char path[] = "/tmp/trajd_sandbox_XXXXXX";

static bool is_forbidden(int result)
{
    return result < 0 && errno == EPERM;
}

/* Enters the sandbox with the file as descriptor TRAJD_HELPER_SOCKET. Returns the faults. */
static int try_sandbox(bool writes)
{
    struct stat status;
    struct statx extended;
    int faults = 0;
    char byte;

    if (!trajd_sandbox_limit(writes) || !trajd_sandbox_filter(writes))
        return NO_SANDBOX;
    if (trajd_sandbox_fstat(TRAJD_HELPER_SOCKET + 1, &status) == 0)
        faults |= HAS_OPEN_FILES;
    if (pread(TRAJD_HELPER_SOCKET, &byte, 1, 0) != 1 ||
        trajd_sandbox_fstat(TRAJD_HELPER_SOCKET, &status) || status.st_size == 0)
        faults |= CANNOT_READ;
    if (!is_forbidden(open(path, O_RDONLY)) || !is_forbidden(open("/proc/self/fd/3", O_RDONLY)))
        faults |= CAN_OPEN;
    if (!is_forbidden(stat(path, &status)) || !is_forbidden(lstat(path, &status)) ||
        !is_forbidden((int)syscall(SYS_statx, AT_FDCWD, path, 0, STATX_SIZE, &extended)) ||
        !is_forbidden(access(path, F_OK)))
        faults |= CAN_LOOK_UP;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        faults |= CAN_RUN_DATA;
    /* the parent; signals that a descriptor sends to a process of one's choice */
    if (!is_forbidden(kill(parent, 0)) ||
        !is_forbidden((int)syscall(SYS_tgkill, parent, parent, 0)) ||
        !is_forbidden(fcntl(TRAJD_HELPER_SOCKET, F_SETOWN, parent)) ||
        syscall(SYS_tgkill, getpid(), getpid(), 0) != 0)
        faults |= CAN_SIGNAL;
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
    int ends[2], faults = NO_SANDBOX, status;
    pid_t pid;

    parent = getpid();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        const int file = open(path, O_RDWR);
        if (dup2(ends[1], STDERR_FILENO) < 0 || dup2(file, TRAJD_HELPER_SOCKET) < 0 ||
            dup2(file, TRAJD_HELPER_SOCKET + 1) < 0)
            _exit(1);
        faults = try_sandbox(writes);
        _exit(write(STDERR_FILENO, &faults, sizeof faults) != sizeof faults);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &faults, sizeof faults), sizeof faults);
    close(ends[0]);
    close(ends[1]);
    return faults;
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
