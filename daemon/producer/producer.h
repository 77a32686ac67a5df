/* Produces one feed's batches. A thread takes free slots, fills each with the next batch that a job
 * needs, and publishes them.
 *
 *   take (slot, epoch, position) -> sampler -> cache: rows pinned -> request -> kernels -> slot ->
 *     publish */
#ifndef TRAJD_PRODUCER_PRODUCER_H
#define TRAJD_PRODUCER_PRODUCER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/arena.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "daemon/cache/dataset.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "daemon/server/server.h"
#include "daemon/stats/stats_service.h"
#include "kernels/pool.h"

struct trajd_gpu;
struct trajd_mixture_plan;
struct trajd_producer_gpu;
struct trajd_producer_member;

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
    uint64_t rings_room_bytes;                 /* for a ring with more slots than the least */
    struct trajd_stats_service *stats_service; /* must outlive the producer */
    /* of the feed that spec->statistics_from names; NULL: there is none */
    const struct trajd_window_spec *statistics_spec;
    struct trajd_dataset *statistics_dataset; /* the first one of that feed */
    /* the GPU on which and in whose memory batches are made; must outlive the producer. NULL:
     * batches are made by the CPU in host memory */
    struct trajd_gpu *gpu;
    bool is_unfinished; /* images are written as frames of u8, which the workers finish */
    /* called on the producer's thread, which then ends, when the GPU has failed */
    void (*gpu_lost)(void *context);
    void *context;
    const struct trajd_log *log;
};

/* What a producer counts, for the status document. */
enum {
    TRAJD_PRODUCER_BATCHES,
    TRAJD_PRODUCER_WINDOWS,
    TRAJD_PRODUCER_FAILED,      /* batches that carry an error instead of rows */
    TRAJD_PRODUCER_WAIT_NS,     /* without a free slot or a job */
    TRAJD_PRODUCER_LOAD_NS,     /* waiting for rows from the row cache */
    TRAJD_PRODUCER_FRAMES_NS,   /* waiting for decoded images */
    TRAJD_PRODUCER_RESAMPLE_NS, /* in the kernels; on a GPU, of two threads: preparing, launching */
    TRAJD_PRODUCER_COUNTERS
};

/* How far production has looked ahead. */
struct trajd_producer_ahead {
    uint64_t run_id, epoch, until; /* `until`: a position */
};

/* One feed. The first members are constant after trajd_producer_create, for all to read; `plan` for
 * queries about the feed. */
struct trajd_producer {
    char *name, *text;
    struct trajd_window_spec *spec;
    struct trajd_mixture_plan *plan; /* constant once its normalisation is set */
    struct trajd_feed *feed;
    /* pointers that need not outlive the creation are not valid after it */
    struct trajd_producer_options options;
    struct trajd_heartbeat heartbeat; /* of the thread */

    /* of this folder alone */
    struct trajd_arena arena; /* of all tables here and of the members */
    bool norm_is_known;       /* the statistics that outputs are normalised by are set */
    struct trajd_mixture_batch *batch;
    struct trajd_producer_member *members; /* [plan->member_count] */
    struct trajd_feed_schema schema;
    uint32_t slot_count;
    pthread_t thread;
    bool running;
    bool stop;                                      /* atomic: asks the thread to end */
    struct trajd_window *next;                      /* [G]: windows of a batch that is prefetched */
    struct trajd_producer_ahead prefetched, wanted; /* rows, and frames */
    /* a batch that is made later, for its images; NULL: the feed has none */
    struct trajd_mixture_batch *ahead_batch;
    uint64_t counters[TRAJD_PRODUCER_COUNTERS]; /* atomic */
    /* why the last batch could not be made; TRAJD_OK: none failed. The threads of the producer write
     * it, and the status reads it. */
    pthread_mutex_t failure_mutex;
    struct trajd_error last_failure;
    bool is_hang_told;   /* by control: its workers know which mount does not answer */
    bool has_bad_frames; /* atomic: the first one that is masked was logged */
    uint64_t published_work_ns[TRAJD_WORK_COUNT]; /* what the batches up to the last one took */
    struct trajd_producer_gpu *on_gpu; /* production on options.gpu (producer_gpu.c), or NULL */
    uint64_t rings_remaining_bytes;    /* of memory.rings, when the producer was made */
    /* of memory.rings: pinned buffers for the streamed rows of production on a GPU */
    uint64_t pinned_bytes;
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

/* Returns the name of the feed whose windows give the statistics for `norm:`. */
const char *trajd_producer_norm_source(const struct trajd_producer *producer);
/* Returns the name of an output that both feeds have and normalise by different statistics of the
 * same dataset: of other episodes, or over other rows or windows. NULL: there is no such output. */
const char *trajd_producer_norm_differs(const struct trajd_producer *a,
                                        const struct trajd_producer *b);
/* Returns the bytes of host memory that count towards memory.rings: the ring, or, where the ring
 * lies on a GPU, the pinned buffers of streamed rows. UINT64_MAX on overflow. */
uint64_t trajd_producer_ring_bytes(const struct trajd_producer *producer);

/* Writes the feed in words: one line for windows and for each output with its source, clock, kind,
 * grid, type and shape. */
void trajd_producer_report(const struct trajd_producer *producer, FILE *out);
/* Writes the feed as an object with its datasets and counters, an element of an array. */
void trajd_producer_describe(struct trajd_producer *producer, struct trajd_json *json);

#endif
