#include "daemon/decode/decode_serve.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/decode/decode_frame.h"

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
static bool receive(int socket, uint32_t kind, size_t size, union packet *packet, int *fd)
{
    if (trajd_receive_fd(socket, packet, sizeof *packet, fd) == (ssize_t)size &&
        packet->header.magic == TRAJD_DECODE_MAGIC && packet->header.kind == kind)
        return true;
    if (*fd >= 0)
        close(*fd);
    return false;
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

static void unmap(struct memory *memory)
{
    if (memory->bytes && memory->bytes != MAP_FAILED)
        munmap(memory->bytes, memory->size);
}

static bool is_inside(const struct memory *memory, uint64_t offset, uint64_t size)
{
    return offset <= memory->size && size <= memory->size - offset;
}

static bool serve_job(int socket, struct trajd_decode_state *state, const struct memory *input,
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
    return send(socket, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply;
}

static bool serve_jobs(int socket, struct trajd_decode_state *state, const struct memory *input,
                       const struct memory *output)
{
    const struct trajd_decode_reply ready = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    union packet packet;
    int fd;

    if (send(socket, &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready)
        return false;
    while (receive(socket, TRAJD_DECODE_JOB, sizeof packet.job, &packet, &fd)) {
        if (fd >= 0)
            close(fd);
        if (!serve_job(socket, state, input, output, &packet.job))
            return false;
    }
    return true;
}

bool trajd_decode_serve(int socket)
{
    struct trajd_decode_state state = {0};
    struct memory input = {0}, output = {0};
    struct trajd_decode_setup setup;
    union packet packet;
    bool ok = false;
    int fd;

    if (receive(socket, TRAJD_DECODE_SETUP, sizeof packet.setup, &packet, &fd) &&
        map(fd, packet.setup.input_bytes, PROT_READ, &input)) {
        setup = packet.setup;
        ok = receive(socket, TRAJD_DECODE_OUTPUT, sizeof packet.header, &packet, &fd) &&
             map(fd, setup.output_bytes, PROT_READ | PROT_WRITE, &output) && setup.frame_bytes &&
             trajd_decode_state_make(&setup, &state) && serve_jobs(socket, &state, &input, &output);
    }
    trajd_decode_state_free(&state);
    unmap(&input);
    unmap(&output);
    return ok;
}
