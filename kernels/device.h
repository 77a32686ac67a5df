/* GPU memory, copies, streams and events in plain C: the small part of CUDA that the daemon needs.
 *
 * In a build without CUDA all functions fail with TRAJD_ERR_UNSUPPORTED and trajd_device_count
 * returns 0, so callers need no #ifdef. A struct trajd_device is thread-safe, and so is a stream:
 * it runs its work in the order of the calls. Functions named _async return before the work is
 * done. The memory that they use must stay valid until the stream has been synchronised. */
#ifndef TRAJD_KERNELS_DEVICE_H
#define TRAJD_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_DEVICE_NAME_SIZE 64
#define TRAJD_DEVICE_UUID_SIZE 48
#define TRAJD_DEVICE_HANDLE_SIZE 64

struct trajd_tuning; /* cuda/tuning.h */
struct trajd_device;
struct trajd_device_stream;
struct trajd_device_event;

struct trajd_device_info {
    char name[TRAJD_DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
    /* "GPU-xxxxxxxx-...", the same for a worker on that GPU */
    char uuid[TRAJD_DEVICE_UUID_SIZE];
    uint64_t memory_size_bytes;
    uint32_t sm_count;
    uint32_t compute_capability; /* 80, 90, ... */
    uint64_t l2_size_bytes;
    uint32_t block_shared_bytes; /* shared memory that a block may ask for */
    uint32_t driver_version;     /* 13000: CUDA 13.0 */
};

/* The machine that a plan is for. The caller fills it. The fields are plain numbers, so that the
 * choice of a variant can be tested without a GPU. */
struct trajd_device_facts {
    uint32_t cpu_threads;        /* threads of the pool, including the caller's; >= 1 */
    uint32_t sm_count;           /* multiprocessors; 0: no GPU may be used */
    uint32_t compute_capability; /* 80, 90, ... */
    uint64_t l2_size_bytes;
    uint32_t block_shared_bytes;       /* shared memory that a block may ask for */
    const struct trajd_tuning *tuning; /* measured launch shapes; NULL: chosen by rule */
};

/* Returns the number of GPUs that this process can use: 0 without a driver or in a build without
 * CUDA. */
uint32_t trajd_device_count(void);

/* Opens GPU `index` with its primary context. Blocks while the context is created (hundreds of
 * ms). */
enum trajd_status trajd_device_open(uint32_t index, struct trajd_device **device,
                                    struct trajd_error *error);

const struct trajd_device_info *trajd_device_info(const struct trajd_device *device);

/* Fills the GPU's fields of *facts. Does not change the other fields. */
void trajd_device_facts(const struct trajd_device *device, struct trajd_device_facts *facts);

/* Directs later launches of the calling thread to this GPU. Call it before launching if the process
 * uses several GPUs. */
enum trajd_status trajd_device_enter(struct trajd_device *device, struct trajd_error *error);

/* Frees the device and clears the caller's pointer. Its memory and streams must have been freed
 * before. NULL is fine. */
void trajd_device_close(struct trajd_device **device);

/* Allocates device memory, aligned to 256 bytes. TRAJD_ERR_MEMORY if there is not enough. */
enum trajd_status trajd_device_alloc(struct trajd_device *device, uint64_t size_bytes,
                                     void **memory, struct trajd_error *error);
void trajd_device_free(struct trajd_device *device, void *memory);

/* Makes a handle by which another process can open the memory. The memory must come from
 * trajd_device_alloc with a size that is a multiple of 2 MiB, so that the handle names it alone.
 * The other process can read it, unchanged by anything that this process does afterwards, until it
 * has closed it too. */
enum trajd_status trajd_device_share(struct trajd_device *device, void *memory,
                                     uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE],
                                     struct trajd_error *error);

/* Returns the free bytes of the GPU, counting the use by all processes. */
enum trajd_status trajd_device_free_bytes(struct trajd_device *device, uint64_t *size_bytes,
                                          struct trajd_error *error);

/* Allocates pinned host memory, from which copies run at full speed and without blocking. */
enum trajd_status trajd_device_host_alloc(struct trajd_device *device, uint64_t size_bytes,
                                          void **memory, struct trajd_error *error);
void trajd_device_host_free(struct trajd_device *device, void *memory);

enum trajd_status trajd_device_stream_create(struct trajd_device *device,
                                             struct trajd_device_stream **stream,
                                             struct trajd_error *error);

/* Waits until all work of the stream is done. Returns the first failure of that work. */
enum trajd_status trajd_device_stream_wait(struct trajd_device_stream *stream,
                                           struct trajd_error *error);
void trajd_device_stream_destroy(struct trajd_device_stream **stream);

/* Returns the cudaStream_t, for the files in kernels/ that launch. */
void *trajd_device_stream_handle(const struct trajd_device_stream *stream);

/* Copies between device, pinned and plain host memory, in any direction. Blocks the host if the
 * host memory is not pinned. */
enum trajd_status trajd_device_copy_async(void *to, const void *from, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error);

/* A small copy of pinned host memory. */
struct trajd_device_send {
    void *to;
    const void *from; /* in memory of trajd_device_host_alloc() */
    uint64_t size_bytes;
};

enum { TRAJD_DEVICE_SENDS_MAX = 16 };

/* Makes up to TRAJD_DEVICE_SENDS_MAX copies to the device with one launch, which reads the host
 * memory itself. On a GPU that other processes use, it shares the time slice of the launches behind
 * it. A copy by trajd_device_copy_async() and the launch behind it take a slice each. */
enum trajd_status trajd_device_send_async(const struct trajd_device_send *sends, uint32_t count,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error);
/* The launch beneath it: returns the cudaError_t. */
int trajd_device_launch_sends(const struct trajd_device_send *list, uint32_t count, void *stream);
enum trajd_status trajd_device_fill_async(void *memory, uint8_t byte, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error);

/* An event marks a point in a stream and can be polled without waiting. */
enum trajd_status trajd_device_event_create(struct trajd_device *device,
                                            struct trajd_device_event **event,
                                            struct trajd_error *error);
enum trajd_status trajd_device_event_record(struct trajd_device_event *event,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error);
/* Sets *passed to whether the stream has passed the point that was recorded last. Returns the first
 * failure of the work before that point. */
enum trajd_status trajd_device_event_poll(struct trajd_device_event *event, bool *passed,
                                          struct trajd_error *error);
void trajd_device_event_destroy(struct trajd_device_event **event);

/* Makes later work of `stream` wait until the event's stream has passed the point that was recorded
 * last. Both streams must be of the same GPU. */
enum trajd_status trajd_device_stream_follow(struct trajd_device_stream *stream,
                                             struct trajd_device_event *event,
                                             struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
