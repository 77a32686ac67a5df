/* What the reference and the kernels share: which part of the resized frame the output shows,
 * padding, and filter nearest. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_FRAME_H
#define TRAJD_KERNELS_IMAGE_IMAGE_FRAME_H

#include "kernels/image/image.h"
#include "kernels/image/image_taps.h"

/* Rows or columns of the resized frame: [first, first + count), which stand at `place` of the
 * output. */
struct trajd_image_span {
    uint32_t first, count, place;
};

struct trajd_image_span trajd_image_rows(const struct trajd_image_preparation *preparation);
struct trajd_image_span trajd_image_columns(const struct trajd_image_preparation *preparation);

/* Fills what the resized frame leaves of the output with the pad value. */
void trajd_image_pad(const struct trajd_image_preparation *preparation, void *output);

/* Copies a crop box that is not resized into the output. */
void trajd_image_place_unscaled(const struct trajd_image_preparation *preparation,
                                const void *source, void *output);

/* Copies the pixels that filter nearest picks into the output. */
void trajd_image_pick(const struct trajd_image_preparation *preparation,
                      const struct trajd_image_taps *y, const struct trajd_image_taps *x,
                      const void *source, void *output);

/* Copies the pixels of a frame like memcpy. Where there are many bytes, they go past the processor's
 * caches. */
void trajd_image_copy(void *to, const void *from, uint64_t bytes);

#endif
