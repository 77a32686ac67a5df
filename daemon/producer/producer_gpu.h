/* A producer's production on a GPU: rows that are resident there or come along, batches that are
 * born there, several under way at once.
 *
 *   take -> windows -> block of arrays, ids --copies--> prepared          (as many as slots and
 *     batch in flight allow)
 *                                launch, event -> event has passed -> publish: READY   (in the
 *                                  order of takes)
 *
 * The producer's thread prepares, a second one launches and publishes, which sends the batch: so
 * both go on while the other works. Nothing waits for the GPU but by asking events. A slot is
 * published when the stream has passed its batch, so whoever hears of it may read it at once, from
 * any stream of any process. Slots that come back together are filled in one burst, whose launches
 * stand one behind the other: one turn on a GPU that training uses, too. */
#ifndef TRAJD_PRODUCER_PRODUCER_GPU_H
#define TRAJD_PRODUCER_PRODUCER_GPU_H

#include "daemon/producer/producer_internal.h"

/* Ring, residents and requests of a producer whose plan, schema and parts are there; producer->gpu
 * on success. TRAJD_ERR_UNSUPPORTED: no kernel serves it; TRAJD_ERR_MEMORY: over the GPU's budgets.
 */
enum trajd_status trajd_producer_gpu_create(struct trajd_producer *producer, struct trajd_gpu *gpu,
                                            struct trajd_error *error);
/* After the feed was removed. NULL is fine. */
void trajd_producer_gpu_destroy(struct trajd_producer *producer);
/* What add_feed is told about the ring. */
const struct trajd_feed_memory *trajd_producer_gpu_memory(const struct trajd_producer *producer);
/* Where its batches lie; NULL: in host memory. */
const char *trajd_producer_gpu_uuid(const struct trajd_producer *producer);
/* The thread: until the feed is closed, or the GPU fails; then `gpu_lost` of the options is told.
 */
void trajd_producer_gpu_produce(struct trajd_producer *producer);

#endif
