/* The files of tests/golden/video/units, which tests/tools/video_units.py writes. */
#ifndef TRAJD_TESTS_UNIT_DECODE_UNIT_FILE_H
#define TRAJD_TESTS_UNIT_DECODE_UNIT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/decode/decoder.h"

enum { UNIT_FILE_SIZE = 1 << 23, UNIT_FILE_MAGIC = 0x55564a54, UNIT_FILE_WORDS = 6 };

struct unit_file {
    enum trajd_video_codec codec;
    uint32_t height, width;
    const uint32_t *crcs; /* of the planes of each packet's frame */
    uint64_t sizes[TRAJD_UNIT_PACKETS_MAX];
    struct trajd_decoder_unit unit;
    uint32_t words[UNIT_FILE_SIZE / 4];
};

static bool unit_file_read(const char *path, struct unit_file *file)
{
    const uint32_t *words = file->words;
    FILE *in = fopen(path, "rb");
    size_t size = in ? fread(file->words, 1, UNIT_FILE_SIZE, in) : 0;

    if (in)
        fclose(in);
    if (size < 4 * UNIT_FILE_WORDS || words[0] != UNIT_FILE_MAGIC)
        return false;
    file->codec = (enum trajd_video_codec)words[1];
    file->height = words[2];
    file->width = words[3];
    for (uint32_t i = 0; i < words[4]; i++)
        file->sizes[i] = words[UNIT_FILE_WORDS + i];
    file->crcs = words + UNIT_FILE_WORDS + words[4];
    file->unit = (struct trajd_decoder_unit){.extradata = (const uint8_t *)(file->crcs + words[4]),
                                             .extradata_size = words[5],
                                             .sizes = file->sizes,
                                             .packet_count = words[4]};
    file->unit.bytes = file->unit.extradata + words[5];
    return true;
}

#endif
