/* For LD_PRELOAD: a disk with one bad byte. Reads that cover the offset TRAJD_TEST_BAD_BYTE fail
 * with EIO, in any file. The first such read of a process succeeds. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRELOADED __attribute__((visibility("default")))

static atomic_int covering;

PRELOADED ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    const char *text = getenv("TRAJD_TEST_BAD_BYTE");
    const int64_t bad = text ? strtoll(text, NULL, 10) : -1;

    if (bad < offset || bad - offset >= (int64_t)size || atomic_fetch_add(&covering, 1) == 0)
        return syscall(SYS_pread64, fd, data, size, offset);
    errno = EIO;
    return -1;
}

PRELOADED ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    return pread64(fd, data, size, offset);
}
