/* Receives and sends the messages of both listeners. */
#include "daemon/server/transport/transport.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/server/transport/connections.h"
#include "daemon/server/transport/transport_internal.h"

#define QUIET_NS (10 * UINT64_C(1000000000)) /* a flood is over after this time without it */
/* A local peer with this number of unread bytes gets no answers. The kernel keeps about 200 KiB for
 * it, so libzmq's queues stay empty. */
#define MAX_UNREAD_BYTES ((size_t)160 << 10)
/* zmq.h names this option for its draft API alone, but each version since 4.2.5 has it. Without it
 * a short message keeps the buffer of 18 KiB into which it was read. */
#define ZERO_COPY_RECV 10
#define FRAMES_A_CALL 32u /* that are discarded */
/* What CURVE adds to a frame: the name of its command, a nonce, a checksum and flags. */
#define CURVE_BOX_BYTES (8u + 8u + 16u + 1u)
#define TRIM_NS (1000 * UINT64_C(1000000))

enum trajd_status trajd_transport_create(const struct trajd_transport_options *options,
                                         struct trajd_transport **out, struct trajd_error *error)
{
    struct trajd_transport *transport = calloc(1, sizeof *transport);
    if (!transport)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    transport->group_access = options->group_access;
    transport->remote = options->remote;
    zmq_msg_init(&transport->frame);
    enum trajd_status status = TRAJD_OK;
    transport->context = zmq_ctx_new();
    if (!transport->context ||
        zmq_ctx_set(transport->context, ZMQ_IO_THREADS,
                    1 + (options->remote.address ? trajd_listeners_remote_threads() : 0)) != 0)
        status = trajd_zmq_error(error, "zmq_ctx_new");
    if (!status && zmq_ctx_set(transport->context, ZERO_COPY_RECV, 0) != 0)
        status = trajd_zmq_error(error, "zmq_ctx_set: ZMQ_ZERO_COPY_RECV");
    if (!status)
        status = trajd_access_open(transport, error); /* before the first connection */
    if (!status)
        status = trajd_listeners_open(transport, options, error);
    if (status) {
        trajd_transport_destroy(&transport);
        return status;
    }
    size_t size = sizeof transport->zap_fd;
    zmq_getsockopt(transport->zap, ZMQ_FD, &transport->zap_fd, &size);
    transport->has_side_events = true;
    *out = transport;
    return TRAJD_OK;
}

void trajd_transport_destroy(struct trajd_transport **pointer)
{
    struct trajd_transport *transport = *pointer;
    if (!transport)
        return;
    zmq_msg_close(&transport->frame);
    trajd_listeners_close(transport);
    if (transport->zap)
        zmq_close(transport->zap);
    if (transport->context)
        zmq_ctx_term(transport->context);
    free(transport);
    *pointer = NULL;
}

const char *trajd_transport_remote_endpoint(const struct trajd_transport *transport)
{
    return transport->listeners[TRAJD_LISTENER_REMOTE].endpoint;
}

/* ---- waiting ---- */

/* Polls the descriptors of the sockets itself, because zmq_poll checks every socket twice. Such a
 * descriptor is edge-triggered: it becomes readable when an empty socket gets an event. */
uint32_t trajd_transport_wait(struct trajd_transport *transport, const int *descriptors,
                              uint32_t count, uint32_t timeout_ms)
{
    struct pollfd items[1 + 2 * TRAJD_LISTENERS + 4] = {
        {.fd = transport->zap_fd, .events = POLLIN}};
    nfds_t used = 1;
    uint32_t readable = 0;
    for (uint32_t i = 0; i < TRAJD_LISTENERS; i++)
        if (transport->listeners[i].router)
            items[used++] =
                (struct pollfd){.fd = transport->listeners[i].monitor_fd, .events = POLLIN};
    const nfds_t side_count = used;
    for (uint32_t i = 0; i < TRAJD_LISTENERS; i++)
        if (transport->listeners[i].router)
            items[used++] =
                (struct pollfd){.fd = transport->listeners[i].router_fd, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++)
        items[used + i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
    const int ready = poll(items, used + count, transport->has_side_events ? 0 : (int)timeout_ms);
    transport->has_side_events = transport->has_side_events || ready <= 0;
    for (nfds_t i = 0; ready > 0 && i < side_count; i++)
        transport->has_side_events = transport->has_side_events || items[i].revents != 0;
    for (uint32_t i = 0; ready > 0 && i < count; i++)
        readable |= (uint32_t)(items[used + i].revents != 0) << i;
    return readable;
}

bool trajd_transport_has_message(struct trajd_transport *transport)
{
    for (uint32_t i = 0; i < TRAJD_LISTENERS; i++) {
        int events = 0;
        size_t size = sizeof events;
        if (transport->listeners[i].router &&
            zmq_getsockopt(transport->listeners[i].router, ZMQ_EVENTS, &events, &size) == 0 &&
            (events & ZMQ_POLLIN) != 0)
            return true;
    }
    return false;
}

void trajd_transport_turn(struct trajd_transport *transport)
{
    if (!transport->has_side_events)
        return;
    const bool has_requests = trajd_access_answer(transport);
    transport->has_side_events = trajd_listeners_read_monitors(transport) || has_requests;
}

static void log_line(const struct trajd_transport *transport, const char *line)
{
    if (transport->remote.log_line)
        transport->remote.log_line(transport->remote.context, line);
}

/* Compares a counter with its last value. Returns true when it begins to grow: it has not grown for
 * QUIET_NS. */
static bool does_begin(uint64_t counter, uint64_t *seen, uint64_t *ends_ns, uint64_t now_ns)
{
    const bool grows = counter > *seen, begins = grows && now_ns >= *ends_ns;
    *seen = counter;
    if (grows)
        *ends_ns = now_ns + QUIET_NS;
    return begins;
}

static void report_floods(struct trajd_transport *transport, uint64_t now_ns)
{
    struct trajd_connections_counters counters;
    trajd_connections_get_counters(&counters);
    if (does_begin(counters.refused, &transport->seen_refused, &transport->flood_ends_ns, now_ns)) {
        transport->counters.floods++;
        log_line(transport, "a flood of connections: further ones are refused. Sessions go on");
    }
    transport->counters.cut_connections += counters.cut - transport->seen_cut;
    if (does_begin(counters.cut, &transport->seen_cut, &transport->cuts_end_ns, now_ns))
        log_line(transport, "cut off connections whose messages did not end, that did not read "
                            "their answers, or that began no session while many waited. The "
                            "status counts them as cut_connections");
}

/* Returns memory to the system when connections have ended: glibc keeps what ZeroMQ frees. */
static void return_memory(struct trajd_transport *transport, uint64_t now_ns)
{
    if (transport->trim_at_ns != 0 && now_ns >= transport->trim_at_ns) {
        malloc_trim(0);
        transport->trim_at_ns = 0;
    }
    if (transport->has_garbage && transport->trim_at_ns == 0)
        transport->trim_at_ns = now_ns + TRIM_NS;
    transport->has_garbage = false;
}

void trajd_transport_tick(struct trajd_transport *transport, uint64_t now_ns)
{
    trajd_connections_watch(now_ns);
    report_floods(transport, now_ns);
    return_memory(transport, now_ns);
}

bool trajd_transport_is_shut_out(const struct trajd_transport *transport, const char *user,
                                 const char *key)
{
    return transport->keyring && trajd_keyring_is_gone(transport->keyring, user, key);
}

const struct trajd_transport_counters *
trajd_transport_get_counters(const struct trajd_transport *transport)
{
    return &transport->counters;
}

/* ---- receiving ---- */

static bool has_more(zmq_msg_t *message)
{
    return zmq_msg_more(message) != 0;
}

/* Receives a frame. Returns false if none waits. The frames of one message arrive together. */
static bool receive_frame(struct trajd_transport *transport, uint32_t index)
{
    return zmq_msg_recv(&transport->frame, transport->listeners[index].router, ZMQ_DONTWAIT) >= 0;
}

/* Receives a frame that a peer has sent, and reports its size on the wire. */
static bool receive_body(struct trajd_transport *transport, uint32_t index, int *descriptor)
{
    const bool encrypted = index == TRAJD_LISTENER_REMOTE && transport->keyring;
    if (!receive_frame(transport, index))
        return false;
    *descriptor = zmq_msg_get(&transport->frame, ZMQ_SRCFD);
    trajd_connections_consume(*descriptor,
                              zmq_msg_size(&transport->frame) + (encrypted ? CURVE_BOX_BYTES : 0));
    return true;
}

/* Discards frames of an invalid message. What remains is discarded by the next call. */
static void skip_frames(struct trajd_transport *transport, uint32_t index)
{
    struct trajd_transport_listener *listener = &transport->listeners[index];
    int descriptor;
    for (uint32_t i = 0; i < FRAMES_A_CALL && listener->is_skipping; i++)
        listener->is_skipping =
            receive_body(transport, index, &descriptor) && has_more(&transport->frame);
}

static const char *property(zmq_msg_t *message, const char *name)
{
    const char *value = zmq_msg_gets(message, name);
    return value ? value : "";
}

/* Returns a number above all uids for the name of a key. */
static uint64_t owner_of_user(const char *user)
{
    return trajd_fnv(TRAJD_FNV_BEGIN, user, strlen(user)) | UINT64_C(1) << 63;
}

/* Reads the name and the public key of a remote peer from the "User-Id" that the handshake gave to
 * it (transport_auth.c). */
static void identify_remote(struct trajd_transport *transport, struct trajd_incoming *incoming)
{
    snprintf(transport->sender, sizeof transport->sender, "%s",
             property(&transport->frame, "User-Id"));
    incoming->user = transport->sender;
    incoming->key = transport->sender + strcspn(transport->sender, " ");
    if (*incoming->key) {
        transport->sender[incoming->key - transport->sender] = '\0';
        incoming->key++;
    }
    incoming->owner = owner_of_user(incoming->user);
}

/* Sets the owner of a message. Returns false if a local peer has no uid. */
static bool identify(struct trajd_transport *transport, struct trajd_incoming *incoming)
{
    uid_t uid;
    incoming->user = incoming->key = NULL;
    incoming->address = property(&transport->frame, "Peer-Address");
    if (incoming->route.listener == TRAJD_LISTENER_REMOTE) {
        identify_remote(transport, incoming);
        return true;
    }
    if (!trajd_access_parse_uid(incoming->address, &uid))
        return false;
    incoming->owner = uid;
    return true;
}

/* Receives a message whose routing id is transport->frame. Returns false if it is invalid. Cuts a
 * peer that sends more than one frame, which no worker does. */
static bool receive_message(struct trajd_transport *transport, uint32_t index,
                            struct trajd_incoming *incoming)
{
    const size_t size = zmq_msg_size(&transport->frame);
    if (size == 0 || size > TRAJD_ROUTE_SIZE)
        return false;
    incoming->route = (struct trajd_route){.listener = (uint8_t)index, .size = (uint8_t)size};
    memcpy(incoming->route.bytes, zmq_msg_data(&transport->frame), size);
    if (!receive_body(transport, index, &incoming->route.descriptor) ||
        trajd_connections_is_cut(incoming->route.descriptor))
        return false;
    if (!has_more(&transport->frame) && identify(transport, incoming))
        return true;
    transport->counters.malformed++;
    trajd_connections_cut(incoming->route.descriptor);
    return false;
}

/* Receives a message, or frames that are discarded. Returns false if nothing waits. */
static bool receive_from(struct trajd_transport *transport, uint32_t index,
                         struct trajd_incoming *incoming)
{
    struct trajd_transport_listener *listener = &transport->listeners[index];
    if (!listener->router || (!listener->is_skipping && !receive_frame(transport, index)))
        return false;
    incoming->frame = NULL;
    if (!listener->is_skipping && receive_message(transport, index, incoming)) {
        incoming->frame = zmq_msg_data(&transport->frame);
        incoming->size_bytes = zmq_msg_size(&transport->frame);
        return true;
    }
    listener->is_skipping = listener->is_skipping || has_more(&transport->frame);
    skip_frames(transport, index);
    return true;
}

bool trajd_transport_receive(struct trajd_transport *transport, struct trajd_incoming *incoming)
{
    for (uint32_t i = 0; i < TRAJD_LISTENERS; i++) {
        const uint32_t index = (transport->next_listener + i) % TRAJD_LISTENERS;
        if (!receive_from(transport, index, incoming))
            continue;
        transport->next_listener = index + 1;
        return true;
    }
    trajd_connections_consume_all();
    return false;
}

/* ---- sending ---- */

/* A copy of bytes for a remote peer. libzmq says when it has sent or dropped them. */
struct queued_copy {
    uint64_t number; /* of trajd_connections_add_queued */
    size_t size;
    int descriptor;
    enum trajd_connections_queue queue;
    unsigned char bytes[];
};

static void free_copy(void *bytes, void *context)
{
    struct queued_copy *copy = context;
    (void)bytes;
    trajd_connections_remove_queued(copy->descriptor, copy->queue, copy->number, copy->size);
    free(copy);
}

/* Makes a message of a copy of bytes. Those for a remote peer are counted, because the kernel does
 * not tell how many it has not read: rows of batches are on their way, too. */
static bool copy_message(zmq_msg_t *message, const struct trajd_route *route,
                         enum trajd_connections_queue queue, const void *bytes, size_t size)
{
    struct queued_copy *copy = NULL;
    if (route->listener == TRAJD_LISTENER_LOCAL) {
        if (zmq_msg_init_size(message, size) != 0)
            return false;
        memcpy(zmq_msg_data(message), bytes, size);
        return true;
    }
    copy = malloc(sizeof *copy + size);
    if (!copy)
        return false;
    *copy = (struct queued_copy){.size = size, .descriptor = route->descriptor, .queue = queue};
    memcpy(copy->bytes, bytes, size);
    if (zmq_msg_init_data(message, copy->bytes, size, free_copy, copy) != 0) {
        free(copy);
        return false;
    }
    copy->number = trajd_connections_add_queued(route->descriptor, queue, size);
    return true;
}

/* Sends a message and closes it. */
static bool send_message(void *router, zmq_msg_t *message, int flags)
{
    if (zmq_msg_send(message, router, flags) >= 0)
        return true;
    zmq_msg_close(message);
    return false;
}

/* Sends a frame to a peer. Where there is no memory for it, the peer lacks a message: it is cut, and
 * its worker resumes. */
static enum trajd_status send_head(struct trajd_transport *transport,
                                   const struct trajd_route *route,
                                   enum trajd_connections_queue queue, const void *frame,
                                   size_t size_bytes, int more)
{
    void *router = transport->listeners[route->listener].router;
    zmq_msg_t message;
    if (!copy_message(&message, route, queue, frame, size_bytes)) {
        trajd_connections_cut(route->descriptor);
        return TRAJD_ERR_MEMORY;
    }
    if (zmq_send(router, route->bytes, route->size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        const int code = zmq_errno();
        zmq_msg_close(&message);
        return code == EAGAIN ? TRAJD_ERR_BUSY : TRAJD_ERR_CLOSED;
    }
    return send_message(router, &message, ZMQ_DONTWAIT | more) ? TRAJD_OK : TRAJD_ERR_CLOSED;
}

enum trajd_status trajd_transport_send(struct trajd_transport *transport,
                                       const struct trajd_route *route, const void *frame,
                                       size_t size_bytes)
{
    return send_head(transport, route, TRAJD_CONNECTIONS_COPIES, frame, size_bytes, 0);
}

/* Returns true if a peer has to read answers before it gets another one. */
static bool is_behind(const struct trajd_route *route, size_t size)
{
    return route->listener == TRAJD_LISTENER_REMOTE
               ? trajd_connections_is_queue_full(route->descriptor, TRAJD_CONNECTIONS_ANSWERS, size)
               : trajd_connections_unread(route->descriptor) > MAX_UNREAD_BYTES;
}

enum trajd_status trajd_transport_answer(struct trajd_transport *transport,
                                         const struct trajd_route *route, const void *frame,
                                         size_t size_bytes)
{
    enum trajd_status status = TRAJD_ERR_BUSY;
    if (!is_behind(route, size_bytes))
        status = send_head(transport, route, TRAJD_CONNECTIONS_ANSWERS, frame, size_bytes, 0);
    if (status == TRAJD_ERR_BUSY)
        trajd_connections_blame(route->descriptor);
    return status;
}

/* A payload that is being sent. After its first frame is queued no failure matters: if the
 * connection ends, ZeroMQ drops the frames, and calls back for them as for sent ones. */
struct outgoing {
    struct trajd_transport *transport;
    const struct trajd_route *route;
    void *router;
    struct trajd_slot_sends *slot_sends;
    uint32_t slot;
    size_t remaining; /* bytes that are not in a frame yet */
    bool is_behind;   /* many copies wait for the peer already: small segments go in place, too */
};

static int more_after(struct outgoing *out, size_t size)
{
    out->remaining -= size;
    return ZMQ_DONTWAIT | (out->remaining > 0 ? ZMQ_SNDMORE : 0);
}

/* Cuts a peer that would get a payload which is too short: its worker resumes. */
static void lack_memory(struct outgoing *out, zmq_msg_t *message)
{
    trajd_connections_cut(out->route->descriptor);
    zmq_msg_init(message);
}

static void flush_staging(struct outgoing *out)
{
    const size_t size = out->transport->staged;
    zmq_msg_t message;
    out->transport->staged = 0;
    if (size == 0)
        return;
    if (!copy_message(&message, out->route, TRAJD_CONNECTIONS_COPIES, out->transport->staging,
                      size))
        lack_memory(out, &message);
    send_message(out->router, &message, more_after(out, size));
}

static void stage(struct outgoing *out, const void *data, size_t size)
{
    if (TRAJD_STAGING_BYTES - out->transport->staged < size)
        flush_staging(out);
    memcpy(out->transport->staging + out->transport->staged, data, size);
    out->transport->staged += size;
}

static void send_in_place(struct outgoing *out, unsigned char *data, size_t size)
{
    zmq_msg_t message;
    trajd_slot_sends_acquire(out->slot_sends, out->slot);
    if (zmq_msg_init_data(&message, data, size, trajd_slot_sends_release, out->slot_sends) != 0) {
        trajd_slot_sends_return(out->slot_sends, out->slot);
        lack_memory(out, &message);
    }
    send_message(out->router, &message, more_after(out, size));
}

/* Sends constant bytes, which libzmq neither copies nor frees. */
static void send_zeros(struct outgoing *out, const unsigned char *zeros, size_t size)
{
    zmq_msg_t message;
    if (size == 0)
        return;
    zmq_msg_init_data(&message, (void *)(uintptr_t)zeros, size, NULL, NULL);
    send_message(out->router, &message, more_after(out, size));
}

static void send_segment(struct outgoing *out, const struct trajd_payload_segment *segment)
{
    static const unsigned char zeros[TRAJD_PAYLOAD_ALIGNMENT];
    if (segment->size_bytes < TRAJD_SEND_IN_PLACE_MIN_BYTES && !out->is_behind) {
        stage(out, segment->data, segment->size_bytes);
    } else {
        flush_staging(out);
        for (size_t at = 0; at < segment->size_bytes;) {
            const size_t remaining = segment->size_bytes - at;
            const size_t size =
                remaining < TRAJD_WIRE_MAX_PAYLOAD_FRAME ? remaining : TRAJD_WIRE_MAX_PAYLOAD_FRAME;
            send_in_place(out, segment->data + at, size);
            at += size;
        }
    }
    if (out->is_behind)
        send_zeros(out, zeros, segment->zeros);
    else
        stage(out, zeros, segment->zeros);
}

enum trajd_status trajd_transport_send_payload(struct trajd_transport *transport,
                                               const struct trajd_route *route, const void *frame,
                                               size_t size_bytes,
                                               const struct trajd_payload_segment *segments,
                                               uint32_t count, struct trajd_slot_sends *slot_sends,
                                               uint32_t slot)
{
    struct outgoing out = {.transport = transport,
                           .route = route,
                           .is_behind = trajd_connections_is_queue_full(
                               route->descriptor, TRAJD_CONNECTIONS_COPIES, 0),
                           .router = transport->listeners[route->listener].router,
                           .slot_sends = slot_sends,
                           .slot = slot};
    for (uint32_t i = 0; i < count; i++)
        out.remaining += segments[i].size_bytes + segments[i].zeros;
    enum trajd_status status = send_head(transport, route, TRAJD_CONNECTIONS_COPIES, frame,
                                         size_bytes, out.remaining > 0 ? ZMQ_SNDMORE : 0);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++)
        send_segment(&out, &segments[i]);
    flush_staging(&out);
    return TRAJD_OK;
}
