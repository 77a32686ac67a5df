/* Looks through the compressed data of a JPEG for damage. Pillow and OpenCV make up the pixels that
 * are missing, and do not tell. */
#ifndef TRAJD_CLIENTS_PYTHON_JPEG_WALK_H
#define TRAJD_CLIENTS_PYTHON_JPEG_WALK_H

#include <stddef.h>
#include <stdint.h>

/* Returns where libjpeg-turbo would warn in a sequential JPEG with Huffman codes, as a sentence;
 * NULL: nowhere. Progressive JPEGs are not looked through: NULL. Allocates nothing. */
const char *trajd_jpeg_walk(const uint8_t *bytes, size_t size);

#endif
