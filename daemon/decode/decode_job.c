#include "daemon/decode/decode_job.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "kernels/image/image_frame.h"

/* Waits for the child's reply. */
static bool receive(const struct trajd_decode_link *link, struct trajd_decode_reply *reply)
{
    const int64_t deadline_ns = trajd_now_ns() + link->timeout_ms * INT64_C(1000000);
    int64_t remaining_ns;

    while ((remaining_ns = deadline_ns - trajd_now_ns()) > 0) {
        struct pollfd wait = {.fd = link->socket, .events = POLLIN};
        if (poll(&wait, 1, (int)(remaining_ns / 1000000) + 1) > 0)
            return recv(link->socket, reply, sizeof *reply, MSG_DONTWAIT) == sizeof *reply &&
                   reply->header.magic == TRAJD_DECODE_MAGIC &&
                   reply->header.kind == TRAJD_DECODE_REPLY;
    }
    return false;
}

static bool send_packet(const struct trajd_decode_link *link, const void *packet, size_t size,
                        int fd)
{
    return trajd_send_fd(link->socket, packet, size, fd, 0) == (ssize_t)size;
}

bool trajd_decode_link_open(const struct trajd_decode_link *link, bool has_memory)
{
    const struct trajd_decode_header output = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_OUTPUT};
    struct trajd_decode_reply ready;

    return send_packet(link, &link->setup, sizeof link->setup, has_memory ? -1 : link->input.fd) &&
           send_packet(link, &output, sizeof output, has_memory ? -1 : link->output.fd) &&
           receive(link, &ready);
}

bool trajd_decode_job_run(const struct trajd_decode_link *link, struct trajd_decoder_frame *frames,
                          uint32_t count)
{
    struct trajd_decode_job job = {{TRAJD_DECODE_MAGIC, TRAJD_DECODE_JOB}, count, {{0, 0, 0}}};
    struct trajd_decode_reply reply;
    uint64_t offset = 0;

    for (uint32_t i = 0; i < count; i++) {
        job.frames[i].offset = offset;
        offset += frames[i].size;
        job.frames[i].size = frames[i].size;
        job.frames[i].room = frames[i].room;
        memcpy(link->input.bytes + job.frames[i].offset, frames[i].bytes, frames[i].size);
    }
    if (!send_packet(link, &job, sizeof job, -1) || !receive(link, &reply) || reply.count != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        reply.reasons[i][sizeof reply.reasons[i] - 1] = '\0';
        snprintf(frames[i].reason, sizeof frames[i].reason, "%s", reply.reasons[i]);
        for (char *c = frames[i].reason; *c; c++)
            *c = *c < ' ' || *c > '~' ? ' ' : *c;
        if (!frames[i].reason[0])
            trajd_image_copy(frames[i].pixels, link->output.bytes + i * link->setup.frame_bytes,
                             link->setup.frame_bytes);
    }
    return true;
}
