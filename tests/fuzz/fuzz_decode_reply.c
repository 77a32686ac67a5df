// libs: trajd_decode
/* Replies of a helper program that an image has taken over, to the parent's side. Input: the
 * number of frames of the job, the replies' count and what is wrong with them or whether they are of
 * JPEGs, then the reasons, whose first bytes are the JPEGs' sizes, too. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/decode/decode_job.h"

enum { HEAD_BYTES = 3, FRAME_BYTES = 12, ENCODED_BYTES = 4, MOST = TRAJD_DECODE_FRAMES_MAX };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sends the reply. `damage`: bits that say what is wrong with it. */
static void reply_with(int socket, uint8_t count, uint8_t damage, const uint8_t *data, size_t size)
{
    struct {
        struct trajd_decode_reply reply;
        uint8_t more[8];
    } packet = {.reply = {.header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_REPLY}, .count = count}};

    if (size > sizeof packet.reply.reasons)
        size = sizeof packet.reply.reasons;
    memcpy(packet.reply.reasons, data, size);
    memcpy(packet.reply.sizes, data,
           size < sizeof packet.reply.sizes ? size : sizeof packet.reply.sizes);
    packet.reply.header.magic ^= damage & 1;
    packet.reply.header.kind ^= damage >> 1 & 1;
    packet.reply.count ^= (damage >> 2 & 1) ? 0x80000000 : 0;
    size = sizeof packet.reply + (damage >> 3 & 1 ? 8 : 0) - (damage >> 4 & 1 ? 100 : 0);
    if (!(damage >> 5 & 1) && send(socket, &packet, size, 0) != (ssize_t)size)
        abort();
    shutdown(socket, SHUT_WR);
}

static void check(const struct trajd_decoder_frame *frame, bool was_run, const uint8_t *expected)
{
    if (!memchr(frame->reason, 0, sizeof frame->reason) || (!was_run && *frame->reason))
        abort();
    for (const char *c = frame->reason; *c; c++)
        if (*c < ' ' || *c > '~')
            abort();
    if (was_run && !*frame->reason &&
        (frame->made_bytes > FRAME_BYTES || memcmp(frame->pixels, expected, frame->made_bytes)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t input[MOST * ENCODED_BYTES], output[MOST * FRAME_BYTES], pixels[sizeof output];
    struct trajd_decoder_frame frames[MOST] = {{0}};
    struct trajd_decode_link link = {.timeout_ms = 1000,
                                     .setup = {.frame_bytes = FRAME_BYTES},
                                     .input = {-1, input, sizeof input},
                                     .output = {-1, output, sizeof output},
                                     .largest_frame_bytes = ENCODED_BYTES};
    uint32_t count;
    int sockets[2];
    bool was_run;

    if (size < HEAD_BYTES)
        return 0;
    count = data[0] % MOST + 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
        abort();
    link.socket = sockets[0];
    for (uint32_t i = 0; i < sizeof output; i++)
        output[i] = (uint8_t)i;
    for (uint32_t i = 0; i < count; i++)
        frames[i] = (struct trajd_decoder_frame){.bytes = (const uint8_t *)"abcd",
                                                 .size = ENCODED_BYTES,
                                                 .room = ENCODED_BYTES,
                                                 .pixels = pixels + i * FRAME_BYTES};
    link.setup.jpeg_quality = data[2] >> 6 & 1;
    reply_with(sockets[1], data[1], data[2], data + HEAD_BYTES, size - HEAD_BYTES);
    was_run = trajd_decode_job_run(&link, frames, count);
    if (was_run && data[1] != count)
        abort();
    for (uint32_t i = 0; i < count; i++)
        check(&frames[i], was_run, output + i * FRAME_BYTES);
    close(sockets[0]);
    close(sockets[1]);
    return 0;
}
