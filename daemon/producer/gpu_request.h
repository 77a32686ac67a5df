/* The request of a window plan as a GPU is asked it: what does not change from batch to batch lies
 * there already, the rest (which rows, around which anchors, of which episodes) is gathered into
 * one block that goes there in one copy before the launch. */
#ifndef TRAJD_PRODUCER_GPU_REQUEST_H
#define TRAJD_PRODUCER_GPU_REQUEST_H

#include "daemon/window/window_batch.h"
#include "daemon/producer/gpu.h"

struct trajd_gpu_request;

/* Copies stamps, offsets, scales of the plan there, as they are now; as many launches as it has
 * frames can wait at a time. The batch must outlive it. Blocks. */
enum trajd_status trajd_gpu_request_create(struct trajd_gpu *gpu,
                                           struct trajd_device_stream *stream,
                                           const struct trajd_window_batch *batch,
                                           uint32_t frame_count, struct trajd_gpu_request **request,
                                           struct trajd_error *error);
void trajd_gpu_request_destroy(struct trajd_gpu_request **request);

/* Bytes of a block for window_count windows, at most. */
uint64_t trajd_gpu_request_block_bytes(const struct trajd_gpu_request *request,
                                       uint32_t window_count);

/* The batch's request as it was bound last, outputs, masks and bases being the GPU's: its arrays
 * are written to `block`, which will lie at `device_block` on the GPU; *used is how many bytes of
 * it. The result lives until the next call for that frame. */
const struct trajd_resample_request *trajd_gpu_request_gather(struct trajd_gpu_request *request,
                                                              uint32_t frame, uint8_t *block,
                                                              uint8_t *device_block,
                                                              uint64_t *used);

#endif
