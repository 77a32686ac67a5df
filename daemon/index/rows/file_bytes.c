/* Reads of known length. */
#include "daemon/index/rows/file_bytes.h"

#include <errno.h>
#include <string.h>
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
