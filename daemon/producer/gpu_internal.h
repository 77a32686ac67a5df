/* Shared by gpu.c (opening, rings, description), gpu_resident_rows.c (which arrays are resident)
 * and gpu_fill.c (copying their rows). */
#ifndef TRAJD_PRODUCER_GPU_INTERNAL_H
#define TRAJD_PRODUCER_GPU_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "daemon/producer/gpu.h"

/* One array of an index in one element type: the rows of all kept episodes, one after the other. */
struct trajd_gpu_array {
    struct trajd_gpu_array *next;
    const struct trajd_dataset *dataset;
    uint32_t array_index;
    bool as_float32;
    uint32_t holders; /* feeds that use it */
    void *memory;     /* NULL: the rows stay in host memory */
    bool is_streamed; /* the rows stay in host memory and are copied batch by batch */
    uint64_t size_bytes;
    /* [episodes]: where an episode's rows begin; TRAJD_GPU_NO_ROWS: it has none, or they cannot be
     * read */
    uint64_t *offsets;
};

#define TRAJD_GPU_NO_ROWS UINT64_MAX

/* Prepared frames of one view (gpu_frames.h). */
struct trajd_gpu_frames {
    struct trajd_gpu_frames *next;
    struct trajd_gpu *gpu;
    const struct trajd_dataset *dataset;
    uint32_t stream_index;
    const struct trajd_frame_view *view;
    uint32_t holders;     /* feeds that use it */
    uint64_t stride;      /* bytes from one frame to the next */
    uint64_t total, room; /* frames of the stream; frames that `memory` has room for */
    uint8_t *memory;
    pthread_mutex_t adding;  /* held by the feed that brings frames */
    pthread_mutex_t mutex;   /* guards the members below */
    uint64_t used, resident; /* slots that were taken; frames that are there */
    uint32_t spare_count;    /* slots that were given back */
    uint8_t **spares;
    uint32_t **slots; /* [episodes] of [rows]: the frame's slot, from 1; NULL: none is there */
};

struct trajd_gpu {
    struct trajd_gpu_options options;
    struct trajd_device *device;
    pthread_mutex_t mutex; /* guards all members below, which trajd_gpu_describe reads */
    uint64_t rows_used_bytes, rings_used_bytes;
    double fill_seconds; /* time of copying rows to the GPU, without the time of reading them */
    uint64_t filled_bytes;
    struct trajd_gpu_array *arrays;
    struct trajd_gpu_frames *frames;
};

/* Copies the rows of all kept episodes to arrays[k], one for each array of the selection, which has
 * as_float32. Where an episode's rows cannot be read, its offset becomes TRAJD_GPU_NO_ROWS. Blocks
 * while rows are read and copied. */
enum trajd_status trajd_gpu_fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                 const struct trajd_selection *selection,
                                 struct trajd_gpu_array *const *arrays, struct trajd_error *error);

#endif
