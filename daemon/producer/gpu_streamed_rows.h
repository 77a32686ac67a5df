/* Rows of arrays that stay in host memory because the GPU has no room for them. For each window,
 * the rows that its targets can touch are gathered into one block, which is copied to the GPU with
 * the batch. The batch's request is changed to see only these rows. The result equals that of
 * resident rows bit for bit.
 *
 *   trajd_bind_windows
 *     -> narrow: which rows each window touches, and how many bytes they are
 *     -> gather: copies the rows to the block and sets the bases to their addresses on the GPU
 *     -> trajd_gpu_request_gather */
#ifndef TRAJD_PRODUCER_GPU_STREAMED_ROWS_H
#define TRAJD_PRODUCER_GPU_STREAMED_ROWS_H

#include "daemon/base/arena.h"
#include "daemon/window/window_batch.h"
#include "kernels/pool.h"

struct trajd_gpu_streamed_rows;

/* Prepares streaming of the arrays of the plan's selection that are not `held`. *streamed_rows is
 * NULL where all are held. The batch must outlive it. It belongs to the
 * arena. */
enum trajd_status trajd_gpu_streamed_rows_create(struct trajd_binding *batch, const bool *held,
                                                 struct trajd_arena *arena,
                                                 struct trajd_gpu_streamed_rows **streamed_rows,
                                                 struct trajd_error *error);

/* Returns the streamed arrays as a selection for the cache. Borrowed. */
const struct trajd_selection *
trajd_gpu_streamed_rows_selection(const struct trajd_gpu_streamed_rows *streamed_rows);
/* Returns the largest number of bytes that the rows of one window can take. */
uint64_t trajd_gpu_streamed_rows_largest(const struct trajd_gpu_streamed_rows *streamed_rows);

/* Narrows the brackets of the windows [first, first + count), which were just bound, to the rows
 * that they touch, and moves the bases of resident rows accordingly. Returns the bytes of the
 * block. */
uint64_t trajd_gpu_streamed_rows_narrow(struct trajd_gpu_streamed_rows *streamed_rows,
                                        uint32_t first, uint32_t count);

/* Copies the rows of the narrowed windows to `block`, which the caller copies to `device_block` on
 * the GPU, and sets the bases. host_rows returns an episode's arrays of the selection in host
 * memory, as trajd_cache_pin gives them; NULL: they cannot be read and are masked MISSING. `pool`
 * shares the copies; NULL: the calling thread copies alone. */
void trajd_gpu_streamed_rows_gather(struct trajd_gpu_streamed_rows *streamed_rows, uint32_t first,
                                    uint32_t count, trajd_episode_rows host_rows, void *context,
                                    uint8_t *block, uint8_t *device_block, struct trajd_pool *pool);

#endif
