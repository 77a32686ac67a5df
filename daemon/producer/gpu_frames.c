/* The table of the frames that are in a GPU's memory, and their slots. */
#include "daemon/producer/gpu_frames.h"

#include <stdlib.h>

#include "daemon/producer/gpu_internal.h"

#define FRAME_ALIGNMENT 256

static uint64_t row_count(const struct trajd_gpu_frames *frames, uint32_t episode_index)
{
    const struct trajd_index *index = frames->dataset->index;
    const struct trajd_episode *episode = &index->episodes[episode_index];

    return episode->quarantine
               ? 0
               : trajd_array_row_count(
                     &episode->extents[index->streams[frames->stream_index].array_index]);
}

static enum trajd_status take_memory(struct trajd_gpu_frames *frames, struct trajd_error *error)
{
    struct trajd_gpu *gpu = frames->gpu;
    const uint64_t remaining = gpu->options.rows_bytes - gpu->rows_used_bytes,
                   fitting = remaining / frames->stride;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t e = 0; e < frames->dataset->index->episode_count; e++)
        frames->total += row_count(frames, e);
    frames->room = frames->total < fitting ? frames->total : fitting;
    frames->room = frames->room < UINT32_MAX ? frames->room : UINT32_MAX - 1;
    if (frames->room)
        status = trajd_device_alloc(gpu->device, frames->room * frames->stride,
                                    (void **)&frames->memory, error);
    if (status)
        trajd_error_prefix(error, "images of dataset %s", frames->dataset->name);
    return status;
}

static void destroy(struct trajd_gpu_frames *frames)
{
    for (uint32_t e = 0; frames->slots && e < frames->dataset->index->episode_count; e++)
        free(frames->slots[e]);
    if (frames->memory)
        trajd_device_free(frames->gpu->device, frames->memory);
    free(frames->slots);
    free(frames->spares);
    pthread_mutex_destroy(&frames->adding);
    pthread_mutex_destroy(&frames->mutex);
    free(frames);
}

static enum trajd_status create(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                                uint32_t stream_index, const struct trajd_frame_view *view,
                                uint64_t frame_bytes, struct trajd_gpu_frames **out,
                                struct trajd_error *error)
{
    struct trajd_gpu_frames *frames = calloc(1, sizeof *frames);
    enum trajd_status status;

    if (frames)
        frames->slots = calloc(dataset->index->episode_count, sizeof *frames->slots);
    if (!frames || !frames->slots) {
        free(frames);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the images of dataset %s",
                               dataset->name);
    }
    frames->gpu = gpu;
    frames->dataset = dataset;
    frames->stream_index = stream_index;
    frames->view = view;
    frames->stride = (frame_bytes + FRAME_ALIGNMENT - 1) / FRAME_ALIGNMENT * FRAME_ALIGNMENT;
    pthread_mutex_init(&frames->adding, NULL);
    pthread_mutex_init(&frames->mutex, NULL);
    status = take_memory(frames, error);
    if (status)
        destroy(frames);
    else
        *out = frames;
    return status;
}

enum trajd_status trajd_gpu_frames_open(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                                        uint32_t stream_index, const struct trajd_frame_view *view,
                                        uint64_t frame_bytes, struct trajd_gpu_frames **out,
                                        struct trajd_error *error)
{
    enum trajd_status status;

    for (*out = gpu->frames; *out; *out = (*out)->next)
        if ((*out)->view == view) {
            (*out)->holders++;
            return TRAJD_OK;
        }
    status = create(gpu, dataset, stream_index, view, frame_bytes, out, error);
    if (status)
        return status;
    (*out)->holders = 1;
    pthread_mutex_lock(&gpu->mutex);
    (*out)->next = gpu->frames;
    gpu->frames = *out;
    gpu->rows_used_bytes += (*out)->room * (*out)->stride;
    pthread_mutex_unlock(&gpu->mutex);
    return TRAJD_OK;
}

void trajd_gpu_frames_close(struct trajd_gpu_frames **out)
{
    struct trajd_gpu_frames *frames = *out, **link;

    *out = NULL;
    if (!frames || --frames->holders)
        return;
    pthread_mutex_lock(&frames->gpu->mutex);
    for (link = &frames->gpu->frames; *link != frames;)
        link = &(*link)->next;
    *link = frames->next;
    frames->gpu->rows_used_bytes -= frames->room * frames->stride;
    pthread_mutex_unlock(&frames->gpu->mutex);
    destroy(frames);
}

bool trajd_gpu_frames_fit(const struct trajd_gpu_frames *frames)
{
    return frames->room == frames->total;
}

uint64_t trajd_gpu_frames_stride(const struct trajd_gpu_frames *frames)
{
    return frames->stride;
}

/* ---- frames ---- */

/* Returns where the table has the slot of a frame, counted from 1. NULL: no memory, or no such
 * row. */
static uint32_t *find_place(const struct trajd_gpu_frames *frames, uint32_t episode_index,
                            uint32_t row)
{
    const uint64_t rows = row_count(frames, episode_index);

    if (row >= rows)
        return NULL;
    if (!frames->slots[episode_index])
        frames->slots[episode_index] = calloc(rows, sizeof **frames->slots);
    return frames->slots[episode_index] ? &frames->slots[episode_index][row] : NULL;
}

static const void *address_of(const struct trajd_gpu_frames *frames, const uint32_t *place)
{
    return place && *place ? frames->memory + (*place - 1) * frames->stride : NULL;
}

const void *trajd_gpu_frames_find(struct trajd_gpu_frames *frames, uint32_t episode_index,
                                  uint32_t row)
{
    const void *found;

    pthread_mutex_lock(&frames->mutex);
    found = address_of(frames, find_place(frames, episode_index, row));
    pthread_mutex_unlock(&frames->mutex);
    return found;
}

void trajd_gpu_frames_begin_adding(struct trajd_gpu_frames *frames)
{
    pthread_mutex_lock(&frames->adding);
}

void trajd_gpu_frames_end_adding(struct trajd_gpu_frames *frames)
{
    pthread_mutex_unlock(&frames->adding);
}

void *trajd_gpu_frames_take(struct trajd_gpu_frames *frames)
{
    uint8_t *taken = NULL;

    pthread_mutex_lock(&frames->mutex);
    if (frames->spare_count)
        taken = frames->spares[--frames->spare_count];
    else if (frames->used < frames->room)
        taken = frames->memory + frames->used++ * frames->stride;
    pthread_mutex_unlock(&frames->mutex);
    return taken;
}

/* Without memory for the list, the slot is lost until the frames are closed. */
static void keep_spare(struct trajd_gpu_frames *frames, uint8_t *memory)
{
    uint8_t **spares = realloc(frames->spares, (frames->spare_count + 1) * sizeof *frames->spares);

    if (!spares)
        return;
    frames->spares = spares;
    spares[frames->spare_count++] = memory;
}

void trajd_gpu_frames_give_back(struct trajd_gpu_frames *frames, void *memory)
{
    pthread_mutex_lock(&frames->mutex);
    keep_spare(frames, memory);
    pthread_mutex_unlock(&frames->mutex);
}

bool trajd_gpu_frames_add(struct trajd_gpu_frames *frames, uint32_t episode_index, uint32_t row,
                          void *memory)
{
    uint32_t *place;

    pthread_mutex_lock(&frames->mutex);
    place = find_place(frames, episode_index, row);
    if (place)
        *place = (uint32_t)(((uint8_t *)memory - frames->memory) / frames->stride) + 1;
    else
        keep_spare(frames, memory);
    frames->resident += place != NULL;
    pthread_mutex_unlock(&frames->mutex);
    return place != NULL;
}

uint32_t trajd_gpu_frames_select_absent(struct trajd_gpu_frames *frames,
                                        struct trajd_frame_use *uses, uint32_t count)
{
    uint32_t absent = 0;

    for (uint32_t u = 0; u < count; u++)
        if (!trajd_gpu_frames_find(frames, uses[u].episode_index, uses[u].row))
            uses[absent++] = uses[u];
    return absent;
}
