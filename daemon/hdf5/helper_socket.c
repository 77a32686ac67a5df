#include "daemon/hdf5/helper_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/base/unix_socket.h"

bool trajd_helper_receive(struct trajd_helper_header *header, int *fd)
{
    return trajd_receive_fd(TRAJD_HELPER_SOCKET, header, sizeof *header, fd) == sizeof *header &&
           header->magic == TRAJD_HELPER_MAGIC;
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
