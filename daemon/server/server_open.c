/* OPEN: finds the feed that the session names, or requests it from control, and puts the session on
 * the feed when the answer comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/server_internal.h"

/* Puts the session on the feed, and hands it the descriptor of the ring. Returns false if the job
 * needs another instance of the feed. */
static bool enter_feed(struct trajd_server *server, struct trajd_peer *peer,
                       const struct trajd_wire_open *open, struct trajd_core_feed *core,
                       uint64_t now_ns)
{
    core = open->gpu.size ? core : trajd_core_find_place(server->core, peer->session, open, core);
    struct trajd_core_feed *chosen = trajd_core_choose(server->core, peer->session, open, core);
    if (!chosen && server->options.has_instances && !server->draining)
        return false;
    struct trajd_feed *feed = trajd_core_feed_user(chosen ? chosen : core);
    if (trajd_core_open(server->core, peer->session, open, feed->core, now_ns) ||
        peer->route.listener == TRAJD_LISTENER_REMOTE || feed->slot_sends->ring.is_device ||
        !trajd_peer_note_ring(peer, feed->slot_sends->ring.ring_id))
        return true;
    /* A failure is ignored: a worker that does not get its ring gives up after its own timeout,
     * and the end of file of its connection then ends the session. */
    trajd_fdsock_send_ring(server->fdsock, peer->session, &feed->slot_sends->ring, NULL);
    return true;
}

/* ---- pending requests ---- */

/* Keeps a copy of the OPEN until the producer answers. Returns NULL if too many wait. */
static struct trajd_request *add_request(struct trajd_server *server, const struct trajd_peer *peer,
                                         const struct trajd_wire_open *open)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (request->id != 0)
            continue;
        *request = (struct trajd_request){
            .id = ++server->last_request, .session = peer->session, .open = *open};
        request->producer_request = request->id;
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

/* Returns a request of the same job for an instance of the same feed, if one is pending: one
 * instance serves all sessions of the job. */
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
    request->producer_request = sibling ? sibling->producer_request : request->id;
    request->is_unsent = !sibling;
}

void trajd_server_request_instances(struct trajd_server *server)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *request = &server->requests[i];
        if (!request->is_unsent)
            continue;
        request->is_unsent = false;
        const struct trajd_server_wanted wanted = {
            .request = request->id, .name = request->family, .is_instance = true};
        server->options.open_feed(server->options.context, &wanted);
    }
}

/* Detaches the session's pending requests from it. They stay pending, because other sessions of
 * the job may wait for the same answer. */
static void forget_requests(struct trajd_server *server, uint64_t session)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++)
        if (server->requests[i].session == session)
            server->requests[i].session = 0;
}

/* ---- answers of the producer ---- */

void trajd_server_answer(struct trajd_server *server, uint64_t request, struct trajd_feed *feed,
                         const struct trajd_error *error)
{
    pthread_mutex_lock(&server->mutex);
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_REQUESTS; i++) {
        struct trajd_request *pending = &server->requests[i];
        if (request == 0 || pending->id == 0 || pending->producer_request != request)
            continue;
        pending->answered = true;
        pending->feed = feed;
        if (!feed)
            pending->error = *error;
        trajd_server_wake(server);
    }
    pthread_mutex_unlock(&server->mutex);
}

/* Handles a request that the producer has answered. Returns false if the request has become one
 * for an instance and stays pending. */
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
    /* This is the feed of a specification, and other jobs or users read it already. */
    if (request->family[0] == '\0') {
        want_instance(server, request, request->feed->core);
        return false;
    }
    trajd_error_set(&request->error, TRAJD_ERR_BUSY, 0,
                    "feed %s: other jobs have opened all its instances meanwhile: try again",
                    request->family);
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

/* ---- OPEN ---- */

/* The feed that a worker names to leave the one that it has: no feed can have this name. */
#define LEAVE "(closing)"

void trajd_feed_place_name(const char *name, const char *place, char *text, size_t size)
{
    snprintf(text, size, "%s@%s", name, place);
}

/* Returns true if the session shall finish the feed's images. */
static bool goes_unfinished(const struct trajd_server *server, const struct trajd_peer *peer,
                            const struct trajd_wire_open *open, const struct trajd_core_feed *feed)
{
    return open->unfinished == TRAJD_WIRE_RATHER_UNFINISHED && server->options.has_places &&
           trajd_core_has_unfinished(feed) &&
           !trajd_core_has_job(server->core, peer->session, open, feed);
}

/* Returns the production that an OPEN names, if there is one: a feed has one or two productions for
 * the host and one for each GPU. */
static struct trajd_core_feed *find_production(const struct trajd_server *server,
                                               const struct trajd_peer *peer,
                                               const struct trajd_wire_open *open)
{
    char name[TRAJD_WIRE_MAX_NAME + 1], place[TRAJD_WIRE_MAX_GPU + 1] = TRAJD_FEED_UNFINISHED,
                                                                   text[sizeof name + sizeof place];
    if (open->feed.size == 0 || memchr(open->feed.data, '@', open->feed.size))
        return NULL;
    struct trajd_core_feed *host = trajd_core_find_feed(server->core, open->feed);
    if (open->gpu.size == 0 && (!host || !goes_unfinished(server, peer, open, host)))
        return host;
    trajd_wire_text_copy(open->feed, name, sizeof name);
    if (open->gpu.size > 0)
        trajd_wire_text_copy(open->gpu, place, sizeof place);
    trajd_feed_place_name(name, place, text, sizeof text);
    return trajd_core_find_feed(server->core, trajd_wire_text(text));
}

uint64_t trajd_server_handle_open(struct trajd_server *server, struct trajd_peer *peer,
                                  const struct trajd_wire_open *open, uint64_t now_ns)
{
    struct trajd_error error;
    struct trajd_core_feed *feed = find_production(server, peer, open);
    forget_requests(server, peer->session);
    if (open->gpu.size > 0 &&
        (!server->options.has_places || peer->route.listener == TRAJD_LISTENER_REMOTE)) {
        trajd_error_set(&error, TRAJD_ERR_UNSUPPORTED, 0, "gpu: %s",
                        peer->route.listener == TRAJD_LISTENER_REMOTE
                            ? "a remote worker cannot have batches in a GPU's memory"
                            : "this daemon makes no batches in a GPU's memory");
    } else if (!peer->attached) {
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "OPEN: connect to fd.sock first");
    } else if (feed && enter_feed(server, peer, open, feed, now_ns)) {
        return 0;
    } else if (trajd_wire_text_equals(open->feed, LEAVE)) {
        trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "no feed is open");
    } else if (!feed && !server->options.open_feed) {
        trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "no feed of that name");
    } else {
        struct trajd_request *request = add_request(server, peer, open);
        if (request && feed)
            want_instance(server, request, feed);
        if (request)
            return feed ? 0 : request->id;
        trajd_error_set(&error, TRAJD_ERR_BUSY, 0, "OPEN: too many feeds are being opened");
    }
    trajd_core_refuse_open(server->core, peer->session, open->request, &error, now_ns);
    return 0;
}

void trajd_server_request_feed(struct trajd_server *server, uint64_t request,
                               const struct trajd_wire_open *open)
{
    char name[TRAJD_WIRE_MAX_NAME + 1], place[TRAJD_WIRE_MAX_GPU + 1] = TRAJD_FEED_UNFINISHED;
    char *spec = open->spec.size > 0 ? strndup(open->spec.data, open->spec.size) : NULL;
    struct trajd_server_wanted wanted = {
        .request = request, .name = spec ? NULL : name, .spec = spec, .is_repeated = !open->fresh};
    if (open->spec.size > 0 && !spec) {
        struct trajd_error error;
        trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "OPEN: out of memory");
        trajd_server_answer(server, request, NULL, &error);
        return;
    }
    trajd_wire_text_copy(open->feed, name, sizeof name);
    if (open->gpu.size > 0)
        trajd_wire_text_copy(open->gpu, place, sizeof place);
    if (server->options.has_places &&
        (open->gpu.size > 0 || open->unfinished == TRAJD_WIRE_RATHER_UNFINISHED))
        wanted.place = place;
    server->options.open_feed(server->options.context, &wanted);
    free(spec);
}
