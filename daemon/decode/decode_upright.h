/* Decoded frames as policies get them. */
#ifndef TRAJD_DECODE_DECODE_UPRIGHT_H
#define TRAJD_DECODE_DECODE_UPRIGHT_H

#include <stdint.h>

#include "daemon/layout/picture.h"

/* Turns a frame upright and puts red first, in place. `image` has the size of the frame; `bits`: of
 * a value. */
void trajd_decode_upright(const struct trajd_layout_image *image, uint32_t bits, uint8_t *pixels);

#endif
