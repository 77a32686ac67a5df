/* ASK: a bounded queue of queries between the server's thread and the thread that answers them. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/server/server_internal.h"

static struct trajd_pending_query *find_query(struct trajd_server *server, uint64_t id)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_QUERIES; i++)
        if (server->queries[i].query.id == id)
            return &server->queries[i];
    return NULL;
}

enum trajd_status trajd_server_add_query(struct trajd_server *server, const struct trajd_peer *peer,
                                         const struct trajd_wire_ask *query,
                                         struct trajd_error *error)
{
    struct trajd_pending_query *pending = find_query(server, 0);
    if (!server->options.answers_queries)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "ASK: this daemon answers no queries");
    if (server->queries_closed)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "ASK: the daemon is ending");
    if (!pending)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "ASK: %u queries wait for an answer: try again",
                               TRAJD_SERVER_MAX_QUERIES);
    *pending = (struct trajd_pending_query){.session = peer->session, .request = query->request};
    pending->query = (struct trajd_query){.id = ++server->last_query,
                                          .feed_id = query->feed_id,
                                          .window = query->window,
                                          .first = query->first,
                                          .count = query->count,
                                          .pass = query->pass};
    trajd_wire_text_copy(query->what, pending->query.what, sizeof pending->query.what);
    trajd_wire_text_copy(query->name, pending->query.name, sizeof pending->query.name);
    pthread_cond_signal(&server->query_added);
    return TRAJD_OK;
}

/* Returns the oldest query that was not taken yet, or NULL. */
static struct trajd_pending_query *find_untaken(struct trajd_server *server)
{
    struct trajd_pending_query *oldest = NULL;
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_QUERIES; i++) {
        struct trajd_pending_query *query = &server->queries[i];
        if (query->query.id != 0 && !query->taken &&
            (!oldest || query->query.id < oldest->query.id))
            oldest = query;
    }
    return oldest;
}

enum trajd_status trajd_server_take_query(struct trajd_server *server, uint32_t timeout_ms,
                                          struct trajd_query *query)
{
    const struct timespec deadline = trajd_deadline(timeout_ms);
    struct trajd_pending_query *pending = NULL;
    pthread_mutex_lock(&server->mutex);
    for (bool late = false; !server->queries_closed && !(pending = find_untaken(server)) && !late;)
        late = pthread_cond_timedwait(&server->query_added, &server->mutex, &deadline) == ETIMEDOUT;
    enum trajd_status status = server->queries_closed ? TRAJD_ERR_CLOSED : TRAJD_ERR_TIMEOUT;
    if (pending) {
        pending->taken = true;
        *query = pending->query;
        status = TRAJD_OK;
    }
    pthread_mutex_unlock(&server->mutex);
    return status;
}

void trajd_server_answer_query(struct trajd_server *server, uint64_t id, const char *json,
                               size_t length, const struct trajd_error *error)
{
    struct trajd_wire_message message;
    pthread_mutex_lock(&server->mutex);
    struct trajd_pending_query *pending = find_query(server, id);
    if (json) {
        message.op = TRAJD_WIRE_STATE;
        message.state = (struct trajd_wire_state){pending->request, {json, (uint32_t)length}};
    } else {
        message.op = TRAJD_WIRE_ERROR;
        message.error = (struct trajd_wire_error){.request = pending->request,
                                                  .status = error->status,
                                                  .message = trajd_wire_text(error->message)};
    }
    struct trajd_peer *peer = trajd_peers_by_session(&server->peers, pending->session);
    pending->query.id = 0;
    if (peer) /* NULL: the session has ended meanwhile */
        trajd_server_send(server, peer, &message);
    pthread_mutex_unlock(&server->mutex);
    trajd_server_flush(server);
}

void trajd_server_close_queries(struct trajd_server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->queries_closed = true;
    pthread_cond_broadcast(&server->query_added);
    pthread_mutex_unlock(&server->mutex);
}
