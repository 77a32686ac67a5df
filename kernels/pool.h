/* A fixed set of threads for fork-join work. A job is divided into slices, the threads share them,
 * and the call returns when all slices are done. */
#ifndef TRAJD_KERNELS_POOL_H
#define TRAJD_KERNELS_POOL_H

#include <stdint.h>

#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_pool;

/* Starts thread_count - 1 threads; the caller of trajd_pool_run is the last one. When the function
 * returns they are running, with all signals blocked. thread_count is in [1, 1024]. */
enum trajd_status trajd_pool_create(uint32_t thread_count, const char *name,
                                    struct trajd_pool **pool, struct trajd_error *error);

/* Returns the number of threads, including the caller's. 1 for a NULL pool. */
uint32_t trajd_pool_thread_count(const struct trajd_pool *pool);

/* Calls slice(context, index) for every index in [0, slice_count), in any order and on any of the
 * threads. Returns when all slices are done; everything that they wrote is then visible to the
 * caller. Thread-safe: calls from several threads run one after the other. A NULL pool runs the
 * slices on the caller's thread. */
void trajd_pool_run(struct trajd_pool *pool, uint32_t slice_count,
                    void (*slice)(void *context, uint32_t index), void *context);

/* Returns about how many callers wait for their turn. A caller that runs many jobs in a row should
 * pause if it is not 0, because turns have no order and it could keep the pool for itself. */
uint32_t trajd_pool_waiting(const struct trajd_pool *pool);

/* Joins the threads, frees the pool and clears the caller's pointer. NULL is fine. */
void trajd_pool_destroy(struct trajd_pool **pool);

#ifdef __cplusplus
}
#endif
#endif
