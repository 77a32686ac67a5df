/* Prepares frames: has them decoded, cropped, resized and padded as a feed asks for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_unit.h"
#include "clients/cli/pack/pack_internal.h"
#include "daemon/base/memory.h"
#include "daemon/decode/decoder.h"
#include "daemon/window/image/image_prepared.h"

enum { JOB_FRAMES = 32, TIMEOUT_MS = 20000, NOTES_MAX = 8 };
#define ROOM_BYTES_MAX (UINT64_C(2) << 30) /* of frames that are prepared together */

/* ---- which preparation ---- */

static struct trajd_image_source source_of(const struct trajd_index_stream *stream)
{
    return (struct trajd_image_source){.height = (uint32_t)stream->shape[0],
                                       .width = (uint32_t)stream->shape[1],
                                       .channels =
                                           stream->rank == 3 ? (uint32_t)stream->shape[2] : 1,
                                       .type = stream->dtype};
}

/* Prepared frames have red first, so they cannot be made of frames whose order nothing says. */
static enum trajd_status refuse_undecided(struct pack *p, const struct trajd_index_stream *stream)
{
    return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, 0,
                           "%s: layout %s and its files do not say whether its frames have red or "
                           "blue first: use --prepare CONFIG:FEED, with `color: rgb` or `color: "
                           "bgr` in the entry of the feed's dataset (`trajctl init` shows both)",
                           stream->name, p->options->index->layout->name);
}

static enum trajd_status refuse_two(struct pack *p, const struct trajd_index_stream *stream,
                                    const struct pack_preparation *first,
                                    const struct trajd_image_preparation *a,
                                    const struct pack_preparation *second,
                                    const struct trajd_image_preparation *b)
{
    char one[TRAJD_PREPARATION_WORDS_SIZE], other[TRAJD_PREPARATION_WORDS_SIZE];

    return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, 0,
                           "the feed asks for two preparations of %s, and a file holds one: %s: "
                           "%s; %s: %s",
                           stream->name, first->output, trajd_image_describe(a, one),
                           second->output, trajd_image_describe(b, other));
}

/* Returns whether frames that a feed takes whole are written decoded: those that are not pixels yet.
 * Images are left as they were recorded where the output is to be JPEGs. */
static bool is_decoded(const struct pack *p, const struct trajd_index_stream *stream)
{
    return stream->form != TRAJD_ROWS_PLAIN && stream->encoding != TRAJD_ENCODING_RAW &&
           (stream->form == TRAJD_ROWS_VIDEO || !p->options->jpeg_quality);
}

enum trajd_status pack_find_preparation(struct pack *p, struct pack_dataset *dataset)
{
    const struct trajd_index_stream *stream = dataset->stream;
    const struct trajd_image_source source = source_of(stream);
    const struct pack_preparation *first = NULL;

    dataset->is_prepared = false;
    dataset->jpeg_quality = stream->dtype == TRAJD_U8 ? p->options->jpeg_quality : 0;
    for (uint32_t i = 0; i < p->options->preparation_count && stream->image.is_present; i++) {
        const struct pack_preparation *option = &p->options->preparations[i];
        struct trajd_image_preparation made;
        enum trajd_status status;
        if (option->stream ? strcmp(option->stream, stream->name) != 0 : stream->dtype != TRAJD_U8)
            continue;
        if (stream->preparation)
            return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s: its frames are prepared already", stream->name);
        status = trajd_image_spec_prepare(option->image, &source, &made, p->error);
        if (status) {
            trajd_error_prefix(p->error, "%s: %s", option->output, stream->name);
            return status;
        }
        made.is_bgr = 0; /* a file has red first; each feed has its own order */
        if (first && !trajd_image_is_same(&made, &dataset->preparation))
            return refuse_two(p, stream, first, &dataset->preparation, option, &made);
        if (!first)
            dataset->preparation = made;
        first = first ? first : option;
    }
    dataset->is_prepared =
        first && (!trajd_image_is_whole(&dataset->preparation) || is_decoded(p, stream));
    if (!dataset->is_prepared)
        dataset->jpeg_quality = 0;
    return dataset->is_prepared && stream->image.color == TRAJD_COLOR_UNDECIDED
               ? refuse_undecided(p, stream)
               : TRAJD_OK;
}

/* ---- preparing ---- */

struct preparing {
    struct pack *pack;
    struct pack_dataset *dataset;
    struct trajd_decoder *decoder;
    struct frame_units units; /* of a video */
    uint64_t slot_bytes;      /* of a frame as the decoder gives it */
    /* frames that are prepared together, [room] */
    uint64_t room;
    uint8_t *pixels;
    struct trajd_decoder_frame *frames;
    bool *is_masked;
};

static bool is_video(const struct preparing *job)
{
    return job->dataset->array.form == TRAJD_ROWS_VIDEO;
}

/* Makes what the daemon has for the same view (cache/frames.c): both decode alike. */
static enum trajd_status start(struct preparing *job)
{
    const struct pack_dataset *dataset = job->dataset;
    const bool is_encoded = trajd_array_is_encoded(&dataset->array);
    struct pack *p = job->pack;
    struct trajd_decoder_options options = {.program = p->options->decoder_path,
                                            .image = dataset->stream->image,
                                            .bits = 8 * trajd_dtype_size(dataset->stream->dtype),
                                            .upright = true,
                                            .preparation = &dataset->preparation,
                                            .jpeg_quality = dataset->jpeg_quality,
                                            .timeout_ms = TIMEOUT_MS};
    enum trajd_status status = TRAJD_OK;

    options.image.height = dataset->preparation.source_height;
    options.image.width = dataset->preparation.source_width;
    if (!is_encoded)
        options.image.encoding = TRAJD_ENCODING_RAW;
    options.largest_frame_bytes = trajd_image_source_bytes(&dataset->preparation) +
                                  (is_encoded ? TRAJD_DECODER_HEADER_BYTES : 0);
    if (is_video(job)) {
        options.video = dataset->array.video->format;
        options.largest_unit_bytes = trajd_video_unit_room(dataset->array.video);
        status = pack_read_failed(p, dataset,
                                  frame_units_open(p->options->index, 0, &dataset->array, p->input,
                                                   &job->units, p->error));
    }
    if (!status)
        status = trajd_decoder_create(&options, &job->decoder, p->error);
    if (!status)
        job->slot_bytes = trajd_decoder_frame_bytes(job->decoder);
    return status;
}

static void free_room(struct preparing *job)
{
    free(job->pixels);
    free(job->frames);
    free(job->is_masked);
}

/* Makes room for frames that are prepared together: those of a unit, so that it is decoded once. */
static enum trajd_status reserve(struct preparing *job, uint64_t row, uint64_t count)
{
    if (count > ROOM_BYTES_MAX / job->slot_bytes && count > JOB_FRAMES)
        return trajd_error_set(job->pack->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "the %" PRIu64 " frames from row %" PRIu64
                               " on are decoded together, and need more than %" PRIu64
                               " MiB: ffmpeg -g 30 makes a video with shorter units",
                               count, row, ROOM_BYTES_MAX >> 20);
    if (count > job->room) {
        free_room(job);
        job->room = count;
        job->pixels = trajd_memory_or_exit(malloc(count * job->slot_bytes));
        job->frames = trajd_memory_or_exit(calloc(count, sizeof *job->frames));
        job->is_masked = trajd_memory_or_exit(calloc(count, sizeof *job->is_masked));
    }
    return TRAJD_OK;
}

static bool is_zero(const uint8_t *bytes, uint64_t size)
{
    return !size || (!bytes[0] && !memcmp(bytes, bytes + 1, size - 1));
}

/* Reads rows of pixels or of encoded frames, and has them prepared. */
static enum trajd_status prepare_rows(struct preparing *job, uint64_t row, uint64_t *count)
{
    struct pack *p = job->pack;
    const struct trajd_array *array = &job->dataset->array;
    const bool is_encoded = trajd_array_is_encoded(array);
    const uint64_t rest = array->shape[0] - row, width = trajd_array_row_bytes(array);
    const struct trajd_row_bytes *rows = NULL;
    enum trajd_status status;

    *count = rest < JOB_FRAMES ? rest : JOB_FRAMES;
    status = reserve(job, row, *count);
    if (!status && !is_encoded)
        pack_reserve(p, *count * width);
    if (!status)
        status = pack_read_failed(
            p, job->dataset,
            is_encoded
                ? trajd_encoded_read(p->reader, p->input,
                                     p->options->index->files[0].stat.size_bytes, array, row,
                                     *count, &rows, count, p->error)
                : trajd_array_read(p->pixels, p->input, array, row, *count, p->block, p->error));
    for (uint64_t i = 0; i < *count && !status; i++) {
        const uint8_t *bytes = is_encoded ? rows[i].data : p->block + i * width;
        const uint64_t size = is_encoded ? rows[i].size : width;
        if (array->form == TRAJD_ROWS_HEAP)
            p->result->stored_bytes += size;
        job->is_masked[i] = job->dataset->stream->image.masks_zero_frames && is_zero(bytes, size);
        job->frames[i] = (struct trajd_decoder_frame){.bytes = bytes,
                                                      .size = size,
                                                      .room = trajd_encoded_row_room(array, size),
                                                      .pixels = job->pixels + i * job->slot_bytes};
    }
    return status ? status
                  : trajd_decoder_run(job->decoder, job->frames, (uint32_t)*count, p->error);
}

/* Reads the decode unit of a row, the first one of its unit, and has all of its frames prepared. */
static enum trajd_status prepare_unit(struct preparing *job, uint64_t row, uint64_t *count)
{
    struct frame_units *units = &job->units;
    struct pack *p = job->pack;
    enum trajd_status status =
        pack_read_failed(p, job->dataset, frame_units_read(units, row, p->error));

    *count = status ? 0 : units->row_count;
    if (!status)
        status = pack_read_failed(p, job->dataset, reserve(job, row, *count));
    if (status)
        return status;
    for (uint64_t i = 0; i < *count; i++) {
        job->frames[i] = (struct trajd_decoder_frame){.pixels = job->pixels + i * job->slot_bytes};
        job->is_masked[i] = frame_units_is_absent(units, i);
    }
    return frame_units_decode(units, job->decoder, job->frames, p->error);
}

/* Prepares frames from a row on, as many as *count becomes. */
static enum trajd_status prepare(struct preparing *job, uint64_t row, uint64_t *count)
{
    const enum trajd_status status = pack_check_cancelled(job->pack);

    if (status)
        return status;
    return is_video(job) ? prepare_unit(job, row, count) : prepare_rows(job, row, count);
}

static void report_bad(struct preparing *job, uint64_t row, const char *reason)
{
    const struct pack_options *options = job->pack->options;
    char text[1024];

    if (job->pack->result->bad_count++ >= NOTES_MAX || !options->on_note)
        return;
    snprintf(text, sizeof text, "%s: %s: row %" PRIu64 ": %s: it stays a bad frame",
             options->index->files[0].relative_path, job->dataset->path, row, reason);
    options->on_note(options->context, text);
}

static enum trajd_status refuse_large(struct preparing *job, uint64_t row)
{
    return trajd_error_set(job->pack->error, TRAJD_ERR_UNSUPPORTED, 0,
                           "%s: row %" PRIu64 ": as a JPEG of quality %u the frame is larger than "
                           "its pixels: leave --jpeg out, or name a lower quality",
                           job->dataset->path, row, job->dataset->jpeg_quality);
}

/* Writes one frame, and where the next one begins. Shorter rows stand for what is not a frame. */
static enum trajd_status write_frame(struct preparing *job, uint64_t row, uint64_t i)
{
    struct pack_dataset *dataset = job->dataset;
    const struct trajd_decoder_frame *frame = &job->frames[i];
    const uint64_t at = (uint64_t)dataset->offsets[row], room = job->slot_bytes;
    const uint8_t *bytes = frame->pixels;
    uint64_t size = frame->made_bytes;

    if (job->is_masked[i]) {
        size = 0;
    } else if (*frame->reason) {
        report_bad(job, row, frame->reason);
        bytes = (const uint8_t *)frame->reason;
        size = strlen(frame->reason) < room ? strlen(frame->reason) : room - 1;
    } else if (!size) {
        return refuse_large(job, row);
    }
    dataset->offsets[row + 1] = (int64_t)(at + size);
    return dataset->jpeg_quality ? pack_spool(job->pack, bytes, size)
                                 : pack_put(job->pack, PACK_BYTES, at, bytes, size);
}

static enum trajd_status write_all(struct preparing *job)
{
    const uint64_t rows = job->dataset->array.shape[0];
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, count; row < rows && !status; row += count) {
        status = prepare(job, row, &count);
        for (uint64_t i = 0; i < count && !status; i++)
            status = write_frame(job, row + i, i);
        if (!status)
            pack_report_rows(job->pack, count);
    }
    return status;
}

/* Prepares frames around the middle row: up to JOB_FRAMES, or those of its unit. */
static enum trajd_status sample_middle(struct preparing *job, struct pack_sample *sample)
{
    struct pack_result *result = job->pack->result;
    const uint64_t stored_bytes = result->stored_bytes, rows = job->dataset->array.shape[0];
    uint64_t count = 0;
    const enum trajd_status status = rows ? prepare(job, rows / 2, &count) : TRAJD_OK;

    for (uint64_t i = 0; i < count && !status; i++)
        sample->made_bytes += job->is_masked[i] ? 0 : job->frames[i].made_bytes;
    sample->frames += count;
    sample->heap_bytes += result->stored_bytes - stored_bytes;
    result->stored_bytes = stored_bytes; /* the rows are read again when they are written */
    return status;
}

enum trajd_status pack_prepare(struct pack *p, struct pack_dataset *dataset,
                               struct pack_sample *sample)
{
    struct preparing job = {.pack = p, .dataset = dataset, .units = {.media_fd = -1}};
    enum trajd_status status;

    trajd_array_reader_keep(p->pixels, true);
    status = start(&job);
    if (!status)
        status = sample ? sample_middle(&job, sample) : write_all(&job);
    trajd_array_reader_keep(p->pixels, false);
    trajd_decoder_destroy(&job.decoder);
    frame_units_close(&job.units);
    free_room(&job);
    return status;
}
