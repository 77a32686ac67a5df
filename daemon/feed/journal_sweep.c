/* Removes the journals of jobs that do not come back. Without that, each leaves a file of 12
 * KiB. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/feed/journal.h"

#define SUFFIX ".journal"

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = sizeof SUFFIX - 1;

    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

/* Removes the file if it is a journal, old enough, and not open in another process.
 *
 * A process that has a journal open holds its lock. A process that opens the journal meanwhile sees
 * that the file has no name any more, and opens again (trajd_journal_open). The sweep of another
 * daemon may remove the file before this one has the lock; then the name may belong to a new
 * journal already, so st_nlink is checked under the lock. */
static bool remove_if_old(int folder, const char *name, int64_t before_s)
{
    /* writable: NFS grants an exclusive lock only then */
    const int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat stat;
    bool removed;

    if (fd < 0)
        return false;
    removed = fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_mtim.tv_sec < before_s &&
              trajd_journal_is_journal(fd, stat.st_size) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
              fstat(fd, &stat) == 0 && stat.st_nlink && stat.st_mtim.tv_sec < before_s &&
              unlinkat(folder, name, 0) == 0;
    close(fd);
    return removed;
}

enum trajd_status trajd_journal_sweep(const char *directory, int64_t idle_ns, uint32_t *removed,
                                      struct trajd_error *error)
{
    const int64_t before_s = (int64_t)time(NULL) - idle_ns / 1000000000;
    DIR *entries = opendir(directory);

    *removed = 0;
    if (!entries)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", directory, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (has_suffix(entry->d_name))
            *removed += remove_if_old(dirfd(entries), entry->d_name, before_s);
    closedir(entries);
    return TRAJD_OK;
}
