/* Listens on Unix sockets, and sends and receives bytes with one descriptor. */
#include "daemon/base/unix_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum trajd_status trajd_unix_listen(const char *path, int type, bool group_access, int backlog,
                                    int *fd, struct trajd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    enum trajd_status status;

    *fd = -1;
    if (strlen(path) >= sizeof address.sun_path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
                               "%s: the path of a socket can have at most %zu bytes: choose a "
                               "shorter runtime directory",
                               path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    *fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socket: %s", strerror(errno));
    unlink(path);
    /* No client can connect before listen(), so chmod() is in time. */
    if (bind(*fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        chmod(path, group_access ? 0770 : 0700) == 0 && listen(*fd, backlog) == 0)
        return TRAJD_OK;
    status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    close(*fd);
    *fd = -1;
    return status;
}

void trajd_unix_refuse_descriptors(int listener)
{
    setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &(int){0}, sizeof(int));
}

bool trajd_unix_lacks_descriptors(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

ssize_t trajd_send_fd(int socket, const void *data, size_t size_bytes, int fd, int flags)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)data, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *rights;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

bool trajd_send_all(int socket, const void *data, size_t size_bytes)
{
    const uint8_t *next = data;

    while (size_bytes) {
        const ssize_t sent = send(socket, next, size_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        if (sent > 0) {
            next += sent;
            size_bytes -= (size_t)sent;
        }
    }
    return true;
}

ssize_t trajd_receive_fd(int socket, void *data, size_t size_bytes, int *fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = data, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *rights;
    ssize_t received;

    *fd = -1;
    do
        received = recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    rights = received > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    return received;
}

uid_t trajd_unix_peer_uid(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? (uid_t)-1 : peer.uid;
}

static uint32_t count_of(const struct trajd_unix_place *places, uint32_t count, uid_t uid)
{
    uint32_t held = 0;

    for (uint32_t i = 0; i < count; i++)
        held += places[i].fd >= 0 && places[i].uid == uid;
    return held;
}

uint32_t trajd_unix_choose_place(const struct trajd_unix_place *places, uint32_t count, uid_t uid)
{
    uint32_t most = count_of(places, count, uid) + 1, chosen = UINT32_MAX;
    uid_t loser = uid;

    for (uint32_t i = 0; i < count; i++)
        if (places[i].fd < 0)
            return i;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t held = count_of(places, count, places[i].uid);
        if (held > most) {
            most = held;
            loser = places[i].uid;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (places[i].uid == loser &&
            (chosen == UINT32_MAX || places[i].used_ns < places[chosen].used_ns))
            chosen = i;
    return chosen;
}
