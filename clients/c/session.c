#include <string.h>
#include <unistd.h>

#include "clients/c/client_internal.h"

#define RETRY_NS (20 * UINT64_C(1000000))
#define HELLO_NS (500 * UINT64_C(1000000))
#define ASK_USER_MS 50
#define ASK_USER_NS (ASK_USER_MS * UINT64_C(1000000))

void trajd_session_say(struct trajd_client *client, const struct trajd_wire_message *message)
{
    size_t size;
    client->spoke = true;
    if (trajd_wire_encode(message, client->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) ||
        trajd_link_send(&client->link, client->frame, size))
        return; /* nobody is connected: what matters is said again after the next HELLO */
    client->last_sent_ns = trajd_client_now_ns();
}

/* ---- HELLO ---- */

/* What we still have. All other leases up to `received` are released by not being named, so nothing
 * is pending any more. */
static void list_leases(struct trajd_client *client, struct trajd_wire_hello *hello)
{
    pthread_mutex_lock(&client->state);
    for (uint32_t i = 0; i < client->queue_count; i++)
        trajd_leases_append(&hello->held,
                            &client->queue[(client->queue_first + i) % TRAJD_CLIENT_QUEUE].lease);
    for (uint32_t i = 0; i < client->held_count; i++) {
        trajd_leases_append(&hello->held, &client->held[i]->lease);
        if (client->held[i]->done && !client->held[i]->left)
            trajd_leases_append(&hello->done, &client->held[i]->lease);
    }
    client->pending.done.count = client->pending.released.count = 0;
    pthread_mutex_unlock(&client->state);
}

static void say_hello(struct trajd_client *client, uint64_t now_ns)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO,
                                         .hello = {.minor = TRAJD_WIRE_MINOR,
                                                   .client = trajd_wire_text(client->name),
                                                   .pid = (uint64_t)client->pid}};
    if (client->resuming) {
        message.hello.has_token = true;
        memcpy(message.hello.token, client->token, sizeof client->token);
        message.hello.instance = client->instance;
        message.hello.received = client->received;
        list_leases(client, &message.hello);
    }
    trajd_session_say(client, &message);
    client->hello_sent_ns = now_ns;
}

static void attach(struct trajd_client *client, uint64_t now_ns)
{
    if (!trajd_link_is_attached(&client->link) && now_ns >= client->retry_at_ns &&
        trajd_link_attach(&client->link, client->token, sizeof client->token))
        client->retry_at_ns = now_ns + RETRY_NS;
}

/* ---- OPEN ---- */

void trajd_session_leave(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->burst_since_ns = 0; /* all of it, now */
    pthread_mutex_unlock(&client->state);
    trajd_session_flush(client);
    pthread_mutex_lock(&client->state);
    for (uint32_t i = 0; i < client->held_count; i++)
        client->held[i]->left = true;
    client->pending.done.count = 0; /* could not be sent: those batches go back undone */
    client->previous = NULL;
    pthread_mutex_unlock(&client->state);
}

static void say_open(struct trajd_client *client)
{
    const struct trajd_open_terms *wanted = &client->wanted;
    const bool asks_gpu = wanted->gpu[0] != '\0' && !client->gpu_refused;
    const bool goes_on = !client->open_fresh && wanted->mode == TRAJD_MODE_SHARD;
    struct trajd_wire_message message = {
        .op = TRAJD_WIRE_OPEN,
        .open = {
            .request = client->open_request,
            .feed = trajd_wire_text(wanted->feed),
            .spec = trajd_wire_text(wanted->spec),
            .job = trajd_wire_text(wanted->job),
            .mode = wanted->mode == TRAJD_MODE_SHARD ? TRAJD_WIRE_SHARD : TRAJD_WIRE_QUEUE,
            .rank = wanted->rank,
            .world = wanted->world,
            .credit = wanted->credit,
            .epoch = wanted->epoch,
            .next = goes_on ? client->next_position : wanted->next,
            .fingerprint = client->open_fresh ? wanted->fingerprint : client->info.fingerprint,
            .fresh = client->open_fresh,
            .local = asks_gpu && wanted->on_gpu.count > 0 ? wanted->on_gpu : wanted->local,
            .gpu = trajd_wire_text(asks_gpu ? wanted->gpu : NULL),
        }};
    if (client->open_fresh) /* later the daemon knows what has been DONE since */
        message.open.resume = (struct trajd_wire_bytes){wanted->resume, wanted->resume_size};
    trajd_session_say(client, &message);
}

void trajd_session_open(struct trajd_client *client)
{
    client->open_request = ++client->last_request;
    client->phase = TRAJD_PHASE_OPENING;
    say_open(client);
}

void trajd_session_repeat_open(struct trajd_client *client)
{
    if (client->phase == TRAJD_PHASE_OPENING)
        say_open(client);
}

/* ---- acknowledgements ---- */

static void merge(struct trajd_wire_leases *into, const struct trajd_wire_leases *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        trajd_leases_append(into, &from->list[i]);
}

static bool can_say(const struct trajd_client *client)
{
    return !client->resuming && trajd_link_is_attached(&client->link) &&
           client->phase >= TRAJD_PHASE_READY;
}

void trajd_session_flush(struct trajd_client *client)
{
    size_t size;
    if (!can_say(client))
        return;
    pthread_mutex_lock(&client->state);
    struct trajd_wire_message message = {.op = TRAJD_WIRE_ACK, .ack = client->pending};
    client->pending.done.count = 0;
    if (trajd_deferred_burst_ns(client) == 0)
        client->pending.released.count = 0;
    else
        message.ack.released.count = 0;
    pthread_mutex_unlock(&client->state);
    if (message.ack.done.count + message.ack.released.count == 0)
        return;
    if (!trajd_wire_encode(&message, client->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL) &&
        !trajd_link_send(&client->link, client->frame, size)) {
        client->last_sent_ns = trajd_client_now_ns();
        return;
    }
    pthread_mutex_lock(&client->state);
    merge(&client->pending.done, &message.ack.done);
    merge(&client->pending.released, &message.ack.released);
    pthread_mutex_unlock(&client->state);
}

/* ---- a turn ---- */

static void read_connection(struct trajd_client *client)
{
    struct trajd_link_ring ring;
    for (;;) {
        switch (trajd_link_read(&client->link, &ring)) {
        case TRAJD_LINK_GREETED:
            if (client->phase == TRAJD_PHASE_GREETING)
                client->phase = TRAJD_PHASE_READY;
            client->was_up = true;
            client->retry_at_ns = 0;
            break;
        case TRAJD_LINK_RING:
            trajd_session_note_ring(client, &ring);
            break;
        case TRAJD_LINK_END:
            trajd_session_lose(client);
            return;
        case TRAJD_LINK_NOTHING:
            return;
        }
    }
}

static void advance(struct trajd_client *client, uint64_t now_ns)
{
    const bool hello_lost = now_ns >= client->hello_sent_ns + HELLO_NS;
    const bool waits_for_welcome = client->phase == TRAJD_PHASE_HELLO || client->resuming;
    if (client->phase == TRAJD_PHASE_GREETING)
        attach(client, now_ns);
    if (client->phase == TRAJD_PHASE_READY && client->has_feed && now_ns >= client->retry_at_ns)
        trajd_session_open(client); /* the same again, after the daemon's return */
    bool speaks = client->phase == TRAJD_PHASE_DOWN || (waits_for_welcome && hello_lost);
    if (!speaks || now_ns < client->retry_at_ns || !trajd_link_can_send(&client->link))
        return;
    if (client->phase == TRAJD_PHASE_DOWN)
        client->phase = TRAJD_PHASE_HELLO;
    say_hello(client, now_ns);
}

static void ping(struct trajd_client *client, uint64_t now_ns)
{
    /* a daemon elsewhere must hear us, not we it */
    const uint64_t last_ns = client->last_sent_ns > client->last_heard_ns || client->link.remote
                                 ? client->last_sent_ns
                                 : client->last_heard_ns;
    if (!trajd_link_is_attached(&client->link) || client->resuming ||
        client->phase < TRAJD_PHASE_READY || now_ns < last_ns + client->ping_ns)
        return;
    client->last_sent_ns = now_ns; /* also when nobody is connected: not in every turn */
    trajd_session_say(
        client, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING, .ping = {.time = now_ns}});
}

static void receive_all(struct trajd_client *client, uint64_t now_ns)
{
    size_t size;
    client->spoke = false;
    while ((size = trajd_link_receive(&client->link, client->frame, TRAJD_WIRE_MAX_FRAME)) > 0) {
        client->last_heard_ns = now_ns;
        trajd_session_handle(client, client->frame, size);
    }
}

static void turn(struct trajd_client *client, bool read_too)
{
    const uint64_t now_ns = trajd_client_now_ns();
    if (read_too)
        read_connection(client);
    trajd_session_flush(client);
    do {
        receive_all(client, now_ns);
        advance(client, now_ns);
        ping(client, now_ns);
    } while (client->spoke);
}

void trajd_session_turn(struct trajd_client *client)
{
    turn(client, true);
}

void trajd_session_exchange(struct trajd_client *client)
{
    turn(client, false);
}

bool trajd_session_has_to_say(const struct trajd_client *client)
{
    return client->pending.done.count > 0 ||
           (client->pending.released.count > 0 && trajd_deferred_burst_ns(client) == 0);
}

/* Until there is something to be said that waits for its time. */
static uint64_t burst_ns(struct trajd_client *client)
{
    uint64_t left_ns = UINT64_MAX;
    pthread_mutex_lock(&client->state);
    if (client->pending.released.count > 0 && can_say(client))
        left_ns = trajd_deferred_burst_ns(client);
    pthread_mutex_unlock(&client->state);
    return left_ns;
}

int trajd_session_timeout_ms(struct trajd_client *client, uint64_t now_ns)
{
    const uint64_t left_ns = burst_ns(client);
    uint64_t due_ns = now_ns + (left_ns < client->ping_ns ? left_ns : client->ping_ns);
    const bool retries = client->phase == TRAJD_PHASE_DOWN ||
                         client->phase == TRAJD_PHASE_GREETING ||
                         client->phase == TRAJD_PHASE_READY;
    if (client->phase == TRAJD_PHASE_HELLO || client->resuming)
        due_ns = client->hello_sent_ns + HELLO_NS;
    else if (retries && client->retry_at_ns > now_ns)
        due_ns = client->retry_at_ns;
    if (due_ns <= now_ns)
        return 1;
    return (int)((due_ns - now_ns) / 1000000) + 1;
}

/* True if next() may sleep: then a release wakes it. What was released before goes out first. */
static bool begin_waiting(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->waiting = !can_say(client) || !trajd_session_has_to_say(client);
    bool waiting = client->waiting;
    pthread_mutex_unlock(&client->state);
    return waiting;
}

void trajd_session_begin(struct trajd_client *client)
{
    client->cancelled = false;
    client->asked_ns = trajd_client_now_ns();
}

bool trajd_session_is_cancelled(const struct trajd_client *client)
{
    return client->cancelled;
}

/* Asking costs the user a lock: not more often than it can be noticed, but at once when a signal
 * came. */
static void ask_user(struct trajd_client *client, bool signalled)
{
    const uint64_t now_ns = trajd_client_now_ns();
    if (!client->ask_user || (!signalled && now_ns - client->asked_ns < ASK_USER_NS))
        return;
    client->asked_ns = now_ns;
    if (client->ask_user(client->context))
        client->cancelled = true;
}

void trajd_session_wait(struct trajd_client *client, uint64_t deadline_ns)
{
    uint64_t count;
    uint64_t now_ns = trajd_client_now_ns();
    struct trajd_link_readable readable = {.connection = true};
    if (now_ns < deadline_ns && !client->spoke && begin_waiting(client)) {
        uint64_t rest_ms = (deadline_ns - now_ns) / 1000000 + 1;
        int timeout_ms = trajd_session_timeout_ms(client, now_ns);
        if (rest_ms < (uint64_t)timeout_ms)
            timeout_ms = (int)rest_ms;
        if (client->ask_user && timeout_ms > ASK_USER_MS)
            timeout_ms = ASK_USER_MS;
        readable = trajd_link_wait(&client->link, client->wake_fd, timeout_ms);
        pthread_mutex_lock(&client->state);
        client->waiting = false;
        pthread_mutex_unlock(&client->state);
        if (readable.wake && read(client->wake_fd, &count, sizeof count) < 0)
            count = 0; /* never empty here; and if it were, nothing would be lost */
    }
    turn(client, readable.connection);
    ask_user(client, readable.signalled);
}
