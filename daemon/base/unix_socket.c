#include "daemon/base/unix_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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
