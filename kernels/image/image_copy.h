/* Copies the pixels of a frame. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_COPY_H
#define TRAJD_KERNELS_IMAGE_IMAGE_COPY_H

#include <stdint.h>

/* Like memcpy. Where there are many bytes, they go past the processor's caches. */
void trajd_image_copy(void *to, const void *from, uint64_t bytes);

#endif
