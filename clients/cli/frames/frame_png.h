/* Writes a picture file. */
#ifndef TRAJD_CLI_FRAMES_FRAME_PNG_H
#define TRAJD_CLI_FRAMES_FRAME_PNG_H

#include <stdint.h>

#include "proto/error.h"

/* Writes height x width x 3 bytes, red first, as a new PNG file. TRAJD_ERR_IO where the file exists
 * or cannot be written; TRAJD_ERR_MEMORY. */
enum trajd_status frame_png_write(const char *path, const uint8_t *pixels, uint32_t height,
                                  uint32_t width, struct trajd_error *error);

#endif
