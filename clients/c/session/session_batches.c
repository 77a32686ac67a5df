/* BATCH and EPOCH_END, and the rows that a remote daemon sends after a BATCH. */
#include <string.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

/* ---- payloads (PROTOCOL.md, "Over tcp") ---- */

/* Returns the bytes of a payload: each tensor's rows, padded to TRAJD_TENSOR_ALIGNMENT. Cannot
 * overflow for a checked schema and at most global_batch rows. */
static uint64_t payload_size(const struct trajd_schema *schema, uint32_t row_count)
{
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        const uint64_t rows_bytes = row_count * schema->tensors[i].row_size_bytes;
        size_bytes += (rows_bytes + TRAJD_TENSOR_ALIGNMENT - 1) / TRAJD_TENSOR_ALIGNMENT *
                      TRAJD_TENSOR_ALIGNMENT;
    }
    return size_bytes;
}

enum trajd_status trajd_payload_make_buffers(struct trajd_client *client, struct trajd_error *error)
{
    const uint32_t world =
        client->open.terms.mode == TRAJD_MODE_SHARD ? client->open.terms.world : 1;
    client->feed.row_limit =
        client->feed.info.global_batch / world + (client->feed.info.global_batch % world > 0);
    const uint64_t size_bytes = payload_size(client->feed.schema, client->feed.row_limit);
    trajd_buffers_drop(client->feed.buffers);
    client->feed.buffers = trajd_buffers_create(size_bytes, client->feed.info.credit + 1);
    return client->feed.buffers
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed: out of memory");
}

/* Receives the payload of the BATCH that was received last. *payload goes back to feed.buffers.
 * TRAJD_ERR_PROTOCOL: too many rows, or another length. */
static enum trajd_status receive_payload(struct trajd_client *client, uint32_t row_count,
                                         unsigned char **payload, struct trajd_error *error)
{
    *payload = NULL;
    if (row_count > client->feed.row_limit)
        return trajd_error_set(
            error, TRAJD_ERR_PROTOCOL, 0,
            "the daemon breaks the protocol: a payload of %u rows, where %u are the most",
            row_count, client->feed.row_limit);
    const uint64_t size_bytes = payload_size(client->feed.schema, row_count);
    *payload = trajd_buffers_take(client->feed.buffers);
    if (!*payload)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "batch: no memory for %llu bytes",
                               (unsigned long long)size_bytes);
    if (trajd_link_receive_payload(&client->link, *payload, size_bytes))
        return TRAJD_OK;
    trajd_buffers_give(client->feed.buffers, *payload);
    *payload = NULL;
    return trajd_error_set(
        error, TRAJD_ERR_PROTOCOL, 0,
        "the daemon breaks the protocol: a payload that does not have %llu bytes",
        (unsigned long long)size_bytes);
}

/* ---- batches ---- */

/* The daemon takes these batches back when it answers an OPEN by OPENED or by ERROR. So this is
 * called only after that answer: if the OPEN were lost, the daemon would count the returned batches
 * as DONE. */
void trajd_session_return_queue(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    for (; client->queue.count > 0; client->queue.count--) {
        struct trajd_delivery *delivery = &client->queue.entries[client->queue.first];
        struct trajd_wire_leases *released = &client->ack.pending.released;
        if (!delivery->is_carried && released->count < TRAJD_WIRE_MAX_LEASES)
            released->list[released->count++] = delivery->lease;
        trajd_delivery_drop(client, delivery);
        client->queue.first = (client->queue.first + 1) % TRAJD_CLIENT_QUEUE;
    }
    client->epoch_ended = client->is_over = false;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

static bool is_valid(const struct trajd_client *client, const struct trajd_wire_batch *batch)
{
    return batch->feed_id == client->feed.id && batch->ring == client->feed.ring_terms.ring_id &&
           batch->slot < client->feed.ring_terms.slot_count &&
           batch->epoch == client->feed.info.epoch &&
           batch->row_begin <= client->feed.info.global_batch &&
           batch->row_count <= client->feed.info.global_batch - batch->row_begin;
}

/* Returns false if more batches are leased than one ACK can name. */
static bool enqueue(struct trajd_client *client, const struct trajd_delivery *delivery)
{
    pthread_mutex_lock(&client->state_lock);
    const uint32_t out =
        client->queue.count + client->held.count + client->ack.pending.released.count;
    bool fits = out < TRAJD_CLIENT_QUEUE;
    if (fits)
        client->queue.entries[(client->queue.first + client->queue.count++) % TRAJD_CLIENT_QUEUE] =
            *delivery;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
    return fits;
}

void trajd_session_handle_batch(struct trajd_client *client, const struct trajd_wire_batch *batch)
{
    const bool expected =
        client->session.phase == TRAJD_PHASE_OPEN || client->session.phase == TRAJD_PHASE_MAPPING;
    struct trajd_error error;
    if (client->session.phase < TRAJD_PHASE_READY ||
        batch->seq <= client->session.received_sequence)
        return;
    if (expected && !is_valid(client, batch)) {
        trajd_session_fail_protocol(
            client, "BATCH of another feed or epoch, or of a slot that does not exist");
        return;
    }
    /* After an OPEN, batches of the previous feed may still arrive. They stay in the queue, unseen
     * by the user, until the daemon answers the OPEN. */
    client->session.received_sequence = batch->seq;
    struct trajd_delivery delivery = {
        .lease = {.ring = batch->ring,
                  .slot = batch->slot,
                  .generation = batch->generation,
                  .part = batch->part},
        .epoch = batch->epoch,
        .position = batch->position,
        .ready_ns = batch->ready_ns,
        .sequence = batch->seq,
        .row_begin = batch->row_begin,
        .row_count = batch->row_count,
        .failure = batch->error.size > 0 ? strndup(batch->error.data, batch->error.size) : NULL,
    };
    bool failure_lost = batch->error.size > 0 && !delivery.failure;
    if (client->link.remote && expected && batch->error.size == 0 &&
        receive_payload(client, batch->row_count, &delivery.payload, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    if (failure_lost || !enqueue(client, &delivery)) {
        trajd_delivery_drop(client, &delivery);
        trajd_session_fail_protocol(client, "more batches than the credit allows");
    }
}

void trajd_session_handle_epoch_end(struct trajd_client *client,
                                    const struct trajd_wire_epoch_end *end)
{
    const bool expected =
        client->session.phase == TRAJD_PHASE_OPEN || client->session.phase == TRAJD_PHASE_MAPPING;
    if (!expected || end->feed_id != client->feed.id || end->epoch != client->feed.info.epoch)
        return;
    pthread_mutex_lock(&client->state_lock);
    client->epoch_ended = true;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}
