/* Sends bytes and a file descriptor through a Unix socket. */
#ifndef TRAJD_BASE_SEND_FD_H
#define TRAJD_BASE_SEND_FD_H

#include <stddef.h>
#include <sys/types.h>

/* Like send(2) with MSG_NOSIGNAL and `flags`. The descriptor travels with the first byte (fd < 0:
 * none) and stays open for the caller. */
ssize_t trajd_send_fd(int socket, const void *data, size_t size_bytes, int fd, int flags);

#endif
