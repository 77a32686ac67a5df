/* Helper programs as processes: their start, and how they ended. */
#include "daemon/index/helper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_SLICES = 1000, SLICE_MS = 1 };

/* Returns 0 or an errno. */
static int spawn(const char *path, const char *task, int socket, pid_t *pid)
{
    char *arguments[] = {(char *)path, (char *)task, NULL};
    char libraries[4096 + 32] = "LD_LIBRARY_PATH=";
    /* no variable HDF5_* of the user reaches libhdf5 */
    char *environment[] = {(char *)"LC_ALL=C", libraries, NULL};
    const char *own = getenv("LD_LIBRARY_PATH");
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int code;

    snprintf(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s", own ? own : "");
    if (!own)
        environment[1] = NULL;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, task ? POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP
                                               : POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    code = posix_spawn_file_actions_adddup2(&actions, socket, TRAJD_HELPER_SOCKET);
    if (!code)
        code = posix_spawn(pid, path, &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return code;
}

enum trajd_status trajd_helper_start(const char *path, const char *task, int type, int *socket,
                                     pid_t *pid, struct trajd_error *error)
{
    int ends[2], code;

    *socket = -1;
    *pid = 0;
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socketpair: %s", strerror(errno));
    code = spawn(path, task, ends[1], pid);
    close(ends[1]);
    if (!code) {
        *socket = ends[0];
        return TRAJD_OK;
    }
    close(ends[0]);
    *pid = 0;
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "%s: cannot be started: %s", path,
                           strerror(code));
}

bool trajd_helper_has_ended(pid_t pid)
{
    siginfo_t info = {0};

    for (int i = 0; i < END_SLICES; i++) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return true;
        poll(NULL, 0, SLICE_MS);
    }
    return false;
}

bool trajd_helper_is_killed(int status)
{
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    return (WIFEXITED(status) && WEXITSTATUS(status) == TRAJD_HELPER_NO_MEMORY) ||
           number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP ||
           number == SIGQUIT || number == SIGXCPU;
}
