/* Creates, runs, drains and destroys the server. */
#include "daemon/server/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/server/lock.h"

#define IDLE_MS 100u /* the longest sleep: the watchdog checks the time of the last turn */
#define MESSAGES_A_TURN 256u
#define TICK_NS (100 * UINT64_C(1000000))
#define RATE_NS (1000 * UINT64_C(1000000))
#define KEYS_NS (500 * UINT64_C(1000000)) /* how often the keys of sessions are looked up */
#define MAX_IDLE_FEEDS 64u
#define SILENCE_MS 2000u
#define FD_SOCKET_SPARE 64u /* more connections, for those that have sent no token yet */

static uint64_t now(void)
{
    return (uint64_t)trajd_now_ns();
}

/* ---- callbacks of the core; the caller of the core holds the mutex ---- */

static void send_message(void *context, uint64_t session, void *user,
                         const struct trajd_wire_message *message)
{
    (void)session;
    trajd_server_send(context, user, message);
}

static void wake_taker(void *context, struct trajd_core_feed *core_feed)
{
    struct trajd_feed *feed = trajd_core_feed_user(core_feed);
    (void)context;
    if (feed)
        feed->is_wanted = true;
}

static bool is_slot_in_use(void *context, struct trajd_core_feed *core_feed, uint32_t slot)
{
    struct trajd_feed *feed = trajd_core_feed_user(core_feed);
    (void)context;
    return trajd_slot_sends_is_in_use(feed->slot_sends, slot);
}

/* ---- the thread: one turn receives messages, handles them, sends, and does timed work ---- */

/* Handles up to MESSAGES_A_TURN messages, fewer where their answers are long. Returns true if no
 * message remains. */
static bool receive_all(struct trajd_server *server, uint64_t now_ns)
{
    struct trajd_incoming incoming;
    for (uint32_t i = 0; i < MESSAGES_A_TURN && !trajd_server_outbox_is_full(server); i++) {
        if (!trajd_transport_receive(server->transport, &incoming))
            return true;
        if (incoming.frame)
            trajd_server_handle(server, &incoming, now_ns);
    }
    return false;
}

/* Ends sessions that did not attach in time after HELLO, and remote sessions that have sent nothing
 * for silence_ms. A local worker's death is detected on fd.sock instead. */
static void end_silent_sessions(struct trajd_server *server, uint64_t now_ns)
{
    const uint64_t silence_ns = server->options.remote.silence_ms * UINT64_C(1000000);
    for (uint32_t i = 0; i < server->peers.capacity; i++) {
        struct trajd_peer *peer = &server->peers.list[i];
        const bool remote = peer->route.listener == TRAJD_LISTENER_REMOTE;
        const bool silent = remote && now_ns >= peer->last_message_ns + silence_ns;
        if (peer->session == 0 || (!silent && (peer->attached || now_ns < peer->attach_by_ns)))
            continue;
        server->silent_sessions += remote && peer->attached;
        trajd_server_end_session(server, peer, now_ns);
    }
}

/* Ends sessions that miss a message. Their leases go to others; their workers connect again. */
static void end_incomplete_sessions(struct trajd_server *server, uint64_t now_ns)
{
    for (uint32_t i = 0; i < server->peers.capacity; i++) {
        struct trajd_peer *peer = &server->peers.list[i];
        if (peer->session == 0 || !peer->has_lost_message)
            continue;
        trajd_server_log(server, "ended a session: no memory for a message to it");
        trajd_server_end_session(server, peer, now_ns);
    }
}

static void log_shut_out(struct trajd_server *server, const struct trajd_peer *peer)
{
    char line[2 * TRAJD_PEER_REMOTE];
    snprintf(line, sizeof line, "ended the session of %s: its key was removed or replaced",
             peer->remote);
    trajd_server_log(server, line);
}

/* Ends the sessions of remote workers whose key was removed. */
static void end_shut_out_sessions(struct trajd_server *server, uint64_t now_ns)
{
    for (uint32_t i = 0; i < server->peers.capacity; i++) {
        struct trajd_peer *peer = &server->peers.list[i];
        if (peer->session == 0 || peer->user[0] == '\0' ||
            !trajd_transport_is_shut_out(server->transport, peer->user, peer->key))
            continue;
        log_shut_out(server, peer);
        trajd_server_end_session(server, peer, now_ns);
    }
    server->keys_checked_ns = now_ns;
}

/* Marks the feeds whose takers wait for a slot that the transport has finished sending. */
static void wake_for_sends(struct trajd_server *server)
{
    for (struct trajd_feed *feed = server->feeds; feed; feed = feed->next)
        if (trajd_slot_sends_take_returned(feed->slot_sends))
            feed->is_wanted = true;
}

/* Collects the feeds that have been idle for feed_idle_ms, each once for an idle time. Counts a
 * user on each, so that it is not removed before report_idle has called feed_idle. */
static uint32_t collect_idle(struct trajd_server *server, struct trajd_feed **idle, uint64_t now_ns)
{
    uint32_t count = 0;
    for (struct trajd_feed *feed = server->feeds; feed && count < MAX_IDLE_FEEDS;
         feed = feed->next) {
        struct trajd_core_feed_info info;
        trajd_core_feed_info(feed->core, &info);
        bool over = info.idle_since_ns != 0 && !trajd_feed_is_held(feed) &&
                    now_ns >= info.idle_since_ns + server->options.feed_idle_ms * UINT64_C(1000000);
        if (over && !feed->idle_reported && !feed->closed) {
            feed->users++;
            idle[count++] = feed;
        }
        feed->idle_reported = over;
    }
    return count;
}

static void report_idle(struct trajd_server *server, struct trajd_feed **idle, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        server->options.feed_idle(server->options.context, idle[i]);
    if (count == 0)
        return;
    pthread_mutex_lock(&server->mutex);
    for (uint32_t i = 0; i < count; i++)
        idle[i]->users--;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void measure_rates(struct trajd_server *server, uint64_t now_ns)
{
    struct trajd_core_stats stats;
    if (now_ns - server->rate_since_ns < RATE_NS)
        return;
    trajd_core_tick(server->core, now_ns);
    trajd_core_get_stats(server->core, &stats);
    const double seconds = (double)(now_ns - server->rate_since_ns) * 1e-9;
    server->batch_rate_hz = (double)(stats.batches_done - server->rate_base_batches) / seconds;
    server->window_rate_hz = (double)(stats.windows_done - server->rate_base_windows) / seconds;
    server->rate_base_batches = stats.batches_done;
    server->rate_base_windows = stats.windows_done;
    server->rate_since_ns = now_ns;
}

static void tick(struct trajd_server *server, uint64_t now_ns)
{
    struct trajd_feed *idle[MAX_IDLE_FEEDS];
    uint32_t idle_count = 0;
    server->tick_at_ns = now_ns + TICK_NS;
    pthread_mutex_lock(&server->mutex);
    end_silent_sessions(server, now_ns);
    end_incomplete_sessions(server, now_ns);
    if (now_ns >= server->keys_checked_ns + KEYS_NS)
        end_shut_out_sessions(server, now_ns);
    measure_rates(server, now_ns);
    if (server->options.feed_idle)
        idle_count = collect_idle(server, idle, now_ns);
    pthread_mutex_unlock(&server->mutex);
    report_idle(server, idle, idle_count);
    trajd_transport_tick(server->transport, now_ns);
}

/* Sends the messages of this turn, and wakes takers. Returns true if a message was sent. */
static bool finish_turn(struct trajd_server *server, uint64_t now_ns)
{
    pthread_mutex_lock(&server->mutex);
    server->woken = false;
    wake_for_sends(server);
    trajd_server_finish_requests(server, now_ns);
    trajd_server_take_outbox(server);
    if (server->draining && trajd_core_lease_count(server->core) == 0)
        pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    trajd_server_request_instances(server);
    bool sent = trajd_server_send_taken(server);
    pthread_mutex_lock(&server->mutex);
    /* Last, because takers would compete with the sending for the mutex and the CPU cores. */
    trajd_server_wake_takers(server);
    pthread_mutex_unlock(&server->mutex);
    return sent;
}

enum { READABLE_CONNECTIONS = 1, READABLE_WAKE = 2 };

/* Does one turn. Returns true if the thread may sleep. */
static bool turn(struct trajd_server *server, uint32_t readable, uint64_t now_ns)
{
    trajd_transport_turn(server->transport);
    /* Messages come before ends of file, because what a worker sent before its death is valid. */
    bool idle = receive_all(server, now_ns);
    const bool due = now_ns >= server->tick_at_ns;
    if ((readable & READABLE_CONNECTIONS) || due)
        trajd_fdsock_turn(server->fdsock, now_ns);
    if (due)
        tick(server, now_ns);
    trajd_server_answer_status(server, now_ns);
    /* Sending may consume ZeroMQ's sign of a message, so this checks for one before the sleep. */
    if (finish_turn(server, now_ns))
        idle = idle && !trajd_transport_has_message(server->transport);
    return idle;
}

static void *run(void *context)
{
    struct trajd_server *server = context;
    const int descriptors[] = {trajd_fdsock_poll_fd(server->fdsock), server->wake_fd};
    uint32_t readable = 0;
    uint64_t count;
    bool idle = false;
    server->rate_since_ns = (uint64_t)trajd_now_ns();
    while (!__atomic_load_n(&server->stop, __ATOMIC_RELAXED)) { /* relaxed: see stop_thread */
        if (idle)
            readable = trajd_transport_wait(server->transport, descriptors, 2, IDLE_MS);
        const uint64_t now_ns = (uint64_t)trajd_now_ns();
        /* relaxed: only a time, which orders no other memory */
        __atomic_store_n(&server->last_turn_ns, now_ns, __ATOMIC_RELAXED);
        if ((readable & READABLE_WAKE) && read(server->wake_fd, &count, sizeof count) < 0)
            count = 0; /* cannot happen, as wake_fd is readable; harmless if it did */
        pthread_mutex_lock(&server->send_lock);
        idle = turn(server, readable, now_ns);
        pthread_mutex_unlock(&server->send_lock);
        idle = trajd_server_outbox_is_empty(server) && idle;
        readable = 0;
    }
    return NULL;
}

/* ---- creating and destroying ---- */

static enum trajd_status create_core(struct trajd_server *server, struct trajd_error *error)
{
    const struct trajd_core_options options = {
        .instance_id = server->options.instance_id,
        .max_sessions = server->options.max_sessions,
        .version = server->version,
        .feed_names = server->options.feed_names,
        .send = send_message,
        .wake = wake_taker,
        .is_in_flight = is_slot_in_use,
        .report = trajd_server_log,
        .context = server,
    };
    return trajd_core_create(&options, &server->core, error);
}

/* Returns the session that a token on fd.sock belongs to, or 0, and marks it as attached. Called on
 * the server's thread. */
static uint64_t identify(void *context, const uint8_t token[TRAJD_TOKEN_SIZE], uid_t uid)
{
    struct trajd_server *server = context;
    pthread_mutex_lock(&server->mutex);
    uint64_t session = trajd_core_find_token(server->core, token);
    struct trajd_peer *peer = session != 0 ? trajd_peers_by_session(&server->peers, session) : NULL;
    /* A remote worker's token is refused on fd.sock. */
    bool known = peer && peer->owner == uid && !peer->attached &&
                 peer->route.listener == TRAJD_LISTENER_LOCAL;
    if (known)
        peer->attached = true;
    pthread_mutex_unlock(&server->mutex);
    return known ? session : 0;
}

static void session_lost(void *context, uint64_t session)
{
    struct trajd_server *server = context;
    pthread_mutex_lock(&server->mutex);
    struct trajd_peer *peer = trajd_peers_by_session(&server->peers, session);
    if (peer)
        trajd_server_end_session(server, peer, now());
    pthread_mutex_unlock(&server->mutex);
}

static enum trajd_status open_sockets(struct trajd_server *server, struct trajd_error *error)
{
    char path[4096];
    const char *directory = server->options.runtime_directory;
    snprintf(path, sizeof path, "%s/feed.sock", directory);
    const struct trajd_transport_options transport = {.path = path,
                                                      .group_access = server->options.group_access,
                                                      .max_frame_bytes = TRAJD_WIRE_MAX_FRAME,
                                                      .send_limit = 4 * TRAJD_WIRE_MAX_LEASES,
                                                      .max_sessions = server->options.max_sessions,
                                                      .remote = server->options.remote};
    enum trajd_status status = trajd_transport_create(&transport, &server->transport, error);
    if (status)
        return status;
    snprintf(path, sizeof path, "%s/fd.sock", directory);
    const struct trajd_fdsock_options fdsock = {.path = path,
                                                .group_access = server->options.group_access,
                                                .max_connections =
                                                    server->options.max_sessions + FD_SOCKET_SPARE,
                                                .silence_ms = SILENCE_MS,
                                                .identify = identify,
                                                .session_lost = session_lost,
                                                .context = server};
    return trajd_fdsock_create(&fdsock, &server->fdsock, error);
}

static enum trajd_status start_thread(struct trajd_server *server, struct trajd_error *error)
{
    const int code = trajd_thread_start(&server->thread, "trajd-serve", run, server);

    if (code != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "pthread_create: %s", strerror(code));
    server->running = true;
    return TRAJD_OK;
}

static enum trajd_status allocate(struct trajd_server *server, struct trajd_error *error)
{
    server->version = strdup(server->options.version ? server->options.version : "");
    server->frame = malloc(TRAJD_WIRE_MAX_FRAME);
    bool good = trajd_peers_create(&server->peers, server->options.max_sessions);
    if (!good || !server->version || !server->frame)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "server: out of memory");
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake_fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "eventfd: %s", strerror(errno));
    return TRAJD_OK;
}

enum trajd_status trajd_server_create(const struct trajd_server_options *options,
                                      struct trajd_server **out, struct trajd_error *error)
{
    struct trajd_server *server = calloc(1, sizeof *server);
    if (!server)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "server: out of memory");
    server->options = *options;
    server->lock_fd = server->wake_fd = -1;
    pthread_mutex_init(&server->mutex, NULL);
    pthread_mutex_init(&server->send_lock, NULL);
    trajd_heartbeat_init_condition(&server->changed);
    trajd_heartbeat_init_condition(&server->query_added);
    server->last_end_ns = now();
    /* relaxed: only a time, which orders no other memory */
    __atomic_store_n(&server->last_turn_ns, now(), __ATOMIC_RELAXED);
    enum trajd_status status = trajd_lock_take(options->runtime_directory, &server->lock_fd, error);
    if (!status)
        status = allocate(server, error);
    if (!status)
        status = create_core(server, error);
    if (!status)
        status = open_sockets(server, error);
    if (!status) {
        *out = server; /* before the thread runs, because callbacks may use it there */
        status = start_thread(server, error);
    }
    if (status) {
        trajd_server_destroy(&server);
        *out = NULL;
    }
    return status;
}

static void stop_thread(struct trajd_server *server)
{
    if (!server->running)
        return;
    pthread_mutex_lock(&server->mutex);
    /* relaxed: the thread reads it after it was woken, and is joined below */
    __atomic_store_n(&server->stop, true, __ATOMIC_RELAXED);
    trajd_server_wake(server);
    pthread_mutex_unlock(&server->mutex);
    pthread_join(server->thread, NULL);
}

void trajd_server_destroy(struct trajd_server **pointer)
{
    struct trajd_server *server = *pointer;
    if (!server)
        return;
    stop_thread(server);
    trajd_transport_destroy(&server->transport); /* after this nothing reads the rings */
    trajd_outbox_drop(&server->sending);
    while (server->feeds) {
        struct trajd_feed *feed = server->feeds;
        trajd_server_remove_feed(server, &feed);
    }
    trajd_outbox_drop(&server->outbox);
    trajd_fdsock_destroy(&server->fdsock);
    if (server->core)
        trajd_core_destroy(&server->core);
    trajd_peers_destroy(&server->peers);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    trajd_lock_release(&server->lock_fd);
    pthread_cond_destroy(&server->changed);
    pthread_cond_destroy(&server->query_added);
    pthread_mutex_destroy(&server->send_lock);
    pthread_mutex_destroy(&server->mutex);
    free(server->frame);
    free(server->version);
    free(server);
    *pointer = NULL;
}

const char *trajd_server_remote_endpoint(const struct trajd_server *server)
{
    return trajd_transport_remote_endpoint(server->transport);
}

void trajd_server_drain(struct trajd_server *server, uint32_t timeout_ms)
{
    const struct timespec deadline = trajd_deadline(timeout_ms);
    pthread_mutex_lock(&server->mutex);
    server->draining = true;
    trajd_core_goaway(server->core, "the daemon ends", now());
    trajd_server_wake(server);
    while (trajd_core_lease_count(server->core) > 0)
        if (pthread_cond_timedwait(&server->changed, &server->mutex, &deadline) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&server->mutex);
}

void trajd_server_get_stats(const struct trajd_server *server, struct trajd_server_stats *stats)
{
    struct trajd_core_stats core;
    uint64_t last_end_ns;
    /* the cast drops const: a caller sees no change of the server */
    pthread_mutex_t *mutex = (pthread_mutex_t *)&server->mutex;
    pthread_mutex_lock(mutex);
    trajd_core_get_stats(server->core, &core);
    last_end_ns = server->last_end_ns;
    pthread_mutex_unlock(mutex);
    *stats = (struct trajd_server_stats){
        .sessions = core.sessions,
        .batches_sent = core.batches_sent,
        .windows_done = core.windows_done,
        .late_acks = core.late_acks,
        .dead_sessions = core.dead_sessions,
        .dropped_messages = __atomic_load_n(&server->dropped_frames, __ATOMIC_RELAXED),
        .last_turn_ns = __atomic_load_n(&server->last_turn_ns, __ATOMIC_RELAXED),
        .empty_since_ns = core.sessions > 0 ? 0 : last_end_ns,
    };
}
