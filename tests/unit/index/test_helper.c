/* helper.c and sandbox.c: a helper program lives as long as the process that started it, whichever
 * thread asked for it, and not a moment longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/index/helper.h"

enum { PATIENCE_MS = 60000 };

static const char *const helpers[] = {TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer",
                                      TRAJD_BINARY_DIR "/daemon/decode/trajd-decoder"};

struct started {
    const char *path, *task;
    int type, socket;
    pid_t pid;
    enum trajd_status status;
};

static void *start(void *context)
{
    struct started *started = context;

    started->status = trajd_helper_start(started->path, started->task, started->type,
                                         &started->socket, &started->pid, NULL);
    return NULL;
}

static bool is_ready(int socket)
{
    struct pollfd item = {.fd = socket, .events = POLLIN};
    struct trajd_helper_header header;

    return poll(&item, 1, PATIENCE_MS) == 1 &&
           recv(socket, &header, sizeof header, MSG_WAITALL) == sizeof header &&
           header.kind == TRAJD_HELPER_READY;
}

/* Starts an indexer that is ready. */
static void start_ready(struct started *started)
{
    *started = (struct started){.path = helpers[0], .type = SOCK_STREAM};
    start(started);
    if (started->status || !is_ready(started->socket))
        _exit(1);
}

static void it_outlives_the_thread_that_asked(void **state)
{
    struct started started = {.path = helpers[0], .type = SOCK_STREAM};
    pthread_t thread;
    int status;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, start, &started), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(started.status, TRAJD_OK);
    assert_true(is_ready(started.socket));
    assert_int_equal(waitpid(started.pid, &status, WNOHANG), 0);
    close(started.socket);
    assert_int_equal(waitpid(started.pid, &status, 0), started.pid);
    assert_true(WIFEXITED(status)); /* at the end of its socket, and by no signal */
}

/* One that is stopped, or busy, does not see that its socket has ended. */
static void it_ends_with_its_process(void **state)
{
    struct started started;
    int ends[2], status;
    pid_t process, helper;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    process = fork();
    if (!process) {
        start_ready(&started);
        if (kill(started.pid, SIGSTOP) ||
            write(ends[1], &started.pid, sizeof started.pid) != sizeof started.pid)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ends[0], &helper, sizeof helper), sizeof helper);
    kill(process, SIGKILL);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(waitpid(helper, &status, 0), helper);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(ends[0]);
    close(ends[1]);
}

/* As where the process ended before the helper could ask the kernel to end with it. */
static void it_serves_no_other_parent(void **state)
{
    int ends[2], status;

    (void)state;
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) {
        pid_t between;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        between = fork();
        if (!between) {
            const pid_t helper = fork();
            if (!helper && dup2(ends[1], TRAJD_HELPER_SOCKET) == TRAJD_HELPER_SOCKET)
                execl(helpers[i], helpers[i], (char *)NULL);
            _exit(waitpid(helper, &status, 0) != helper || !WIFEXITED(status) ||
                  WEXITSTATUS(status) != 1);
        }
        close(ends[1]);
        assert_int_equal(recv(ends[0], &status, 1, 0), 0); /* not even that it is ready */
        assert_int_equal(waitpid(between, &status, 0), between);
        assert_int_equal(status, 0);
        close(ends[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_with_its_process), /* forks, so before there are threads */
        cmocka_unit_test(it_serves_no_other_parent),
        cmocka_unit_test(it_outlives_the_thread_that_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
