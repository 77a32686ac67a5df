/* Sends a job to a decoder child, and checks its reply. */
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

/* Takes frame `i` of a reply: its pixels or JPEG, or the reason why it is bad. */
static void take(const struct trajd_decode_link *link, struct trajd_decode_reply *reply, uint32_t i,
                 struct trajd_decoder_frame *frame)
{
    const uint64_t room = link->setup.frame_bytes,
                   size = link->setup.jpeg_quality ? reply->sizes[i] : room;

    reply->reasons[i][sizeof reply->reasons[i] - 1] = '\0';
    snprintf(frame->reason, sizeof frame->reason, "%s", reply->reasons[i]);
    for (char *c = frame->reason; *c; c++)
        *c = *c < ' ' || *c > '~' ? ' ' : *c;
    if (frame->reason[0])
        return;
    frame->made_bytes = size < room ? size : room;
    trajd_image_copy(frame->pixels, link->output.bytes + i * room, frame->made_bytes);
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
    for (uint32_t i = 0; i < count; i++)
        take(link, &reply, i, &frames[i]);
    return true;
}

/* Writes the unit into the input memory. */
static void put_unit(const struct trajd_decode_link *link, const struct trajd_decoder_unit *unit,
                     const struct trajd_decode_wanted *wanted)
{
    struct trajd_decode_packet *packets = (struct trajd_decode_packet *)link->input.bytes;
    uint8_t *rest = link->input.bytes + wanted->packet_count * sizeof *packets;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < wanted->packet_count; i++) {
        packets[i].size = (uint32_t)unit->sizes[i];
        packets[i].is_wanted = wanted->of_packet[i];
        bytes += unit->sizes[i];
    }
    if (unit->extradata_size)
        memcpy(rest, unit->extradata, unit->extradata_size);
    if (bytes)
        memcpy(rest + unit->extradata_size, unit->bytes, bytes);
}

/* Takes the frames of a reply. False where one of them is not wanted. */
static bool take_all(const struct trajd_decode_link *link, struct trajd_decode_reply *reply,
                     struct trajd_decode_wanted *wanted, struct trajd_decoder_frame *frames,
                     uint32_t count)
{
    if (reply->count > TRAJD_DECODE_FRAMES_MAX ||
        reply->count * link->setup.frame_bytes > link->setup.output_bytes)
        return false;
    for (uint32_t i = 0; i < reply->count; i++) {
        const uint32_t packet = reply->packets[i];
        if (packet >= wanted->packet_count || !wanted->of_packet[packet])
            return false;
        for (uint32_t f = 0; f < count; f++)
            if (frames[f].packet == packet)
                take(link, reply, i, &frames[f]);
        wanted->of_packet[packet] = false;
        wanted->count--;
    }
    return true;
}

bool trajd_decode_unit_take(const struct trajd_decode_link *link,
                            const struct trajd_decoder_unit *unit,
                            struct trajd_decode_wanted *wanted, struct trajd_decoder_frame *frames,
                            uint32_t count)
{
    struct trajd_decode_unit job = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_UNIT},
                                    .packet_count = wanted->packet_count,
                                    .extradata_size = unit->extradata_size};
    uint32_t empty_max = wanted->packet_count / TRAJD_DECODE_PACKETS_MAX + 1;
    struct trajd_decode_reply reply;

    put_unit(link, unit, wanted);
    for (; wanted->count; job.is_continued = 1) {
        if (!send_packet(link, &job, sizeof job, -1) || !receive(link, &reply) ||
            !take_all(link, &reply, wanted, frames, count))
            return false;
        if (!reply.count && !empty_max--)
            return false; /* it makes nothing */
    }
    return true;
}
