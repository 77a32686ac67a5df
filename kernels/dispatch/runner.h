/* Runs blocks (block.h) one at a time, on the CPU with the threads of a pool, or on a GPU through
 * pinned memory. */
#ifndef TRAJD_KERNELS_DISPATCH_RUNNER_H
#define TRAJD_KERNELS_DISPATCH_RUNNER_H

#include "kernels/block.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_pool;
struct trajd_runner;

/* Creates a runner. `device` NULL: it runs on the CPU, on the threads of `pool` (NULL: only on the
 * calling thread); the result has the same bytes for any number of threads. With a device, `pool`
 * is not used. Both must outlive the runner. Any thread may use the runner, but only one at a time.
 * TRAJD_ERR_UNSUPPORTED: no kernel is built for that GPU. */
enum trajd_status trajd_runner_create(struct trajd_device *device, struct trajd_pool *pool,
                                      struct trajd_runner **runner, struct trajd_error *error);
/* Frees the runner and clears the caller's pointer. NULL is fine. */
void trajd_runner_destroy(struct trajd_runner **runner);

/* Returns memory for a block of size_bytes, to write or read the block into. It stays valid until
 * the next call that needs more, or until trajd_runner_trim. TRAJD_ERR_MEMORY if there is not
 * enough. */
enum trajd_status trajd_runner_room(struct trajd_runner *runner, uint64_t size_bytes, void **room,
                                    struct trajd_error *error);
/* Opens the block in the room, runs it and waits. The answer then stands in the room at *answer_at.
 * Returns the errors of trajd_block_open, and TRAJD_ERR_MEMORY or TRAJD_ERR_DEVICE of the GPU,
 * after which the runner cannot be used any more. */
enum trajd_status trajd_runner_run(struct trajd_runner *runner, uint64_t size_bytes,
                                   uint64_t *answer_at, uint64_t *answer_bytes,
                                   struct trajd_error *error);
/* Frees the room and the GPU memory. */
void trajd_runner_trim(struct trajd_runner *runner);

#ifdef __cplusplus
}
#endif
#endif
