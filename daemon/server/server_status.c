/* What workers ask: STATUS, for which this writes the status document of the server as JSON; and ASK,
 * a bounded queue of queries between the server's thread and the thread that answers them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/server/server_internal.h"

/* Bytes that are reserved for the end of the lists: brackets, and the count of omitted sessions. */
#define STATUS_RESERVE 256u
#define STATUS_DESCRIBE_ROOM 16383u
#define STATUS_NS (100 * UINT64_C(1000000)) /* between two documents */
#define STATUS_A_TURN 32u                   /* documents that are sent at once */
#define STATUS_MAX_UNREAD_BYTES 16384u
#define STATUS_REMOTE_NS UINT64_C(1000000000)
#define QUERIES_A_SESSION 4u /* that wait: a worker waits for the answer to each */

/* Returns the time that the fraction `share` of all latencies does not exceed, rounded up to a
 * power of two. */
static uint64_t latency_below_ns(const struct trajd_server *server, double share)
{
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < TRAJD_LATENCY_BUCKETS; i++)
        total += server->latency[i];
    for (uint32_t i = 0; i < TRAJD_LATENCY_BUCKETS; i++) {
        sum += server->latency[i];
        if (sum > 0 && (double)sum >= share * (double)total)
            return UINT64_C(1) << i;
    }
    return 0;
}

/* Writes the histogram: how many batches took less than 2^k ns and not less than 2^(k-1) ns. */
static void write_latency(struct trajd_json *json, const struct trajd_server *server)
{
    trajd_json_open_object(json, "ready_to_sent");
    trajd_json_number(json, "sum_seconds", "%.9f", (double)server->latency_sum_ns * 1e-9);
    trajd_json_open_array(json, "below_power_of_two_ns");
    for (uint32_t i = 0; i < TRAJD_LATENCY_BUCKETS; i++)
        trajd_json_u64(json, NULL, server->latency[i]);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

/* Writes how long sessions had no batch to work on, by what production did meanwhile. */
static void write_waits(struct trajd_json *json, const uint64_t waited_ns[TRAJD_WAIT_COUNT])
{
    static const char *const names[TRAJD_WAIT_COUNT] = {[TRAJD_WORK_ROWS] = "rows",
                                                        [TRAJD_WORK_DECODE] = "decode",
                                                        [TRAJD_WORK_KERNELS] = "kernels",
                                                        [TRAJD_WAIT_SLOTS] = "slots",
                                                        [TRAJD_WAIT_OTHER] = "other"};

    trajd_json_open_object(json, "waited_seconds");
    for (uint32_t w = 0; w < TRAJD_WAIT_COUNT; w++)
        trajd_json_number(json, names[w], "%.6f", (double)waited_ns[w] * 1e-9);
    trajd_json_close_object(json);
}

static void write_totals(struct trajd_json *json, const struct trajd_server *server,
                         uint64_t now_ns)
{
    struct trajd_core_stats stats;
    trajd_core_get_stats(server->core, &stats);
    const struct trajd_transport_counters *counters =
        trajd_transport_get_counters(server->transport);
    const char *remote = trajd_transport_remote_endpoint(server->transport);
    trajd_json_string(json, "version", server->version);
    trajd_json_format(json, "instance", "%016" PRIx64, server->options.instance_id);
    trajd_json_u64(json, "now_ns", now_ns);
    trajd_json_u64(json, "batches_sent", stats.batches_sent);
    trajd_json_u64(json, "batches_done", stats.batches_done);
    trajd_json_u64(json, "windows_done", stats.windows_done);
    trajd_json_u64(json, "batches_failed", stats.batches_failed);
    trajd_json_u64(json, "handed_again", stats.handed_again);
    trajd_json_u64(json, "late_acks", stats.late_acks);
    trajd_json_u64(json, "late_publishes", stats.late_publishes);
    trajd_json_u64(json, "dead_sessions", stats.dead_sessions);
    trajd_json_u64(json, "resumed_sessions", stats.resumed_sessions);
    trajd_json_u64(json, "damaged_journals", stats.damaged_journals);
    trajd_json_u64(json, "journals_refused", stats.journals_refused);
    trajd_json_u64(json, "rank_timeouts", stats.rank_timeouts);
    trajd_json_u64(json, "slow_jobs", stats.slow_jobs);
    trajd_json_u64(json, "dropped_messages",
                   __atomic_load_n(&server->dropped_frames, __ATOMIC_RELAXED) +
                       counters->malformed);
    trajd_json_u64(json, "refused_connections", counters->refused);
    trajd_json_u64(json, "floods", counters->floods);
    trajd_json_u64(json, "cut_connections", counters->cut_connections);
    trajd_json_u64(json, "unsent_messages", server->unsent);
    if (remote) {
        trajd_json_string(json, "remote", remote);
        trajd_json_u64(json, "refused_keys", counters->refused_keys);
        trajd_json_u64(json, "failed_handshakes", counters->failed_handshakes);
        trajd_json_u64(json, "silent_sessions", server->silent_sessions);
    }
    trajd_json_number(json, "batches_per_second", "%.1f", server->batch_rate_hz);
    trajd_json_number(json, "windows_per_second", "%.1f", server->window_rate_hz);
    trajd_json_open_object(json, "ready_to_sent_us");
    trajd_json_number(json, "p50", "%.1f", (double)latency_below_ns(server, 0.5) * 1e-3);
    trajd_json_number(json, "p99", "%.1f", (double)latency_below_ns(server, 0.99) * 1e-3);
    trajd_json_close_object(json);
    write_latency(json, server);
}

/* Writes the members of a job to an open object. */
static void write_job(struct trajd_json *json, const struct trajd_core_job_info *info)
{
    trajd_json_string(json, "job", info->name);
    trajd_json_string(json, "phase", info->phase);
    trajd_json_string(json, "mode", info->mode == TRAJD_WIRE_SHARD ? "shard" : "queue");
    trajd_json_u64(json, "world", info->world);
    trajd_json_u64(json, "members", info->members);
    trajd_json_u64(json, "epoch", info->epoch);
    trajd_json_u64(json, "batches", info->batches);
    trajd_json_u64(json, "batches_left", info->batches_remaining);
    trajd_json_u64(json, "awaited_sessions", info->awaited);
    trajd_json_number(json, "stalled_by_seconds", "%.6f", (double)info->stalled_ns * 1e-9);
    trajd_json_number(json, "absent_seconds", "%.6f", (double)info->absent_ns * 1e-9);
    trajd_json_u64(json, "absent_rank", info->absent_rank);
    if (info->journal_failure[0])
        trajd_json_string(json, "journal_failure", info->journal_failure);
}

static void write_slots(struct trajd_json *json, const struct trajd_feed *feed,
                        const struct trajd_core_feed_info *info)
{
    trajd_json_open_object(json, "slots");
    trajd_json_u64(json, "count", feed->slot_sends->ring.slot_count);
    trajd_json_u64(json, "free", info->slots_free);
    trajd_json_u64(json, "filling", info->slots_filling);
    trajd_json_u64(json, "ready", info->slots_ready);
    trajd_json_u64(json, "lent", trajd_slot_sends_count(feed->slot_sends));
    trajd_json_close_object(json);
}

/* Writes a feed. The keys of its first job also stand in the feed itself, as most feeds have one
 * job. */
static void write_feed(struct trajd_json *json, const struct trajd_feed *feed,
                       const struct trajd_core_feed_info *info)
{
    struct trajd_core_job_info job;
    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "feed_id", info->feed_id);
    trajd_json_string(json, "name", info->name ? info->name : "");
    write_job(json, &info->job);
    trajd_json_bool(json, "running", info->running);
    trajd_json_u64(json, "sessions", info->members);
    trajd_json_u64(json, "epoch_length", info->epoch_length);
    trajd_json_u64(json, "produced_epoch", info->produced_epoch);
    trajd_json_u64(json, "cursor", info->cursor);
    trajd_json_u64(json, "ring_bytes", feed->slot_sends->ring.size_bytes);
    if (info->has_user)
        trajd_json_u64(json, "user", info->user);
    write_slots(json, feed, info);
    trajd_json_number(json, "stalled_seconds", "%.6f", (double)info->stalled_ns * 1e-9);
    write_waits(json, info->waited_ns);
    trajd_json_open_array(json, "jobs");
    for (uint32_t i = 0; trajd_core_job_info(feed->core, i, &job); i++) {
        trajd_json_open_object(json, NULL);
        write_job(json, &job);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

static void write_session(struct trajd_json *json, struct trajd_server *server,
                          const struct trajd_core_session_info *info, uint64_t now_ns)
{
    const struct trajd_peer *peer = trajd_peers_by_session(&server->peers, info->session);
    const uint64_t silent_ns = now_ns > info->last_message_ns ? now_ns - info->last_message_ns : 0;
    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "session", info->session);
    trajd_json_string(json, "client", info->client);
    if (peer && peer->remote[0] != '\0')
        trajd_json_string(json, "remote", peer->remote);
    trajd_json_u64(json, "pid", info->pid);
    trajd_json_u64(json, "feed_id", info->feed_id);
    trajd_json_u64(json, "rank", info->rank);
    trajd_json_u64(json, "credit", info->credit);
    trajd_json_u64(json, "held", info->held);
    trajd_json_u64(json, "batches_sent", info->batches_sent);
    trajd_json_u64(json, "batches_done", info->batches_done);
    if (info->wait_until_ns > now_ns)
        trajd_json_number(json, "rejoin_wait_seconds", "%.3f",
                          (double)(info->wait_until_ns - now_ns) * 1e-9);
    trajd_json_number(json, "stalled_by_seconds", "%.6f", (double)info->stalled_ns * 1e-9);
    write_waits(json, info->waited_ns);
    trajd_json_number(json, "silent_seconds", "%.3f", (double)silent_ns * 1e-9);
    trajd_json_close_object(json);
}

/* Writes the feeds and sessions for which the document has room below `end`. */
static void write_lists(struct trajd_json *json, struct trajd_server *server, size_t end,
                        uint64_t now_ns)
{
    bool has_room = true;
    trajd_json_open_array(json, "feeds");
    for (const struct trajd_feed *feed = server->feeds; feed && has_room; feed = feed->next) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        struct trajd_core_feed_info info;
        trajd_core_feed_info(feed->core, &info);
        if (info.is_hidden)
            continue;
        write_feed(json, feed, &info);
        has_room = trajd_json_fits(json, mark, end);
    }
    trajd_json_close_array(json);
    trajd_json_open_array(json, "sessions");
    struct trajd_core_session_info info;
    uint32_t shown = 0, count = 0;
    for (; trajd_core_session_info(server->core, count, &info); count++) {
        if (!has_room)
            continue; /* only counted */
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        write_session(json, server, &info, now_ns);
        has_room = trajd_json_fits(json, mark, end);
        shown += has_room;
    }
    trajd_json_close_array(json);
    trajd_json_u64(json, "session_count", count);
    trajd_json_u64(json, "sessions_not_shown", count - shown);
}

/* Returns the producer's members of the document, "" where there are none. The caller does not hold
 * the mutex, because the producer takes its own. Returns NULL when memory is short. Caller frees.
 */
static char *describe_producer(const struct trajd_server *server)
{
    char *text = NULL;
    size_t length = 0;
    struct trajd_json json = {.out = open_memstream(&text, &length)};
    bool is_cut;

    if (!json.out)
        return NULL;
    if (server->options.describe)
        server->options.describe(server->options.context, &json, STATUS_DESCRIBE_ROOM);
    is_cut = ferror(json.out); /* fclose does not tell */
    if (fclose(json.out) != 0 || is_cut) {
        free(text);
        return NULL;
    }
    if (length > STATUS_DESCRIBE_ROOM)
        text[0] = '\0';
    return text;
}

/* Returns the document. Feeds and sessions that do not fit are left out. Returns NULL when memory
 * is short. Caller frees. */
static char *write_status(struct trajd_server *server, uint64_t now_ns, size_t *length)
{
    char *text = NULL, *described = describe_producer(server);
    struct trajd_json json = {.out = described ? open_memstream(&text, length) : NULL};
    bool is_cut;

    if (!json.out) {
        free(described);
        return NULL;
    }
    pthread_mutex_lock(&server->mutex);
    trajd_json_open_object(&json, NULL);
    write_totals(&json, server, now_ns);
    if (described[0] != '\0')
        trajd_json_raw(&json, NULL, described);
    write_lists(&json, server, TRAJD_WIRE_MAX_STATUS - STATUS_RESERVE, now_ns);
    trajd_json_close_object(&json);
    pthread_mutex_unlock(&server->mutex);
    free(described);
    is_cut = ferror(json.out); /* fclose does not tell */
    if (fclose(json.out) != 0 || is_cut) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- answering ---- */

void trajd_server_want_status(struct trajd_server *server, struct trajd_peer *peer,
                              uint64_t request, uint64_t now_ns)
{
    if (peer->status_request != 0)
        trajd_connections_blame(peer->route.descriptor);
    peer->status_request = request;
    peer->status_asked_ns = now_ns;
    server->is_status_wanted = true;
}

static void send_status(struct trajd_server *server, struct trajd_peer *peer, const char *text,
                        size_t length)
{
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_STATE,
        .state = {.request = peer->status_request,
                  .status = {.data = text, .size = (uint32_t)length}}};
    if (!text) {
        message.op = TRAJD_WIRE_ERROR;
        message.error =
            (struct trajd_wire_error){.request = peer->status_request,
                                      .status = TRAJD_ERR_MEMORY,
                                      .message = trajd_wire_text("no memory for the status")};
    }
    pthread_mutex_lock(&server->mutex);
    trajd_server_send(server, peer, &message);
    peer->status_request = 0;
    pthread_mutex_unlock(&server->mutex);
}

/* Over tcp rows of batches may be on their way all the time. So a remote session waits no longer
 * than a second; if it reads nothing, it is disconnected after worker_timeout. */
static bool must_wait(const struct trajd_peer *peer, uint64_t now_ns)
{
    const bool remote = peer->route.listener == TRAJD_LISTENER_REMOTE;
    return trajd_connections_unread(peer->route.descriptor) > STATUS_MAX_UNREAD_BYTES &&
           (!remote || now_ns < peer->status_asked_ns + STATUS_REMOTE_NS);
}

void trajd_server_answer_status(struct trajd_server *server, uint64_t now_ns)
{
    char *text = NULL;
    size_t length = 0;
    uint32_t sent = 0;
    if (!server->is_status_wanted || now_ns < server->status_at_ns)
        return;
    server->status_at_ns = now_ns + STATUS_NS;
    server->is_status_wanted = false;
    /* without the mutex, because only this thread changes these members of a peer */
    for (uint32_t i = 0; i < server->peers.capacity && sent < STATUS_A_TURN; i++) {
        struct trajd_peer *peer =
            &server->peers.list[server->status_next++ % server->peers.capacity];
        if (peer->status_request == 0)
            continue;
        server->is_status_wanted = true; /* until the next time */
        if (must_wait(peer, now_ns))
            continue;
        if (sent++ == 0)
            text = write_status(server, now_ns, &length);
        send_status(server, peer, text, length);
    }
    free(text);
}

/* ---- ASK ---- */

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
    uint32_t own = 0;
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_QUERIES; i++)
        own += server->queries[i].query.id != 0 && server->queries[i].session == peer->session;
    if (!server->options.answers_queries)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "ASK: this daemon answers no queries");
    if (server->queries_closed)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "ASK: the daemon is ending");
    if (!pending || own >= QUERIES_A_SESSION)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "ASK: %u queries wait for an answer: try again",
                               pending ? own : TRAJD_SERVER_MAX_QUERIES);
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

void trajd_server_drop_queries(struct trajd_server *server, uint64_t session)
{
    for (uint32_t i = 0; i < TRAJD_SERVER_MAX_QUERIES; i++)
        if (server->queries[i].session == session && !server->queries[i].taken)
            server->queries[i].query.id = 0;
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
