/* libcuda.so.1 for a machine without a GPU: the functions that libtrajd uses, on the memory of
 * device_host.c, and streams that the test can hold back.
 *
 * $FAKE_CUDA selects faults and GPUs:
 *   init       cuInit fails
 *   open       memory cannot be opened
 *   short      memory is shorter than its handle says
 *   unranged   the length of memory cannot be queried
 *   two        there are two GPUs
 *   turned     they are numbered in reverse order
 *   other      only GPU 1 is visible */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpu_driver.h"
#include "proto/array_len.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the prototypes are in NVIDIA's header */
#define EXPORT __attribute__((visibility("default")))
#define MAX_MAPPINGS 64

enum {
    SUCCESS = 0,
    ERROR_INVALID_VALUE = 1,
    ERROR_NO_DEVICE = 100,
    ERROR_INVALID_CONTEXT = 201,
    ERROR_INVALID_HANDLE = 400,
    ERROR_NOT_FOUND = 500,
    ERROR_NOT_READY = 600,
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    ERROR_CAPTURED_EVENT = 907,
    ERROR_UNKNOWN = 999,
    CAPTURE_RELAXED = 2
};
#define PAUSE_NS 1000000

/* A test names its own streams by numbers above 2. Others are the two default streams. A stream is
 * a queue that holds only events. */
struct fake_stream {
    uint64_t issued, passed;
    bool held, captured, rejects_events;
};

struct fake_event {
    uint32_t gpu;
    struct fake_stream *stream;
    uint64_t place;
    bool captured;
};

struct handle {
    char bytes[64];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects all data below */
static struct fake_stream streams[64];
static struct {
    void *memory;
    size_t size_bytes;
    uint32_t gpu;
} mappings[MAX_MAPPINGS];
static int events_alive;
static int queries;
static bool captures;               /* a thread captures a graph */
static int invalidated;             /* captures that a call has invalidated */
static int contexts[FAKE_GPUS_MAX]; /* only their addresses matter */
static __thread int depth;          /* number of current contexts */
static __thread uint32_t stack[8];  /* the GPUs of these contexts */
static __thread int capture_mode;

static bool goes_wrong(const char *what)
{
    const char *list = getenv("FAKE_CUDA");
    return list && strstr(list, what) != NULL;
}

static bool is_of(uint32_t gpu)
{
    return depth > 0 && stack[depth - 1] == gpu;
}

static uint32_t gpu_of(int device)
{
    return goes_wrong("other")    ? 1
           : goes_wrong("turned") ? (uint32_t)(1 - device)
                                  : (uint32_t)device;
}

/* ---- for tests ---- */

EXPORT void fake_cuda_hold(uintptr_t stream)
{
    pthread_mutex_lock(&mutex);
    streams[stream].held = true;
    pthread_mutex_unlock(&mutex);
}

EXPORT void fake_cuda_let_go(uintptr_t stream)
{
    pthread_mutex_lock(&mutex);
    streams[stream].held = false;
    streams[stream].passed = streams[stream].issued;
    pthread_mutex_unlock(&mutex);
}

EXPORT void fake_cuda_capture(int begins)
{
    pthread_mutex_lock(&mutex);
    captures = begins != 0;
    pthread_mutex_unlock(&mutex);
}

/* Starts or ends capturing the stream's work into a graph. */
EXPORT void fake_cuda_capture_stream(uintptr_t stream, int begins)
{
    pthread_mutex_lock(&mutex);
    streams[stream].captured = begins != 0;
    pthread_mutex_unlock(&mutex);
}

/* Makes the stream reject events, like a stream that has been destroyed. */
EXPORT void fake_cuda_reject_events(uintptr_t stream, int begins)
{
    pthread_mutex_lock(&mutex);
    streams[stream].rejects_events = begins != 0;
    pthread_mutex_unlock(&mutex);
}

EXPORT int fake_cuda_invalidated(void)
{
    pthread_mutex_lock(&mutex);
    int count = invalidated;
    pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT int fake_cuda_events(void)
{
    pthread_mutex_lock(&mutex);
    int count = events_alive;
    pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT int fake_cuda_queries(void)
{
    pthread_mutex_lock(&mutex);
    int count = queries;
    pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT int fake_cuda_mappings(void)
{
    int count = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_MAPPINGS; i++)
        count += mappings[i].memory != NULL;
    pthread_mutex_unlock(&mutex);
    return count;
}

/* ---- the driver ---- */

EXPORT int cuInit(unsigned flags)
{
    (void)flags;
    return goes_wrong("init") ? ERROR_NO_DEVICE : SUCCESS;
}

EXPORT int cuGetErrorName(int code, const char **name)
{
    *name = code == ERROR_NO_DEVICE         ? "CUDA_ERROR_NO_DEVICE"
            : code == ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
            : code == ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                            : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count)
{
    *count = goes_wrong("two") ? 2 : 1;
    return SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < 2 ? SUCCESS : ERROR_INVALID_VALUE;
}

EXPORT int cuDeviceGetUuid_v2(void *uuid, int device)
{
    unsigned char bytes[16] = FAKE_GPU_UUID_BYTES;
    bytes[15] = (unsigned char)(bytes[15] - gpu_of(device));
    memcpy(uuid, bytes, sizeof bytes);
    return SUCCESS;
}

/* The device is a MIG instance: its UUID differs from that of the GPU that it is part of. */
EXPORT int cuDeviceGetUuid(void *uuid, int device)
{
    (void)device;
    memset(uuid, 0xee, 16);
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &contexts[gpu_of(device)];
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return SUCCESS;
}

EXPORT int cuCtxPushCurrent_v2(void *context)
{
    const ptrdiff_t gpu = (int *)context - contexts;
    if (gpu < 0 || gpu >= FAKE_GPUS_MAX || depth == ARRAY_LEN(stack))
        return ERROR_INVALID_CONTEXT;
    stack[depth++] = (uint32_t)gpu;
    return SUCCESS;
}

EXPORT int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0)
        return ERROR_INVALID_CONTEXT;
    *context = &contexts[stack[--depth]];
    return SUCCESS;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

EXPORT int cuIpcOpenMemHandle_v2(uint64_t *pointer, struct handle handle, unsigned flags)
{
    struct fake_gpu_handle named;
    char path[64];
    (void)flags;
    memcpy(&named, &handle, sizeof named);
    if (depth == 0)
        return ERROR_INVALID_CONTEXT;
    if (goes_wrong("open") || named.magic != FAKE_GPU_MAGIC || !is_of(named.gpu))
        return ERROR_INVALID_VALUE;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)named.pid, named.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return ERROR_UNKNOWN;
    void *memory = mmap(NULL, named.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return ERROR_UNKNOWN;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_MAPPINGS; i++)
        if (!mappings[i].memory) {
            mappings[i].memory = memory;
            mappings[i].size_bytes = named.size_bytes;
            mappings[i].gpu = named.gpu;
            break;
        }
    pthread_mutex_unlock(&mutex);
    *pointer = (uintptr_t)memory;
    return SUCCESS;
}

EXPORT int cuIpcCloseMemHandle(uint64_t pointer)
{
    int code = ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_MAPPINGS; i++)
        if (mappings[i].memory == (void *)(uintptr_t)pointer && is_of(mappings[i].gpu)) {
            munmap(mappings[i].memory, mappings[i].size_bytes);
            mappings[i].memory = NULL;
            code = SUCCESS;
        }
    pthread_mutex_unlock(&mutex);
    return depth > 0 ? code : ERROR_INVALID_CONTEXT;
}

/* Finds the mapping that contains all of the range. */
static bool find(uint64_t pointer, size_t size_bytes, uint64_t *base, size_t *length)
{
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_MAPPINGS && !found; i++) {
        *base = (uintptr_t)mappings[i].memory;
        *length = mappings[i].size_bytes;
        found = *base != 0 && is_of(mappings[i].gpu) && pointer >= *base &&
                pointer - *base < *length && size_bytes <= *length - (pointer - *base);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size_bytes, uint64_t pointer)
{
    if (depth == 0)
        return ERROR_INVALID_CONTEXT;
    if (goes_wrong("unranged") || !find(pointer, 0, base, size_bytes))
        return ERROR_NOT_FOUND;
    if (goes_wrong("short"))
        *size_bytes = 4096;
    return SUCCESS;
}

EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size_bytes)
{
    uint64_t base;
    size_t length;
    if (depth == 0)
        return ERROR_INVALID_CONTEXT;
    if (!find(from, size_bytes, &base, &length))
        return ERROR_INVALID_VALUE;
    memcpy(to, (const void *)(uintptr_t)from, size_bytes);
    return SUCCESS;
}

EXPORT int cuStreamIsCapturing(void *stream, int *state)
{
    const uintptr_t number = (uintptr_t)stream;
    if (depth == 0 || number >= ARRAY_LEN(streams))
        return ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&mutex);
    *state = streams[number].captured;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

EXPORT int cuCtxSynchronize(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    bool busy = depth > 0;
    while (busy) {
        pthread_mutex_lock(&mutex);
        bool captured = false;
        busy = false;
        for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
            busy = busy || streams[i].held;
            captured = captured || streams[i].captured;
        }
        invalidated += captured;
        pthread_mutex_unlock(&mutex);
        if (captured)
            return ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (busy)
            nanosleep(&pause, NULL);
    }
    return depth > 0 ? SUCCESS : ERROR_INVALID_CONTEXT;
}

EXPORT int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    struct fake_event *made = depth > 0 ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return ERROR_INVALID_CONTEXT;
    made->gpu = stack[depth - 1];
    pthread_mutex_lock(&mutex);
    events_alive++;
    pthread_mutex_unlock(&mutex);
    *event = made;
    return SUCCESS;
}

EXPORT int cuEventRecord(void *event, void *stream)
{
    struct fake_event *recorded = event;
    const uintptr_t number = (uintptr_t)stream;
    if (!is_of(recorded->gpu) || number >= ARRAY_LEN(streams))
        return ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&mutex);
    if (streams[number].rejects_events) {
        pthread_mutex_unlock(&mutex);
        return ERROR_INVALID_HANDLE;
    }
    recorded->stream = &streams[number];
    recorded->captured = streams[number].captured;
    recorded->place = ++recorded->stream->issued;
    if (!recorded->stream->held)
        recorded->stream->passed = recorded->place;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

EXPORT int cuEventQuery(void *event)
{
    const struct fake_event *asked = event;
    pthread_mutex_lock(&mutex);
    const bool passed = !asked->stream || asked->stream->passed >= asked->place;
    const bool refused = captures && capture_mode != CAPTURE_RELAXED, captured = asked->captured;
    invalidated += refused || captured;
    queries++;
    pthread_mutex_unlock(&mutex);
    if (refused || captured)
        return captured ? ERROR_CAPTURED_EVENT : ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return depth == 0 ? ERROR_INVALID_CONTEXT : passed ? SUCCESS : ERROR_NOT_READY;
}

EXPORT int cuEventDestroy_v2(void *event)
{
    free(event);
    pthread_mutex_lock(&mutex);
    events_alive--;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}
