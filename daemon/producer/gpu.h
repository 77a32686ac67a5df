/* A GPU as the daemon uses it: a budget of its memory for rings, another one for rows, and the
 * arrays whose rows are resident there.
 *
 *   cache (host) --pinned buffers--> resident rows: once, when the first feed needs them
 *     gpu_resident_rows.c, gpu_fill.c
 *   cache (host) --pinned buffers--> rows of one batch: of arrays that exceed the budget, only the
 *     rows that its windows touch   gpu_streamed_rows.h
 *   rows + windows --one launch--> slot of a ring that workers have opened
 *     producer_gpu.h, gpu_request.h
 *
 * A GPU is opened before READY. Rings and rows are taken and returned by the thread that makes and
 * closes feeds. trajd_gpu_describe is thread-safe. */
#ifndef TRAJD_PRODUCER_GPU_H
#define TRAJD_PRODUCER_GPU_H

#include <stdint.h>

#include "daemon/base/json.h"
#include "daemon/cache/dataset.h"
#include "kernels/device.h"
#include "kernels/pool.h"

struct trajd_gpu;

struct trajd_gpu_options {
    uint32_t index;                   /* as CUDA counts */
    uint64_t rows_bytes, rings_bytes; /* budgets of its memory */
    struct trajd_pool *pool;          /* copies rows into pinned buffers; must outlive the GPU */
};

/* Opens the GPU and its context. TRAJD_ERR_MEMORY: the two budgets exceed the free memory. The
 * caller closes. */
enum trajd_status trajd_gpu_open(const struct trajd_gpu_options *options, struct trajd_gpu **gpu,
                                 struct trajd_error *error);
/* All rings and rows must have been returned. NULL is fine. */
void trajd_gpu_close(struct trajd_gpu **gpu);

struct trajd_device *trajd_gpu_device(const struct trajd_gpu *gpu);
/* Returns the UUID. */
const char *trajd_gpu_id(const struct trajd_gpu *gpu);

/* Allocates from the budget of rings: a ring, or memory for launches (stamps, arrays of a request,
 * streamed rows). The size is rounded up to whole allocations of the driver, so that a handle which
 * workers open covers nothing else. `what` names the memory in errors: "a ring". TRAJD_ERR_MEMORY:
 * over the budget; *error says how much remains. */
enum trajd_status trajd_gpu_take_ring(struct trajd_gpu *gpu, uint64_t size_bytes, const char *what,
                                      void **memory, struct trajd_error *error);
/* Frees what take_ring gave, with the same size. NULL is fine. */
void trajd_gpu_return_ring(struct trajd_gpu *gpu, void *memory, uint64_t size_bytes);

/* Counts memory that kernels have allocated towards the budget of rings. TRAJD_ERR_MEMORY: it
 * exceeds it. discharge takes it off again. */
enum trajd_status trajd_gpu_charge_ring(struct trajd_gpu *gpu, uint64_t size_bytes,
                                        const char *what, struct trajd_error *error);
void trajd_gpu_discharge_ring(struct trajd_gpu *gpu, uint64_t size_bytes);

/* Makes the selection's arrays of every kept episode resident, smallest first, as far as the budget
 * allows, and holds them. held[k] says whether array k is resident; the others stay in host memory
 * and are only listed.
 *
 * rows[episode * selection->array_count + k] is the address on the GPU; NULL: the episode lacks the
 * array, or its rows cannot be read (then unreadable[episode] is true). Blocks while rows are read
 * and copied. */
enum trajd_status trajd_gpu_hold_rows(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                      const struct trajd_selection *selection, const void **rows,
                                      bool *unreadable, bool *held, struct trajd_error *error);
/* Releases what hold_rows held. Frees the rows that no other feed holds. */
void trajd_gpu_drop_rows(struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                         const struct trajd_selection *selection, const bool *held);

/* Writes one JSON object: name, UUID, budgets, and each array that feeds read, with its bytes and
 * its place (gpu or host). */
void trajd_gpu_describe(struct trajd_gpu *gpu, struct trajd_json *json);

#endif
