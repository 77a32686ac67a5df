/* The CUDA driver, loaded with dlopen. */
#include "clients/c/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"
#include "proto/plural.h"

/* The driver's ABI, as the toolkit's cuda.h has it: stable since CUDA 10.1, the names with `_v2`
 * since 3.2 and 11.4. cuDeviceGetUuid without `_v2` returns the UUID of the whole GPU to which a
 * MIG instance belongs; OPEN has the UUID of the instance, as the daemon's runtime library returns
 * it. */
enum {
    SUCCESS = 0,
    ERROR_NOT_READY = 600,
    ERROR_FIRST_OF_CAPTURE = 900,
    ERROR_LAST_OF_CAPTURE = 908,
    EVENT_DISABLE_TIMING = 2,
    IPC_LAZY_PEER_ACCESS = 1,
    HANDLE_SIZE = 64,
    CAPTURE_RELAXED = 2,
    CAPTURE_NONE = 0
};
typedef int result;
typedef int device;
typedef void *context, *event, *stream;
typedef uint64_t pointer;
struct uuid {
    unsigned char bytes[16];
};
struct ipc_handle {
    char reserved[HANDLE_SIZE];
};

static struct driver {
    void *library;
    struct trajd_error error; /* why the driver could not be loaded */
    result (*init)(unsigned flags);
    result (*device_get_count)(int *count);
    result (*device_get)(device *device, int ordinal);
    result (*device_get_uuid)(struct uuid *uuid, device device);
    result (*primary_retain)(context *context, device device);
    result (*primary_release)(device device);
    result (*push)(context context);
    result (*pop)(context *context);
    result (*exchange_capture_mode)(int *mode);
    result (*ipc_open)(pointer *pointer, struct ipc_handle handle, unsigned flags);
    result (*ipc_close)(pointer pointer);
    result (*get_range)(pointer *base, size_t *size_bytes, pointer pointer);
    result (*is_capturing)(stream stream, int *state);
    result (*synchronize)(void);
    result (*copy_to_host)(void *to, pointer from, size_t size_bytes);
    result (*event_create)(event *event, unsigned flags);
    result (*event_record)(event event, stream stream);
    result (*event_query)(event event);
    result (*event_destroy)(event event);
    result (*error_name)(result code, const char **name);
} driver;

struct trajd_cuda {
    device device;
    context context;
    int ordinal;
};

/* ---- loading ---- */

/* Finds the functions of the driver. Returns the name of one that is missing, or NULL. */
static const char *find_functions(void *library)
{
    const struct {
        const char *name;
        void **entry;
        const char *older;
    } entries[] = {
        {.name = "cuInit", .entry = (void **)&driver.init},
        {.name = "cuDeviceGetCount", .entry = (void **)&driver.device_get_count},
        {.name = "cuDeviceGet", .entry = (void **)&driver.device_get},
        {.name = "cuDeviceGetUuid_v2",
         .entry = (void **)&driver.device_get_uuid,
         .older = "cuDeviceGetUuid"},
        {.name = "cuDevicePrimaryCtxRetain", .entry = (void **)&driver.primary_retain},
        {.name = "cuDevicePrimaryCtxRelease_v2", .entry = (void **)&driver.primary_release},
        {.name = "cuCtxPushCurrent_v2", .entry = (void **)&driver.push},
        {.name = "cuCtxPopCurrent_v2", .entry = (void **)&driver.pop},
        {.name = "cuThreadExchangeStreamCaptureMode",
         .entry = (void **)&driver.exchange_capture_mode},
        {.name = "cuIpcOpenMemHandle_v2", .entry = (void **)&driver.ipc_open},
        {.name = "cuIpcCloseMemHandle", .entry = (void **)&driver.ipc_close},
        {.name = "cuMemGetAddressRange_v2", .entry = (void **)&driver.get_range},
        {.name = "cuStreamIsCapturing", .entry = (void **)&driver.is_capturing},
        {.name = "cuCtxSynchronize", .entry = (void **)&driver.synchronize},
        {.name = "cuMemcpyDtoH_v2", .entry = (void **)&driver.copy_to_host},
        {.name = "cuEventCreate", .entry = (void **)&driver.event_create},
        {.name = "cuEventRecord", .entry = (void **)&driver.event_record},
        {.name = "cuEventQuery", .entry = (void **)&driver.event_query},
        {.name = "cuEventDestroy_v2", .entry = (void **)&driver.event_destroy},
        {.name = "cuGetErrorName", .entry = (void **)&driver.error_name},
    };
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        *entries[i].entry = dlsym(library, entries[i].name);
        if (!*entries[i].entry && entries[i].older)
            *entries[i].entry = dlsym(library, entries[i].older);
        if (!*entries[i].entry)
            return entries[i].name;
    }
    return NULL;
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        trajd_error_set(&driver.error, TRAJD_ERR_UNSUPPORTED, 0, "GPU: %s",
                        why ? why : "no libcuda.so.1");
        return;
    }
    const char *missing = find_functions(library);
    if (missing) {
        trajd_error_set(&driver.error, TRAJD_ERR_UNSUPPORTED, 0,
                        "GPU: libcuda.so.1 is too old: %s is missing", missing);
        dlclose(library);
        return;
    }
    result code = driver.init(0);
    if (code != SUCCESS) {
        const char *name = NULL;
        driver.error_name(code, &name);
        trajd_error_set(&driver.error, TRAJD_ERR_UNSUPPORTED, code, "GPU: cuInit: %s",
                        name ? name : "failed");
        return;
    }
    driver.library = library; /* never closed: other libraries in this process use it too */
}

static enum trajd_status need_driver(struct trajd_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (driver.library)
        return TRAJD_OK;
    *error = driver.error;
    return error->status;
}

static enum trajd_status fail(struct trajd_error *error, result code, const char *what)
{
    const char *name = NULL;
    driver.error_name(code, &name);
    return trajd_error_set(error, TRAJD_ERR_DEVICE, code, "GPU: %s: %s", what,
                           name ? name : "an unknown error");
}

/* ---- GPUs by UUID ---- */

static void write_uuid(const struct uuid *uuid, char text[TRAJD_CUDA_UUID_SIZE])
{
    const unsigned char *u = uuid->bytes;
    snprintf(text, TRAJD_CUDA_UUID_SIZE,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
}

static enum trajd_status read_uuid(int ordinal, device *found, char uuid[TRAJD_CUDA_UUID_SIZE],
                                   struct trajd_error *error)
{
    struct uuid bytes;
    result code = driver.device_get(found, ordinal);
    if (code == SUCCESS)
        code = driver.device_get_uuid(&bytes, *found);
    if (code != SUCCESS)
        return fail(error, code, "reading its UUID");
    write_uuid(&bytes, uuid);
    return TRAJD_OK;
}

static enum trajd_status count_gpus(int *count, struct trajd_error *error)
{
    enum trajd_status status = need_driver(error);
    if (status)
        return status;
    result code = driver.device_get_count(count);
    return code == SUCCESS ? TRAJD_OK : fail(error, code, "counting GPUs");
}

enum trajd_status trajd_cuda_uuid(int ordinal, char uuid[TRAJD_CUDA_UUID_SIZE],
                                  struct trajd_error *error)
{
    device found;
    int count = 0;
    enum trajd_status status = count_gpus(&count, error);
    if (status)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "GPU %d: this process sees %d GPU%s",
                               ordinal, count, trajd_plural((uint64_t)count));
    return read_uuid(ordinal, &found, uuid, error);
}

enum trajd_status trajd_cuda_open(const char *uuid, struct trajd_cuda **out,
                                  struct trajd_error *error)
{
    char text[TRAJD_CUDA_UUID_SIZE];
    struct trajd_cuda gpu = {0};
    int count = 0;
    enum trajd_status status = count_gpus(&count, error);
    if (status)
        return status;
    for (; gpu.ordinal < count; gpu.ordinal++) {
        status = read_uuid(gpu.ordinal, &gpu.device, text, error);
        if (status)
            return status;
        if (strcmp(text, uuid) == 0)
            break;
    }
    if (gpu.ordinal == count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "GPU %s: not one of the %d that this process sees", uuid, count);
    const result code = driver.primary_retain(&gpu.context, gpu.device);
    if (code != SUCCESS)
        return fail(error, code, "retaining its primary context");
    *out = malloc(sizeof(**out));
    if (!*out) {
        driver.primary_release(gpu.device);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "GPU %s: out of memory", uuid);
    }
    **out = gpu;
    return TRAJD_OK;
}

void trajd_cuda_close(struct trajd_cuda **cuda)
{
    if (*cuda)
        driver.primary_release((*cuda)->device);
    free(*cuda);
    *cuda = NULL;
}

int trajd_cuda_ordinal(const struct trajd_cuda *cuda)
{
    return cuda->ordinal;
}

/* ---- calls in the GPU's context ---- */

/* Enters the context in relaxed capture mode. In other modes the driver refuses calls that might
 * belong to a graph which another thread captures, and the refusal ruins that graph. The calls here
 * never belong to one. *mode is for leave(). */
static result enter(const struct trajd_cuda *cuda, int *mode)
{
    const result code = driver.push(cuda->context);
    *mode = CAPTURE_RELAXED;
    if (code == SUCCESS)
        driver.exchange_capture_mode(mode);
    return code;
}

static void leave(int mode)
{
    context left;
    driver.exchange_capture_mode(&mode);
    driver.pop(&left);
}

enum trajd_status trajd_cuda_map(const struct trajd_cuda *cuda, const void *bytes,
                                 size_t size_bytes, void **memory, struct trajd_error *error)
{
    struct ipc_handle handle;
    pointer opened = 0;
    if (size_bytes != sizeof handle)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "GPU: the memory handle has %zu bytes instead of %zu", size_bytes,
                               sizeof handle);
    memcpy(&handle, bytes, sizeof handle);
    int mode;
    result code = enter(cuda, &mode);
    if (code != SUCCESS)
        return fail(error, code, "entering its context (cuCtxPushCurrent)");
    code = driver.ipc_open(&opened, handle, IPC_LAZY_PEER_ACCESS);
    leave(mode);
    if (code != SUCCESS)
        return fail(error, code, "opening the daemon's memory (cuIpcOpenMemHandle)");
    *memory = (void *)(uintptr_t)opened;
    return TRAJD_OK;
}

void trajd_cuda_unmap(const struct trajd_cuda *cuda, void *memory)
{
    int mode;
    if (enter(cuda, &mode) != SUCCESS)
        return; /* the driver ends with the process, and so does the mapping */
    driver.ipc_close((uintptr_t)memory);
    leave(mode);
}

enum trajd_status trajd_cuda_read(const struct trajd_cuda *cuda, void *to, const void *from,
                                  size_t size_bytes, struct trajd_error *error)
{
    int mode;
    result code = enter(cuda, &mode);
    if (code != SUCCESS)
        return fail(error, code, "entering its context (cuCtxPushCurrent)");
    code = driver.copy_to_host(to, (uintptr_t)from, size_bytes);
    leave(mode);
    return code == SUCCESS ? TRAJD_OK : fail(error, code, "reading the daemon's memory");
}

enum trajd_status trajd_cuda_check_extent(const struct trajd_cuda *cuda, const void *memory,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          struct trajd_error *error)
{
    pointer base = 0, opened = (uintptr_t)memory;
    size_t length = 0;
    unsigned char last;
    int mode;
    uint64_t end_bytes;
    if (__builtin_add_overflow(offset_bytes, size_bytes, &end_bytes) || end_bytes > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "GPU: the ring ends beyond any memory");
    result code = enter(cuda, &mode);
    if (code != SUCCESS)
        return fail(error, code, "entering its context (cuCtxPushCurrent)");
    code = driver.get_range(&base, &length, opened);
    leave(mode);
    if (code != SUCCESS)
        return trajd_cuda_read(cuda, &last, (const unsigned char *)memory + end_bytes - 1, 1,
                               error);
    if (base > opened || opened - base > length || length - (opened - base) < end_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_PROTOCOL, 0,
            "GPU: the daemon's memory has %llu bytes instead of the %llu of OPENED",
            (unsigned long long)length, (unsigned long long)end_bytes);
    return TRAJD_OK;
}

/* ---- events on streams ---- */

static bool is_capture_error(result code)
{
    return code >= ERROR_FIRST_OF_CAPTURE && code <= ERROR_LAST_OF_CAPTURE;
}

/* Returns true if a graph is being captured on the stream. A stream that cannot be queried counts
 * as not captured: recording the event returns its error. */
static bool is_captured(uintptr_t on)
{
    int state = CAPTURE_NONE;
    const result code = driver.is_capturing((stream)on, &state);
    return is_capture_error(code) || (code == SUCCESS && state != CAPTURE_NONE);
}

/* Queries the capture before and after recording: another thread may begin to capture at any time,
 * and an event that may belong to its graph must not be used. */
static enum trajd_cuda_progress record_entered(event *event_out, uintptr_t on)
{
    if (is_captured(on))
        return TRAJD_CUDA_CAPTURED;
    if (!*event_out && driver.event_create(event_out, EVENT_DISABLE_TIMING) != SUCCESS) {
        *event_out = NULL;
        return TRAJD_CUDA_UNTRACKED;
    }
    const result code = driver.event_record(*event_out, (stream)on);
    if (code != SUCCESS)
        return is_capture_error(code) ? TRAJD_CUDA_CAPTURED : TRAJD_CUDA_UNTRACKED;
    return is_captured(on) ? TRAJD_CUDA_CAPTURED : TRAJD_CUDA_PENDING;
}

enum trajd_cuda_progress trajd_cuda_record_event(const struct trajd_cuda *cuda, void **event_out,
                                                 uintptr_t on)
{
    int mode;
    if (enter(cuda, &mode) != SUCCESS)
        return TRAJD_CUDA_COMPLETED;
    const enum trajd_cuda_progress progress = record_entered(event_out, on);
    if (progress != TRAJD_CUDA_PENDING && *event_out) {
        driver.event_destroy(*event_out);
        *event_out = NULL;
    }
    leave(mode);
    return progress;
}

enum trajd_cuda_progress trajd_cuda_query_event(const struct trajd_cuda *cuda, void *event_out)
{
    int mode;
    if (enter(cuda, &mode) != SUCCESS)
        return TRAJD_CUDA_COMPLETED;
    const result code = driver.event_query(event_out);
    leave(mode);
    return code == SUCCESS           ? TRAJD_CUDA_COMPLETED
           : code == ERROR_NOT_READY ? TRAJD_CUDA_PENDING
           : is_capture_error(code)  ? TRAJD_CUDA_CAPTURED
                                     : TRAJD_CUDA_UNTRACKED;
}

enum trajd_cuda_progress trajd_cuda_synchronize(const struct trajd_cuda *cuda)
{
    int mode;
    if (enter(cuda, &mode) != SUCCESS)
        return TRAJD_CUDA_COMPLETED;
    /* other errors come from work that has ended with them */
    const result code = driver.synchronize();
    leave(mode);
    return is_capture_error(code) ? TRAJD_CUDA_CAPTURED : TRAJD_CUDA_COMPLETED;
}

void trajd_cuda_destroy_event(const struct trajd_cuda *cuda, void *event_out)
{
    int mode;
    if (!event_out || enter(cuda, &mode) != SUCCESS)
        return;
    driver.event_destroy(event_out);
    leave(mode);
}
