/* The outbox: encoded messages that wait to be sent, and the calls that send them or wake a thread.
 * The lowest file that uses struct trajd_server. In this folder it calls only transport/ and
 * slot_sends.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/server/server_internal.h"

#define MAX_IDLE_ROOM ((size_t)1 << 20) /* bytes that an empty outbox keeps */

void trajd_server_log(void *context, const char *line)
{
    const struct trajd_transport_remote *remote = &((struct trajd_server *)context)->options.remote;
    if (remote->log_line)
        remote->log_line(remote->context, line);
}

/* ---- adding messages; the caller holds the mutex ---- */

static bool grow(struct trajd_outbox *outbox, size_t size)
{
    if (outbox->room - outbox->size >= size)
        return true;
    size_t room = outbox->room * 2 > outbox->size + size ? outbox->room * 2 : outbox->size + size;
    unsigned char *bytes = realloc(outbox->bytes, room);
    if (!bytes)
        return false;
    outbox->bytes = bytes;
    outbox->room = room;
    return true;
}

/* Adds the rows of a good BATCH to its record if the worker is remote, with a send reference of
 * their slot. */
static void add_payload(struct trajd_server *server, const struct trajd_wire_batch *batch,
                        struct trajd_outgoing_record *record)
{
    struct trajd_feed *feed = server->feeds;
    while (feed && trajd_core_feed_id(feed->core) != batch->feed_id)
        feed = feed->next;
    if (!feed || record->route.listener != TRAJD_LISTENER_REMOTE || batch->error.size > 0)
        return;
    trajd_slot_sends_acquire(feed->slot_sends, batch->slot);
    record->slot_sends = feed->slot_sends;
    record->slot = batch->slot;
    record->row_begin = batch->row_begin;
    record->row_count = batch->row_count;
}

void trajd_server_send(struct trajd_server *server, struct trajd_peer *peer,
                       const struct trajd_wire_message *message)
{
    struct trajd_outbox *outbox = &server->outbox;
    struct trajd_outgoing_record record = {.route = peer->route};
    struct trajd_wire_message welcome;
    size_t size;
    if (peer->has_lost_message)
        return;
    if (!grow(outbox, sizeof record + TRAJD_WIRE_MAX_FRAME)) {
        peer->has_lost_message = true;
        return;
    }
    if (message->op == TRAJD_WIRE_WELCOME && peer->route.listener == TRAJD_LISTENER_REMOTE) {
        welcome = *message;
        welcome.welcome.silence_ms = server->options.remote.silence_ms;
        message = &welcome;
    }
    unsigned char *at = outbox->bytes + outbox->size;
    if (trajd_wire_encode(message, at + sizeof record, TRAJD_WIRE_MAX_FRAME, &size, NULL))
        return;
    record.length = (uint32_t)size;
    if (message->op == TRAJD_WIRE_BATCH) {
        record.ready_ns = message->batch.ready_ns;
        add_payload(server, &message->batch, &record);
    }
    memcpy(at, &record, sizeof record);
    outbox->size += sizeof record + size;
}

void trajd_outbox_drop(struct trajd_outbox *outbox)
{
    struct trajd_outgoing_record record;
    for (size_t at = 0; at < outbox->size; at += sizeof record + record.length) {
        memcpy(&record, outbox->bytes + at, sizeof record);
        if (record.slot_sends)
            trajd_slot_sends_return(record.slot_sends, record.slot);
    }
    free(outbox->bytes);
    *outbox = (struct trajd_outbox){0};
}

/* ---- waking threads; the caller holds the mutex ---- */

void trajd_server_wake(struct trajd_server *server)
{
    const uint64_t one = 1;
    if (server->woken)
        return;
    server->woken = true;
    if (write(server->wake_fd, &one, sizeof one) < 0)
        server->woken = false; /* fails only on a full counter, which is readable already */
}

void trajd_server_wake_takers(struct trajd_server *server)
{
    for (struct trajd_feed *feed = server->feeds; feed; feed = feed->next) {
        if (feed->is_wanted)
            pthread_cond_broadcast(&feed->wanted);
        feed->is_wanted = false;
    }
}

/* ---- sending; the caller holds the send lock ---- */

static void note_latency(struct trajd_server *server, uint64_t ready_ns)
{
    const uint64_t now_ns = (uint64_t)trajd_now_ns();
    const uint64_t took_ns = now_ns > ready_ns ? now_ns - ready_ns : 0;
    uint32_t bucket = took_ns > 0 ? 64u - (uint32_t)__builtin_clzll(took_ns) : 0;
    server->latency[bucket < TRAJD_LATENCY_BUCKETS ? bucket : TRAJD_LATENCY_BUCKETS - 1]++;
    server->latency_sum_ns += took_ns;
}

static enum trajd_status send_record(struct trajd_server *server,
                                     const struct trajd_outgoing_record *record, const void *frame)
{
    struct trajd_payload_segment segments[TRAJD_WIRE_MAX_TENSORS];
    if (record->ready_ns == 0)
        return trajd_transport_answer(server->transport, &record->route, frame, record->length);
    if (!record->slot_sends)
        return trajd_transport_send(server->transport, &record->route, frame, record->length);
    const uint32_t count = trajd_slot_sends_payload(record->slot_sends, record->slot,
                                                    record->row_begin, record->row_count, segments);
    enum trajd_status status =
        trajd_transport_send_payload(server->transport, &record->route, frame, record->length,
                                     segments, count, record->slot_sends, record->slot);
    trajd_slot_sends_return(record->slot_sends, record->slot);
    return status;
}

bool trajd_server_send_taken(struct trajd_server *server)
{
    const bool found = server->sending.size > 0;
    const unsigned char *at = server->sending.bytes;
    const unsigned char *end = at + server->sending.size;
    while (at < end) {
        struct trajd_outgoing_record record;
        memcpy(&record, at, sizeof record);
        at += sizeof record;
        if (send_record(server, &record, at))
            /* Nothing is lost: the worker resumes with its token, or the end of its fd.sock
             * connection ends the session. */
            server->unsent++;
        else if (record.ready_ns != 0)
            note_latency(server, record.ready_ns);
        at += record.length;
    }
    server->sending.size = 0;
    if (server->sending.room > MAX_IDLE_ROOM)
        trajd_outbox_drop(&server->sending);
    return found;
}

void trajd_server_take_outbox(struct trajd_server *server)
{
    struct trajd_outbox full = server->outbox;
    server->outbox = server->sending;
    server->sending = full;
}

bool trajd_server_outbox_is_full(struct trajd_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool full = server->outbox.size > MAX_IDLE_ROOM;
    pthread_mutex_unlock(&server->mutex);
    return full;
}

bool trajd_server_outbox_is_empty(struct trajd_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool empty = server->outbox.size == 0;
    pthread_mutex_unlock(&server->mutex);
    return empty;
}

/* Two races are closed here. Sending may consume the event by which ZeroMQ reports a new message,
 * and the server's thread sleeps until that event. So this function looks for a message after it
 * has sent, and wakes the thread. And another thread that finds the send lock taken leaves its
 * messages in the outbox: so this looks at the outbox again after it has released the lock. */
void trajd_server_flush(struct trajd_server *server)
{
    do {
        if (pthread_mutex_trylock(&server->send_lock) != 0)
            return;
        pthread_mutex_lock(&server->mutex);
        trajd_server_take_outbox(server);
        pthread_mutex_unlock(&server->mutex);
        bool arrived =
            trajd_server_send_taken(server) && trajd_transport_has_message(server->transport);
        pthread_mutex_unlock(&server->send_lock);
        if (!arrived)
            continue;
        pthread_mutex_lock(&server->mutex);
        trajd_server_wake(server);
        pthread_mutex_unlock(&server->mutex);
    } while (!trajd_server_outbox_is_empty(server));
}
