#include "clients/cli/files/private_daemons.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the folder as private_folder() of folders.py does. */
static void find_folder(char path[PRIVATE_PATH_SIZE])
{
    const char *given = getenv("TRAJD_RUNTIME_DIR"), *session = getenv("XDG_RUNTIME_DIR"),
               *temporary = getenv("TMPDIR");
    struct stat found;

    if (given && *given)
        snprintf(path, PRIVATE_PATH_SIZE, "%s/trajd-%u", given, (unsigned)geteuid());
    else if (session && !stat(session, &found) && S_ISDIR(found.st_mode) &&
             found.st_uid == geteuid())
        snprintf(path, PRIVATE_PATH_SIZE, "%s/trajd", session);
    else
        snprintf(path, PRIVATE_PATH_SIZE, "%s/trajd-%u",
                 temporary && *temporary ? temporary : "/tmp", (unsigned)geteuid());
}

/* Returns whether the folder is one that only this user can write: in /tmp another user might make
 * it first, and a daemon in it. */
static bool is_private(const char *folder)
{
    struct stat found;

    return !lstat(folder, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
           !(found.st_mode & 077);
}

/* Opens the file and tries to lock it for readers. Returns the descriptor, or -1. *is_locked tells
 * whether another process holds it alone. */
static int try_lock(const char *folder, const char *name, const char *file, bool *is_locked)
{
    char path[PRIVATE_PATH_SIZE];
    int fd = -1;

    *is_locked = false;
    if (snprintf(path, sizeof path, "%s/%s/%s", folder, name, file) < (int)sizeof path)
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB)) {
        *is_locked = errno == EWOULDBLOCK;
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Returns whether a daemon holds the lock of its runtime directory. launch.lock is held meanwhile,
 * so that none is just being started, which this look would disturb. */
static bool is_running(const char *folder, const char *name)
{
    bool is_starting, is_held = false;
    const int launch = try_lock(folder, name, "launch.lock", &is_starting);

    if (launch < 0)
        return false;
    const int run = try_lock(folder, name, "run/lock", &is_held);
    if (run >= 0)
        close(run);
    close(launch);
    return is_held;
}

/* Adds a daemon that runs, if there is room for it and for its path. */
static void add_running(struct private_daemons *daemons, const char *name)
{
    char endpoint[PRIVATE_PATH_SIZE];

    if (daemons->count == PRIVATE_DAEMONS_MAX || !is_running(daemons->folder, name) ||
        snprintf(endpoint, sizeof endpoint, "%s/%s/run", daemons->folder, name) >=
            (int)sizeof endpoint)
        return;
    strcpy(daemons->endpoints[daemons->count++], endpoint);
}

void private_daemons_find(struct private_daemons *daemons)
{
    struct dirent **entries;

    daemons->count = 0;
    find_folder(daemons->folder);
    const int found =
        is_private(daemons->folder) ? scandir(daemons->folder, &entries, NULL, alphasort) : -1;
    for (int i = 0; i < found; i++) {
        if (entries[i]->d_name[0] != '.')
            add_running(daemons, entries[i]->d_name);
        free(entries[i]);
    }
    if (found >= 0)
        free(entries);
}
