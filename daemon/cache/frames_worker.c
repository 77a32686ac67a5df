/* The workers: each takes some queued frames of a view, reads their bytes, and has a helper program
 * decode and prepare them into their slots. */
#include "daemon/cache/frames_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/index/rows/encoded.h"

#define SLOW_READ_NS 2000000 /* of a read; the storage then has a latency */
#define FRAMES_RETRIES 3
#define FRAMES_BACKOFF_NS 10000000 /* four times as much after each failure */

/* ---- the frames of a job ---- */

static uint64_t file_row(const struct frame_slot *slot)
{
    return frames_file_row(slot->view, slot->episode_index, slot->row);
}

static bool is_video(const struct frame_slot *slot)
{
    return frames_array(slot)->form == TRAJD_ROWS_VIDEO;
}

/* ---- reading the bytes of the frames of a job, without the lock ---- */

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

/* Reads frames [i, i + count) of a job, whose rows are plain and lie side by side. */
static enum trajd_status read_plain(struct frames_worker *worker, uint32_t i, uint32_t count,
                                    int fd, struct trajd_error *error)
{
    const struct trajd_array *array = frames_array(worker->slots[i]);
    const uint64_t first = file_row(worker->slots[i]), bytes = trajd_array_row_bytes(array);
    struct frame_bytes all = {0};
    enum trajd_status status = copy_bytes(&all, NULL, count * bytes, error);

    if (!status)
        status = trajd_array_read(worker->rows, fd, array, first, count, all.data, error);
    if (!status && count == 1) {
        worker->bytes[i] = all;
        return TRAJD_OK;
    }
    for (uint32_t k = 0; k < count && !status; k++)
        status = copy_bytes(&worker->bytes[i + k], all.data + k * bytes, bytes, error);
    free(all.data);
    return status;
}

/* The same of encoded rows. */
static enum trajd_status read_encoded(struct frames_worker *worker, uint32_t i, uint32_t count,
                                      int fd, struct trajd_error *error)
{
    const struct frame_slot *slot = worker->slots[i];
    const struct trajd_index *index = worker->frames->index;
    const struct trajd_array *array = frames_array(slot);
    const uint64_t file_size =
        index->files[index->episodes[slot->episode_index].file_index].stat.size_bytes;
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;
    uint64_t done;

    for (uint32_t k = 0; k < count && !status;) {
        status = trajd_encoded_read(worker->encoded, fd, file_size, array, file_row(slot) + k,
                                    count - k, &rows, &done, error);
        for (uint64_t r = 0; r < done && !status; r++, k++) {
            struct frame_bytes *bytes = &worker->bytes[i + k];
            status = copy_bytes(bytes, rows[r].data, rows[r].size, error);
            if (!status)
                bytes->room = trajd_encoded_row_room(array, rows[r].size);
        }
    }
    return status;
}

/* Reads frames [i, i + count) of a job, whose rows lie side by side. */
static enum trajd_status read_once(struct frames_worker *worker, uint32_t i, uint32_t count,
                                   struct trajd_error *error)
{
    const struct frame_slot *slot = worker->slots[i];
    const uint32_t file = frames_file(slot);
    int fd;
    enum trajd_status status = trajd_cache_file_acquire(worker->frames->cache, file, &fd, error);

    worker->read_count++;
    for (uint32_t k = i; k < i + count; k++) {
        free(worker->bytes[k].data);
        worker->bytes[k] = (struct frame_bytes){0};
    }
    if (status)
        return status;
    if (is_video(slot))
        status = frames_read_unit(worker, fd, error);
    else if (frames_array(slot)->form == TRAJD_ROWS_PLAIN)
        status = read_plain(worker, i, count, fd, error);
    else
        status = read_encoded(worker, i, count, fd, error);
    trajd_cache_file_release(worker->frames->cache, file, fd, status == TRAJD_ERR_IO);
    return status;
}

/* Returns whether the recorder wrote zeros in place of a frame, and the layout masks such frames. A
 * prepared frame of zeros was a black image; `trajctl pack` writes an empty row for a masked
 * one, and for a frame of a video that was not recorded. */
static bool is_masked(const struct frames_worker *worker, uint32_t i)
{
    const struct trajd_index_stream *stream =
        &worker->frames->index->streams[worker->slots[i]->view->stream_index];
    const struct frame_bytes *bytes = &worker->bytes[i];

    if (is_video(worker->slots[i]))
        return false;
    if (stream->preparation)
        return !bytes->size;
    return stream->image.masks_zero_frames &&
           (!bytes->size ||
            (!bytes->data[0] && !memcmp(bytes->data, bytes->data + 1, bytes->size - 1)));
}

/* Records how reading frame i went. */
static void end_frame(struct frames_worker *worker, uint32_t i, enum trajd_status status)
{
    const struct frame_slot *slot = worker->slots[i];
    const struct trajd_index *index = worker->frames->index;
    const struct trajd_episode *episode = &index->episodes[slot->episode_index];
    struct trajd_error *error = &worker->errors[i];

    if (!status && is_masked(worker, i))
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "the frame is all zeros");
    if (status)
        trajd_error_prefix(
            error, "%s: %s/%s", index->files[episode->file_index].path, episode->id,
            index->arrays[index->streams[slot->view->stream_index].array_index].path);
    worker->statuses[i] = status;
}

/* Reads the bytes of frame i. Retries I/O errors, as network mounts fail for moments. */
static void read_frame(struct frames_worker *worker, uint32_t i, int retries)
{
    struct trajd_error *error = &worker->errors[i];
    struct timespec pause = {0, FRAMES_BACKOFF_NS};
    enum trajd_status status = read_once(worker, i, 1, error);

    for (int r = 0; r < retries && status == TRAJD_ERR_IO && error->foreign_code; r++) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 4;
        status = read_once(worker, i, 1, error);
    }
    end_frame(worker, i, status);
}

/* Reads the bytes of `count` frames from i on in one call. Returns false where that fails: each is
 * then read on its own, and has its own error. */
static bool read_together(struct frames_worker *worker, uint32_t i, uint32_t count)
{
    if (count < 2 || read_once(worker, i, count, &worker->errors[i]))
        return false;
    for (uint32_t k = i; k < i + count; k++)
        end_frame(worker, k, TRAJD_OK);
    return true;
}

/* Returns how many frames of the job from i on are read together: neighbours lie side by side. */
static uint32_t count_together(const struct frames_worker *worker, uint32_t i)
{
    uint32_t count = 1;

    while (worker->are_neighbours && i + count < worker->slot_count &&
           file_row(worker->slots[i + count]) == file_row(worker->slots[i]) + count)
        count++;
    return count;
}

static bool is_same_file(const struct frames_worker *worker, uint32_t i, uint32_t j)
{
    return frames_file(worker->slots[i]) == frames_file(worker->slots[j]);
}

/* Returns whether frame i and the next one may be in one compressed chunk. */
static bool may_share_chunk(const struct frames_worker *worker, uint32_t i)
{
    const struct trajd_array *array = frames_array(worker->slots[i]);

    return i + 1 < worker->slot_count && is_same_file(worker, i, i + 1) && array->filter_count &&
           array->chunk_shape[0] > 1;
}

static void keep_chunks(struct frames_worker *worker, bool keeps)
{
    trajd_array_reader_keep(worker->rows, keeps);
    trajd_encoded_reader_keep(worker->encoded, keeps);
}

/* Reads the unit of a video, which all frames of the job need. */
static void read_unit(struct frames_worker *worker)
{
    read_frame(worker, 0, FRAMES_RETRIES);
    for (uint32_t i = 1; i < worker->slot_count; i++) {
        worker->statuses[i] = worker->statuses[0];
        worker->errors[i] = worker->errors[0];
    }
}

/* Reads all frames of the job. Inflates a chunk once for all frames of a file. A file that cannot
 * be read costs one pause, not one for each frame. */
static void read_all(struct frames_worker *worker)
{
    bool is_broken = false;
    uint32_t alone_until = 0;

    worker->read_count = 0;
    if (is_video(worker->slots[0])) {
        read_unit(worker);
        return;
    }
    for (uint32_t i = 0; i < worker->slot_count; i++) {
        const uint32_t together = count_together(worker, i);
        if (!i || !is_same_file(worker, i - 1, i)) {
            is_broken = false;
            keep_chunks(worker, may_share_chunk(worker, i));
        }
        if (i >= alone_until && read_together(worker, i, together)) {
            i += together - 1;
            continue;
        }
        alone_until = i >= alone_until ? i + together : alone_until;
        read_frame(worker, i, is_broken ? 0 : FRAMES_RETRIES);
        is_broken = worker->statuses[i] == TRAJD_ERR_IO;
    }
    keep_chunks(worker, false);
}

/* ---- the threads ---- */

/* Returns the count of workers that read from the slot's filesystem. */
static uint32_t *readers_of(const struct frame_slot *slot)
{
    struct trajd_frames *frames = slot->view->frames;

    return &frames->readers[trajd_cache_filesystem(frames->cache, frames_file(slot))];
}

/* ---- taking frames ---- */

static int compare_slots(const void *a, const void *b)
{
    const struct frame_slot *x = *(struct frame_slot *const *)a,
                            *y = *(struct frame_slot *const *)b;

    if (x->episode_index != y->episode_index)
        return x->episode_index < y->episode_index ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Returns whether a job that begins with `first` may have the slot, too: with its view and
 * filesystem. */
static bool may_join(const struct frame_slot *slot, const struct frame_slot *first)
{
    return slot->view == first->view && readers_of(slot) == readers_of(first);
}

/* Returns whether a job may begin with the slot. With several filesystems, half the workers may read
 * from one, so that a mount that hangs does not stop the others. */
static bool may_begin(const struct trajd_frames *frames, const struct frame_slot *slot)
{
    return *readers_of(slot) < frames->readers_most &&
           (!is_video(slot) || frames->unit_count < frames->units_most);
}

/* Takes the first frame of a queue that may be read, and others of its view. The decoders share what
 * is queued, or, where reading takes the time, all workers. */
static bool take(struct frames_worker *worker, struct frame_list *list)
{
    struct trajd_frames *frames = worker->frames;
    const bool is_slow = frames->read_ns > SLOW_READ_NS;
    const uint32_t parts = is_slow ? frames->readers_most : frames->decoder_count;
    const uint32_t share = (list->count + parts - 1) / parts;
    uint32_t most = share < FRAMES_JOB ? share : FRAMES_JOB;
    struct frame_slot *next = list->first;

    worker->slot_count = 0;
    worker->are_neighbours = false;
    while (next && worker->slot_count < most) {
        struct frame_slot *slot = next;
        next = slot->next;
        if (worker->slot_count ? !may_join(slot, worker->slots[0]) : !may_begin(frames, slot))
            continue;
        worker->are_neighbours = is_slow && slot->view->is_ordered && !is_video(slot);
        if (worker->are_neighbours || is_video(slot))
            most = 1; /* the others are found by their place */
        frames_dequeue(slot);
        slot->state = FRAME_LOADING;
        slot->view->loading_count++;
        worker->slots[worker->slot_count++] = slot;
    }
    if (worker->are_neighbours)
        frames_add_neighbours(worker);
    if (worker->slot_count) {
        ++*readers_of(worker->slots[0]);
        frames->unit_count += is_video(worker->slots[0]);
    }
    qsort(worker->slots, worker->slot_count, sizeof *worker->slots, compare_slots);
    return worker->slot_count;
}

/* ---- decoding; without the lock ---- */

/* Takes the reason that the row of a prepared frame may have in place of the frame. */
static void quote_reason(const struct trajd_frame_view *view, struct trajd_decoder_frame *frame)
{
    const bool is_prepared = view->frames->index->streams[view->stream_index].preparation != NULL;
    const size_t room = sizeof frame->reason - 1;

    if (*frame->reason && is_prepared && trajd_image_is_reason(frame->bytes, frame->size))
        snprintf(frame->reason, sizeof frame->reason, "%.*s",
                 (int)(frame->size < room ? frame->size : room), (const char *)frame->bytes);
}

/* Copies frames that are in the file as they are delivered. */
static void copy_frames(struct frames_worker *worker, const struct trajd_frame_view *view,
                        uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        struct trajd_decoder_frame *frame = &worker->requests[k];
        if (frame->size == trajd_image_bytes(&view->preparation))
            memcpy(frame->pixels, frame->bytes, frame->size);
        else
            snprintf(frame->reason, sizeof frame->reason,
                     "%" PRIu64 " bytes, and a frame of %ux%u has %" PRIu64, frame->size,
                     view->preparation.height, view->preparation.width,
                     trajd_image_bytes(&view->preparation));
    }
}

/* Has a helper program decode frames: images, or those of the worker's unit. */
static enum trajd_status run_once(struct frames_worker *worker, const struct trajd_frame_view *view,
                                  uint32_t count, struct trajd_error *error)
{
    struct trajd_decoder_pool *decoders = worker->frames->decoders;
    struct trajd_decoder_options options = view->decoder;
    const struct trajd_decoder_unit unit = {worker->unit.extradata, worker->unit.extradata_size,
                                            worker->unit.bytes, worker->unit.sizes,
                                            worker->unit.packet_count};

    options.preparation = &view->preparation;
    if (!is_video(worker->slots[0]))
        return trajd_decoder_pool_run(decoders, &options, worker->requests, count, error);
    options.video = frames_array(worker->slots[0])->video->format;
    return trajd_decoder_pool_run_unit(decoders, &options, &unit, worker->requests, count, error);
}

/* Decodes frames. Where the helper program does not start, or something kills it, because memory is
 * short for a moment, tries again. */
static enum trajd_status run_decoder(struct frames_worker *worker,
                                     const struct trajd_frame_view *view, uint32_t count,
                                     struct trajd_error *error)
{
    struct timespec pause = {0, FRAMES_BACKOFF_NS};
    enum trajd_status status = run_once(worker, view, count, error);

    for (int r = 0; r < FRAMES_RETRIES && status; r++) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 4;
        status = run_once(worker, view, count, error);
    }
    return status;
}

/* Returns whether an episode has the name of its file, as where each file is one episode. */
static bool is_name_of(const char *file, const char *episode)
{
    const char *slash = strrchr(file, '/');

    return !strcmp(slash ? slash + 1 : file, episode);
}

/* Records how frame i was handled. `failure`: of the helper program, or NULL. */
static void conclude(struct frames_worker *worker, uint32_t i, const char *reason,
                     const struct trajd_error *failure)
{
    const struct frame_slot *slot = worker->slots[i];
    const struct trajd_index *index = worker->frames->index;
    const struct trajd_episode *episode = &index->episodes[slot->episode_index];
    const char *file = index->files[episode->file_index].path;
    const bool has_own_file = is_name_of(file, episode->id);

    if (failure) {
        worker->errors[i] = *failure;
        worker->statuses[i] = TRAJD_ERR_SYSTEM;
    } else if (*reason) {
        worker->statuses[i] = trajd_error_set(
            &worker->errors[i], TRAJD_ERR_DATA, 0, "%s: %s%s%s: row %llu: %s", file,
            has_own_file ? "" : episode->id, has_own_file ? "" : "/",
            index->arrays[index->streams[slot->view->stream_index].array_index].path,
            (unsigned long long)file_row(slot), reason);
    }
}

/* Puts the frames whose packets can be decoded in front of the others. Returns how many they are. */
static uint32_t sort_out(struct frames_worker *worker)
{
    uint32_t count = worker->slot_count;

    for (uint32_t i = 0; i < count;) {
        const struct trajd_decoder_frame request = worker->requests[i];
        struct frame_slot *slot = worker->slots[i];
        if (request.packet < worker->unit.packet_count && worker->unit.sizes[request.packet]) {
            i++;
            continue;
        }
        count--;
        worker->requests[i] = worker->requests[count];
        worker->slots[i] = worker->slots[count];
        worker->requests[count] = request;
        worker->slots[count] = slot;
    }
    return count;
}

/* Makes the frames of a unit whose packets were read. */
static void decode_unit(struct frames_worker *worker)
{
    const uint32_t count = sort_out(worker);
    struct trajd_error error;
    const bool has_failed =
        count && run_decoder(worker, worker->slots[0]->view, count, &error) != TRAJD_OK;

    for (uint32_t i = 0; i < count; i++)
        conclude(worker, i, worker->requests[i].reason, has_failed ? &error : NULL);
    for (uint32_t i = count; i < worker->slot_count; i++) {
        const bool is_absent = worker->requests[i].packet < worker->unit.packet_count;
        conclude(worker, i, is_absent ? "the frame was not recorded" : worker->unit.damage, NULL);
        worker->statuses[i] = is_absent ? TRAJD_ERR_NOT_FOUND : worker->statuses[i];
    }
}

/* Makes the frames whose bytes were read. */
static void decode(struct frames_worker *worker)
{
    const struct trajd_frame_view *view = worker->slots[0]->view;
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;
    uint32_t order[FRAMES_JOB], count = 0;

    for (uint32_t i = 0; i < worker->slot_count; i++)
        if (!worker->statuses[i]) {
            worker->requests[count] =
                (struct trajd_decoder_frame){.bytes = worker->bytes[i].data,
                                             .size = worker->bytes[i].size,
                                             .room = worker->bytes[i].room,
                                             .pixels = worker->slots[i]->pixels};
            order[count++] = i;
        }
    if (view->is_direct)
        copy_frames(worker, view, count);
    else if (count)
        status = run_decoder(worker, view, count, &error);
    for (uint32_t k = 0; k < count; k++) {
        quote_reason(view, &worker->requests[k]);
        conclude(worker, order[k], worker->requests[k].reason, status ? &error : NULL);
    }
}

static void free_bytes(struct frames_worker *worker)
{
    worker->read_bytes = worker->unit_bytes;
    worker->unit_bytes = 0;
    for (uint32_t i = 0; i < worker->slot_count; i++) {
        worker->read_bytes += worker->bytes[i].size;
        free(worker->bytes[i].data);
        worker->bytes[i] = (struct frame_bytes){0};
    }
    trajd_video_reader_trim(worker->video);
}

/* ---- the thread ---- */

/* Lets other workers read from the filesystem. */
static void end_reading(struct frames_worker *worker, int64_t begin_ns)
{
    struct trajd_frames *frames = worker->frames;

    pthread_mutex_lock(&frames->lock);
    frames->read_ns = (trajd_now_ns() - begin_ns) / worker->read_count;
    if ((*readers_of(worker->slots[0]))-- == frames->readers_most)
        pthread_cond_broadcast(&frames->work);
    pthread_mutex_unlock(&frames->lock);
}

/* Records the results. The caller holds the lock. Returns a view that was closed meanwhile, which
 * the caller frees without the lock, or NULL. */
static struct trajd_frame_view *finish(struct frames_worker *worker, int64_t begin_ns)
{
    struct trajd_frames *frames = worker->frames;
    struct trajd_frame_view *view = worker->slots[0]->view;

    if (is_video(worker->slots[0]) && frames->unit_count-- == frames->units_most)
        pthread_cond_broadcast(&frames->work);
    for (uint32_t i = 0; i < worker->slot_count; i++) {
        struct frame_slot *slot = worker->slots[i];
        const enum trajd_status status = worker->statuses[i];
        const bool is_bad = status == TRAJD_ERR_DATA || status == TRAJD_ERR_NOT_FOUND,
                   is_extra = slot->is_extra;
        slot->is_extra = false;
        slot->failure = status;
        slot->state = !status ? FRAME_READY : is_bad ? FRAME_BAD : FRAME_FAILED;
        slot->reason = status ? strdup(worker->errors[i].message) : NULL;
        slot->view->loading_count--;
        frames->stats.decoded_frames +=
            !view->is_direct && !worker->unit.packet_count && (!status || is_bad);
        frames->stats.direct_frames += view->is_direct && (!status || is_bad);
        frames->stats.bad_frames += is_bad;
        if (slot->state == FRAME_FAILED && !slot->pins)
            frames_drop(slot);
        else if (is_extra)
            frames_add_extra(slot);
    }
    frames->stats.decoded_frames += worker->unit.packet_count;
    worker->unit.packet_count = 0;
    frames->stats.read_bytes += worker->read_bytes;
    frames->stats.decode_ns += (uint64_t)(trajd_now_ns() - begin_ns);
    pthread_cond_broadcast(&frames->done);
    return !view->users && !view->loading_count ? view : NULL;
}

static void run(struct frames_worker *worker)
{
    struct trajd_frames *frames = worker->frames;

    pthread_mutex_lock(&frames->lock);
    while (!frames->stopping) {
        struct trajd_frame_view *unused;
        int64_t begin_ns;
        if (!take(worker, &frames->queues[FRAME_QUEUE_DEMAND]) &&
            !take(worker, &frames->queues[FRAME_QUEUE_AHEAD])) {
            pthread_cond_wait(&frames->work, &frames->lock);
            continue;
        }
        pthread_mutex_unlock(&frames->lock);
        begin_ns = trajd_now_ns();
        trajd_heartbeat_reads(trajd_cache_mount(frames->cache, frames_file(worker->slots[0])));
        read_all(worker);
        trajd_heartbeat_reads(NULL);
        end_reading(worker, begin_ns);
        if (!is_video(worker->slots[0]))
            decode(worker);
        else if (!worker->statuses[0])
            decode_unit(worker);
        free_bytes(worker);
        pthread_mutex_lock(&frames->lock);
        unused = finish(worker, begin_ns);
        if (unused) {
            pthread_mutex_unlock(&frames->lock);
            frames_free_view(unused);
            pthread_mutex_lock(&frames->lock);
        }
    }
    pthread_mutex_unlock(&frames->lock);
}

static void destroy_worker(struct frames_worker *worker)
{
    trajd_array_reader_destroy(&worker->rows);
    trajd_encoded_reader_destroy(&worker->encoded);
    trajd_video_reader_destroy(&worker->video);
    free(worker->slots);
    free(worker->bytes);
    free(worker->requests);
    free(worker->errors);
    free(worker->statuses);
    free(worker);
}

static void *run_worker(void *context)
{
    struct frames_worker *worker = context;

    trajd_heartbeat_begin(worker->heartbeat);
    run(worker);
    destroy_worker(context);
    return NULL;
}

static enum trajd_status start_worker(struct trajd_frames *frames, struct trajd_error *error)
{
    struct frames_worker *worker = calloc(1, sizeof *worker);
    enum trajd_status status;
    int code;

    if (!worker)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for decoding");
    worker->frames = frames;
    worker->heartbeat = &frames->heartbeats[frames->worker_count];
    status = trajd_array_reader_create(&worker->rows, error);
    if (!status)
        status = trajd_encoded_reader_create(&worker->encoded, error);
    if (!status)
        status = trajd_video_reader_create(&worker->video, error);
    if (!status)
        status = frames_reserve(worker, FRAMES_JOB, error);
    code = status ? 0
                  : trajd_thread_start(&frames->workers[frames->worker_count], "trajd-decode",
                                       run_worker, worker);
    if (code)
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "thread for decoding: %s",
                                 strerror(code));
    if (status)
        destroy_worker(worker);
    else
        frames->worker_count++;
    return status;
}

enum trajd_status frames_start_workers(struct trajd_frames *frames, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    while (frames->worker_count < frames->worker_room && !status)
        status = start_worker(frames, error);
    return status;
}
