/* How large the output will be, before it is written; and the spool, which has the JPEGs of a dataset
 * until their length is known. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clients/cli/pack/pack_internal.h"

enum { SAMPLES = 8, SPOOL_BYTES = 1 << 20 }; /* SAMPLES: datasets of a stream */

/* ---- the size ---- */

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
            status = pack_take_sample(p, &p->datasets[i], &sample);
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

/* Writes the folder of a path. */
static void find_folder(const char *path, char folder[OUTPUT_PATH_SIZE])
{
    const char *slash = strrchr(path, '/');

    snprintf(folder, OUTPUT_PATH_SIZE, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
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
    struct estimate estimate = {0};
    char folder[OUTPUT_PATH_SIZE];
    struct statvfs found;
    uint64_t replaced, needed, room;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < index->stream_count && !status; s++)
        status = estimate_stream(p, &index->streams[s], &estimate);
    if (status)
        return status;
    find_folder(p->options->output, folder);
    if (statvfs(folder, &found))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", folder, strerror(errno));
    replaced = result->stored_bytes + estimate.heap_bytes;
    needed = result->packed_bytes + estimate.jpeg_bytes + estimate.largest_bytes +
             (result->size_before > replaced ? result->size_before - replaced : 0);
    room = (uint64_t)found.f_bavail * found.f_frsize;
    if (needed <= room) {
        note(p, &estimate, needed, room);
        return TRAJD_OK;
    }
    return trajd_error_set(p->error, TRAJD_ERR_IO, ENOSPC,
                           "%s: the file needs about %.1f MB, and %s has %.1f MB free: make room, "
                           "or name another folder",
                           p->options->output, (double)needed / 1e6, folder, (double)room / 1e6);
}

/* ---- the spool ---- */

static enum trajd_status spool_failed(struct pack *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_IO, errno,
                           "%s: a temporary file beside it, for the JPEGs of a dataset: %s",
                           p->options->output, strerror(errno));
}

enum trajd_status pack_spool(struct pack *p, uint64_t offset, const void *data, uint64_t size)
{
    char name[OUTPUT_PATH_SIZE + 8];

    if (p->spool < 0) {
        snprintf(name, sizeof name, "%s.XXXXXX", p->output.partial);
        p->spool = mkostemp(name, O_CLOEXEC);
        if (p->spool < 0 || unlink(name))
            return spool_failed(p);
    }
    while (size) {
        const ssize_t done = pwrite(p->spool, data, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return spool_failed(p);
        data = (const uint8_t *)data + done;
        offset += (uint64_t)done;
        size -= (uint64_t)done;
    }
    return TRAJD_OK;
}

enum trajd_status pack_write_spooled(struct pack *p, const struct pack_dataset *dataset)
{
    const uint64_t bytes = (uint64_t)dataset->offsets[dataset->array.shape[0]];
    enum trajd_status status = TRAJD_OK;

    p->result->packed_bytes += bytes;
    pack_reserve(p, SPOOL_BYTES);
    for (uint64_t at = 0; at < bytes && !status;) {
        const uint64_t rest = bytes - at;
        const ssize_t size =
            pread(p->spool, p->block, rest < SPOOL_BYTES ? rest : SPOOL_BYTES, (off_t)at);
        if (size <= 0)
            return spool_failed(p);
        status = pack_put(p, PACK_BYTES, at, p->block, (uint64_t)size);
        at += (uint64_t)size;
    }
    return status || !bytes || !ftruncate(p->spool, 0) ? status : spool_failed(p);
}
