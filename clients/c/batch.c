/* Makes the batch that next() returns from a slot or a buffer, describes its tensors, and gives
 * its lease back. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

/* Places the tensors of a payload one after the other, each padded to TRAJD_TENSOR_ALIGNMENT. */
static void place_in_payload(struct trajd_batch *batch)
{
    uint64_t offset_bytes = 0;
    for (uint32_t i = 0; i < batch->schema->tensor_count; i++) {
        const struct trajd_schema_tensor *from = &batch->schema->tensors[i];
        const uint64_t size_bytes = batch->info.row_count * from->row_size_bytes;
        batch->tensors[i] = from->shape;
        batch->tensors[i].shape[0] = batch->info.row_count;
        batch->tensors[i].data = batch->payload + offset_bytes;
        offset_bytes += (size_bytes + TRAJD_TENSOR_ALIGNMENT - 1) / TRAJD_TENSOR_ALIGNMENT *
                        TRAJD_TENSOR_ALIGNMENT;
    }
}

static void place_tensors(struct trajd_batch *batch, const struct trajd_delivery *delivery)
{
    if (!batch->mapping) {
        place_in_payload(batch);
        return;
    }
    unsigned char *slot = trajd_mapping_slot(batch->mapping, delivery->lease.slot);
    for (uint32_t i = 0; i < batch->schema->tensor_count; i++) {
        const struct trajd_schema_tensor *from = &batch->schema->tensors[i];
        batch->tensors[i] = from->shape;
        batch->tensors[i].shape[0] = delivery->row_count;
        batch->tensors[i].data =
            slot + from->offset_bytes + delivery->row_begin * from->row_size_bytes;
    }
}

struct trajd_mapping *trajd_delivery_mapping(const struct trajd_client *client,
                                             const struct trajd_delivery *delivery)
{
    return delivery->is_carried ? delivery->mapping : client->feed.mapping;
}

struct trajd_batch *trajd_batch_create(struct trajd_client *client,
                                       const struct trajd_delivery *delivery)
{
    struct trajd_mapping *mapping = trajd_delivery_mapping(client, delivery);
    struct trajd_schema *schema = delivery->is_carried ? delivery->schema : client->feed.schema;
    struct trajd_batch *batch =
        malloc(sizeof *batch + schema->tensor_count * sizeof *batch->tensors);
    if (!batch)
        return NULL;
    *batch = (struct trajd_batch){
        .client = client,
        .is_carried = delivery->is_carried,
        .mapping = mapping ? trajd_mapping_hold(mapping) : NULL,
        .buffers = delivery->is_carried ? delivery->buffers : client->feed.buffers,
        .payload = delivery->payload,
        .schema = trajd_schema_hold(schema),
        .lease = delivery->lease,
        .info = {.epoch = delivery->epoch,
                 .position = delivery->position,
                 .row_begin = delivery->row_begin,
                 .row_count = delivery->row_count,
                 .ready_ns = delivery->ready_ns,
                 .sequence = delivery->sequence},
    };
    /* relaxed: the caller already holds a reference */
    __atomic_add_fetch(&client->references, 1, __ATOMIC_RELAXED);
    place_tensors(batch, delivery);
    return batch;
}

void trajd_batch_get_info(const struct trajd_batch *batch, struct trajd_batch_info *info)
{
    *info = batch->info;
}

uint32_t trajd_batch_tensor_count(const struct trajd_batch *batch)
{
    return batch->schema->tensor_count;
}

const struct trajd_tensor *trajd_batch_tensor(const struct trajd_batch *batch, uint32_t index)
{
    return index < batch->schema->tensor_count ? &batch->tensors[index] : NULL;
}

const struct trajd_tensor *trajd_batch_find(const struct trajd_batch *batch, const char *name)
{
    for (uint32_t i = 0; i < batch->schema->tensor_count; i++)
        if (strcmp(batch->tensors[i].name, name) == 0)
            return &batch->tensors[i];
    return NULL;
}

bool trajd_batch_is_writable(const struct trajd_batch *batch)
{
    return !batch->mapping || batch->mapping->terms.writable;
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

struct trajd_ring {
    struct trajd_mapping *mapping;
};

struct trajd_ring *trajd_batch_hold_ring(const struct trajd_batch *batch,
                                         struct trajd_ring_info *info)
{
    struct trajd_ring *ring = batch->mapping && !batch->mapping->gpu ? malloc(sizeof *ring) : NULL;
    if (!ring)
        return NULL;
    ring->mapping = trajd_mapping_hold(batch->mapping);
    *info = (struct trajd_ring_info){.base = ring->mapping->memory,
                                     .size_bytes = ring->mapping->terms.size_bytes,
                                     .writable = ring->mapping->terms.writable};
    return ring;
}

void trajd_ring_drop(struct trajd_ring **ring)
{
    if (*ring)
        trajd_mapping_drop((*ring)->mapping);
    free(*ring);
    *ring = NULL;
}

/* ---- the lease ---- */

void trajd_batch_mark_done(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (batch->incarnation != client->incarnation || batch->is_done || batch->is_superseded)
        return;
    batch->is_done = true;
    trajd_carried_note_done(client, batch->info.position);
    if (batch->is_carried) {
        trajd_batch_remove_from_held(batch);
        batch->incarnation = 0;
        return;
    }
    trajd_leases_append(&client->ack.pending.done, &batch->lease);
    if (client->held.previous == batch)
        client->held.previous = NULL;
}

void trajd_batch_remove_from_held(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (client->held.previous == batch)
        client->held.previous = NULL;
    struct trajd_batch *last = client->held.batches[--client->held.count];
    client->held.batches[batch->held_index] = last;
    last->held_index = batch->held_index;
    trajd_client_update_poll_fd(client); /* next() may be allowed again */
}

/* Adds the lease to the pending ACK. */
static void return_lease(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    trajd_batch_remove_from_held(batch);
    if (!batch->mapping || !batch->mapping->gpu) {
        client->ack.burst_since_ns = 0;
        if (!batch->is_done && !batch->is_superseded) /* the release is the DONE */
            trajd_carried_note_done(client, batch->info.position);
    } else {
        trajd_batch_mark_done(batch); /* DONE is sent at once; the release may wait for others */
        if (client->ack.pending.released.count == 0) {
            client->ack.burst_since_ns = trajd_client_now_ns();
            client->ack.burst_sequence = batch->info.sequence;
        }
    }
    trajd_leases_append(&client->ack.pending.released, &batch->lease);
}

void trajd_batch_return(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (batch->is_carried)
        trajd_batch_mark_done(batch);
    else
        return_lease(batch);
    if (client->closing && client->held.count == 0)
        trajd_client_signal(client->io_thread_fd);
    trajd_client_wake_sender(client);
}

void trajd_batch_free(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    trajd_mapping_drop(batch->mapping);
    trajd_buffers_give(batch->buffers, batch->payload);
    trajd_schema_drop(batch->schema);
    free(batch);
    trajd_client_drop(client);
}
