/* libtrajd: the worker's side of a trajd feed. C11 and C++17. Needs neither CUDA nor HDF5.
 *
 *     struct trajd_client *client;
 *     struct trajd_batch *batch;
 *     struct trajd_error error;
 *     trajd_client_connect(&(struct trajd_connect_options){.endpoint = "/run/trajd/main"}, &client,
 *                          &error);
 *     trajd_client_open(client, &(struct trajd_open_options){.feed = "train"}, &error);
 *     while (trajd_client_next(client, -1, &batch, &error) == TRAJD_OK) {
 *         const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
 *         ...                                     // read actions->data, [B, T, D]
 *         trajd_batch_release(&batch);
 *     }
 *     trajd_client_close(&client);
 *
 * B is the number of rows of a batch that this worker gets, T the number of steps of a window, D
 * the number of features of a step. Functions that return enum trajd_status return TRAJD_OK or the
 * status of the error, and fill *error; `error` may be NULL.
 *
 * Memory. The tensors of a batch are the daemon's shared memory itself. Their content does not
 * change until the batch is released, even if the daemon dies. A remote daemon (tcp://HOST:PORT)
 * sends the rows of this worker instead, and the tensors are memory of this process: one buffer for
 * each batch that credit allows, and one more.
 *
 * Lost daemons. A local daemon's death is noticed at once. A remote daemon counts as gone when it
 * could not be reached for as long as it waits for silent workers (worker_timeout in its
 * configuration, 10 s by default); a shorter interruption has no effect. With `reconnect`, open,
 * status, ask and checkpoint survive the death: libtrajd sends the request again when the daemon is
 * back, and the feed is open again where the request is about it. A daemon that is away for longer
 * than `away_ms` counts as lost: all calls return TRAJD_ERR_CLOSED from then on. The message of a
 * TRAJD_ERR_TIMEOUT says whether the daemon was gone or did not answer. Without `reconnect` these
 * calls return TRAJD_ERR_CLOSED at once.
 *
 * Threads. One thread at a time may call connect, open, feed_info, next, status, ask, checkpoint,
 * is_connected, poll_fd and close. Any thread may call gpu_uuid and ring_drop. Any thread may call
 * interrupt, the functions that read a batch, and done, use_stream, release and abandon, at any
 * time. The library has one thread of its own for each connection. It sends releases and keeps the
 * connection while no other thread is in a call.
 *
 * Signals. The library's thread blocks all signals. No signal handler is installed.
 *
 * Fork. A client cannot be used in a child made by fork after connect: calls there return
 * TRAJD_ERR_ARGUMENT or do nothing. The session ends with the process that connected, even if its
 * children live on.
 *
 * GPUs. libcuda is loaded when a feed is first opened on a GPU. A batch on a GPU is given back
 * after its release, as soon as all streams named by trajd_batch_use_stream have finished the work
 * they were given before the release. The library's thread queries these streams; no call waits for
 * them. Releases on a GPU are sent together: half of the credit at a time, earlier when no other
 * batch is at hand, and after 0.1 s at the latest.
 *
 * ABI. Structs passed in grow only at their end, and zero is the default of every member. */
#ifndef TRAJD_H
#define TRAJD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_TENSOR_RANK_LIMIT 8

struct trajd_client;
struct trajd_batch;
struct trajd_ring;

/* All texts are copied. */
struct trajd_connect_options {
    /* the daemon's runtime directory, or tcp://HOST:PORT; NULL: $TRAJD_ENDPOINT if it is set, else
     * /run/trajd/main */
    const char *endpoint;
    const char *client_name; /* shown by trajctl status; NULL: the name of the program */
    uint32_t timeout_ms;     /* how long connect waits for a daemon; 0: 10,000 */
    /* true: after the daemon's death next() waits for its return, and goes on with the next batch;
     * the other calls wait for it, too, within their timeout_ms. false: TRAJD_ERR_CLOSED */
    bool reconnect;
    /* true: next() does not count the previous batch as worked on; only trajd_batch_done and
     * trajd_batch_release do */
    bool explicit_done;
    /* Calls that wait call it in the caller's thread, at most every 50 ms, and after each signal.
     * Returns true to end the wait with TRAJD_ERR_TIMEOUT. It must not call the client. NULL: none.
     */
    bool (*interrupted)(void *context);
    void *context; /* passed to `interrupted` and `notice` */
    /* for tcp:// endpoints only: */
    /* the key file that `trajctl keygen DIR --client NAME` made; NULL: no encryption, allowed only
     * for a daemon on this machine */
    const char *key_file;
    const char *server_key; /* the daemon's public key, 40 characters; NULL: the one in key_file */
    /* With `reconnect`: how long a daemon may be away, or refuse to open the feed again, until the
     * calls that wait for it return TRAJD_ERR_CLOSED; 0: 600,000 */
    uint32_t away_ms;
    /* next() calls it in the caller's thread when the daemon says whom it waits for: which rank of
     * mode shard died, and that it is back. wait_ms: for how long at most; 0: it waits no more, or
     * without a limit. It must not call the client. NULL: none. */
    void (*notice)(void *context, const char *text, uint32_t wait_ms);
};

/* How the workers of a job divide its batches. */
enum trajd_mode {
    TRAJD_MODE_QUEUE = 0, /* each batch goes to the next worker that is free */
    TRAJD_MODE_SHARD = 1, /* rank r of world size W gets its rows of every global batch */
    TRAJD_MODE_SHARE = 0, /* the name of TRAJD_MODE_QUEUE in 0.1.0 */
};

enum trajd_unfinished {
    TRAJD_FINISHED = 0,          /* no: the daemon does */
    TRAJD_UNFINISHED = 1,        /* if other workers of the job do */
    TRAJD_RATHER_UNFINISHED = 2, /* yes, unless other workers of the job do not */
};

/* All texts and arrays are copied. */
struct trajd_open_options {
    /* exactly one of `feed` and `spec` is given */
    const char *feed; /* the name of a feed in the daemon's configuration */
    const char *spec; /* a feed as YAML or JSON text, as it would stand under `feeds: NAME:` */
    const char *job;  /* workers with the same job share its batches; NULL: "" */
    enum trajd_mode mode;
    uint32_t rank, world; /* in mode shard: rank below world; world 0 means 1 */
    /* The most batches that may be held or on their way to this worker. At least 2; 0: three quarters of
     * the slots of the ring, at least 4 if there are so many. The daemon grants at most all slots,
     * and at most limits.credit of its configuration. In mode queue the next batch goes to the worker
     * that holds the fewest. */
    uint32_t credit;
    uint64_t epoch;
    /* position of the first window; not 0 when a job that was stopped resumes */
    uint64_t next;
    uint64_t fingerprint; /* refuses any other dataset or window specification; 0: accepts any */
    /* 0: 60,000, because a dataset may have to be indexed first. It does not end while the daemon
     * waits for workers of an earlier run of the job (rejoin_wait in its configuration). */
    uint32_t timeout_ms;
    /* In mode shard on several nodes: the ranks whose workers attach to this daemon, in ascending
     * order, `rank` included, the same list in all of them. The daemon makes only their rows. NULL:
     * all ranks attach to this daemon. */
    const uint32_t *local_ranks;
    uint32_t local_rank_count; /* at most 512 */
    /* In mode queue: the token of trajd_client_checkpoint in the same epoch. The job goes on with
     * exactly the windows that were not DONE at the checkpoint. All workers of the job pass the
     * same token. NULL: none. */
    const void *resume;
    size_t resume_size_bytes;
    /* The UUID of a GPU, "GPU-..." (see trajd_gpu_uuid): batches are made in its memory, and the
     * data of tensors are addresses in this process's primary context. Where that is impossible the
     * feed is opened in host memory, and trajd_feed_info.gpu_refusal says why. NULL: host memory.
     */
    const char *gpu;
    /* In mode shard with `gpu`: the ranks whose workers read on that GPU, in ascending order,
     * `rank` included, the same list in all of them. While batches are on the GPU they replace
     * local_ranks: the daemon makes only their rows there. NULL: local_ranks. */
    const uint32_t *gpu_ranks;
    uint32_t gpu_rank_count; /* at most 512 */
    /* Whether this worker finishes images itself (trajd_tensor.finish). The daemon decides: all
     * workers of a job get the same form, and a daemon before 0.2.0 always finishes them. */
    enum trajd_unfinished unfinished;
};

/* The open feed. Positions and lengths count windows over all ranks. */
struct trajd_feed_info {
    uint32_t global_batch;         /* rows of a batch over all ranks */
    uint32_t row_begin, row_count; /* this worker's rows of it */
    uint32_t credit;               /* as granted */
    uint64_t epoch;
    uint64_t next;          /* position at which delivery began */
    uint64_t epoch_length;  /* windows that an epoch delivers */
    uint64_t window_count;  /* windows of an epoch, before `tail` */
    uint64_t dropped_count; /* windows left out at the end of an epoch */
    uint64_t fingerprint, seed;
    uint32_t tensor_count;
    const char *gpu;         /* UUID of the GPU that has the batches; NULL: host memory */
    int gpu_ordinal;         /* the CUDA device ordinal of that GPU in this process */
    const char *gpu_refusal; /* why a requested GPU is not used; else NULL */
    /* A digest of all scales and offsets. 1: nothing is normalised. 0: a daemon of 0.1.0, which does
     * not say. A job that resumes with equal fingerprints and another digest gets other values. */
    uint64_t norm_digest;
    /* Episodes of the feed's datasets. A file that gives no episode counts as one. All are 0 if the
     * daemon has version 0.1.0. */
    uint32_t episodes_found;
    uint32_t episodes_kept;
    uint32_t episodes_quarantined; /* left out: they cannot be read, or break a rule */
    uint32_t episodes_used;        /* kept ones of which the feed has windows */
    /* why the first of them are quarantined: file, episode, array, rule */
    uint32_t quarantine_reason_count;
    const char *const *quarantine_reasons;
    /* what else to know about the feed's data, such as a fast stream on a slow grid */
    uint32_t warning_count;
    const char *const *warnings;
    /* A digest of how images are made: colour, flip, decoder, crop, size, augmentation. 1: there are
     * none. 0: a daemon of 0.1.0, which does not say. It is not part of the fingerprint: a job that
     * resumes with another one gets the same windows in the same order with other images. So does
     * a job whose daemon was started again with another configuration: shapes may then change from one
     * batch to the next. */
    uint64_t values_digest;
};

/* How a worker finishes images that come as u8 with the channels last: value * scale + shift of the
 * channel, a product and a sum that are each rounded to float32, then rounded to `dtype`. */
struct trajd_finish {
    enum trajd_dtype dtype;
    bool is_planes;         /* then the channels come before height and width */
    uint32_t channel_count; /* 0: the values stay; else the last dimension, or 1 if there is none */
    float scale[4], shift[4];
};

/* Dense, in C order. */
struct trajd_tensor {
    /* "obs/robot0_eef_pos", its mask "obs/robot0_eef_pos.mask", "window_id", ... */
    const char *name;
    const char *role; /* "obs", "action", "next", "goal", "ids", "mask", "augment" or "missing" */
    const char *of;   /* for the last three roles: the name of the output; else NULL */
    enum trajd_dtype dtype;
    uint32_t rank;                           /* number of dimensions, at least 1 */
    uint64_t shape[TRAJD_TENSOR_RANK_LIMIT]; /* shape[0] is B */
    int64_t strides_bytes[TRAJD_TENSOR_RANK_LIMIT];
    void *data; /* read-only unless trajd_batch_is_writable; on a GPU a device address */
    const struct trajd_finish *finish; /* NULL: finished; see trajd_open_options.unfinished */
};

struct trajd_batch_info {
    uint64_t epoch;
    uint64_t position;             /* of the first window of the global batch */
    uint32_t row_begin, row_count; /* this worker's rows of the global batch */
    uint64_t ready_ns;             /* CLOCK_MONOTONIC of the daemon's machine when it was ready */
    uint64_t sequence;             /* counts the batches of a session, from 1 */
};

/* Connects to a daemon. `options` NULL: all defaults. The caller closes *client.
 * TRAJD_ERR_TIMEOUT: no daemon answers, or `interrupted` returned true; TRAJD_ERR_UNSUPPORTED: the
 * daemon has another protocol version; TRAJD_ERR_ARGUMENT: a malformed endpoint or a missing
 * key. */
enum trajd_status trajd_client_connect(const struct trajd_connect_options *options,
                                       struct trajd_client **client, struct trajd_error *error);

/* Opens a feed, or another epoch of the open feed. Batches of an epoch that has not ended are given
 * back as not worked on, even if the new OPEN is refused; batches that the caller holds stay
 * readable. While other workers have not seen the end of their epoch, open tries again until
 * timeout_ms is over.
 * TRAJD_ERR_ARGUMENT: wrong options; TRAJD_ERR_NOT_FOUND: no such feed; TRAJD_ERR_BUSY: the feed is
 * still used in another epoch or job; TRAJD_ERR_TIMEOUT: no reply; TRAJD_ERR_CLOSED: the daemon is
 * gone. */
enum trajd_status trajd_client_open(struct trajd_client *client,
                                    const struct trajd_open_options *options,
                                    struct trajd_error *error);

/* Returns the open feed's description, valid until the next open or close. NULL before the first
 * open. */
const struct trajd_feed_info *trajd_client_feed_info(const struct trajd_client *client);

/* Waits for the next batch of this worker. The caller releases *batch. Without explicit_done the
 * batch returned before counts as worked on. timeout_ms below 0: waits without a limit; 0: does not
 * wait.
 *   TRAJD_END_OF_EPOCH   the epoch has ended; returned again until the next open
 *   TRAJD_ERR_TIMEOUT    no batch in time, or interrupted
 *   TRAJD_ERR_BUSY       the caller holds as many batches as its credit allows: release one
 *   TRAJD_ERR_CLOSED     the daemon is gone and `reconnect` is false, or it was away for away_ms;
 *                        or it closed the feed for
 *                        this worker, because a rank of mode shard was away for rank_timeout (the
 *                        message names the rank): open again
 *   TRAJD_ERR_DATA       the batch could not be made; the message names file and row. The next call
 *                        goes on with the batch after it
 *   TRAJD_ERR_ARGUMENT   no feed is open */
enum trajd_status trajd_client_next(struct trajd_client *client, int timeout_ms,
                                    struct trajd_batch **batch, struct trajd_error *error);

/* Returns a descriptor that is readable while next(client, 0) would return anything other than
 * TRAJD_ERR_TIMEOUT. Owned by the client: poll it, but do not read or close it. */
int trajd_client_poll_fd(struct trajd_client *client);

/* Returns true if there is a session with a daemon, as far as this process knows. Does not
 * block. */
bool trajd_client_is_connected(struct trajd_client *client);

/* Ends a next() in another thread, which returns TRAJD_ERR_TIMEOUT. Any thread; async-signal-safe.
 */
void trajd_client_interrupt(struct trajd_client *client);

/* Writes the daemon's status as a JSON document. The caller frees *json with free().
 * timeout_ms 0: 10,000. */
enum trajd_status trajd_client_status(struct trajd_client *client, uint32_t timeout_ms, char **json,
                                      struct trajd_error *error);

/* A query about a feed (ASK). proto/PROTOCOL.md lists the questions, the members that each uses,
 * and the documents that answer them. */
struct trajd_question {
    const char *what; /* "episodes", "explain", ... */
    const char *name; /* or NULL */
    uint64_t window;
    uint64_t first;   /* in answers of several pages: the number of the page's first item */
    uint32_t count;   /* the most items of a page; 0: as many as one message holds */
    uint32_t feed_id; /* 0: the open feed; else a feed's number in the status */
    uint64_t pass;    /* of "explain": the pass over the dataset for which goals are drawn */
};
/* Sends a question and waits for the answer, a JSON document. The caller frees *json with free().
 * timeout_ms 0: 10,000. TRAJD_ERR_ARGUMENT: no such question, or no feed is open;
 * TRAJD_ERR_NOT_FOUND: no such window, name or feed; TRAJD_ERR_BUSY: too many questions of other
 * workers wait, try again. */
enum trajd_status trajd_client_ask(struct trajd_client *client,
                                   const struct trajd_question *question, uint32_t timeout_ms,
                                   char **json, struct trajd_error *error);

/* Writes a token for trajd_open_options.resume. It records which windows of the epoch all workers
 * of a queue job together have finished. The caller frees *token with free(). The token does not say
 * which statistics normalise the feed and how its images are made: keep norm_digest and
 * values_digest of trajd_feed_info beside it, and compare them with those of the feed that goes on.
 * A batch that this worker still holds counts only after
 * trajd_batch_done. timeout_ms 0: 5,000. TRAJD_ERR_ARGUMENT: no feed is open, or it is open in mode
 * shard, where epoch and position are enough to go on. */
enum trajd_status trajd_client_checkpoint(struct trajd_client *client, uint32_t timeout_ms,
                                          void **token, size_t *size_bytes,
                                          struct trajd_error *error);

/* Ends the session and frees the client. Clears the pointer; NULL is fine. Waits up to a second for
 * the daemon to receive the last releases, and up to another second for the GPU streams of released
 * batches. If the caller still holds batches it returns at once: they stay readable, and the
 * session ends after the last of them is released. */
void trajd_client_close(struct trajd_client **client);

/* The functions below take a batch that is not released (except ring_drop and gpu_uuid). Any
 * thread. */
void trajd_batch_get_info(const struct trajd_batch *batch, struct trajd_batch_info *info);
uint32_t trajd_batch_tensor_count(const struct trajd_batch *batch);
/* Return NULL if there is no such tensor. Owned by the batch. */
const struct trajd_tensor *trajd_batch_tensor(const struct trajd_batch *batch, uint32_t index);
const struct trajd_tensor *trajd_batch_find(const struct trajd_batch *batch, const char *name);

struct trajd_ring_info {
    void *base;
    uint64_t size_bytes;
    bool writable;
};
/* Returns true if the caller may write to the tensors. If it returns false, other jobs read the
 * same memory, and a write would crash this process. */
bool trajd_batch_is_writable(const struct trajd_batch *batch);
/* Returns the mapped ring that contains the batch, for registering it with a device. The ring stays
 * mapped until the caller drops it. This does not keep the batch: its slot can be reused after the
 * release. NULL: the batch is on a GPU or came from a remote daemon, or memory is out. */
struct trajd_ring *trajd_batch_hold_ring(const struct trajd_batch *batch,
                                         struct trajd_ring_info *info);
/* Clears the pointer; NULL is fine. */
void trajd_ring_drop(struct trajd_ring **ring);

/* Returns the number by which this process counts the GPU that has the batch. Below 0: host memory.
 */
int trajd_batch_gpu(const struct trajd_batch *batch);
/* Writes the UUID of the GPU that this process counts as `ordinal`. TRAJD_ERR_UNSUPPORTED: libcuda
 * cannot be loaded; TRAJD_ERR_NOT_FOUND: there are fewer GPUs. */
enum trajd_status trajd_gpu_uuid(int ordinal, char uuid[48], struct trajd_error *error);
/* Names a stream whose work reads a batch on a GPU: work that it has been given, or will be given
 * before the release. `stream` is a CUstream or cudaStream_t of the primary context, 1 the legacy
 * default stream, 2 the calling thread's default stream. The stream must exist until the release.
 * If a graph is being captured on it at the release, it must exist until the capture ends; replays
 * of the graph are not waited for, so it must not read the memory of batches. A batch without
 * streams goes back at its release. Does nothing in host memory.
 * TRAJD_ERR_MEMORY: 8 streams are named already. */
enum trajd_status trajd_batch_use_stream(struct trajd_batch *batch, uintptr_t stream,
                                         struct trajd_error *error);

/* Counts the batch as worked on: it is not delivered again, whichever process dies. The memory
 * stays leased. Any thread. */
void trajd_batch_done(struct trajd_batch *batch);
/* Gives the memory back, and counts the batch as worked on. Any thread. Clears the pointer; NULL is
 * fine. */
void trajd_batch_release(struct trajd_batch **batch);
/* Drops a batch that was fetched ahead and not worked on, right before trajd_client_close: its
 * windows go back as not DONE when the session ends. Any thread. Clears the pointer; NULL is
 * fine. */
void trajd_batch_abandon(struct trajd_batch **batch);

#ifdef __cplusplus
}
#endif
#endif
