/* Batches on a GPU between their release and the moment at which the consumer's streams have passed
 * what reads them. Events are recorded by whoever releases and asked about by whoever has time: the
 * I/O thread, next(). Nothing waits in a stream: a worker that dies leaves no wait behind that
 * somebody else would hang on. */
#include <time.h>

#include "clients/c/client_internal.h"

#define NAP_NS 50000
#define LONGEST_PAUSE_NS 1000000
#define BURST_NS 100000000
#define DEFAULT_OF_THREAD 2 /* CU_STREAM_PER_THREAD: another stream in every thread */

/* Of the calling thread alone, for ever: a pthread_t is the next thread's once its own has been
 * joined. */
static uint64_t thread_number(void)
{
    static uint64_t last;
    static _Thread_local uint64_t own;
    if (own == 0)
        own = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED); /* a number on its own */
    return own;
}

/* That stream can only be asked about in the thread whose it is; of two threads' it can not be said
 * which. */
static void name_thread(struct trajd_batch *batch, bool is_new)
{
    if (is_new)
        batch->named_by = thread_number();
    else if (batch->named_by != thread_number())
        batch->is_untracked = true;
}

enum trajd_status trajd_batch_use_stream(struct trajd_batch *batch, uintptr_t stream,
                                         struct trajd_error *error)
{
    struct trajd_client *client = batch->client;
    enum trajd_status status = TRAJD_OK;
    if (!batch->mapping || !batch->mapping->gpu || trajd_client_is_foreign(client))
        return TRAJD_OK;
    pthread_mutex_lock(&client->state);
    uint32_t known = 0;
    while (known < batch->stream_count && batch->streams[known] != stream)
        known++;
    const bool is_new = known == batch->stream_count;
    if (known == TRAJD_BATCH_MAX_STREAMS)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                 "a batch is used on %u streams already", TRAJD_BATCH_MAX_STREAMS);
    else if (is_new)
        batch->streams[batch->stream_count++] = stream;
    if (!status && stream == DEFAULT_OF_THREAD)
        name_thread(batch, is_new);
    pthread_mutex_unlock(&client->state);
    return status;
}

int trajd_batch_gpu(const struct trajd_batch *batch)
{
    return batch->mapping && batch->mapping->gpu ? trajd_cuda_ordinal(batch->mapping->gpu) : -1;
}

enum trajd_status trajd_gpu_uuid(int ordinal, char uuid[48], struct trajd_error *error)
{
    struct trajd_error own;
    return trajd_cuda_uuid(ordinal, uuid, error ? error : &own);
}

/* One stream of those that are left, asked for as far as it is known. */
static enum trajd_cuda_answer ask(struct trajd_batch *batch, uint32_t i)
{
    const struct trajd_cuda *gpu = batch->mapping->gpu;
    if (batch->streams[i] == DEFAULT_OF_THREAD && !batch->events[i] &&
        batch->named_by != thread_number())
        return TRAJD_CUDA_UNTRACKED;
    if (!batch->events[i])
        return trajd_cuda_mark(gpu, &batch->events[i], batch->streams[i]);
    const enum trajd_cuda_answer answer = trajd_cuda_query(gpu, batch->events[i]);
    if (answer != TRAJD_CUDA_NOT_YET) {
        trajd_cuda_forget(gpu, batch->events[i]);
        batch->events[i] = NULL;
    }
    return answer;
}

bool trajd_batch_mark(struct trajd_batch *batch)
{
    for (uint32_t i = batch->stream_count; i-- > 0;) {
        const enum trajd_cuda_answer answer = ask(batch, i);
        batch->is_untracked = batch->is_untracked || answer == TRAJD_CUDA_UNTRACKED;
        if (answer != TRAJD_CUDA_PASSED)
            continue;
        batch->stream_count--;
        batch->streams[i] = batch->streams[batch->stream_count];
        batch->events[i] = batch->events[batch->stream_count];
    }
    return batch->stream_count > 0;
}

void trajd_deferred_add(struct trajd_client *client, struct trajd_batch *batch)
{
    batch->next_deferred = NULL;
    *client->deferred_end = batch;
    client->deferred_end = &batch->next_deferred;
    client->deferred_since_ns = trajd_client_now_ns();
    trajd_client_notify(client);
    trajd_client_kick(client->io_thread_fd);
}

static bool has_passed(struct trajd_batch *batch)
{
    while (!batch->is_untracked && batch->stream_count > 0) {
        const enum trajd_cuda_answer answer = ask(batch, batch->stream_count - 1);
        batch->is_untracked = answer == TRAJD_CUDA_UNTRACKED;
        if (answer != TRAJD_CUDA_PASSED)
            return false;
        batch->stream_count--;
    }
    return batch->stream_count == 0;
}

/* A part that a GPU has left is worth a batch, but a step that takes milliseconds is not over
 * sooner for being asked about. */
uint64_t trajd_deferred_pause_ns(const struct trajd_client *client)
{
    const uint64_t pause_ns = (trajd_client_now_ns() - client->deferred_since_ns) / 4;
    return pause_ns < NAP_NS ? NAP_NS : pause_ns > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS : pause_ns;
}

/* The context has passed all that its streams were given. */
static void settle(struct trajd_batch *batch)
{
    while (batch->stream_count > 0)
        trajd_cuda_forget(batch->mapping->gpu, batch->events[--batch->stream_count]);
    batch->is_untracked = false;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};
    nanosleep(&pause, NULL);
}

static bool is_captured(struct trajd_batch *batch)
{
    for (uint32_t i = 0; i < batch->stream_count; i++)
        if (!batch->events[i] && ask(batch, i) == TRAJD_CUDA_CAPTURED)
            return true;
    return false;
}

/* Whoever releases may be who captures, and would wait for itself. */
bool trajd_deferred_await(struct trajd_batch *batch)
{
    while (!has_passed(batch)) {
        if (batch->is_untracked && trajd_cuda_await_all(batch->mapping->gpu) == TRAJD_CUDA_PASSED) {
            settle(batch);
        } else if (batch->is_untracked || is_captured(batch)) {
            settle(batch);
            return false;
        }
        nap();
    }
    return true;
}

/* Those that came behind the batch of that number, which are counted from 1. */
static uint32_t count_behind(const struct trajd_client *client, uint64_t sequence)
{
    uint32_t count = 0;
    for (const struct trajd_batch *batch = client->deferred; batch; batch = batch->next_deferred)
        count += !batch->abandoned && batch->incarnation == client->incarnation &&
                 batch->info.sequence > sequence;
    return count;
}

uint32_t trajd_deferred_count(const struct trajd_client *client)
{
    return count_behind(client, 0);
}

/* Batches that the GPU is yet to work on, as far as is known: those that came before one that it
 * has passed wait for something else. */
static uint32_t count_ahead(const struct trajd_client *client)
{
    return count_behind(client, client->burst_sequence);
}

/* Parts go back in bursts for as long as there is other work, half of what the session may hold at
 * a time: the daemon makes as many batches in one turn then. Where processes share a GPU in time
 * slices it is the turns that cost a training step, not the batches. */
uint64_t trajd_deferred_burst_ns(const struct trajd_client *client)
{
    if (client->burst_since_ns == 0 || client->closing ||
        client->pending.released.count >= client->queue_count + count_ahead(client))
        return 0;
    const uint64_t now_ns = trajd_client_now_ns(), due_ns = client->burst_since_ns + BURST_NS;
    return now_ns < due_ns ? due_ns - now_ns : 0;
}

/* One GPU a call: the batches that were untracked before it was asked. Nobody collects them
 * meanwhile. */
void trajd_deferred_settle(struct trajd_client *client)
{
    const struct trajd_cuda *gpu = NULL;
    pthread_mutex_lock(&client->state);
    for (struct trajd_batch *batch = client->deferred; batch; batch = batch->next_deferred) {
        gpu = !gpu && batch->is_untracked ? batch->mapping->gpu : gpu;
        batch->is_settled = batch->is_untracked && batch->mapping->gpu == gpu;
    }
    pthread_mutex_unlock(&client->state);
    if (!gpu || trajd_cuda_await_all(gpu) != TRAJD_CUDA_PASSED)
        return;
    pthread_mutex_lock(&client->state);
    for (struct trajd_batch *batch = client->deferred; batch; batch = batch->next_deferred)
        if (batch->is_settled)
            settle(batch);
    pthread_mutex_unlock(&client->state);
}

void trajd_deferred_end(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->finished = true;
    pthread_mutex_unlock(&client->state);
    while (trajd_deferred_collect(client)) {
        trajd_deferred_settle(client);
        nap();
    }
}

bool trajd_deferred_collect(struct trajd_client *client)
{
    struct trajd_batch *over = NULL;
    pthread_mutex_lock(&client->state);
    struct trajd_batch **link = &client->deferred;
    while (*link) {
        struct trajd_batch *batch = *link;
        if (!has_passed(batch)) {
            link = &batch->next_deferred;
            continue;
        }
        *link = batch->next_deferred;
        batch->next_deferred = over;
        over = batch;
        if (!batch->abandoned && batch->incarnation == client->incarnation)
            trajd_batch_give_back(batch);
    }
    client->deferred_end = link;
    if (over)
        client->deferred_since_ns = trajd_client_now_ns();
    const bool left = client->deferred != NULL;
    pthread_mutex_unlock(&client->state);
    while (over) {
        struct trajd_batch *batch = over;
        over = batch->next_deferred;
        trajd_batch_free(batch);
    }
    return left;
}
