/* H.264 and HEVC by libavcodec, in the calling thread: a module of its own, which trajd-decoder
 * loads where the library is installed.
 *
 * Nothing is concealed. The library does not say of each fault that a frame has it, but it logs it
 * as an error. So an error in the log is a fault of the packet that was sent last, as a warning of
 * libjpeg is. It calls it no error where a frame of H.264 or a part of one is missing, and makes it
 * up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#include <libavutil/log.h>
#include <libavutil/pixdesc.h>

#include "daemon/decode/decode_library.h"

/* The coded frame is larger than the shown one: whole macroblocks or coding units. */
enum { CODED_UNIT = 64 };

struct codec {
    AVCodecContext *context;
    AVPacket *buffer;
    AVFrame *frame;
    uint32_t packet;  /* that was sent last */
    char logged[100]; /* the first error of the log */
    bool is_reported; /* its packet is known to have a fault */
};

/* The codec whose log is read: the library has one function for the log of all. */
static struct codec *current;

/* Returns whether a line that the library calls no error says that it made up a frame, or a part. */
static bool is_made_up(const char *format)
{
    static const char gap[] = "Frame num gap", concealing[] = "concealing ";

    return !strncmp(format, gap, sizeof gap - 1) ||
           !strncmp(format, concealing, sizeof concealing - 1);
}

static void on_log(void *object, int level, const char *format, va_list arguments)
{
    (void)object;
    if (!current || (level > AV_LOG_ERROR && !is_made_up(format)) || current->logged[0])
        return;
    vsnprintf(current->logged, sizeof current->logged, format, arguments);
    current->logged[strcspn(current->logged, "\n")] = '\0';
}

/* Writes the reason of a code, or of the log where there is one. */
static void explain(const struct codec *codec, int code, char *reason)
{
    char words[TRAJD_VIDEO_REASON_SIZE / 2] = "a fault that it conceals";

    if (code == AVERROR(ENOMEM)) {
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, TRAJD_DECODE_NO_MEMORY);
        return;
    }
    if (code)
        av_strerror(code, words, sizeof words);
    snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "libavcodec: %s",
             codec->logged[0] ? codec->logged : words);
}

static void close_codec(void *opened)
{
    struct codec *codec = opened;

    current = NULL;
    avcodec_free_context(&codec->context);
    av_packet_free(&codec->buffer);
    av_frame_free(&codec->frame);
    free(codec);
}

static bool set_extradata(AVCodecContext *context, const struct trajd_video_stream *stream)
{
    context->extradata = av_mallocz(stream->extradata_size + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!context->extradata)
        return false;
    memcpy(context->extradata, stream->extradata, stream->extradata_size);
    context->extradata_size = (int)stream->extradata_size;
    return true;
}

static int64_t coded(uint32_t side)
{
    return ((int64_t)side + 2 * CODED_UNIT - 1) / CODED_UNIT * CODED_UNIT;
}

/* What the library conceals it flags. Without concealment (error_concealment 0) it flags each frame
 * of several slices, as it does not note which parts of a frame it has decoded.
 * Strict: a frame waits as long as the level allows, so that none is dropped for its order. */
static int start(struct codec *codec, const struct trajd_video_stream *stream)
{
    const AVCodec *decoder = avcodec_find_decoder(
        stream->codec == TRAJD_VIDEO_H264 ? AV_CODEC_ID_H264 : AV_CODEC_ID_HEVC);
    AVCodecContext *context;

    if (!decoder)
        return AVERROR_DECODER_NOT_FOUND;
    codec->context = context = avcodec_alloc_context3(decoder);
    codec->buffer = av_packet_alloc();
    codec->frame = av_frame_alloc();
    if (!context || !codec->buffer || !codec->frame || !set_extradata(context, stream))
        return AVERROR(ENOMEM);
    context->thread_count = 1;
    context->flags |= AV_CODEC_FLAG_UNALIGNED; /* crop to the pixel */
    context->err_recognition = AV_EF_EXPLODE | AV_EF_CRCCHECK;
    context->strict_std_compliance = FF_COMPLIANCE_STRICT;
    context->max_pixels = coded(stream->height) * coded(stream->width);
    return avcodec_open2(context, decoder, NULL);
}

static void *open_codec(const struct trajd_video_stream *stream, char *reason)
{
    struct codec *codec = calloc(1, sizeof *codec);
    int code;

    if (!codec) {
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, TRAJD_DECODE_NO_MEMORY);
        return NULL;
    }
    av_log_set_callback(on_log);
    current = codec;
    code = start(codec, stream);
    if (!code && !codec->logged[0])
        return codec;
    explain(codec, code, reason);
    close_codec(codec);
    return NULL;
}

static bool send(void *opened, const uint8_t *bytes, size_t size, uint32_t packet, char *reason)
{
    struct codec *codec = opened;
    int code;

    if (!bytes)
        return !avcodec_send_packet(codec->context, NULL);
    codec->packet = packet;
    code = av_new_packet(codec->buffer, (int)size);
    if (!code) {
        memcpy(codec->buffer->data, bytes, size);
        codec->buffer->pts = codec->buffer->dts = packet;
        code = avcodec_send_packet(codec->context, codec->buffer);
        av_packet_unref(codec->buffer);
    }
    if (!code && !codec->logged[0])
        return true;
    codec->is_reported = true;
    explain(codec, code, reason);
    return false;
}

/* Returns whether the frame is luma and chroma as trajd_yuv has them. */
static bool describe(const AVFrame *from, struct trajd_yuv *frame)
{
    const AVPixFmtDescriptor *format = av_pix_fmt_desc_get((enum AVPixelFormat)from->format);
    const uint64_t others = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                            AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_ALPHA;
    const bool is_gray = format && format->nb_components == 1;

    if (!format || format->flags & others || (!is_gray && format->nb_components != 3) ||
        (!is_gray && !(format->flags & AV_PIX_FMT_FLAG_PLANAR)) || format->comp[0].depth < 8 ||
        format->comp[0].depth > 12 || format->comp[0].shift || format->log2_chroma_w > 1 ||
        format->log2_chroma_h > 1)
        return false;
    *frame = (struct trajd_yuv){.height = (uint32_t)from->height,
                                .width = (uint32_t)from->width,
                                .bits = (uint32_t)format->comp[0].depth,
                                .shift_x = format->log2_chroma_w,
                                .shift_y = format->log2_chroma_h,
                                .is_gray = is_gray};
    for (int i = 0; i < 3; i++) {
        frame->planes[i] = from->data[i];
        frame->steps[i] = from->linesize[i];
    }
    return true;
}

static enum trajd_video_result receive(void *opened, struct trajd_yuv *frame, uint32_t *packet,
                                       char *reason)
{
    struct codec *codec = opened;
    const int code = avcodec_receive_frame(codec->context, codec->frame);
    const bool is_empty = code == AVERROR(EAGAIN) || code == AVERROR_EOF;
    const bool is_faulty = codec->logged[0] && !codec->is_reported;

    *packet = code ? codec->packet : (uint32_t)codec->frame->pts;
    if (is_empty && !is_faulty)
        return TRAJD_VIDEO_EMPTY;
    if (code || (is_faulty && *packet >= codec->packet)) {
        codec->is_reported = true;
        explain(codec, is_empty ? 0 : code, reason);
    } else if (codec->frame->decode_error_flags || codec->frame->flags & AV_FRAME_FLAG_CORRUPT)
        explain(codec, 0, reason);
    else if (!describe(codec->frame, frame))
        snprintf(reason, TRAJD_VIDEO_REASON_SIZE, "its pixel format is not read");
    else
        return TRAJD_VIDEO_FRAME;
    return TRAJD_VIDEO_DAMAGED;
}

static const char *version(void)
{
    static char text[64];
    const unsigned number = avcodec_version();

    snprintf(text, sizeof text, "libavcodec %u.%u.%u", AV_VERSION_MAJOR(number),
             AV_VERSION_MINOR(number), AV_VERSION_MICRO(number));
    return text;
}

__attribute__((visibility("default"))) const struct trajd_video_library trajd_video_avcodec = {
    .open = open_codec, .send = send, .receive = receive, .close = close_codec, .version = version};
