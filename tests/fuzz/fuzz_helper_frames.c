// libs: trajd_convert
/* Frames of any bytes from a helper program that libhdf5 has handed to an attacker: to the daemon
 * while it indexes, and to `trajctl resample`. Only the frames: fuzz_index.c has the records in
 * them. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients/cli/resample/convert_child.h"
#include "daemon/index/index_child.h"
#include "daemon/index/writer_protocol.h"

enum { MOST_BYTES = 64 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the end of a connection on which these bytes wait, and then its end. */
static int receive_from(const uint8_t *data, size_t size)
{
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        abort();
    if (send(sockets[1], data, size, MSG_DONTWAIT) != (ssize_t)size)
        abort();
    close(sockets[1]);
    return sockets[0];
}

static void index_file(const uint8_t *data, size_t size)
{
    enum trajd_index_child_event event = TRAJD_CHILD_WAITS;
    struct trajd_index_child child;

    trajd_index_child_init(&child);
    child.socket = receive_from(data, size);
    while (event == TRAJD_CHILD_WAITS || event == TRAJD_CHILD_FRAME) {
        event = trajd_index_child_receive(&child);
        if (child.data_length > child.data_capacity)
            abort();
        if (event == TRAJD_CHILD_FRAME)
            trajd_index_child_release(&child);
    }
    close(child.socket);
    free(child.data);
}

static void write_file(const uint8_t *data, size_t size)
{
    static const struct trajd_convert_options options = {.output = "out.hdf5"};
    static const struct convert_plan plan = {.options = &options};
    struct trajd_error error = {0};
    struct convert_child child = {
        .plan = &plan, .error = &error, .socket = receive_from(data, size), .is_ready = true};
    size_t length;

    while (!convert_child_reply(&child, TRAJD_WRITER_OFFSETS, &length))
        if (length > child.reply_capacity)
            abort();
    if (!error.status)
        abort();
    convert_child_end(&child);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST_BYTES)
        size = MOST_BYTES;
    index_file(data, size);
    write_file(data, size);
    return 0;
}
