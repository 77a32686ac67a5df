/* One feed's production: a thread that takes free slots in order of positions, has them filled,
 * publishes them.
 *
 *   take (slot, epoch, position) -> sampler -> store: rows pinned -> request -> kernels -> slot ->
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

struct trajd_feeder;
struct trajd_gpu;
struct trajd_mixture_plan;

struct trajd_feeder_options {
    const char *name; /* of the feed, as OPEN names it */
    /* or NULL: of the feed that it is another production of, with a ring of its own */
    const char *instance_of;
    /* owned by the feeder from a successful create on, if owns_spec */
    struct trajd_window_spec *spec;
    bool owns_spec;
    /* its feed is found by nobody until trajd_server_change shows it */
    bool is_hidden;
    /* copied: what the specification was read from, if a job sent it; else NULL */
    const char *text;
    /* [spec->part_count], of spec->parts; must outlive the feeder */
    struct trajd_dataset *const *datasets;
    const struct trajd_tuning *tuning; /* of the kernels, or NULL; must outlive the feeder */
    /* shared with other feeders; NULL: the feeder's thread alone */
    struct trajd_pool *pool;
    /* NULL: nothing is served, the plan is only made (--check) */
    struct trajd_server *server;
    const char *journal_directory; /* or NULL */
    uint32_t max_credit;
    uint64_t rings_left_bytes;               /* of host memory, which its ring must fit */
    struct trajd_statistician *statistician; /* must outlive the feeder */
    /* of the feed that spec->statistics_from names, and its dataset; NULL: there is none */
    const struct trajd_window_spec *statistics_spec;
    struct trajd_dataset *statistics_dataset; /* its first one */
    /* NULL: batches are made on the CPU, in host memory; else there, and it outlives the feeder */
    struct trajd_gpu *gpu;
    /* the GPU has failed; on the feeder's thread, which ends */
    void (*gpu_lost)(void *context);
    void *context;
    const struct trajd_log *log;
};

/* Plans, sizes and adds the feed, computes statistics that it normalises by (not for --check),
 * fills the store as far as it fits, starts the thread. Blocks for as long as that takes. */
enum trajd_status trajd_feeder_create(const struct trajd_feeder_options *options,
                                      struct trajd_feeder **feeder, struct trajd_error *error);
/* Asks the thread to end, without waiting: for stopping several at once. */
void trajd_feeder_stop(struct trajd_feeder *feeder);
/* Stops and joins the thread, removes the feed, frees all. Before the server is destroyed. NULL is
 * fine. */
void trajd_feeder_destroy(struct trajd_feeder **feeder);

struct trajd_feed *trajd_feeder_feed(const struct trajd_feeder *feeder);
/* What does not change while the feeder lives: datasets, specification, samplers, targets; for
 * questions about the feed. */
const struct trajd_mixture_plan *trajd_feeder_plan(const struct trajd_feeder *feeder);
struct trajd_statistician *trajd_feeder_statistician(const struct trajd_feeder *feeder);
/* The feed whose windows its statistics for `norm:` are of. */
const char *trajd_feeder_norm_source(const struct trajd_feeder *feeder);
/* An output that both normalise by statistics of their own windows of one dataset, which are not
 * the same windows; else NULL. */
const char *trajd_feeder_norm_differs(const struct trajd_feeder *a, const struct trajd_feeder *b);
const char *trajd_feeder_name(const struct trajd_feeder *feeder);
struct trajd_window_spec *trajd_feeder_spec(const struct trajd_feeder *feeder);
const char *trajd_feeder_text(const struct trajd_feeder *feeder);
/* Of host memory, as memory.rings counts: where the ring lies on a GPU, the pinned room for rows
 * that come along batch by batch. */
uint64_t trajd_feeder_ring_bytes(const struct trajd_feeder *feeder);
struct trajd_gpu *trajd_feeder_gpu(const struct trajd_feeder *feeder);
/* The thread's. */
const struct trajd_watch *trajd_feeder_watch(const struct trajd_feeder *feeder);

/* The feed in words: windows, outputs with source, clock, kind, grid, type, shape. One line each,
 * to `out` (with `json`: one object). */
void trajd_feeder_describe(const struct trajd_feeder *feeder, FILE *out, bool json);

#endif
