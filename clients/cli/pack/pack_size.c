/* How large the output will be, before it is written. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "clients/cli/pack/pack_internal.h"

enum { SAMPLES = 8 }; /* datasets of a stream */

struct estimate {
    uint64_t jpeg_bytes, largest_bytes; /* of all datasets of JPEGs, and of the largest one */
    uint64_t heap_bytes;                /* of rows that are prepared, outside of their datasets */
    uint64_t sampled_frames;
};

/* Returns whether only the frames tell how many bytes they will have, or have. */
static bool is_sampled(const struct pack_dataset *dataset)
{
    return dataset->is_prepared &&
           (dataset->jpeg_quality || dataset->array.form == TRAJD_ROWS_HEAP);
}

/* Estimates the datasets of a stream by samples of up to SAMPLES of them, which lie evenly. */
static enum trajd_status estimate_stream(struct pack *p, const struct trajd_index_stream *stream,
                                         struct estimate *estimate)
{
    const uint32_t step = p->options->index->kept_count / SAMPLES + 1;
    struct pack_sample sample = {0};
    uint32_t found = 0;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < p->count && !status; i++)
        if (p->datasets[i].stream == stream && is_sampled(&p->datasets[i]) && found++ % step == 0)
            status = pack_prepare(p, &p->datasets[i], &sample);
    for (uint32_t i = 0; i < p->count && sample.frames; i++) {
        const struct pack_dataset *dataset = &p->datasets[i];
        const double share = (double)dataset->array.shape[0] / (double)sample.frames;
        const uint64_t made_bytes = (uint64_t)(share * (double)sample.made_bytes);
        if (dataset->stream != stream || !is_sampled(dataset))
            continue;
        estimate->heap_bytes += (uint64_t)(share * (double)sample.heap_bytes);
        if (!dataset->jpeg_quality)
            continue;
        estimate->jpeg_bytes += made_bytes;
        if (made_bytes > estimate->largest_bytes)
            estimate->largest_bytes = made_bytes;
    }
    estimate->sampled_frames += sample.frames;
    return status;
}

/* Says how large the output will be. */
static void note(struct pack *p, const struct estimate *estimate, uint64_t needed, uint64_t room)
{
    const struct pack_options *options = p->options;
    const uint64_t bytes = p->result->packed_bytes + estimate->jpeg_bytes;
    char text[OUTPUT_PATH_SIZE + 256], how[96] = "";

    if (!p->result->prepared_count || !options->on_note)
        return;
    if (estimate->jpeg_bytes)
        snprintf(how, sizeof how, ", estimated from %" PRIu64 " of them", estimate->sampled_frames);
    snprintf(text, sizeof text,
             "%s: the frames will have %.1f MB%s; writing the file needs about %.1f MB, and %.1f "
             "MB are free",
             options->output, (double)bytes / 1e6, how, (double)needed / 1e6, (double)room / 1e6);
    options->on_note(options->context, text);
}

enum trajd_status pack_check_room(struct pack *p)
{
    const struct trajd_index *index = p->options->index;
    const struct pack_result *result = p->result;
    const char *output = p->options->output, *slash = strrchr(output, '/');
    struct estimate estimate = {0};
    char folder[OUTPUT_PATH_SIZE];
    struct statvfs found;
    uint64_t replaced, needed, room;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < index->stream_count && !status; s++)
        status = estimate_stream(p, &index->streams[s], &estimate);
    if (status)
        return status;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - output + 1) : 1,
             slash ? output : ".");
    if (statvfs(folder, &found))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", folder, strerror(errno));
    replaced = result->stored_bytes + estimate.heap_bytes;
    needed = result->packed_bytes + estimate.jpeg_bytes + estimate.largest_bytes +
             (result->size_before > replaced ? result->size_before - replaced : 0);
    room = (uint64_t)found.f_bavail * found.f_frsize;
    if (needed <= room || !found.f_blocks) { /* some filesystems do not tell */
        note(p, &estimate, needed, room);
        return TRAJD_OK;
    }
    return trajd_error_set(p->error, TRAJD_ERR_IO, ENOSPC,
                           "%s: the file needs about %.1f MB, and %s has %.1f MB free: make room, "
                           "or name another folder",
                           output, (double)needed / 1e6, folder, (double)room / 1e6);
}
