/* The list of a batch's small copies to its GPU. */
#include "daemon/producer/gpu_sends.h"

enum trajd_status trajd_gpu_sends_launch(struct trajd_gpu_sends *sends,
                                         struct trajd_device_stream *stream,
                                         struct trajd_error *error)
{
    const uint32_t count = sends->count;

    sends->count = 0;
    return count ? trajd_device_send_async(sends->list, count, stream, error) : TRAJD_OK;
}

enum trajd_status trajd_gpu_sends_add(struct trajd_gpu_sends *sends, void *to, const void *from,
                                      uint64_t size_bytes, struct trajd_device_stream *stream,
                                      struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (sends->count == TRAJD_DEVICE_SENDS_MAX)
        status = trajd_gpu_sends_launch(sends, stream, error);
    sends->list[sends->count++] = (struct trajd_device_send){to, from, size_bytes};
    return status;
}
