/* A GPU as the daemon uses it: what of its memory is for rings and what for rows, and whole streams
 * that are resident there.
 *
 *   cache (host) --pinned staging--> rows, once, when the first feed wants them there
 *     gpu_resident_rows.c, gpu_fill.c
 *   cache (host) --of each window what it touches, pinned--> GPU, for a batch: streams that are
 *     over the budget   gpu_streamed_rows.h
 *   rows + windows --one launch--> slot of a ring that workers have opened
 *     producer_gpu.c, request.h
 *
 * Made before READY; rings and rows are taken and given back by the thread that makes and closes
 * feeds, one at a time. Describing is safe from any thread. */
#ifndef TRAJD_PRODUCER_GPU_H
#define TRAJD_PRODUCER_GPU_H

#include <stdint.h>
#include <stdio.h>

#include "daemon/cache/dataset.h"
#include "kernels/device.h"
#include "kernels/pool.h"

struct trajd_gpu;

struct trajd_gpu_options {
    uint32_t index;                   /* as CUDA counts */
    uint64_t rows_bytes, rings_bytes; /* of its memory at most */
    struct trajd_pool *pool;          /* copies into the staging; must outlive the GPU */
};

/* Opens the GPU and its context. TRAJD_ERR_MEMORY: rows and rings are more than what is free there.
 */
enum trajd_status trajd_gpu_open(const struct trajd_gpu_options *options, struct trajd_gpu **gpu,
                                 struct trajd_error *error);
/* Rings and rows must have been given back. NULL is fine. */
void trajd_gpu_close(struct trajd_gpu **gpu);

struct trajd_device *trajd_gpu_device(const struct trajd_gpu *gpu);
const char *trajd_gpu_id(const struct trajd_gpu *gpu);

/* Bytes for a ring, or for what goes to a launch (stamps, arrays, rows on their way), rounded up so
 * that a handle names them alone. `what` is said in errors: "a ring". TRAJD_ERR_MEMORY: over the
 * budget, with what is left. */
enum trajd_status trajd_gpu_take_ring(struct trajd_gpu *gpu, uint64_t size_bytes, const char *what,
                                      void **memory, struct trajd_error *error);
void trajd_gpu_return_ring(struct trajd_gpu *gpu, void *memory, uint64_t size_bytes);

/* Makes the selection's entries of every kept episode resident, those that are not yet and fit the
 * budget, the small ones first, and holds them: held[k]. rows[episode * dataset_count + k] is on
 * the GPU; NULL where the episode lacks it, or cannot be read: then unreadable[episode] is true.
 * What does not fit stays in host memory, and is shown there. Blocks for reading and copying. */
enum trajd_status trajd_gpu_hold_rows(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                      const struct trajd_selection *selection, const void **rows,
                                      bool *unreadable, bool *held, struct trajd_error *error);
void trajd_gpu_drop_rows(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                         const struct trajd_selection *selection, const bool *held);

/* One JSON object: name, UUID, budgets, and each stream that its feeds read, with bytes and place.
 */
void trajd_gpu_describe(struct trajd_gpu *gpu, FILE *out);

#endif
