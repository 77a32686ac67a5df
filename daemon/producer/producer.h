/* Produces one feed's batches. A thread takes free slots, fills each with the next batch that a job
 * needs, and publishes them.
 *
 *   take (slot, epoch, position) -> sampler -> cache: rows pinned -> request -> kernels -> slot ->
 *     publish */
#ifndef TRAJD_PRODUCER_PRODUCER_H
#define TRAJD_PRODUCER_PRODUCER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "daemon/cache/dataset.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "daemon/server/server.h"
#include "daemon/stats/stats_service.h"
#include "kernels/pool.h"

struct trajd_producer;
struct trajd_gpu;
struct trajd_mixture_plan;

struct trajd_producer_options {
    const char *name; /* of the feed, as OPEN names it */
    /* not NULL: this feed is another instance, with its own ring, of the feed with this name */
    const char *instance_of;
    /* owned by the producer after a successful create where owns_spec, else borrowed */
    struct trajd_window_spec *spec;
    bool owns_spec;
    /* no OPEN finds the feed until trajd_server_change shows it */
    bool is_hidden;
    /* the text that a job sent and that `spec` was read from, copied; NULL: none */
    const char *text;
    /* [spec->member_count], of spec->members; must outlive the producer */
    struct trajd_dataset *const *datasets;
    /* [spec->member_count]: the most quarantined episodes of each dataset; -1: any number. NULL:
     * any number */
    const int64_t *quarantine_at_most;
    /* set to true where one of them has more: the feed is refused with TRAJD_ERR_DATA; or NULL */
    bool *is_refused;
    const struct trajd_tuning *tuning; /* of the kernels, or NULL; must outlive the producer */
    /* shared with other producers; NULL: the producer's thread alone */
    struct trajd_pool *pool;
    /* NULL: only plans, and serves nothing (--check) */
    struct trajd_server *server;
    /* without a server: the most values of which statistics are computed, to warn of columns that
     * hardly vary */
    uint64_t most_check_values;
    const char *journal_directory; /* or NULL */
    uint32_t max_credit;
    /* memory.rings allows so many bytes, of which other rings use so many */
    uint64_t rings_limit_bytes, rings_used_bytes;
    struct trajd_stats_service *stats_service; /* must outlive the producer */
    /* of the feed that spec->statistics_from names; NULL: there is none */
    const struct trajd_window_spec *statistics_spec;
    struct trajd_dataset *statistics_dataset; /* the first one of that feed */
    /* the GPU on which and in whose memory batches are made; must outlive the producer. NULL:
     * batches are made by the CPU in host memory */
    struct trajd_gpu *gpu;
    bool is_unfinished; /* pictures are written as frames of u8, which the workers finish */
    /* called on the producer's thread, which then ends, when the GPU has failed */
    void (*gpu_lost)(void *context);
    void *context;
    const struct trajd_log *log;
};

/* Plans the feed, computes the statistics that it normalises by (not for --check), fills the cache
 * as far as the rows fit, adds the feed to the server and starts the thread. The caller destroys.
 * Blocks while statistics and rows are loaded. */
enum trajd_status trajd_producer_create(const struct trajd_producer_options *options,
                                        struct trajd_producer **producer,
                                        struct trajd_error *error);
/* Asks the thread to end and does not wait, so that several producers can end at once. */
void trajd_producer_stop(struct trajd_producer *producer);
/* Stops and joins the thread, removes the feed and frees everything. Call it before the server is
 * destroyed. NULL is fine. */
void trajd_producer_destroy(struct trajd_producer **producer);

struct trajd_feed *trajd_producer_feed(const struct trajd_producer *producer);
/* Returns the plan, for queries about the feed: its datasets, specification, samplers and targets
 * do not change while the producer lives. Borrowed. */
const struct trajd_mixture_plan *trajd_producer_plan(const struct trajd_producer *producer);
struct trajd_stats_service *trajd_producer_stats_service(const struct trajd_producer *producer);
/* Returns the name of the feed whose windows give the statistics for `norm:`. */
const char *trajd_producer_norm_source(const struct trajd_producer *producer);
/* Returns the name of an output that both feeds have and normalise by different statistics of the
 * same dataset: of other episodes, or over other rows or windows. NULL: there is no such output. */
const char *trajd_producer_norm_differs(const struct trajd_producer *a,
                                        const struct trajd_producer *b);
const char *trajd_producer_name(const struct trajd_producer *producer);
struct trajd_window_spec *trajd_producer_spec(const struct trajd_producer *producer);
const char *trajd_producer_text(const struct trajd_producer *producer);
/* Returns the bytes of host memory that count towards memory.rings: the ring, or, where the ring
 * lies on a GPU, the pinned buffers of streamed rows. UINT64_MAX on overflow. */
uint64_t trajd_producer_ring_bytes(const struct trajd_producer *producer);
struct trajd_gpu *trajd_producer_gpu(const struct trajd_producer *producer);
bool trajd_producer_is_unfinished(const struct trajd_producer *producer);
/* Returns the heartbeat of the producer's thread. */
const struct trajd_heartbeat *trajd_producer_heartbeat(const struct trajd_producer *producer);

/* Writes the feed in words: one line for windows and for each output with its source, clock, kind,
 * grid, type and shape. */
void trajd_producer_report(const struct trajd_producer *producer, FILE *out);
/* Writes the feed as an object with its datasets and counters, an element of an array. */
void trajd_producer_describe(struct trajd_producer *producer, struct trajd_json *json);

#endif
