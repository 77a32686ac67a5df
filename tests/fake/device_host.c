/* kernels/device.h and the launches of kernels/cuda/run.h without a GPU. Memory is a set of memfds
 * that the workers' fake (libcuda.c) opens. A stream is a thread that runs its tasks in order,
 * later than they were queued. This file is linked before the kernels' library and replaces its
 * functions. A launch checks that all its arguments are "device memory", as a GPU would.
 *
 * $FAKE_GPU selects faults:
 *   none       there is no GPU
 *   driver=V   the driver supports CUDA only up to V (12020: 12.2), as one that is too old
 *   oom        allocations fail
 *   lost=N     every stream fails from its Nth launch on
 *   gone=N     everything fails from the Nth allocation on
 *   copy=N     everything fails from a stream's Nth copy on
 *   event=N    a stream fails at its Nth event
 *   unshared   memory has no handles
 *   gpus=N     there are N GPUs
 *   bad=N      GPU N cannot be opened
 *   slow=US    a launch takes this number of microseconds
 *   hang=N     the Nth launch and those after it never end
 *   halt=N     the Nth event and those after it never end
 *   deaf       destroying a failed stream takes forever
 *   unified    launches may read and write all memory of the process */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake/device_host.h"
#include "fake/gpu_driver.h"
#include "kernels/cuda/run.h"
#include "kernels/device.h"
#include "kernels/device_driver.h"
#include "kernels/cpu/cpu.h"

#define MAX_ALLOCATIONS 512

struct trajd_device {
    uint32_t index;
    struct trajd_device_info info;
    /* Like the helper threads of the driver: it handles signals with the mask of the thread that
     * opened the GPU. */
    pthread_t helper;
    bool has_helper;
};

enum op { OP_COPY, OP_FILL, OP_RUN, OP_CALL, OP_EVENT, OP_FOLLOW };

struct task {
    struct task *next;
    enum op op;
    void *to;
    const void *from;
    uint64_t size_bytes;
    uint8_t byte;
    struct trajd_device_event *event;
    uint64_t serial, number;     /* of a launch and of an event */
    void (*call)(void *context); /* of OP_CALL */
    void *context;               /* of OP_RUN: the request; freed behind the task */
};

struct trajd_device_stream {
    uint32_t gpu;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t changed;
    struct task *first, **end;
    bool busy, stop, lost;
    uint64_t launches, copies, events;
};

struct trajd_device_event {
    struct trajd_device_stream *stream;
    uint64_t recorded, passed; /* protected by the stream's mutex */
};

static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct allocation {
    unsigned char *memory;
    uint64_t size_bytes;
    int fd;
    uint32_t gpu;
} table[MAX_ALLOCATIONS];

static long option(const char *name, long otherwise)
{
    const char *list = getenv("FAKE_GPU"), *at = list ? strstr(list, name) : NULL;

    if (!at)
        return otherwise;
    at += strlen(name);
    return *at == '=' ? strtol(at + 1, NULL, 10) : 1;
}

static int allocations;      /* allocations requested so far */
static uint64_t most_copies; /* largest count of a stream */

static bool is_gone(void)
{
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED) >=
               option("gone", 1 << 30) || /* each option counts by itself */
           __atomic_load_n(&most_copies, __ATOMIC_RELAXED) >= (uint64_t)option("copy", 1L << 60);
}

static enum trajd_status lost(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_DEVICE, 719,
                           "work on the GPU: unspecified launch failure");
}

/* ---- the device ---- */

uint32_t trajd_device_count(void)
{
    const long count = option("gpus", 1);

    return option("none", 0) || option("driver", 0) ? 0
           : count < FAKE_GPUS_MAX                  ? (uint32_t)count
                                                    : FAKE_GPUS_MAX;
}

static void *help(void *unused)
{
    for (;;)
        pause();
    return unused;
}

enum trajd_status trajd_device_open(uint32_t index, struct trajd_device **device,
                                    struct trajd_error *error)
{
    *device = NULL;
    if (option("driver", 0))
        return trajd_driver_refuse(index, (int)option("driver", 0), 13000, error);
    if (index >= trajd_device_count())
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "GPU %u: there are %u", index,
                               trajd_device_count());
    if (index == option("bad", FAKE_GPUS_MAX))
        return trajd_error_set(error, TRAJD_ERR_DEVICE, 46,
                               "opening the GPU: all CUDA-capable devices are busy or unavailable");
    *device = calloc(1, sizeof **device);
    if (!*device)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "GPU %u: no memory", index);
    (*device)->info = (struct trajd_device_info){.name = "a GPU that is not there",
                                                 .memory_size_bytes = UINT64_C(1) << 33,
                                                 .sm_count = 4,
                                                 .compute_capability = 90,
                                                 .l2_size_bytes = 1 << 20,
                                                 .block_shared_bytes = 227 * 1024};
    (*device)->index = index;
    snprintf((*device)->info.uuid, sizeof(*device)->info.uuid, "%s%02x", FAKE_GPU_UUID_BEGIN,
             0xff - index);
    (*device)->has_helper = !pthread_create(&(*device)->helper, NULL, help, NULL);
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
    (void)device;
    (void)error;
    return TRAJD_OK;
}

void trajd_device_close(struct trajd_device **device)
{
    if (*device && (*device)->has_helper) {
        pthread_cancel((*device)->helper);
        pthread_join((*device)->helper, NULL);
    }
    free(*device);
    *device = NULL;
}

/* ---- memory ---- */

static struct allocation *find(const void *memory)
{
    for (int i = 0; i < MAX_ALLOCATIONS; i++)
        if (table[i].memory && (const unsigned char *)memory >= table[i].memory &&
            (const unsigned char *)memory < table[i].memory + table[i].size_bytes)
            return &table[i];
    return NULL;
}

enum trajd_status trajd_device_alloc(struct trajd_device *device, uint64_t size_bytes,
                                     void **memory, struct trajd_error *error)
{
    struct allocation made = {.size_bytes = size_bytes, .fd = -1, .gpu = device->index};
    int i = 0;

    *memory = NULL;
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    if (is_gone())
        return lost(error);
    if (option("oom", 0))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 2,
                               "allocating device memory: out of memory");
    made.fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (made.fd < 0 || ftruncate(made.fd, (off_t)size_bytes) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "a fake GPU's memory");
    made.memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    if (made.memory == MAP_FAILED)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a fake GPU's memory");
    memset(made.memory, 0xa5, size_bytes);
    pthread_mutex_lock(&table_mutex);
    while (i < MAX_ALLOCATIONS && table[i].memory)
        i++;
    if (i < MAX_ALLOCATIONS)
        table[i] = made;
    pthread_mutex_unlock(&table_mutex);
    if (i == MAX_ALLOCATIONS)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a fake GPU has room for %d allocations",
                               MAX_ALLOCATIONS);
    *memory = made.memory;
    return TRAJD_OK;
}

void trajd_device_free(struct trajd_device *device, void *memory)
{
    struct allocation freed = {0}, *found;

    (void)device;
    pthread_mutex_lock(&table_mutex);
    found = find(memory);
    if (found) {
        freed = *found;
        found->memory = NULL;
    }
    pthread_mutex_unlock(&table_mutex);
    if (!freed.memory)
        return;
    munmap(freed.memory, freed.size_bytes);
    close(freed.fd);
}

enum trajd_status trajd_device_share(struct trajd_device *device, void *memory,
                                     uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE],
                                     struct trajd_error *error)
{
    struct fake_gpu_handle named = {.magic = FAKE_GPU_MAGIC, .pid = getpid()};
    const struct allocation *found;

    (void)device;
    if (option("unshared", 0))
        return trajd_error_set(error, TRAJD_ERR_DEVICE, 801,
                               "sharing device memory: operation not supported");
    pthread_mutex_lock(&table_mutex);
    found = find(memory);
    if (found) {
        named.fd = found->fd;
        named.gpu = found->gpu;
        named.size_bytes = found->size_bytes;
    }
    pthread_mutex_unlock(&table_mutex);
    memcpy(handle, &named, sizeof named);
    return found ? TRAJD_OK
                 : trajd_error_set(error, TRAJD_ERR_DEVICE, 1, "sharing what is not device memory");
}

enum trajd_status trajd_device_free_bytes(struct trajd_device *device, uint64_t *size_bytes,
                                          struct trajd_error *error)
{
    *size_bytes = device->info.memory_size_bytes;
    return is_gone() ? lost(error) : TRAJD_OK;
}

enum trajd_status trajd_device_host_alloc(struct trajd_device *device, uint64_t size_bytes,
                                          void **memory, struct trajd_error *error)
{
    (void)device;
    *memory = malloc(size_bytes);
    return *memory ? TRAJD_OK : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "pinned memory");
}

void trajd_device_host_free(struct trajd_device *device, void *memory)
{
    (void)device;
    free(memory);
}

/* ---- streams ---- */

/* Waits until the other stream has passed the point that the event marks. */
static void await_event(const struct task *task)
{
    struct trajd_device_stream *stream = task->event->stream;

    pthread_mutex_lock(&stream->mutex);
    while (task->event->passed < task->serial)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    pthread_mutex_unlock(&stream->mutex);
}

static void run_task(struct task *task)
{
    const struct timespec pause = {.tv_nsec = option("slow", 20) * 1000};

    if (task->op == OP_COPY)
        memcpy(task->to, task->from, task->size_bytes);
    else if (task->op == OP_FILL)
        memset(task->to, task->byte, task->size_bytes);
    else if (task->op == OP_FOLLOW)
        await_event(task);
    else if (task->op == OP_CALL)
        task->call(task->context);
    else if (task->op == OP_EVENT) {
        while (task->number >= (uint64_t)option("halt", 1L << 60))
            sleep(1);
    } else if (task->op == OP_RUN) {
        while (task->number >= (uint64_t)option("hang", 1L << 60))
            sleep(1);
        const struct trajd_resample_request *request = task->context;
        nanosleep(&pause, NULL);
        trajd_resample_cpu(request, 0, request->window_count);
    }
}

static void *run_stream(void *context)
{
    struct trajd_device_stream *stream = context;

    pthread_mutex_lock(&stream->mutex);
    while (stream->first || !stream->stop) {
        struct task *task = stream->first;
        if (!task) {
            pthread_cond_wait(&stream->changed, &stream->mutex);
            continue;
        }
        stream->first = task->next;
        if (!stream->first)
            stream->end = &stream->first;
        stream->busy = true;
        const bool lost = stream->lost;
        pthread_mutex_unlock(&stream->mutex);
        if (!lost)
            run_task(task);
        pthread_mutex_lock(&stream->mutex);
        if (task->op == OP_EVENT)
            task->event->passed = task->serial;
        stream->busy = false;
        pthread_cond_broadcast(&stream->changed);
        free(task->context);
        free(task);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

/* Appends a task to the stream. Takes ownership of `made`, which malloc allocated. */
static enum trajd_status queue(struct trajd_device_stream *stream, struct task *made,
                               struct trajd_error *error)
{
    const bool is_run = made->op == OP_RUN;

    pthread_mutex_lock(&stream->mutex);
    if (made->op == OP_RUN &&
        (made->number = ++stream->launches) >= (uint64_t)option("lost", 1 << 30))
        stream->lost = true;
    if (made->op == OP_COPY && ++stream->copies > __atomic_load_n(&most_copies, __ATOMIC_RELAXED))
        __atomic_store_n(&most_copies, stream->copies, __ATOMIC_RELAXED);
    if (made->op == OP_COPY && is_gone())
        stream->lost = true;
    if (made->op == OP_EVENT && ++stream->events >= (uint64_t)option("event", 1L << 60))
        stream->lost = true;
    if (made->op == OP_EVENT) {
        made->number = stream->events;
        made->serial = ++made->event->recorded;
    }
    *stream->end = made;
    stream->end = &made->next;
    const bool is_lost = stream->lost && !is_run; /* a failed launch is reported later */
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
    return is_lost ? lost(error) : TRAJD_OK;
}

static enum trajd_status give(struct trajd_device_stream *stream, struct task task,
                              struct trajd_error *error)
{
    struct task *made = malloc(sizeof *made);

    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a fake GPU's task");
    *made = task;
    return queue(stream, made, error);
}

enum trajd_status trajd_device_stream_create(struct trajd_device *device,
                                             struct trajd_device_stream **stream,
                                             struct trajd_error *error)
{
    struct trajd_device_stream *made = calloc(1, sizeof *made);

    *stream = NULL;
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a GPU stream: no memory");
    made->gpu = device->index;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->end = &made->first;
    if (pthread_create(&made->thread, NULL, run_stream, made)) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "a fake GPU's thread");
    }
    *stream = made;
    return TRAJD_OK;
}

enum trajd_status trajd_device_stream_wait(struct trajd_device_stream *stream,
                                           struct trajd_error *error)
{
    pthread_mutex_lock(&stream->mutex);
    while (stream->first || stream->busy)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    const bool is_lost = stream->lost;
    pthread_mutex_unlock(&stream->mutex);
    return is_lost ? lost(error) : TRAJD_OK;
}

void trajd_device_stream_destroy(struct trajd_device_stream **stream)
{
    if (!*stream)
        return;
    while ((*stream)->lost && option("deaf", 0))
        sleep(1);
    pthread_mutex_lock(&(*stream)->mutex);
    (*stream)->stop = true;
    pthread_cond_broadcast(&(*stream)->changed);
    pthread_mutex_unlock(&(*stream)->mutex);
    pthread_join((*stream)->thread, NULL);
    pthread_cond_destroy(&(*stream)->changed);
    pthread_mutex_destroy(&(*stream)->mutex);
    free(*stream);
    *stream = NULL;
}

void *trajd_device_stream_handle(const struct trajd_device_stream *stream)
{
    return (void *)stream;
}

enum trajd_status trajd_device_copy_async(void *to, const void *from, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    return give(stream,
                (struct task){.op = OP_COPY, .to = to, .from = from, .size_bytes = size_bytes},
                error);
}

enum trajd_status trajd_device_send_async(const struct trajd_device_send *sends, uint32_t count,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < count && !status; i++)
        status =
            trajd_device_copy_async(sends[i].to, sends[i].from, sends[i].size_bytes, stream, error);
    return status;
}

enum trajd_status trajd_device_fill_async(void *memory, uint8_t byte, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error)
{
    return give(stream,
                (struct task){.op = OP_FILL, .to = memory, .byte = byte, .size_bytes = size_bytes},
                error);
}

/* ---- events ---- */

enum trajd_status trajd_device_event_create(struct trajd_device *device,
                                            struct trajd_device_event **event,
                                            struct trajd_error *error)
{
    (void)device;
    *event = calloc(1, sizeof **event);
    return *event ? TRAJD_OK
                  : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a GPU event: no memory");
}

enum trajd_status trajd_device_event_record(struct trajd_device_event *event,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error)
{
    if (event->stream != stream) /* recorded again: another stream may be waiting for it */
        event->stream = stream;
    return give(stream, (struct task){.op = OP_EVENT, .event = event}, error);
}

enum trajd_status trajd_device_event_poll(struct trajd_device_event *event, bool *passed,
                                          struct trajd_error *error)
{
    bool is_lost;

    pthread_mutex_lock(&event->stream->mutex);
    *passed = event->passed == event->recorded;
    is_lost = event->stream->lost;
    pthread_mutex_unlock(&event->stream->mutex);
    return is_lost ? lost(error) : TRAJD_OK;
}

enum trajd_status trajd_device_stream_follow(struct trajd_device_stream *stream,
                                             struct trajd_device_event *event,
                                             struct trajd_error *error)
{
    struct task task = {.op = OP_FOLLOW, .event = event};

    pthread_mutex_lock(&event->stream->mutex);
    task.serial = event->recorded;
    pthread_mutex_unlock(&event->stream->mutex);
    return give(stream, task, error);
}

void trajd_device_event_destroy(struct trajd_device_event **event)
{
    struct trajd_error error;

    if (*event && (*event)->stream)
        trajd_device_stream_wait((*event)->stream, &error);
    free(*event);
    *event = NULL;
}

/* ---- launches ---- */

/* Aborts unless the memory belongs to the stream's GPU. */
static void need_device(uint32_t gpu, const void *memory, const char *what)
{
    pthread_mutex_lock(&table_mutex);
    const struct allocation *found = find(memory);
    const bool good = !memory || (found && found->gpu == gpu) || option("unified", 0);
    pthread_mutex_unlock(&table_mutex);
    if (good)
        return;
    fprintf(stderr, "fake GPU %u: %s: %p is not memory of it\n", gpu, what, memory);
    abort();
}

void trajd_fake_need_device(void *stream, const void *memory, const char *what)
{
    need_device(((struct trajd_device_stream *)stream)->gpu, memory, what);
}

enum trajd_status trajd_fake_call(void *stream, void (*call)(void *context), void *context,
                                  struct trajd_error *error)
{
    return give(stream, (struct task){.op = OP_CALL, .call = call, .context = context}, error);
}

static void check(const struct trajd_resample_request *request, uint32_t gpu)
{
    for (uint32_t c = 0; c < request->clock_count; c++)
        need_device(gpu, request->clocks[c].stamps_ns, "stamps");
    for (uint32_t g = 0; g < request->grid_count; g++)
        need_device(gpu, request->grids[g].offsets, "offsets");
    for (uint32_t b = 0; b < request->bracket_count; b++) {
        need_device(gpu, request->brackets[b].row_begin, "row_begin");
        need_device(gpu, request->brackets[b].row_count, "row_count");
        need_device(gpu, request->brackets[b].anchor, "anchor");
    }
    for (uint32_t s = 0; s < request->stream_count; s++) {
        need_device(gpu, request->streams[s].bases, "bases");
        need_device(gpu, request->streams[s].scale, "scale");
        need_device(gpu, request->streams[s].offset, "offset");
        need_device(gpu, request->streams[s].output, "output");
        need_device(gpu, request->streams[s].mask, "mask");
    }
    need_device(gpu, request->window_rows, "window_rows");
}

static void *keep(unsigned char **room, const void *array, size_t size)
{
    void *kept = *room;

    memcpy(kept, array, size);
    *room += (size + 15) / 16 * 16;
    return kept;
}

struct trajd_resample_request *trajd_fake_keep(const struct trajd_resample_request *request)
{
    const size_t sizes[] = {request->clock_count * sizeof(struct trajd_clock),
                            request->grid_count * sizeof(struct trajd_grid),
                            request->bracket_count * sizeof(struct trajd_bracket),
                            request->stream_count * sizeof(struct trajd_stream)};
    const size_t size =
        sizeof(struct trajd_resample_request) + sizes[0] + sizes[1] + sizes[2] + sizes[3] + 64;
    struct trajd_resample_request *kept = calloc(1, size);
    unsigned char *room = (unsigned char *)(kept + 1);

    if (!kept)
        return NULL;
    *kept = *request;
    kept->clocks = keep(&room, request->clocks, sizes[0]);
    kept->grids = keep(&room, request->grids, sizes[1]);
    kept->brackets = keep(&room, request->brackets, sizes[2]);
    kept->streams = keep(&room, request->streams, sizes[3]);
    return kept;
}

static enum trajd_status run(const struct trajd_resample_request *request,
                             struct trajd_device_stream *stream, struct trajd_error *error)
{
    struct trajd_resample_request *kept = trajd_fake_keep(request);

    check(request, stream->gpu);
    return kept ? give(stream, (struct task){.op = OP_RUN, .context = kept}, error)
                : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a fake GPU's launch");
}

enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts,
                                 const struct trajd_cuda_shape *shape, void *stream,
                                 struct trajd_error *error)
{
    (void)facts;
    (void)shape;
    return run(request, stream, error);
}

enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style,
                                       void *stream, struct trajd_error *error)
{
    (void)facts;
    (void)style;
    return run(request, stream, error);
}
