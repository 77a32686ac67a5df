/* PNG by libpng: 8 or 16 bits, grey or RGB. A palette becomes RGB, and transparency is dropped, as
 * cv2.imdecode and Pillow's convert("RGB") do. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "daemon/decode/decode_child.h"

struct decoder {
    const uint8_t *next;
    size_t remaining;
    bool lacks_memory;
    char *reason;
    size_t reason_size;
};

static png_voidp allocate(png_structp png, png_alloc_size_t size)
{
    struct decoder *decoder = png_get_mem_ptr(png);
    void *made = malloc(size);

    decoder->lacks_memory |= !made;
    return made;
}

static void release(png_structp png, png_voidp block)
{
    (void)png;
    free(block);
}

/* A warning makes the frame bad, too. */
static void on_failure(png_structp png, png_const_charp message)
{
    struct decoder *decoder = png_get_error_ptr(png);

    snprintf(decoder->reason, decoder->reason_size, "%s", message);
    png_longjmp(png, 1);
}

static void on_read(png_structp png, png_bytep out, size_t count)
{
    struct decoder *decoder = png_get_io_ptr(png);

    if (count > decoder->remaining)
        png_error(png, "it ends too early");
    memcpy(out, decoder->next, count);
    decoder->next += count;
    decoder->remaining -= count;
}

static void decode(png_structp png, png_infop info, struct decoder *decoder,
                   const struct trajd_image_header *header, png_bytep *rows)
{
    png_set_read_fn(png, decoder, on_read);
    png_set_user_limits(png, TRAJD_FRAME_SIDE_MAX, TRAJD_FRAME_SIDE_MAX);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_read_info(png, info);
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    png_set_strip_alpha(png);
    if (header->bits == 16)
        png_set_swap(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_image_height(png, info) != header->height ||
        png_get_image_width(png, info) != header->width ||
        png_get_bit_depth(png, info) != header->bits ||
        png_get_channels(png, info) != header->channels)
        png_error(png, "its header changes");
    png_read_image(png, rows);
    png_read_end(png, NULL);
}

bool trajd_decode_png(const uint8_t *bytes, size_t size, const struct trajd_image_header *header,
                      uint8_t *pixels, char *reason, size_t reason_size)
{
    struct decoder decoder = {
        .next = bytes, .remaining = size, .reason = reason, .reason_size = reason_size};
    const size_t step = (size_t)header->width * header->channels * header->bits / 8;
    png_bytep *rows = malloc(header->height * sizeof *rows);
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &decoder, on_failure,
                                               on_failure, &decoder, allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    volatile bool is_good = false;

    decoder.lacks_memory |= !rows;
    if (rows && info && !setjmp(png_jmpbuf(png))) {
        for (uint32_t y = 0; y < header->height; y++)
            rows[y] = pixels + y * step;
        decode(png, info, &decoder, header, rows);
        is_good = true;
    }
    if (!is_good && decoder.lacks_memory)
        snprintf(reason, reason_size, TRAJD_DECODE_NO_MEMORY);
    png_destroy_read_struct(&png, &info, NULL);
    free(rows);
    return is_good;
}
