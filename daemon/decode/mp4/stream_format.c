/* Sequence headers: those of AV1 by dav1d; those of H.264 and HEVC, for which there may be no library, bit
 * by bit, in the order of the standards: H.264 7.3.2.1 and E.1.1, HEVC 7.3.2.2 and E.2.1. Only what comes before the last value that counts is read. */
#include "daemon/decode/mp4/stream_format.h"

#include <stdio.h>
#include <string.h>

#include <dav1d/dav1d.h>

#include "daemon/layout/layout_image.h"
#include "proto/array_len.h"

enum { EXTENDED_ASPECT = 255, SHORT_TERM_SETS_MAX = 64, PICTURES_MAX = 16, LONG_TERM_MAX = 32 };
enum { MATRIX_UNSPECIFIED = 2 }; /* its number */

/* A header while it is read. What is wrong with it is reported at the end, by finish(). */
struct header {
    const uint8_t *bytes;
    uint64_t size, at;   /* in bits */
    bool is_nal;         /* it has emulation prevention bytes: in 00 00 03, the 03 */
    bool is_damaged;     /* cut, or a number is beyond its limit */
    const char *refusal; /* what no decoder of trajd takes, or NULL */
    uint64_t height, width;
    uint32_t luma_bits, chroma_bits, matrix; /* the matrix by its number in H.273 */
    enum trajd_chroma chroma;
    enum trajd_video_range range;
};

/* ---- bits ---- */

/* Reads the highest bit of a byte first; of more than 32 bits, the last 32 count. Behind the end
 * there are zeros, and the header is damaged. */
static uint32_t get(struct header *header, uint32_t count)
{
    uint32_t value = 0;

    for (; count; count--, header->at++) {
        const uint8_t *byte = header->bytes + header->at / 8;
        if (header->is_nal && header->at % 8 == 0 && header->at >= 16 &&
            header->at < header->size && !byte[-2] && !byte[-1] && *byte == 3) {
            header->at += 8;
            byte++;
        }
        if (header->at >= header->size) {
            header->is_damaged = true;
            return 0;
        }
        value = value << 1 | (*byte >> (7 - header->at % 8) & 1u);
    }
    return value;
}

/* Reads a number in exponential Golomb code: ue(v). */
static uint32_t get_golomb(struct header *header)
{
    uint32_t zeros = 0;

    while (!header->is_damaged && !get(header, 1))
        zeros++;
    header->is_damaged |= zeros >= 32;
    return header->is_damaged ? 0 : (UINT32_C(1) << zeros) - 1 + get(header, zeros);
}

/* The same with a sign, se(v): 0, 1, -1, 2, -2 ... */
static int64_t get_signed(struct header *header)
{
    const int64_t number = get_golomb(header);

    return number & 1 ? (number + 1) / 2 : -(number / 2);
}

static void skip_golomb(struct header *header, uint32_t count)
{
    for (; count && !header->is_damaged; count--)
        get_golomb(header);
}

/* ---- what the codecs share ---- */

enum trajd_status trajd_stream_matrix(uint32_t number, enum trajd_video_matrix *matrix,
                                      struct trajd_error *error)
{
    static const struct {
        uint32_t number;
        enum trajd_video_matrix matrix;
    } matrices[] = {{1, TRAJD_MATRIX_BT709},
                    {MATRIX_UNSPECIFIED, TRAJD_MATRIX_UNSPECIFIED},
                    {5, TRAJD_MATRIX_BT601},
                    {6, TRAJD_MATRIX_BT601},
                    {9, TRAJD_MATRIX_BT2020}};

    for (size_t i = 0; i < ARRAY_LEN(matrices); i++)
        if (matrices[i].number == number) {
            *matrix = matrices[i].matrix;
            return TRAJD_OK;
        }
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "its colour matrix has number %u (H.273): only BT.601, BT.709 and "
                           "BT.2020 are read",
                           number);
}

/* Checks what was read, and makes it the format. */
static enum trajd_status finish(const struct header *header, struct trajd_stream_format *format,
                                struct trajd_error *error)
{
    const uint64_t height = header->height, width = header->width;
    const bool is_gray = header->chroma == TRAJD_CHROMA_NONE;

    if (header->is_damaged)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "its sequence header is cut or damaged");
    if (header->refusal)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "%s, which is not supported",
                               header->refusal);
    if (!height || !width || height > TRAJD_FRAME_SIDE_MAX || width > TRAJD_FRAME_SIDE_MAX ||
        height * width > TRAJD_FRAME_PIXELS_MAX)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its frames have %llux%llu pixels: a side has 1 to %u, a frame at "
                               "most %u",
                               (unsigned long long)height, (unsigned long long)width,
                               TRAJD_FRAME_SIDE_MAX, TRAJD_FRAME_PIXELS_MAX);
    if ((header->luma_bits != 8 && (header->luma_bits != 10 || is_gray)) ||
        (header->chroma_bits != header->luma_bits && !is_gray))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its luma has %u bits a value and its chroma %u: 8 and, in colour, "
                               "10 are supported (depth in gray12le is not)",
                               header->luma_bits, is_gray ? 0 : header->chroma_bits);
    *format = (struct trajd_stream_format){.height = (uint32_t)height,
                                           .width = (uint32_t)width,
                                           .chroma = header->chroma,
                                           .bits = header->luma_bits,
                                           .range = header->range};
    return trajd_stream_matrix(header->matrix, &format->matrix, error);
}

/* Reads the beginning of vui_parameters(), which H.264 and HEVC share, up to the colours. */
static void read_vui_colors(struct header *header)
{
    if (get(header, 1) && get(header, 8) == EXTENDED_ASPECT)
        get(header, 32);
    if (get(header, 1))
        get(header, 1); /* overscan */
    if (!get(header, 1))
        return;
    get(header, 3);
    header->range = get(header, 1) ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    if (get(header, 1)) {
        get(header, 16); /* primaries, transfer */
        header->matrix = get(header, 8);
    }
}

/* Reads the borders of the coded frame that are not shown, in steps of a sample of chroma. */
static void crop(struct header *header)
{
    const bool is_halved = header->chroma == TRAJD_CHROMA_420 || header->chroma == TRAJD_CHROMA_422;
    uint64_t columns = get_golomb(header), rows;

    columns = (columns + get_golomb(header)) * (is_halved ? 2 : 1);
    rows = get_golomb(header);
    rows = (rows + get_golomb(header)) * (header->chroma == TRAJD_CHROMA_420 ? 2 : 1);
    header->is_damaged |= columns >= header->width || rows >= header->height;
    header->width -= columns;
    header->height -= rows;
}

static void read_chroma(struct header *header)
{
    const uint32_t chroma = get_golomb(header);

    header->is_damaged |= chroma > TRAJD_CHROMA_444;
    header->chroma = (enum trajd_chroma)chroma;
    if (chroma == TRAJD_CHROMA_444 && get(header, 1))
        header->refusal = "its colour planes are coded separately";
}

bool trajd_stream_picture_set_id(const uint8_t *bytes, size_t size, uint32_t *id)
{
    struct header header = {.bytes = bytes, .size = size * 8};

    *id = get_golomb(&header);
    return !header.is_damaged;
}

/* ---- H.264 ---- */

static bool has_chroma_format(uint32_t profile)
{
    static const uint8_t profiles[] = {100, 110, 122, 244, 44,  83, 86,
                                       118, 128, 138, 139, 134, 135};

    return memchr(profiles, (int)profile, sizeof profiles) != NULL;
}

static void skip_scaling_lists(struct header *header, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t last = 8, next = 8;
        if (!get(header, 1))
            continue;
        for (uint32_t k = 0; k < (i < 6 ? 16u : 64u) && next; k++) {
            next = (last + get_signed(header)) & 255;
            last = next ? next : last;
        }
    }
}

static void skip_picture_order(struct header *header)
{
    const uint32_t type = get_golomb(header);

    if (!type)
        get_golomb(header);
    if (type != 1)
        return;
    get(header, 1);
    skip_golomb(header, 2);
    skip_golomb(header, get_golomb(header));
}

enum trajd_status trajd_stream_format_h264(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error)
{
    struct header header = {.bytes = bytes,
                            .size = size * 8,
                            .is_nal = true,
                            .luma_bits = 8,
                            .chroma_bits = 8,
                            .chroma = TRAJD_CHROMA_420,
                            .matrix = MATRIX_UNSPECIFIED};
    const uint32_t profile = get(&header, 8);

    get(&header, 16); /* constraints, level */
    *id = get_golomb(&header);
    if (has_chroma_format(profile)) {
        read_chroma(&header);
        header.luma_bits += get_golomb(&header);
        header.chroma_bits += get_golomb(&header);
        get(&header, 1);
        if (get(&header, 1))
            skip_scaling_lists(&header, header.chroma == TRAJD_CHROMA_444 ? 12 : 8);
    }
    get_golomb(&header); /* frame numbers */
    skip_picture_order(&header);
    get_golomb(&header); /* reference frames */
    get(&header, 1);
    header.width = ((uint64_t)get_golomb(&header) + 1) * 16;
    header.height = ((uint64_t)get_golomb(&header) + 1) * 16;
    if (!get(&header, 1)) {
        header.refusal = "its video is interlaced";
        get(&header, 1);
    }
    get(&header, 1);
    if (get(&header, 1))
        crop(&header);
    if (get(&header, 1))
        read_vui_colors(&header);
    return finish(&header, format, error);
}

/* ---- HEVC ---- */

static void skip_profile(struct header *header, uint32_t sub_layers)
{
    uint32_t bits = sub_layers ? 2 * (8 - sub_layers) : 0;

    get(header, 96);
    for (uint32_t i = 0; i < sub_layers; i++) {
        bits += get(header, 1) ? 88 : 0; /* its profile */
        bits += get(header, 1) ? 8 : 0;  /* its level */
    }
    get(header, bits);
}

static void skip_scaling_data(struct header *header)
{
    for (uint32_t size = 0; size < 4; size++)
        for (uint32_t matrix = 0; matrix < 6; matrix += size == 3 ? 3 : 1)
            skip_golomb(header, get(header, 1) ? (size > 1) + (size ? 64u : 16u) : 1);
}

/* Skips one st_ref_pic_set(). `pictures`: of the set before it. Returns those of this one. */
static uint32_t skip_short_term_set(struct header *header, bool is_first, uint32_t pictures)
{
    uint32_t count = 0, negative, positive;

    if (!is_first && get(header, 1)) { /* made of the set before it */
        get(header, 1);
        get_golomb(header);
        for (uint32_t i = 0; i <= pictures; i++)
            count += get(header, 1) || get(header, 1);
        header->is_damaged |= count > PICTURES_MAX;
        return count;
    }
    negative = get_golomb(header);
    positive = get_golomb(header);
    header->is_damaged |= negative > PICTURES_MAX || positive > PICTURES_MAX - negative;
    for (; count < negative + positive && !header->is_damaged; count++) {
        get_golomb(header);
        get(header, 1);
    }
    return count;
}

/* Skips from the coding blocks to the VUI. */
static void skip_hevc_tools(struct header *header, uint32_t order_bits)
{
    uint32_t count, pictures = 0;

    skip_golomb(header, 6); /* block sizes */
    if (get(header, 1) && get(header, 1))
        skip_scaling_data(header);
    get(header, 2);
    if (get(header, 1)) { /* PCM */
        get(header, 8);
        skip_golomb(header, 2);
        get(header, 1);
    }
    count = get_golomb(header);
    header->is_damaged |= count > SHORT_TERM_SETS_MAX;
    for (uint32_t i = 0; i < count && !header->is_damaged; i++)
        pictures = skip_short_term_set(header, !i, pictures);
    if (get(header, 1)) { /* long-term pictures */
        count = get_golomb(header);
        header->is_damaged |= count > LONG_TERM_MAX;
        get(header, header->is_damaged ? 0 : count * (order_bits + 1));
    }
    get(header, 2);
}

enum trajd_status trajd_stream_format_hevc(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error)
{
    struct header header = {
        .bytes = bytes, .size = size * 8, .is_nal = true, .matrix = MATRIX_UNSPECIFIED};
    uint32_t sub_layers, order_bits;

    get(&header, 4);
    sub_layers = get(&header, 3);
    get(&header, 1);
    skip_profile(&header, sub_layers);
    *id = get_golomb(&header);
    read_chroma(&header);
    header.width = get_golomb(&header);
    header.height = get_golomb(&header);
    if (get(&header, 1))
        crop(&header);
    header.luma_bits = 8 + get_golomb(&header);
    header.chroma_bits = 8 + get_golomb(&header);
    order_bits = 4 + get_golomb(&header);
    header.is_damaged |= order_bits > 16;
    skip_golomb(&header, get(&header, 1) ? 3 * (sub_layers + 1) : 3);
    skip_hevc_tools(&header, order_bits);
    if (get(&header, 1)) {
        read_vui_colors(&header);
        if (get(&header, 1))
            skip_golomb(&header, 2); /* places of chroma */
        get(&header, 1);
        if (get(&header, 1))
            header.refusal = "its video is interlaced";
    }
    return finish(&header, format, error);
}

/* ---- AV1, by dav1d ---- */

enum trajd_status trajd_stream_format_av1(const uint8_t *bytes, size_t size,
                                          struct trajd_stream_format *format,
                                          struct trajd_error *error)
{
    static const enum trajd_chroma chromas[] = {[DAV1D_PIXEL_LAYOUT_I400] = TRAJD_CHROMA_NONE,
                                                [DAV1D_PIXEL_LAYOUT_I420] = TRAJD_CHROMA_420,
                                                [DAV1D_PIXEL_LAYOUT_I422] = TRAJD_CHROMA_422,
                                                [DAV1D_PIXEL_LAYOUT_I444] = TRAJD_CHROMA_444};
    uint8_t unit[3 + TRAJD_PARAMETER_SET_MAX] = {0x0a, (uint8_t)(size | 0x80),
                                                 (uint8_t)(size >> 7)};
    Dav1dSequenceHeader read;
    struct header header = {.is_damaged = true};
    uint32_t layers;

    if (size <= TRAJD_PARAMETER_SET_MAX) {
        memcpy(unit + 3, bytes, size);
        header.is_damaged = dav1d_parse_sequence_header(&read, unit, 3 + size) != 0;
    }
    if (header.is_damaged)
        return finish(&header, format, error);
    layers = read.operating_points[0].idc >> 8; /* a bit for each; none: one layer */
    if (read.reduced_still_picture_header)
        header.refusal = "its AV1 is a still picture, not a video";
    else if (layers & (layers - 1))
        header.refusal = "its AV1 has several spatial layers";
    header.width = (uint64_t)read.max_width;
    header.height = (uint64_t)read.max_height;
    header.luma_bits = header.chroma_bits = 8 + 2 * read.hbd;
    header.chroma = chromas[read.layout];
    header.matrix = read.mtrx;
    header.range = read.color_range ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    return finish(&header, format, error);
}

/* ---- pixels ---- */

const char *trajd_stream_pixel_format(enum trajd_video_codec codec,
                                      const struct trajd_stream_format *format,
                                      char text[TRAJD_PIXEL_FORMAT_SIZE])
{
    /* H.264 decoders give gray with chroma that is all 128 */
    static const char *const samplings[] = {"420p", "420p", "422p", "444p"};
    const bool is_deep = format->bits > 8;
    const bool is_jpeg = codec != TRAJD_VIDEO_AV1 && format->range == TRAJD_RANGE_FULL && !is_deep;

    if (format->chroma == TRAJD_CHROMA_NONE && codec != TRAJD_VIDEO_H264)
        return "gray";
    snprintf(text, TRAJD_PIXEL_FORMAT_SIZE, "%s%s%s", is_jpeg ? "yuvj" : "yuv",
             samplings[format->chroma], is_deep ? "10le" : "");
    return text;
}
