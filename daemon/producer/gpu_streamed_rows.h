/* Streams of a window plan whose rows stay in host memory, as the GPU has no room for them: of each
 * window the rows that its targets can touch are gathered into one block, and the batch's request
 * is made to see them as all that there is. What comes out is what resident rows give, bit for bit.
 *
 *   bind -> narrow: which rows, how many bytes -> gather: into the block, bases at where it will
 *     lie on the GPU -> the request is gathered */
#ifndef TRAJD_PRODUCER_GPU_STREAMED_ROWS_H
#define TRAJD_PRODUCER_GPU_STREAMED_ROWS_H

#include "daemon/window/window_batch.h"
#include "kernels/pool.h"

struct trajd_gpu_streamed_rows;

/* Of the entries of the plan's selection that are not `held`. The batch must outlive it. *streamed
 * rows NULL: there are none. */
enum trajd_status trajd_gpu_streamed_create(struct trajd_window_batch *batch, const bool *held,
                                            struct trajd_gpu_streamed_rows **streamed,
                                            struct trajd_error *error);
void trajd_gpu_streamed_destroy(struct trajd_gpu_streamed_rows **streamed);

/* Those entries, as the cache is asked for them. */
const struct trajd_selection *
trajd_gpu_streamed_selection(const struct trajd_gpu_streamed_rows *streamed);
/* No window's rows are more bytes than this. */
uint64_t trajd_gpu_streamed_largest(const struct trajd_gpu_streamed_rows *streamed);

/* Of the windows [first, first + count), right after they were bound: their brackets are narrowed
 * to the rows that they touch, and the bases of resident rows follow. The bytes of the block. */
uint64_t trajd_gpu_streamed_narrow(struct trajd_gpu_streamed_rows *streamed, uint32_t first,
                                   uint32_t count);

/* Copies what was narrowed to `block`, which will lie at device_block on the GPU, and sets the
 * bases. host_rows: the entries of the selection in host memory, as trajd_cache_pin gives them;
 * NULL result: they cannot be read, and are masked MISSING. pool: NULL for this thread alone. */
void trajd_gpu_streamed_gather(struct trajd_gpu_streamed_rows *streamed, uint32_t first,
                               uint32_t count, trajd_episode_rows host_rows, void *context,
                               uint8_t *block, uint8_t *device_block, struct trajd_pool *pool);

#endif
