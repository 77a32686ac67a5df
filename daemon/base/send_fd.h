/* Bytes to a Unix socket, with a descriptor beside them. */
#ifndef TRAJD_BASE_SEND_FD_H
#define TRAJD_BASE_SEND_FD_H

#include <stddef.h>
#include <sys/types.h>

/* As send with MSG_NOSIGNAL and `flags`; the descriptor, which stays the caller's, goes along with
 * the first byte (fd < 0: none). */
ssize_t trajd_send_fd(int socket, const void *data, size_t size_bytes, int fd, int flags);

#endif
