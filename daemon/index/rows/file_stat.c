/* The identity of files, from stat. */
#include <time.h>

#include "daemon/index/rows/file_stat.h"

/* more than the steps in which file systems count times: up to 2 s for writes, and up to 10 ms for
 * ctime, which the kernel sets */
static const int64_t mtime_step_ns = 2000000000, ctime_step_ns = 100000000;

struct trajd_file_stat trajd_file_stat_from(const struct stat *status)
{
    return (struct trajd_file_stat){
        .size_bytes = (uint64_t)status->st_size,
        .inode = status->st_ino,
        .link_count = status->st_nlink,
        .mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)status->st_ctim.tv_sec * 1000000000 + status->st_ctim.tv_nsec};
}

bool trajd_file_stat_is_same(const struct trajd_file_stat *before,
                             const struct trajd_file_stat *now)
{
    return before->size_bytes == now->size_bytes && before->inode == now->inode &&
           before->mtime_ns == now->mtime_ns &&
           (before->ctime_ns == now->ctime_ns || before->link_count != now->link_count);
}

bool trajd_file_stat_is_settled(const struct trajd_file_stat *stat)
{
    struct timespec wall;
    int64_t now_ns;

    clock_gettime(CLOCK_REALTIME, &wall);
    now_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    return stat->mtime_ns < now_ns - mtime_step_ns && stat->ctime_ns < now_ns - ctime_step_ns;
}
