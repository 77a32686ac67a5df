#include "daemon/decode/decoder.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/decode/decode_protocol.h"
#include "daemon/index/helper.h"

/* Memory that the child shares. */
struct memory {
    int fd;
    uint8_t *bytes;
    uint64_t size;
};

struct trajd_decoder {
    char *program;
    uint32_t timeout_ms;
    struct trajd_decode_setup setup;
    struct memory input, output;
    uint64_t largest_frame_bytes;
    pid_t pid; /* 0: no child */
    int socket;
};

static bool make_memory(const char *name, uint64_t size, struct memory *memory)
{
    memory->size = size;
    memory->fd = memfd_create(name, MFD_CLOEXEC);
    if (memory->fd < 0 || ftruncate(memory->fd, (off_t)size))
        return false;
    memory->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    return memory->bytes != MAP_FAILED;
}

static void free_memory(struct memory *memory)
{
    if (memory->bytes && memory->bytes != MAP_FAILED)
        munmap(memory->bytes, memory->size);
    if (memory->fd >= 0)
        close(memory->fd);
}

static void end_child(struct trajd_decoder *decoder)
{
    if (!decoder->pid)
        return;
    close(decoder->socket);
    kill(decoder->pid, SIGKILL);
    while (waitpid(decoder->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    decoder->pid = 0;
}

/* Waits for the child's reply. */
static bool receive(const struct trajd_decoder *decoder, struct trajd_decode_reply *reply)
{
    const int64_t deadline_ns = trajd_now_ns() + decoder->timeout_ms * INT64_C(1000000);
    int64_t remaining_ns;

    while ((remaining_ns = deadline_ns - trajd_now_ns()) > 0) {
        struct pollfd wait = {.fd = decoder->socket, .events = POLLIN};
        if (poll(&wait, 1, (int)(remaining_ns / 1000000) + 1) > 0)
            return recv(decoder->socket, reply, sizeof *reply, MSG_DONTWAIT) == sizeof *reply &&
                   reply->header.magic == TRAJD_DECODE_MAGIC &&
                   reply->header.kind == TRAJD_DECODE_REPLY;
    }
    return false;
}

static bool send_packet(const struct trajd_decoder *decoder, const void *packet, size_t size,
                        int fd)
{
    return trajd_send_fd(decoder->socket, packet, size, fd, 0) == (ssize_t)size;
}

static enum trajd_status start_child(struct trajd_decoder *decoder, struct trajd_error *error)
{
    const struct trajd_decode_header output = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_OUTPUT};
    struct trajd_decode_reply ready;
    int sockets[2], code;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socketpair: %s", strerror(errno));
    code = trajd_helper_spawn(decoder->program, NULL, sockets[1], &decoder->pid);
    close(sockets[1]);
    decoder->socket = sockets[0];
    if (code) {
        decoder->pid = 0;
        close(sockets[0]);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "%s: cannot be started: %s",
                               decoder->program, strerror(code));
    }
    if (send_packet(decoder, &decoder->setup, sizeof decoder->setup, decoder->input.fd) &&
        send_packet(decoder, &output, sizeof output, decoder->output.fd) &&
        receive(decoder, &ready))
        return TRAJD_OK;
    end_child(decoder);
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "%s: does not start", decoder->program);
}

static uint64_t frame_bytes(const struct trajd_decoder_options *options)
{
    const struct trajd_layout_image *image = &options->image;

    return options->preparation ? trajd_image_bytes(options->preparation)
                                : (uint64_t)image->height * image->width *
                                      trajd_picture_channels(image->color) * options->bits / 8;
}

static enum trajd_status check(const struct trajd_decoder_options *options,
                               struct trajd_error *error)
{
    if (!options->image.height || !options->image.width || !options->largest_frame_bytes ||
        !options->timeout_ms)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "a decoder needs the size of frames, their largest number of bytes "
                               "and a timeout");
    return options->preparation ? trajd_image_check(options->preparation, error) : TRAJD_OK;
}

enum trajd_status trajd_decoder_create(const struct trajd_decoder_options *options,
                                       struct trajd_decoder **decoder, struct trajd_error *error)
{
    enum trajd_status status = check(options, error);
    struct trajd_decoder *made;

    *decoder = NULL;
    if (status)
        return status;
    made = calloc(1, sizeof *made);
    if (!made || !(made->program = strdup(options->program))) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a decoder");
    }
    made->input.fd = made->output.fd = -1;
    made->timeout_ms = options->timeout_ms;
    made->largest_frame_bytes = options->largest_frame_bytes;
    made->setup = (struct trajd_decode_setup){
        .header = {TRAJD_DECODE_MAGIC, TRAJD_DECODE_SETUP},
        .image = options->image,
        .bits = (uint8_t)options->bits,
        .upright = options->upright,
        .is_prepared = options->preparation != NULL,
        .input_bytes = TRAJD_DECODE_FRAMES_MAX * options->largest_frame_bytes,
        .output_bytes = TRAJD_DECODE_FRAMES_MAX * frame_bytes(options),
        .frame_bytes = frame_bytes(options)};
    if (options->preparation)
        made->setup.preparation = *options->preparation;
    if (!make_memory("trajd-frames", made->setup.input_bytes, &made->input) ||
        !make_memory("trajd-pixels", made->setup.output_bytes, &made->output))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, errno, "no memory for a decoder");
    if (!status)
        status = start_child(made, error);
    *decoder = made;
    if (status)
        trajd_decoder_destroy(decoder);
    return status;
}

void trajd_decoder_destroy(struct trajd_decoder **decoder)
{
    if (!*decoder)
        return;
    end_child(*decoder);
    free_memory(&(*decoder)->input);
    free_memory(&(*decoder)->output);
    free((*decoder)->program);
    free(*decoder);
    *decoder = NULL;
}

uint64_t trajd_decoder_frame_bytes(const struct trajd_decoder *decoder)
{
    return decoder->setup.frame_bytes;
}

/* Hands frames to the child and takes their pixels. Returns false where the child died, hung, or
 * broke the protocol; the frames are then as before. */
static bool run_job(struct trajd_decoder *decoder, struct trajd_decoder_frame *frames,
                    uint32_t count)
{
    struct trajd_decode_job job = {{TRAJD_DECODE_MAGIC, TRAJD_DECODE_JOB}, count, {{0, 0, 0}}};
    struct trajd_decode_reply reply;

    for (uint32_t i = 0; i < count; i++) {
        job.frames[i].offset = i * decoder->largest_frame_bytes;
        job.frames[i].size = frames[i].size;
        job.frames[i].room = frames[i].room;
        memcpy(decoder->input.bytes + job.frames[i].offset, frames[i].bytes, frames[i].size);
    }
    if (!send_packet(decoder, &job, sizeof job, -1) || !receive(decoder, &reply) ||
        reply.count != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        reply.reasons[i][sizeof reply.reasons[i] - 1] = '\0';
        snprintf(frames[i].reason, sizeof frames[i].reason, "%s", reply.reasons[i]);
        for (char *c = frames[i].reason; *c; c++)
            *c = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
        if (!frames[i].reason[0])
            memcpy(frames[i].pixels, decoder->output.bytes + i * decoder->setup.frame_bytes,
                   decoder->setup.frame_bytes);
    }
    return true;
}

/* Decodes one frame after a child died, in a new child if there is none. */
static enum trajd_status run_again(struct trajd_decoder *decoder, struct trajd_decoder_frame *frame,
                                   struct trajd_error *error)
{
    enum trajd_status status = decoder->pid ? TRAJD_OK : start_child(decoder, error);

    if (status || run_job(decoder, frame, 1))
        return status;
    end_child(decoder);
    snprintf(frame->reason, sizeof frame->reason, "the picture library crashed or hung on it");
    return TRAJD_OK;
}

static enum trajd_status run_few(struct trajd_decoder *decoder, struct trajd_decoder_frame *frames,
                                 uint32_t count, struct trajd_error *error)
{
    enum trajd_status status = decoder->pid ? TRAJD_OK : start_child(decoder, error);

    if (status || run_job(decoder, frames, count))
        return status;
    end_child(decoder);
    for (uint32_t i = 0; i < count && !status; i++)
        status = run_again(decoder, &frames[i], error);
    return status;
}

enum trajd_status trajd_decoder_run(struct trajd_decoder *decoder,
                                    struct trajd_decoder_frame *frames, uint32_t count,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t begin = 0; begin < count && !status;) {
        uint32_t end = begin;
        while (end < count && end - begin < TRAJD_DECODE_FRAMES_MAX &&
               frames[end].size <= decoder->largest_frame_bytes)
            end++;
        if (end > begin)
            status = run_few(decoder, frames + begin, end - begin, error);
        if (end < count && frames[end].size > decoder->largest_frame_bytes) {
            snprintf(frames[end].reason, sizeof frames[end].reason, "it has more than %llu bytes",
                     (unsigned long long)decoder->largest_frame_bytes);
            end++;
        }
        begin = end;
    }
    return status;
}
