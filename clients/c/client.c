/* Connects a client of libtrajd, and closes it when the GPU has finished with its batches. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define DEFAULT_ENDPOINT "/run/trajd/main"
#define CONNECT_TIMEOUT_MS 10000u
#define DEFAULT_AWAY_MS 600000u
#define PING_NS (1000 * UINT64_C(1000000))
#define DEFERRED_TIMEOUT_NS (1000 * UINT64_C(1000000))
#define DEFERRED_PAUSE_NS 200000

static const char *choose_directory(const struct trajd_connect_options *options)
{
    if (options->endpoint && options->endpoint[0] != '\0')
        return options->endpoint;
    const char *environment = getenv("TRAJD_ENDPOINT");
    return environment && environment[0] != '\0' ? environment : DEFAULT_ENDPOINT;
}

static enum trajd_status allocate(struct trajd_client *client,
                                  const struct trajd_connect_options *options,
                                  struct trajd_error *error)
{
    const char *name = options->client_name ? options->client_name : program_invocation_short_name;
    client->endpoint = strdup(choose_directory(options));
    client->name = strndup(name, TRAJD_WIRE_MAX_CLIENT);
    client->session.frame = malloc(TRAJD_WIRE_MAX_FRAME);
    client->session.tensors = malloc(TRAJD_WIRE_MAX_TENSORS * sizeof *client->session.tensors);
    if (!client->endpoint || !client->name || !client->session.frame || !client->session.tensors)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "connect: out of memory");
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->io_thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->poll_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->wake_fd < 0 || client->io_thread_fd < 0 || client->poll_fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "eventfd: %s", strerror(errno));
    return TRAJD_OK;
}

/* Writes why connect timed out: no daemon, no permission, or a failed handshake. */
static enum trajd_status no_answer(const struct trajd_client *client, struct trajd_error *error)
{
    char path[PATH_MAX];

    if (client->link.remote)
        return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: no daemon answers at %s%s%s",
                               client->endpoint,
                               trajd_link_handshake_error(&client->link)[0] != '\0' ? ": " : "",
                               trajd_link_handshake_error(&client->link));
    snprintf(path, sizeof path, "%s/feed.sock", client->endpoint);
    if (access(path, R_OK | W_OK) != 0 && errno == EACCES)
        return trajd_error_set(error, TRAJD_ERR_TIMEOUT, EACCES,
                               "connect: %s: permission denied (its owner may read the feeds, or "
                               "its group with group_access)",
                               path);
    return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: no daemon answers at %s", path);
}

static enum trajd_status await_session(struct trajd_client *client, struct trajd_error *error)
{
    const uint64_t deadline_ns = trajd_client_deadline_ns(client->timeout_ms);
    enum trajd_status status = trajd_link_dial(&client->link, error);
    if (status)
        return status;
    trajd_session_begin_call(client);
    while (client->session.phase < TRAJD_PHASE_READY) {
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return no_answer(client, error);
        trajd_session_wait(client, deadline_ns);
    }
    if (client->session.phase == TRAJD_PHASE_FAILED)
        *error = client->session.failure;
    return client->session.phase == TRAJD_PHASE_FAILED ? client->session.failure.status : TRAJD_OK;
}

enum trajd_status trajd_client_connect(const struct trajd_connect_options *options,
                                       struct trajd_client **out, struct trajd_error *error)
{
    static const struct trajd_connect_options defaults;
    struct trajd_error own;
    error = error ? error : &own;
    options = options ? options : &defaults;
    struct trajd_client *client = calloc(1, sizeof *client);
    if (!client)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "connect: out of memory");
    client->references = 1;
    client->pid = getpid();
    client->wake_fd = client->io_thread_fd = client->poll_fd = client->link.fd = -1;
    client->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : CONNECT_TIMEOUT_MS;
    client->reconnect = options->reconnect;
    client->away_ns =
        (options->away_ms > 0 ? options->away_ms : DEFAULT_AWAY_MS) * UINT64_C(1000000);
    client->notice.callback = options->notice;
    client->explicit_done = options->explicit_done;
    client->cancel.callback = options->interrupted;
    client->cancel.context = options->context;
    client->session.ping_ns = PING_NS;
    client->incarnation = 1;
    client->deferred.end = &client->deferred.first;
    pthread_mutex_init(&client->io_lock, NULL);
    pthread_mutex_init(&client->state_lock, NULL);
    enum trajd_status status = allocate(client, options, error);
    if (!status)
        status = trajd_link_create(&client->link,
                                   &(struct trajd_link_options){.endpoint = client->endpoint,
                                                                .key_file = options->key_file,
                                                                .server_key = options->server_key},
                                   error);
    if (!status)
        status = await_session(client, error);
    if (!status)
        status = trajd_io_thread_start(client, error);
    if (status) {
        trajd_client_close(&client);
        return status;
    }
    *out = client;
    return TRAJD_OK;
}

static bool is_held_by_user(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    const bool held = client->held.count > trajd_deferred_count(client);
    pthread_mutex_unlock(&client->state_lock);
    return held;
}

/* Waits up to a second for the GPU streams of released batches, which mostly finish within
 * milliseconds. The daemon has then received their releases when close() returns. */
static void await_deferred(struct trajd_client *client)
{
    const uint64_t deadline_ns = trajd_client_now_ns() + DEFERRED_TIMEOUT_NS;
    while (!is_held_by_user(client) && trajd_deferred_collect(client) &&
           trajd_client_now_ns() < deadline_ns)
        trajd_client_sleep_ns(DEFERRED_PAUSE_NS);
}

/* A BYE, like the end of the connection, frees the memory of all batches, so it has to wait while
 * batches are read. Returns true if there are any; the I/O thread then ends the session and frees
 * the client. */
static bool hand_to_io_thread(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->closing = (client->held.count > 0 || client->deferred.first) && client->io_thread_runs;
    bool kept = client->closing;
    if (kept) {
        pthread_detach(client->io_thread);
        trajd_client_signal(client->io_thread_fd);
    }
    pthread_mutex_unlock(&client->state_lock);
    return kept;
}

void trajd_client_close(struct trajd_client **pointer)
{
    struct trajd_client *client = *pointer;
    *pointer = NULL;
    if (!client || trajd_client_is_forked(client))
        return;
    await_deferred(client);
    if (hand_to_io_thread(client))
        return;
    trajd_io_thread_stop(client);
    trajd_client_finish(client);
}

/* ---- small calls ---- */

int trajd_client_poll_fd(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state_lock);
    client->poll_fd_used = true;
    trajd_client_update_poll_fd(client);
    trajd_client_signal(client->io_thread_fd);
    pthread_mutex_unlock(&client->state_lock);
    return client->poll_fd;
}

bool trajd_client_is_connected(struct trajd_client *client)
{
    if (trajd_client_is_forked(client))
        return false;
    pthread_mutex_lock(&client->io_lock);
    trajd_session_turn(client);
    const bool connected =
        trajd_link_is_attached(&client->link) && client->session.phase >= TRAJD_PHASE_READY;
    pthread_mutex_unlock(&client->io_lock);
    return connected;
}

void trajd_client_interrupt(struct trajd_client *client)
{
    /* release: pairs with was_interrupted in feed_next.c */
    __atomic_store_n(&client->interrupted, true, __ATOMIC_RELEASE);
    trajd_client_signal(client->wake_fd);
}
