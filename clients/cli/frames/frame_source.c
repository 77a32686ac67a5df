/* Rows of all forms on their way to the decoder. */
#include "clients/cli/frames/frame_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/memory.h"
#include "daemon/base/paths.h"
#include "daemon/index/rows/encoded.h"
#include "proto/regular_file.h"

enum { JOB_FRAMES = 32, TIMEOUT_MS = 20000, PATH_SIZE = 4096 };
#define ROOM_BYTES_MAX (UINT64_C(2) << 30) /* of frames that are decoded together */

/* Opens what the rows are read from. */
static enum trajd_status open_rows(struct frame_source *source, const struct trajd_index *index,
                                   uint32_t file_index, struct trajd_error *error)
{
    enum trajd_status status =
        trajd_open_regular(index->files[file_index].path, &source->fd, error);

    if (status)
        return status;
    if (source->array.form == TRAJD_ROWS_VIDEO) {
        trajd_video_reader_create(&source->video, NULL);
        trajd_memory_or_exit(source->video);
        return trajd_index_open_media(index, file_index, &source->array, &source->media_fd, error);
    }
    trajd_encoded_reader_create(&source->reader, NULL);
    trajd_memory_or_exit(source->reader);
    trajd_encoded_reader_keep(source->reader, true);
    return TRAJD_OK;
}

enum trajd_status frame_source_open(struct frame_source *source, const struct trajd_index *index,
                                    uint32_t file_index, const struct trajd_array *array,
                                    const struct trajd_index_stream *stream,
                                    struct trajd_decoder_options options, struct trajd_error *error)
{
    const uint64_t value_bytes = trajd_dtype_size(stream->dtype);
    char program[PATH_SIZE];
    enum trajd_status status;

    *source = (struct frame_source){.array = *array,
                                    .is_plain = !trajd_array_is_encoded(array),
                                    .file_size = index->files[file_index].stat.size_bytes,
                                    .fd = -1,
                                    .media_fd = -1};
    if (!trajd_paths_decoder(program, sizeof program))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "trajd-decoder was found neither beside this program nor in its installation");
    if (source->is_plain) {
        source->array.form = TRAJD_ROWS_PADDED;
        options.image.encoding = TRAJD_ENCODING_RAW;
    }
    if (array->form == TRAJD_ROWS_VIDEO) {
        options.video = array->video->format;
        options.largest_unit_bytes = trajd_video_unit_room(array->video);
    }
    options.program = program;
    options.bits = (uint32_t)(8 * value_bytes);
    options.largest_frame_bytes = (uint64_t)options.image.height * options.image.width *
                                      trajd_image_channels(options.image.color) * value_bytes +
                                  TRAJD_DECODER_HEADER_BYTES;
    options.timeout_ms = TIMEOUT_MS;
    status = open_rows(source, index, file_index, error);
    if (!status)
        status = trajd_decoder_create(&options, &source->decoder, error);
    if (!status)
        source->frame_bytes = trajd_decoder_frame_bytes(source->decoder);
    return status;
}

static void free_room(struct frame_source *source)
{
    free(source->frames);
    free(source->is_masked);
    free(source->pixels);
}

void frame_source_close(struct frame_source *source)
{
    trajd_decoder_destroy(&source->decoder);
    trajd_encoded_reader_destroy(&source->reader);
    trajd_video_reader_destroy(&source->video);
    free_room(source);
    if (source->media_fd >= 0)
        close(source->media_fd);
    if (source->fd >= 0)
        close(source->fd);
}

/* ---- reading ---- */

/* Makes room for frames that are decoded together: those of a unit, so that it is decoded once. */
static enum trajd_status reserve(struct frame_source *source, uint64_t row, uint64_t count,
                                 struct trajd_error *error)
{
    if (count > ROOM_BYTES_MAX / source->frame_bytes && count > JOB_FRAMES)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "the %" PRIu64 " frames from row %" PRIu64
                               " on are decoded together, and need more than %" PRIu64
                               " MiB: ffmpeg -g 30 makes a video with shorter units",
                               count, row, ROOM_BYTES_MAX >> 20);
    if (count > source->room) {
        free_room(source);
        source->room = count;
        source->frames = trajd_memory_or_exit(malloc(count * sizeof *source->frames));
        source->is_masked = trajd_memory_or_exit(malloc(count * sizeof *source->is_masked));
        source->pixels = trajd_memory_or_exit(malloc(count * source->frame_bytes));
    }
    source->first_row = row;
    source->count = count;
    for (uint64_t i = 0; i < count; i++) {
        source->frames[i] =
            (struct trajd_decoder_frame){.pixels = source->pixels + i * source->frame_bytes};
        source->is_masked[i] = false;
    }
    return TRAJD_OK;
}

static enum trajd_status read_rows(struct frame_source *source, uint64_t row, uint64_t most,
                                   struct trajd_error *error)
{
    const uint64_t rest = trajd_array_row_count(&source->array) - row,
                   fit = most < JOB_FRAMES ? most : JOB_FRAMES;
    const struct trajd_row_bytes *rows;
    uint64_t count;
    enum trajd_status status =
        trajd_encoded_read(source->reader, source->fd, source->file_size, &source->array, row,
                           rest < fit ? rest : fit, &rows, &count, error);

    if (!status)
        status = reserve(source, row, count, error);
    for (uint64_t i = 0; i < count && !status; i++) {
        struct trajd_decoder_frame *frame = &source->frames[i];
        frame->bytes = rows[i].data;
        frame->size = source->is_plain ? trajd_array_row_bytes(&source->array) : rows[i].size;
        frame->room =
            source->is_plain ? frame->size : trajd_encoded_row_room(&source->array, frame->size);
    }
    return status;
}

/* Finds what the packets of the rows that were read have. */
static void take_packets(struct frame_source *source)
{
    for (uint64_t i = 0; i < source->count; i++) {
        struct trajd_decoder_frame *frame = &source->frames[i];
        frame->packet = source->packets[i];
        if (frame->packet >= source->unit.packet_count) {
            snprintf(frame->reason, sizeof frame->reason, "%s", source->unit.damage);
            continue;
        }
        frame->size = source->unit.sizes[frame->packet];
        source->is_masked[i] = !frame->size;
        if (!frame->size)
            snprintf(frame->reason, sizeof frame->reason, "the frame was not recorded");
    }
}

/* Reads a decode unit, as far as the packets are good and the rows show them. */
static enum trajd_status read_unit(struct frame_source *source, uint64_t row, uint64_t most,
                                   struct trajd_error *error)
{
    uint64_t unit, first, count;
    uint32_t last = 0;
    enum trajd_status status =
        trajd_video_rows_of_unit(source->fd, &source->array, row, &unit, &first, &count, error);

    if (!status && most == 1) {
        first = row;
        count = 1;
    }
    if (!status && count > TRAJD_UNIT_PACKETS_MAX)
        status = trajd_error_set(
            error, TRAJD_ERR_DATA, 0, "the unit of row %llu has %llu rows, the limit is %u",
            (unsigned long long)row, (unsigned long long)count, TRAJD_UNIT_PACKETS_MAX);
    if (!status)
        status = trajd_video_locate(source->fd, &source->array, first, (uint32_t)count, unit,
                                    source->packets, error);
    for (uint64_t i = 0; i < count && !status; i++)
        last = source->packets[i] > last ? source->packets[i] : last;
    if (!status)
        status = trajd_video_read_unit(source->video, source->fd, source->media_fd, &source->array,
                                       unit, last, &source->unit, error);
    if (!status)
        status = reserve(source, first, count, error);
    if (!status)
        take_packets(source);
    return status;
}

enum trajd_status frame_source_read(struct frame_source *source, uint64_t row, uint64_t most,
                                    struct trajd_error *error)
{
    return source->video ? read_unit(source, row, most, error)
                         : read_rows(source, row, most, error);
}

bool frame_is_zero(const struct trajd_decoder_frame *frame)
{
    return !frame->size ||
           (!frame->bytes[0] && !memcmp(frame->bytes, frame->bytes + 1, frame->size - 1));
}

/* ---- decoding ---- */

enum trajd_status frame_source_decode(struct frame_source *source, struct trajd_error *error)
{
    const struct trajd_decoder_unit unit = {source->unit.extradata, source->unit.extradata_size,
                                            source->unit.bytes, source->unit.sizes,
                                            source->unit.packet_count};
    struct trajd_decoder_frame *good =
        trajd_memory_or_exit(malloc((source->count + 1) * sizeof *good));
    uint64_t *places = trajd_memory_or_exit(malloc((source->count + 1) * sizeof *places));
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0;

    for (uint64_t i = 0; i < source->count; i++)
        if (!source->is_masked[i] && !*source->frames[i].reason) {
            places[count] = i;
            good[count++] = source->frames[i];
        }
    if (count)
        status = source->video ? trajd_decoder_run_unit(source->decoder, &unit, good, count, error)
                               : trajd_decoder_run(source->decoder, good, count, error);
    for (uint32_t g = 0; g < count; g++)
        source->frames[places[g]] = good[g];
    free(places);
    free(good);
    return status;
}
