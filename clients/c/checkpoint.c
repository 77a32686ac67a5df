/* CHECKPOINT: fetches the token of the epoch's DONE windows. */
#include <stdlib.h>

#include "clients/c/session/session.h"

#define CHECKPOINT_TIMEOUT_MS 5000u

static enum trajd_status await_token(struct trajd_client *client, uint64_t deadline_ns,
                                     struct trajd_error *error)
{
    while (!client->checkpoint.is_answered) {
        if (client->session.phase == TRAJD_PHASE_FAILED) {
            *error = client->session.failure;
            return error->status;
        }
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "checkpoint: interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                                   "checkpoint: the daemon at %s did not answer in time",
                                   client->endpoint);
        trajd_session_wait(client, deadline_ns);
    }
    if (!client->checkpoint.token)
        *error = client->checkpoint.error;
    return !client->checkpoint.token ? error->status : TRAJD_OK;
}

static enum trajd_status request_checkpoint(struct trajd_client *client, uint32_t timeout_ms,
                                            struct trajd_error *error)
{
    const uint32_t wait_ms = timeout_ms > 0 ? timeout_ms : CHECKPOINT_TIMEOUT_MS;
    if (client->session.phase == TRAJD_PHASE_FAILED) {
        *error = client->session.failure;
        return error->status;
    }
    if (!client->feed.is_granted)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "checkpoint: open a feed first");
    client->checkpoint = (struct trajd_checkpoint){.request = ++client->session.last_request};
    trajd_session_begin_call(client);
    trajd_session_send_acks(client); /* the DONEs of this worker go first */
    trajd_session_send(client, &(struct trajd_wire_message){
                                   .op = TRAJD_WIRE_CHECKPOINT,
                                   .checkpoint = {.request = client->checkpoint.request}});
    enum trajd_status status = await_token(client, trajd_client_deadline_ns(wait_ms), error);
    client->checkpoint.request = 0;
    return status;
}

enum trajd_status trajd_client_checkpoint(struct trajd_client *client, uint32_t timeout_ms,
                                          void **token, size_t *size_bytes,
                                          struct trajd_error *error)
{
    struct trajd_error own;
    error = error ? error : &own;
    *token = NULL;
    *size_bytes = 0;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = request_checkpoint(client, timeout_ms, error);
    if (!status) {
        *token = client->checkpoint.token;
        *size_bytes = client->checkpoint.size_bytes;
    }
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
