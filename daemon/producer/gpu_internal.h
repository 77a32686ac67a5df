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

struct trajd_gpu {
    struct trajd_gpu_options options;
    struct trajd_device *device;
    pthread_mutex_t mutex; /* guards all members below, which trajd_gpu_describe reads */
    uint64_t rows_used_bytes, rings_used_bytes;
    double fill_seconds; /* time of copying rows to the GPU, without the time of reading them */
    uint64_t filled_bytes;
    struct trajd_gpu_array *arrays;
};

/* Copies the rows of all kept episodes to arrays[k], one for each array of the selection, which has
 * as_float32. Where an episode's rows cannot be read, its offset becomes TRAJD_GPU_NO_ROWS. Blocks
 * while rows are read and copied. */
enum trajd_status trajd_gpu_fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                 const struct trajd_selection *selection,
                                 struct trajd_gpu_array *const *arrays, struct trajd_error *error);

#endif
