/* libtrajd: a worker's side of a trajd feed. C11 and C++17; needs neither CUDA nor HDF5.
 *
 *     struct trajd_client *client;
 *     trajd_client_connect(&(struct trajd_connect_options){.endpoint = "/run/trajd/main"}, &client,
 *       &error);
 *     trajd_client_open(client, &(struct trajd_open_options){.feed = "train"}, &error);
 *     while (trajd_client_next(client, -1, &batch, &error) == TRAJD_OK) {
 *         const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
 *         ...                                     // read actions->data, [rows, T, ...]
 *         trajd_batch_release(&batch);
 *     }
 *
 * Memory: a batch's tensors are the daemon's shared memory itself; they stay as they are until the
 * batch is released, also after the daemon's death. A daemon elsewhere (tcp://HOST:PORT) sends the
 * rows of this worker along; everything here holds for it as well. The tensors are then this
 * process's own memory, a buffer for each batch that credit allows and one more. A daemon that
 * cannot be reached is gone after the time that it gives silent workers (its worker_timeout, 10 s);
 * a cut that is shorter is not noticed. Threads: one thread at a time may be in connect, open,
 * next, status, ask, close; release, done and all reading functions may be called from any thread
 * at any time. The library runs one thread of its own per connection, which sends releases and
 * keeps the connection while nobody is in next(). GPUs: libcuda is loaded when a feed is opened on
 * one, and not before. A batch there is given back when every stream that it was said to be used on
 * has passed what it was given until the release; that thread asks, nothing waits. They go back in
 * lots: half of what the credit allows at a time, sooner where nothing else is at hand, a tenth of
 * a second later at most. Signals: that thread blocks all; nothing here installs a handler. Fork: a
 * client must not be used in a child made after connect (calls return TRAJD_ERR_ARGUMENT there).
 * The child has no part in the session: it ends with the process that connected, whatever its
 * children do. ABI: structs passed in begin with what exists today and grow at the end; zero is
 * always the default. */
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

struct trajd_connect_options {
    /* the daemon's runtime directory, or tcp://HOST:PORT; NULL: $TRAJD_ENDPOINT, else
     * /run/trajd/main */
    const char *endpoint;
    const char *client_name; /* shown by trajctl status; NULL: the program's name */
    uint32_t timeout_ms;     /* to wait for a daemon; 0: 10,000 */
    /* true: after the daemon's death, next() waits for its return and goes on */
    bool reconnect;
    bool explicit_done; /* true: next() says no DONE; only trajd_batch_done and release do */
    /* NULL, or asked every 50 ms and after a signal by whatever waits (connect, open, next, status,
     * in the caller's own thread): true ends the wait with TRAJD_ERR_TIMEOUT. It must not call the
     * client. */
    bool (*interrupted)(void *context);
    void *context; /* of interrupted */
    /* Only for tcp:// endpoints: */
    /* of `trajctl keygen DIR --client NAME`; NULL: no CURVE, to this machine alone */
    const char *key_file;
    const char *server_key; /* the daemon's public key, 40 characters; NULL: as key_file says */
};

/* How the workers of a job divide its batches. */
enum trajd_mode {
    TRAJD_MODE_QUEUE = 0, /* each batch goes to the next worker that is free */
    TRAJD_MODE_SHARD = 1, /* rank r of W gets its rows of every global batch */
    TRAJD_MODE_SHARE = 0, /* the name of TRAJD_MODE_QUEUE in 0.1.0 */
};

struct trajd_open_options {
    const char *feed; /* a name in the daemon's config; or NULL with */
    const char *spec; /* a feed as YAML or JSON text, as it would stand under `feeds: NAME:` */
    const char *job;  /* NULL: "" */
    enum trajd_mode mode;
    uint32_t rank, world; /* shard; world 0 is 1 */
    /* batches that may be held or under way; 0: 4, with gpu 16; at least 2; no more is granted than
     * the ring has slots. Of workers that share a job each should ask for its share of the slots:
     * what one has is not another's */
    uint32_t credit;
    uint64_t epoch;
    uint64_t next;        /* position of the first window wanted: how a stopped job goes on */
    uint64_t fingerprint; /* refuse another dataset or window specification; 0: take any */
    uint32_t timeout_ms;  /* 0: 60,000 (a feed may have to be indexed first) */
    /* shard on several nodes: the ranks whose workers attach to this daemon, `rank` among them,
     * ascending; the same for all of them. Only their rows are produced here. None: all ranks are
     * here. */
    const uint32_t *local_ranks;
    uint32_t local_rank_count; /* at most 512 */
    /* share: what trajd_client_checkpoint gave; `epoch` must be the one that it is of. The job goes
     * on with exactly the windows that were not DONE then, whatever came after. All its workers
     * give the same. NULL: none. */
    const void *resume;
    size_t resume_size_bytes;
    /* Batches in the memory of that GPU ("GPU-" and its UUID, as trajd_gpu_uuid tells it), made
     * there and read there; tensors' data are then addresses of this process's primary context.
     * Where that cannot be they come in host memory, and feed_info says why. NULL: host memory. */
    const char *gpu;
    /* shard: the ranks whose workers are on that GPU, `rank` among them, ascending; the same for
     * all of them. They take the place of local_ranks while batches lie there: each GPU's
     * production makes the rows of its own ranks. None: local_ranks. */
    const uint32_t *gpu_ranks;
    uint32_t gpu_rank_count; /* at most 512 */
};

/* What OPENED said. Valid until the next open or close. */
struct trajd_feed_info {
    uint32_t global_batch;         /* G: rows of a batch over all ranks */
    uint32_t row_begin, row_count; /* this worker's rows of it */
    uint32_t credit;
    uint64_t epoch, next, epoch_length, window_count, dropped_count, fingerprint, seed;
    uint32_t tensor_count;
    const char *gpu; /* where the batches lie; NULL: in host memory */
    int gpu_ordinal; /* as this process counts it */
    /* a GPU was asked for, and this is why they do not lie there; else NULL */
    const char *gpu_refusal;
};

struct trajd_tensor {
    /* "obs/robot0_eef_pos", its mask "obs/robot0_eef_pos.mask", "window_id", ... */
    const char *name;
    const char *role; /* "obs", "action", "ids", "mask" */
    const char *of;   /* of a mask: the output it speaks of; else NULL */
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_TENSOR_RANK_LIMIT];        /* shape[0]: this worker's rows of this batch */
    int64_t strides_bytes[TRAJD_TENSOR_RANK_LIMIT]; /* dense, C order */
    /* writable unless the ring is shared among jobs */
    void *data;
};

struct trajd_batch_info {
    uint64_t epoch, position; /* of the global batch's first window */
    uint32_t row_begin, row_count;
    uint64_t ready_ns; /* CLOCK_MONOTONIC when the daemon had it ready */
    uint64_t sequence; /* of this session, from 1 */
};

/* Connects and says HELLO. TRAJD_ERR_TIMEOUT: no daemon there (the message names the socket);
 * TRAJD_ERR_UNSUPPORTED: another protocol. */
enum trajd_status trajd_client_connect(const struct trajd_connect_options *options,
                                       struct trajd_client **client, struct trajd_error *error);
/* Opens a feed, or another epoch of the one that is open. Batches of an epoch left early are given
 * back undone, also if the new one is refused; those the caller still holds stay readable. While
 * the feed is busy (others have not seen the end of their epoch) it is tried again, until
 * timeout_ms is over: then TRAJD_ERR_BUSY. */
enum trajd_status trajd_client_open(struct trajd_client *client,
                                    const struct trajd_open_options *options,
                                    struct trajd_error *error);
/* NULL before the first open. */
const struct trajd_feed_info *trajd_client_feed_info(const struct trajd_client *client);

/* The next batch of this worker. Says DONE for the one returned before, if the caller has not
 * (unless explicit_done was asked for). timeout_ms below 0: for ever, 0: do not wait. Other than
 * TRAJD_OK:
 *   TRAJD_END_OF_EPOCH   again and again until open
 *   TRAJD_ERR_TIMEOUT    nothing in time, or trajd_client_interrupt
 *   TRAJD_ERR_BUSY       the caller holds as many batches as it has credit: release one
 *   TRAJD_ERR_CLOSED     the daemon is gone, and no `reconnect`; or it has closed the feed for this
 *                        worker (shard: a rank
 *                        was away for the feed's rank_timeout; the message names it): open again
 *   TRAJD_ERR_DATA       this batch could not be made, file and row in the message; the next call
 *                        goes on
 *                        behind it */
enum trajd_status trajd_client_next(struct trajd_client *client, int timeout_ms,
                                    struct trajd_batch **batch, struct trajd_error *error);
/* A descriptor that is readable while next(client, 0) would return something other than a timeout.
 * Owned by the client. */
int trajd_client_poll_fd(struct trajd_client *client);
/* Whether a session of the daemon stands now, as far as this end has heard: nothing is waited for.
 */
bool trajd_client_is_connected(struct trajd_client *client);
/* Wakes a next() in another thread: it returns TRAJD_ERR_TIMEOUT. Safe in a signal handler. */
void trajd_client_interrupt(struct trajd_client *client);

/* The daemon's status as a JSON document, to be freed by the caller with free(). */
enum trajd_status trajd_client_status(struct trajd_client *client, uint32_t timeout_ms, char **json,
                                      struct trajd_error *error);

/* A question about a feed. What the members mean is up to `what`: proto/PROTOCOL.md has the
 * questions that daemons know, and the documents that answer them. */
struct trajd_question {
    const char *what; /* "episodes", "explain", ... */
    const char *name; /* or NULL */
    uint64_t window;
    uint64_t first;   /* of what is told page by page: the number of the first item */
    uint32_t count;   /* how many of them; 0: as many as one answer holds */
    uint32_t feed_id; /* 0: the open feed; else one that the status names */
};
/* Asks, and waits for the answer: a JSON document, to be freed by the caller with free(). While a
 * daemon is away and `reconnect` is set it waits for its return. TRAJD_ERR_ARGUMENT: no such
 * question, or no feed is open; TRAJD_ERR_NOT_FOUND: no such window, name or feed; TRAJD_ERR_BUSY:
 * others ask too much, try again. */
enum trajd_status trajd_client_ask(struct trajd_client *client,
                                   const struct trajd_question *question, uint32_t timeout_ms,
                                   char **json, struct trajd_error *error);

/* What of a queue job's epoch is DONE now, as a token for trajd_open_options.resume, to be freed by
 * the caller with free(). What this worker has said counts; a batch that it still works on does
 * only after trajd_batch_done. TRAJD_ERR_ARGUMENT: no feed is open, or it is open as shard (there
 * epoch and position are all). */
enum trajd_status trajd_client_checkpoint(struct trajd_client *client, uint32_t timeout_ms,
                                          void **token, size_t *size_bytes,
                                          struct trajd_error *error);

/* Says BYE, waits up to a second until the daemon has heard it, and frees the client; clears the
 * pointer. With batches still held it returns at once: they stay readable, and the session ends
 * when the last is released. For the streams of batches on a GPU that have been released it waits
 * up to a second, too, before the session is left to end behind them. NULL is fine. */
void trajd_client_close(struct trajd_client **client);

void trajd_batch_get_info(const struct trajd_batch *batch, struct trajd_batch_info *info);
uint32_t trajd_batch_tensor_count(const struct trajd_batch *batch);
/* NULL if there is none. Owned by the batch. */
const struct trajd_tensor *trajd_batch_tensor(const struct trajd_batch *batch, uint32_t index);
const struct trajd_tensor *trajd_batch_find(const struct trajd_batch *batch, const char *name);
/* The mapped ring that the batch lies in, for who registers it with a device: it stays mapped until
 * it is dropped, which takes no slot. NULL: the batch lies in memory of its own. */
struct trajd_ring_info {
    void *base;
    uint64_t size_bytes;
    bool writable;
};
bool trajd_batch_is_writable(const struct trajd_batch *batch);
struct trajd_ring *trajd_batch_hold_ring(const struct trajd_batch *batch,
                                         struct trajd_ring_info *info);
void trajd_ring_drop(struct trajd_ring **ring); /* clears the pointer; NULL is fine */
/* The GPU that the batch lies on, as this process counts; below 0: host memory. */
int trajd_batch_gpu(const struct trajd_batch *batch);
/* The UUID of the GPU that this process counts as `ordinal`. TRAJD_ERR_UNSUPPORTED: there is no
 * libcuda; TRAJD_ERR_NOT_FOUND: fewer GPUs. */
enum trajd_status trajd_gpu_uuid(int ordinal, char uuid[48], struct trajd_error *error);
/* Of a batch on a GPU: work that is, or until its release will be, given to this stream (a CUstream
 * or cudaStream_t of the primary context; 1 the legacy default, 2 the default per thread) reads it.
 * The stream must exist until the release; where a graph is captured on it then, until that is
 * ended (the graph itself is not waited for: what it replays must not be a batch's memory). At most
 * 8 a batch: TRAJD_ERR_MEMORY. Without any the memory goes back at the release. Host memory:
 * nothing happens. */
enum trajd_status trajd_batch_use_stream(struct trajd_batch *batch, uintptr_t stream,
                                         struct trajd_error *error);
/* Accounted for: will not be handed out again, whoever dies. The memory stays leased. */
void trajd_batch_done(struct trajd_batch *batch);
/* Gives the memory back (and says DONE, if that was not said); clears the pointer. NULL is fine. */
void trajd_batch_release(struct trajd_batch **batch);
/* For a batch that the program fetched ahead and never worked on, right before trajd_client_close:
 * nothing is said of it, so it goes back undone with the session. Clears the pointer. */
void trajd_batch_abandon(struct trajd_batch **batch);

#ifdef __cplusplus
}
#endif
#endif
