/* Sends HELLO, OPEN and ACK to the daemon. */
#include <assert.h>
#include <string.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

void trajd_session_send(struct trajd_client *client, const struct trajd_wire_message *message)
{
    size_t size;
    client->session.has_sent = true;
    if (trajd_wire_encode(message, client->session.frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) ||
        trajd_link_send(&client->link, client->session.frame, size))
        return; /* not connected: everything that matters is sent again after the next HELLO */
    client->session.last_sent_ns = trajd_client_now_ns();
}

/* ---- HELLO ---- */

/* Names the leases that this worker still has. The daemon takes all others up to received_sequence
 * as released, so no release is pending any more. */
static void list_leases(struct trajd_client *client, struct trajd_wire_hello *hello)
{
    pthread_mutex_lock(&client->state_lock);
    for (uint32_t i = 0; i < client->queue.count; i++) {
        const struct trajd_delivery *delivery =
            &client->queue.entries[(client->queue.first + i) % TRAJD_CLIENT_QUEUE];
        if (!delivery->is_carried) /* its lease was of another session */
            trajd_leases_append(&hello->held, &delivery->lease);
    }
    for (uint32_t i = 0; i < client->held.count; i++) {
        if (client->held.batches[i]->is_carried)
            continue; /* it has no lease */
        trajd_leases_append(&hello->held, &client->held.batches[i]->lease);
        if (client->held.batches[i]->is_done && !client->held.batches[i]->is_superseded)
            trajd_leases_append(&hello->done, &client->held.batches[i]->lease);
    }
    client->ack.pending.done.count = client->ack.pending.released.count = 0;
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_session_send_hello(struct trajd_client *client, uint64_t now_ns)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO,
                                         .hello = {.minor = TRAJD_WIRE_MINOR,
                                                   .client = trajd_wire_text(client->name),
                                                   .pid = (uint64_t)client->pid}};
    if (client->session.is_resuming) {
        message.hello.has_token = true;
        memcpy(message.hello.token, client->session.token, sizeof client->session.token);
        message.hello.instance = client->session.instance;
        message.hello.received = client->session.received_sequence;
        list_leases(client, &message.hello);
    }
    trajd_session_send(client, &message);
    client->session.hello_sent_ns = now_ns;
}

/* ---- OPEN ---- */

void trajd_session_end_epoch(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->ack.burst_since_ns = 0; /* send all of them now */
    pthread_mutex_unlock(&client->state_lock);
    trajd_session_send_acks(client);
    pthread_mutex_lock(&client->state_lock);
    for (uint32_t i = 0; i < client->held.count; i++)
        client->held.batches[i]->is_superseded = true;
    client->ack.pending.done.count = 0; /* could not be sent: these batches go back without DONE */
    client->held.previous = NULL;
    pthread_mutex_unlock(&client->state_lock);
    trajd_carried_drop(client);
}

/* Returns which form of images to request. A feed that is opened again keeps its form, because
 * the program knows its tensors. */
static enum trajd_wire_unfinished choose_form(const struct trajd_client *client)
{
    static_assert((int)TRAJD_RATHER_UNFINISHED == (int)TRAJD_WIRE_RATHER_UNFINISHED &&
                      (int)TRAJD_UNFINISHED == (int)TRAJD_WIRE_UNFINISHED,
                  "the same numbers in trajd.h and on the wire");
    if (client->open.is_fresh)
        return (enum trajd_wire_unfinished)client->open.terms.unfinished;
    return client->feed.is_unfinished ? TRAJD_WIRE_RATHER_UNFINISHED : TRAJD_WIRE_FINISHED;
}

static void send_open(struct trajd_client *client)
{
    const struct trajd_open_terms *wanted = &client->open.terms;
    const bool wants_gpu = wanted->gpu[0] != '\0' && !client->open.gpu_refused;
    const bool is_continued = !client->open.is_fresh && wanted->mode == TRAJD_MODE_SHARD;
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_OPEN,
        .open = {
            .request = client->open.request,
            .feed = trajd_wire_text(wanted->feed),
            .spec = trajd_wire_text(wanted->spec),
            .job = trajd_wire_text(wanted->job),
            .mode = wanted->mode == TRAJD_MODE_SHARD ? TRAJD_WIRE_SHARD : TRAJD_WIRE_QUEUE,
            .rank = wanted->rank,
            .world = wanted->world,
            .credit = wanted->credit,
            .epoch = wanted->epoch,
            .next = is_continued ? client->feed.next_position : wanted->next,
            .fingerprint =
                client->open.is_fresh ? wanted->fingerprint : client->feed.info.fingerprint,
            .norm = client->open.is_fresh ? 0 : client->feed.info.norm_digest,
            .fresh = client->open.is_fresh,
            .local = wants_gpu && wanted->on_gpu.count > 0 ? wanted->on_gpu : wanted->local,
            .gpu = trajd_wire_text(wants_gpu ? wanted->gpu : NULL),
            .unfinished = choose_form(client),
        }};
    if (client->open.is_fresh) /* on a repeated OPEN the daemon knows of later DONEs itself */
        message.open.resume = (struct trajd_wire_bytes){wanted->resume, wanted->resume_size};
    else
        trajd_carried_list(client, &message.open);
    trajd_session_send(client, &message);
}

void trajd_session_send_open(struct trajd_client *client)
{
    client->open.request = ++client->session.last_request;
    client->session.phase = TRAJD_PHASE_OPENING;
    send_open(client);
}

void trajd_session_resend_open(struct trajd_client *client)
{
    if (client->session.phase == TRAJD_PHASE_OPENING)
        send_open(client);
}

/* ---- acknowledgements ---- */

static void merge_positions(struct trajd_wire_positions *into,
                            const struct trajd_wire_positions *from)
{
    for (uint32_t i = 0; i < from->count && into->count < TRAJD_WIRE_MAX_LEASES; i++)
        into->list[into->count++] = from->list[i];
}

static void merge(struct trajd_wire_leases *into, const struct trajd_wire_leases *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        trajd_leases_append(into, &from->list[i]);
}

bool trajd_session_can_ack(const struct trajd_client *client)
{
    return !client->session.is_resuming && trajd_link_is_attached(&client->link) &&
           client->session.phase >= TRAJD_PHASE_READY;
}

void trajd_session_send_acks(struct trajd_client *client)
{
    size_t size;
    if (!trajd_session_can_ack(client))
        return;
    pthread_mutex_lock(&client->state_lock);
    struct trajd_wire_message message = {.op = TRAJD_WIRE_ACK, .ack = client->ack.pending};
    client->ack.pending.done.count = client->ack.pending.positions.count = 0;
    if (trajd_release_burst_ns(client) == 0)
        client->ack.pending.released.count = 0;
    else
        message.ack.released.count = 0;
    pthread_mutex_unlock(&client->state_lock);
    if (message.ack.done.count + message.ack.released.count + message.ack.positions.count == 0)
        return;
    if (!trajd_wire_encode(&message, client->session.frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) &&
        !trajd_link_send(&client->link, client->session.frame, size)) {
        client->session.last_sent_ns = trajd_client_now_ns();
        return;
    }
    pthread_mutex_lock(&client->state_lock);
    merge(&client->ack.pending.done, &message.ack.done);
    merge(&client->ack.pending.released, &message.ack.released);
    merge_positions(&client->ack.pending.positions, &message.ack.positions);
    pthread_mutex_unlock(&client->state_lock);
}

bool trajd_session_has_acks(const struct trajd_client *client)
{
    return client->ack.pending.done.count > 0 || client->ack.pending.positions.count > 0 ||
           (client->ack.pending.released.count > 0 && trajd_release_burst_ns(client) == 0);
}
