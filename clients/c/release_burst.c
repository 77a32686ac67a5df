/* Bursts of releases on a GPU: which are pending, and when they are sent. Where processes share a
 * GPU in time slices, each turn of the daemon costs the training step some time, however many
 * batches it makes. So releases are sent together: half of what the session may hold, while there
 * is other work, and 100 ms after the first of them at the latest. */
#include "clients/c/batch_internal.h"

#define BURST_NS 100000000

/* Counts the deferred batches that were delivered after that sequence. Sequences count from 1. */
static uint32_t count_after(const struct trajd_client *client, uint64_t sequence)
{
    uint32_t count = 0;
    for (const struct trajd_batch *batch = client->deferred.first; batch;
         batch = batch->next_deferred)
        count += !batch->is_abandoned && batch->incarnation == client->incarnation &&
                 batch->info.sequence > sequence;
    return count;
}

uint32_t trajd_deferred_count(const struct trajd_client *client)
{
    return count_after(client, 0);
}

/* Counts the batches that the GPU has yet to work on. Earlier ones in the list are delayed by
 * something else: the GPU has already finished a later batch. */
static uint32_t count_ahead(const struct trajd_client *client)
{
    return count_after(client, client->ack.burst_sequence);
}

uint64_t trajd_release_burst_ns(const struct trajd_client *client)
{
    if (client->ack.burst_since_ns == 0 || client->closing ||
        client->ack.pending.released.count >= client->queue.count + count_ahead(client))
        return 0;
    const uint64_t now_ns = trajd_client_now_ns(), due_ns = client->ack.burst_since_ns + BURST_NS;
    return now_ns < due_ns ? due_ns - now_ns : 0;
}
