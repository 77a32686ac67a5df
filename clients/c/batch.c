#include <stdlib.h>
#include <string.h>

#include "clients/c/client_internal.h"

/* A part that travelled: tensors one behind the other. */
static void place_in_part(struct trajd_batch *batch)
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
        place_in_part(batch);
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

struct trajd_batch *trajd_batch_create(struct trajd_client *client,
                                       const struct trajd_delivery *delivery)
{
    struct trajd_batch *batch =
        malloc(sizeof *batch + client->schema->tensor_count * sizeof *batch->tensors);
    if (!batch)
        return NULL;
    *batch = (struct trajd_batch){
        .client = client,
        .mapping = client->mapping ? trajd_mapping_hold(client->mapping) : NULL,
        .buffers = client->buffers,
        .payload = delivery->payload,
        .schema = trajd_schema_hold(client->schema),
        .lease = delivery->lease,
        .info = {.epoch = delivery->epoch,
                 .position = delivery->position,
                 .row_begin = delivery->row_begin,
                 .row_count = delivery->row_count,
                 .ready_ns = delivery->ready_ns,
                 .sequence = delivery->sequence},
    };
    /* relaxed: the caller holds a reference */
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

/* ---- what the daemon hears of it ---- */

void trajd_leases_append(struct trajd_wire_leases *leases, const struct trajd_wire_lease *lease)
{
    if (leases->count < TRAJD_WIRE_MAX_LEASES) /* never more are out: the queue refuses them */
        leases->list[leases->count++] = *lease;
}

void trajd_batch_say_done(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (batch->incarnation != client->incarnation || batch->done || batch->left)
        return;
    batch->done = true;
    trajd_leases_append(&client->pending.done, &batch->lease);
    if (client->previous == batch)
        client->previous = NULL;
}

/* Whoever sleeps is woken to send: next() at once, the I/O thread after a moment in which more may
 * come. */
void trajd_client_wake_sender(struct trajd_client *client)
{
    if (client->waiting) {
        trajd_client_kick(client->wake_fd);
    } else if (!client->napping) {
        client->napping = true;
        trajd_client_kick(client->io_thread_fd);
    }
}

void trajd_batch_done(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (trajd_client_is_foreign(client))
        return;
    pthread_mutex_lock(&client->state);
    trajd_batch_say_done(batch);
    trajd_client_wake_sender(client);
    pthread_mutex_unlock(&client->state);
}

static void take_from_held(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    if (client->previous == batch)
        client->previous = NULL;
    struct trajd_batch *last = client->held[--client->held_count];
    client->held[batch->held_index] = last;
    last->held_index = batch->held_index;
}

void trajd_batch_give_back(struct trajd_batch *batch)
{
    struct trajd_client *client = batch->client;
    take_from_held(batch);
    if (!batch->mapping || !batch->mapping->gpu) {
        client->burst_since_ns = 0;
    } else {
        trajd_batch_say_done(batch); /* its release may wait for others */
        if (client->pending.released.count == 0) {
            client->burst_since_ns = trajd_client_now_ns();
            client->burst_sequence = batch->info.sequence;
        }
    }
    trajd_leases_append(&client->pending.released, &batch->lease);
    trajd_client_notify(client);
    if (client->closing && client->held_count == 0)
        trajd_client_kick(client->io_thread_fd);
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

/* Now, or when its streams have passed. `state` is held, and let go. */
static void let_go(struct trajd_batch *batch, bool leaves)
{
    struct trajd_client *client = batch->client;
    const bool is_kept = leaves && !client->finished;
    if (is_kept)
        trajd_deferred_add(client, batch);
    pthread_mutex_unlock(&client->state);
    if (is_kept)
        return;
    if (!trajd_deferred_await(batch))
        trajd_mapping_hold(batch->mapping); /* for good: what was captured names it */
    trajd_batch_free(batch);
}

void trajd_batch_release(struct trajd_batch **pointer)
{
    struct trajd_batch *batch = *pointer;
    *pointer = NULL;
    /* a child made by fork has the mapping, but the lease is its parent's */
    if (!batch || trajd_client_is_foreign(batch->client))
        return;
    struct trajd_client *client = batch->client;
    const bool leaves = trajd_batch_mark(batch);
    pthread_mutex_lock(&client->state);
    if (!leaves && batch->incarnation == client->incarnation)
        trajd_batch_give_back(batch);
    if (leaves) { /* it is worked on, whenever its memory goes back */
        trajd_batch_say_done(batch);
        trajd_client_wake_sender(client);
    }
    let_go(batch, leaves);
}

void trajd_batch_abandon(struct trajd_batch **pointer)
{
    struct trajd_batch *batch = *pointer;
    *pointer = NULL;
    if (!batch || trajd_client_is_foreign(batch->client))
        return;
    struct trajd_client *client = batch->client;
    const bool leaves = trajd_batch_mark(batch);
    pthread_mutex_lock(&client->state);
    if (batch->incarnation == client->incarnation)
        take_from_held(batch);
    batch->abandoned = true;
    let_go(batch, leaves);
}
