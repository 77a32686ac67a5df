/* Prepares frames: has them decoded, cropped, resized and padded as a feed asks for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_source.h"
#include "clients/cli/pack/pack_internal.h"
#include "daemon/base/memory.h"
#include "daemon/window/image/image_prepared.h"

enum { NOTES_MAX = 8 };

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
    struct frame_source source;
};

/* Makes what the daemon has for the same view (cache/frames.c): both decode alike. */
static enum trajd_status start(struct preparing *job)
{
    const struct pack_dataset *dataset = job->dataset;
    struct trajd_decoder_options options = {.image = dataset->stream->image,
                                            .upright = true,
                                            .preparation = &dataset->preparation,
                                            .jpeg_quality = dataset->jpeg_quality};

    options.image.height = dataset->preparation.source_height;
    options.image.width = dataset->preparation.source_width;
    return frame_source_open(&job->source, job->pack->options->index, 0, &dataset->array,
                             dataset->stream, options, job->pack->error);
}

/* Prepares frames from a row on: as many as the source reads together. */
static enum trajd_status prepare(struct preparing *job, uint64_t row)
{
    const bool has_masks = job->dataset->stream->image.masks_zero_frames;
    struct frame_source *source = &job->source;
    struct pack *p = job->pack;
    enum trajd_status status = pack_check_cancelled(p);

    if (!status)
        status =
            pack_read_failed(p, job->dataset, frame_source_read(source, row, UINT64_MAX, p->error));
    for (uint64_t i = 0; i < source->count && !status && !source->video; i++) {
        if (source->array.form == TRAJD_ROWS_HEAP)
            p->result->stored_bytes += source->frames[i].size;
        source->is_masked[i] = has_masks && frame_is_zero(&source->frames[i]);
    }
    return status ? status : frame_source_decode(source, p->error);
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
    const struct trajd_decoder_frame *frame = &job->source.frames[i];
    const uint64_t at = (uint64_t)dataset->offsets[row], room = job->source.frame_bytes;
    const uint8_t *bytes = frame->pixels;
    uint64_t size = frame->made_bytes;

    if (job->source.is_masked[i]) {
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

    for (uint64_t row = 0; row < rows && !status; row += job->source.count) {
        status = prepare(job, row);
        for (uint64_t i = 0; i < job->source.count && !status; i++)
            status = write_frame(job, row + i, i);
        if (!status)
            pack_report_rows(job->pack, job->source.count);
    }
    return status;
}

enum trajd_status pack_prepare(struct pack *p, struct pack_dataset *dataset)
{
    struct preparing *job = trajd_memory_or_exit(malloc(sizeof *job));
    enum trajd_status status;

    job->pack = p;
    job->dataset = dataset;
    status = start(job);
    if (!status)
        status = write_all(job);
    frame_source_close(&job->source);
    free(job);
    return status;
}
