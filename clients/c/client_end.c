#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define BYE_TIMEOUT_NS (1000 * UINT64_C(1000000))

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
