/* next(): waits for a batch, reports the one before as DONE, and delivers the batch or the end
 * of the epoch. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define BUSY_NS (1000 * UINT64_C(1000000))

static bool take_delivery(struct trajd_client *client, struct trajd_delivery *delivery)
{
    pthread_mutex_lock(&client->state_lock);
    bool found = client->queue.count > 0 && client->session.phase == TRAJD_PHASE_OPEN;
    if (found) {
        *delivery = client->queue.entries[client->queue.first];
        client->queue.first = (client->queue.first + 1) % TRAJD_CLIENT_QUEUE;
        client->queue.count--;
        trajd_client_update_poll_fd(client);
    }
    pthread_mutex_unlock(&client->state_lock);
    return found;
}

static void advance_position(struct trajd_client *client, uint64_t position)
{
    uint64_t end = position + client->feed.info.global_batch;
    client->feed.next_position =
        end < client->feed.info.epoch_length ? end : client->feed.info.epoch_length;
}

/* Reports a batch that could not be made. The report counts as DONE and as the release. */
static enum trajd_status report_failure(struct trajd_client *client,
                                        struct trajd_delivery *delivery, struct trajd_error *error)
{
    trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s", delivery->failure);
    trajd_delivery_drop(client, delivery);
    pthread_mutex_lock(&client->state_lock);
    /* the release may wait for others */
    trajd_carried_note_done(client, delivery->position);
    if (!delivery->is_carried) {
        trajd_leases_append(&client->ack.pending.done, &delivery->lease);
        trajd_leases_append(&client->ack.pending.released, &delivery->lease);
    }
    pthread_mutex_unlock(&client->state_lock);
    trajd_session_send_acks(client);
    return TRAJD_ERR_DATA;
}

static bool is_stamped(const struct trajd_client *client, const struct trajd_delivery *delivery)
{
    const struct trajd_mapping *mapping = trajd_delivery_mapping(client, delivery);
    struct trajd_slot_header header;
    if (!mapping)
        return delivery->payload != NULL;
    /* reading the header would need a copy from the GPU for each batch */
    if (mapping->gpu)
        return true;
    memcpy(&header, trajd_mapping_slot(mapping, delivery->lease.slot), sizeof header);
    return header.generation == delivery->lease.generation;
}

static enum trajd_status deliver(struct trajd_client *client, struct trajd_delivery *delivery,
                                 struct trajd_batch **out, struct trajd_error *error)
{
    advance_position(client, delivery->position);
    if (delivery->failure)
        return report_failure(client, delivery, error);
    if (!is_stamped(client, delivery)) {
        trajd_error_set(&client->session.failure, TRAJD_ERR_PROTOCOL, 0,
                        "the daemon breaks the protocol: slot %u does not have generation %llu",
                        delivery->lease.slot, (unsigned long long)delivery->lease.generation);
        struct trajd_error failure = client->session.failure;
        trajd_session_fail(client, &failure);
        *error = failure;
        return TRAJD_ERR_PROTOCOL;
    }
    struct trajd_batch *batch = trajd_batch_create(client, delivery);
    if (batch)
        delivery->payload = NULL; /* the batch has it */
    trajd_delivery_drop(client, delivery);
    if (!batch)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "next: out of memory");
    pthread_mutex_lock(&client->state_lock);
    batch->incarnation = client->incarnation;
    batch->held_index = client->held.count;
    client->held.batches[client->held.count++] = batch;
    client->held.previous = batch;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
    *out = batch;
    return TRAJD_OK;
}

/* Returns TRAJD_OK if a batch may still come, else why not. */
static enum trajd_status check_can_continue(struct trajd_client *client, struct trajd_error *error)
{
    pthread_mutex_lock(&client->state_lock);
    bool ended = client->epoch_ended;
    pthread_mutex_unlock(&client->state_lock);
    if (client->session.phase == TRAJD_PHASE_FAILED) {
        *error = client->session.failure;
        return client->session.failure.status;
    }
    if (ended)
        return TRAJD_END_OF_EPOCH;
    if (client->session.is_ending && !client->reconnect)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon at %s is shutting down",
                               client->endpoint);
    if (!client->open.terms.feed ||
        (client->session.phase == TRAJD_PHASE_READY && !client->feed.is_granted))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "next: open a feed first");
    return TRAJD_OK;
}

/* Counts the batches that the caller holds. Deferred ones go back without the caller. */
static uint32_t count_held(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    uint32_t count = client->held.count - trajd_deferred_count(client);
    pthread_mutex_unlock(&client->state_lock);
    return count;
}

/* Sends DONE for the batch before, as every call of next() does without `explicit_done`. While
 * batches are queued, pending ACKs are sent in bursts of half the credit. */
static void acknowledge_previous(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    if (client->held.previous && !client->explicit_done)
        trajd_batch_mark_done(client->held.previous);
    const struct trajd_wire_ack *pending = &client->ack.pending;
    const uint32_t released = trajd_release_burst_ns(client) == 0 ? pending->released.count : 0;
    const uint32_t done = pending->done.count + pending->positions.count;
    const uint32_t unsent = released > done ? released : done;
    bool flush =
        unsent > 0 && (client->queue.count == 0 || unsent >= (client->feed.info.credit + 1) / 2);
    if (unsent > 0 && !flush)
        trajd_client_wake_sender(
            client); /* in a millisecond, however long the caller works on the batch */
    pthread_mutex_unlock(&client->state_lock);
    if (flush)
        trajd_session_exchange(client);
}

static bool was_interrupted(struct trajd_client *client)
{
    return __atomic_exchange_n(&client->interrupted, false,
                               __ATOMIC_ACQ_REL); /* acquire: pairs with trajd_client_interrupt */
}

static void pass_notice(struct trajd_client *client)
{
    if (!client->notice.is_new)
        return;
    client->notice.is_new = false;
    client->notice.callback(client->cancel.context, client->notice.text, client->notice.wait_ms);
}

static enum trajd_status await_batch(struct trajd_client *client, int timeout_ms,
                                     struct trajd_batch **batch, struct trajd_error *error)
{
    const uint64_t deadline_ns = trajd_client_deadline_ns(timeout_ms);
    const uint64_t timeout_ns = trajd_client_now_ns() + BUSY_NS;
    const uint64_t busy_ns = timeout_ns < deadline_ns ? timeout_ns : deadline_ns;
    struct trajd_delivery delivery;
    for (bool turned = false;; turned = true) {
        pass_notice(client);
        /* checked before a batch is taken, which would be lost */
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: interrupted");
        if (take_delivery(client, &delivery))
            return deliver(client, &delivery, batch, error);
        enum trajd_status status = check_can_continue(client, error);
        if (status)
            return status;
        const uint64_t now_ns = trajd_client_now_ns();
        const uint32_t held = count_held(client);
        const bool exhausted = client->feed.info.credit > 0 && held >= client->feed.info.credit;
        if (turned && exhausted && now_ns >= busy_ns)
            return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                                   "next: %u batch%s held, and the credit is %u: release one first",
                                   held, held == 1 ? " is" : "es are", client->feed.info.credit);
        if (was_interrupted(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: interrupted");
        if (turned && now_ns >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "next: no batch in time");
        if (!turned)
            trajd_session_exchange(client);
        else
            trajd_session_wait(client, exhausted ? busy_ns : deadline_ns);
    }
}

enum trajd_status trajd_client_next(struct trajd_client *client, int timeout_ms,
                                    struct trajd_batch **batch, struct trajd_error *error)
{
    struct trajd_error own;
    error = error ? error : &own;
    *batch = NULL;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (status)
        return status;
    trajd_deferred_collect(client);
    pthread_mutex_lock(&client->io_lock);
    trajd_session_begin_call(client);
    acknowledge_previous(client);
    status = await_batch(client, timeout_ms, batch, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
