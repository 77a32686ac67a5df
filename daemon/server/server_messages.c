/* Handles the messages of workers; begins and ends sessions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/server/server_internal.h"
#include "proto/visible.h"

#define ATTACH_NS (5 * UINT64_C(1000000000))

/* Sends an answer at once, unless the peer reads nothing. For answers that are not part of a
 * session's state. */
static void reply(struct trajd_server *server, const struct trajd_route *route,
                  const struct trajd_wire_message *message)
{
    size_t size;
    if (trajd_wire_encode(message, server->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) ||
        trajd_transport_answer(server->transport, route, server->frame, size))
        server->unsent++;
}

static void reply_error(struct trajd_server *server, const struct trajd_route *route,
                        uint64_t request, const struct trajd_error *error)
{
    char text[TRAJD_ERROR_MESSAGE_SIZE];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_ERROR,
                                         .error = {.request = request, .status = error->status}};

    trajd_visible(text, sizeof text, error->message); /* it may have names that others chose */
    message.error.message = trajd_wire_text(text);
    reply(server, route, &message);
}

/* Ends a session that will not return. */
static void handle_bye(struct trajd_server *server, struct trajd_peer *peer, uint64_t now_ns)
{
    trajd_core_bye(server->core, peer->session, now_ns);
    trajd_server_end_session(server, peer, now_ns);
}

void trajd_server_end_session(struct trajd_server *server, struct trajd_peer *peer, uint64_t now_ns)
{
    trajd_core_end_session(server->core, peer->session, now_ns);
    trajd_connections_set_session(peer->route.descriptor, false);
    trajd_fdsock_drop(server->fdsock, peer->session);
    trajd_server_drop_queries(server, peer->session);
    trajd_peers_remove(&server->peers, peer);
    server->last_end_ns = now_ns;
}

/* ---- HELLO ---- */

/* Returns the peer of the session with the token of `hello`, or NULL. The token must be of this
 * instance of the daemon, and the session of the same owner. */
static struct trajd_peer *find_resumed(struct trajd_server *server,
                                       const struct trajd_wire_hello *hello, uint64_t owner)
{
    if (!hello->has_token || hello->instance != server->options.instance_id)
        return NULL;
    uint64_t session = trajd_core_find_token(server->core, hello->token);
    struct trajd_peer *peer = session != 0 ? trajd_peers_by_session(&server->peers, session) : NULL;
    return peer && peer->owner == owner ? peer : NULL;
}

static enum trajd_status make_token(uint8_t token[TRAJD_WIRE_TOKEN_SIZE], struct trajd_error *error)
{
    if (getrandom(token, TRAJD_WIRE_TOKEN_SIZE, 0) != TRAJD_WIRE_TOKEN_SIZE)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "getrandom: %s", strerror(errno));
    return TRAJD_OK;
}

/* Ends the session of this connection so that a HELLO can begin another one. TRAJD_ERR_PROTOCOL:
 * the session has attached, so it is in use. */
static enum trajd_status make_way(struct trajd_server *server, const struct trajd_route *route,
                                  uint64_t now_ns, struct trajd_error *error)
{
    struct trajd_peer *peer = trajd_peers_by_route(&server->peers, route);
    if (!peer)
        return TRAJD_OK;
    if (peer->attached)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "HELLO: this connection has a session already");
    trajd_server_end_session(server, peer, now_ns);
    return TRAJD_OK;
}

/* A connection lives on when its key is removed, but it gets no session any more. */
static enum trajd_status check_key(const struct trajd_server *server,
                                   const struct trajd_incoming *incoming, struct trajd_error *error)
{
    if (incoming->route.listener != TRAJD_LISTENER_REMOTE ||
        !trajd_transport_is_shut_out(server->transport, incoming->user, incoming->key))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_CLOSED, 0,
                           "HELLO: the daemon no longer admits the key %s of %s: its file in the "
                           "directory of keys was removed or replaced",
                           incoming->key, incoming->user);
}

static void note_remote(struct trajd_peer *peer, const struct trajd_incoming *incoming,
                        uint64_t now_ns)
{
    peer->last_message_ns = now_ns;
    if (incoming->route.listener != TRAJD_LISTENER_REMOTE)
        return;
    snprintf(peer->remote, sizeof peer->remote, "%s@%s",
             incoming->user[0] != '\0' ? incoming->user : "anybody", incoming->address);
    snprintf(peer->user, sizeof peer->user, "%s", incoming->user);
    snprintf(peer->key, sizeof peer->key, "%s", incoming->key);
}

static enum trajd_status start_session(struct trajd_server *server,
                                       const struct trajd_incoming *incoming,
                                       struct trajd_wire_hello *hello, uint64_t now_ns,
                                       struct trajd_error *error)
{
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t session;
    bool resumed;
    void *replaced;
    struct trajd_peer *peer = find_resumed(server, hello, incoming->owner);
    struct trajd_peer *here = trajd_peers_by_route(&server->peers, &incoming->route);
    if (here && !here->attached && !hello->has_token) { /* a repeated HELLO: answer it again */
        trajd_connections_blame(incoming->route.descriptor);
        trajd_core_welcome(server->core, here->session, hello, now_ns);
        return TRAJD_OK;
    }
    enum trajd_status status = check_key(server, incoming, error);
    if (!status)
        status = make_token(token, error);
    if (!status && (!peer || peer != here))
        status = make_way(server, &incoming->route, now_ns, error);
    if (status)
        return status;
    const bool known = peer != NULL;
    if (!known) {
        hello->has_token = false; /* the token is unknown here: a new session */
        hello->held.count = hello->done.count = 0;
        peer = trajd_peers_free_entry(&server->peers);
    }
    if (!peer)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "all %u sessions are in use: raise limits.sessions, or end a worker",
                               server->options.max_sessions);
    status = trajd_core_hello(server->core, hello, token, peer, now_ns, &session, &resumed,
                              &replaced, error);
    if (status)
        return status;
    if (!known) {
        peer->owner = incoming->owner;
        trajd_core_set_owner(server->core, session, peer->owner,
                             incoming->route.listener == TRAJD_LISTENER_LOCAL);
        peer->attach_by_ns = now_ns + ATTACH_NS;
    }
    note_remote(peer, incoming, now_ns);
    peer->session = session;
    peer->has_lost_message = false; /* a worker that resumes gets again what it lacks */
    trajd_peers_set_route(&server->peers, peer, &incoming->route);
    trajd_connections_set_session(incoming->route.descriptor, true);
    trajd_core_welcome(server->core, session, hello, now_ns);
    return TRAJD_OK;
}

static void handle_query(struct trajd_server *server, struct trajd_peer *peer,
                         const struct trajd_wire_ask *query)
{
    struct trajd_error error;
    if (!trajd_server_add_query(server, peer, query, &error))
        return;
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR,
        .error = {.request = query->request,
                  .status = error.status,
                  .message = trajd_wire_text(error.message)}};
    trajd_server_send(server, peer, &message);
}

/* ---- other messages ---- */

/* Handles a message that needs a session. Returns false if the connection has none; the answer then
 * was an error. */
static bool handle_session_message(struct trajd_server *server,
                                   const struct trajd_incoming *incoming,
                                   const struct trajd_wire_message *message, uint64_t now_ns)
{
    uint64_t request = 0;
    pthread_mutex_lock(&server->mutex);
    struct trajd_peer *peer = trajd_peers_by_route(&server->peers, &incoming->route);
    if (peer) {
        peer->last_message_ns = now_ns;
        /* the first message after HELLO attaches a remote session */
        peer->attached = peer->attached || peer->route.listener == TRAJD_LISTENER_REMOTE;
        trajd_core_touch(server->core, peer->session, now_ns);
        trajd_connections_set_session(incoming->route.descriptor, true);
        if (message->op == TRAJD_WIRE_OPEN)
            request = trajd_server_handle_open(server, peer, &message->open, now_ns);
        else if (message->op == TRAJD_WIRE_ACK)
            trajd_core_ack(server->core, peer->session, &message->ack, now_ns);
        else if (message->op == TRAJD_WIRE_ASK)
            handle_query(server, peer, &message->ask);
        else if (message->op == TRAJD_WIRE_CHECKPOINT)
            trajd_core_checkpoint(server->core, peer->session, message->checkpoint.request, now_ns);
        else if (message->op == TRAJD_WIRE_STATUS)
            trajd_server_want_status(server, peer, message->status.request, now_ns);
        else if (message->op == TRAJD_WIRE_BYE)
            handle_bye(server, peer, now_ns);
    }
    pthread_mutex_unlock(&server->mutex);
    if (request != 0)
        trajd_server_request_feed(server, request, &message->open);
    if (peer || message->op == TRAJD_WIRE_BYE)
        return peer != NULL;
    struct trajd_error error; /* a worker that has reconnected answers with HELLO and its token */
    trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "this connection has no session: send HELLO");
    trajd_connections_blame(incoming->route.descriptor);
    reply_error(server, &incoming->route, 0, &error);
    return false;
}

static void handle_hello(struct trajd_server *server, const struct trajd_incoming *incoming,
                         struct trajd_wire_hello *hello, uint64_t now_ns)
{
    struct trajd_error error;
    pthread_mutex_lock(&server->mutex);
    enum trajd_status status = start_session(server, incoming, hello, now_ns, &error);
    pthread_mutex_unlock(&server->mutex);
    if (!status)
        return;
    trajd_connections_blame(incoming->route.descriptor);
    reply_error(server, &incoming->route, 0, &error);
}

static void handle_good(struct trajd_server *server, const struct trajd_incoming *incoming,
                        struct trajd_wire_message *message, uint64_t now_ns)
{
    if (message->op == TRAJD_WIRE_HELLO) {
        handle_hello(server, incoming, &message->hello, now_ns);
        return;
    }
    if (message->op == TRAJD_WIRE_RESAMPLE) {
        struct trajd_error error;
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0,
                        "RESAMPLE: send it to resample.sock, with a descriptor");
        reply_error(server, &incoming->route, message->resample.request, &error);
        return;
    }
    if (!handle_session_message(server, incoming, message, now_ns))
        return;
    if (message->op == TRAJD_WIRE_PING)
        reply(server, &incoming->route,
              &(struct trajd_wire_message){.op = TRAJD_WIRE_PONG,
                                           .pong = {.time = message->ping.time}});
}

void trajd_server_handle(struct trajd_server *server, const struct trajd_incoming *incoming,
                         uint64_t now_ns)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    enum trajd_status status =
        trajd_wire_decode(incoming->frame, incoming->size_bytes, NULL, &message, &request, &error);
    if (!status && message.op < TRAJD_WIRE_WELCOME)
        handle_good(server, incoming, &message, now_ns);
    else if (!status) {
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: only the daemon may send it",
                        (int)message.op);
        reply_error(server, &incoming->route, 0, &error);
    } else if (status != TRAJD_ERR_DATA)
        reply_error(server, &incoming->route, request, &error);
    else {
        trajd_connections_blame(incoming->route.descriptor);
        /* relaxed: only a counter, which orders no other memory */
        __atomic_add_fetch(&server->dropped_frames, 1, __ATOMIC_RELAXED);
    }
}
