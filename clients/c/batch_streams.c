/* The GPU streams that read a batch. An event is recorded on each at the release, and queried until
 * it has completed. No stream waits for anything, so a worker that dies leaves nothing behind that
 * another process could wait for. */
#include "clients/c/batch_internal.h"

#define PAUSE_NS 50000
#define PER_THREAD_DEFAULT_STREAM 2 /* CU_STREAM_PER_THREAD: each thread has its own */

/* Returns a number that no other thread ever has. A pthread_t is reused once its thread has been
 * joined. */
static uint64_t thread_number(void)
{
    static uint64_t last;
    static _Thread_local uint64_t own;
    if (own == 0)
        /* relaxed: only the number itself matters */
        own = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return own;
}

/* A thread's default stream can be queried only from that thread. A batch that two threads use on
 * their default streams is untracked: the handle 2 does not tell which stream is meant. */
static void check_default_stream_thread(struct trajd_batch *batch, bool is_new)
{
    if (is_new)
        batch->default_stream_thread = thread_number();
    else if (batch->default_stream_thread != thread_number())
        batch->is_untracked = true;
}

enum trajd_status trajd_batch_use_stream(struct trajd_batch *batch, uintptr_t stream,
                                         struct trajd_error *error)
{
    struct trajd_client *client = batch->client;
    enum trajd_status status = TRAJD_OK;
    if (!batch->mapping || !batch->mapping->gpu || trajd_client_is_forked(client))
        return TRAJD_OK;
    pthread_mutex_lock(&client->state_lock);
    uint32_t known = 0;
    while (known < batch->stream_count && batch->streams[known] != stream)
        known++;
    const bool is_new = known == batch->stream_count;
    if (known == TRAJD_BATCH_MAX_STREAMS)
        status =
            trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                            "the batch is already used on %u streams, the most that are allowed",
                            TRAJD_BATCH_MAX_STREAMS);
    else if (is_new)
        batch->streams[batch->stream_count++] = stream;
    if (!status && stream == PER_THREAD_DEFAULT_STREAM)
        check_default_stream_thread(batch, is_new);
    pthread_mutex_unlock(&client->state_lock);
    return status;
}

/* Records an event on stream i, or queries the event that was recorded there. */
static enum trajd_cuda_progress query_stream(struct trajd_batch *batch, uint32_t i)
{
    const struct trajd_cuda *gpu = batch->mapping->gpu;
    if (batch->streams[i] == PER_THREAD_DEFAULT_STREAM && !batch->events[i] &&
        batch->default_stream_thread != thread_number())
        return TRAJD_CUDA_UNTRACKED;
    if (!batch->events[i])
        return trajd_cuda_record_event(gpu, &batch->events[i], batch->streams[i]);
    const enum trajd_cuda_progress progress = trajd_cuda_query_event(gpu, batch->events[i]);
    if (progress != TRAJD_CUDA_PENDING) {
        trajd_cuda_destroy_event(gpu, batch->events[i]);
        batch->events[i] = NULL;
    }
    return progress;
}

bool trajd_batch_record_events(struct trajd_batch *batch)
{
    for (uint32_t i = batch->stream_count; i-- > 0;) {
        const enum trajd_cuda_progress progress = query_stream(batch, i);
        batch->is_untracked = batch->is_untracked || progress == TRAJD_CUDA_UNTRACKED;
        if (progress != TRAJD_CUDA_COMPLETED)
            continue;
        batch->stream_count--;
        batch->streams[i] = batch->streams[batch->stream_count];
        batch->events[i] = batch->events[batch->stream_count];
    }
    return batch->stream_count > 0;
}

bool trajd_batch_query_streams(struct trajd_batch *batch)
{
    while (!batch->is_untracked && batch->stream_count > 0) {
        const enum trajd_cuda_progress progress = query_stream(batch, batch->stream_count - 1);
        batch->is_untracked = progress == TRAJD_CUDA_UNTRACKED;
        if (progress != TRAJD_CUDA_COMPLETED)
            return false;
        batch->stream_count--;
    }
    return batch->stream_count == 0;
}

void trajd_batch_forget_streams(struct trajd_batch *batch)
{
    while (batch->stream_count > 0)
        trajd_cuda_destroy_event(batch->mapping->gpu, batch->events[--batch->stream_count]);
    batch->is_untracked = false;
}

static bool is_captured(struct trajd_batch *batch)
{
    for (uint32_t i = 0; i < batch->stream_count; i++)
        if (!batch->events[i] && query_stream(batch, i) == TRAJD_CUDA_CAPTURED)
            return true;
    return false;
}

/* Where a graph is being captured this thread may be the one that captures it, and waiting would
 * never end. */
bool trajd_batch_await_streams(struct trajd_batch *batch)
{
    while (!trajd_batch_query_streams(batch)) {
        if (batch->is_untracked &&
            trajd_cuda_synchronize(batch->mapping->gpu) == TRAJD_CUDA_COMPLETED) {
            trajd_batch_forget_streams(batch);
        } else if (batch->is_untracked || is_captured(batch)) {
            trajd_batch_forget_streams(batch);
            return false;
        }
        trajd_client_sleep_ns(PAUSE_NS);
    }
    return true;
}
