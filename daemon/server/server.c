/* Creates, drains and destroys the server. */
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
    const int code = trajd_thread_start(&server->thread, "trajd-serve", trajd_server_run, server);

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
