/* Reads of known length, and the identity of files. */
#include "daemon/index/rows/file_bytes.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"

#define PREAD_BYTES (UINT64_C(16) << 20) /* of one wait, on storage that may be slow */

enum trajd_status trajd_read_exactly(int fd, uint64_t offset, uint64_t bytes, uint8_t *to,
                                     struct trajd_error *error)
{
    while (bytes) {
        ssize_t got;
        trajd_heartbeat_wait();
        got = pread(fd, to, bytes < PREAD_BYTES ? bytes : PREAD_BYTES, (off_t)offset);
        trajd_heartbeat_resume();
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = errno;
            return trajd_error_set(
                error, TRAJD_ERR_IO, code, "reading %llu bytes at offset %llu: %s",
                (unsigned long long)bytes, (unsigned long long)offset, strerror(code));
        }
        if (got == 0)
            return trajd_error_set(error, TRAJD_ERR_IO, 0,
                                   "the file ends at offset %llu, %llu bytes early",
                                   (unsigned long long)offset, (unsigned long long)bytes);
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
        to += got;
    }
    return TRAJD_OK;
}

/* ---- identity ---- */

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
