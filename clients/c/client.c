#include "clients/c/client_internal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/wire_fields.h"

#define DEFAULT_ENDPOINT "/run/trajd/main"
#define CONNECT_TIMEOUT_MS 10000u
#define PING_NS (1000 * UINT64_C(1000000))
#define BYE_TIMEOUT_NS (1000 * UINT64_C(1000000))
#define DEFERRED_PAUSE_NS 200000

uint64_t trajd_client_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

bool trajd_client_is_foreign(const struct trajd_client *client)
{
    return client->pid != getpid();
}

enum trajd_status trajd_client_check_text(const char *what, const char *text, size_t limit,
                                          struct trajd_error *error)
{
    const size_t size = text ? strlen(text) : 0;
    if (size > limit)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: \"%.32s...\" is longer than %zu bytes", what, text, limit);
    for (size_t i = 0, length; i < size; i += length) {
        length = trajd_wire_character((const uint8_t *)text + i, size - i);
        if (length == 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: byte %zu is no UTF-8", what,
                                   i);
    }
    return TRAJD_OK;
}

void trajd_client_kick(int event_fd)
{
    const uint64_t one = 1;
    if (write(event_fd, &one, sizeof one) < 0)
        return; /* only a full counter refuses, and that wakes as well */
}

void trajd_client_notify(struct trajd_client *client)
{
    uint64_t count;
    bool readable = client->queue_count > 0 || client->ended || client->over ||
                    (client->info.credit > 0 &&
                     client->held_count - trajd_deferred_count(client) >= client->info.credit);
    if (!client->notify_wanted || readable == client->notified)
        return;
    client->notified = readable;
    if (readable)
        trajd_client_kick(client->notify_fd);
    else if (read(client->notify_fd, &count, sizeof count) < 0)
        client->notified = false; /* was not readable: the user has read it */
}

/* ---- life ---- */

static void free_client(struct trajd_client *client)
{
    const int fds[] = {client->wake_fd, client->io_thread_fd, client->notify_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    trajd_client_forget_terms(client);
    trajd_schema_drop(client->schema);
    trajd_buffers_drop(client->buffers);
    pthread_mutex_destroy(&client->io_lock);
    pthread_mutex_destroy(&client->state);
    free(client->directory);
    free(client->name);
    free(client->frame);
    free(client->tensors);
    free(client->answer_json);
    free(client);
}

void trajd_client_drop(struct trajd_client *client)
{
    /* acquire and release: all other users' changes come before the freeing */
    if (__atomic_sub_fetch(&client->references, 1, __ATOMIC_ACQ_REL) == 0)
        free_client(client);
}

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
    client->directory = strdup(choose_directory(options));
    client->name = strndup(name, TRAJD_WIRE_MAX_CLIENT);
    client->frame = malloc(TRAJD_WIRE_MAX_FRAME);
    client->tensors = malloc(TRAJD_WIRE_MAX_TENSORS * sizeof *client->tensors);
    if (!client->directory || !client->name || !client->frame || !client->tensors)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "connect: out of memory");
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->io_thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->wake_fd < 0 || client->io_thread_fd < 0 || client->notify_fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "eventfd: %s", strerror(errno));
    return TRAJD_OK;
}

/* Nobody answered: because nobody is there, or because we may not ask. */
static enum trajd_status no_answer(const struct trajd_client *client, struct trajd_error *error)
{
    char path[PATH_MAX];

    if (client->link.remote)
        return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: no daemon answers at %s%s%s",
                               client->directory,
                               trajd_link_trouble(&client->link)[0] != '\0' ? ": " : "",
                               trajd_link_trouble(&client->link));
    snprintf(path, sizeof path, "%s/feed.sock", client->directory);
    if (access(path, R_OK | W_OK) != 0 && errno == EACCES)
        return trajd_error_set(error, TRAJD_ERR_TIMEOUT, EACCES,
                               "connect: %s: permission denied (its owner may read the feeds, or "
                               "its group with group_access)",
                               path);
    return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: no daemon answers at %s", path);
}

static enum trajd_status await_session(struct trajd_client *client, struct trajd_error *error)
{
    const uint64_t deadline_ns = trajd_client_now_ns() + client->timeout_ms * UINT64_C(1000000);
    enum trajd_status status = trajd_link_dial(&client->link, error);
    if (status)
        return status;
    trajd_session_begin(client);
    while (client->phase < TRAJD_PHASE_READY) {
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "connect: interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return no_answer(client, error);
        trajd_session_wait(client, deadline_ns);
    }
    if (client->phase == TRAJD_PHASE_FAILED)
        *error = client->failure;
    return client->phase == TRAJD_PHASE_FAILED ? client->failure.status : TRAJD_OK;
}

static enum trajd_status start_io_thread(struct trajd_client *client, struct trajd_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the thread inherits it */
    int code = pthread_create(&client->io_thread, NULL, trajd_io_thread_run, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "pthread_create: %s", strerror(code));
    pthread_setname_np(client->io_thread, "trajd-client");
    client->io_thread_runs = true;
    return TRAJD_OK;
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
    client->wake_fd = client->io_thread_fd = client->notify_fd = client->link.fd = -1;
    client->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : CONNECT_TIMEOUT_MS;
    client->reconnect = options->reconnect;
    client->explicit_done = options->explicit_done;
    client->ask_user = options->interrupted;
    client->context = options->context;
    client->ping_ns = PING_NS;
    client->incarnation = 1;
    client->deferred_end = &client->deferred;
    pthread_mutex_init(&client->io_lock, NULL);
    pthread_mutex_init(&client->state, NULL);
    enum trajd_status status = allocate(client, options, error);
    if (!status)
        status = trajd_link_create(&client->link,
                                   &(struct trajd_link_options){.endpoint = client->directory,
                                                                .key_file = options->key_file,
                                                                .server_key = options->server_key},
                                   error);
    if (!status)
        status = await_session(client, error);
    if (!status)
        status = start_io_thread(client, error);
    if (status) {
        trajd_client_close(&client);
        return status;
    }
    *out = client;
    return TRAJD_OK;
}

static void stop_io_thread(struct trajd_client *client)
{
    if (!client->io_thread_runs)
        return;
    pthread_mutex_lock(&client->state);
    client->stop = true;
    trajd_client_kick(client->io_thread_fd);
    pthread_mutex_unlock(&client->state);
    pthread_join(client->io_thread, NULL);
}

/* Batches that crossed the BYE; true if the daemon has no session of ours any more. */
static bool drain(struct trajd_client *client)
{
    struct trajd_wire_message message;
    uint64_t request;
    size_t size;
    while ((size = trajd_link_receive(&client->link, client->frame, TRAJD_WIRE_MAX_FRAME)) > 0)
        if (!trajd_wire_decode(client->frame, size, client->tensors, &message, &request, NULL) &&
            message.op == TRAJD_WIRE_ERROR && message.error.status == TRAJD_ERR_NOT_FOUND)
            return true;
    return false;
}

/* What was said counts only when it is heard: so until the daemon has closed its end, or, where
 * there is none, has answered what was said behind the BYE: that there is no session. */
static void say_bye(struct trajd_client *client)
{
    const uint64_t deadline_ns = trajd_client_now_ns() + BYE_TIMEOUT_NS;
    struct trajd_link_ring ring;
    uint64_t now_ns;
    if (!trajd_link_is_attached(&client->link) || client->phase < TRAJD_PHASE_READY)
        return;
    trajd_session_turn(client);
    if (!trajd_link_is_attached(&client->link) || client->phase < TRAJD_PHASE_READY)
        return;
    trajd_session_say(client, &(struct trajd_wire_message){.op = TRAJD_WIRE_BYE});
    if (client->link.remote)
        trajd_session_say(client, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING});
    while ((now_ns = trajd_client_now_ns()) < deadline_ns) {
        enum trajd_link_event event = trajd_link_read(&client->link, &ring);
        if (event == TRAJD_LINK_END)
            return;
        if (event == TRAJD_LINK_RING)
            close(ring.fd);
        if (drain(client))
            return;
        trajd_link_wait(&client->link, client->wake_fd,
                        (int)((deadline_ns - now_ns) / 1000000) + 1);
    }
}

static bool is_held_by_user(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    const bool held = client->held_count > trajd_deferred_count(client);
    pthread_mutex_unlock(&client->state);
    return held;
}

/* Streams pass what they were given within moments, mostly: then the daemon has heard of it when
 * close() returns. */
static void await_deferred(struct trajd_client *client)
{
    const struct timespec pause = {.tv_nsec = DEFERRED_PAUSE_NS};
    const uint64_t deadline_ns = trajd_client_now_ns() + BYE_TIMEOUT_NS;
    while (!is_held_by_user(client) && trajd_deferred_collect(client) &&
           trajd_client_now_ns() < deadline_ns)
        nanosleep(&pause, NULL);
}

/* BYE, like the end of the connection, gives the memory of all batches to others: it waits for
 * those that are still read. True if there are any; then the I/O thread has the client. */
static bool keep_for_batches(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->closing = (client->held_count > 0 || client->deferred) && client->io_thread_runs;
    bool kept = client->closing;
    if (kept) {
        pthread_detach(client->io_thread);
        trajd_client_kick(client->io_thread_fd);
    }
    pthread_mutex_unlock(&client->state);
    return kept;
}

void trajd_client_close(struct trajd_client **pointer)
{
    struct trajd_client *client = *pointer;
    *pointer = NULL;
    if (!client || trajd_client_is_foreign(client))
        return;
    await_deferred(client);
    if (keep_for_batches(client))
        return;
    stop_io_thread(client);
    trajd_client_finish(client);
}

void trajd_client_finish(struct trajd_client *client)
{
    trajd_deferred_end(client);
    pthread_mutex_lock(&client->io_lock);
    say_bye(client);
    client->was_up = client->reconnect = false;
    trajd_session_forget(client);
    trajd_link_destroy(&client->link);
    pthread_mutex_unlock(&client->io_lock);
    trajd_client_drop(client);
}

/* ---- small calls ---- */

int trajd_client_poll_fd(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    client->notify_wanted = true;
    trajd_client_notify(client);
    trajd_client_kick(client->io_thread_fd);
    pthread_mutex_unlock(&client->state);
    return client->notify_fd;
}

bool trajd_client_is_connected(struct trajd_client *client)
{
    if (trajd_client_is_foreign(client))
        return false;
    pthread_mutex_lock(&client->io_lock);
    trajd_session_turn(client);
    const bool connected =
        trajd_link_is_attached(&client->link) && client->phase >= TRAJD_PHASE_READY;
    pthread_mutex_unlock(&client->io_lock);
    return connected;
}

void trajd_client_interrupt(struct trajd_client *client)
{
    /* pairs with next() taking it */
    __atomic_store_n(&client->interrupted, true, __ATOMIC_RELEASE);
    trajd_client_kick(client->wake_fd);
}
