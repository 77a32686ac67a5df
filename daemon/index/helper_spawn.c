#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/index/helper.h"

int trajd_helper_spawn(const char *path, const char *task, int socket, pid_t *pid)
{
    char *arguments[] = {(char *)"trajd-indexer", (char *)task, NULL};
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
    posix_spawn_file_actions_adddup2(&actions, socket, TRAJD_HELPER_SOCKET);
    code = posix_spawn(pid, path, &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return code;
}
