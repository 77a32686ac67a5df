/* Reads the bytes of the frames of a job, without the lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cache/frames_worker.h"

uint32_t frames_file_of(const struct frame_slot *slot)
{
    return slot->view->frames->index->episodes[slot->episode_index].file_index;
}

static const struct trajd_array *array_of(const struct frame_slot *slot)
{
    const struct trajd_index *index = slot->view->frames->index;

    return &index->episodes[slot->episode_index]
                .extents[index->streams[slot->view->stream_index].array_index];
}

uint64_t frames_file_row(const struct frame_slot *slot)
{
    const struct trajd_index *index = slot->view->frames->index;
    const struct trajd_episode_clock *clock =
        &index->episodes[slot->episode_index]
             .clocks[index->streams[slot->view->stream_index].clock_index];

    return clock->kept_rows && slot->row < clock->row_count ? clock->kept_rows[slot->row]
                                                            : slot->row;
}

static enum trajd_status copy_bytes(struct frame_bytes *bytes, const void *data, uint64_t size,
                                    struct trajd_error *error)
{
    bytes->data = malloc(size + 1);
    if (!bytes->data)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory for a frame");
    if (data)
        memcpy(bytes->data, data, size);
    bytes->size = bytes->room = size;
    return TRAJD_OK;
}

static enum trajd_status read_with(struct frames_worker *worker, uint32_t i, int fd,
                                   struct trajd_error *error)
{
    const struct frame_slot *slot = worker->slots[i];
    const struct trajd_index *index = worker->frames->index;
    const struct trajd_array *array = array_of(slot);
    const uint64_t file_size =
        index->files[index->episodes[slot->episode_index].file_index].stat.size_bytes;
    const struct trajd_row_bytes *row;
    enum trajd_status status;
    uint64_t done;

    if (index->streams[slot->view->stream_index].form == TRAJD_ROWS_PLAIN) {
        status = copy_bytes(&worker->bytes[i], NULL, trajd_array_row_bytes(array), error);
        return status ? status
                      : trajd_array_read(worker->rows, fd, array, frames_file_row(slot), 1,
                                         worker->bytes[i].data, error);
    }
    status = trajd_encoded_read(worker->encoded, fd, file_size, array, frames_file_row(slot), 1,
                                &row, &done, error);
    if (!status)
        status = copy_bytes(&worker->bytes[i], row->data, row->size, error);
    if (!status)
        worker->bytes[i].room = trajd_encoded_row_room(array, row->size);
    return status;
}

static enum trajd_status read_once(struct frames_worker *worker, uint32_t i,
                                   struct trajd_error *error)
{
    const uint32_t file = frames_file_of(worker->slots[i]);
    int fd;
    enum trajd_status status = trajd_cache_file_acquire(worker->frames->cache, file, &fd, error);

    free(worker->bytes[i].data);
    worker->bytes[i] = (struct frame_bytes){0};
    if (status)
        return status;
    status = read_with(worker, i, fd, error);
    trajd_cache_file_release(worker->frames->cache, file, fd, status == TRAJD_ERR_IO);
    return status;
}

/* Returns whether the recorder wrote zeros in place of a frame, and the layout masks such frames. A
 * prepared frame of zeros was a black picture; `trajctl pack` writes an empty row for a masked
 * one. */
static bool is_masked(const struct frames_worker *worker, uint32_t i)
{
    const struct trajd_index_stream *stream =
        &worker->frames->index->streams[worker->slots[i]->view->stream_index];
    const struct frame_bytes *bytes = &worker->bytes[i];

    return stream->image.masks_zero_frames &&
           (!bytes->size || (!stream->preparation && !bytes->data[0] &&
                             !memcmp(bytes->data, bytes->data + 1, bytes->size - 1)));
}

/* Reads the bytes of frame i. Retries I/O errors, as network mounts fail for moments. */
static void read_frame(struct frames_worker *worker, uint32_t i, int retries)
{
    const struct frame_slot *slot = worker->slots[i];
    const struct trajd_index *index = worker->frames->index;
    const struct trajd_episode *episode = &index->episodes[slot->episode_index];
    struct trajd_error *error = &worker->errors[i];
    struct timespec pause = {0, FRAMES_BACKOFF_NS};
    enum trajd_status status = read_once(worker, i, error);

    for (int r = 0; r < retries && status == TRAJD_ERR_IO && error->foreign_code; r++) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 4;
        status = read_once(worker, i, error);
    }
    if (!status && is_masked(worker, i))
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "the frame is all zeros");
    if (status)
        trajd_error_prefix(
            error, "%s: %s/%s", index->files[episode->file_index].path, episode->id,
            index->arrays[index->streams[slot->view->stream_index].array_index].path);
    worker->statuses[i] = status;
}

static bool is_same_file(const struct frames_worker *worker, uint32_t i, uint32_t j)
{
    return frames_file_of(worker->slots[i]) == frames_file_of(worker->slots[j]);
}

/* Returns whether frame i and the next one may lie in one compressed chunk. */
static bool may_share_chunk(const struct frames_worker *worker, uint32_t i)
{
    const struct trajd_array *array = array_of(worker->slots[i]);

    return i + 1 < worker->slot_count && is_same_file(worker, i, i + 1) && array->filter_count &&
           array->chunk_shape[0] > 1;
}

static void keep_chunks(struct frames_worker *worker, bool keeps)
{
    trajd_array_reader_keep(worker->rows, keeps);
    trajd_encoded_reader_keep(worker->encoded, keeps);
}

void frames_read(struct frames_worker *worker)
{
    bool is_broken = false;

    for (uint32_t i = 0; i < worker->slot_count; i++) {
        if (!i || !is_same_file(worker, i - 1, i)) {
            is_broken = false;
            keep_chunks(worker, may_share_chunk(worker, i));
        }
        read_frame(worker, i, is_broken ? 0 : FRAMES_RETRIES);
        is_broken = worker->statuses[i] == TRAJD_ERR_IO;
    }
    keep_chunks(worker, false);
}
