/* Sends and receives the helper program's frames. */
#include "daemon/hdf5/helper_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"

bool trajd_helper_receive(struct trajd_helper_header *header, int *fd)
{
    return trajd_receive_fd(TRAJD_HELPER_SOCKET, header, sizeof *header, fd) == sizeof *header &&
           header->magic == TRAJD_HELPER_MAGIC;
}

void *trajd_helper_memory(void *memory)
{
    if (!memory)
        exit(TRAJD_HELPER_NO_MEMORY);
    return memory;
}

void trajd_helper_make_plain(char *text, char by)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = by;
}

bool trajd_helper_send(uint32_t kind, const void *data, size_t length)
{
    struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, kind, length};

    return trajd_send_all(TRAJD_HELPER_SOCKET, &header, sizeof header) &&
           trajd_send_all(TRAJD_HELPER_SOCKET, data, length);
}
