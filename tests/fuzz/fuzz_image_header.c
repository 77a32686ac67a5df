// libs: trajd_index
/* The first bytes of a frame from a hostile file. Input: encoding and colour, whether the layout
 * has a size, then the row. What is accepted has a size that a decoder can take. */
#include <stdlib.h>

#include "daemon/index/rows/image_header.h"

#define HEAD_BYTES 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_layout_image image = {.is_present = true};
    struct trajd_image_header header;
    char text[TRAJD_IMAGE_TEXT_SIZE];

    if (size < HEAD_BYTES)
        return 0;
    image.encoding = (enum trajd_image_encoding)(data[0] % 4);
    image.color = (enum trajd_image_color)(data[0] / 4 % 4);
    image.height = image.width = data[1];
    if (trajd_image_examine(data + HEAD_BYTES, size - HEAD_BYTES, size - HEAD_BYTES, &image,
                            &header, NULL))
        return 0;
    if (!header.height || !header.width || header.height > TRAJD_FRAME_SIDE_MAX ||
        header.width > TRAJD_FRAME_SIDE_MAX || !header.encoding || !header.bits ||
        (header.channels != 1 && header.channels != 3))
        abort();
    trajd_image_text(&header, &image, text);
    return 0;
}
