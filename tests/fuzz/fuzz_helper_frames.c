// libs: trajd_convert
/* Frames of any bytes from a helper program that libhdf5 has handed to an attacker: to the daemon
 * while it indexes, and to `trajctl resample`. Only the frames: fuzz_index.c has the records in
 * them. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients/cli/resample/convert_writer.h"
#include "daemon/base/clock.h"
#include "daemon/index/index_child.h"

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
    struct trajd_error error = {0};
    struct convert_writer writer = {.output = "out.hdf5",
                                    .error = &error,
                                    .socket = receive_from(data, size),
                                    .is_ready = true,
                                    .pending_count = 8,
                                    .heard_ns = trajd_now_ns()};

    while (!convert_writer_receive(&writer))
        if (writer.pending_count > 8 || writer.free_count)
            abort();
    if (!error.status)
        abort();
    convert_writer_end(&writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST_BYTES)
        size = MOST_BYTES;
    index_file(data, size);
    write_file(data, size);
    return 0;
}
