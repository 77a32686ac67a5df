/* Sends and receives the helper program's frames. */
#include "daemon/hdf5/helper_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"

bool trajd_helper_receive(struct trajd_helper_header *header, int *fd)
{
    return trajd_receive_fd(TRAJD_HELPER_SOCKET, header, sizeof *header, fd) == sizeof *header &&
           header->magic == TRAJD_HELPER_MAGIC;
}

/* shared with the parent */
static char *place;

bool trajd_helper_receive_place(void)
{
    struct trajd_helper_header header;
    void *memory = MAP_FAILED;
    int fd;

    if (!trajd_helper_receive(&header, &fd))
        return false;
    if (fd >= 0) {
        memory = mmap(NULL, TRAJD_HELPER_PLACE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    place = memory == MAP_FAILED ? NULL : memory;
    return header.kind == TRAJD_HELPER_PLACE && header.length == 0;
}

void trajd_helper_is_at(const char *group, const char *path)
{
    const bool is_root = !strcmp(group, "/");

    if (place)
        snprintf(place, TRAJD_HELPER_PLACE_SIZE, "%s%s%s", group, *path && !is_root ? "/" : "",
                 path);
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
