/* Production on a GPU. Rows are resident there or streamed; several batches are under way at once.
 *
 *   producer's thread:  take a slot -> windows -> block of arrays, ids --copies--> prepared
 *   launching thread:   prepared -> launch, record an event -> event has passed -> publish: READY
 *
 * The number of free slots and of batches (TRAJD_GPU_MAX_BATCHES) limits how many are under way.
 * Batches are published in the order in which their slots were taken. No thread blocks on the GPU;
 * both poll events. A slot is published after the stream has finished its batch, so a worker may
 * read it at once, from any stream of any process.
 *
 * Slots that come back together are filled in one burst with consecutive launches: this costs one
 * time slice on a GPU that training uses, too. */
#ifndef TRAJD_PRODUCER_PRODUCER_GPU_H
#define TRAJD_PRODUCER_PRODUCER_GPU_H

#include "daemon/producer/producer_internal.h"

/* Makes the ring, resident rows and requests of a producer whose plan, schema and members are
 * ready, and starts the launching thread. Sets producer->on_gpu, which the caller destroys also
 * after an error. TRAJD_ERR_UNSUPPORTED: no CUDA kernel serves the feed. TRAJD_ERR_MEMORY: over the
 * GPU's budgets. */
enum trajd_status trajd_producer_gpu_create(struct trajd_producer *producer, struct trajd_gpu *gpu,
                                            struct trajd_error *error);
/* Stops the launching thread and frees everything. The feed must have been removed before.
 * producer->on_gpu may be NULL. */
void trajd_producer_gpu_destroy(struct trajd_producer *producer);
/* Returns the ring's memory for trajd_server_add_feed. Borrowed. */
const struct trajd_feed_memory *trajd_producer_gpu_memory(const struct trajd_producer *producer);
/* Runs the producer's thread until the feed is closed or the GPU fails. After a failure it calls
 * `gpu_lost` of the options. */
void *trajd_producer_gpu_run(void *producer);

#endif
