/* The small copies of a batch from pinned memory to its GPU: arrays of requests, ids, masks and
 * records of images. They are gathered while the batch is prepared, and one launch makes them. */
#ifndef TRAJD_PRODUCER_GPU_SENDS_H
#define TRAJD_PRODUCER_GPU_SENDS_H

#include "kernels/device.h"

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
