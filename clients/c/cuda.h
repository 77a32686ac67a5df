/* The little of the CUDA driver that a worker needs to read batches where they lie. libcuda is
 * loaded when it is first asked for; nothing else here knows it. Everything happens in the GPU's
 * primary context, which is the one that frameworks use: their streams are meant by `stream`, 1 is
 * the legacy default stream, 2 the one per thread. Any thread may call. */
#ifndef TRAJD_C_CUDA_H
#define TRAJD_C_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define TRAJD_CUDA_UUID_SIZE 48

struct trajd_cuda;

/* "GPU-..." of the GPU that this process counts as `ordinal`. TRAJD_ERR_UNSUPPORTED: no libcuda
 * here; TRAJD_ERR_NOT_FOUND: fewer GPUs. */
enum trajd_status trajd_cuda_uuid(int ordinal, char uuid[TRAJD_CUDA_UUID_SIZE],
                                  struct trajd_error *error);

/* The GPU by its UUID, its context with it. TRAJD_ERR_NOT_FOUND: this process does not see it. */
enum trajd_status trajd_cuda_open(const char *uuid, struct trajd_cuda **cuda,
                                  struct trajd_error *error);
/* Nothing may be mapped any more. Clears the pointer; NULL is fine. */
void trajd_cuda_close(struct trajd_cuda **cuda);
int trajd_cuda_ordinal(const struct trajd_cuda *cuda);

/* Memory of another process by its handle. */
enum trajd_status trajd_cuda_map(const struct trajd_cuda *cuda, const void *handle,
                                 size_t handle_size_bytes, void **memory,
                                 struct trajd_error *error);
void trajd_cuda_unmap(const struct trajd_cuda *cuda, void *memory);
/* Whether all of [offset_bytes, offset_bytes + size_bytes) of what was mapped is there: by the
 * allocation's length, and where the driver does not tell it by reading the last byte.
 * TRAJD_ERR_PROTOCOL: it is not. */
enum trajd_status trajd_cuda_check_extent(const struct trajd_cuda *cuda, const void *memory,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          struct trajd_error *error);
/* To host memory; waits. */
enum trajd_status trajd_cuda_read(const struct trajd_cuda *cuda, void *to, const void *from,
                                  size_t size_bytes, struct trajd_error *error);

enum trajd_cuda_progress {
    TRAJD_CUDA_COMPLETED, /* or the context is no more, and nothing of it runs */
    TRAJD_CUDA_PENDING,
    /* nobody can know before the graph that is captured there is ended: asking the stream would
     * spoil it */
    TRAJD_CUDA_CAPTURED,
    /* no event can be had, or it tells an error: only trajd_cuda_await_all knows */
    TRAJD_CUDA_UNTRACKED,
};
/* Records *event behind what the stream has been given so far; *event NULL: a new one is made.
 * NOT_YET: done; else *event is NULL. */
enum trajd_cuda_progress trajd_cuda_record_event(const struct trajd_cuda *cuda, void **event,
                                                 uintptr_t stream);
/* CAPTURED: it was recorded into a graph: forget it, and mark again. */
enum trajd_cuda_progress trajd_cuda_query_event(const struct trajd_cuda *cuda, void *event);
/* Waits for everything that this process has given the GPU. PASSED, or CAPTURED: it cannot be asked
 * now. */
enum trajd_cuda_progress trajd_cuda_synchronize(const struct trajd_cuda *cuda);
/* NULL is fine. */
void trajd_cuda_destroy_event(const struct trajd_cuda *cuda, void *event);

#endif
