/* Unix sockets: listens at a path, sends bytes and a file descriptor. */
#ifndef TRAJD_BASE_UNIX_SOCKET_H
#define TRAJD_BASE_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/error.h"

/* Replaces the file at `path` by a socket of `type` (SOCK_STREAM, ...) and listens. The file has
 * mode 0770 with `group_access`, else 0700, before the first client can connect. On success *fd is
 * a non-blocking socket that the caller closes; the caller also removes the file. Thread-safe: the
 * umask of the process does not change. TRAJD_ERR_ARGUMENT: the path is too long;
 * TRAJD_ERR_SYSTEM: the system refuses. */
enum trajd_status trajd_unix_listen(const char *path, int type, bool group_access, int backlog,
                                    int *fd, struct trajd_error *error);

/* Like send(2) with MSG_NOSIGNAL and `flags`. The descriptor travels with the first byte (fd < 0:
 * none) and stays open for the caller. */
ssize_t trajd_send_fd(int socket, const void *data, size_t size_bytes, int fd, int flags);

#endif
