/* The outputs with a transform of one dataset of a GPU feed.
 *
 *   create   memory for the rows of these outputs, which the batch is lent, and for scales and offsets
 *   gather   producer's thread: the jobs of the windows that were bound last
 *   launch   launching thread, behind the request of these windows
 *
 * All batches of a feed share the rows: launches on a stream run in order, and those of a request
 * and its jobs follow each other (producer_gpu_internal.h: launching). */
#ifndef TRAJD_PRODUCER_GPU_TRANSFORMS_H
#define TRAJD_PRODUCER_GPU_TRANSFORMS_H

#include "daemon/producer/gpu.h"
#include "daemon/window/window_batch.h"

struct trajd_gpu_transforms;

/* Copies scales and offsets to the GPU, as they are now. *transforms is NULL if no output has rows
 * of its own. A frame holds the jobs of one gathered request. The caller destroys. Blocks for the
 * copy. TRAJD_ERR_MEMORY: over the GPU's budgets. */
enum trajd_status
trajd_gpu_transforms_create(struct trajd_gpu *gpu, struct trajd_device_stream *stream,
                            struct trajd_window_batch *batch, uint32_t frame_count,
                            struct trajd_gpu_transforms **transforms, struct trajd_error *error);
/* The stream has finished all work, and the batch is not bound any more. NULL is fine. */
void trajd_gpu_transforms_destroy(struct trajd_gpu_transforms **transforms);

/* Makes the jobs of the windows that the batch bound last, from `first` on, with outputs in `slot`.
 * `request` is the gathered one of these windows. NULL is fine, here and in launch. */
void trajd_gpu_transforms_gather(struct trajd_gpu_transforms *transforms, uint32_t frame,
                                 uint32_t first, const struct trajd_resample_request *request,
                                 uint8_t *slot);
/* Launches the jobs of a frame. Does not block. */
enum trajd_status trajd_gpu_transforms_launch(const struct trajd_gpu_transforms *transforms,
                                              uint32_t frame,
                                              const struct trajd_resample_request *request,
                                              struct trajd_device_stream *stream,
                                              struct trajd_error *error);

#endif
