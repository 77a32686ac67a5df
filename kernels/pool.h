/* A fixed set of threads for fork-join work: slices of one job, spread over the threads, joined
 * before the call returns. */
#ifndef TRAJD_KERNELS_POOL_H
#define TRAJD_KERNELS_POOL_H

#include <stdint.h>

#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_pool;

/* Starts thread_count - 1 threads (the caller of trajd_pool_run is the last one); they are running
 * when this returns, with all signals blocked. thread_count 1..1024. */
enum trajd_status trajd_pool_create(uint32_t thread_count, const char *name,
                                    struct trajd_pool **pool, struct trajd_error *error);

/* The caller's thread counted. NULL pool: 1. */
uint32_t trajd_pool_thread_count(const struct trajd_pool *pool);

/* Calls slice(context, index) for every index in [0, slice_count), in any order, on any of the
 * threads; returns when all are over. Everything written by a slice is visible to the caller.
 * Callers on several threads take turns. NULL pool: runs inline. */
void trajd_pool_run(struct trajd_pool *pool, uint32_t slice_count,
                    void (*slice)(void *context, uint32_t index), void *context);

/* Callers that wait for their turn, at a glance: who runs many jobs in a row pauses for them, since
 * a turn goes to whoever comes first. */
uint32_t trajd_pool_waiting(const struct trajd_pool *pool);

/* Joins the threads and clears the caller's pointer. NULL is fine. */
void trajd_pool_destroy(struct trajd_pool **pool);

#ifdef __cplusplus
}
#endif
#endif
