/* Looks for the folders of private daemons, and for the locks that running ones hold. */
#include "clients/cli/files/private_daemons.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/yaml.h"

/* Finds it as private_folder() of folders.py does. *is_own: other users have none of theirs in it. */
static const char *find_parent(bool *is_own)
{
    const char *given = getenv("TRAJD_RUNTIME_DIR"), *session = getenv("XDG_RUNTIME_DIR"),
               *temporary = getenv("TMPDIR");
    struct stat found;

    *is_own = false;
    if (given && *given)
        return given;
    *is_own =
        session && !stat(session, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid();
    if (*is_own)
        return session;
    return temporary && *temporary ? temporary : "/tmp";
}

const char *private_daemons_parent(void)
{
    bool is_own;

    return find_parent(&is_own);
}

static void find_folder(char path[PRIVATE_PATH_SIZE])
{
    bool is_own;
    const char *parent = find_parent(&is_own);

    if (is_own)
        snprintf(path, PRIVATE_PATH_SIZE, "%s/trajd", parent);
    else
        snprintf(path, PRIVATE_PATH_SIZE, "%s/trajd-%u", parent, (unsigned)geteuid());
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

static void copy_text(const struct trajd_yaml_node *note, const char *key,
                      char text[PRIVATE_PATH_SIZE])
{
    const struct trajd_yaml_node *node = trajd_yaml_get(note, key);

    if (node && node->value && strlen(node->value) < PRIVATE_PATH_SIZE)
        strcpy(text, node->value);
}

/* Reads the note that trajd.open writes just before it starts the daemon (note_datasets of
 * folders.py). JSON is YAML. */
static void read_note(const char *folder, const char *name, struct private_daemon *daemon)
{
    char path[PRIVATE_PATH_SIZE];
    struct trajd_yaml *note;
    struct trajd_error error;
    struct stat found;

    if (snprintf(path, sizeof path, "%s/%s/datasets", folder, name) >= (int)sizeof path ||
        stat(path, &found) || trajd_yaml_load(path, &note, &error))
        return;
    daemon->start = found.st_mtim;
    copy_text(trajd_yaml_root(note), "config", daemon->config);
    copy_text(trajd_yaml_root(note), "job", daemon->job);
    trajd_yaml_destroy(&note);
}

/* Adds a daemon that runs, if there is room for it and for its path. */
static void add_running(struct private_daemons *daemons, const char *name)
{
    struct private_daemon daemon = {.config = ""};

    if (daemons->count == PRIVATE_DAEMONS_MAX || !is_running(daemons->folder, name) ||
        snprintf(daemon.endpoint, sizeof daemon.endpoint, "%s/%s/run", daemons->folder, name) >=
            (int)sizeof daemon.endpoint)
        return;
    read_note(daemons->folder, name, &daemon);
    daemons->list[daemons->count++] = daemon;
}

static int compare_starts(const void *a, const void *b)
{
    const struct private_daemon *one = a, *other = b;
    const struct timespec *first = &one->start, *second = &other->start;

    if (first->tv_sec != second->tv_sec)
        return first->tv_sec < second->tv_sec ? 1 : -1;
    if (first->tv_nsec != second->tv_nsec)
        return first->tv_nsec < second->tv_nsec ? 1 : -1;
    return strcmp(one->endpoint, other->endpoint);
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
    qsort(daemons->list, daemons->count, sizeof *daemons->list, compare_starts);
}

bool private_daemons_are_alike(const struct private_daemons *daemons)
{
    const struct private_daemon *first = daemons->list;
    bool are_alike = daemons->count > 0 && *first->config;

    for (uint32_t i = 1; i < daemons->count; i++)
        are_alike = are_alike && !strcmp(daemons->list[i].config, first->config) &&
                    !strcmp(daemons->list[i].job, first->job);
    return are_alike || daemons->count == 1;
}

void private_daemon_describe(const struct private_daemon *daemon, char text[PRIVATE_TEXT_SIZE])
{
    char start[32] = "an unknown time";
    struct tm local;

    if (daemon->start.tv_sec && localtime_r(&daemon->start.tv_sec, &local))
        strftime(start, sizeof start, "%F %T", &local);
    snprintf(text, PRIVATE_TEXT_SIZE, "for %s, %s, since %s",
             *daemon->config ? daemon->config : "an unknown configuration",
             *daemon->job ? daemon->job : "an unknown job", start);
}
