#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/server/server_internal.h"

#define ATTACH_NS (5 * UINT64_C(1000000000))

/* Answers that are no part of a session's state go out at once. */
static void reply(struct trajd_server *server, const struct trajd_route *route,
                  const struct trajd_wire_message *message)
{
    size_t size;
    if (trajd_wire_encode(message, server->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) ||
        trajd_transport_send(server->transport, route, server->frame, size))
        server->unsent++;
}

static void reply_error(struct trajd_server *server, const struct trajd_route *route,
                        uint64_t request, const struct trajd_error *error)
{
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR,
        .error = {.request = request,
                  .status = error->status,
                  .message = trajd_wire_text(error->message)}};
    reply(server, route, &message);
}

/* BYE: nobody waits for the session's return. */
static void say_bye(struct trajd_server *server, struct trajd_peer *peer, uint64_t now_ns)
{
    trajd_core_bye(server->core, peer->session, now_ns);
    trajd_server_end_session(server, peer, now_ns);
}

void trajd_server_end_session(struct trajd_server *server, struct trajd_peer *peer, uint64_t now_ns)
{
    trajd_core_end_session(server->core, peer->session, now_ns);
    trajd_fdsock_drop(server->fdsock, peer->session);
    trajd_peers_remove(&server->peers, peer);
    server->last_end_ns = now_ns;
}

/* ---- HELLO ---- */

/* The session that the token names, if it is this instance's and the same user's. */
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

/* A session of this connection's that another HELLO is to follow: one without fd.sock was never
 * used. */
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

static void note_remote(struct trajd_peer *peer, const struct trajd_incoming *incoming,
                        uint64_t now_ns)
{
    peer->heard_ns = now_ns;
    if (incoming->route.listener == TRAJD_LISTENER_REMOTE)
        snprintf(peer->where, sizeof peer->where, "%s@%s",
                 incoming->user[0] != '\0' ? incoming->user : "anybody", incoming->address);
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
    if (here && !here->attached && !hello->has_token) { /* it has not heard the first answer yet */
        trajd_core_welcome(server->core, here->session, hello, now_ns);
        return TRAJD_OK;
    }
    enum trajd_status status = make_token(token, error);
    if (!status && (!peer || peer != here))
        status = make_way(server, &incoming->route, now_ns, error);
    if (status)
        return status;
    const bool known = peer != NULL;
    if (!known) {
        hello->has_token = false; /* of another run, or of nobody: a new session */
        hello->held.count = hello->done.count = 0;
        peer = trajd_peers_free_entry(&server->peers);
    }
    if (!peer)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "all %u sessions are taken",
                               server->options.max_sessions);
    status = trajd_core_hello(server->core, hello, token, peer, now_ns, &session, &resumed,
                              &replaced, error);
    if (status)
        return status;
    if (!known) {
        peer->owner = incoming->owner;
        peer->attach_by_ns = now_ns + ATTACH_NS;
    }
    note_remote(peer, incoming, now_ns);
    peer->session = session;
    trajd_peers_set_route(&server->peers, peer, &incoming->route);
    trajd_core_welcome(server->core, session, hello, now_ns);
    return TRAJD_OK;
}

/* ---- OPEN ---- */

/* False: it takes another instance of the feed. */
static bool enter_feed(struct trajd_server *server, struct trajd_peer *peer,
                       const struct trajd_wire_open *open, struct trajd_core_feed *core,
                       uint64_t now_ns)
{
    struct trajd_core_feed *chosen = trajd_core_choose(server->core, peer->session, open, core);
    if (!chosen && server->options.open_instance && !server->draining)
        return false;
    struct trajd_feed *feed = trajd_core_feed_user(chosen ? chosen : core);
    if (trajd_core_open(server->core, peer->session, open, feed->core, now_ns) ||
        peer->route.listener == TRAJD_LISTENER_REMOTE || feed->slot_sends->ring.is_device ||
        !trajd_peer_note_ring(peer, feed->slot_sends->ring.ring_id))
        return true;
    /* a worker that does not take its ring waits in vain until its own timeout; its end of file
     * ends all */
    trajd_fdsock_send_ring(server->fdsock, peer->session, &feed->slot_sends->ring, NULL);
    return true;
}

static struct trajd_request *note_request(struct trajd_server *server,
                                          const struct trajd_peer *peer,
                                          const struct trajd_wire_open *open)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (request->id != 0)
            continue;
        *request = (struct trajd_request){
            .id = ++server->last_request, .session = peer->session, .open = *open};
        request->asked = request->id;
        trajd_wire_text_copy(open->job, request->job, sizeof request->job);
        request->open.job = trajd_wire_text(request->job);
        request->open.feed = request->open.spec = request->open.gpu = (struct trajd_wire_text){0};
        if (open->resume.size > 0)
            memcpy(request->resume, open->resume.data, open->resume.size);
        request->open.resume.data = request->resume;
        return request;
    }
    return NULL;
}

/* The same job asks for an instance already: one is enough for all its sessions. */
static const struct trajd_request *find_sibling(const struct trajd_server *server,
                                                const struct trajd_request *request)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        const struct trajd_request *other = &server->requests[i];
        if (other != request && other->id != 0 && !other->answered &&
            strcmp(other->family, request->family) == 0 && strcmp(other->job, request->job) == 0)
            return other;
    }
    return NULL;
}

static void want_instance(struct trajd_server *server, struct trajd_request *request,
                          const struct trajd_core_feed *feed)
{
    strcpy(request->family, trajd_core_family(feed));
    request->answered = false;
    const struct trajd_request *sibling = find_sibling(server, request);
    request->asked = sibling ? sibling->asked : request->id;
    request->unasked = !sibling;
}

void trajd_server_ask_instances(struct trajd_server *server)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (!request->unasked)
            continue;
        request->unasked = false;
        server->options.open_instance(server->options.context, request->id, request->family);
    }
}

/* False: it is still to be answered. */
static bool finish_request(struct trajd_server *server, struct trajd_request *request,
                           uint64_t now_ns)
{
    struct trajd_peer *peer =
        request->session != 0 ? trajd_peers_by_session(&server->peers, request->session) : NULL;
    if (!peer)
        return true;
    if (!request->feed) {
        trajd_core_refuse_open(server->core, request->session, request->open.request,
                               &request->error, now_ns);
        return true;
    }
    if (enter_feed(server, peer, &request->open, request->feed->core, now_ns))
        return true;
    /* the feed of a specification, and jobs that are elsewhere read it */
    if (request->family[0] == '\0') {
        want_instance(server, request, request->feed->core);
        return false;
    }
    trajd_error_set(&request->error, TRAJD_ERR_BUSY, 0,
                    "feed %s: other jobs read it by now: try again", request->family);
    trajd_core_refuse_open(server->core, request->session, request->open.request, &request->error,
                           now_ns);
    return true;
}

void trajd_server_finish_requests(struct trajd_server *server, uint64_t now_ns)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (request->id != 0 && request->answered && finish_request(server, request, now_ns))
            request->id = 0;
    }
}

/* Asks the producer, without the mutex: it may answer within the call. */
static void ask_producer(struct trajd_server *server, uint64_t request,
                         const struct trajd_wire_open *open)
{
    char name[TRAJD_WIRE_MAX_NAME + 1];
    trajd_wire_text_copy(open->feed, name, sizeof name);
    char *spec = NULL;
    if (open->spec.size > 0)
        spec = strndup(open->spec.data, open->spec.size);
    if (open->spec.size > 0 && !spec) {
        struct trajd_error error;
        trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "OPEN: out of memory");
        trajd_server_answer(server, request, NULL, &error);
        return;
    }
    if (open->gpu.size > 0) {
        char gpu[TRAJD_WIRE_MAX_GPU + 1];
        trajd_wire_text_copy(open->gpu, gpu, sizeof gpu);
        server->options.open_on_gpu(server->options.context, request, spec ? NULL : name, spec,
                                    gpu);
    } else {
        server->options.open_feed(server->options.context, request, spec ? NULL : name, spec,
                                  spec ? open->spec.size : 0);
    }
    free(spec);
}

/* Nobody waits for what the session asked for before; others of its job may wait for the same
 * answer. */
static void forget_requests(struct trajd_server *server, uint64_t session)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++)
        if (server->requests[i].session == session)
            server->requests[i].session = 0;
}

void trajd_feed_gpu_name(const char *name, const char *gpu, char *text, size_t size)
{
    snprintf(text, size, "%s@%s", name, gpu);
}

/* The production that serves an OPEN, if it is there: a feed has one for the host and one for each
 * GPU. */
static struct trajd_core_feed *find_production(const struct trajd_server *server,
                                               const struct trajd_wire_open *open)
{
    char name[TRAJD_WIRE_MAX_NAME + 1], gpu[TRAJD_WIRE_MAX_GPU + 1], text[sizeof name + sizeof gpu];
    if (open->feed.size == 0 || memchr(open->feed.data, '@', open->feed.size))
        return NULL;
    if (open->gpu.size == 0)
        return trajd_core_find_feed(server->core, open->feed);
    trajd_wire_text_copy(open->feed, name, sizeof name);
    trajd_wire_text_copy(open->gpu, gpu, sizeof gpu);
    trajd_feed_gpu_name(name, gpu, text, sizeof text);
    return trajd_core_find_feed(server->core, trajd_wire_text(text));
}

/* 0: nothing is to be asked now; else the number of a request for a feed that is not there yet. */
static uint64_t handle_open(struct trajd_server *server, struct trajd_peer *peer,
                            const struct trajd_wire_open *open, uint64_t now_ns)
{
    struct trajd_error error;
    struct trajd_core_feed *feed = find_production(server, open);
    forget_requests(server, peer->session);
    if (open->gpu.size > 0 &&
        (!server->options.open_on_gpu || peer->route.listener == TRAJD_LISTENER_REMOTE)) {
        trajd_error_set(&error, TRAJD_ERR_UNSUPPORTED, 0, "gpu: %s",
                        peer->route.listener == TRAJD_LISTENER_REMOTE
                            ? "a remote worker gets the bytes of its batches"
                            : "this daemon makes no batches in a GPU's memory");
    } else if (!peer->attached) {
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "OPEN: connect to fd.sock first");
    } else if (feed && enter_feed(server, peer, open, feed, now_ns)) {
        return 0;
    } else if (!feed && !server->options.open_feed) {
        trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "no feed of that name");
    } else {
        struct trajd_request *request = note_request(server, peer, open);
        if (request && feed)
            want_instance(server, request, feed);
        if (request)
            return feed ? 0 : request->id;
        trajd_error_set(&error, TRAJD_ERR_BUSY, 0, "OPEN: too many feeds are being opened");
    }
    trajd_core_refuse_open(server->core, peer->session, open->request, &error, now_ns);
    return 0;
}

static void handle_query(struct trajd_server *server, const struct trajd_peer *peer,
                         const struct trajd_wire_ask *query)
{
    struct trajd_error error;
    if (!trajd_server_note_query(server, peer, query, &error))
        return;
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR,
        .error = {.request = query->request,
                  .status = error.status,
                  .message = trajd_wire_text(error.message)}};
    trajd_server_send(server, peer, &message);
}

/* ---- the rest ---- */

/* False: the connection has no session, and has been told. */
static bool handle_session_message(struct trajd_server *server,
                                   const struct trajd_incoming *incoming,
                                   const struct trajd_wire_message *message, uint64_t now_ns)
{
    uint64_t request = 0;
    pthread_mutex_lock(&server->mutex);
    struct trajd_peer *peer = trajd_peers_by_route(&server->peers, &incoming->route);
    if (peer) {
        peer->heard_ns = now_ns;
        /* it has heard WELCOME */
        peer->attached = peer->attached || peer->route.listener == TRAJD_LISTENER_REMOTE;
        trajd_core_touch(server->core, peer->session, now_ns);
        if (message->op == TRAJD_WIRE_OPEN)
            request = handle_open(server, peer, &message->open, now_ns);
        else if (message->op == TRAJD_WIRE_ACK)
            trajd_core_ack(server->core, peer->session, &message->ack, now_ns);
        else if (message->op == TRAJD_WIRE_ASK)
            handle_query(server, peer, &message->ask);
        else if (message->op == TRAJD_WIRE_CHECKPOINT)
            trajd_core_checkpoint(server->core, peer->session, message->checkpoint.request, now_ns);
        else if (message->op == TRAJD_WIRE_BYE)
            say_bye(server, peer, now_ns);
    }
    pthread_mutex_unlock(&server->mutex);
    if (request != 0)
        ask_producer(server, request, &message->open);
    if (peer || message->op == TRAJD_WIRE_BYE)
        return peer != NULL;
    struct trajd_error error; /* a reconnected worker hears this, and comes back with its token */
    trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "no session on this connection: say HELLO");
    reply_error(server, &incoming->route, 0, &error);
    return false;
}

static void answer_status(struct trajd_server *server, const struct trajd_incoming *incoming,
                          uint64_t request, uint64_t now_ns)
{
    size_t length =
        trajd_server_write_status(server, server->status, TRAJD_WIRE_MAX_STATUS, now_ns);
    const struct trajd_wire_message answer = {
        .op = TRAJD_WIRE_STATE,
        .state = {.request = request,
                  .status = {.data = server->status, .size = (uint32_t)length}}};
    reply(server, &incoming->route, &answer);
}

static void handle_hello(struct trajd_server *server, const struct trajd_incoming *incoming,
                         struct trajd_wire_hello *hello, uint64_t now_ns)
{
    struct trajd_error error;
    pthread_mutex_lock(&server->mutex);
    enum trajd_status status = start_session(server, incoming, hello, now_ns, &error);
    pthread_mutex_unlock(&server->mutex);
    if (status)
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
                        "RESAMPLE: goes to resample.sock, with a descriptor");
        reply_error(server, &incoming->route, message->resample.request, &error);
        return;
    }
    if (!handle_session_message(server, incoming, message, now_ns))
        return;
    if (message->op == TRAJD_WIRE_PING)
        reply(server, &incoming->route,
              &(struct trajd_wire_message){.op = TRAJD_WIRE_PONG,
                                           .pong = {.time = message->ping.time}});
    else if (message->op == TRAJD_WIRE_STATUS)
        answer_status(server, incoming, message->status.request, now_ns);
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
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d goes from daemon to worker only",
                        (int)message.op);
        reply_error(server, &incoming->route, 0, &error);
    } else if (status != TRAJD_ERR_DATA)
        reply_error(server, &incoming->route, request, &error);
    else
        __atomic_add_fetch(&server->dropped_frames, 1,
                           __ATOMIC_RELAXED); /* a counter: nothing is ordered by it */
}
