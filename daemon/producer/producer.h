/* One feed's production: a thread that takes free slots in order of positions, has them filled,
 * publishes them.
 *
 *   take (slot, epoch, position) -> sampler -> cache: rows pinned -> request -> kernels -> slot ->
 *     publish */
#ifndef TRAJD_PRODUCER_PRODUCER_H
#define TRAJD_PRODUCER_PRODUCER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "daemon/cache/dataset.h"
#include "daemon/window/window_spec.h"
#include "daemon/server/server.h"
#include "daemon/stats/stats_service.h"
#include "kernels/pool.h"

struct trajd_producer;
struct trajd_gpu;
struct trajd_mixture_plan;

struct trajd_producer_options {
    const char *name; /* of the feed, as OPEN names it */
    /* or NULL: of the feed that it is another production of, with a ring of its own */
    const char *instance_of;
    /* owned by the producer from a successful create on, if owns_spec */
    struct trajd_window_spec *spec;
    bool owns_spec;
    /* its feed is found by nobody until trajd_server_change shows it */
    bool is_hidden;
    /* copied: what the specification was read from, if a job sent it; else NULL */
    const char *text;
    /* [spec->member_count], of spec->parts; must outlive the producer */
    struct trajd_dataset *const *datasets;
    const struct trajd_tuning *tuning; /* of the kernels, or NULL; must outlive the producer */
    /* shared with other producers; NULL: the producer's thread alone */
    struct trajd_pool *pool;
    /* NULL: nothing is served, the plan is only made (--check) */
    struct trajd_server *server;
    const char *journal_directory; /* or NULL */
    uint32_t max_credit;
    uint64_t rings_remaining_bytes;            /* of host memory, which its ring must fit */
    struct trajd_stats_service *stats_service; /* must outlive the producer */
    /* of the feed that spec->statistics_from names, and its dataset; NULL: there is none */
    const struct trajd_window_spec *statistics_spec;
    struct trajd_dataset *statistics_dataset; /* its first one */
    /* NULL: batches are made on the CPU, in host memory; else there, and it outlives the producer
     */
    struct trajd_gpu *gpu;
    /* the GPU has failed; on the producer's thread, which ends */
    void (*gpu_lost)(void *context);
    void *context;
    const struct trajd_log *log;
};

/* Plans, sizes and adds the feed, computes statistics that it normalises by (not for --check),
 * fills the cache as far as it fits, starts the thread. Blocks for as long as that takes. */
enum trajd_status trajd_producer_create(const struct trajd_producer_options *options,
                                        struct trajd_producer **producer,
                                        struct trajd_error *error);
/* Asks the thread to end, without waiting: for stopping several at once. */
void trajd_producer_stop(struct trajd_producer *producer);
/* Stops and joins the thread, removes the feed, frees all. Before the server is destroyed. NULL is
 * fine. */
void trajd_producer_destroy(struct trajd_producer **producer);

struct trajd_feed *trajd_producer_feed(const struct trajd_producer *producer);
/* What does not change while the producer lives: datasets, specification, samplers, targets; for
 * questions about the feed. */
const struct trajd_mixture_plan *trajd_producer_plan(const struct trajd_producer *producer);
struct trajd_stats_service *trajd_producer_stats_service(const struct trajd_producer *producer);
/* The feed whose windows its statistics for `norm:` are of. */
const char *trajd_producer_norm_source(const struct trajd_producer *producer);
/* An output that both normalise by statistics of their own windows of one dataset, which are not
 * the same windows; else NULL. */
const char *trajd_producer_norm_differs(const struct trajd_producer *a,
                                        const struct trajd_producer *b);
const char *trajd_producer_name(const struct trajd_producer *producer);
struct trajd_window_spec *trajd_producer_spec(const struct trajd_producer *producer);
const char *trajd_producer_text(const struct trajd_producer *producer);
/* Of host memory, as memory.rings counts: where the ring lies on a GPU, the pinned room for rows
 * that come along batch by batch. */
uint64_t trajd_producer_ring_bytes(const struct trajd_producer *producer);
struct trajd_gpu *trajd_producer_gpu(const struct trajd_producer *producer);
/* The thread's. */
const struct trajd_heartbeat *trajd_producer_heartbeat(const struct trajd_producer *producer);

/* The feed in words: windows, outputs with source, clock, kind, grid, type, shape. One line each,
 * to `out` (with `json`: one object). */
void trajd_producer_describe(const struct trajd_producer *producer, FILE *out, bool json);

#endif
