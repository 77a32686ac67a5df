/* Creates, opens and locks journal files, and removes the old ones. */
#include "daemon/feed/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".journal"
#define DAY_NS (86400 * INT64_C(1000000000))
/* a sweep may hold the lock for a moment, and may remove the file in between */
#define OPEN_ATTEMPTS 8

enum trajd_status trajd_journal_file_error(const struct trajd_journal_place *place,
                                           struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: %s", place->directory, place->name,
                           strerror(errno));
}

static enum trajd_status open_locked(const struct trajd_journal_place *place, bool create, int *fd,
                                     struct trajd_error *error)
{
    const int folder = open(place->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;

    *fd = -1;
    if (folder < 0)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", place->directory,
                               strerror(errno));
    *fd = openat(folder, place->name,
                 O_RDWR | (create ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    close(folder);
    if (*fd < 0)
        return errno == ENOENT && !create ? TRAJD_OK : trajd_journal_file_error(place, error);
    if (flock(*fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? trajd_error_set(error, TRAJD_ERR_BUSY, errno,
                                     "%s/%s: another process has this journal open",
                                     place->directory, place->name)
                   : trajd_journal_file_error(place, error);
    if (fstat(*fd, &status))
        return trajd_journal_file_error(place, error);
    if (!S_ISREG(status.st_mode))
        return trajd_error_set(error, TRAJD_ERR_IO, 0, "%s/%s: not a regular file",
                               place->directory, place->name);
    if (!status.st_nlink)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "%s/%s: another process is removing this journal", place->directory,
                               place->name);
    return TRAJD_OK;
}

enum trajd_status trajd_journal_file_open(const struct trajd_journal_place *place, bool create,
                                          int *fd, struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    enum trajd_status status = open_locked(place, create, fd, error);

    for (int attempt = 1; status == TRAJD_ERR_BUSY && attempt < OPEN_ATTEMPTS; attempt++) {
        close(*fd);
        nanosleep(&pause, NULL);
        status = open_locked(place, create, fd, error);
    }
    if (!status && *fd >= 0) {
        trajd_journal_file_note_use(*fd);
    } else if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

enum trajd_status trajd_journal_file_allocate(const struct trajd_journal_place *place, int fd,
                                              off_t size_bytes, struct trajd_error *error)
{
    struct stat status;

    if (fstat(fd, &status))
        return trajd_journal_file_error(place, error);
    if (status.st_size == size_bytes)
        return TRAJD_OK;
    if (ftruncate(fd, 0))
        return trajd_journal_file_error(place, error);
    errno = posix_fallocate(fd, 0, size_bytes);
    return errno ? trajd_journal_file_error(place, error) : TRAJD_OK;
}

enum trajd_status trajd_journal_file_write(const struct trajd_journal_place *place, int fd,
                                           const void *bytes, size_t size, off_t at,
                                           struct trajd_error *error)
{
    ssize_t written;

    do
        written = pwrite(fd, bytes, size, at);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)size)
        return TRAJD_OK;
    if (written >= 0)
        errno = ENOSPC;
    return trajd_journal_file_error(place, error);
}

void trajd_journal_file_empty(int fd)
{
    if (ftruncate(fd, 0))
        return;
}

void trajd_journal_file_remove(const struct trajd_journal_place *place)
{
    const int folder = open(place->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return;
    unlinkat(folder, place->name, 0);
    close(folder);
}

/* ---- which journals are removed ---- */

static uint32_t today(void)
{
    return (uint32_t)(time(NULL) / 86400);
}

void trajd_journal_head_note_use(struct trajd_journal_head *head, uint64_t owner)
{
    head->owner = owner + 1;
    head->idle_days = 0;
    head->last_day = today();
}

/* Reads the head. Returns false if the file is not a journal, of any version. */
static bool read_head(int fd, struct trajd_journal_head *head)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_size == TRAJD_JOURNAL_SIZE_BYTES &&
           pread(fd, head, sizeof *head, 0) == sizeof *head && head->magic == TRAJD_JOURNAL_MAGIC;
}

/* Writes idle_days and last_day. A failure leaves the earlier ones. */
static void write_days(int fd, const struct trajd_journal_head *head)
{
    const uint32_t days[2] = {head->idle_days, head->last_day};

    if (pwrite(fd, days, sizeof days, offsetof(struct trajd_journal_head, idle_days)) < 0)
        return;
}

void trajd_journal_file_note_use(int fd)
{
    struct trajd_journal_head head;

    if (!read_head(fd, &head) || (!head.idle_days && head.last_day == today()))
        return;
    head.idle_days = 0;
    head.last_day = today();
    write_days(fd, &head);
}

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = sizeof SUFFIX - 1;

    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

/* Opens a journal. Returns -1 if it is none. Writable: NFS grants an exclusive lock only then. */
static int open_journal(int folder, const char *name, struct trajd_journal_head *head)
{
    const int fd =
        has_suffix(name) ? openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;

    if (fd < 0 || read_head(fd, head))
        return fd;
    close(fd);
    return -1;
}

/* Locks the journal, if no process has it open.
 *
 * A process that has a journal open holds its lock. A process that opens the journal meanwhile sees
 * that the file has no name any more, and opens again (trajd_journal_file_open). The sweep of
 * another daemon may remove the file before this one has the lock; then the name may belong to a
 * new journal already, so st_nlink is checked under the lock. */
static bool lock_unused(int fd, struct trajd_journal_head *head, struct stat *status)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, status) == 0 && status->st_nlink &&
           read_head(fd, head);
}

/* Counts the day if the journal was not used today, and removes the journal after enough days. */
static bool remove_if_old(int folder, const char *name, uint32_t days)
{
    struct trajd_journal_head head;
    struct stat status;
    const int fd = open_journal(folder, name, &head);
    bool removed = false;

    if (fd < 0)
        return false;
    if (lock_unused(fd, &head, &status) && head.last_day != today()) {
        head.idle_days++;
        head.last_day = today();
        removed = head.idle_days >= days && unlinkat(folder, name, 0) == 0;
        if (!removed)
            write_days(fd, &head);
    }
    close(fd);
    return removed;
}

enum trajd_status trajd_journal_sweep(const char *directory, int64_t idle_ns, uint32_t *removed,
                                      struct trajd_error *error)
{
    const int64_t days = idle_ns / DAY_NS + (idle_ns % DAY_NS != 0);
    DIR *entries = opendir(directory);

    *removed = 0;
    if (!entries)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", directory, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(entries));)
        *removed += remove_if_old(dirfd(entries), entry->d_name,
                                  days < UINT32_MAX ? (uint32_t)days : UINT32_MAX);
    closedir(entries);
    return TRAJD_OK;
}

struct oldest {
    char name[256]; /* empty: none is unused */
    uint32_t idle_days;
    struct timespec used;
};

static bool is_older(const struct oldest *than, const struct trajd_journal_head *head,
                     const struct stat *status)
{
    if (!than->name[0] || head->idle_days != than->idle_days)
        return !than->name[0] || head->idle_days > than->idle_days;
    if (status->st_mtim.tv_sec != than->used.tv_sec)
        return status->st_mtim.tv_sec < than->used.tv_sec;
    return status->st_mtim.tv_nsec < than->used.tv_nsec;
}

/* Counts the owner's other journals, and finds the one that was unused for the longest time. */
static uint32_t count_journals(DIR *entries, const struct trajd_journal_place *place,
                               struct oldest *oldest)
{
    uint32_t count = 0;

    oldest->name[0] = '\0';
    for (const struct dirent *entry; (entry = readdir(entries));) {
        struct trajd_journal_head head;
        struct stat status;
        const int fd = strcmp(entry->d_name, place->name) == 0
                           ? -1
                           : open_journal(dirfd(entries), entry->d_name, &head);
        if (fd < 0)
            continue;
        count += head.owner == place->owner + 1;
        if (head.owner == place->owner + 1 && lock_unused(fd, &head, &status) &&
            is_older(oldest, &head, &status)) {
            strcpy(oldest->name, entry->d_name);
            oldest->idle_days = head.idle_days;
            oldest->used = status.st_mtim;
        }
        close(fd);
    }
    return count;
}

static bool remove_unused(int folder, const char *name)
{
    struct trajd_journal_head head;
    struct stat status;
    const int fd = open_journal(folder, name, &head);
    bool removed;

    if (fd < 0)
        return false;
    removed = lock_unused(fd, &head, &status) && unlinkat(folder, name, 0) == 0;
    close(fd);
    return removed;
}

enum trajd_status trajd_journal_limit(const struct trajd_journal_place *place,
                                      struct trajd_error *error)
{
    DIR *entries = opendir(place->directory);
    struct oldest oldest;
    bool has_room;

    if (!entries)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", place->directory,
                               strerror(errno));
    while (!(has_room = count_journals(entries, place, &oldest) < TRAJD_JOURNAL_MAX_PER_OWNER) &&
           oldest.name[0] && remove_unused(dirfd(entries), oldest.name))
        rewinddir(entries);
    closedir(entries);
    return has_room ? TRAJD_OK
                    : trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                                      "%s: the owner of the job has %u journals there that are "
                                      "all in use, which is the limit",
                                      place->directory, TRAJD_JOURNAL_MAX_PER_OWNER);
}
