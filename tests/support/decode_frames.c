/* Decodes frames with the real helper program, for tests that make hostile ones.
 *
 *     decode_frames PROGRAM COLOUR BITS HEIGHT WIDTH OUT FILE...
 *
 * Prints a line for each file: its reason, or "" where the frame is good. Writes the pixels of all
 * frames to OUT, those of bad ones as 0xA5. COLOUR: rgb, gray or depth. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/decode/decoder.h"

enum { ARGUMENTS = 7, LARGEST = 64 << 20, TIMEOUT_MS = 60000, POISON = 0xA5 };

static void fail(const char *what)
{
    fprintf(stderr, "decode_frames: %s\n", what);
    exit(1);
}

static uint8_t *load(const char *path, uint64_t *size)
{
    uint8_t *bytes = malloc(LARGEST);
    FILE *file = fopen(path, "rb");

    if (!bytes || !file)
        fail(path);
    *size = fread(bytes, 1, LARGEST, file);
    fclose(file);
    return realloc(bytes, *size + 1);
}

static enum trajd_image_color color_of(const char *name)
{
    return !strcmp(name, "depth")  ? TRAJD_COLOR_DEPTH
           : !strcmp(name, "gray") ? TRAJD_COLOR_GRAY
                                   : TRAJD_COLOR_RGB;
}

int main(int argc, char **argv)
{
    const int count = argc - ARGUMENTS;
    struct trajd_decoder_frame *frames;
    struct trajd_decoder *decoder;
    struct trajd_error error;
    uint64_t frame_bytes;
    uint8_t *pixels;
    FILE *out;

    if (count < 1)
        fail("usage: decode_frames PROGRAM COLOUR BITS HEIGHT WIDTH OUT FILE...");
    const struct trajd_decoder_options options = {
        .program = argv[1],
        .image = {.is_present = true,
                  .color = color_of(argv[2]),
                  .height = (uint32_t)atoi(argv[4]),
                  .width = (uint32_t)atoi(argv[5]),
                  .unit =
                      color_of(argv[2]) == TRAJD_COLOR_DEPTH ? TRAJD_DEPTH_MM : TRAJD_DEPTH_NONE},
        .bits = (uint32_t)atoi(argv[3]),
        .largest_frame_bytes = LARGEST,
        .timeout_ms = TIMEOUT_MS};
    if (trajd_decoder_create(&options, &decoder, &error))
        fail(error.message);
    frame_bytes = trajd_decoder_frame_bytes(decoder);
    frames = calloc((size_t)count, sizeof *frames);
    pixels = malloc((size_t)count * frame_bytes);
    out = fopen(argv[6], "wb");
    if (!frames || !pixels || !out)
        fail("no memory, or no output");
    memset(pixels, POISON, (size_t)count * frame_bytes);
    for (int i = 0; i < count; i++) {
        frames[i].bytes = load(argv[ARGUMENTS + i], &frames[i].size);
        frames[i].room = frames[i].size;
        frames[i].pixels = pixels + (size_t)i * frame_bytes;
    }
    if (trajd_decoder_run(decoder, frames, (uint32_t)count, &error))
        fail(error.message);
    for (int i = 0; i < count; i++) {
        puts(frames[i].reason);
        free((void *)frames[i].bytes);
    }
    fwrite(pixels, frame_bytes, (size_t)count, out);
    fclose(out);
    free(frames);
    free(pixels);
    trajd_decoder_destroy(&decoder);
    return 0;
}
