/* Sequence headers, bit by bit, in the order of the standards: H.264 7.3.2.1 and E.1.1, HEVC 7.3.2.2
 * and E.2.1, AV1 5.5. Only what comes before the last value that counts is read. */
#include "daemon/decode/mp4/stream_format.h"

#include <stdio.h>
#include <string.h>

#include "daemon/layout/picture.h"

enum { EXTENDED_ASPECT = 255, SUB_LAYERS = 7, SHORT_TERM_SETS_MAX = 64, PICTURES_MAX = 16 };

/* ---- bits ---- */

/* Reads the highest bit of a byte first. Behind the end there are zeros, and is_over is set. */
struct bits {
    const uint8_t *bytes;
    uint64_t size, at; /* in bits */
    bool is_over;
};

static uint32_t get(struct bits *bits, uint32_t count)
{
    uint32_t value = 0;

    if (count > bits->size - bits->at) {
        bits->at = bits->size;
        bits->is_over = true;
        return 0;
    }
    for (; count; count--, bits->at++)
        value = value << 1 | (bits->bytes[bits->at / 8] >> (7 - bits->at % 8) & 1u);
    return value;
}

static void skip(struct bits *bits, uint64_t count)
{
    for (; count > 32; count -= 32)
        get(bits, 32);
    get(bits, (uint32_t)count);
}

/* Reads a number in exponential Golomb code: ue(v), or uvlc() of AV1. */
static uint32_t get_golomb(struct bits *bits)
{
    uint32_t zeros = 0;

    while (!bits->is_over && !get(bits, 1))
        zeros++;
    if (zeros >= 32) {
        bits->is_over = true;
        return 0;
    }
    return (UINT32_C(1) << zeros) - 1 + get(bits, zeros);
}

/* The same with a sign, se(v): 0, 1, -1, 2, -2 ... */
static int64_t get_signed(struct bits *bits)
{
    const int64_t number = get_golomb(bits);

    return number & 1 ? (number + 1) / 2 : -(number / 2);
}

static void skip_golomb(struct bits *bits, uint32_t count)
{
    while (count--)
        get_golomb(bits);
}

/* Copies a NAL unit without its emulation prevention bytes: in 00 00 03, the 03. */
static struct bits unescape(const uint8_t *bytes, size_t size,
                            uint8_t buffer[TRAJD_PARAMETER_SET_MAX])
{
    size_t used = 0, zeros = 0;

    for (size_t i = 0; i < size && used < TRAJD_PARAMETER_SET_MAX; i++) {
        const bool is_prevention = zeros >= 2 && bytes[i] == 3;
        zeros = bytes[i] ? 0 : zeros + 1;
        if (!is_prevention)
            buffer[used++] = bytes[i];
    }
    return (struct bits){.bytes = buffer, .size = used * 8};
}

/* ---- what the codecs share ---- */

enum trajd_status trajd_stream_matrix(uint32_t number, enum trajd_video_matrix *matrix,
                                      struct trajd_error *error)
{
    switch (number) {
    case 1:
        *matrix = TRAJD_MATRIX_BT709;
        return TRAJD_OK;
    case 2:
        *matrix = TRAJD_MATRIX_UNSPECIFIED;
        return TRAJD_OK;
    case 5:
    case 6:
        *matrix = TRAJD_MATRIX_BT601;
        return TRAJD_OK;
    case 9:
        *matrix = TRAJD_MATRIX_BT2020;
        return TRAJD_OK;
    default:
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its colour matrix has number %u (H.273): only BT.601, BT.709 and "
                               "BT.2020 are read",
                               number);
    }
}

static enum trajd_status finish(const struct bits *bits, uint64_t height, uint64_t width,
                                uint32_t luma_bits, uint32_t chroma_bits, uint32_t matrix,
                                struct trajd_stream_format *format, struct trajd_error *error)
{
    if (bits->is_over)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "its sequence header is cut");
    if (!height || !width || height > TRAJD_PICTURE_SIDE_MAX || width > TRAJD_PICTURE_SIDE_MAX ||
        height * width > TRAJD_PICTURE_PIXELS_MAX)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its frames have %llux%llu pixels: a side has 1 to %u, a frame at "
                               "most %u",
                               (unsigned long long)height, (unsigned long long)width,
                               TRAJD_PICTURE_SIDE_MAX, TRAJD_PICTURE_PIXELS_MAX);
    if ((luma_bits != 8 && (luma_bits != 10 || !format->chroma)) ||
        (format->chroma && chroma_bits != luma_bits))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its luma has %u bits a value and its chroma %u: 8 and, in colour, "
                               "10 are supported (depth in gray12le is not)",
                               luma_bits, format->chroma ? chroma_bits : 0);
    format->height = (uint32_t)height;
    format->width = (uint32_t)width;
    format->bits = luma_bits;
    return trajd_stream_matrix(matrix, &format->matrix, error);
}

static uint32_t get_matrix(struct bits *bits)
{
    skip(bits, 16); /* primaries, transfer */
    return get(bits, 8);
}

/* Reads the beginning of vui_parameters(), which H.264 and HEVC share, up to the colours. Returns the
 * number of the matrix. */
static uint32_t read_vui_colors(struct bits *bits, struct trajd_stream_format *format)
{
    if (get(bits, 1) && get(bits, 8) == EXTENDED_ASPECT)
        skip(bits, 32);
    if (get(bits, 1))
        skip(bits, 1); /* overscan */
    if (!get(bits, 1))
        return 2;
    skip(bits, 3);
    format->range = get(bits, 1) ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    return get(bits, 1) ? get_matrix(bits) : 2;
}

/* Reads the rectangle of shown pixels from a size that was coded. Returns false where nothing is
 * left of it. `vertical`, `horizontal`: the pixels of one step. */
static bool crop(struct bits *bits, uint32_t vertical, uint32_t horizontal, uint64_t *height,
                 uint64_t *width)
{
    const uint64_t left = get_golomb(bits), right = get_golomb(bits);
    const uint64_t top = get_golomb(bits), bottom = get_golomb(bits);

    if ((left + right) * horizontal >= *width || (top + bottom) * vertical >= *height)
        return false;
    *width -= (left + right) * horizontal;
    *height -= (top + bottom) * vertical;
    return true;
}

static enum trajd_status read_chroma(struct bits *bits, struct trajd_stream_format *format,
                                     struct trajd_error *error)
{
    const uint32_t chroma = get_golomb(bits);

    if (chroma > TRAJD_CHROMA_444)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "its sequence header is damaged");
    format->chroma = (enum trajd_chroma)chroma;
    if (chroma == TRAJD_CHROMA_444 && get(bits, 1))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its colour planes are coded separately, which is not supported");
    return TRAJD_OK;
}

static uint32_t vertical_step(enum trajd_chroma chroma)
{
    return chroma == TRAJD_CHROMA_420 ? 2 : 1;
}

static uint32_t horizontal_step(enum trajd_chroma chroma)
{
    return chroma == TRAJD_CHROMA_420 || chroma == TRAJD_CHROMA_422 ? 2 : 1;
}

static enum trajd_status damaged(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_DATA, 0, "its sequence header is damaged");
}

static enum trajd_status interlaced(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "its video is interlaced, which is not supported");
}

bool trajd_stream_picture_set_id(const uint8_t *bytes, size_t size, uint32_t *id)
{
    struct bits bits = {.bytes = bytes, .size = size * 8};

    *id = get_golomb(&bits);
    return !bits.is_over;
}

/* ---- H.264 ---- */

static bool has_chroma_format(uint32_t profile)
{
    static const uint8_t profiles[] = {100, 110, 122, 244, 44,  83, 86,
                                       118, 128, 138, 139, 134, 135};

    return memchr(profiles, (int)profile, sizeof profiles) != NULL;
}

static void skip_scaling_lists(struct bits *bits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t last = 8, next = 8;
        if (!get(bits, 1))
            continue;
        for (uint32_t k = 0; k < (i < 6 ? 16u : 64u) && next; k++) {
            next = (last + get_signed(bits)) & 255;
            last = next ? next : last;
        }
    }
}

static void skip_picture_order(struct bits *bits)
{
    const uint32_t type = get_golomb(bits);

    if (!type)
        get_golomb(bits);
    if (type != 1)
        return;
    skip(bits, 1);
    skip_golomb(bits, 2);
    for (uint32_t left = get_golomb(bits); left && !bits->is_over; left--)
        get_golomb(bits);
}

enum trajd_status trajd_stream_format_h264(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error)
{
    uint8_t buffer[TRAJD_PARAMETER_SET_MAX];
    struct bits bits = unescape(bytes, size, buffer);
    const uint32_t profile = get(&bits, 8);
    uint32_t luma = 8, chroma = 8, matrix = 2;
    uint64_t height, width;
    enum trajd_status status;

    *format = (struct trajd_stream_format){.chroma = TRAJD_CHROMA_420};
    skip(&bits, 16); /* constraints, level */
    *id = get_golomb(&bits);
    if (has_chroma_format(profile)) {
        if ((status = read_chroma(&bits, format, error)))
            return status;
        luma += get_golomb(&bits);
        chroma += get_golomb(&bits);
        skip(&bits, 1);
        if (get(&bits, 1))
            skip_scaling_lists(&bits, format->chroma == TRAJD_CHROMA_444 ? 12 : 8);
    }
    get_golomb(&bits); /* frame numbers */
    skip_picture_order(&bits);
    get_golomb(&bits); /* reference frames */
    skip(&bits, 1);
    width = ((uint64_t)get_golomb(&bits) + 1) * 16;
    height = ((uint64_t)get_golomb(&bits) + 1) * 16;
    if (!get(&bits, 1) && !bits.is_over)
        return interlaced(error);
    skip(&bits, 1);
    if (get(&bits, 1) && !crop(&bits, vertical_step(format->chroma),
                               horizontal_step(format->chroma), &height, &width))
        return damaged(error);
    if (get(&bits, 1))
        matrix = read_vui_colors(&bits, format);
    return finish(&bits, height, width, luma, chroma, matrix, format, error);
}

/* ---- HEVC ---- */

static void skip_profile(struct bits *bits, uint32_t sub_layers)
{
    bool has_profile[SUB_LAYERS], has_level[SUB_LAYERS];

    skip(bits, 96);
    for (uint32_t i = 0; i < sub_layers; i++) {
        has_profile[i] = get(bits, 1);
        has_level[i] = get(bits, 1);
    }
    if (sub_layers)
        skip(bits, 2 * (8 - sub_layers));
    for (uint32_t i = 0; i < sub_layers; i++)
        skip(bits, (has_profile[i] ? 88u : 0) + (has_level[i] ? 8u : 0));
}

static void skip_scaling_data(struct bits *bits)
{
    for (uint32_t size = 0; size < 4; size++)
        for (uint32_t matrix = 0; matrix < 6; matrix += size == 3 ? 3 : 1) {
            if (!get(bits, 1))
                get_golomb(bits);
            else
                skip_golomb(bits, (size > 1) + (size ? 64u : 16u));
        }
}

/* Skips one st_ref_pic_set(). *pictures: of the set before it; becomes that of this one. */
static bool skip_short_term_set(struct bits *bits, bool is_first, uint32_t *pictures)
{
    uint32_t count = 0, negative, positive;

    if (!is_first && get(bits, 1)) { /* made of the set before it */
        skip(bits, 1);
        get_golomb(bits);
        for (uint32_t i = 0; i <= *pictures; i++)
            count += get(bits, 1) || get(bits, 1);
        *pictures = count;
        return count <= PICTURES_MAX;
    }
    negative = get_golomb(bits);
    positive = get_golomb(bits);
    if (negative > PICTURES_MAX || positive > PICTURES_MAX - negative)
        return false;
    *pictures = negative + positive;
    for (uint32_t i = 0; i < *pictures; i++) {
        get_golomb(bits);
        skip(bits, 1);
    }
    return true;
}

/* Skips from the coding blocks to the VUI. False where a number is beyond its limit. */
static bool skip_hevc_tools(struct bits *bits, uint32_t order_bits)
{
    uint32_t sets, pictures = 0;

    skip_golomb(bits, 6); /* block sizes */
    if (get(bits, 1) && get(bits, 1))
        skip_scaling_data(bits);
    skip(bits, 2);
    if (get(bits, 1)) { /* PCM */
        skip(bits, 8);
        skip_golomb(bits, 2);
        skip(bits, 1);
    }
    sets = get_golomb(bits);
    if (sets > SHORT_TERM_SETS_MAX)
        return false;
    for (uint32_t i = 0; i < sets; i++)
        if (!skip_short_term_set(bits, !i, &pictures))
            return false;
    if (get(bits, 1)) { /* long-term pictures */
        const uint32_t count = get_golomb(bits);
        if (count > 32)
            return false;
        skip(bits, (uint64_t)count * (order_bits + 1));
    }
    skip(bits, 2);
    return true;
}

/* Reads the size, in the middle of a sequence parameter set. False where it is damaged. */
static bool read_hevc_size(struct bits *bits, enum trajd_chroma chroma, uint64_t *height,
                           uint64_t *width)
{
    *width = get_golomb(bits);
    *height = get_golomb(bits);
    return !get(bits, 1) ||
           crop(bits, vertical_step(chroma), horizontal_step(chroma), height, width);
}

/* Reads vui_parameters() up to field_seq_flag, which *is_interlaced becomes. */
static uint32_t read_hevc_vui(struct bits *bits, struct trajd_stream_format *format,
                              bool *is_interlaced)
{
    const uint32_t matrix = read_vui_colors(bits, format);

    if (get(bits, 1))
        skip_golomb(bits, 2); /* places of chroma */
    skip(bits, 1);
    *is_interlaced = get(bits, 1);
    return matrix;
}

enum trajd_status trajd_stream_format_hevc(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error)
{
    uint8_t buffer[TRAJD_PARAMETER_SET_MAX];
    struct bits bits = unescape(bytes, size, buffer);
    uint32_t sub_layers, luma, chroma, order_bits, matrix = 2;
    bool is_interlaced = false;
    uint64_t height, width;
    enum trajd_status status;

    *format = (struct trajd_stream_format){0};
    skip(&bits, 4);
    sub_layers = get(&bits, 3);
    skip(&bits, 1);
    skip_profile(&bits, sub_layers);
    *id = get_golomb(&bits);
    if ((status = read_chroma(&bits, format, error)))
        return status;
    if (!read_hevc_size(&bits, format->chroma, &height, &width))
        return damaged(error);
    luma = 8 + get_golomb(&bits);
    chroma = 8 + get_golomb(&bits);
    order_bits = 4 + get_golomb(&bits);
    if (order_bits > 16)
        return damaged(error);
    skip_golomb(&bits, get(&bits, 1) ? 3 * (sub_layers + 1) : 3);
    if (!skip_hevc_tools(&bits, order_bits))
        return damaged(error);
    if (get(&bits, 1))
        matrix = read_hevc_vui(&bits, format, &is_interlaced);
    if (is_interlaced && !bits.is_over)
        return interlaced(error);
    return finish(&bits, height, width, luma, chroma, matrix, format, error);
}

/* ---- AV1 ---- */

/* Skips the timing of the decoder and its operating points. Returns the spatial layers of the first
 * point, which decoders take, as bits; 0: it has one layer. */
static uint32_t skip_operating_points(struct bits *bits)
{
    uint32_t delay_bits = 0, count, layers = 0;
    bool has_delay;

    if (get(bits, 1)) { /* timing */
        skip(bits, 64);
        if (get(bits, 1))
            get_golomb(bits);
        if (get(bits, 1)) { /* decoder model */
            delay_bits = get(bits, 5) + 1;
            skip(bits, 42);
        }
    }
    has_delay = get(bits, 1);
    count = get(bits, 5) + 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t point = get(bits, 12);
        layers = i ? layers : point >> 8;
        if (get(bits, 5) > 7)
            skip(bits, 1); /* tier */
        if (delay_bits && get(bits, 1))
            skip(bits, 2 * delay_bits + 1);
        if (has_delay && get(bits, 1))
            skip(bits, 4);
    }
    return layers;
}

/* Skips from the size to the colours. */
static void skip_av1_tools(struct bits *bits)
{
    bool has_order;

    if (get(bits, 1))
        skip(bits, 7); /* frame numbers */
    skip(bits, 3 + 4);
    has_order = get(bits, 1);
    if (has_order)
        skip(bits, 2);
    if (get(bits, 1) || get(bits, 1)) { /* screen content is chosen by frame, or on */
        if (!get(bits, 1))
            skip(bits, 1);
    }
    skip(bits, (has_order ? 3u : 0) + 3);
}

static void read_av1_chroma(struct bits *bits, uint32_t profile, uint32_t value_bits,
                            struct trajd_stream_format *format)
{
    bool is_halved = profile == 0 || (profile == 2 && value_bits < 12);
    bool is_halved_down = profile == 0;

    if (profile == 2 && value_bits == 12) {
        is_halved = get(bits, 1);
        is_halved_down = is_halved && get(bits, 1);
    }
    format->chroma = is_halved_down ? TRAJD_CHROMA_420
                     : is_halved    ? TRAJD_CHROMA_422
                                    : TRAJD_CHROMA_444;
}

/* Reads color_config(). Returns the number of the matrix. */
static uint32_t read_av1_colors(struct bits *bits, uint32_t profile, uint32_t *value_bits,
                                struct trajd_stream_format *format)
{
    uint32_t matrix = 2;
    bool is_gray;

    *value_bits = get(bits, 1) ? 10 : 8;
    if (profile == 2 && *value_bits == 10 && get(bits, 1))
        *value_bits = 12;
    is_gray = profile != 1 && get(bits, 1);
    if (get(bits, 1))
        matrix = get_matrix(bits);
    if (!matrix) /* RGB, which is refused: what follows differs */
        return matrix;
    format->range = get(bits, 1) ? TRAJD_RANGE_FULL : TRAJD_RANGE_LIMITED;
    if (!is_gray)
        read_av1_chroma(bits, profile, *value_bits, format);
    return matrix;
}

enum trajd_status trajd_stream_format_av1(const uint8_t *bytes, size_t size,
                                          struct trajd_stream_format *format,
                                          struct trajd_error *error)
{
    struct bits bits = {.bytes = bytes, .size = (uint64_t)size * 8};
    const uint32_t profile = get(&bits, 3);
    uint32_t width_bits, height_bits, value_bits, matrix, layers;
    uint64_t height, width;

    *format = (struct trajd_stream_format){0};
    skip(&bits, 1);
    if (get(&bits, 1))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its AV1 is a still picture, not a video");
    if (profile > 2)
        return damaged(error);
    layers = skip_operating_points(&bits);
    if (layers & (layers - 1))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "its AV1 has several spatial layers, which is not supported");
    width_bits = get(&bits, 4) + 1;
    height_bits = get(&bits, 4) + 1;
    width = (uint64_t)get(&bits, width_bits) + 1;
    height = (uint64_t)get(&bits, height_bits) + 1;
    skip_av1_tools(&bits);
    matrix = read_av1_colors(&bits, profile, &value_bits, format);
    return finish(&bits, height, width, value_bits, value_bits, matrix, format, error);
}

/* ---- pixels ---- */

const char *trajd_stream_pixel_format(enum trajd_video_codec codec,
                                      const struct trajd_stream_format *format,
                                      char text[TRAJD_PIXEL_FORMAT_SIZE])
{
    /* H.264 decoders give gray with chroma that is all 128 */
    static const char *const samplings[] = {"420p", "420p", "422p", "444p"};
    const bool is_jpeg =
        codec != TRAJD_VIDEO_AV1 && format->range == TRAJD_RANGE_FULL && format->bits == 8;

    if (format->chroma == TRAJD_CHROMA_NONE && codec != TRAJD_VIDEO_H264)
        strcpy(text, "gray");
    else
        snprintf(text, TRAJD_PIXEL_FORMAT_SIZE, "%s%s", is_jpeg ? "yuvj" : "yuv",
                 samplings[format->chroma]);
    if (format->bits > 8)
        snprintf(text + strlen(text), TRAJD_PIXEL_FORMAT_SIZE - strlen(text), "%ule", format->bits);
    return text;
}
