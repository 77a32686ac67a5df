/* Helper programs as processes: their start, and how they ended. */
#include "daemon/index/helper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"

enum { END_SLICES = 1000, SLICE_MS = 1 };

/* ---- the thread that starts them ---- */

/* A helper program. Its place is the stack of the thread that waits for it. */
struct start {
    const char *path, *task;
    int socket;
    pid_t pid;
    int code; /* 0 or an errno */
    bool is_done;
};

/* A helper ends with the thread that started it (daemon/sandbox), so one thread starts them all, and
 * lives as long as the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_thread;
    struct start *next; /* the one to start */
} starter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

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

static void *run_starter(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&starter.lock);
    for (;;) {
        struct start *start = starter.next;
        if (!start) {
            pthread_cond_wait(&starter.changed, &starter.lock);
            continue;
        }
        pthread_mutex_unlock(&starter.lock);
        start->code = spawn(start->path, start->task, start->socket, &start->pid);
        pthread_mutex_lock(&starter.lock);
        start->is_done = true;
        starter.next = NULL;
        pthread_cond_broadcast(&starter.changed);
    }
    return NULL;
}

/* Has the helper started. Returns 0 or an errno. */
static int start(struct start *start)
{
    pthread_t thread;
    int code = 0;

    pthread_mutex_lock(&starter.lock);
    if (!starter.has_thread) {
        code = trajd_thread_start(&thread, "helpers", run_starter, NULL);
        starter.has_thread = !code;
        if (!code)
            pthread_detach(thread);
    }
    while (!code && starter.next)
        pthread_cond_wait(&starter.changed, &starter.lock);
    if (!code) {
        starter.next = start;
        pthread_cond_broadcast(&starter.changed);
    }
    while (!code && !start->is_done)
        pthread_cond_wait(&starter.changed, &starter.lock);
    pthread_mutex_unlock(&starter.lock);
    return code ? code : start->code;
}

enum trajd_status trajd_helper_start(const char *path, const char *task, int type, int *socket,
                                     pid_t *pid, struct trajd_error *error)
{
    struct start wanted = {.path = path, .task = task};
    int ends[2], code;

    *socket = -1;
    *pid = 0;
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socketpair: %s", strerror(errno));
    wanted.socket = ends[1];
    code = start(&wanted);
    close(ends[1]);
    if (!code) {
        *pid = wanted.pid;
        *socket = ends[0];
        return TRAJD_OK;
    }
    close(ends[0]);
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
