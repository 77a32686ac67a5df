/* Unix sockets: listens at a path, sends and receives bytes with a file descriptor, and divides the
 * places of a table of connections among users. */
#ifndef TRAJD_BASE_UNIX_SOCKET_H
#define TRAJD_BASE_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/error.h"

/* Replaces the file at `path` by a socket of `type` (SOCK_STREAM, ...) and listens. The file has
 * mode 0770 with `group_access`, else 0700, before the first client can connect. On success *fd is
 * a non-blocking socket that the caller closes; the caller also removes the file. Thread-safe: the
 * umask of the process does not change. TRAJD_ERR_ARGUMENT: the path is too long;
 * TRAJD_ERR_SYSTEM: the system refuses. */
enum trajd_status trajd_unix_listen(const char *path, int type, bool group_access, int backlog,
                                    int *fd, struct trajd_error *error);

/* Makes the kernel refuse descriptors that are sent to a listener's connections. The system would
 * close them on the thread that reads the message, which may block it. Needs Linux 6.16; does
 * nothing before. */
void trajd_unix_refuse_descriptors(int listener);

/* Returns whether this errno of accept says that no descriptor or memory is free. The connection then
 * keeps its listener readable: it has to be left alone for a while. */
bool trajd_unix_lacks_descriptors(int code);

/* Like send(2) with MSG_NOSIGNAL and `flags`. The descriptor travels with the first byte (fd < 0:
 * none) and stays open for the caller. */
ssize_t trajd_send_fd(int socket, const void *data, size_t size_bytes, int fd, int flags);

/* Sends all bytes to a blocking stream, without a signal where the peer is gone. Returns whether
 * that was possible. */
bool trajd_send_all(int socket, const void *data, size_t size_bytes);

/* Receives up to `size_bytes` from a blocking socket, and all of them where it is a stream that
 * does not end before. *fd is the descriptor that came with them, which the caller closes, or -1.
 * Returns the number of bytes; 0 at the end of the socket; -1 with errno after an error. */
ssize_t trajd_receive_fd(int socket, void *data, size_t size_bytes, int *fd);

/* A connection in a table. */
struct trajd_unix_place {
    int fd; /* -1: the place is free */
    uid_t uid;
    int64_t used_ns; /* CLOCK_MONOTONIC, of its last use */
};

/* Returns the uid of the process that has connected; (uid_t)-1 where the system does not know. */
uid_t trajd_unix_peer_uid(int socket);
/* Chooses the place for a new connection of `uid`: a free one, or else the least recently used one
 * of the user who would hold the most, the new connection counted. So users who want more places
 * than there are get equal shares. Among users who hold the same number `uid` itself gives its own
 * place. Returns UINT32_MAX where no place can be had. */
uint32_t trajd_unix_choose_place(const struct trajd_unix_place *places, uint32_t count, uid_t uid);

#endif
