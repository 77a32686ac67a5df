// libs: trajd_decode_child
/* Packets of a parent to the helper program: a setup and two jobs that fit together, perhaps with
 * another setup between the jobs, and with bytes of them changed. Input: what is prepared (bit 0),
 * and whether there are two setups (bit 1); the number of changes, each of a place and a value;
 * then the encoded frame in the input memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/decode/decode_child.h"
#include "daemon/decode/decode_protocol.h"

enum { HEIGHT = 29, WIDTH = 42, SIDE = 8, MEMORY_BYTES = 1 << 14, CHANGE_BYTES = 3, JOBS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct packets {
    struct trajd_decode_setup setup;
    struct trajd_decode_header output;
    struct trajd_decode_job jobs[JOBS];
    struct trajd_decode_setup second_setup;
    struct trajd_decode_header second_output;
};

static struct packets make_packets(bool is_prepared, size_t frame_size)
{
    struct packets p = {
        .setup = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_SETUP},
                  .image = {.is_present = true,
                            .color = TRAJD_COLOR_RGB,
                            .height = HEIGHT,
                            .width = WIDTH},
                  .bits = 8,
                  .upright = 1,
                  .is_prepared = is_prepared,
                  .preparation = {.source_height = HEIGHT,
                                  .source_width = WIDTH,
                                  .channels = 3,
                                  .type = TRAJD_U8,
                                  .crop = {0, 0, HEIGHT, WIDTH}},
                  .input_bytes = MEMORY_BYTES,
                  .output_bytes = MEMORY_BYTES,
                  .frame_bytes = is_prepared ? SIDE * SIDE * 3 : HEIGHT * WIDTH * 3},
        .output = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_OUTPUT}};

    trajd_image_place(&p.setup.preparation, TRAJD_IMAGE_STRETCH, SIDE, SIDE);
    for (int j = 0; j < JOBS; j++) {
        p.jobs[j].header = (struct trajd_decode_header){TRAJD_DECODE_MAGIC, TRAJD_DECODE_JOB};
        p.jobs[j].count = 2;
        for (int i = 0; i < 2; i++)
            p.jobs[j].frames[i].size = p.jobs[j].frames[i].room = frame_size;
    }
    return p;
}

static int make_memory(const uint8_t *bytes, size_t size)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, MEMORY_BYTES) || (size && write(fd, bytes, size) != (ssize_t)size))
        abort();
    return fd;
}

static void limit_sides(struct trajd_decode_setup *setup)
{
    setup->image.height &= 0x1ff;
    setup->image.width &= 0x1ff;
    setup->preparation.inner_height &= 0x1ff;
    setup->preparation.inner_width &= 0x1ff;
}

static void serve(const struct packets *p, bool has_two_setups, int input, int output)
{
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
        abort();
    trajd_send_fd(sockets[0], &p->setup, sizeof p->setup, input, 0);
    trajd_send_fd(sockets[0], &p->output, sizeof p->output, output, 0);
    for (int j = 0; j < JOBS; j++) {
        if (j && has_two_setups) {
            trajd_send_fd(sockets[0], &p->second_setup, sizeof p->second_setup, input, 0);
            trajd_send_fd(sockets[0], &p->second_output, sizeof p->second_output, output, 0);
        }
        trajd_send_fd(sockets[0], &p->jobs[j], sizeof p->jobs[j], -1, 0);
    }
    shutdown(sockets[0], SHUT_WR);
    trajd_decode_serve(sockets[1]);
    close(sockets[0]);
    close(sockets[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t head = 2 + (size > 1 ? data[1] % 16 * CHANGE_BYTES : 0);
    struct packets packets;
    struct trajd_decode_setup second;
    size_t frame_size;
    int input, output;

    if (size < head)
        return 0;
    frame_size = size - head < MEMORY_BYTES ? size - head : MEMORY_BYTES;
    packets = make_packets(!(data[0] & 1), frame_size);
    second = packets.setup;
    packets = make_packets(data[0] & 1, frame_size);
    packets.second_setup = second;
    packets.second_output = packets.output;
    for (size_t at = 2; at < head; at += CHANGE_BYTES)
        ((uint8_t *)&packets)[(data[at] | data[at + 1] << 8) % sizeof packets] = data[at + 2];
    /* larger images only take time */
    limit_sides(&packets.setup);
    limit_sides(&packets.second_setup);
    input = make_memory(data + head, frame_size);
    output = make_memory(NULL, 0);
    serve(&packets, data[0] & 2, input, output);
    close(input);
    close(output);
    return 0;
}
