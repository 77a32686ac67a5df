/* For LD_PRELOAD: a file system that cannot rename without replacing (such as NFS). With
 * TRAJD_TEST_NO_LINKS it cannot make hard links either (such as some FUSE file systems). With
 * TRAJD_TEST_NO_LOCKS the lock files of indexes cannot be locked (Lustre without `flock`). With
 * TRAJD_TEST_APPEARS a file of that name appears at the moment of the rename. With TRAJD_TEST_SWAPS
 * what has that name is called NAME.aside then, and what is called NAME.theirs takes its name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRELOADED __attribute__((visibility("default")))

static void let_appear(void)
{
    const char *path = getenv("TRAJD_TEST_APPEARS");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL, 0644) : -1;

    if (fd >= 0 && write(fd, "another's\n", 10) != 10)
        abort();
    if (fd >= 0)
        close(fd);
}

static void let_swap(void)
{
    const char *path = getenv("TRAJD_TEST_SWAPS");
    char aside[4096], theirs[4096];

    if (!path)
        return;
    snprintf(aside, sizeof aside, "%s.aside", path);
    snprintf(theirs, sizeof theirs, "%s.theirs", path);
    rename(path, aside);
    rename(theirs, path);
}

PRELOADED int renameat2(int from_folder, const char *from, int to_folder, const char *to,
                        unsigned int flags)
{
    if (!flags)
        return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    let_appear();
    let_swap();
    errno = EINVAL;
    return -1;
}

PRELOADED int link(const char *from, const char *to)
{
    if (!getenv("TRAJD_TEST_NO_LINKS"))
        return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EPERM;
    return -1;
}

PRELOADED int flock(int fd, int operation)
{
    char link[64], path[4096] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!getenv("TRAJD_TEST_NO_LOCKS") || readlink(link, path, sizeof path - 1) < 0 ||
        !strstr(path, ".index.lock"))
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOSYS;
    return -1;
}
