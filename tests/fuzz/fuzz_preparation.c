// libs: trajd_window
/* The attribute `preparation` of packed frames, from a hostile file. Input: the type of the frames,
 * then the text. What is accepted can be prepared, and is the same after it is written and read. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/image/image_prepared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum trajd_dtype types[] = {TRAJD_U8, TRAJD_U16, TRAJD_F32};
    struct trajd_image_prepared read, again;
    char text[600] = "", written[TRAJD_PREPARATION_TEXT_SIZE], words[TRAJD_PREPARATION_WORDS_SIZE];
    const uint32_t channels = size && data[0] % 2 ? 3 : 1;
    const enum trajd_dtype type = types[size ? data[0] / 2 % 3 : 0];

    if (!size || size > sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    if (trajd_image_prepared_read(text, channels, type, &read, NULL))
        return 0;
    trajd_image_prepared_write(&read, written);
    if (!memchr(trajd_image_describe(&read.preparation, words), '\0', sizeof words) ||
        trajd_image_prepared_read(written, channels, type, &again, NULL) ||
        memcmp(&read, &again, sizeof read) ||
        !trajd_image_is_same(&read.preparation, &again.preparation))
        abort();
    return 0;
}
