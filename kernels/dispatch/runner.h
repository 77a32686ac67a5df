/* Runs blocks (block.h), one at a time: on the CPU, over the threads of a pool, or on a GPU, to and
 * fro through memory that is pinned for it. */
#ifndef TRAJD_KERNELS_DISPATCH_RUNNER_H
#define TRAJD_KERNELS_DISPATCH_RUNNER_H

#include "kernels/block.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_pool;
struct trajd_runner;

/* `device` NULL: the CPU, over the threads of `pool` (NULL: the calling thread alone), which gives
 * the same bytes for any number of them; with a device there is no pool. Both must outlive the
 * runner. One thread at a time may use it, any. TRAJD_ERR_UNSUPPORTED: no kernel is built for that
 * GPU. */
enum trajd_status trajd_runner_create(struct trajd_device *device, struct trajd_pool *pool,
                                      struct trajd_runner **runner, struct trajd_error *error);
/* Clears the caller's pointer. NULL is fine. */
void trajd_runner_destroy(struct trajd_runner **runner);

/* Room for a block of so many bytes, to be written or read into; it stays until the next call that
 * asks for more. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_runner_room(struct trajd_runner *runner, uint64_t size_bytes, void **room,
                                    struct trajd_error *error);
/* Opens the block in the room, runs it and waits: its answer stands there then, at *answer_at. What
 * open says of it; TRAJD_ERR_MEMORY, TRAJD_ERR_DEVICE of the GPU, after which the runner is of no
 * use. */
enum trajd_status trajd_runner_run(struct trajd_runner *runner, uint64_t size_bytes,
                                   uint64_t *answer_at, uint64_t *answer_bytes,
                                   struct trajd_error *error);
/* Gives the room back, and the GPU's memory. */
void trajd_runner_trim(struct trajd_runner *runner);

#ifdef __cplusplus
}
#endif
#endif
