#include "clients/c/batch_internal.h"

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
