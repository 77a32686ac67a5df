/* The part of the CUDA driver API that a worker needs to read batches on a GPU. libcuda is loaded
 * on the first call, and only these functions use it. All calls use the GPU's primary context,
 * which frameworks use too. A stream is a CUstream of that context as an integer; 1 is the legacy
 * default stream, 2 the per-thread default stream. Thread-safe. */
#ifndef TRAJD_C_CUDA_H
#define TRAJD_C_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define TRAJD_CUDA_UUID_SIZE 48

struct trajd_cuda;

/* Writes "GPU-..." of the GPU that this process counts as `ordinal`. TRAJD_ERR_UNSUPPORTED: libcuda
 * cannot be loaded; TRAJD_ERR_NOT_FOUND: this process sees fewer GPUs. */
enum trajd_status trajd_cuda_uuid(int ordinal, char uuid[TRAJD_CUDA_UUID_SIZE],
                                  struct trajd_error *error);

/* Finds the GPU with that UUID and retains its primary context. The caller closes it.
 * TRAJD_ERR_NOT_FOUND: this process does not see that GPU. */
enum trajd_status trajd_cuda_open(const char *uuid, struct trajd_cuda **cuda,
                                  struct trajd_error *error);
/* Releases the context. The caller has unmapped everything. Clears the pointer; NULL is fine. */
void trajd_cuda_close(struct trajd_cuda **cuda);
/* Returns the number by which this process counts the GPU. */
int trajd_cuda_ordinal(const struct trajd_cuda *cuda);

/* Maps another process's memory by its cudaIpcMemHandle. TRAJD_ERR_PROTOCOL: the handle has another
 * size. */
enum trajd_status trajd_cuda_map(const struct trajd_cuda *cuda, const void *handle,
                                 size_t handle_size_bytes, void **memory,
                                 struct trajd_error *error);
void trajd_cuda_unmap(const struct trajd_cuda *cuda, void *memory);
/* Checks that mapped memory contains [offset_bytes, offset_bytes + size_bytes): by the length of
 * the allocation, or by reading the last byte where the driver does not return the length.
 * TRAJD_ERR_PROTOCOL: it does not. */
enum trajd_status trajd_cuda_check_extent(const struct trajd_cuda *cuda, const void *memory,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          struct trajd_error *error);
/* Copies to host memory. Blocks until the copy is complete. */
enum trajd_status trajd_cuda_read(const struct trajd_cuda *cuda, void *to, const void *from,
                                  size_t size_bytes, struct trajd_error *error);

enum trajd_cuda_progress {
    TRAJD_CUDA_COMPLETED, /* also: the context no longer exists, and none of its work runs */
    TRAJD_CUDA_PENDING,
    /* a graph is being captured on the stream; a query would ruin it */
    TRAJD_CUDA_CAPTURED,
    /* the event cannot be recorded, or has an error: only trajd_cuda_synchronize helps */
    TRAJD_CUDA_UNTRACKED,
};
/* Records *event after the work that the stream has been given so far. Makes the event if *event
 * is NULL. Returns PENDING if it was recorded; otherwise destroys the event and sets *event to
 * NULL. */
enum trajd_cuda_progress trajd_cuda_record_event(const struct trajd_cuda *cuda, void **event,
                                                 uintptr_t stream);
/* CAPTURED: the event was recorded into a graph; destroy it, and record another one. */
enum trajd_cuda_progress trajd_cuda_query_event(const struct trajd_cuda *cuda, void *event);
/* Waits for all work that this process has given the GPU. Returns COMPLETED, or CAPTURED: a graph
 * is being captured, and nothing was waited for. */
enum trajd_cuda_progress trajd_cuda_synchronize(const struct trajd_cuda *cuda);
/* NULL is fine. */
void trajd_cuda_destroy_event(const struct trajd_cuda *cuda, void *event);

#endif
