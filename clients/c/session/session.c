/* The turn of a session's loop: receives messages, notices the loss of the daemon, and lets a
 * caller wait. */
#include "clients/c/session/session.h"

#include <unistd.h>

#include "clients/c/batch_internal.h"

#define RETRY_NS (20 * UINT64_C(1000000))
#define HELLO_NS (500 * UINT64_C(1000000))
#define MOST_EVENTS (2 * TRAJD_CLIENT_MAX_RINGS) /* in one turn, so that it ends */
#define CANCEL_CHECK_MS 50
#define CANCEL_CHECK_NS (CANCEL_CHECK_MS * UINT64_C(1000000))

static void attach(struct trajd_client *client, uint64_t now_ns)
{
    if (!trajd_link_is_attached(&client->link) && now_ns >= client->session.retry_at_ns &&
        trajd_link_attach(&client->link, client->session.token, sizeof client->session.token))
        client->session.retry_at_ns = now_ns + RETRY_NS;
}

static void read_connection(struct trajd_client *client)
{
    struct trajd_link_ring ring;
    for (uint32_t i = 0; i < MOST_EVENTS; i++) {
        switch (trajd_link_read(&client->link, &ring)) {
        case TRAJD_LINK_GREETED:
            if (client->session.phase == TRAJD_PHASE_GREETING)
                client->session.phase = TRAJD_PHASE_READY;
            client->session.was_ready = true;
            client->session.retry_at_ns = 0;
            break;
        case TRAJD_LINK_RING:
            trajd_session_add_ring(client, &ring);
            break;
        case TRAJD_LINK_END:
            trajd_session_end(client);
            return;
        case TRAJD_LINK_NOTHING:
            return;
        }
    }
}

static void advance(struct trajd_client *client, uint64_t now_ns)
{
    const bool hello_lost = now_ns >= client->session.hello_sent_ns + HELLO_NS;
    const bool waits_for_welcome =
        client->session.phase == TRAJD_PHASE_HELLO || client->session.is_resuming;
    if (client->session.phase == TRAJD_PHASE_GREETING)
        attach(client, now_ns);
    if (client->session.phase == TRAJD_PHASE_READY && client->feed.is_granted &&
        now_ns >= client->session.retry_at_ns)
        trajd_session_send_open(client); /* repeats the OPEN after the daemon's return */
    bool should_greet =
        client->session.phase == TRAJD_PHASE_DOWN || (waits_for_welcome && hello_lost);
    if (!should_greet || now_ns < client->session.retry_at_ns ||
        !trajd_link_can_send(&client->link))
        return;
    if (client->session.phase == TRAJD_PHASE_DOWN)
        client->session.phase = TRAJD_PHASE_HELLO;
    trajd_session_send_hello(client, now_ns);
}

/* Fails when the daemon is lost for too long: it is away, or it refuses to open the feed again. */
static void check_loss(struct trajd_client *client, uint64_t now_ns)
{
    struct trajd_client_session *session = &client->session;
    const bool is_refused = session->phase == TRAJD_PHASE_READY && client->feed.is_granted;
    struct trajd_error error;
    if (session->phase >= TRAJD_PHASE_OPEN ||
        (session->phase == TRAJD_PHASE_READY && !client->feed.is_granted))
        session->lost_ns = 0;
    if (session->lost_ns == 0 || now_ns < session->lost_ns + client->away_ns)
        return;
    trajd_error_set(&error, TRAJD_ERR_CLOSED, 0,
                    "the daemon at %s %s for %.1f s after its death: %s", client->endpoint,
                    is_refused ? "did not open the feed again" : "did not return",
                    (double)client->away_ns * 1e-9,
                    is_refused ? session->failure.message : "connect again when it runs");
    trajd_session_fail(client, &error);
}

static void ping(struct trajd_client *client, uint64_t now_ns)
{
    /* A remote daemon must receive something from us. A local one only has to be in contact. */
    const uint64_t last_ns =
        client->session.last_sent_ns > client->session.last_received_ns || client->link.remote
            ? client->session.last_sent_ns
            : client->session.last_received_ns;
    if (!trajd_link_is_attached(&client->link) || client->session.is_resuming ||
        client->session.phase < TRAJD_PHASE_READY || now_ns < last_ns + client->session.ping_ns)
        return;
    /* also where the send fails, so that not every turn tries */
    client->session.last_sent_ns = now_ns;
    trajd_session_send(
        client, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING, .ping = {.time = now_ns}});
}

/* Ends the session with a daemon that floods. What waited for it is dropped. */
static void leave_flood(struct trajd_client *client)
{
    if (client->session.phase != TRAJD_PHASE_FAILED)
        trajd_session_fail_protocol(client, "it sends more messages than a worker requests");
    trajd_session_clear(client);
    client->session.is_resuming = false;
    trajd_link_hang_up(&client->link);
}

static void receive_all(struct trajd_client *client, uint64_t now_ns)
{
    size_t size;
    client->session.has_sent = false;
    while ((size = trajd_link_receive(&client->link, client->session.frame, TRAJD_WIRE_MAX_FRAME)) >
           0) {
        client->session.last_received_ns = now_ns;
        trajd_session_handle(client, client->session.frame, size);
    }
    if (client->link.is_flooded)
        leave_flood(client);
}

static void turn(struct trajd_client *client, bool read_fd)
{
    const uint64_t now_ns = trajd_client_now_ns();
    if (read_fd)
        read_connection(client);
    trajd_session_send_acks(client);
    do {
        receive_all(client, now_ns);
        advance(client, now_ns);
        ping(client, now_ns);
        check_loss(client, now_ns);
    } while (client->session.has_sent);
}

void trajd_session_turn(struct trajd_client *client)
{
    turn(client, true);
}

void trajd_session_exchange(struct trajd_client *client)
{
    turn(client, false);
}

/* Returns the time until pending releases are sent. UINT64_MAX: nothing is pending. */
static uint64_t burst_ns(struct trajd_client *client)
{
    uint64_t remaining_ns = UINT64_MAX;
    pthread_mutex_lock(&client->state_lock);
    if (client->ack.pending.released.count > 0 && trajd_session_can_ack(client))
        remaining_ns = trajd_release_burst_ns(client);
    pthread_mutex_unlock(&client->state_lock);
    return remaining_ns;
}

int trajd_session_timeout_ms(struct trajd_client *client, uint64_t now_ns)
{
    const uint64_t remaining_ns = burst_ns(client);
    uint64_t due_ns =
        now_ns + (remaining_ns < client->session.ping_ns ? remaining_ns : client->session.ping_ns);
    const bool retries = client->session.phase == TRAJD_PHASE_DOWN ||
                         client->session.phase == TRAJD_PHASE_GREETING ||
                         client->session.phase == TRAJD_PHASE_READY;
    if (client->session.phase == TRAJD_PHASE_HELLO || client->session.is_resuming)
        due_ns = client->session.hello_sent_ns + HELLO_NS;
    else if (retries && client->session.retry_at_ns > now_ns)
        due_ns = client->session.retry_at_ns;
    if (due_ns <= now_ns)
        return 1;
    return (int)((due_ns - now_ns) / 1000000) + 1;
}

/* Returns true if next() may sleep; releases then wake it. False: an ACK has to be sent first. */
static bool begin_waiting(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->next_sleeps = !trajd_session_can_ack(client) || !trajd_session_has_acks(client);
    bool waiting = client->next_sleeps;
    pthread_mutex_unlock(&client->state_lock);
    return waiting;
}

void trajd_session_begin_call(struct trajd_client *client)
{
    client->cancel.is_requested = false;
    client->cancel.checked_ns = trajd_client_now_ns();
}

bool trajd_session_is_cancelled(const struct trajd_client *client)
{
    return client->cancel.is_requested;
}

enum trajd_status trajd_session_time_out(const struct trajd_client *client, const char *call,
                                         uint32_t timeout_ms, struct trajd_error *error)
{
    const char *awaited = "did not answer";
    if (!trajd_link_is_attached(&client->link) || client->session.phase < TRAJD_PHASE_READY)
        awaited = "is gone and did not return";
    else if (client->feed.is_granted && client->feed.id == 0)
        awaited = "has returned, but did not open the feed again";
    return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "%s: the daemon at %s %s within %u ms",
                           call, client->endpoint, awaited, timeout_ms);
}

/* Calls the user's callback. In Python it needs the interpreter's lock, so it is called every 50 ms
 * at most, but at once after a signal. */
static void check_for_cancellation(struct trajd_client *client, bool signalled)
{
    const uint64_t now_ns = trajd_client_now_ns();
    if (!client->cancel.callback ||
        (!signalled && now_ns - client->cancel.checked_ns < CANCEL_CHECK_NS))
        return;
    client->cancel.checked_ns = now_ns;
    if (client->cancel.callback(client->cancel.context))
        client->cancel.is_requested = true;
}

void trajd_session_wait(struct trajd_client *client, uint64_t deadline_ns)
{
    uint64_t count;
    uint64_t now_ns = trajd_client_now_ns();
    struct trajd_link_readable readable = {.connection = true};
    if (now_ns < deadline_ns && !client->session.has_sent && begin_waiting(client)) {
        uint64_t remaining_ms = (deadline_ns - now_ns) / 1000000 + 1;
        int timeout_ms = trajd_session_timeout_ms(client, now_ns);
        if (remaining_ms < (uint64_t)timeout_ms)
            timeout_ms = (int)remaining_ms;
        if (client->cancel.callback && timeout_ms > CANCEL_CHECK_MS)
            timeout_ms = CANCEL_CHECK_MS;
        readable = trajd_link_wait(&client->link, client->wake_fd, timeout_ms);
        pthread_mutex_lock(&client->state_lock);
        client->next_sleeps = false;
        pthread_mutex_unlock(&client->state_lock);
        if (readable.wake && read(client->wake_fd, &count, sizeof count) < 0)
            count = 0; /* cannot be empty here, and nothing depends on it */
    }
    turn(client, readable.connection);
    check_for_cancellation(client, readable.signalled);
}
