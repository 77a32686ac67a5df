/* Frames that are read together. Each frame of a video needs the frames before it decoded, back to
 * the beginning of its decode unit, so a worker makes what is wanted of a unit together. On slow
 * storage the number of reads decides, so small images that lie side by side are read in one. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cache/frames_internal.h"
#include "proto/array_len.h"

#define NEIGHBOURS_BYTES (UINT64_C(1) << 20)
#define ENCODED_SHARE 8 /* of the bytes of its pixels, which an encoded image has about */

enum trajd_status frames_reserve(struct frames_worker *worker, uint32_t count,
                                 struct trajd_error *error)
{
    const uint32_t room = count > FRAMES_JOB ? count : FRAMES_JOB;
    void **arrays[] = {(void **)&worker->slots, (void **)&worker->bytes, (void **)&worker->requests,
                       (void **)&worker->errors, (void **)&worker->statuses};
    const size_t sizes[] = {sizeof *worker->slots, sizeof *worker->bytes, sizeof *worker->requests,
                            sizeof *worker->errors, sizeof *worker->statuses};

    if (room <= worker->slot_room)
        return TRAJD_OK;
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++) {
        void *grown = realloc(*arrays[i], room * sizes[i]);
        if (!grown)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM,
                                   "no memory for %u frames of a job", room);
        *arrays[i] = grown;
    }
    memset(worker->bytes + worker->slot_room, 0,
           (room - worker->slot_room) * sizeof *worker->bytes);
    worker->slot_room = room;
    return TRAJD_OK;
}

/* Adds the frame of a row to the job, if it waits for a worker, or if nobody has asked for it and
 * there is room. */
static void join(struct frames_worker *worker, uint32_t row)
{
    struct frame_slot *first = worker->slots[0];
    struct trajd_frame_view *view = first->view;
    struct frame_slot **place, *slot = frames_find(view, first->episode_index, row, &place);
    const bool is_new = !slot && place;

    if (worker->slot_count == worker->slot_room)
        return;
    if (is_new && (slot = frames_take_slot(view, FRAME_NEED_EXTRA))) {
        slot->episode_index = first->episode_index;
        slot->row = row;
        slot->failure = TRAJD_OK;
        slot->is_extra = !view->keeps_units;
        *place = slot;
    } else if (slot && slot->state == FRAME_QUEUED) {
        frames_dequeue(slot);
    } else {
        return;
    }
    slot->state = FRAME_LOADING;
    view->loading_count++;
    worker->slots[worker->slot_count++] = slot;
}

/* Adds the frames of the rows [first, first + count) of the file. The caller holds the lock. */
static void gather(struct frames_worker *worker, uint64_t first, uint64_t count)
{
    const struct frame_slot *slot = worker->slots[0];
    const struct trajd_frame_view *view = slot->view;
    const uint32_t episode = slot->episode_index;
    const uint32_t rows = frames_row_count(view, episode);
    uint32_t row = slot->row;

    while (row && frames_file_row(view, episode, row - 1) >= first)
        row--;
    for (; row < rows && view->users; row++) {
        const uint64_t file_row = frames_file_row(view, episode, row);
        if (file_row >= first + count)
            break;
        if (row != slot->row)
            join(worker, row);
    }
}

static uint64_t count_neighbours(const struct trajd_array *array)
{
    const bool is_plain = array->form == TRAJD_ROWS_PLAIN;
    const uint64_t pixels = is_plain ? 0 : trajd_image_raw_bytes(&array->header),
                   bytes = is_plain ? trajd_array_row_bytes(array)
                           : array->header.encoding == TRAJD_ENCODING_RAW ? pixels
                                                                          : pixels / ENCODED_SHARE,
                   count = NEIGHBOURS_BYTES / (bytes + 1);

    return count < 1 ? 1 : count > FRAMES_JOB ? FRAMES_JOB : count;
}

void frames_add_neighbours(struct frames_worker *worker)
{
    const struct frame_slot *slot = worker->slots[0];
    const uint64_t count = count_neighbours(frames_array(slot)),
                   row = frames_file_row(slot->view, slot->episode_index, slot->row);

    frames_keep_units(slot->view);
    gather(worker, row / count * count, count);
}

/* Reads the packets of the unit as far as the job needs them. `first`: the unit's first row. */
static enum trajd_status read_packets(struct frames_worker *worker, int fd, int media_fd,
                                      uint64_t unit, uint64_t first, const uint32_t *packets,
                                      struct trajd_error *error)
{
    uint32_t last = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < worker->slot_count; i++) {
        const struct frame_slot *slot = worker->slots[i];
        const uint32_t packet =
            packets[frames_file_row(slot->view, slot->episode_index, slot->row) - first];
        worker->requests[i] =
            (struct trajd_decoder_frame){.pixels = slot->pixels, .packet = packet};
        last = packet > last ? packet : last;
    }
    status = trajd_video_read_unit(worker->video, fd, media_fd, frames_array(worker->slots[0]),
                                   unit, last, &worker->unit, error);
    for (uint32_t p = 0; p < worker->unit.packet_count && !status; p++)
        worker->unit_bytes += worker->unit.sizes[p];
    return status;
}

enum trajd_status frames_read_unit(struct frames_worker *worker, int fd, struct trajd_error *error)
{
    const struct frame_slot *slot = worker->slots[0];
    const struct trajd_array *array = frames_array(slot);
    uint32_t packets[TRAJD_UNIT_PACKETS_MAX];
    uint64_t unit, first, count;
    int media_fd = -1;
    enum trajd_status status = trajd_video_rows_of_unit(
        fd, array, frames_file_row(slot->view, slot->episode_index, slot->row), &unit, &first,
        &count, error);

    if (!status && count > TRAJD_UNIT_PACKETS_MAX)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                 "unit %" PRIu64 " has %" PRIu64 " rows, the limit is %u", unit,
                                 count, TRAJD_UNIT_PACKETS_MAX);
    if (!status)
        status = frames_reserve(worker, (uint32_t)count, error);
    if (status)
        return status;
    pthread_mutex_lock(&worker->frames->lock);
    gather(worker, first, count);
    pthread_mutex_unlock(&worker->frames->lock);
    status = trajd_video_locate(fd, array, first, (uint32_t)count, unit, packets, error);
    if (!status && array->video->media)
        status = trajd_index_open_media(worker->frames->index, frames_file(slot), array, &media_fd,
                                        error);
    if (!status)
        status = read_packets(worker, fd, media_fd, unit, first, packets, error);
    if (media_fd >= 0)
        close(media_fd);
    return status;
}
