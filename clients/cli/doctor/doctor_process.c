#include "clients/cli/doctor/doctor_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_FD = 3, STOP_SLICES = 100, SLICE_MS = 100 };

static pid_t spawn(const char *const *arguments, posix_spawn_file_actions_t *actions)
{
    pid_t pid = -1;
    const int code =
        posix_spawn(&pid, arguments[0], actions, NULL, (char *const *)arguments, environ);

    if (code) {
        errno = code;
        return -1;
    }
    return pid;
}

static bool wait_for(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool doctor_read_output(const char *const *arguments, char *output, size_t size)
{
    posix_spawn_file_actions_t actions;
    size_t length = 0;
    char rest[256];
    int ends[2];
    pid_t pid;

    *output = '\0';
    if (pipe2(ends, O_CLOEXEC))
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    pid = spawn(arguments, &actions);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    for (ssize_t got = 1; pid > 0 && got > 0;) { /* to its end, so that the program can write all */
        const bool has_room = length + 1 < size;
        got = read(ends[0], has_room ? output + length : rest,
                   has_room ? size - 1 - length : sizeof rest);
        length += has_room && got > 0 ? (size_t)got : 0;
    }
    output[length] = '\0';
    close(ends[0]);
    return pid > 0 && wait_for(pid);
}

pid_t doctor_start(const char *const *arguments, const char *log, int *ready)
{
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC))
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], READY_FD);
    pid = spawn(arguments, &actions);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (pid < 0)
        close(ends[0]);
    *ready = pid < 0 ? -1 : ends[0];
    return pid;
}

bool doctor_wait_ready(int ready, int timeout_ms)
{
    struct pollfd wait = {.fd = ready, .events = POLLIN};
    char byte;

    return poll(&wait, 1, timeout_ms) == 1 && read(ready, &byte, 1) == 1;
}

void doctor_stop(pid_t pid)
{
    pid_t gone = 0;

    kill(pid, SIGTERM);
    for (int i = 0; i < STOP_SLICES && !gone; i++) {
        gone = waitpid(pid, NULL, WNOHANG);
        if (!gone)
            poll(NULL, 0, SLICE_MS);
    }
    if (!gone) {
        kill(pid, SIGKILL);
        wait_for(pid);
    }
}
