// libs: trajd_index
/* The first bytes of a frame from a hostile file. Input: encoding and colour, whether the layout
 * has a size, then the row. What is accepted has a size that a decoder can take. */
#include <stdlib.h>

#include "daemon/index/rows/picture_header.h"

#define HEAD_BYTES 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_layout_image image = {.is_present = true};
    struct trajd_picture picture;
    char text[TRAJD_PICTURE_TEXT_SIZE];

    if (size < HEAD_BYTES)
        return 0;
    image.encoding = (enum trajd_picture_encoding)(data[0] % 4);
    image.color = (enum trajd_picture_color)(data[0] / 4 % 4);
    image.height = image.width = data[1];
    if (trajd_picture_examine(data + HEAD_BYTES, size - HEAD_BYTES, size - HEAD_BYTES, &image,
                              &picture, NULL))
        return 0;
    if (!picture.height || !picture.width || picture.height > TRAJD_PICTURE_SIDE_MAX ||
        picture.width > TRAJD_PICTURE_SIDE_MAX || !picture.encoding || !picture.bits ||
        (picture.channels != 1 && picture.channels != 3))
        abort();
    trajd_picture_text(&picture, &image, text);
    return 0;
}
