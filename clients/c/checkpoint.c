#include <stdlib.h>
#include <string.h>

#include "clients/c/client_internal.h"

#define CHECKPOINT_TIMEOUT_MS 5000u

void trajd_checkpoint_note(struct trajd_client *client,
                           const struct trajd_wire_checkpointed *checkpointed)
{
    struct trajd_checkpoint *checkpoint = &client->checkpoint;
    if (checkpointed->request != checkpoint->request || checkpoint->over)
        return;
    checkpoint->over = true;
    checkpoint->size_bytes = checkpointed->token.size;
    checkpoint->token = malloc(checkpointed->token.size + 1u); /* never NULL for being empty */
    if (checkpoint->token)
        memcpy(checkpoint->token, checkpointed->token.data, checkpointed->token.size);
    else
        trajd_error_set(&checkpoint->error, TRAJD_ERR_MEMORY, 0, "checkpoint: out of memory");
}

void trajd_checkpoint_fail(struct trajd_client *client, const struct trajd_error *error)
{
    if (client->checkpoint.over)
        return;
    client->checkpoint.error = *error;
    client->checkpoint.over = true;
}

static enum trajd_status await(struct trajd_client *client, uint64_t deadline_ns,
                               struct trajd_error *error)
{
    while (!client->checkpoint.over) {
        if (client->phase == TRAJD_PHASE_FAILED) {
            *error = client->failure;
            return error->status;
        }
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "checkpoint: interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                                   "checkpoint: no answer from the daemon at %s in time",
                                   client->directory);
        trajd_session_wait(client, deadline_ns);
    }
    if (!client->checkpoint.token)
        *error = client->checkpoint.error;
    return !client->checkpoint.token ? error->status : TRAJD_OK;
}

static enum trajd_status ask(struct trajd_client *client, uint32_t timeout_ms,
                             struct trajd_error *error)
{
    const uint64_t wait_ms = timeout_ms > 0 ? timeout_ms : CHECKPOINT_TIMEOUT_MS;
    if (client->phase == TRAJD_PHASE_FAILED) {
        *error = client->failure;
        return error->status;
    }
    if (!client->has_feed)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "checkpoint: open a feed first");
    client->checkpoint = (struct trajd_checkpoint){.request = ++client->last_request};
    trajd_session_begin(client);
    trajd_session_flush(client); /* what is DONE here is said before */
    trajd_session_say(client, &(struct trajd_wire_message){
                                  .op = TRAJD_WIRE_CHECKPOINT,
                                  .checkpoint = {.request = client->checkpoint.request}});
    enum trajd_status status =
        await(client, trajd_client_now_ns() + wait_ms * UINT64_C(1000000), error);
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
    if (trajd_client_is_foreign(client))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "a client cannot be used in a child made by fork: connect again there");
    pthread_mutex_lock(&client->io_lock);
    enum trajd_status status = ask(client, timeout_ms, error);
    if (!status) {
        *token = client->checkpoint.token;
        *size_bytes = client->checkpoint.size_bytes;
    }
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
