#include "daemon/decode/decode_upright.h"

#include <stddef.h>

/* Exchanges the first and the last channel of each pixel. */
static void swap_red_and_blue(uint8_t *pixels, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t red = pixels[3 * i];
        pixels[3 * i] = pixels[3 * i + 2];
        pixels[3 * i + 2] = red;
    }
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void mirror_rows(uint8_t *pixels, uint32_t height, uint32_t width, size_t pixel)
{
    for (uint32_t y = 0; y < height; y++, pixels += width * pixel)
        for (uint32_t x = 0; x < width / 2; x++)
            swap_bytes(pixels + x * pixel, pixels + (width - 1 - x) * pixel, pixel);
}

static void turn_over(uint8_t *pixels, uint32_t height, size_t step)
{
    for (uint32_t y = 0; y < height / 2; y++)
        swap_bytes(pixels + y * step, pixels + (height - 1 - y) * step, step);
}

void trajd_decode_upright(const struct trajd_layout_image *image, uint32_t bits, uint8_t *pixels)
{
    const size_t pixel = trajd_picture_channels(image->color) * bits / 8u;

    if (image->color == TRAJD_COLOR_BGR)
        swap_red_and_blue(pixels, (uint64_t)image->height * image->width);
    if (image->flip == TRAJD_FLIP_VERTICAL || image->flip == TRAJD_FLIP_180)
        turn_over(pixels, image->height, image->width * pixel);
    if (image->flip == TRAJD_FLIP_HORIZONTAL || image->flip == TRAJD_FLIP_180)
        mirror_rows(pixels, image->height, image->width, pixel);
}
