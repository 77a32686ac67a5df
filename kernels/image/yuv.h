/* Decoded video to pixels: luma and chroma to red, green and blue of 8 bits.
 *
 * The pixels are those of the video readers that policies are trained with (PyAV, torchcodec:
 * FFmpeg's swscale on x86), so a pixel takes the chroma sample that covers it, and:
 *
 *     8 bits, chroma with half the columns   swscale's products of 16 bits, rounded down: equal
 *     other chroma, more bits                exact arithmetic, rounded to the nearest: 1 level
 *     gray                                   red = green = blue = luma, whatever the range says */
#ifndef TRAJD_KERNELS_IMAGE_YUV_H
#define TRAJD_KERNELS_IMAGE_YUV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The widest frame. */
#define TRAJD_YUV_WIDTH_MAX 8192u

/* A frame as a decoder gives it. Samples of 8 bits are bytes, others 16 bits of the machine. */
struct trajd_yuv {
    const void *planes[3]; /* luma, blue and red difference; gray: luma only. Borrowed */
    ptrdiff_t steps[3];    /* bytes from row to row */
    uint32_t height, width;
    uint32_t bits;             /* of a sample: 8 to 12 */
    uint32_t shift_x, shift_y; /* 1: chroma has half the columns, or rows, rounded up */
    bool is_gray;              /* there is no chroma */
};

/* What the samples mean. */
struct trajd_yuv_colors {
    double red, blue; /* the parts of red and blue in luma: 0.299 and 0.114 for BT.601 */
    bool is_full;     /* all codes; else luma of 8 bits is 16 to 235, and chroma 16 to 240 */
};

/* A frame that is read row by row, from top to bottom, because its pixels are resized at once: they
 * need not cross the memory. */
struct trajd_yuv_rows {
    const struct trajd_yuv *frame;
    struct trajd_yuv_factors {
        uint32_t code_shift; /* of a code of luma, before the product */
        int32_t zero, luma;  /* the shifted code of level 0; levels per shifted code */
        int32_t half;        /* is added to luma, so that the sum rounds to the nearest */
        int32_t chroma_zero, chroma_half;
        int32_t red_v, green_u, green_v, blue_u;
        uint32_t fraction_bits; /* of the sum */
    } factors;
    uint32_t chroma_row; /* that `chroma` has; UINT32_MAX: none */
    struct trajd_yuv_chroma {
        int16_t red[TRAJD_YUV_WIDTH_MAX + 1], green[TRAJD_YUV_WIDTH_MAX + 1],
            blue[TRAJD_YUV_WIDTH_MAX + 1];
    } chroma; /* what it adds to each pixel of a row */
};

/* `frame` is borrowed. */
void trajd_yuv_rows_begin(struct trajd_yuv_rows *rows, const struct trajd_yuv *frame,
                          const struct trajd_yuv_colors *colors);
/* Writes levels * 2^shift of `width` pixels of row y, from pixel `left` on: red, then green, then
 * blue. */
void trajd_yuv_rows_read(struct trajd_yuv_rows *rows, uint32_t y, uint32_t left, uint32_t width,
                         int shift, int16_t *levels);

/* Writes height x width x 3 values, red first. */
void trajd_yuv_to_rgb(const struct trajd_yuv *frame, const struct trajd_yuv_colors *colors,
                      uint8_t *pixels);

#endif
