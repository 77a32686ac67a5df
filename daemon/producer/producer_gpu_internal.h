/* Between a GPU producer's files: its life (producer_gpu.c), its threads (producer_gpu_run.c), a
 * batch's rows, requests and launches (producer_gpu_batch.c). */
#ifndef TRAJD_PRODUCER_PRODUCER_GPU_INTERNAL_H
#define TRAJD_PRODUCER_PRODUCER_GPU_INTERNAL_H

#include "daemon/producer/producer_gpu.h"
#include "daemon/producer/gpu.h"
#include "daemon/producer/gpu_streamed_rows.h"
#include "daemon/producer/gpu_request.h"

#define TRAJD_GPU_MAX_BATCHES 8

/* A batch between its launch and its end. */
struct trajd_gpu_batch {
    struct trajd_fill fill;
    struct trajd_error error; /* of a batch that could not be made; OK: none */
    uint8_t *staging;         /* pinned: the block of arrays, and the ids behind it */
    uint8_t *block;           /* the block on the GPU */
    /* [parts]: prepared, not launched yet; NULL: none */
    const struct trajd_resample_request **requests;
    struct trajd_device_event *finished;
    /* rows of streams that are not resident: pinned, and on the GPU */
    uint8_t *rows_staging, *rows_block;
    struct trajd_device_event *copied; /* both blocks are there */
};

/* One dataset of the feed. */
struct trajd_gpu_member {
    struct trajd_gpu_request *request;
    const void **rows; /* [index episodes][entries], on the GPU */
    bool *unreadable;  /* [index episodes] */
    bool holds_rows;
    bool *held;                                    /* [entries]: resident */
    struct trajd_gpu_streamed_rows *streamed_rows; /* the others; NULL: none */
};

struct trajd_producer_gpu {
    struct trajd_gpu *gpu;
    struct trajd_device_stream *stream;
    void *slab;
    uint64_t slab_bytes;
    uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE];
    struct trajd_feed_memory memory;
    struct trajd_gpu_member *members; /* [plan->member_count] */
    uint64_t block_bytes, ids_offset, ids_bytes;
    uint32_t depth;   /* of batch in flight in use */
    uint8_t *staging; /* [depth][block_bytes + ids_bytes], pinned */
    void *blocks;     /* [depth][block_bytes], on the GPU */
    /* for rows that come batch by batch; 0 and NULL: all are resident */
    /* blocks go there beside the launches of the batch before */
    struct trajd_device_stream *copies;
    uint64_t rows_bytes;  /* of a batch in flight */
    uint8_t *rows_pinned; /* [depth][rows_bytes] */
    void *rows_memory;    /* likewise, on the GPU */
    struct trajd_gpu_batch batches[TRAJD_GPU_MAX_BATCHES];
    struct trajd_device_event *probe; /* of an idle GPU; the preparing thread's */
    bool probe_is_pending;            /* recorded, and not known to have passed */
    /* between the thread that prepares and the one that launches and publishes */
    pthread_t launcher;
    bool launcher_runs;    /* it is there */
    uint64_t launched;     /* its own; batch in flight n is batch in flight[n % depth] */
    pthread_mutex_t mutex; /* of the rest */
    pthread_cond_t changed;
    uint64_t prepared, published;
    bool is_ending; /* no more will be prepared */
    bool failed;    /* the GPU has, and `failure` says how */
    struct trajd_error failure;
};

/* What a member's streamed_rows rows need of a batch in flight: enough for one window of any episode,
 * and for most batches whole. Before the thread launcher_runs. */
uint64_t trajd_producer_gpu_rows_bytes(struct trajd_producer *producer, uint32_t member);
/* Gathers all that makes the batch in flight's batch and sends it there. Other than
 * TRAJD_ERR_DEVICE: this batch cannot be made. */
enum trajd_status trajd_producer_gpu_prepare(struct trajd_producer *producer,
                                             struct trajd_gpu_batch *gpu_batch,
                                             struct trajd_error *error);
/* Launches what was prepared and is not launched yet. */
enum trajd_status trajd_producer_gpu_launch(struct trajd_producer *producer,
                                            struct trajd_gpu_batch *gpu_batch,
                                            struct trajd_error *error);

/* The thread that launches and publishes. */
enum trajd_status trajd_producer_gpu_start(struct trajd_producer *producer,
                                           struct trajd_error *error);
/* What was prepared is published first. */
void trajd_producer_gpu_stop(struct trajd_producer_gpu *own);

#endif
