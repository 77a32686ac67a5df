/* The end of a session, and the library's own thread, which may end it. The thread sends ACKs and PINGs and keeps the connection while no call holds
 * io_lock, and it returns the leases of deferred batches. It blocks all signals. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define NAP_NS 1000000
#define BYE_TIMEOUT_NS (1000 * UINT64_C(1000000))
/* libzmq receives without a limit meanwhile, and a remote daemon needs a PING in time */
#define IDLE_MS 100

/* Discards batches that crossed the BYE. Returns true if the daemon replies that the session is
 * gone, or floods. */
static bool drain(struct trajd_client *client)
{
    struct trajd_wire_message message;
    uint64_t request;
    size_t size;
    while ((size = trajd_link_receive(&client->link, client->session.frame, TRAJD_WIRE_MAX_FRAME)) >
           0)
        if (!trajd_wire_decode(client->session.frame, size, client->session.tensors, &message,
                               &request, NULL) &&
            message.op == TRAJD_WIRE_ERROR && message.error.status == TRAJD_ERR_NOT_FOUND)
            return true;
    return client->link.is_flooded;
}

/* Sends BYE and waits until the daemon has received it, at most a second, so that earlier DONEs
 * count. A local daemon closes fd.sock then. A remote one replies NOT_FOUND to the PING that
 * follows the BYE. */
static void send_bye(struct trajd_client *client)
{
    const uint64_t deadline_ns = trajd_client_now_ns() + BYE_TIMEOUT_NS;
    struct trajd_link_ring ring;
    uint64_t now_ns;
    if (!trajd_link_is_attached(&client->link) || client->session.phase < TRAJD_PHASE_READY)
        return;
    trajd_session_turn(client);
    if (!trajd_link_is_attached(&client->link) || client->session.phase < TRAJD_PHASE_READY)
        return;
    trajd_session_send(client, &(struct trajd_wire_message){.op = TRAJD_WIRE_BYE});
    if (client->link.remote)
        trajd_session_send(client, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING});
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

void trajd_client_finish(struct trajd_client *client)
{
    trajd_deferred_end(client);
    pthread_mutex_lock(&client->io_lock);
    send_bye(client);
    client->session.was_ready = client->reconnect = false;
    trajd_session_clear(client);
    trajd_link_destroy(&client->link);
    pthread_mutex_unlock(&client->io_lock);
    trajd_client_drop(client);
}

/* ---- the thread ---- */

/* Waits for further releases, so that one message carries them together. */
static void nap(struct trajd_client *client)
{
    trajd_client_sleep_ns(NAP_NS);
    pthread_mutex_lock(&client->state_lock);
    client->flush_scheduled = false;
    pthread_mutex_unlock(&client->state_lock);
}

static void sleep_on(struct trajd_client *client, int64_t timeout_ns, int feed_fd, int fd)
{
    const struct timespec timeout = {.tv_sec = timeout_ns / 1000000000,
                                     .tv_nsec = timeout_ns % 1000000000};
    uint64_t count;
    struct pollfd items[] = {{.fd = client->io_thread_fd, .events = POLLIN},
                             {.fd = feed_fd, .events = POLLIN},
                             {.fd = fd, .events = POLLIN}};
    ppoll(items, 3, &timeout, NULL);
    if (read(client->io_thread_fd, &count, sizeof count) < 0)
        return; /* a timeout, or one of the sockets is readable */
}

/* A thread inside next() holds io_lock and does everything this thread would do. After it returns,
 * this thread has to look again soon. */
static void *run(void *context)
{
    struct trajd_client *client = context;
    for (;;) {
        int timeout_ms = IDLE_MS, feed_fd = -1, fd = -1;
        pthread_mutex_lock(&client->state_lock);
        bool stop = client->stop, napping = client->flush_scheduled;
        bool last = client->closing && client->held.count == 0 && !client->deferred.first;
        pthread_mutex_unlock(&client->state_lock);
        if (last)
            trajd_client_finish(client);
        if (stop || last)
            return NULL;
        if (napping)
            nap(client);
        const bool deferred = trajd_deferred_collect(client);
        if (deferred)
            trajd_deferred_synchronize(client);
        bool has_io_lock = pthread_mutex_trylock(&client->io_lock) == 0;
        if (has_io_lock)
            trajd_session_turn(client);
        pthread_mutex_lock(&client->state_lock);
        bool polled = client->poll_fd_used || client->closing;
        const uint64_t deferred_ns = deferred ? trajd_deferred_pause_ns(client) : 0;
        if (trajd_session_has_acks(client))
            timeout_ms = 1;
        else if (client->ack.pending.released.count > 0)
            timeout_ms = (int)(trajd_release_burst_ns(client) / 1000000) + 1;
        pthread_mutex_unlock(&client->state_lock);
        const int ping_ms = has_io_lock ? (int)(client->session.ping_ns / 1000000) : IDLE_MS;
        timeout_ms = client->link.remote && ping_ms < timeout_ms ? ping_ms : timeout_ms;
        if (has_io_lock && polled) {
            int due_ms = trajd_session_timeout_ms(client, trajd_client_now_ns());
            timeout_ms = due_ms < timeout_ms ? due_ms : timeout_ms;
            feed_fd = trajd_link_poll_fd(&client->link);
            fd = client->link.fd;
        } else if (polled) {
            /* next() may return at any moment, and this thread has to poll the sockets from then
             * on */
            timeout_ms = 1;
        }
        if (has_io_lock)
            pthread_mutex_unlock(&client->io_lock);
        sleep_on(client, deferred ? (int64_t)deferred_ns : timeout_ms * INT64_C(1000000), feed_fd,
                 fd);
    }
}

enum trajd_status trajd_io_thread_start(struct trajd_client *client, struct trajd_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the new thread inherits the mask */
    int code = pthread_create(&client->io_thread, NULL, run, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "pthread_create: %s", strerror(code));
    pthread_setname_np(client->io_thread, "trajd-client");
    client->io_thread_runs = true;
    return TRAJD_OK;
}

void trajd_io_thread_stop(struct trajd_client *client)
{
    if (!client->io_thread_runs)
        return;
    pthread_mutex_lock(&client->state_lock);
    client->stop = true;
    trajd_client_signal(client->io_thread_fd);
    pthread_mutex_unlock(&client->state_lock);
    pthread_join(client->io_thread, NULL);
}
