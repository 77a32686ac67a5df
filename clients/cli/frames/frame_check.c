/* Decodes the frames of each episode and stream, and compares each frame with the one before
 * it. */
#include "clients/cli/frames/frame_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_source.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/index/rows/encoded.h"

enum { SMALL = 64 }; /* height and width of what the frames are compared by */

struct check {
    const struct trajd_index *index;
    void (*report)(void *context, const struct frame_check_result *result);
    void *context;
    uint64_t done, count; /* frames */
    /* of the episode and stream at hand */
    struct frame_source source;
    struct trajd_layout_image image;   /* with the size of the frames */
    uint8_t before[3 * SMALL * SMALL]; /* the small frame of the row in front of `next_row` */
    uint64_t next_row;                 /* 0: there is none */
    struct frame_check_result result;
};

static const struct trajd_array *array_of(const struct trajd_episode *episode,
                                          const struct trajd_index_stream *stream)
{
    return &episode->extents[stream->array_index];
}

/* Returns the frames of an episode and stream that are not raw pixels of a plain array. */
static uint64_t count_frames(const struct trajd_episode *episode,
                             const struct trajd_index_stream *stream)
{
    const bool has_frames = !episode->quarantine && stream->image.is_present &&
                            trajd_array_is_encoded(array_of(episode, stream));

    return has_frames ? trajd_array_row_count(array_of(episode, stream)) : 0;
}

/* Returns whether the frames were prepared, and are pixels, which no decoder reads. */
static bool is_prepared_raw(const struct trajd_index_stream *stream)
{
    return stream->preparation && stream->encoding == TRAJD_ENCODING_RAW;
}

/* Returns whether the frames are pixels of a plain array: they are only compared. */
static bool is_plain(const struct trajd_episode *episode, const struct trajd_index_stream *stream)
{
    return !episode->quarantine && stream->image.is_present && stream->dtype == TRAJD_U8 &&
           stream->rank >= 2 && stream->feature_count && stream->form == TRAJD_ROWS_PLAIN &&
           trajd_array_row_count(array_of(episode, stream));
}

static bool is_decoded(const struct trajd_episode *episode, const struct trajd_index_stream *stream)
{
    return (!is_prepared_raw(stream) && count_frames(episode, stream)) || is_plain(episode, stream);
}

struct frame_check_counts frame_check_count(const struct trajd_index *index)
{
    struct frame_check_counts counts = {0, 0};

    for (uint32_t s = 0; s < index->stream_count; s++)
        for (uint32_t e = 0; e < index->episode_count; e++)
            *(is_prepared_raw(&index->streams[s]) ? &counts.prepared : &counts.encoded) +=
                count_frames(&index->episodes[e], &index->streams[s]);
    return counts;
}

/* Starts the decoder for the frames of an episode and stream. */
static enum trajd_status start(struct check *check, struct trajd_error *error)
{
    const struct trajd_index_stream *stream = check->result.stream;
    const struct trajd_array *array = array_of(check->result.episode, stream);
    const bool is_encoded = trajd_array_is_encoded(array);
    struct trajd_decoder_options options = {.image = stream->image};
    struct trajd_image_preparation small;

    options.image.height = is_encoded ? array->header.height : (uint32_t)stream->shape[0];
    options.image.width = is_encoded ? array->header.width : (uint32_t)stream->shape[1];
    check->image = options.image;
    if (check->image.color != TRAJD_COLOR_DEPTH) {
        small = (struct trajd_image_preparation){
            .source_height = check->image.height,
            .source_width = check->image.width,
            .channels = trajd_image_channels(check->image.color),
            .type = TRAJD_U8,
            .crop = {0, 0, check->image.height, check->image.width},
            .filter = TRAJD_IMAGE_PILLOW_BOX};
        trajd_image_place(&small, TRAJD_IMAGE_STRETCH, SMALL, SMALL);
        options.preparation = &small;
        check->result.changes =
            trajd_memory_or_exit(malloc(trajd_array_row_count(array) * sizeof(float)));
        for (uint64_t row = 0; row < trajd_array_row_count(array); row++)
            check->result.changes[row] = NAN;
    }
    return frame_source_open(&check->source, check->index, check->result.episode->file_index, array,
                             stream, options, error);
}

/* Compares a small frame with the one of the row before, and keeps it for the next one. */
static void compare(struct check *check, uint64_t row, const uint8_t *pixels)
{
    const uint64_t size = check->source.frame_bytes;
    uint64_t sum = 0;

    if (check->next_row && check->next_row == row) {
        for (uint64_t i = 0; i < size; i++)
            sum += (uint64_t)abs(pixels[i] - check->before[i]);
        check->result.changes[row] = (float)sum / (float)size;
    }
    memcpy(check->before, pixels, size);
    check->next_row = row + 1;
}

static void add_result(struct check *check, uint64_t row, const struct trajd_decoder_frame *frame)
{
    if (!*frame->reason && check->result.changes)
        compare(check, row, frame->pixels);
    if (*frame->reason && !check->result.count++) {
        check->result.first = row;
        snprintf(check->result.reason, sizeof check->result.reason, "%s", frame->reason);
    }
}

/* Returns whether the rows could not be read because they are damaged. */
static bool is_damaged(enum trajd_status status, const struct trajd_error *error)
{
    return status && !error->foreign_code && status != TRAJD_ERR_MEMORY;
}

/* Reads rows. Of a block that cannot be read, the first row is read alone. It is left out if it cannot
 * be read, either. */
static enum trajd_status read_rows(struct check *check, uint64_t row, struct trajd_error *error)
{
    enum trajd_status status = frame_source_read(&check->source, row, UINT64_MAX, error);

    if (check->source.video)
        return status;
    if (is_damaged(status, error))
        status = frame_source_read(&check->source, row, 1, error);
    if (!is_damaged(status, error))
        return status;
    check->source.count = 0;
    return TRAJD_OK;
}

/* Leaves out frames that are empty, or whose packets or headers are bad: examine_index finds them. */
static void leave_out(struct check *check)
{
    struct frame_source *source = &check->source;

    for (uint64_t i = 0; i < source->count; i++) {
        const struct trajd_decoder_frame *frame = &source->frames[i];
        struct trajd_image_header header;
        struct trajd_error ignored;
        source->is_masked[i] =
            source->video      ? *frame->reason
            : source->is_plain ? frame_is_zero(frame)
                               : trajd_image_examine(frame->bytes, frame->size, frame->room,
                                                     &check->image, &header, &ignored) != TRAJD_OK;
    }
}

/* Decodes the rows of an episode and stream. */
static enum trajd_status check_rows(struct check *check, struct trajd_error *error)
{
    struct frame_source *source = &check->source;
    const uint64_t row_count = trajd_array_row_count(&source->array);
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, passed; row < row_count && !status; row += passed) {
        status = read_rows(check, row, error);
        passed = source->count ? source->count : 1;
        if (!status)
            leave_out(check);
        if (!status)
            status = frame_source_decode(source, error);
        for (uint64_t i = 0; i < source->count && !status; i++)
            if (!source->is_masked[i])
                add_result(check, row + i, &source->frames[i]);
        check->done += passed;
        trajd_progress_report("frames decoded", "frames", check->done, check->count);
    }
    return status;
}

static enum trajd_status check_stream(struct check *check, const struct trajd_episode *episode,
                                      const struct trajd_index_stream *stream,
                                      struct trajd_error *error)
{
    enum trajd_status status;

    check->next_row = 0;
    check->result = (struct frame_check_result){.episode = episode, .stream = stream};
    status = start(check, error);
    if (!status)
        status = check_rows(check, error);
    frame_source_close(&check->source);
    if (status)
        trajd_error_prefix(error, "%s:%s: %s",
                           check->index->files[episode->file_index].relative_path, episode->id,
                           stream->name);
    else
        check->report(check->context, &check->result);
    free(check->result.changes);
    return status;
}

enum trajd_status frame_check(const struct trajd_index *index,
                              void (*report)(void *context,
                                             const struct frame_check_result *result),
                              void *context, struct trajd_error *error)
{
    struct check check = {.index = index, .report = report, .context = context};
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < index->stream_count; s++)
        for (uint32_t e = 0; e < index->episode_count; e++)
            if (is_decoded(&index->episodes[e], &index->streams[s]))
                check.count +=
                    trajd_array_row_count(array_of(&index->episodes[e], &index->streams[s]));
    for (uint32_t s = 0; s < index->stream_count && !status; s++)
        for (uint32_t e = 0; e < index->episode_count && !status; e++)
            if (is_decoded(&index->episodes[e], &index->streams[s]))
                status = check_stream(&check, &index->episodes[e], &index->streams[s], error);
    return status;
}
