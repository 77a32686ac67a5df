#include "daemon/hdf5/helper_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool trajd_helper_receive(struct trajd_helper_header *header, int *fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec slice = {header, sizeof *header};
    struct msghdr message = {.msg_iov = &slice,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights;
    ssize_t received;

    *fd = -1;
    do
        received = recvmsg(TRAJD_HELPER_SOCKET, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    rights = CMSG_FIRSTHDR(&message);
    if (received > 0 && rights && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    return received == sizeof *header && header->magic == TRAJD_HELPER_MAGIC;
}

static bool send_all(const void *data, size_t length)
{
    const uint8_t *next = data;

    while (length) {
        ssize_t sent = send(TRAJD_HELPER_SOCKET, next, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        if (sent > 0) {
            next += sent;
            length -= (size_t)sent;
        }
    }
    return true;
}

void *trajd_helper_memory(void *memory)
{
    if (!memory)
        exit(TRAJD_HELPER_NO_MEMORY);
    return memory;
}

bool trajd_helper_send(uint32_t kind, const void *data, size_t length)
{
    struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, kind, length};

    return send_all(&header, sizeof header) && send_all(data, length);
}
