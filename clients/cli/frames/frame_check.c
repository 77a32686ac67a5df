/* Decodes the frames of each episode and stream, and compares each frame with the one before
 * it. */
#include "clients/cli/frames/frame_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/frames/frame_unit.h"
#include "daemon/base/memory.h"
#include "daemon/base/paths.h"
#include "daemon/base/progress/progress.h"
#include "daemon/decode/decoder.h"
#include "daemon/index/rows/encoded.h"
#include "proto/regular_file.h"

/* SMALL: height and width of what the frames are compared by */
enum { JOB_FRAMES = 32, DECODE_TIMEOUT_MS = 20000, PATH_SIZE = 4096, SMALL = 64 };

struct check {
    const struct trajd_index *index;
    void (*report)(void *context, const struct frame_check_result *result);
    void *context;
    char program[PATH_SIZE];
    struct trajd_encoded_reader *reader;
    uint64_t done, count; /* frames */
    /* of the episode and stream at hand */
    struct trajd_array array; /* raw pixels of a plain array are read as padded rows */
    uint64_t room;            /* of a row of these; 0: the rows are encoded */
    struct trajd_decoder *decoder;
    struct trajd_layout_image image;   /* with the size of the frames */
    uint8_t *pixels;                   /* of a job */
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
    const struct trajd_array *array = &check->array;
    struct trajd_decoder_options options = {.program = check->program,
                                            .bits = 8 * trajd_dtype_size(stream->dtype),
                                            .timeout_ms = DECODE_TIMEOUT_MS};
    struct trajd_image_preparation small;
    enum trajd_status status;

    if (array->form == TRAJD_ROWS_VIDEO) {
        options.video = array->video->format;
        options.largest_unit_bytes = trajd_video_unit_room(array->video);
    }
    check->image = stream->image;
    check->image.height = array->header.height;
    check->image.width = array->header.width;
    if (check->room) {
        check->image.encoding = TRAJD_ENCODING_RAW;
        check->image.height = (uint32_t)stream->shape[0];
        check->image.width = (uint32_t)stream->shape[1];
    }
    options.image = check->image;
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
    options.largest_frame_bytes = (uint64_t)check->image.height * check->image.width *
                                      trajd_image_channels(check->image.color) *
                                      trajd_dtype_size(stream->dtype) +
                                  TRAJD_DECODER_HEADER_BYTES;
    status = trajd_decoder_create(&options, &check->decoder, error);
    if (status)
        return status;
    check->pixels =
        trajd_memory_or_exit(malloc(JOB_FRAMES * trajd_decoder_frame_bytes(check->decoder)));
    return TRAJD_OK;
}

/* Compares a small frame with the one of the row before, and keeps it for the next one. */
static void compare(struct check *check, uint64_t row, const uint8_t *pixels)
{
    const uint64_t size = trajd_decoder_frame_bytes(check->decoder);
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

/* Decodes `count` rows, the first of which is `row`. */
static enum trajd_status decode(struct check *check, const struct trajd_row_bytes *rows,
                                uint64_t row, uint64_t count, struct trajd_error *error)
{
    struct trajd_decoder_frame frames[JOB_FRAMES];
    uint64_t numbers[JOB_FRAMES];
    uint32_t used = 0;
    enum trajd_status status;

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t room =
            check->room ? check->room : trajd_encoded_row_room(&check->array, rows[i].size);
        struct trajd_image_header header;
        struct trajd_error ignored;
        if (trajd_image_examine(rows[i].data, rows[i].size, room, &check->image, &header, &ignored))
            continue;
        frames[used] = (struct trajd_decoder_frame){
            .bytes = rows[i].data,
            .size = rows[i].size,
            .room = room,
            .pixels = check->pixels + used * trajd_decoder_frame_bytes(check->decoder)};
        numbers[used++] = row + i;
    }
    status = trajd_decoder_run(check->decoder, frames, used, error);
    for (uint32_t i = 0; i < used && !status; i++)
        add_result(check, numbers[i], &frames[i]);
    return status;
}

/* Reads up to JOB_FRAMES rows. Of a block that cannot be read, the first row is read alone. *count
 * becomes the rows passed, and *rows NULL if the first one cannot be read. */
static enum trajd_status read_rows(struct check *check, int fd, uint64_t file_size, uint64_t row,
                                   const struct trajd_row_bytes **rows, uint64_t *count,
                                   struct trajd_error *error)
{
    const struct trajd_array *array = &check->array;
    const uint64_t rest = trajd_array_row_count(array) - row,
                   most = rest < JOB_FRAMES ? rest : JOB_FRAMES;
    enum trajd_status status =
        trajd_encoded_read(check->reader, fd, file_size, array, row, most, rows, count, error);

    if (status && !error->foreign_code && status != TRAJD_ERR_MEMORY)
        status =
            trajd_encoded_read(check->reader, fd, file_size, array, row, 1, rows, count, error);
    if (!status || error->foreign_code || status == TRAJD_ERR_MEMORY)
        return status;
    *rows = NULL;
    *count = 1;
    return TRAJD_OK;
}

/* Decodes the rows of an episode and stream. Rows that cannot be read are left out. */
static enum trajd_status check_rows(struct check *check, int fd, uint64_t file_size,
                                    struct trajd_error *error)
{
    const uint64_t row_count = trajd_array_row_count(&check->array);
    enum trajd_status status = start(check, error);

    for (uint64_t row = 0, count = 0; row < row_count && !status; row += count) {
        const struct trajd_row_bytes *rows;
        status = read_rows(check, fd, file_size, row, &rows, &count, error);
        if (!status && rows)
            status = decode(check, rows, row, count, error);
        check->done += count;
        trajd_progress_report("frames decoded", "frames", check->done, check->count);
    }
    return status;
}

/* ---- packed video ---- */

/* Decodes the unit that was read. Packets that have changed are left out: examine_video finds them.
 * So are frames that were not recorded. */
static enum trajd_status check_unit(struct check *check, const struct frame_units *units,
                                    struct trajd_error *error)
{
    struct trajd_decoder_frame *frames =
        trajd_memory_or_exit(calloc(units->row_count, sizeof *frames));
    const uint64_t size = trajd_decoder_frame_bytes(check->decoder);
    enum trajd_status status;

    check->pixels = trajd_memory_or_exit(realloc(check->pixels, (units->row_count + 1) * size));
    for (uint64_t i = 0; i < units->row_count; i++)
        frames[i].pixels = check->pixels + i * size;
    status = frame_units_decode(units, check->decoder, frames, error);
    for (uint64_t i = 0; i < units->row_count && !status; i++)
        if (frame_units_is_good(units, i))
            add_result(check, units->first_row + i, &frames[i]);
    free(frames);
    return status;
}

static enum trajd_status check_video(struct check *check, int fd, struct trajd_error *error)
{
    const struct trajd_array *array = &check->array;
    struct frame_units units;
    enum trajd_status status =
        frame_units_open(check->index, check->result.episode->file_index, array, fd, &units, error);

    if (!status)
        status = start(check, error);
    for (uint64_t row = 0; row < trajd_array_row_count(array) && !status;) {
        status = frame_units_read(&units, row, error);
        if (!status)
            status = check_unit(check, &units, error);
        check->done += units.row_count;
        row += units.row_count;
        trajd_progress_report("frames decoded", "frames", check->done, check->count);
    }
    frame_units_close(&units);
    return status;
}

static enum trajd_status check_stream(struct check *check, const struct trajd_episode *episode,
                                      const struct trajd_index_stream *stream,
                                      struct trajd_error *error)
{
    const struct trajd_index_file *file = &check->index->files[episode->file_index];
    int fd;
    enum trajd_status status = trajd_open_regular(file->path, &fd, error);

    if (status)
        return status;
    check->array = *array_of(episode, stream);
    check->room = check->next_row = 0;
    if (is_plain(episode, stream)) {
        check->array.form = TRAJD_ROWS_PADDED;
        check->room = trajd_array_row_bytes(&check->array);
    }
    check->result = (struct frame_check_result){.episode = episode, .stream = stream};
    status = check->array.form == TRAJD_ROWS_VIDEO
                 ? check_video(check, fd, error)
                 : check_rows(check, fd, file->stat.size_bytes, error);
    trajd_decoder_destroy(&check->decoder);
    free(check->pixels);
    check->pixels = NULL;
    close(fd);
    if (status)
        trajd_error_prefix(error, "%s:%s: %s", file->relative_path, episode->id, stream->name);
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
    enum trajd_status status;

    if (!trajd_paths_decoder(check.program, sizeof check.program))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "trajd-decoder was found neither beside this program nor in its installation");
    status = trajd_encoded_reader_create(&check.reader, error);
    for (uint32_t s = 0; s < index->stream_count; s++)
        for (uint32_t e = 0; e < index->episode_count; e++)
            if (is_decoded(&index->episodes[e], &index->streams[s]))
                check.count +=
                    trajd_array_row_count(array_of(&index->episodes[e], &index->streams[s]));
    for (uint32_t s = 0; s < index->stream_count && !status; s++)
        for (uint32_t e = 0; e < index->episode_count && !status; e++)
            if (is_decoded(&index->episodes[e], &index->streams[s]))
                status = check_stream(&check, &index->episodes[e], &index->streams[s], error);
    trajd_encoded_reader_destroy(&check.reader);
    return status;
}
