/* DONE and release of a batch, and batches on a GPU that are released while GPU streams may still read them. The releasing thread
 * records the events. The I/O thread and next() query them, and return the leases of batches that
 * are finished. */
#include "clients/c/batch_internal.h"

#define SHORTEST_PAUSE_NS 50000
#define LONGEST_PAUSE_NS 1000000

void trajd_deferred_add(struct trajd_client *client, struct trajd_batch *batch)
{
    batch->next_deferred = NULL;
    *client->deferred.end = batch;
    client->deferred.end = &batch->next_deferred;
    client->deferred.changed_ns = trajd_client_now_ns();
    trajd_client_update_poll_fd(client);
    trajd_client_signal(client->io_thread_fd);
}

/* A lease that is returned late delays the daemon by a batch. But frequent queries do not make a
 * training step of milliseconds end sooner, so the pause grows with the time since the last
 * change. */
uint64_t trajd_deferred_pause_ns(const struct trajd_client *client)
{
    const uint64_t pause_ns = (trajd_client_now_ns() - client->deferred.changed_ns) / 4;
    return pause_ns < SHORTEST_PAUSE_NS  ? SHORTEST_PAUSE_NS
           : pause_ns > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS
                                         : pause_ns;
}

/* Handles one GPU in a call: the batches that were untracked before the synchronization. No other
 * thread frees them meanwhile, because trajd_batch_query_streams is false for untracked batches. */
void trajd_deferred_synchronize(struct trajd_client *client)
{
    const struct trajd_cuda *gpu = NULL;
    pthread_mutex_lock(&client->state_lock);
    for (struct trajd_batch *batch = client->deferred.first; batch; batch = batch->next_deferred) {
        gpu = !gpu && batch->is_untracked ? batch->mapping->gpu : gpu;
        batch->is_awaited = batch->is_untracked && batch->mapping->gpu == gpu;
    }
    pthread_mutex_unlock(&client->state_lock);
    if (!gpu || trajd_cuda_synchronize(gpu) != TRAJD_CUDA_COMPLETED)
        return;
    pthread_mutex_lock(&client->state_lock);
    for (struct trajd_batch *batch = client->deferred.first; batch; batch = batch->next_deferred)
        if (batch->is_awaited)
            trajd_batch_forget_streams(batch);
    pthread_mutex_unlock(&client->state_lock);
}

bool trajd_deferred_collect(struct trajd_client *client)
{
    struct trajd_batch *over = NULL;
    pthread_mutex_lock(&client->state_lock);
    struct trajd_batch **link = &client->deferred.first;
    while (*link) {
        struct trajd_batch *batch = *link;
        if (!trajd_batch_query_streams(batch)) {
            link = &batch->next_deferred;
            continue;
        }
        *link = batch->next_deferred;
        batch->next_deferred = over;
        over = batch;
        if (!batch->is_abandoned && batch->incarnation == client->incarnation)
            trajd_batch_return(batch);
    }
    client->deferred.end = link;
    if (over)
        client->deferred.changed_ns = trajd_client_now_ns();
    const bool some_remain = client->deferred.first != NULL;
    pthread_mutex_unlock(&client->state_lock);
    while (over) {
        struct trajd_batch *batch = over;
        over = batch->next_deferred;
        trajd_batch_free(batch);
    }
    return some_remain;
}

void trajd_deferred_end(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->finished = true;
    pthread_mutex_unlock(&client->state_lock);
    while (trajd_deferred_collect(client)) {
        trajd_deferred_synchronize(client);
        trajd_client_sleep_ns(SHORTEST_PAUSE_NS);
    }
}

/* ---- the calls of trajd.h ---- */

void trajd_batch_done(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (trajd_client_is_forked(client))
        return;
    pthread_mutex_lock(&client->state_lock);
    trajd_batch_mark_done(batch);
    trajd_client_wake_sender(client);
    pthread_mutex_unlock(&client->state_lock);
}

/* Frees the batch now, or defers that until its streams have finished. The caller holds state_lock,
 * which is unlocked here. */
static void free_or_defer(struct trajd_batch *batch, bool is_pending)
{
    struct trajd_client *client = batch->client;
    const bool is_kept = is_pending && !client->finished;
    if (is_kept)
        trajd_deferred_add(client, batch);
    pthread_mutex_unlock(&client->state_lock);
    if (is_kept)
        return;
    if (!trajd_batch_await_streams(batch))
        trajd_mapping_hold(batch->mapping); /* never unmapped: the captured graph refers to it */
    trajd_batch_free(batch);
}

void trajd_batch_release(struct trajd_batch **pointer)
{
    struct trajd_batch *batch = *pointer;
    *pointer = NULL;
    /* a child made by fork has the mapping, but the lease belongs to its parent */
    if (!batch || trajd_client_is_forked(batch->client))
        return;
    struct trajd_client *client = batch->client;
    const bool is_pending = trajd_batch_record_events(batch);
    pthread_mutex_lock(&client->state_lock);
    if (!is_pending && batch->incarnation == client->incarnation)
        trajd_batch_return(batch);
    if (is_pending) { /* the batch is worked on, whenever its memory goes back */
        trajd_batch_mark_done(batch);
        trajd_client_wake_sender(client);
    }
    free_or_defer(batch, is_pending);
}

void trajd_batch_abandon(struct trajd_batch **pointer)
{
    struct trajd_batch *batch = *pointer;
    *pointer = NULL;
    if (!batch || trajd_client_is_forked(batch->client))
        return;
    struct trajd_client *client = batch->client;
    const bool is_pending = trajd_batch_record_events(batch);
    pthread_mutex_lock(&client->state_lock);
    if (batch->incarnation == client->incarnation)
        trajd_batch_remove_from_held(batch);
    batch->is_abandoned = true;
    free_or_defer(batch, is_pending);
}
