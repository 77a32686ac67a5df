/* The little of the CUDA driver that a worker needs to read batches where they lie. libcuda is loaded when it is first asked for; nothing
 * else here knows it. Everything happens in the GPU's primary context, which is the one that frameworks use: their streams are meant by
 * `stream`, 1 is the legacy default stream, 2 the one per thread. Any thread may call. */
#ifndef TRAJD_CLIENT_CUDA_H
#define TRAJD_CLIENT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define TRAJD_CUDA_UUID_SIZE 48

struct trajd_cuda;

/* "GPU-..." of the GPU that this process counts as `ordinal`. TRAJD_ERR_UNSUPPORTED: no libcuda here; TRAJD_ERR_NOT_FOUND: fewer GPUs. */
enum trajd_status trajd_cuda_uuid(int ordinal, char uuid[TRAJD_CUDA_UUID_SIZE], struct trajd_error *error);

/* The GPU by its UUID, its context with it. TRAJD_ERR_NOT_FOUND: this process does not see it. */
enum trajd_status trajd_cuda_open(const char *uuid, struct trajd_cuda **cuda, struct trajd_error *error);
/* Nothing may be mapped any more. Clears the pointer; NULL is fine. */
void trajd_cuda_close(struct trajd_cuda **cuda);
int trajd_cuda_ordinal(const struct trajd_cuda *cuda);

/* Memory of another process by its handle. */
enum trajd_status trajd_cuda_map(const struct trajd_cuda *cuda, const void *handle, size_t handle_size_bytes, void **memory,
                                 struct trajd_error *error);
void trajd_cuda_unmap(const struct trajd_cuda *cuda, void *memory);
/* To host memory; waits. */
enum trajd_status trajd_cuda_read(const struct trajd_cuda *cuda, void *to, const void *from, size_t size_bytes,
                                  struct trajd_error *error);

/* An event behind what the stream has been given so far; NULL: it could not be recorded. `event`: one to record again, or NULL for a new one. */
void *trajd_cuda_mark(const struct trajd_cuda *cuda, void *event, uintptr_t stream);
/* Also true after an error of the GPU: then nothing of this context runs any more. */
bool trajd_cuda_has_passed(const struct trajd_cuda *cuda, void *event);
void trajd_cuda_forget(const struct trajd_cuda *cuda, void *event);

#endif
