/* The workers: each takes some queued frames of a view, reads their bytes, and has a helper program
 * decode and prepare them into their slots. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/cache/frames_worker.h"

/* Returns the count of workers that read from the slot's filesystem. */
static uint32_t *readers_of(const struct frame_slot *slot)
{
    struct trajd_frames *frames = slot->view->frames;

    return &frames->readers[trajd_cache_filesystem(frames->cache, frames_file_of(slot))];
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

/* Takes the first frame of a queue that may be read, and others of its view. All workers share what
 * is queued. With several filesystems, half the workers may read from one, so that a mount that
 * hangs does not stop the others. */
static bool take(struct frames_worker *worker, struct frame_list *list)
{
    struct trajd_frames *frames = worker->frames;
    const uint32_t share = (list->count + frames->worker_count - 1) / frames->worker_count;
    const uint32_t most = share < FRAMES_JOB ? share : FRAMES_JOB;
    struct frame_slot *next = list->first;

    worker->slot_count = 0;
    while (next && worker->slot_count < most) {
        struct frame_slot *slot = next;
        next = slot->next;
        if (worker->slot_count ? !may_join(slot, worker->slots[0])
                               : *readers_of(slot) >= frames->readers_most)
            continue;
        frames_dequeue(slot);
        slot->state = FRAME_LOADING;
        slot->view->loading_count++;
        worker->slots[worker->slot_count++] = slot;
    }
    if (worker->slot_count)
        ++*readers_of(worker->slots[0]);
    qsort(worker->slots, worker->slot_count, sizeof *worker->slots, compare_slots);
    return worker->slot_count;
}

/* ---- decoding; without the lock ---- */

/* Writes why a row is no frame. */
static void explain_length(const struct trajd_frame_view *view, struct trajd_decoder_frame *frame)
{
    const bool is_prepared = view->frames->index->streams[view->stream_index].preparation != NULL;
    const size_t room = sizeof frame->reason - 1;

    if (is_prepared && trajd_picture_is_reason(frame->bytes, frame->size))
        snprintf(frame->reason, sizeof frame->reason, "%.*s",
                 (int)(frame->size < room ? frame->size : room), (const char *)frame->bytes);
    else
        snprintf(frame->reason, sizeof frame->reason,
                 "%" PRIu64 " bytes, and a frame of %ux%u has %" PRIu64, frame->size,
                 view->preparation.height, view->preparation.width,
                 trajd_image_bytes(&view->preparation));
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
            explain_length(view, frame);
    }
}

/* Lets a helper program decode frames. Where it does not start, or something kills it, because
 * memory is short for a moment, tries again. */
static enum trajd_status run_decoder(struct frames_worker *worker,
                                     const struct trajd_frame_view *view, uint32_t count,
                                     struct trajd_error *error)
{
    struct trajd_decoder_pool *decoders = worker->frames->decoders;
    struct trajd_decoder_options options = view->decoder;
    struct timespec pause = {0, FRAMES_BACKOFF_NS};
    enum trajd_status status;

    options.preparation = &view->preparation;
    status = trajd_decoder_pool_run(decoders, &options, worker->requests, count, error);
    for (int r = 0; r < FRAMES_RETRIES && status; r++) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 4;
        status = trajd_decoder_pool_run(decoders, &options, worker->requests, count, error);
    }
    return status;
}

/* Returns whether an episode has the name of its file, as where each file is one episode. */
static bool is_name_of(const char *file, const char *episode)
{
    const char *slash = strrchr(file, '/');

    return !strcmp(slash ? slash + 1 : file, episode);
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
                (struct trajd_decoder_frame){worker->bytes[i].data, worker->bytes[i].size,
                                             worker->bytes[i].room, worker->slots[i]->pixels, ""};
            order[count++] = i;
        }
    if (view->is_direct)
        copy_frames(worker, view, count);
    else if (count)
        status = run_decoder(worker, view, count, &error);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = order[k];
        if (status) {
            worker->errors[i] = error;
            worker->statuses[i] = TRAJD_ERR_SYSTEM;
        } else if (*worker->requests[k].reason) {
            const struct frame_slot *slot = worker->slots[i];
            const struct trajd_index *index = worker->frames->index;
            const struct trajd_episode *episode = &index->episodes[slot->episode_index];
            const char *file = index->files[episode->file_index].path;
            const bool has_own_file = is_name_of(file, episode->id);
            worker->statuses[i] = trajd_error_set(
                &worker->errors[i], TRAJD_ERR_DATA, 0, "%s: %s%s%s: row %llu: %s", file,
                has_own_file ? "" : episode->id, has_own_file ? "" : "/",
                index->arrays[index->streams[slot->view->stream_index].array_index].path,
                (unsigned long long)frames_file_row(slot), worker->requests[k].reason);
        }
    }
}

static void free_bytes(struct frames_worker *worker)
{
    worker->read_bytes = 0;
    for (uint32_t i = 0; i < worker->slot_count; i++) {
        worker->read_bytes += worker->bytes[i].size;
        free(worker->bytes[i].data);
        worker->bytes[i] = (struct frame_bytes){0};
    }
}

/* ---- the thread ---- */

/* Lets other workers read from the filesystem. */
static void end_reading(struct frames_worker *worker)
{
    struct trajd_frames *frames = worker->frames;

    pthread_mutex_lock(&frames->lock);
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

    for (uint32_t i = 0; i < worker->slot_count; i++) {
        struct frame_slot *slot = worker->slots[i];
        const enum trajd_status status = worker->statuses[i];
        const bool is_bad = status == TRAJD_ERR_DATA || status == TRAJD_ERR_NOT_FOUND;
        slot->failure = status;
        slot->state = !status ? FRAME_READY : is_bad ? FRAME_BAD : FRAME_FAILED;
        slot->reason = status ? strdup(worker->errors[i].message) : NULL;
        slot->view->loading_count--;
        frames->stats.decoded_frames += !view->is_direct && (!status || is_bad);
        frames->stats.direct_frames += view->is_direct && (!status || is_bad);
        frames->stats.bad_frames += is_bad;
        if (slot->state == FRAME_FAILED && !slot->pins)
            frames_drop(slot);
    }
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
        frames_read(worker);
        end_reading(worker);
        decode(worker);
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
    free(worker);
}

static void *run_worker(void *context)
{
    run(context);
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
    status = trajd_array_reader_create(&worker->rows, error);
    if (!status)
        status = trajd_encoded_reader_create(&worker->encoded, error);
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
