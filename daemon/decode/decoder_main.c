/* trajd-decoder, the helper program that decodes pictures for a parent (decode_protocol.h). Only
 * trajd and trajctl start it. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/decode/decode_frame.h"
#include "daemon/sandbox/sandbox.h"

/* The memory that it shares with its parent. */
struct memory {
    uint8_t *bytes;
    uint64_t size;
};

union packet {
    struct trajd_decode_header header;
    struct trajd_decode_setup setup;
    struct trajd_decode_job job;
};

/* Receives a packet of the kind. *fd: the descriptor that came with it, or -1. */
static bool receive(uint32_t kind, size_t size, union packet *packet, int *fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec slice = {packet, sizeof *packet};
    struct msghdr message = {.msg_iov = &slice,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t received = recvmsg(TRAJD_SANDBOX_SOCKET, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    *fd = -1;
    if (received > 0 && rights && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    return received == (ssize_t)size && packet->header.magic == TRAJD_DECODE_MAGIC &&
           packet->header.kind == kind;
}

/* Maps the memory behind a descriptor, which it closes. */
static bool map(int fd, uint64_t size, int protection, struct memory *memory)
{
    struct stat about;

    memory->size = size;
    memory->bytes = MAP_FAILED;
    if (fd >= 0 && !fstat(fd, &about) && (uint64_t)about.st_size >= size)
        memory->bytes = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory->bytes != MAP_FAILED;
}

static bool is_inside(const struct memory *memory, uint64_t offset, uint64_t size)
{
    return offset <= memory->size && size <= memory->size - offset;
}

static bool serve_job(struct trajd_decode_state *state, const struct memory *input,
                      const struct memory *output, const struct trajd_decode_job *job)
{
    struct trajd_decode_reply reply = {{TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}, job->count, {""}};

    if (job->count > TRAJD_DECODE_FRAMES_MAX ||
        job->count > output->size / state->setup.frame_bytes)
        return false;
    for (uint32_t i = 0; i < job->count; i++) {
        const uint64_t offset = job->frames[i].offset, size = job->frames[i].size;
        if (!is_inside(input, offset, size))
            return false;
        if (!trajd_decode_frame(state, input->bytes + offset, size, job->frames[i].room,
                                output->bytes + i * state->setup.frame_bytes, reply.reasons[i],
                                sizeof reply.reasons[i]) &&
            !reply.reasons[i][0])
            strcpy(reply.reasons[i], "it cannot be decoded");
    }
    return send(TRAJD_SANDBOX_SOCKET, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply;
}

static bool serve(struct trajd_decode_state *state, const struct memory *input,
                  const struct memory *output)
{
    const struct trajd_decode_reply ready = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    union packet packet;
    int fd;

    if (send(TRAJD_SANDBOX_SOCKET, &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready)
        return false;
    while (receive(TRAJD_DECODE_JOB, sizeof packet.job, &packet, &fd)) {
        if (fd >= 0)
            close(fd);
        if (!serve_job(state, input, output, &packet.job))
            return false;
    }
    return true;
}

int main(void)
{
    struct trajd_decode_state state = {0};
    struct memory input = {0}, output = {0};
    union packet packet;
    bool ok = false;
    int fd;

    if (!trajd_sandbox_limit(false) || !trajd_sandbox_filter(false)) {
        fprintf(stderr,
                "trajd-decoder: cannot start (is it run by hand? trajd and trajctl run it)\n");
        return 1;
    }
    if (receive(TRAJD_DECODE_SETUP, sizeof packet.setup, &packet, &fd) &&
        map(fd, packet.setup.input_bytes, PROT_READ, &input)) {
        const struct trajd_decode_setup setup = packet.setup;
        ok = receive(TRAJD_DECODE_OUTPUT, sizeof packet.header, &packet, &fd) &&
             map(fd, setup.output_bytes, PROT_READ | PROT_WRITE, &output) && setup.frame_bytes &&
             trajd_decode_state_make(&setup, &state) && serve(&state, &input, &output);
    }
    trajd_decode_state_free(&state);
    return ok ? 0 : 1;
}
