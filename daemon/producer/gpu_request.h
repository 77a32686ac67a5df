/* A window plan's resampling request with its arrays in GPU memory. What is the same for every
 * batch (stamps, offsets, scales) is copied once. What differs (which rows, around which anchors,
 * of which episodes) is gathered into one block, which is copied to the GPU in one piece before the
 * launch. The outputs with a transform have memory for their rows, which the batch is lent, and a job
 * each. All batches of a feed share these rows: launches on a stream run in order, and those of a
 * request and its jobs follow each other (producer_gpu.h: launching). */
#ifndef TRAJD_PRODUCER_GPU_REQUEST_H
#define TRAJD_PRODUCER_GPU_REQUEST_H

#include "daemon/base/arena.h"
#include "daemon/window/window_batch.h"
#include "daemon/producer/gpu.h"

struct trajd_gpu_request;

/* Copies the plan's stamps, offsets and scales to the GPU, as they are now. TRAJD_ERR_MEMORY: over the
 * GPU's budgets. A frame holds the
 * arrays of one gathered request, so frame_count requests can wait for their launch at the same
 * time. The batch must outlive the request. The caller destroys, also after an
 * error. Blocks for the copy. */
enum trajd_status trajd_gpu_request_create(struct trajd_gpu *gpu,
                                           struct trajd_device_stream *stream,
                                           struct trajd_binding *batch, uint32_t frame_count,
                                           struct trajd_arena *arena,
                                           struct trajd_gpu_request **request,
                                           struct trajd_error *error);
/* Returns the memory on the GPU. The request itself belongs to the arena. NULL is fine. */
void trajd_gpu_request_destroy(struct trajd_gpu_request *request);

/* Returns the largest size of a block for window_count windows. */
uint64_t trajd_gpu_request_block_bytes(const struct trajd_gpu_request *request,
                                       uint32_t window_count);

/* Returns the batch's request as it was bound last; its outputs, masks and bases must be addresses
 * on the GPU. Writes its arrays to `block`, which the caller copies to `device_block` on the GPU,
 * and the number of bytes to *used. Makes the jobs of outputs with a transform, of the windows from
 * `first` on. The result is valid until the next call for that frame. */
const struct trajd_resample_request *trajd_gpu_request_gather(struct trajd_gpu_request *request,
                                                              uint32_t frame, uint32_t first,
                                                              uint8_t *block, uint8_t *device_block,
                                                              uint64_t *used);
/* Launches the transforms of a frame's request, behind the request itself. Does not block. */
enum trajd_status trajd_gpu_request_transform(const struct trajd_gpu_request *request,
                                              uint32_t frame, struct trajd_device_stream *stream,
                                              struct trajd_error *error);

/* ---- sends ---- */

/* The small copies of a batch from pinned memory to its GPU: arrays of requests, ids, masks and
 * records of images. They are gathered while the batch is prepared, and one launch makes them. */
struct trajd_gpu_sends {
    struct trajd_device_send list[TRAJD_DEVICE_SENDS_MAX];
    uint32_t count;
};

/* Adds a copy. Where the list is full, launches it first. */
enum trajd_status trajd_gpu_sends_add(struct trajd_gpu_sends *sends, void *to, const void *from,
                                      uint64_t size_bytes, struct trajd_device_stream *stream,
                                      struct trajd_error *error);
/* Launches the copies that were added. */
enum trajd_status trajd_gpu_sends_launch(struct trajd_gpu_sends *sends,
                                         struct trajd_device_stream *stream,
                                         struct trajd_error *error);

#endif
