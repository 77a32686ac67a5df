/* The little that store, rings, tests and benchmarks need of a GPU: memory, copies, streams,
 * graphs, timing.
 *
 * Everything here fails with TRAJD_ERR_UNSUPPORTED in a build without CUDA, and trajd_device_count
 * says 0, so that callers need no #ifdef. A struct trajd_device may be used from several threads,
 * and so may a stream: its work is done in the order in which it was given. Functions named _async
 * return before the work is done; memory they name must live until the stream was synchronised. */
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
struct trajd_device_graph;

struct trajd_device_info {
    char name[TRAJD_DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
    /* "GPU-xxxxxxxx-...", what a worker on the same GPU sees too */
    char uuid[TRAJD_DEVICE_UUID_SIZE];
    uint64_t memory_size_bytes;
    uint32_t sm_count;
    uint32_t compute_capability; /* 80, 90, ... */
    uint64_t l2_size_bytes;
    uint32_t driver_version; /* 13000: CUDA 13.0 */
};

/* What a plan runs on. Filled by the caller from what is there; plain numbers, so that a choice can
 * be tested anywhere. */
struct trajd_device_facts {
    uint32_t cpu_threads;        /* workers of the pool, the caller's thread counted; >= 1 */
    uint32_t sm_count;           /* multiprocessors; 0: no GPU is to be used */
    uint32_t compute_capability; /* 80, 90, ... */
    uint64_t l2_size_bytes;
    const struct trajd_tuning *tuning; /* tuning.h: measured launch shapes; NULL: by rule */
};

/* GPUs that this process can use. 0 without a driver or in a build without CUDA. */
uint32_t trajd_device_count(void);

/* Opens GPU `index` with its primary context. Blocks for the context's creation (hundreds of ms).
 */
enum trajd_status trajd_device_open(uint32_t index, struct trajd_device **device,
                                    struct trajd_error *error);

const struct trajd_device_info *trajd_device_info(const struct trajd_device *device);

/* Fills the GPU part of *facts and leaves the rest. */
void trajd_device_facts(const struct trajd_device *device, struct trajd_device_facts *facts);

/* The calling thread's launches go to this GPU from now on: before it launches, where a process has
 * several. */
enum trajd_status trajd_device_enter(struct trajd_device *device, struct trajd_error *error);

/* Clears the caller's pointer. Memory and streams of the device must be gone. NULL is fine. */
void trajd_device_close(struct trajd_device **device);

/* One allocation, aligned to 256 bytes. TRAJD_ERR_MEMORY where it does not fit. */
enum trajd_status trajd_device_alloc(struct trajd_device *device, uint64_t size_bytes,
                                     void **memory, struct trajd_error *error);
void trajd_device_free(struct trajd_device *device, void *memory);

/* What another process opens the memory by, which must be one that trajd_device_alloc gave, of
 * multiples of 2 MiB: then the handle names it alone. It stays readable there, unchanged by what
 * this process does afterwards, until that process has closed it too. */
enum trajd_status trajd_device_share(struct trajd_device *device, void *memory,
                                     uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE],
                                     struct trajd_error *error);

/* Bytes that are free on the GPU, whoever uses the rest. */
enum trajd_status trajd_device_free_bytes(struct trajd_device *device, uint64_t *size_bytes,
                                          struct trajd_error *error);

/* Host memory that copies run from at full speed and without blocking. */
enum trajd_status trajd_device_host_alloc(struct trajd_device *device, uint64_t size_bytes,
                                          void **memory, struct trajd_error *error);
void trajd_device_host_free(struct trajd_device *device, void *memory);

enum trajd_status trajd_device_stream_create(struct trajd_device *device,
                                             struct trajd_device_stream **stream,
                                             struct trajd_error *error);

/* Waits for everything given to the stream; returns the first failure of that work. */
enum trajd_status trajd_device_stream_wait(struct trajd_device_stream *stream,
                                           struct trajd_error *error);
void trajd_device_stream_destroy(struct trajd_device_stream **stream);

/* The cudaStream_t, for files of kernels/ that launch. */
void *trajd_device_stream_handle(const struct trajd_device_stream *stream);

/* Between any of device, pinned and plain host memory. Blocks on the host where the host memory is
 * not pinned. */
enum trajd_status trajd_device_copy_async(void *to, const void *from, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error);
enum trajd_status trajd_device_fill_async(void *memory, uint8_t byte, uint64_t size_bytes,
                                          struct trajd_device_stream *stream,
                                          struct trajd_error *error);

/* A point of a stream that can be asked about without waiting. */
enum trajd_status trajd_device_event_create(struct trajd_device *device,
                                            struct trajd_device_event **event,
                                            struct trajd_error *error);
enum trajd_status trajd_device_event_record(struct trajd_device_event *event,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error);
/* *passed: the stream has got past the point recorded last. The first failure of work before it is
 * returned. */
enum trajd_status trajd_device_event_poll(struct trajd_device_event *event, bool *passed,
                                          struct trajd_error *error);
void trajd_device_event_destroy(struct trajd_device_event **event);

/* What the stream is given from now on begins when the event's stream, of the same GPU, has got
 * past the point recorded last. */
enum trajd_status trajd_device_stream_follow(struct trajd_device_stream *stream,
                                             struct trajd_device_event *event,
                                             struct trajd_error *error);

/* Records what is given to the stream between begin and end instead of running it; a graph is
 * replayed with one call. */
enum trajd_status trajd_device_graph_begin(struct trajd_device_stream *stream,
                                           struct trajd_error *error);
enum trajd_status trajd_device_graph_end(struct trajd_device_stream *stream,
                                         struct trajd_device_graph **graph,
                                         struct trajd_error *error);
enum trajd_status trajd_device_graph_replay_async(struct trajd_device_graph *graph,
                                                  struct trajd_device_stream *stream,
                                                  struct trajd_error *error);
void trajd_device_graph_destroy(struct trajd_device_graph **graph);

/* Device time between two points of a stream: start, work, stop; the stop waits. */
enum trajd_status trajd_device_timer_start(struct trajd_device_stream *stream,
                                           struct trajd_error *error);
enum trajd_status trajd_device_timer_stop(struct trajd_device_stream *stream, float *elapsed_us,
                                          struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
