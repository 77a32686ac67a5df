/* device.h in a build without CUDA. No GPU is ever found, so the functions that take a device are
 * never reached. */
#include "kernels/device.h"

static enum trajd_status refuse(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "GPU: built without CUDA");
}

uint32_t trajd_device_count(void)
{
    return 0;
}

enum trajd_status trajd_device_open(uint32_t index, struct trajd_device **device,
                                    struct trajd_error *error)
{
    (void)index;
    *device = NULL;
    return refuse(error);
}

const struct trajd_device_info *trajd_device_info(const struct trajd_device *device)
{
    (void)device;
    return NULL;
}

void trajd_device_facts(const struct trajd_device *device, struct trajd_device_facts *facts)
{
    (void)device;
    facts->sm_count = 0;
}

enum trajd_status trajd_device_enter(struct trajd_device *device, struct trajd_error *error)
{
    (void)device;
    return refuse(error);
}

enum trajd_status trajd_device_share(struct trajd_device *device, void *memory,
                                     uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE],
                                     struct trajd_error *error)
{
    (void)device;
    (void)memory;
    (void)handle;
    return refuse(error);
}

enum trajd_status trajd_device_free_bytes(struct trajd_device *device, uint64_t *size_bytes,
                                          struct trajd_error *error)
{
    (void)device;
    *size_bytes = 0;
    return refuse(error);
}

enum trajd_status trajd_device_event_create(struct trajd_device *device,
                                            struct trajd_device_event **event,
                                            struct trajd_error *error)
{
    (void)device;
    *event = NULL;
    return refuse(error);
}

enum trajd_status trajd_device_event_record(struct trajd_device_event *event,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error)
{
    (void)event;
    (void)stream;
    return refuse(error);
}

enum trajd_status trajd_device_event_poll(struct trajd_device_event *event, bool *passed,
                                          struct trajd_error *error)
{
    (void)event;
    *passed = false;
    return refuse(error);
}

void trajd_device_event_destroy(struct trajd_device_event **event)
{
    *event = NULL;
}

void trajd_device_close(struct trajd_device **device)
{
    *device = NULL;
}

enum trajd_status trajd_device_alloc(struct trajd_device *device, uint64_t size_bytes,
                                     void **memory, struct trajd_error *error)
{
    (void)device;
    (void)size_bytes;
    *memory = NULL;
    return refuse(error);
}

void trajd_device_free(struct trajd_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

enum trajd_status trajd_device_host_alloc(struct trajd_device *device, uint64_t size_bytes,
                                          void **memory, struct trajd_error *error)
{
    return trajd_device_alloc(device, size_bytes, memory, error);
}

void trajd_device_host_free(struct trajd_device *device, void *memory)
{
    trajd_device_free(device, memory);
}

enum trajd_status trajd_device_stream_create(struct trajd_device *device,
                                             struct trajd_device_stream **stream,
                                             struct trajd_error *error)
{
    (void)device;
    *stream = NULL;
    return refuse(error);
}

enum trajd_status trajd_device_stream_wait(struct trajd_device_stream *stream,
                                           struct trajd_error *error)
{
    (void)stream;
    return refuse(error);
}

void trajd_device_stream_destroy(struct trajd_device_stream **stream)
{
    *stream = NULL;
}

void *trajd_device_stream_handle(const struct trajd_device_stream *stream)
{
    (void)stream;
    return NULL;
}

enum trajd_status trajd_device_copy_async(void *to, const void *from, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    (void)to;
    (void)from;
    (void)size_bytes;
    (void)stream;
    return refuse(error);
}

enum trajd_status trajd_device_send_async(const struct trajd_device_send *sends, uint32_t count,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    (void)sends;
    (void)count;
    (void)stream;
    return refuse(error);
}

enum trajd_status trajd_device_fill_async(void *memory, uint8_t byte, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    (void)byte;
    return trajd_device_copy_async(memory, memory, size_bytes, stream, error);
}

enum trajd_status trajd_device_stream_follow(struct trajd_device_stream *stream,
                                             struct trajd_device_event *event,
                                             struct trajd_error *error)
{
    (void)stream;
    (void)event;
    return refuse(error);
}
