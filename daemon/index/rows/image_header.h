/* What a stored frame is, by its first bytes: JPEG, PNG or raw pixels, and its size. The bytes come
 * from a file and are not trusted. No library sees them here. */
#ifndef TRAJD_INDEX_ROWS_IMAGE_HEADER_H
#define TRAJD_INDEX_ROWS_IMAGE_HEADER_H

#include "daemon/layout/layout_image.h"
#include "proto/error.h"

/* One frame. All zero: unknown. */
struct trajd_image_header {
    enum trajd_image_encoding encoding; /* raw, JPEG or PNG */
    uint32_t height, width;
    /* as it is decoded: of colour 3; of grey and depth 1. A palette is colour, and transparency is
     * dropped */
    uint8_t channels;
    uint8_t bits;        /* of a value: 8, 16, or 32 for float32 */
    bool is_progressive; /* JPEG */
};

/* Finds what a row is. `room`: the bytes that the row has room for, where zeros behind its content
 * were cut off; else `size`. A frame without a JPEG or PNG header is raw if its bytes are those of
 * image->height x width pixels. TRAJD_ERR_DATA with the rule that the row breaks: an empty row, a
 * damaged header, another size than the layout's, colours or bits that the layout excludes; *image
 * is all zero then. */
enum trajd_status trajd_image_examine(const uint8_t *bytes, uint64_t size, uint64_t room,
                                      const struct trajd_layout_image *image,
                                      struct trajd_image_header *header, struct trajd_error *error);

/* Returns whether the row of a prepared frame is a text. In the place of a frame that cannot be
 * decoded, `trajctl pack --prepare` writes the reason. */
bool trajd_image_is_reason(const uint8_t *bytes, uint64_t size);

/* Returns the bytes of the image's pixels. */
static inline uint64_t trajd_image_raw_bytes(const struct trajd_image_header *header)
{
    return (uint64_t)header->height * header->width * header->channels * header->bits / 8;
}

/* Writes "jpeg 480x640 rgb". */
#define TRAJD_IMAGE_TEXT_SIZE 64
const char *trajd_image_text(const struct trajd_image_header *header,
                             const struct trajd_layout_image *image,
                             char text[TRAJD_IMAGE_TEXT_SIZE]);

#endif
