/* A helper program that fails as a frame's first byte says. It decodes other frames to that byte.
 *
 *     'K'  it crashes                       'h'  it hangs, but only in a job of several frames
 *     'k'  the same, but only in a job      'c'  its reply counts one frame too many
 *          of several frames                't'  its reply is too short
 *     'H'  it hangs                         'm'  its reply begins with other bytes
 *     'r'  the reason has no end, and no letters
 *     'O'  it is killed as the kernel does it where memory is full
 *
 * Of a unit the first byte of its first packet says it, and each reply has one frame: 'K' crashes in
 * the second job, 'e' makes nothing, 'w' makes a frame that is not wanted; 'H', 't', 'c' as above.
 *
 * Where frames have 16 bits it is killed like that before it is ready. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/decode/decode_protocol.h"
#include "daemon/sandbox/sandbox.h"

static void fail_as(uint8_t kind, bool is_alone, struct trajd_decode_reply *reply, char *reason,
                    size_t *size)
{
    if (kind == 'K' || (kind == 'k' && !is_alone))
        raise(SIGSYS);
    if (kind == 'O')
        raise(SIGKILL);
    if (kind == 'H' || (kind == 'h' && !is_alone))
        raise(SIGSTOP);
    if (kind == 'r')
        memset(reason, '\x8a', TRAJD_DECODE_REASON_SIZE);
    reply->count += kind == 'c';
    reply->header.magic += kind == 'm';
    *size -= kind == 't';
}

static void serve_unit(const struct trajd_decode_unit *unit, uint64_t frame_bytes,
                       const uint8_t *input, uint8_t *output)
{
    const struct trajd_decode_packet *packets = (const struct trajd_decode_packet *)input;
    const uint8_t kind = input[unit->packet_count * sizeof *packets + unit->extradata_size];
    struct trajd_decode_reply reply = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    size_t size = sizeof reply;

    if (kind != 'K' || unit->is_continued)
        fail_as(kind, true, &reply, reply.reasons[0], &size);
    reply.packets[0] = kind == 'w' ? unit->packet_count : 0;
    while (kind != 'w' && !packets[reply.packets[0]].is_wanted)
        reply.packets[0]++; /* of this child: the parent leaves the table as it is */
    reply.count = kind == 'e' ? 0 : kind == 'c' ? TRAJD_DECODE_FRAMES_MAX + 1 : 1;
    memset(output, kind, frame_bytes);
    send(TRAJD_SANDBOX_SOCKET, &reply, size, MSG_NOSIGNAL);
}

static void serve(const struct trajd_decode_setup *setup, const uint8_t *input, uint8_t *output)
{
    struct trajd_decode_reply reply = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    union {
        struct trajd_decode_header header;
        struct trajd_decode_job job;
        struct trajd_decode_unit unit;
    } packet;
    struct trajd_decode_job *const job = &packet.job;
    int fd;

    send(TRAJD_SANDBOX_SOCKET, &reply, sizeof reply, MSG_NOSIGNAL);
    while (trajd_receive_fd(TRAJD_SANDBOX_SOCKET, &packet, sizeof packet, &fd) > 0) {
        size_t size = sizeof reply;
        if (packet.header.kind == TRAJD_DECODE_UNIT) {
            serve_unit(&packet.unit, setup->frame_bytes, input, output);
            continue;
        }
        memset(reply.reasons, 0, sizeof reply.reasons);
        reply.count = job->count;
        for (uint32_t i = 0; i < job->count; i++) {
            const uint8_t kind = input[job->frames[i].offset];
            memset(output + i * setup->frame_bytes, kind, setup->frame_bytes);
            fail_as(kind, job->count == 1, &reply, reply.reasons[i], &size);
        }
        send(TRAJD_SANDBOX_SOCKET, &reply, size, MSG_NOSIGNAL);
    }
}

int main(void)
{
    struct trajd_decode_header header;
    struct trajd_decode_setup setup;
    void *input, *output;
    int in, out;

    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    trajd_receive_fd(TRAJD_SANDBOX_SOCKET, &setup, sizeof setup, &in);
    trajd_receive_fd(TRAJD_SANDBOX_SOCKET, &header, sizeof header, &out);
    input = mmap(NULL, setup.input_bytes, PROT_READ, MAP_SHARED, in, 0);
    output = mmap(NULL, setup.output_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
    if (setup.bits == 16)
        raise(SIGKILL);
    if (input != MAP_FAILED && output != MAP_FAILED)
        serve(&setup, input, output);
    return 0;
}
