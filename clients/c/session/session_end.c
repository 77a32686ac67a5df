/* The end of a session, and what a queue job's worker keeps when its daemon dies, and reports to the next one: the batches
 * that it still has, and those that it finished last. A message with DONE may have died with the
 * daemon. Those DONEs are among the last ones, and not more than the credit, because a batch counts
 * against the credit until its DONE has arrived. So a list of the last DONEs has them all. */
#include <string.h>
#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define RETRY_NS (20 * UINT64_C(1000000))

static bool has_position(const struct trajd_wire_positions *positions, uint64_t position)
{
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->list[i] == position)
            return true;
    return false;
}

static void append(struct trajd_wire_positions *positions, uint64_t position)
{
    if (positions->count < TRAJD_WIRE_MAX_LEASES)
        positions->list[positions->count++] = position;
}

void trajd_carried_note_done(struct trajd_client *client, uint64_t position)
{
    struct trajd_wire_positions *done = &client->carried.done;
    if (client->carried.pass == 0)
        return; /* shard mode, or a daemon that does not ask */
    if (done->count == TRAJD_WIRE_MAX_LEASES)
        memmove(done->list, done->list + 1, --done->count * sizeof done->list[0]);
    done->list[done->count++] = position;
    if (has_position(&client->carried.kept, position))
        append(&client->ack.pending.positions, position);
}

/* Reports again what was finished since the OPEN: an earlier report may be lost. */
static void report_done(struct trajd_client *client)
{
    const struct trajd_wire_positions *kept = &client->carried.kept;
    client->ack.pending.positions.count = 0;
    for (uint32_t i = 0; i < kept->count; i++)
        if (has_position(&client->carried.done, kept->list[i]))
            append(&client->ack.pending.positions, kept->list[i]);
}

void trajd_carried_report_done(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    report_done(client);
    pthread_mutex_unlock(&client->state_lock);
}

/* Removes carried batches from client->held, except those in `kept`. Their DONE is not sent. */
static void drop_held(struct trajd_client *client, const struct trajd_wire_positions *kept)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < client->held.count; i++) {
        struct trajd_batch *batch = client->held.batches[i];
        if (batch->is_carried && !(kept && has_position(kept, batch->info.position))) {
            batch->incarnation = 0;
            if (client->held.previous == batch)
                client->held.previous = NULL;
            continue;
        }
        batch->held_index = count;
        client->held.batches[count++] = batch;
    }
    client->held.count = count;
}

static void drop_waiting(struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->carried.waiting_count; i++)
        trajd_delivery_drop(client, &client->carried.waiting[i]);
    client->carried.waiting_count = 0;
}

void trajd_carried_drop_batches(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    drop_waiting(client);
    drop_held(client, NULL);
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_carried_drop(struct trajd_client *client)
{
    trajd_carried_drop_batches(client);
    pthread_mutex_lock(&client->state_lock);
    client->carried.pass = 0;
    client->carried.done.count = client->carried.kept.count = 0;
    client->ack.pending.positions.count = 0;
    pthread_mutex_unlock(&client->state_lock);
}

static void keep_held(struct trajd_client *client)
{
    uint32_t count = 0;
    bool keeps_previous = false;
    for (uint32_t i = 0; i < client->held.count; i++) {
        struct trajd_batch *batch = client->held.batches[i];
        if (batch->is_done || batch->is_superseded)
            continue;
        batch->is_carried = true;
        batch->incarnation = client->incarnation;
        batch->held_index = count;
        client->held.batches[count++] = batch;
        keeps_previous = keeps_previous || batch == client->held.previous;
    }
    client->held.count = count;
    if (!keeps_previous)
        client->held.previous = NULL;
}

/* Returns false for a batch that came while its ring was not mapped: the daemon died too early, or
 * the client could not open the GPU's memory. */
static bool is_readable(const struct trajd_client *client, const struct trajd_delivery *delivery)
{
    return delivery->is_carried || delivery->failure || delivery->payload || client->feed.mapping;
}

/* The memory of these batches outlives the daemon, but client->feed changes with the next one. */
static void keep_queue(struct trajd_client *client)
{
    for (; client->queue.count > 0; client->queue.count--) {
        struct trajd_delivery *delivery = &client->queue.entries[client->queue.first];
        client->queue.first = (client->queue.first + 1) % TRAJD_CLIENT_QUEUE;
        if (client->carried.waiting_count == TRAJD_CLIENT_QUEUE || !is_readable(client, delivery)) {
            trajd_delivery_drop(client, delivery);
            continue;
        }
        if (!delivery->is_carried) {
            delivery->is_carried = true;
            delivery->mapping =
                client->feed.mapping ? trajd_mapping_hold(client->feed.mapping) : NULL;
            delivery->schema = trajd_schema_hold(client->feed.schema);
            delivery->buffers = client->feed.buffers;
        }
        client->carried.waiting[client->carried.waiting_count++] = *delivery;
    }
}

void trajd_carried_keep(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->incarnation++;
    keep_held(client);
    keep_queue(client);
    client->carried.kept.count = 0;
    client->ack.pending = (struct trajd_wire_ack){.done.count = 0};
    client->epoch_ended = false;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_carried_list(struct trajd_client *client, struct trajd_wire_open *open)
{
    pthread_mutex_lock(&client->state_lock);
    open->pass = client->carried.pass;
    if (open->pass > 0) {
        open->batch = client->feed.info.global_batch;
        open->done = client->carried.done;
        for (uint32_t i = 0; i < client->held.count; i++)
            if (client->held.batches[i]->is_carried)
                append(&open->held, client->held.batches[i]->info.position);
        for (uint32_t i = 0; i < client->carried.waiting_count; i++)
            append(&open->held, client->carried.waiting[i].position);
    }
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_carried_settle(struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    struct trajd_client_queue *queue = &client->queue;
    pthread_mutex_lock(&client->state_lock);
    if (opened->pass != client->carried.pass)
        client->carried.done.count = 0;
    client->carried.pass = opened->pass;
    client->carried.kept = opened->held;
    drop_held(client, &opened->held);
    for (uint32_t i = 0; i < client->carried.waiting_count; i++) {
        struct trajd_delivery *delivery = &client->carried.waiting[i];
        if (has_position(&opened->held, delivery->position) && queue->count < TRAJD_CLIENT_QUEUE)
            queue->entries[(queue->first + queue->count++) % TRAJD_CLIENT_QUEUE] = *delivery;
        else
            trajd_delivery_drop(client, delivery);
    }
    client->carried.waiting_count = 0;
    report_done(client);
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

/* ---- the end ---- */

void trajd_session_fail(struct trajd_client *client, const struct trajd_error *error)
{
    client->session.failure = *error;
    client->session.phase = TRAJD_PHASE_FAILED;
    pthread_mutex_lock(&client->state_lock);
    client->is_over = true;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_session_fail_protocol(struct trajd_client *client, const char *what)
{
    struct trajd_error error;
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "the daemon breaks the protocol: %s", what);
    trajd_session_fail(client, &error);
}

void trajd_session_clear_batches(struct trajd_client *client)
{
    trajd_carried_drop(client);
    pthread_mutex_lock(&client->state_lock);
    for (uint32_t i = 0; i < client->queue.count; i++)
        trajd_delivery_drop(client,
                            &client->queue.entries[(client->queue.first + i) % TRAJD_CLIENT_QUEUE]);
    client->queue.count = 0;
    client->held.count = 0; /* they stay readable; their leases end with the session */
    client->held.previous = NULL;
    client->ack.pending.done.count = client->ack.pending.released.count = 0;
    client->epoch_ended = false;
    client->incarnation++;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

static void clear_rings(struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->rings.mapped_count; i++)
        trajd_mapping_drop(client->rings.mapped[i]);
    for (uint32_t i = 0; i < client->rings.received_count; i++)
        close(client->rings.received[i].fd);
    client->rings.mapped_count = client->rings.received_count = 0;
    client->feed.mapping = NULL;
}

void trajd_session_clear(struct trajd_client *client)
{
    trajd_session_clear_batches(client);
    clear_rings(client);
}

void trajd_session_end(struct trajd_client *client)
{
    struct trajd_error error;
    if (client->reconnect && client->feed.is_granted && client->carried.pass > 0)
        trajd_carried_keep(client);
    else
        trajd_session_clear_batches(client);
    clear_rings(client);
    trajd_link_detach(&client->link);
    client->query.request = 0;
    client->feed.id = 0;
    client->session.received_sequence = 0;
    client->notice.is_new = false;
    if (client->session.was_ready && !client->session.lost_ns)
        client->session.lost_ns = trajd_client_now_ns();
    client->session.is_resuming = client->session.is_ending = false;
    client->open.is_fresh = client->open.is_fresh && !client->feed.is_granted;
    if (client->session.was_ready && !client->reconnect) {
        trajd_error_set(&error, TRAJD_ERR_CLOSED, 0, "the daemon at %s ended%s", client->endpoint,
                        client->link.remote
                            ? ", or could not be reached for so long that it closed this session"
                            : "");
        trajd_session_fail(client, &error);
        return;
    }
    client->session.phase = TRAJD_PHASE_DOWN;
    client->session.retry_at_ns = trajd_client_now_ns() + RETRY_NS;
    if (trajd_link_dial(&client->link, &error))
        trajd_session_fail(client, &error);
}
