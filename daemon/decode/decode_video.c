/* Decode units: packets go to the codec until all wanted frames came out of it. From the first
 * fault on, the frames of all later packets are bad, because they may be made from it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/paths.h"
#include "daemon/decode/decode_child.h"
#include "proto/array_len.h"

enum { PATH_SIZE = 4096 };

/* ---- the libraries ---- */

static const struct trajd_video_library *avcodec;
static char avcodec_reason[TRAJD_VIDEO_REASON_SIZE] = "libavcodec was not loaded";

void trajd_decode_load_avcodec(void)
{
#ifdef TRAJD_AVCODEC_PACKAGE
    char path[PATH_SIZE];
    void *module;

    if (!trajd_paths_avcodec(path, sizeof path)) {
        snprintf(avcodec_reason, sizeof avcodec_reason,
                 "they need the package " TRAJD_AVCODEC_PACKAGE
                 " and trajd-decoder-avcodec.so, which is missing");
        return;
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    avcodec = module ? dlsym(module, TRAJD_VIDEO_AVCODEC_SYMBOL) : NULL;
    if (!avcodec)
        snprintf(avcodec_reason, sizeof avcodec_reason,
                 "they need the package " TRAJD_AVCODEC_PACKAGE " (%s)", dlerror());
#else
    snprintf(avcodec_reason, sizeof avcodec_reason,
             "this trajd was built without them, because libavcodec-dev was missing");
#endif
}

void trajd_decode_print_codecs(void)
{
    printf("AV1: %s; H.264 and HEVC: %s\n", trajd_video_dav1d.version(),
           avcodec ? avcodec->version() : avcodec_reason);
}

static const struct trajd_video_library *find_library(enum trajd_video_codec codec)
{
    return codec == TRAJD_VIDEO_AV1 ? &trajd_video_dav1d : avcodec;
}

/* ---- a unit ---- */

void trajd_decode_unit_end(struct trajd_decode_video *video)
{
    if (video->codec)
        video->library->close(video->codec);
    video->codec = NULL;
    video->wanted_count = 0;
}

/* Takes the table of packets. False where it or what follows does not fit into the memory. */
static bool take_table(struct trajd_decode_video *video, const uint8_t *input, uint64_t room,
                       const struct trajd_decode_unit *unit)
{
    const uint64_t table = unit->packet_count * sizeof *video->packets;

    if (unit->packet_count > TRAJD_UNIT_PACKETS_MAX || table > room ||
        unit->extradata_size > room - table)
        return false;
    memset(video, 0, sizeof *video);
    memcpy(video->packets, input, table);
    room -= table + unit->extradata_size;
    for (uint32_t i = 0; i < unit->packet_count; i++) {
        if (video->packets[i].size > room || video->packets[i].is_wanted > 1)
            return false;
        room -= video->packets[i].size;
        video->wanted_count += video->packets[i].is_wanted;
    }
    video->packet_count = video->damaged_from = unit->packet_count;
    video->next = input + table + unit->extradata_size;
    return true;
}

bool trajd_decode_unit_begin(struct trajd_decode_state *state, const uint8_t *input,
                             uint64_t input_bytes, const struct trajd_decode_unit *unit)
{
    struct trajd_decode_video *video = &state->video;
    struct trajd_video_stream stream = {.codec = state->setup.video.codec,
                                        .extradata_size = unit->extradata_size,
                                        .height = state->setup.image.height,
                                        .width = state->setup.image.width};

    trajd_decode_unit_end(video);
    if (!take_table(video, input, input_bytes, unit))
        return false;
    stream.extradata = video->next - unit->extradata_size;
    video->library = find_library(stream.codec);
    if (video->library)
        video->codec = video->library->open(&stream, video->reason);
    else
        snprintf(video->reason, sizeof video->reason, "H.264 and HEVC: %s", avcodec_reason);
    if (!video->codec)
        video->damaged_from = 0;
    return true;
}

/* Keeps the first fault. */
static void mark_damaged(struct trajd_decode_video *video, uint32_t packet, const char *reason)
{
    if (packet >= video->damaged_from && video->damaged_from < video->packet_count)
        return;
    video->damaged_from = packet;
    if (!strcmp(reason, TRAJD_DECODE_NO_MEMORY))
        snprintf(video->reason, sizeof video->reason, "%s", reason);
    else
        snprintf(video->reason, sizeof video->reason, "packet %u of its decode unit: %s", packet,
                 reason);
}

/* Sends the next packet, or says that there are no more. */
static void send_next(struct trajd_decode_video *video)
{
    char reason[TRAJD_VIDEO_REASON_SIZE] = "it is empty";
    const uint32_t packet = video->sent_count;
    uint32_t size;

    if (packet == video->packet_count || video->damaged_from < video->packet_count) {
        video->is_drained = true;
        video->library->send(video->codec, NULL, 0, packet, reason);
        return;
    }
    size = video->packets[packet].size;
    if (!size || !video->library->send(video->codec, video->next, size, packet, reason))
        mark_damaged(video, packet, reason);
    video->next += size;
    video->sent_count++;
}

/* ---- frames ---- */

static void add(struct trajd_decode_video *video, struct trajd_decode_reply *reply, uint32_t packet,
                const char *reason)
{
    snprintf(reply->reasons[reply->count], sizeof reply->reasons[0], "%s", reason);
    reply->packets[reply->count++] = packet;
    video->packets[packet].is_wanted = 0;
    video->wanted_count--;
}

static struct trajd_yuv_colors colors_of(const struct trajd_video_format *format)
{
    static const struct trajd_yuv_colors parts[] = {[TRAJD_MATRIX_UNSPECIFIED] = {0.299, 0.114, 0},
                                                    [TRAJD_MATRIX_BT601] = {0.299, 0.114, 0},
                                                    [TRAJD_MATRIX_BT709] = {0.2126, 0.0722, 0},
                                                    [TRAJD_MATRIX_BT2020] = {0.2627, 0.0593, 0}};
    struct trajd_yuv_colors colors = parts[format->matrix];

    colors.is_full = format->range == TRAJD_RANGE_FULL;
    return colors;
}

/* Makes the pixels of a frame that is wanted. */
static void make(struct trajd_decode_state *state, const struct trajd_yuv *frame, uint8_t *output,
                 char *reason, size_t reason_size)
{
    const struct trajd_layout_image *image = &state->setup.image;
    const struct trajd_yuv_colors colors = colors_of(&state->setup.video);
    uint8_t *pixels = state->plan ? state->pixels : output;

    if (frame->height != image->height || frame->width != image->width) {
        snprintf(reason, reason_size, "a frame of %ux%u in a video of %ux%u", frame->height,
                 frame->width, image->height, image->width);
        return;
    }
    if (state->takes_video) {
        trajd_image_prepare_video(state->plan, frame, &colors, output);
        return;
    }
    trajd_yuv_to_rgb(frame, &colors, pixels);
    trajd_decode_finish(state, pixels, output, reason, reason_size);
}

/* Takes a frame that the codec gave. A second one for a packet is a fault. */
static void take(struct trajd_decode_state *state, const struct trajd_yuv *frame, uint32_t packet,
                 uint8_t *output, struct trajd_decode_reply *reply)
{
    struct trajd_decode_video *video = &state->video;
    char reason[TRAJD_DECODE_REASON_SIZE] = "";

    if (packet < video->sent_count && video->is_given[packet])
        mark_damaged(video, packet, "it has two frames");
    if (packet >= video->sent_count || packet >= video->damaged_from)
        return;
    video->is_given[packet] = true;
    if (!video->packets[packet].is_wanted)
        return;
    make(state, frame, output + reply->count * state->setup.frame_bytes, reason, sizeof reason);
    reply->sizes[reply->count] = state->jpeg_bytes;
    if (!strcmp(reason, TRAJD_DECODE_NO_MEMORY))
        mark_damaged(video, packet, reason);
    add(video, reply, packet, reason);
}

/* Has the codec decode. False at the end of the unit. */
static bool step(struct trajd_decode_state *state, uint8_t *output,
                 struct trajd_decode_reply *reply)
{
    struct trajd_decode_video *video = &state->video;
    char reason[TRAJD_VIDEO_REASON_SIZE] = "";
    enum trajd_video_result result;
    struct trajd_yuv frame;
    uint32_t packet;

    if (!video->codec)
        return false;
    result = video->library->receive(video->codec, &frame, &packet, reason);
    if (result == TRAJD_VIDEO_FRAME)
        take(state, &frame, packet, output, reply);
    else if (result == TRAJD_VIDEO_DAMAGED)
        mark_damaged(video, packet, reason);
    if (result == TRAJD_VIDEO_FRAME)
        return true;
    if (video->is_drained)
        return false;
    send_next(video);
    return true;
}

/* Tells of the frames that the codec did not give. */
static void give_up(struct trajd_decode_video *video, uint32_t room,
                    struct trajd_decode_reply *reply)
{
    for (uint32_t i = 0; i < video->packet_count && reply->count < room; i++)
        if (video->packets[i].is_wanted)
            add(video, reply, i,
                i >= video->damaged_from ? video->reason
                                         : "the codec gives no frame for its packet");
}

bool trajd_decode_unit_run(struct trajd_decode_state *state, uint8_t *output, uint32_t room,
                           struct trajd_decode_reply *reply)
{
    struct trajd_decode_video *video = &state->video;
    const uint32_t begin = video->sent_count;

    while (video->wanted_count && reply->count < room &&
           video->sent_count - begin < TRAJD_DECODE_PACKETS_MAX)
        if (!step(state, output, reply))
            give_up(video, room, reply);
    return strcmp(video->reason, TRAJD_DECODE_NO_MEMORY) != 0;
}
