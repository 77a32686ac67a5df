/* AV1 by dav1d, in the calling thread. Film grain is applied, as every player does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dav1d/dav1d.h>

#include "daemon/decode/decode_library.h"

/* av1C: marker and version in the first byte, and the units of the sequence header behind four. */
enum { AV1C_HEADER_BYTES = 4, AV1C_MARKER = 0x81 };

struct codec {
    Dav1dContext *context;
    Dav1dPicture header; /* that was given last */
    uint32_t packet;     /* that was sent last */
};

static void explain(int code, char *reason)
{
    if (code == DAV1D_ERR(ENOMEM))
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, TRAJD_DECODE_NO_MEMORY);
    else if (code == DAV1D_ERR(ERANGE))
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "its frame is larger than the video's");
    else
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "dav1d finds a fault in it (%s)",
                 strerror(code < 0 ? -code : code));
}

static bool send(void *opened, const uint8_t *bytes, size_t size, uint32_t packet, char *reason)
{
    struct codec *codec = opened;
    Dav1dData data = {0};
    uint8_t *room;
    int code;

    if (!bytes)
        return true; /* nothing waits: each frame is given before the next packet is taken */
    room = dav1d_data_create(&data, size);
    if (!room) {
        explain(DAV1D_ERR(ENOMEM), reason);
        return false;
    }
    memcpy(room, bytes, size);
    data.m.timestamp = codec->packet = packet;
    code = dav1d_send_data(codec->context, &data);
    if (code) {
        dav1d_data_unref(&data);
        explain(code, reason);
    }
    return !code;
}

static void close_codec(void *opened)
{
    struct codec *codec = opened;

    dav1d_picture_unref(&codec->header);
    dav1d_close(&codec->context);
    free(codec);
}

static void *open_codec(const struct trajd_video_stream *stream, char *reason)
{
    struct codec *codec = calloc(1, sizeof *codec);
    Dav1dSettings settings;
    int code = DAV1D_ERR(ENOMEM);

    dav1d_default_settings(&settings);
    settings.n_threads = 1;
    settings.max_frame_delay = 1;
    settings.all_layers = 0;
    settings.strict_std_compliance = 1;
    settings.frame_size_limit = stream->height * stream->width;
    settings.logger.callback = NULL;
    if (!codec || (code = dav1d_open(&codec->context, &settings))) {
        explain(code, reason);
        free(codec);
        return NULL;
    }
    if (stream->extradata_size <= AV1C_HEADER_BYTES)
        return codec;
    if (stream->extradata[0] != AV1C_MARKER)
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "its extradata is not an av1C");
    else if (send(codec, stream->extradata + AV1C_HEADER_BYTES,
                  stream->extradata_size - AV1C_HEADER_BYTES, 0, reason))
        return codec;
    close_codec(codec);
    return NULL;
}

static void describe(const Dav1dPicture *header, struct trajd_yuv *frame)
{
    const enum Dav1dPixelLayout layout = header->p.layout;

    *frame = (struct trajd_yuv){.planes = {header->data[0], header->data[1], header->data[2]},
                                .steps = {header->stride[0], header->stride[1], header->stride[1]},
                                .height = (uint32_t)header->p.h,
                                .width = (uint32_t)header->p.w,
                                .bits = (uint32_t)header->p.bpc,
                                .shift_x = layout == DAV1D_PIXEL_LAYOUT_I420 ||
                                           layout == DAV1D_PIXEL_LAYOUT_I422,
                                .shift_y = layout == DAV1D_PIXEL_LAYOUT_I420,
                                .is_gray = layout == DAV1D_PIXEL_LAYOUT_I400};
}

static enum trajd_video_result receive(void *opened, struct trajd_yuv *frame, uint32_t *packet,
                                       char *reason)
{
    struct codec *codec = opened;
    int code;

    dav1d_picture_unref(&codec->header);
    code = dav1d_get_picture(codec->context, &codec->header);
    *packet = codec->packet;
    if (code == DAV1D_ERR(EAGAIN))
        return TRAJD_VIDEO_EMPTY;
    if (code)
        explain(code, reason);
    else if (codec->header.seq_hdr->mtrx == DAV1D_MC_IDENTITY)
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "its colours are RGB, which is not read");
    else {
        describe(&codec->header, frame);
        *packet = (uint32_t)codec->header.m.timestamp;
        return TRAJD_VIDEO_FRAME;
    }
    return TRAJD_VIDEO_DAMAGED;
}

static const char *version(void)
{
    static char text[64];

    snprintf(text, sizeof text, "dav1d %s", dav1d_version());
    return text;
}

const struct trajd_video_library trajd_video_dav1d = {
    .open = open_codec, .send = send, .receive = receive, .close = close_codec, .version = version};
