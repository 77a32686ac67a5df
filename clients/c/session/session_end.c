#include <unistd.h>

#include "clients/c/batch_internal.h"
#include "clients/c/session/session.h"

#define RETRY_NS (20 * UINT64_C(1000000))

void trajd_session_fail(struct trajd_client *client, const struct trajd_error *error)
{
    client->session.failure = *error;
    client->session.phase = TRAJD_PHASE_FAILED;
    pthread_mutex_lock(&client->state_lock);
    client->is_over = true;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

void trajd_session_fail_protocol(struct trajd_client *client, const char *what)
{
    struct trajd_error error;
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "the daemon breaks the protocol: %s", what);
    trajd_session_fail(client, &error);
}

void trajd_session_clear_batches(struct trajd_client *client)
{
    trajd_carried_drop(client);
    pthread_mutex_lock(&client->state_lock);
    for (uint32_t i = 0; i < client->queue.count; i++)
        trajd_delivery_drop(client,
                            &client->queue.entries[(client->queue.first + i) % TRAJD_CLIENT_QUEUE]);
    client->queue.count = 0;
    client->held.count = 0; /* they stay readable; their leases end with the session */
    client->held.previous = NULL;
    client->ack.pending.done.count = client->ack.pending.released.count = 0;
    client->epoch_ended = false;
    client->incarnation++;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

static void clear_rings(struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->rings.mapped_count; i++)
        trajd_mapping_drop(client->rings.mapped[i]);
    for (uint32_t i = 0; i < client->rings.received_count; i++)
        close(client->rings.received[i].fd);
    client->rings.mapped_count = client->rings.received_count = 0;
    client->feed.mapping = NULL;
}

void trajd_session_clear(struct trajd_client *client)
{
    trajd_session_clear_batches(client);
    clear_rings(client);
}

void trajd_session_end(struct trajd_client *client)
{
    struct trajd_error error;
    if (client->reconnect && client->feed.is_granted && client->carried.pass > 0)
        trajd_carried_keep(client);
    else
        trajd_session_clear_batches(client);
    clear_rings(client);
    trajd_link_detach(&client->link);
    client->query.request = 0;
    client->feed.id = 0;
    client->session.received_sequence = 0;
    client->session.is_resuming = client->session.is_ending = false;
    client->open.is_fresh = client->open.is_fresh && !client->feed.is_granted;
    if (client->session.was_ready && !client->reconnect) {
        trajd_error_set(&error, TRAJD_ERR_CLOSED, 0, "the daemon at %s ended%s", client->endpoint,
                        client->link.remote
                            ? ", or could not be reached for so long that it closed this session"
                            : "");
        trajd_session_fail(client, &error);
        return;
    }
    client->session.phase = TRAJD_PHASE_DOWN;
    client->session.retry_at_ns = trajd_client_now_ns() + RETRY_NS;
    if (trajd_link_dial(&client->link, &error))
        trajd_session_fail(client, &error);
}
