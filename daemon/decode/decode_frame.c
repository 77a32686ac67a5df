/* Decodes and prepares one encoded frame, in the helper program. */
#include "daemon/decode/decode_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/decode/decoder.h"

static uint64_t source_bytes(const struct trajd_decode_setup *setup)
{
    return (uint64_t)setup->image.height * setup->image.width *
           trajd_image_channels(setup->image.color) * setup->bits / 8;
}

static bool is_side(uint32_t side)
{
    return side >= 1 && side <= TRAJD_FRAME_SIDE_MAX;
}

/* Returns whether the words of the video are possible, or there are none. */
static bool is_video(const struct trajd_decode_setup *setup)
{
    const struct trajd_video_format *video = &setup->video;

    return video->codec == TRAJD_VIDEO_NONE ||
           (video->codec <= TRAJD_VIDEO_HEVC && video->matrix <= TRAJD_MATRIX_BT2020 &&
            video->range <= TRAJD_RANGE_FULL && setup->bits == 8 &&
            trajd_image_channels(setup->image.color) == 3);
}

/* Returns whether frames are wanted as they are stored. */
static bool is_upright(const struct trajd_decode_setup *setup)
{
    return !setup->upright ||
           (setup->image.color != TRAJD_COLOR_BGR && setup->image.flip == TRAJD_FLIP_NONE);
}

bool trajd_decode_state_make(const struct trajd_decode_setup *setup,
                             struct trajd_decode_state *state)
{
    uint64_t made_bytes;

    memset(state, 0, sizeof *state);
    state->setup = *setup;
    if (!is_side(setup->image.height) || !is_side(setup->image.width) ||
        setup->image.height * setup->image.width > TRAJD_FRAME_PIXELS_MAX ||
        (setup->bits != 8 && setup->bits != 16 && setup->bits != 32) || !is_video(setup) ||
        (setup->jpeg_quality && (setup->jpeg_quality > 100 || setup->bits != 8)))
        return false;
    if (!setup->is_prepared || trajd_image_is_source(&setup->preparation))
        return setup->frame_bytes == source_bytes(setup) && !setup->jpeg_quality;
    if (trajd_image_plan_create(&setup->preparation, &state->plan, NULL))
        return false;
    state->takes_video =
        trajd_image_takes_video(&setup->preparation) && is_upright(setup) && !setup->jpeg_quality;
    made_bytes = trajd_image_bytes(&setup->preparation);
    state->pixels = malloc(source_bytes(setup));
    state->prepared = setup->jpeg_quality ? malloc(made_bytes) : NULL;
    if (setup->jpeg_quality)
        made_bytes += TRAJD_DECODER_HEADER_BYTES;
    if (state->pixels && (state->prepared || !setup->jpeg_quality) &&
        trajd_image_source_bytes(&setup->preparation) == source_bytes(setup) &&
        made_bytes == setup->frame_bytes)
        return true;
    trajd_decode_state_free(state);
    return false;
}

void trajd_decode_state_free(struct trajd_decode_state *state)
{
    trajd_decode_unit_end(&state->video);
    trajd_image_plan_destroy(&state->plan);
    free(state->pixels);
    free(state->prepared);
    state->pixels = state->prepared = NULL;
}

/* Copies raw pixels. A padded row may have lost zeros at its end. */
static bool copy_raw(const struct trajd_image_header *header, const uint8_t *bytes, uint64_t size,
                     uint8_t *pixels)
{
    const uint64_t whole = trajd_image_raw_bytes(header);
    const uint64_t kept = size < whole ? size : whole;

    memcpy(pixels, bytes, kept);
    memset(pixels + kept, 0, whole - kept);
    return true;
}

static bool decode(const struct trajd_image_header *header, const uint8_t *bytes, uint64_t size,
                   uint8_t *pixels, char *reason, size_t reason_size)
{
    if (header->encoding == TRAJD_ENCODING_JPEG)
        return trajd_decode_jpeg(bytes, size, header, pixels, reason, reason_size);
    if (header->encoding == TRAJD_ENCODING_PNG)
        return trajd_decode_png(bytes, size, header, pixels, reason, reason_size);
    return copy_raw(header, bytes, size, pixels);
}

bool trajd_decode_finish(struct trajd_decode_state *state, uint8_t *pixels, uint8_t *output,
                         char *reason, size_t reason_size)
{
    const struct trajd_decode_setup *setup = &state->setup;

    if (setup->upright)
        trajd_decode_upright(&setup->image, setup->bits, pixels);
    if (state->plan)
        trajd_image_prepare(state->plan, pixels, state->prepared ? state->prepared : output);
    return !state->prepared ||
           trajd_encode_jpeg(&setup->preparation, setup->jpeg_quality, state->prepared, output,
                             setup->frame_bytes, &state->jpeg_bytes, reason, reason_size);
}

bool trajd_decode_frame(struct trajd_decode_state *state, const uint8_t *bytes, uint64_t size,
                        uint64_t room, uint8_t *output, char *reason, size_t reason_size)
{
    const struct trajd_decode_setup *setup = &state->setup;
    uint8_t *pixels = state->plan ? state->pixels : output;
    struct trajd_image_header header;
    struct trajd_error error;

    if (trajd_image_examine(bytes, size, room, &setup->image, &header, &error)) {
        snprintf(reason, reason_size, "%s", error.message);
        return false;
    }
    if (header.bits != setup->bits || header.height != setup->image.height ||
        header.width != setup->image.width ||
        header.channels != trajd_image_channels(setup->image.color)) {
        snprintf(reason, reason_size, "a frame of %ux%u with %u values of %u bits a pixel",
                 header.height, header.width, header.channels, header.bits);
        return false;
    }
    return decode(&header, bytes, size, pixels, reason, reason_size) &&
           trajd_decode_finish(state, pixels, output, reason, reason_size);
}
