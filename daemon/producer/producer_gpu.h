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

#include "daemon/producer/gpu.h"
#include "daemon/producer/gpu_request.h"
#include "daemon/producer/gpu_streamed_rows.h"
#include "daemon/producer/producer_internal.h"

#define TRAJD_GPU_MAX_BATCHES 8

/* A batch that is being prepared, launched or executed. */
struct trajd_gpu_batch {
    struct trajd_fill fill;
    struct trajd_error error; /* why the batch could not be made; TRAJD_OK: it could */
    uint8_t *staging;         /* pinned: the block of arrays, followed by the ids */
    uint8_t *block;           /* the block on the GPU */
    /* [members]: prepared and not launched yet; NULL: none */
    const struct trajd_resample_request **requests;
    struct trajd_gpu_sends sends; /* prepared and not launched yet */
    struct trajd_device_event *finished;
    /* streamed rows: in pinned memory, and on the GPU */
    uint8_t *rows_staging, *rows_block;
    struct trajd_device_event *copied; /* both blocks are on the GPU */
};

/* One dataset of the feed. */
struct trajd_gpu_member {
    struct trajd_gpu_request *request;
    const void **rows; /* [index episodes][array_count]: addresses on the GPU */
    uint32_t array_count;
    /* [index episodes]: episodes whose rows cannot be read (bad_rows: keep): resident rows;
     * streamed rows of the batch that is being prepared */
    bool *unreadable, *lacking;
    bool holds_rows;
    bool *held;                                    /* [arrays]: resident */
    struct trajd_gpu_streamed_rows *streamed_rows; /* of the other arrays; NULL: none */
};

struct trajd_producer_gpu {
    struct trajd_arena arena; /* of all tables here, and of the members' requests and images */
    struct trajd_gpu *gpu;
    struct trajd_device_stream *stream;
    void *slab;
    uint64_t slab_bytes;
    uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE];
    struct trajd_feed_memory memory;
    struct trajd_gpu_member *members; /* [plan->member_count] */
    struct trajd_gpu_images *images;  /* gpu_images.h; NULL: the feed has none */
    uint64_t block_bytes, ids_offset, ids_bytes;
    uint32_t depth;   /* how many of `batches` are used */
    uint8_t *staging; /* [depth][block_bytes + ids_bytes], pinned */
    void *blocks;     /* [depth][block_bytes], on the GPU */
    /* for streamed rows; 0 and NULL where all rows are resident */
    struct trajd_device_stream *copies; /* copies blocks while an earlier batch is executed */
    uint64_t rows_bytes;                /* of one batch */
    uint8_t *rows_pinned;               /* [depth][rows_bytes], in pinned host memory */
    void *rows_memory;                  /* [depth][rows_bytes], on the GPU */
    struct trajd_gpu_batch batches[TRAJD_GPU_MAX_BATCHES];
    struct trajd_device_event *probe; /* checks an idle GPU; used by the preparing thread only */
    bool probe_is_pending;            /* recorded, and not known to have passed */
    pthread_t launcher;
    bool launcher_runs; /* the thread was started */
    /* held for the launches of a batch: both threads launch, and batches share the rows of transforms */
    pthread_mutex_t launching;
    uint64_t launched;     /* used by the launcher only; batch n is batches[n % depth] */
    pthread_mutex_t mutex; /* guards all members below */
    pthread_cond_t changed;
    uint64_t prepared, published; /* numbers of batches */
    bool is_ending;               /* no more batches will be prepared */
    bool failed;                  /* the GPU has failed, as `failure` says */
    struct trajd_error failure;
};

/* Returns true where an episode's rows cannot be read for this batch (bad_rows: keep). */
static inline bool trajd_gpu_member_lacks_rows(const struct trajd_gpu_member *member,
                                               uint32_t episode)
{
    return member->unreadable[episode] || member->lacking[episode];
}

/* Returns the resident rows of an episode, for a struct trajd_gpu_member; NULL: they cannot be read. */
static inline const void *const *trajd_gpu_member_rows(void *context, uint32_t episode)
{
    const struct trajd_gpu_member *member = context;

    return trajd_gpu_member_lacks_rows(member, episode)
               ? NULL
               : member->rows + (size_t)episode * member->array_count;
}

/* ---- producer_gpu.c ---- */

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
/* ---- producer_gpu_run.c: the two threads ---- */

/* Runs the producer's thread until the feed is closed or the GPU fails. After a failure it calls
 * `gpu_lost` of the options. */
void *trajd_producer_gpu_run(void *producer);
/* Starts the thread that launches and publishes. */
enum trajd_status trajd_producer_gpu_start(struct trajd_producer *producer,
                                           struct trajd_error *error);
/* Stops and joins that thread, which first publishes the batches that are prepared. */
void trajd_producer_gpu_stop(struct trajd_producer_gpu *own);

/* ---- producer_gpu_batch.c: rows, requests and launches of one batch ---- */

/* Returns how many bytes a batch needs for a member's streamed rows: enough for one window of any
 * episode, and for the whole of most batches. Call it before the threads start. */
uint64_t trajd_producer_gpu_rows_bytes(struct trajd_producer *producer, uint32_t member);
/* Gathers everything that the batch needs, and starts the copies of streamed rows. TRAJD_ERR_DEVICE: the
 * GPU has failed. Other errors: this batch cannot be made. */
enum trajd_status trajd_producer_gpu_prepare(struct trajd_producer *producer,
                                             struct trajd_gpu_batch *gpu_batch,
                                             struct trajd_error *error);
/* Makes the copies and launches the requests of the batch that are not under way yet. Does not
 * block. */
enum trajd_status trajd_producer_gpu_launch(struct trajd_producer *producer,
                                            struct trajd_gpu_batch *gpu_batch,
                                            struct trajd_error *error);

#endif
