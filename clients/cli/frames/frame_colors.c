/* Decodes one encoded frame of an episode and compares it with the raw frame, as RGB and as
 * BGR. */
#include "clients/cli/frames/frame_colors.h"

#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_read.h"

enum { COMPARED_MAX = 8 }; /* episodes: each starts decoders */

const struct trajd_index_stream *frame_find_undecided(const struct trajd_index *index)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].image.color == TRAJD_COLOR_UNDECIDED)
            return &index->streams[s];
    return NULL;
}

/* Finds the frame of an episode, and decodes the one in its middle as it is stored. The caller frees
 * *pixels. */
static bool read_middle(const struct trajd_index *index, const char *stream, const char *episode,
                        struct frame *frame, uint8_t **pixels)
{
    struct trajd_error error;

    if (frame_find(index, stream, episode, frame, &error))
        return false;
    frame->row = trajd_array_row_count(frame->array) / 2;
    return !frame_decode(index, frame, pixels, &error);
}

/* Returns the reading in which two frames are alike. What is lost by encoding is far less than half
 * of what exchanged colours change, and two recordings that only share a name are far apart either
 * way. */
static enum trajd_image_color choose(const uint8_t *encoded, const uint8_t *raw, uint64_t count)
{
    uint64_t same = 0, exchanged = 0;

    for (uint64_t i = 0; i < 3 * count; i += 3)
        for (uint64_t c = 0; c < 3; c++) {
            same += (uint64_t)abs(encoded[i + c] - raw[i + c]);
            exchanged += (uint64_t)abs(encoded[i + c] - raw[i + 2 - c]);
        }
    if (2 * same < exchanged)
        return TRAJD_COLOR_RGB;
    return 2 * exchanged < same ? TRAJD_COLOR_BGR : TRAJD_COLOR_UNDECIDED;
}

/* Compares the episode with the one of the same name in the other index, and counts it. */
static enum trajd_image_color compare(const struct trajd_index *index,
                                      const struct trajd_index *raw, const char *stream,
                                      const char *episode, uint32_t *count)
{
    enum trajd_image_color color = TRAJD_COLOR_UNDECIDED;
    struct frame one = {0}, other = {0};
    uint8_t *pixels = NULL, *raw_pixels = NULL;

    if (read_middle(index, stream, episode, &one, &pixels) &&
        read_middle(raw, stream, episode, &other, &raw_pixels) &&
        other.stream->form == TRAJD_ROWS_PLAIN && one.row == other.row &&
        one.image.height == other.image.height && one.image.width == other.image.width &&
        other.stream->feature_count == one.stream->feature_count) {
        color = choose(pixels, raw_pixels, (uint64_t)one.image.height * one.image.width);
        (*count)++;
    }
    free(pixels);
    free(raw_pixels);
    return color;
}

enum trajd_image_color frame_compare_colors(const struct trajd_index *index,
                                            const struct trajd_index *raw, const char **twin)
{
    const struct trajd_index_stream *stream = frame_find_undecided(index);

    uint32_t count = 0;

    for (uint32_t e = 0; e < raw->episode_count && stream && count < COMPARED_MAX; e++) {
        const struct trajd_episode *episode = &raw->episodes[e];
        const enum trajd_image_color color =
            episode->quarantine ? TRAJD_COLOR_UNDECIDED
                                : compare(index, raw, stream->name, episode->id, &count);
        *twin = raw->files[episode->file_index].path;
        if (color != TRAJD_COLOR_UNDECIDED)
            return color;
    }
    return TRAJD_COLOR_UNDECIDED;
}
