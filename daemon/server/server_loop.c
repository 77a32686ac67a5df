/* The server's thread: one turn receives messages, handles them, sends, and does timed work. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/server/server_internal.h"

#define IDLE_MS 100u /* the longest sleep: the watchdog checks the time of the last turn */
#define MESSAGES_A_TURN 256u
#define TICK_NS (100 * UINT64_C(1000000))
#define RATE_NS (1000 * UINT64_C(1000000))
#define KEYS_NS (500 * UINT64_C(1000000)) /* how often the keys of sessions are looked up */
#define MAX_IDLE_FEEDS 64u

/* Handles up to MESSAGES_A_TURN messages. Returns true if no message remains. */
static bool receive_all(struct trajd_server *server, uint64_t now_ns)
{
    struct trajd_incoming incoming;
    for (uint32_t i = 0; i < MESSAGES_A_TURN; i++) {
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

void *trajd_server_run(void *context)
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
