// libs: trajd_decode_child
/* An encoded frame of a hostile file, through the image libraries, as the helper program decodes
 * it. Input: colour, preparation and flip; the size of the stream's frames, and whether they become
 * JPEGs; then the frame. A good frame has all its pixels, a bad one a reason. */
#include <stdlib.h>
#include <string.h>

#include "daemon/decode/decode_child.h"
#include "daemon/decode/decoder.h"

enum { HEAD_BYTES = 2, SIDE = 16, MOST_PIXELS = 48 * 48 * 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct trajd_decode_setup setup_for(const uint8_t *head)
{
    static const struct {
        uint32_t height, width;
    } sizes[] = {{29, 42}, {1, 1}, {8, 8}, {48, 17}};
    const uint8_t side = head[1] % 4;
    struct trajd_decode_setup setup = {.image = {.is_present = true,
                                                 .color = (enum trajd_image_color)(head[0] & 3),
                                                 .flip = (enum trajd_image_flip)(head[0] >> 3 & 3),
                                                 .height = sizes[side].height,
                                                 .width = sizes[side].width},
                                       .bits = (head[0] & 3) == TRAJD_COLOR_DEPTH ? 16 : 8,
                                       .upright = 1,
                                       .is_prepared = head[0] >> 2 & 1};
    const uint32_t channels = trajd_image_channels(setup.image.color);

    setup.preparation = (struct trajd_image_preparation){
        .source_height = setup.image.height,
        .source_width = setup.image.width,
        .channels = channels,
        .type = setup.bits == 16 ? TRAJD_U16 : TRAJD_U8,
        .crop = {0, 0, setup.image.height, setup.image.width},
        .filter = setup.bits == 16 ? TRAJD_IMAGE_NEAREST : TRAJD_IMAGE_PILLOW_BILINEAR};
    trajd_image_place(&setup.preparation, TRAJD_IMAGE_PAD, SIDE, SIDE);
    setup.frame_bytes = setup.is_prepared
                            ? trajd_image_bytes(&setup.preparation)
                            : setup.image.height * setup.image.width * channels * setup.bits / 8u;
    if (setup.is_prepared && setup.bits == 8 && head[1] >> 2 & 1) {
        setup.jpeg_quality = 95;
        setup.frame_bytes += TRAJD_DECODER_HEADER_BYTES;
    }
    return setup;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_decode_setup setup;
    struct trajd_decode_state state;
    char reason[TRAJD_DECODE_REASON_SIZE] = "";
    uint8_t *output;
    bool is_good;

    if (size < HEAD_BYTES)
        return 0;
    setup = setup_for(data);
    output = malloc(setup.frame_bytes); /* the allocation ends with it: overruns are found */
    if (!output || setup.frame_bytes > MOST_PIXELS + TRAJD_DECODER_HEADER_BYTES ||
        !trajd_decode_state_make(&setup, &state))
        abort();
    is_good = trajd_decode_frame(&state, data + HEAD_BYTES, size - HEAD_BYTES, size - HEAD_BYTES,
                                 output, reason, sizeof reason);
    if (!memchr(reason, 0, sizeof reason) || is_good == (*reason != '\0'))
        abort();
    trajd_decode_state_free(&state);
    free(output);
    return 0;
}
