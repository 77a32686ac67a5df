#include "clients/c/batch_internal.h"

#define BURST_NS 100000000

/* Those that came behind the batch of that number, which are counted from 1. */
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

/* Batches that the GPU is yet to work on, as far as is known: those that came before one that it
 * has passed wait for something else. */
static uint32_t count_ahead(const struct trajd_client *client)
{
    return count_after(client, client->ack.burst_sequence);
}

/* Parts go back in bursts for as long as there is other work, half of what the session may hold at
 * a time: the daemon makes as many batches in one turn then. Where processes share a GPU in time
 * slices it is the turns that cost a training step, not the batches. */
uint64_t trajd_release_burst_ns(const struct trajd_client *client)
{
    if (client->ack.burst_since_ns == 0 || client->closing ||
        client->ack.pending.released.count >= client->queue.count + count_ahead(client))
        return 0;
    const uint64_t now_ns = trajd_client_now_ns(), due_ns = client->ack.burst_since_ns + BURST_NS;
    return now_ns < due_ns ? due_ns - now_ns : 0;
}
