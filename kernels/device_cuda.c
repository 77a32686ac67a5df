/* device.h implemented with the CUDA runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/device.h"
#include "kernels/device_driver.h"

struct trajd_device {
    int index;
    struct trajd_device_info info;
};

struct trajd_device_stream {
    int device_index;
    cudaStream_t handle;
};

struct trajd_device_event {
    cudaEvent_t handle;
};

/* Returns TRAJD_OK, or the error of an operation that failed. */
static enum trajd_status check(struct trajd_error *error, cudaError_t code, const char *operation)
{
    enum trajd_status status =
        code == cudaErrorMemoryAllocation ? TRAJD_ERR_MEMORY : TRAJD_ERR_DEVICE;

    if (code == cudaSuccess)
        return TRAJD_OK;
    cudaGetLastError(); /* clears the error, so that a later launch does not find it */
    return trajd_error_set(error, status, (int)code, "%s: %s", operation, cudaGetErrorString(code));
}

uint32_t trajd_device_count(void)
{
    int count = 0;

    return cudaGetDeviceCount(&count) == cudaSuccess ? (uint32_t)count : 0;
}

static void fill_info(const struct cudaDeviceProp *properties, struct trajd_device_info *info)
{
    const unsigned char *u = (const unsigned char *)properties->uuid.bytes;
    int version = 0;

    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, properties->name);
    snprintf(info->uuid, sizeof info->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    cudaDriverGetVersion(&version);
    info->memory_size_bytes = properties->totalGlobalMem;
    info->sm_count = (uint32_t)properties->multiProcessorCount;
    info->compute_capability = (uint32_t)(properties->major * 10 + properties->minor);
    info->l2_size_bytes = (uint64_t)properties->l2CacheSize;
    info->block_shared_bytes = (uint32_t)properties->sharedMemPerBlockOptin;
    info->driver_version = (uint32_t)version;
}

static enum trajd_status refuse_driver(uint32_t index, struct trajd_error *error)
{
    int supported = 0;

    cudaDriverGetVersion(&supported);
    return trajd_driver_refuse(index, supported, CUDART_VERSION, error);
}

enum trajd_status trajd_device_open(uint32_t index, struct trajd_device **device,
                                    struct trajd_error *error)
{
    struct cudaDeviceProp properties;
    struct trajd_device *opened;
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);

    *device = NULL;
    if (code == cudaErrorInsufficientDriver) /* too old, or none */
        return refuse_driver(index, error);
    if (code != cudaSuccess) /* no /dev/nvidia* */
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, (int)code, "GPU %u: %s", index,
                               cudaGetErrorString(code));
    if (index >= (uint32_t)count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "GPU %u: this process can use only %d GPUs", index, count);
    code = cudaSetDevice((int)index); /* creates the context */
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(&properties, (int)index);
    if (code != cudaSuccess)
        return check(error, code, "opening the GPU");
    opened = calloc(1, sizeof *opened);
    if (!opened)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "GPU %u: no memory", index);
    opened->index = (int)index;
    fill_info(&properties, &opened->info);
    *device = opened;
    return TRAJD_OK;
}

const struct trajd_device_info *trajd_device_info(const struct trajd_device *device)
{
    return &device->info;
}

void trajd_device_facts(const struct trajd_device *device, struct trajd_device_facts *facts)
{
    facts->sm_count = device->info.sm_count;
    facts->compute_capability = device->info.compute_capability;
    facts->l2_size_bytes = device->info.l2_size_bytes;
    facts->block_shared_bytes = device->info.block_shared_bytes;
}

enum trajd_status trajd_device_enter(struct trajd_device *device, struct trajd_error *error)
{
    return check(error, cudaSetDevice(device->index), "using the GPU");
}

void trajd_device_close(struct trajd_device **device)
{
    free(*device);
    *device = NULL;
}

enum trajd_status trajd_device_alloc(struct trajd_device *device, uint64_t size_bytes,
                                     void **memory, struct trajd_error *error)
{
    cudaError_t code = cudaSetDevice(device->index);

    *memory = NULL;
    if (code == cudaSuccess)
        code = cudaMalloc(memory, size_bytes);
    return check(error, code, "allocating device memory");
}

void trajd_device_free(struct trajd_device *device, void *memory)
{
    if (cudaSetDevice(device->index) == cudaSuccess)
        cudaFree(memory);
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == TRAJD_DEVICE_HANDLE_SIZE, "a handle travels whole");

enum trajd_status trajd_device_share(struct trajd_device *device, void *memory,
                                     uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE],
                                     struct trajd_error *error)
{
    cudaIpcMemHandle_t made;
    cudaError_t code = cudaSetDevice(device->index);

    if (code == cudaSuccess)
        code = cudaIpcGetMemHandle(&made, memory);
    if (code != cudaSuccess)
        return check(error, code, "sharing device memory (cudaIpcGetMemHandle)");
    memcpy(handle, &made, sizeof made);
    return TRAJD_OK;
}

enum trajd_status trajd_device_free_bytes(struct trajd_device *device, uint64_t *size_bytes,
                                          struct trajd_error *error)
{
    size_t free_bytes = 0, total = 0;
    cudaError_t code = cudaSetDevice(device->index);

    if (code == cudaSuccess)
        code = cudaMemGetInfo(&free_bytes, &total);
    *size_bytes = free_bytes;
    return check(error, code, "reading the free device memory");
}

enum trajd_status trajd_device_host_alloc(struct trajd_device *device, uint64_t size_bytes,
                                          void **memory, struct trajd_error *error)
{
    cudaError_t code = cudaSetDevice(device->index);

    *memory = NULL;
    if (code == cudaSuccess)
        code = cudaHostAlloc(memory, size_bytes, cudaHostAllocDefault);
    return check(error, code, "allocating pinned memory");
}

void trajd_device_host_free(struct trajd_device *device, void *memory)
{
    if (cudaSetDevice(device->index) == cudaSuccess)
        cudaFreeHost(memory);
}

enum trajd_status trajd_device_stream_create(struct trajd_device *device,
                                             struct trajd_device_stream **stream,
                                             struct trajd_error *error)
{
    struct trajd_device_stream *created = calloc(1, sizeof *created);
    cudaError_t code;

    *stream = NULL;
    if (!created)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a GPU stream: no memory");
    created->device_index = device->index;
    code = cudaSetDevice(device->index);
    if (code == cudaSuccess)
        code = cudaStreamCreateWithFlags(&created->handle, cudaStreamNonBlocking);
    if (code != cudaSuccess) {
        free(created);
        return check(error, code, "creating a GPU stream");
    }
    *stream = created;
    return TRAJD_OK;
}

enum trajd_status trajd_device_stream_wait(struct trajd_device_stream *stream,
                                           struct trajd_error *error)
{
    return check(error, cudaStreamSynchronize(stream->handle), "waiting for the GPU");
}

void trajd_device_stream_destroy(struct trajd_device_stream **stream)
{
    if (!*stream)
        return;
    cudaStreamDestroy((*stream)->handle);
    free(*stream);
    *stream = NULL;
}

void *trajd_device_stream_handle(const struct trajd_device_stream *stream)
{
    return stream->handle;
}

enum trajd_status trajd_device_copy_async(void *to, const void *from, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    return check(error, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream->handle),
                 "copying");
}

enum trajd_status trajd_device_send_async(const struct trajd_device_send *sends, uint32_t count,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    cudaError_t code = cudaSetDevice(stream->device_index);

    if (code == cudaSuccess)
        code = (cudaError_t)trajd_device_launch_sends(sends, count, stream->handle);
    return check(error, code, "sending to the device");
}

enum trajd_status trajd_device_fill_async(void *memory, uint8_t byte, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    /* unlike a copy, a fill needs the stream's GPU to be current */
    cudaError_t code = cudaSetDevice(stream->device_index);

    if (code == cudaSuccess)
        code = cudaMemsetAsync(memory, byte, size_bytes, stream->handle);
    return check(error, code, "filling device memory");
}

enum trajd_status trajd_device_event_create(struct trajd_device *device,
                                            struct trajd_device_event **event,
                                            struct trajd_error *error)
{
    struct trajd_device_event *created = calloc(1, sizeof *created);
    cudaError_t code;

    *event = NULL;
    if (!created)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a GPU event: no memory");
    code = cudaSetDevice(device->index);
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&created->handle, cudaEventDisableTiming);
    if (code != cudaSuccess) {
        free(created);
        return check(error, code, "creating a GPU event");
    }
    *event = created;
    return TRAJD_OK;
}

enum trajd_status trajd_device_event_record(struct trajd_device_event *event,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error)
{
    return check(error, cudaEventRecord(event->handle, stream->handle), "recording a GPU event");
}

enum trajd_status trajd_device_event_poll(struct trajd_device_event *event, bool *passed,
                                          struct trajd_error *error)
{
    cudaError_t code = cudaEventQuery(event->handle);

    *passed = code == cudaSuccess;
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* "not ready" is stored like an error, so clear it */
        return TRAJD_OK;
    }
    return check(error, code, "work on the GPU");
}

void trajd_device_event_destroy(struct trajd_device_event **event)
{
    if (*event)
        cudaEventDestroy((*event)->handle);
    free(*event);
    *event = NULL;
}

enum trajd_status trajd_device_stream_follow(struct trajd_device_stream *stream,
                                             struct trajd_device_event *event,
                                             struct trajd_error *error)
{
    return check(error, cudaStreamWaitEvent(stream->handle, event->handle, 0),
                 "waiting for another GPU stream");
}
