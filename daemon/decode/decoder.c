/* A decoder: its child, and the jobs for it. Frames that are stored are turned upright here. */
#include "daemon/decode/decoder.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/decode/decode_job.h"
#include "daemon/index/helper.h"

/* The pixels of a job. The parent copies them while they are in the processor's caches: jobs of 4
 * MiB cost 10 % less per frame of 640x480 than jobs of 28 MiB. */
static const uint64_t job_bytes_max = 4 << 20;
/* Of a job, encoded: the child has 2 GiB of address space for all that it does. */
static const uint64_t job_encoded_bytes_max = 64 << 20;
/* Of a child that yields: beside a thread that does not, it gets 9 % of a core. So it still ends its
 * jobs in their time. */
enum { NICER = 10 };
/* More than the pixels of the largest image. */
static const uint64_t encoded_bytes_max = 512 << 20;
/* Of a decode unit and its extradata. */
static const uint64_t unit_bytes_max = TRAJD_UNIT_BYTES_MAX + (1 << 20);
/* The room for a unit is a multiple of this, so that videos whose units differ have equal setups: a
 * child that decodes two cameras by turns needs no new one each time. */
static const uint64_t unit_room_bytes = 4 << 20;
static const uint64_t unit_table_bytes =
    TRAJD_UNIT_PACKETS_MAX * sizeof(struct trajd_decode_packet);

struct trajd_decoder {
    char *program;
    uint32_t job_frames;
    pid_t pid; /* 0: no child */
    bool yields;
    struct trajd_decode_link link;
};

static bool make_memory(const char *name, uint64_t size, struct trajd_decode_memory *memory)
{
    memory->size = size;
    memory->fd = memfd_create(name, MFD_CLOEXEC);
    if (memory->fd < 0 || ftruncate(memory->fd, (off_t)size))
        return false;
    memory->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    return memory->bytes != MAP_FAILED;
}

static void free_memory(struct trajd_decode_memory *memory)
{
    if (memory->bytes && memory->bytes != MAP_FAILED)
        munmap(memory->bytes, memory->size);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct trajd_decode_memory){.fd = -1};
}

/* Returns the child's exit status, as of waitpid. */
static int end_child(struct trajd_decoder *decoder)
{
    int status = 0;

    if (!decoder->pid)
        return 0;
    close(decoder->link.socket);
    kill(decoder->pid, SIGKILL);
    while (waitpid(decoder->pid, &status, 0) < 0 && errno == EINTR)
        ;
    decoder->pid = 0;
    return status;
}

/* Ends a child that failed. Returns an error where it is not to blame, because something outside
 * killed it, such as the kernel where memory is full. */
static enum trajd_status end_failed_child(struct trajd_decoder *decoder, const char *when,
                                          struct trajd_error *error)
{
    const bool has_ended = trajd_helper_has_ended(decoder->pid);
    const int status = end_child(decoder);

    if (!has_ended || !WIFSIGNALED(status) || !trajd_helper_is_killed(status))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0,
                           "%s was killed from outside %s, by signal %d (%s): is memory full?",
                           decoder->program, when, WTERMSIG(status), strsignal(WTERMSIG(status)));
}

static bool needs_avcodec(enum trajd_video_codec codec)
{
    return codec == TRAJD_VIDEO_H264 || codec == TRAJD_VIDEO_HEVC;
}

static enum trajd_status start_child(struct trajd_decoder *decoder, struct trajd_error *error)
{
    const enum trajd_video_codec codec = decoder->link.setup.video.codec;
    const enum trajd_status status = trajd_helper_start(
        decoder->program, needs_avcodec(codec) ? TRAJD_DECODE_TASK_AVCODEC : NULL, SOCK_SEQPACKET,
        &decoder->link.socket, &decoder->pid, error);

    if (!status && decoder->yields)
        setpriority(PRIO_PROCESS, (id_t)decoder->pid, getpriority(PRIO_PROCESS, 0) + NICER);
    if (status || trajd_decode_link_open(&decoder->link, false))
        return status;
    if (end_failed_child(decoder, "while it started", error))
        return TRAJD_ERR_SYSTEM;
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "%s: does not start", decoder->program);
}

static uint64_t frame_bytes(const struct trajd_decoder_options *options)
{
    const struct trajd_layout_image *image = &options->image;
    const uint64_t jpeg_header = options->jpeg_quality ? TRAJD_DECODER_HEADER_BYTES : 0;

    return options->preparation ? trajd_image_bytes(options->preparation) + jpeg_header
                                : (uint64_t)image->height * image->width *
                                      trajd_image_channels(image->color) * options->bits / 8;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns how many frames a job has. */
static uint32_t job_frames(uint64_t frame_bytes, uint64_t encoded_bytes)
{
    const uint64_t frames =
        least(job_bytes_max / frame_bytes, job_encoded_bytes_max / encoded_bytes);

    return frames ? (uint32_t)least(frames, TRAJD_DECODE_FRAMES_MAX) : 1;
}

static enum trajd_status check(const struct trajd_decoder_options *options,
                               struct trajd_error *error)
{
    const bool is_video = options->video.codec != TRAJD_VIDEO_NONE;

    if (!options->image.height || !options->image.width || options->bits < 8 ||
        !(is_video ? options->largest_unit_bytes : options->largest_frame_bytes) ||
        !options->timeout_ms)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "a decoder needs the size and bits of frames, the largest number of bytes of "
            "one, or of a decode unit, and a timeout");
    if (options->jpeg_quality &&
        (options->jpeg_quality > 100 || options->bits != 8 || !options->preparation ||
         trajd_image_is_source(options->preparation)))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "a decoder makes JPEGs of a quality of 1 to 100, of frames of 8 bits "
            "that a preparation changes");
    return options->preparation ? trajd_image_check(options->preparation, error) : TRAJD_OK;
}

static void free_memories(struct trajd_decoder *decoder)
{
    free_memory(&decoder->link.input);
    free_memory(&decoder->link.output);
}

static uint64_t unit_room(const struct trajd_decoder_options *options)
{
    const uint64_t bytes = least(options->largest_unit_bytes, unit_bytes_max);

    return (bytes + unit_room_bytes - 1) / unit_room_bytes * unit_room_bytes;
}

/* Returns the setup for options that were checked. Equal options give equal bytes. */
static struct trajd_decode_setup make_setup(const struct trajd_decoder_options *options)
{
    const bool is_video = options->video.codec != TRAJD_VIDEO_NONE;
    const uint64_t largest = least(is_video ? 1 : options->largest_frame_bytes, encoded_bytes_max),
                   frames = job_frames(frame_bytes(options), largest);
    struct trajd_decode_setup setup;

    memset(&setup, 0, sizeof setup);
    setup.header = (struct trajd_decode_header){TRAJD_DECODE_MAGIC, TRAJD_DECODE_SETUP};
    setup.image = options->image;
    setup.video = options->video;
    setup.bits = (uint8_t)options->bits;
    setup.upright = options->upright;
    setup.is_prepared = options->preparation != NULL;
    setup.jpeg_quality = (uint8_t)options->jpeg_quality;
    setup.input_bytes = frames * largest;
    if (is_video)
        setup.input_bytes = unit_table_bytes + unit_room(options);
    setup.frame_bytes = frame_bytes(options);
    setup.output_bytes = frames * setup.frame_bytes;
    if (options->preparation)
        setup.preparation = *options->preparation;
    return setup;
}

/* Sets what a child decodes, and makes the memory that both share. *is_kept: the memory that was
 * there is large enough, and stays. */
static enum trajd_status set_up(struct trajd_decoder *decoder,
                                const struct trajd_decoder_options *options, bool *is_kept,
                                struct trajd_error *error)
{
    struct trajd_decode_link *link = &decoder->link;
    const uint64_t input = link->input.size, output = link->output.size;

    link->timeout_ms = options->timeout_ms;
    link->largest_frame_bytes = least(options->largest_frame_bytes, encoded_bytes_max);
    link->setup = make_setup(options);
    decoder->job_frames = (uint32_t)(link->setup.output_bytes / link->setup.frame_bytes);
    *is_kept = link->setup.input_bytes <= input && link->setup.output_bytes <= output;
    if (*is_kept)
        return TRAJD_OK;
    free_memories(decoder);
    return make_memory("trajd-frames", most(link->setup.input_bytes, input), &link->input) &&
                   make_memory("trajd-pixels", most(link->setup.output_bytes, output),
                               &link->output)
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, errno, "no memory for a decoder");
}

enum trajd_status trajd_decoder_create(const struct trajd_decoder_options *options,
                                       struct trajd_decoder **decoder, struct trajd_error *error)
{
    enum trajd_status status = check(options, error);
    struct trajd_decoder *made;
    bool is_kept;

    *decoder = NULL;
    if (status)
        return status;
    made = calloc(1, sizeof *made);
    if (!made || !(made->program = strdup(options->program))) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a decoder");
    }
    made->link.input.fd = made->link.output.fd = -1;
    made->yields = options->yields;
    status = set_up(made, options, &is_kept, error);
    if (!status)
        status = start_child(made, error);
    *decoder = made;
    if (status)
        trajd_decoder_destroy(decoder);
    return status;
}

bool trajd_decoder_fits(const struct trajd_decoder *decoder,
                        const struct trajd_decoder_options *options)
{
    struct trajd_decode_setup setup;

    if (check(options, NULL))
        return false;
    setup = make_setup(options);
    return !memcmp(&setup, &decoder->link.setup, sizeof setup) &&
           decoder->link.timeout_ms == options->timeout_ms;
}

enum trajd_status trajd_decoder_change(struct trajd_decoder *decoder,
                                       const struct trajd_decoder_options *options,
                                       struct trajd_error *error)
{
    const bool had_avcodec = needs_avcodec(decoder->link.setup.video.codec);
    enum trajd_status status = check(options, error);
    bool is_kept = false;

    if (needs_avcodec(options->video.codec) != had_avcodec)
        end_child(decoder); /* the next run starts one with the other libraries */
    if (!status)
        status = set_up(decoder, options, &is_kept, error);
    if (!status && decoder->pid && !trajd_decode_link_open(&decoder->link, is_kept))
        end_child(decoder); /* it died meanwhile: the next run starts another */
    return status;
}

void trajd_decoder_destroy(struct trajd_decoder **decoder)
{
    if (!*decoder)
        return;
    end_child(*decoder);
    free_memories(*decoder);
    free((*decoder)->program);
    free(*decoder);
    *decoder = NULL;
}

uint64_t trajd_decoder_frame_bytes(const struct trajd_decoder *decoder)
{
    return decoder->link.setup.frame_bytes;
}

/* Decodes one frame after a child died, in a new child if there is none. The frame is bad where
 * that one dies, too, and nothing outside killed it. */
static enum trajd_status run_again(struct trajd_decoder *decoder, struct trajd_decoder_frame *frame,
                                   struct trajd_error *error)
{
    enum trajd_status status = decoder->pid ? TRAJD_OK : start_child(decoder, error);

    if (status || trajd_decode_job_run(&decoder->link, frame, 1))
        return status;
    status = end_failed_child(decoder, "twice", error);
    if (!status)
        snprintf(frame->reason, sizeof frame->reason,
                 "the image library crashed, hung or got no memory on it");
    return status;
}

static enum trajd_status run_few(struct trajd_decoder *decoder, struct trajd_decoder_frame *frames,
                                 uint32_t count, struct trajd_error *error)
{
    enum trajd_status status = decoder->pid ? TRAJD_OK : start_child(decoder, error);

    if (status || trajd_decode_job_run(&decoder->link, frames, count))
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
        while (end < count && end - begin < decoder->job_frames &&
               frames[end].size <= decoder->link.largest_frame_bytes)
            end++;
        if (end > begin)
            status = run_few(decoder, frames + begin, end - begin, error);
        if (end < count && frames[end].size > decoder->link.largest_frame_bytes) {
            snprintf(frames[end].reason, sizeof frames[end].reason, "it has more than %llu bytes",
                     (unsigned long long)decoder->link.largest_frame_bytes);
            end++;
        }
        begin = end;
    }
    return status;
}

/* ---- units ---- */

/* Notes which packets' frames are wanted. False where one is outside the unit. */
static bool collect(const struct trajd_decoder_unit *unit, const struct trajd_decoder_frame *frames,
                    uint32_t count, struct trajd_decode_wanted *wanted)
{
    memset(wanted, 0, sizeof *wanted);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t packet = frames[i].packet;
        if (packet >= unit->packet_count || packet >= TRAJD_UNIT_PACKETS_MAX)
            return false;
        wanted->count += !wanted->of_packet[packet];
        wanted->of_packet[packet] = true;
        wanted->packet_count = (uint32_t)most(wanted->packet_count, packet + 1);
    }
    return true;
}

/* Returns whether the packets, as far as they are decoded, fit into the input memory. */
static bool fits(const struct trajd_decode_setup *setup, const struct trajd_decoder_unit *unit,
                 uint32_t packet_count)
{
    uint64_t room = setup->input_bytes - unit_table_bytes;

    if (unit->extradata_size > room)
        return false;
    room -= unit->extradata_size;
    for (uint32_t i = 0; i < packet_count; i++) {
        if (unit->sizes[i] > room)
            return false;
        room -= unit->sizes[i];
    }
    return true;
}

/* Gives the pages of a large unit back, which the memory would keep for good. */
static void release(const struct trajd_decoder *decoder, const struct trajd_decoder_unit *unit)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < unit->packet_count; i++)
        bytes += unit->sizes[i];
    if (bytes > job_bytes_max)
        madvise(decoder->link.input.bytes, decoder->link.input.size, MADV_REMOVE);
}

static void refuse(struct trajd_decoder_frame *frames, uint32_t count,
                   const struct trajd_decode_wanted *wanted, const char *reason)
{
    for (uint32_t i = 0; i < count; i++)
        if (wanted->of_packet[frames[i].packet])
            snprintf(frames[i].reason, sizeof frames[i].reason, "%s", reason);
}

enum trajd_status trajd_decoder_run_unit(struct trajd_decoder *decoder,
                                         const struct trajd_decoder_unit *unit,
                                         struct trajd_decoder_frame *frames, uint32_t count,
                                         struct trajd_error *error)
{
    struct trajd_decode_wanted wanted;
    enum trajd_status status = TRAJD_OK;

    if (!collect(unit, frames, count, &wanted))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "a frame of a packet outside its decode unit is wanted");
    if (!fits(&decoder->link.setup, unit, wanted.packet_count)) {
        refuse(frames, count, &wanted, "its decode unit has more bytes than the video says");
        return TRAJD_OK;
    }
    for (int attempt = 0; attempt < 2 && wanted.count; attempt++) {
        bool is_taken;
        status = decoder->pid ? TRAJD_OK : start_child(decoder, error);
        if (status)
            return status;
        is_taken = trajd_decode_unit_take(&decoder->link, unit, &wanted, frames, count);
        release(decoder, unit);
        if (is_taken)
            return TRAJD_OK;
        if (!attempt)
            end_child(decoder);
        else
            status = end_failed_child(decoder, "twice", error);
    }
    if (!status)
        refuse(frames, count, &wanted, "the video library crashed, hung or got no memory on it");
    return status;
}

/* ---- upright ---- */

/* Exchanges the first and the last channel of each pixel. */
static void swap_red_and_blue(uint8_t *pixels, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t red = pixels[3 * i];
        pixels[3 * i] = pixels[3 * i + 2];
        pixels[3 * i + 2] = red;
    }
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void mirror_rows(uint8_t *pixels, uint32_t height, uint32_t width, size_t pixel)
{
    for (uint32_t y = 0; y < height; y++, pixels += width * pixel)
        for (uint32_t x = 0; x < width / 2; x++)
            swap_bytes(pixels + x * pixel, pixels + (width - 1 - x) * pixel, pixel);
}

static void turn_over(uint8_t *pixels, uint32_t height, size_t step)
{
    for (uint32_t y = 0; y < height / 2; y++)
        swap_bytes(pixels + y * step, pixels + (height - 1 - y) * step, step);
}

void trajd_decode_upright(const struct trajd_layout_image *image, uint32_t bits, uint8_t *pixels)
{
    const size_t pixel = trajd_image_channels(image->color) * bits / 8u;

    if (image->color == TRAJD_COLOR_BGR)
        swap_red_and_blue(pixels, (uint64_t)image->height * image->width);
    if (image->flip == TRAJD_FLIP_VERTICAL || image->flip == TRAJD_FLIP_180)
        turn_over(pixels, image->height, image->width * pixel);
    if (image->flip == TRAJD_FLIP_HORIZONTAL || image->flip == TRAJD_FLIP_180)
        mirror_rows(pixels, image->height, image->width, pixel);
}
