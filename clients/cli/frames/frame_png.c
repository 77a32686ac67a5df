#include "clients/cli/frames/frame_png.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

enum { RGB_8_BIT = 2, LEVEL = 6 };

static void put_be32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Writes a chunk: length, kind, content, checksum. */
static bool write_chunk(FILE *out, const char *kind, const uint8_t *content, size_t size)
{
    uint8_t length[4], checksum[4];
    uint32_t crc = libdeflate_crc32(0, kind, 4);

    put_be32(length, (uint32_t)size);
    put_be32(checksum, libdeflate_crc32(crc, content, size));
    return fwrite(length, 1, 4, out) == 4 && fwrite(kind, 1, 4, out) == 4 &&
           fwrite(content, 1, size, out) == size && fwrite(checksum, 1, 4, out) == 4;
}

/* Returns the compressed rows, each with a filter byte 0 in front. The caller frees. */
static uint8_t *compress(const uint8_t *pixels, uint32_t height, uint32_t width, size_t *size)
{
    const size_t row = (size_t)width * 3, total = (row + 1) * height;
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(LEVEL);
    const size_t room = compressor ? libdeflate_zlib_compress_bound(compressor, total) : 0;
    uint8_t *rows = malloc(total), *out = malloc(room ? room : 1);

    *size = 0;
    if (compressor && rows && out) {
        for (uint32_t y = 0; y < height; y++) {
            rows[y * (row + 1)] = 0;
            memcpy(rows + y * (row + 1) + 1, pixels + y * row, row);
        }
        *size = libdeflate_zlib_compress(compressor, rows, total, out, room);
    }
    libdeflate_free_compressor(compressor);
    free(rows);
    return out;
}

enum trajd_status frame_png_write(const char *path, const uint8_t *pixels, uint32_t height,
                                  uint32_t width, struct trajd_error *error)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t header[13] = {[8] = 8, [9] = RGB_8_BIT};
    size_t size;
    uint8_t *content = compress(pixels, height, width, &size);
    FILE *out = size ? fopen(path, "wxe") : NULL;
    bool is_written = false;
    int code = errno;

    put_be32(header, width);
    put_be32(header + 4, height);
    if (out) {
        is_written = fwrite(signature, 1, sizeof signature, out) == sizeof signature &&
                     write_chunk(out, "IHDR", header, sizeof header) &&
                     write_chunk(out, "IDAT", content, size) && write_chunk(out, "IEND", header, 0);
        code = errno;
        is_written = !fclose(out) && is_written;
    }
    free(content);
    if (!size)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the picture");
    return is_written ? TRAJD_OK
                      : trajd_error_set(error, TRAJD_ERR_IO, code, "%s: %s", path, strerror(code));
}
