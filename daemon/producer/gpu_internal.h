/* Between gpu.c (life, rings, what is shown), gpu_resident_rows.c (arrays) and gpu_fill.c (their
 * rows). */
#ifndef TRAJD_PRODUCER_GPU_INTERNAL_H
#define TRAJD_PRODUCER_GPU_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "daemon/producer/gpu.h"

/* One dataset of an index in one form: its rows of all kept episodes, end to end. */
struct trajd_gpu_array {
    struct trajd_gpu_array *next;
    const struct trajd_dataset *dataset;
    uint32_t array_index;
    bool as_float32;
    uint32_t holders;
    void *memory; /* NULL: its rows stay in host memory */
    bool is_streamed;
    uint64_t size_bytes;
    /* [episodes]: where an episode's rows begin; TRAJD_GPU_NO_ROWS: it has none, or they cannot be
     * read */
    uint64_t *offsets;
};

#define TRAJD_GPU_NO_ROWS UINT64_MAX

struct trajd_gpu {
    struct trajd_gpu_options options;
    struct trajd_device *device;
    pthread_mutex_t mutex; /* of what is shown: the rest */
    uint64_t rows_used_bytes, rings_used_bytes;
    double fill_seconds; /* spent in copies of rows to the GPU, reading them not counted */
    uint64_t filled_bytes;
    struct trajd_gpu_array *arrays;
};

/* Copies the rows of all kept episodes to arrays[k], one for each of the selection, whose form
 * is told by as_float32. Where an episode's cannot be read, its offset becomes TRAJD_GPU_NO_ROWS.
 * Blocks for reading and copying. */
enum trajd_status trajd_gpu_fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                 const struct trajd_selection *selection,
                                 struct trajd_gpu_array *const *arrays, struct trajd_error *error);

#endif
