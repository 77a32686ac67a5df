/* The picture libraries: encoded bytes to pixels. Only the helper program uses them. The caller has
 * examined the header, so the size is known. */
#ifndef TRAJD_DECODE_DECODE_LIBRARY_H
#define TRAJD_DECODE_DECODE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/index/rows/picture_header.h"

/* Write height x width x channels values, rows without gaps: red first, 16 bits little-endian.
 * False where the frame is bad, with the library's words in `reason`: a warning of the library
 * makes a frame bad, too. A JPEG may have up to 100 scans, and no orientation but the first. */
bool trajd_decode_jpeg(const uint8_t *bytes, size_t size, const struct trajd_picture *picture,
                       uint8_t *pixels, char *reason, size_t reason_size);
bool trajd_decode_png(const uint8_t *bytes, size_t size, const struct trajd_picture *picture,
                      uint8_t *pixels, char *reason, size_t reason_size);

#endif
