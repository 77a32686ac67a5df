/* The loop of a decoder child: receives setups and jobs, and replies. */
#include "daemon/decode/decode_child.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
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
    struct trajd_decode_unit unit;
};

struct child {
    int socket;
    struct memory input, output;
    struct trajd_decode_state state; /* frame_bytes 0: there is no setup */
};

/* Receives a packet of any kind. *fd: the descriptor that came with it, or -1. */
static bool receive(int socket, union packet *packet, int *fd)
{
    static const size_t sizes[] = {[TRAJD_DECODE_SETUP] = sizeof packet->setup,
                                   [TRAJD_DECODE_OUTPUT] = sizeof packet->header,
                                   [TRAJD_DECODE_JOB] = sizeof packet->job,
                                   [TRAJD_DECODE_REPLY] = 0,
                                   [TRAJD_DECODE_UNIT] = sizeof packet->unit};
    const ssize_t size = trajd_receive_fd(socket, packet, sizeof *packet, fd);

    if (size >= (ssize_t)sizeof packet->header && packet->header.magic == TRAJD_DECODE_MAGIC &&
        packet->header.kind >= TRAJD_DECODE_SETUP && packet->header.kind <= TRAJD_DECODE_UNIT &&
        (size_t)size == sizes[packet->header.kind])
        return true;
    if (*fd >= 0)
        close(*fd);
    return false;
}

static void unmap(struct memory *memory)
{
    if (memory->bytes)
        munmap(memory->bytes, memory->size);
    *memory = (struct memory){0};
}

/* Maps the whole memory behind a descriptor, which it closes. It must have `size` bytes at least.
 * fd -1: the memory stays. */
static bool map(int fd, uint64_t size, int protection, struct memory *memory)
{
    struct stat about;

    if (fd >= 0) {
        unmap(memory);
        memory->size =
            !trajd_sandbox_fstat(fd, &about) && about.st_size > 0 ? (uint64_t)about.st_size : 0;
        memory->bytes = mmap(NULL, memory->size, protection, MAP_SHARED, fd, 0);
        close(fd);
        if (memory->bytes == MAP_FAILED)
            *memory = (struct memory){0};
    }
    return memory->bytes && size <= memory->size;
}

static bool is_inside(const struct memory *memory, uint64_t offset, uint64_t size)
{
    return offset <= memory->size && size <= memory->size - offset;
}

static bool serve_job(struct child *child, const struct trajd_decode_job *job)
{
    struct trajd_decode_reply reply = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY},
                                       .count = job->count};
    const uint64_t frame_bytes = child->state.setup.frame_bytes;

    if (!frame_bytes || child->state.setup.video.codec || job->count > TRAJD_DECODE_FRAMES_MAX ||
        job->count > child->output.size / frame_bytes)
        return false;
    for (uint32_t i = 0; i < job->count; i++) {
        const uint64_t offset = job->frames[i].offset, size = job->frames[i].size;
        if (!is_inside(&child->input, offset, size))
            return false;
        if (!trajd_decode_frame(&child->state, child->input.bytes + offset, size,
                                job->frames[i].room, child->output.bytes + i * frame_bytes,
                                reply.reasons[i], sizeof reply.reasons[i]) &&
            !reply.reasons[i][0])
            strcpy(reply.reasons[i], "it cannot be decoded");
        reply.sizes[i] = child->state.jpeg_bytes;
        if (!strcmp(reply.reasons[i], TRAJD_DECODE_NO_MEMORY))
            return false; /* the parent has the frames decoded again */
    }
    return send(child->socket, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply;
}

static bool serve_unit(struct child *child, const struct trajd_decode_unit *unit)
{
    struct trajd_decode_reply reply = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    const uint64_t frame_bytes = child->state.setup.frame_bytes;
    uint64_t room;

    if (!frame_bytes || !child->state.setup.video.codec)
        return false;
    room = child->state.setup.output_bytes / frame_bytes;
    if (room > TRAJD_DECODE_FRAMES_MAX)
        room = TRAJD_DECODE_FRAMES_MAX;
    if (!room ||
        (!unit->is_continued &&
         !trajd_decode_unit_begin(&child->state, child->input.bytes, child->input.size, unit)) ||
        !trajd_decode_unit_run(&child->state, child->output.bytes, (uint32_t)room, &reply) ||
        send(child->socket, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply)
        return false;
    if (!child->state.video.wanted_count)
        trajd_decode_unit_end(&child->state.video); /* while the parent copies */
    return true;
}

static void drop_setup(struct child *child)
{
    trajd_decode_state_free(&child->state);
    child->state.setup.frame_bytes = 0;
}

/* Takes a setup, whose packet may have brought the descriptor of the input memory, in the place of
 * the one before it. */
static bool set_up(struct child *child, const struct trajd_decode_setup *setup, int input_fd)
{
    const struct trajd_decode_reply ready = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}};
    union packet packet;
    int fd;

    drop_setup(child);
    if (!map(input_fd, setup->input_bytes, PROT_READ, &child->input) ||
        !receive(child->socket, &packet, &fd))
        return false;
    if (packet.header.kind != TRAJD_DECODE_OUTPUT) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    return map(fd, setup->output_bytes, PROT_READ | PROT_WRITE, &child->output) &&
           setup->frame_bytes && trajd_decode_state_make(setup, &child->state) &&
           send(child->socket, &ready, sizeof ready, MSG_NOSIGNAL) == sizeof ready;
}

static bool serve_packet(struct child *child, const union packet *packet, int fd)
{
    if (packet->header.kind == TRAJD_DECODE_SETUP)
        return set_up(child, &packet->setup, fd);
    if (fd >= 0)
        close(fd);
    if (packet->header.kind == TRAJD_DECODE_UNIT)
        return serve_unit(child, &packet->unit);
    return packet->header.kind == TRAJD_DECODE_JOB && serve_job(child, &packet->job);
}

bool trajd_decode_serve(int socket)
{
    struct child child = {.socket = socket};
    union packet packet;
    bool ok = false;
    int fd;

    while (receive(socket, &packet, &fd) && (ok = serve_packet(&child, &packet, fd)))
        ;
    drop_setup(&child);
    unmap(&child.input);
    unmap(&child.output);
    return ok;
}
