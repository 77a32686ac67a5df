#include "daemon/base/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same_file(const char *a, const char *b)
{
    struct stat left, right;

    return lstat(a, &left) == 0 && lstat(b, &right) == 0 && left.st_ino == right.st_ino &&
           left.st_dev == right.st_dev;
}

/* A server may say EEXIST of the link that it has just made, when its first answer was lost. */
static int move_by_link(const char *from, const char *to)
{
    if (link(from, to) && (errno != EEXIST || !is_same_file(from, to)))
        return -1;
    return unlink(from);
}

int trajd_rename_new(const char *from, const char *to, bool *is_sure)
{
    struct stat there;

    *is_sure = true;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    if (move_by_link(from, to) == 0)
        return 0;
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK)
        return -1;
    *is_sure = false;
    if (lstat(to, &there) == 0) {
        errno = EEXIST;
        return -1;
    }
    return errno == ENOENT ? rename(from, to) : -1;
}
