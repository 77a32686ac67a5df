/* Reads the size of JPEG and PNG frames from their headers, and checks that of raw ones. */
#include "daemon/index/rows/image_header.h"

#include <stdio.h>
#include <string.h>

static uint32_t be16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t be32(const uint8_t *at)
{
    return be16(at) << 16 | be16(at + 2);
}

static enum trajd_status bad(struct trajd_error *error, const char *rule)
{
    return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s", rule);
}

/* ---- JPEG: markers up to the frame header (ITU T.81, B.1 and B.2) ---- */

static bool is_jpeg(const uint8_t *bytes, uint64_t size)
{
    return size >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

/* Returns whether the marker begins a frame header: SOF0 to SOF15 without DHT, JPG and DAC. */
static bool is_frame_header(uint8_t marker)
{
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* Reads a frame header behind its marker. `length`: of the segment, within the bytes. */
static enum trajd_status read_frame_header(uint8_t marker, const uint8_t *segment, uint32_t length,
                                           struct trajd_image_header *header,
                                           struct trajd_error *error)
{
    if (marker > 0xC2)
        return bad(error, "a JPEG that is neither baseline nor progressive is not supported");
    if (length < 8 || segment[2] != 8)
        return bad(error, "a JPEG with other than 8 bits a value is not supported");
    header->bits = 8;
    header->height = be16(segment + 3);
    header->width = be16(segment + 5);
    header->channels = segment[7];
    header->is_progressive = marker == 0xC2;
    if (length < 8 + 3 * (uint32_t)header->channels)
        return bad(error, "the JPEG header is damaged: its frame header is too short");
    if (header->channels == 4)
        return bad(error, "a CMYK JPEG is not supported: write it as RGB");
    if (header->channels != 1 && header->channels != 3)
        return bad(error, "a JPEG with other than 1 or 3 colours a pixel is not supported");
    return TRAJD_OK;
}

static enum trajd_status read_jpeg(const uint8_t *bytes, uint64_t size,
                                   struct trajd_image_header *header, struct trajd_error *error)
{
    uint64_t at = 2;

    header->encoding = TRAJD_ENCODING_JPEG;
    while (size - at >= 4) {
        const uint8_t marker = bytes[at + 1];
        uint32_t length;
        if (bytes[at] != 0xFF)
            return bad(error, "the JPEG header is damaged: a marker is missing");
        if (marker == 0xFF) { /* markers may have any number of these in front */
            at++;
            continue;
        }
        if (marker == 0xD9 || marker == 0xDA)
            return bad(error, "the JPEG has no frame header before its data");
        length = be16(bytes + at + 2);
        if (length < 2 || length > size - at - 2)
            return bad(error, "the JPEG header is damaged: a segment goes beyond the row");
        if (is_frame_header(marker))
            return read_frame_header(marker, bytes + at + 2, length, header, error);
        at += 2 + length;
    }
    return bad(error, "the JPEG ends before its frame header");
}

/* ---- PNG: signature and IHDR ---- */

static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
enum { PNG_HEADER_SIZE = 33 }; /* signature, length, type, IHDR's 13 bytes, checksum */

static bool is_png(const uint8_t *bytes, uint64_t size)
{
    return size >= sizeof png_signature && !memcmp(bytes, png_signature, sizeof png_signature);
}

static enum trajd_status read_png(const uint8_t *bytes, uint64_t size,
                                  struct trajd_image_header *header, struct trajd_error *error)
{
    enum { PALETTE = 1, COLOR = 2 }; /* bits of the colour type; 4: transparency */

    header->encoding = TRAJD_ENCODING_PNG;
    if (size < PNG_HEADER_SIZE || be32(bytes + 8) != 13 || memcmp(bytes + 12, "IHDR", 4))
        return bad(error, "the PNG header is damaged");
    header->width = be32(bytes + 16);
    header->height = be32(bytes + 20);
    header->bits = bytes[25] & PALETTE ? 8 : bytes[24];
    header->channels = bytes[25] & COLOR ? 3 : 1;
    return TRAJD_OK;
}

/* ---- all ---- */

/* Takes the row for raw pixels of the size that the layout names. */
static enum trajd_status read_raw(uint64_t size, uint64_t room,
                                  const struct trajd_layout_image *image,
                                  struct trajd_image_header *header, struct trajd_error *error)
{
    const uint64_t pixels = (uint64_t)image->height * image->width;
    const bool is_depth = image->color == TRAJD_COLOR_DEPTH;
    const uint64_t per_pixel = image->color == TRAJD_COLOR_GRAY ? 1 : is_depth ? 2 : 3;

    if (!pixels)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%llu bytes that begin neither like a JPEG nor like a PNG; if they "
                               "are raw pixels, the layout must say size: [HEIGHT, WIDTH]",
                               (unsigned long long)size);
    *header = (struct trajd_image_header){.encoding = TRAJD_ENCODING_RAW,
                                          .height = image->height,
                                          .width = image->width,
                                          .channels = is_depth ? 1 : (uint8_t)per_pixel,
                                          .bits = is_depth ? 16 : 8};
    if (size <= pixels * per_pixel && room >= pixels * per_pixel)
        return TRAJD_OK;
    if (is_depth && size <= pixels * 4 && room >= pixels * 4) {
        header->bits = 32;
        return TRAJD_OK;
    }
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%llu bytes that begin neither like a JPEG nor like a PNG, and a raw "
                           "frame of %ux%u has %llu",
                           (unsigned long long)size, image->height, image->width,
                           (unsigned long long)(pixels * per_pixel));
}

static enum trajd_status check_image(const struct trajd_image_header *header,
                                     const struct trajd_layout_image *image,
                                     struct trajd_error *error)
{
    const char *name = trajd_image_encoding_name(header->encoding);

    if (image->encoding && header->encoding != image->encoding)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "it is %s, the layout says encoding: %s",
                               name, trajd_image_encoding_name(image->encoding));
    if (!header->height || !header->width || header->height > TRAJD_FRAME_SIDE_MAX ||
        header->width > TRAJD_FRAME_SIDE_MAX ||
        header->height * header->width > TRAJD_FRAME_PIXELS_MAX)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "a %s of %ux%u: a side has 1 to %u pixels, an image at most %u",
                               name, header->height, header->width, TRAJD_FRAME_SIDE_MAX,
                               TRAJD_FRAME_PIXELS_MAX);
    if (header->channels != trajd_image_channels(image->color))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "a %s in %s, the layout says %s", name,
                               header->channels == 3 ? "colour" : "grey",
                               trajd_image_color_name(image->color));
    if (image->color == TRAJD_COLOR_DEPTH ? header->bits < 16 : header->bits != 8)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "a %s with %u bits a value, %s has %s",
                               name, header->bits, trajd_image_color_name(image->color),
                               image->color == TRAJD_COLOR_DEPTH ? "16 or 32" : "8");
    if (image->height && (header->height != image->height || header->width != image->width))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "a %s of %ux%u, the others have %ux%u",
                               name, header->height, header->width, image->height, image->width);
    return TRAJD_OK;
}

enum trajd_status trajd_image_examine(const uint8_t *bytes, uint64_t size, uint64_t room,
                                      const struct trajd_layout_image *image,
                                      struct trajd_image_header *header, struct trajd_error *error)
{
    enum trajd_status status;

    *header = (struct trajd_image_header){0};
    if (!size)
        return bad(error, "the row is empty");
    if (image->encoding != TRAJD_ENCODING_RAW && is_jpeg(bytes, size))
        status = read_jpeg(bytes, size, header, error);
    else if (image->encoding != TRAJD_ENCODING_RAW && is_png(bytes, size))
        status = read_png(bytes, size, header, error);
    else
        status = read_raw(size, room, image, header, error);
    if (!status)
        status = check_image(header, image, error);
    if (status)
        *header = (struct trajd_image_header){0};
    return status;
}

bool trajd_image_is_reason(const uint8_t *bytes, uint64_t size)
{
    uint64_t length = 0;

    while (length < size && bytes[length] >= ' ' && bytes[length] < 0x7f)
        length++;
    return length && length == size;
}

const char *trajd_image_text(const struct trajd_image_header *header,
                             const struct trajd_layout_image *image,
                             char text[TRAJD_IMAGE_TEXT_SIZE])
{
    snprintf(text, TRAJD_IMAGE_TEXT_SIZE, "%s %ux%u %s",
             trajd_image_encoding_name(header->encoding), header->height, header->width,
             trajd_image_color_name(image->color));
    return text;
}
