#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/c/client_internal.h"

#define RETRY_NS (20 * UINT64_C(1000000))
#define DEFAULT_SILENCE_NS (10000 * UINT64_C(1000000))
#define BUSY_RETRY_NS (20 * UINT64_C(1000000))

void trajd_session_fail(struct trajd_client *client, const struct trajd_error *error)
{
    client->failure = *error;
    client->phase = TRAJD_PHASE_FAILED;
    pthread_mutex_lock(&client->state);
    client->over = true;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
}

static void fail_protocol(struct trajd_client *client, const char *what)
{
    struct trajd_error error;
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "the daemon breaks the protocol: %s", what);
    trajd_session_fail(client, &error);
}

/* ---- the end of a session ---- */

static void forget_batches(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    for (uint32_t i = 0; i < client->queue_count; i++)
        trajd_delivery_drop(client, &client->queue[(client->queue_first + i) % TRAJD_CLIENT_QUEUE]);
    client->queue_count = 0;
    client->held_count = 0; /* they stay readable; no word of them goes to anybody */
    client->previous = NULL;
    client->pending.done.count = client->pending.released.count = 0;
    client->ended = false;
    client->incarnation++;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
}

static void forget_rings(struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->ring_count; i++)
        trajd_mapping_drop(client->rings[i]);
    for (uint32_t i = 0; i < client->arrived_count; i++)
        close(client->arrived[i].fd);
    client->ring_count = client->arrived_count = 0;
    client->mapping = NULL;
}

void trajd_session_forget(struct trajd_client *client)
{
    forget_batches(client);
    forget_rings(client);
}

void trajd_session_lose(struct trajd_client *client)
{
    struct trajd_error error;
    trajd_session_forget(client);
    trajd_link_detach(&client->link);
    client->received = 0;
    client->resuming = client->goaway = false;
    client->open_fresh = client->open_fresh && !client->has_feed;
    if (client->was_up && !client->reconnect) {
        trajd_error_set(
            &error, TRAJD_ERR_CLOSED, 0, "the daemon at %s ended%s", client->directory,
            client->link.remote ? ", or was not heard for so long that it has given us up" : "");
        trajd_session_fail(client, &error);
        return;
    }
    client->phase = TRAJD_PHASE_DOWN;
    client->retry_at_ns = trajd_client_now_ns() + RETRY_NS;
    if (trajd_link_dial(&client->link, &error))
        trajd_session_fail(client, &error);
}

/* ---- WELCOME, ERROR ---- */

static void handle_welcome(struct trajd_client *client, const struct trajd_wire_welcome *welcome)
{
    if (client->resuming && welcome->resumed) {
        client->resuming = false;
        trajd_session_repeat_open(client);
        return;
    }
    if (!client->resuming && client->phase != TRAJD_PHASE_HELLO)
        return; /* a second answer, to a HELLO that was repeated */
    if (client->resuming) {
        trajd_session_lose(client);
        return; /* it knows us no more: from the beginning, if we may */
    }
    client->instance = welcome->instance;
    client->session = welcome->session;
    memcpy(client->token, welcome->token, sizeof client->token);
    client->link.silence_ns =
        welcome->silence_ms > 0 ? welcome->silence_ms * UINT64_C(1000000) : DEFAULT_SILENCE_NS;
    if (client->link.remote && client->link.silence_ns / 4 < client->ping_ns)
        client->ping_ns = client->link.silence_ns / 4;
    client->phase = TRAJD_PHASE_GREETING;
    client->retry_at_ns = 0;
}

/* Batches of what was open before go back undone: the daemon has given them up when it answers an
 * OPEN, by OPENED or by ERROR. Not before: an OPEN may be lost, and then they would be taken for
 * DONE. */
static void return_queue(struct trajd_client *client)
{
    pthread_mutex_lock(&client->state);
    for (; client->queue_count > 0; client->queue_count--) {
        struct trajd_delivery *delivery = &client->queue[client->queue_first];
        struct trajd_wire_leases *released = &client->pending.released;
        if (released->count < TRAJD_WIRE_MAX_LEASES)
            released->list[released->count++] = delivery->lease;
        trajd_delivery_drop(client, delivery);
        client->queue_first = (client->queue_first + 1) % TRAJD_CLIENT_QUEUE;
    }
    client->ended = client->over = false;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
}

/* In host memory, then; *error is why. The same OPEN goes out again at once, without the GPU. */
static void give_up_gpu(struct trajd_client *client, const struct trajd_error *error)
{
    client->gpu_refused = true;
    trajd_wire_text_copy(trajd_wire_text(error->message), client->gpu_refusal,
                         sizeof client->gpu_refusal);
    client->phase = TRAJD_PHASE_READY;
    client->retry_at_ns = 0;
    client->open_request = 0;
    if (client->open_fresh || client->has_feed)
        trajd_session_open(client);
}

static bool is_about_gpu(const struct trajd_client *client, const struct trajd_error *error)
{
    return client->wanted.gpu && client->wanted.gpu[0] != '\0' && !client->gpu_refused &&
           (error->status == TRAJD_ERR_UNSUPPORTED || error->status == TRAJD_ERR_MEMORY ||
            error->status == TRAJD_ERR_DEVICE);
}

/* Busy: others have not seen the end of their epoch, or have not come back yet. Closed: the daemon
 * is about to end, and its return is waited for. */
static void handle_open_error(struct trajd_client *client, const struct trajd_error *error)
{
    client->open_request = 0;
    client->mapping = NULL;
    return_queue(client);
    client->phase = TRAJD_PHASE_READY;
    if (is_about_gpu(client, error)) {
        give_up_gpu(client, error);
    } else if (error->status == TRAJD_ERR_BUSY ||
               (error->status == TRAJD_ERR_CLOSED && client->reconnect)) {
        client->retry_at_ns = trajd_client_now_ns() + BUSY_RETRY_NS;
        client->failure = *error;
    } else if (client->open_fresh) {
        client->refused = true;
        client->failure = *error;
    } else {
        trajd_session_fail(client, error);
    }
}

/* A session is sent away from its feed: by these, and without request. While an OPEN is under way
 * it is what was open before, which is left anyhow; what the OPEN asks for is told with its
 * request. */
static bool is_of_left_feed(const struct trajd_client *client,
                            const struct trajd_wire_error *message)
{
    return client->phase == TRAJD_PHASE_OPENING && message->request == 0 &&
           (message->status == TRAJD_ERR_DEVICE || message->status == TRAJD_ERR_CLOSED ||
            message->status == TRAJD_ERR_TIMEOUT);
}

static void handle_error(struct trajd_client *client, const struct trajd_wire_error *message)
{
    struct trajd_error error = {.status = message->status};
    trajd_wire_text_copy(message->message, error.message, sizeof error.message);
    if (message->request != 0 && message->request == client->question_request) {
        client->answer_error = error;
        client->answered = true;
    } else if (message->request != 0 && message->request == client->checkpoint.request) {
        trajd_checkpoint_fail(client, &error);
    } else if (message->request != 0 && message->request == client->open_request) {
        handle_open_error(client, &error);
    } else if (is_of_left_feed(client, message)) {
        return;
    } else if (message->request == 0 && error.status == TRAJD_ERR_NOT_FOUND &&
               trajd_link_is_attached(&client->link) && client->phase >= TRAJD_PHASE_READY) {
        /* the connection was cut and came back as another one; once is enough for all that was said
         * on it */
        if (!client->resuming)
            client->hello_sent_ns = 0;
        client->resuming = true;
    } else if (message->request == 0 && error.status == TRAJD_ERR_DEVICE && client->has_feed &&
               is_about_gpu(client, &error)) {
        /* the daemon has lost them; those that the caller holds stay as they are */
        forget_batches(client);
        client->mapping = NULL;
        client->open_fresh = false;
        give_up_gpu(client, &error);
    } else if (message->request == 0 && error.status == TRAJD_ERR_CLOSED && client->goaway &&
               client->reconnect) {
        return; /* the daemon ends, and its feeds before it: its return is waited for */
    } else if (message->request == 0) {
        if (error.status == TRAJD_ERR_TIMEOUT) /* of next() that means another thing */
            error.status = TRAJD_ERR_CLOSED;
        trajd_session_fail(client, &error);
    }
}

/* ---- OPENED ---- */

void trajd_session_note_ring(struct trajd_client *client, const struct trajd_link_ring *ring)
{
    /* of feeds that were opened and refused since */
    if (client->arrived_count == TRAJD_CLIENT_MAX_RINGS) {
        close(client->arrived[0].fd);
        memmove(client->arrived, client->arrived + 1,
                --client->arrived_count * sizeof *client->arrived);
    }
    client->arrived[client->arrived_count++] = *ring;
    trajd_session_map(client);
}

static struct trajd_mapping *find_mapping(const struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->ring_count; i++)
        if (client->rings[i]->terms.ring_id == client->ring_terms.ring_id)
            return client->rings[i];
    return NULL;
}

static void keep_mapping(struct trajd_client *client, struct trajd_mapping *mapping)
{
    if (client->ring_count == TRAJD_CLIENT_MAX_RINGS) {
        trajd_mapping_drop(client->rings[0]);
        memmove(client->rings, client->rings + 1, --client->ring_count * sizeof *client->rings);
    }
    client->rings[client->ring_count++] = mapping;
}

/* OPENED brings a GPU's handle each time, so one that is not read any more is closed: what the
 * daemon frees is free only then. */
static void forget_other_device_rings(struct trajd_client *client,
                                      const struct trajd_mapping *mapping)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < client->ring_count; i++) {
        if (client->rings[i] == mapping || !client->rings[i]->gpu)
            client->rings[kept++] = client->rings[i];
        else
            trajd_mapping_drop(client->rings[i]);
    }
    client->ring_count = kept;
}

static struct trajd_mapping *map_arrived(struct trajd_client *client)
{
    struct trajd_error error;
    struct trajd_mapping *mapping = NULL;
    for (uint32_t i = 0; i < client->arrived_count; i++) {
        struct trajd_link_ring ring = client->arrived[i];
        if (ring.ring_id != client->ring_terms.ring_id)
            continue;
        client->arrived[i] = client->arrived[--client->arrived_count];
        enum trajd_status status =
            trajd_mapping_create(ring.fd, &client->ring_terms, &mapping, &error);
        close(ring.fd);
        if (!status)
            keep_mapping(client, mapping);
        else
            trajd_session_fail(client, &error);
        return mapping;
    }
    return NULL;
}

/* NULL: it cannot be opened from here, and the feed is being opened in host memory instead. */
static struct trajd_mapping *map_device(struct trajd_client *client)
{
    struct trajd_error error;
    struct trajd_mapping *mapping = NULL;
    if (!trajd_mapping_create_device(client->gpu, &client->ring_terms, &mapping, &error))
        keep_mapping(client, mapping);
    else
        give_up_gpu(client, &error);
    return mapping;
}

static bool same_terms(const struct trajd_ring_terms *a, const struct trajd_ring_terms *b)
{
    return a->ring_id == b->ring_id && a->instance_id == b->instance_id &&
           a->size_bytes == b->size_bytes && a->slot_size_bytes == b->slot_size_bytes &&
           a->slot_count == b->slot_count && a->writable == b->writable &&
           a->is_device == b->is_device && a->handle_size_bytes == b->handle_size_bytes &&
           a->handle_offset_bytes == b->handle_offset_bytes &&
           memcmp(a->handle, b->handle, a->handle_size_bytes) == 0;
}

void trajd_session_map(struct trajd_client *client)
{
    if (client->phase != TRAJD_PHASE_MAPPING)
        return;
    struct trajd_mapping *mapping = find_mapping(client);
    if (mapping && !same_terms(&mapping->terms, &client->ring_terms)) {
        fail_protocol(client, "two rings with one number");
        return;
    }
    if (!mapping)
        mapping = client->ring_terms.is_device ? map_device(client) : map_arrived(client);
    if (!mapping)
        return;
    forget_other_device_rings(client, mapping);
    client->info.gpu = mapping->gpu ? client->gpu : NULL;
    client->info.gpu_ordinal = mapping->gpu ? trajd_cuda_ordinal(mapping->gpu) : 0;
    client->mapping = mapping;
    client->has_feed = true;
    client->phase = TRAJD_PHASE_OPEN;
}

static void note_opened(struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    client->feed_id = opened->feed_id;
    pthread_mutex_lock(&client->state); /* whoever releases looks at the credit */
    client->info =
        (struct trajd_feed_info){.global_batch = opened->batch,
                                 .row_begin = opened->row_begin,
                                 .row_count = opened->row_count,
                                 .credit = opened->credit,
                                 .epoch = opened->epoch,
                                 .next = opened->next,
                                 .epoch_length = opened->length,
                                 .window_count = opened->windows,
                                 .dropped_count = opened->dropped,
                                 .fingerprint = opened->fingerprint,
                                 .seed = opened->seed,
                                 .tensor_count = opened->tensor_count,
                                 .gpu_refusal = client->gpu_refused ? client->gpu_refusal : NULL};
    pthread_mutex_unlock(&client->state);
    if (client->wanted.gpu[0] != '\0' && opened->gpu.size == 0 && !client->info.gpu_refusal)
        client->info.gpu_refusal = "this daemon knows nothing of GPUs";
    trajd_wire_text_copy(opened->gpu, client->gpu, sizeof client->gpu);
    client->ring_terms =
        (struct trajd_ring_terms){.instance_id = client->instance,
                                  .size_bytes = opened->ring_size_bytes,
                                  .slot_size_bytes = opened->slot_size_bytes,
                                  .ring_id = opened->ring,
                                  .slot_count = opened->slot_count,
                                  .writable = opened->writable,
                                  .is_device = opened->gpu.size > 0,
                                  .handle_size_bytes = opened->handle.size,
                                  .handle_offset_bytes = opened->handle_offset_bytes};
    if (opened->handle.size > 0)
        memcpy(client->ring_terms.handle, opened->handle.data, opened->handle.size);
    client->next_position = opened->next;
}

/* Nothing is to be mapped. */
static void enter_remotely(struct trajd_client *client)
{
    struct trajd_error error;
    if (trajd_client_make_buffers(client, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    client->has_feed = true;
    client->phase = TRAJD_PHASE_OPEN;
}

/* None, or the one that was asked for: another would be opened here unasked, and once more after it
 * could not be. */
static bool is_right_gpu(const struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    return opened->gpu.size == 0 ||
           (!client->gpu_refused && trajd_wire_text_equals(opened->gpu, client->wanted.gpu));
}

static void handle_opened(struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    struct trajd_error error;
    struct trajd_schema *schema;
    if (client->phase != TRAJD_PHASE_OPENING || opened->request != client->open_request)
        return;
    if (opened->batch == 0 || opened->credit == 0 || opened->credit > TRAJD_WIRE_MAX_LEASES ||
        opened->row_begin > opened->batch ||
        opened->row_count > opened->batch - opened->row_begin) {
        fail_protocol(client, "OPENED with rows that the batch does not have, or without credit");
        return;
    }
    if (!is_right_gpu(client, opened)) {
        fail_protocol(client, "OPENED with a GPU that it was not asked for");
        return;
    }
    if (trajd_schema_create(opened, &schema, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    trajd_schema_drop(client->schema);
    client->schema = schema;
    client->mapping = NULL;
    return_queue(client);
    note_opened(client, opened);
    client->phase = TRAJD_PHASE_MAPPING;
    if (client->link.remote)
        enter_remotely(client);
    else
        trajd_session_map(client);
}

/* ---- BATCH, EPOCH_END ---- */

static bool is_sound(const struct trajd_client *client, const struct trajd_wire_batch *batch)
{
    return batch->feed_id == client->feed_id && batch->ring == client->ring_terms.ring_id &&
           batch->slot < client->ring_terms.slot_count && batch->epoch == client->info.epoch &&
           batch->row_begin <= client->info.global_batch &&
           batch->row_count <= client->info.global_batch - batch->row_begin;
}

/* False: more are out than one ACK can name. */
static bool enqueue(struct trajd_client *client, const struct trajd_delivery *delivery)
{
    pthread_mutex_lock(&client->state);
    const uint32_t out = client->queue_count + client->held_count + client->pending.released.count;
    bool fits = out < TRAJD_CLIENT_QUEUE;
    if (fits)
        client->queue[(client->queue_first + client->queue_count++) % TRAJD_CLIENT_QUEUE] =
            *delivery;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
    return fits;
}

static void handle_batch(struct trajd_client *client, const struct trajd_wire_batch *batch)
{
    const bool expected = client->phase == TRAJD_PHASE_OPEN || client->phase == TRAJD_PHASE_MAPPING;
    struct trajd_error error;
    if (client->phase < TRAJD_PHASE_READY || batch->seq <= client->received)
        return;
    if (expected && !is_sound(client, batch)) {
        fail_protocol(client, "BATCH of another feed, slot or epoch");
        return;
    }
    /* one of what was left is kept, unseen, until the daemon answers the OPEN */
    client->received = batch->seq;
    struct trajd_delivery delivery = {
        .lease = {.ring = batch->ring,
                  .slot = batch->slot,
                  .generation = batch->generation,
                  .part = batch->part},
        .epoch = batch->epoch,
        .position = batch->position,
        .ready_ns = batch->ready_ns,
        .sequence = batch->seq,
        .row_begin = batch->row_begin,
        .row_count = batch->row_count,
        .failure = batch->error.size > 0 ? strndup(batch->error.data, batch->error.size) : NULL,
    };
    bool failure_lost = batch->error.size > 0 && !delivery.failure;
    if (client->link.remote && expected && batch->error.size == 0 &&
        trajd_client_receive_payload(client, batch->row_count, &delivery.payload, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    if (failure_lost || !enqueue(client, &delivery)) {
        trajd_delivery_drop(client, &delivery);
        fail_protocol(client, "more batches than it gave credit for");
    }
}

static void handle_epoch_end(struct trajd_client *client, const struct trajd_wire_epoch_end *end)
{
    const bool expected = client->phase == TRAJD_PHASE_OPEN || client->phase == TRAJD_PHASE_MAPPING;
    if (!expected || end->feed_id != client->feed_id || end->epoch != client->info.epoch)
        return;
    pthread_mutex_lock(&client->state);
    client->ended = true;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
}

/* ---- the rest ---- */

static void handle_state(struct trajd_client *client, const struct trajd_wire_state *state)
{
    if (state->request != client->question_request || client->answered)
        return;
    client->answer_json = strndup(state->status.data ? state->status.data : "", state->status.size);
    if (!client->answer_json)
        trajd_error_set(&client->answer_error, TRAJD_ERR_MEMORY, 0,
                        "out of memory for the daemon's answer");
    client->answered = true;
}

static void handle_goaway(struct trajd_client *client)
{
    client->goaway = true;
    if (client->reconnect)
        return;
    pthread_mutex_lock(&client->state);
    client->over = true;
    trajd_client_notify(client);
    pthread_mutex_unlock(&client->state);
}

void trajd_session_handle(struct trajd_client *client, const void *frame, size_t size)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    enum trajd_status status =
        trajd_wire_decode(frame, size, client->tensors, &message, &request, &error);
    if (status == TRAJD_ERR_UNSUPPORTED)
        trajd_session_fail(client, &error);
    if (status || (client->link.more && message.op != TRAJD_WIRE_BATCH))
        return; /* an op of a later version, or nothing that a daemon of ours says */
    if (message.op == TRAJD_WIRE_BATCH)
        handle_batch(client, &message.batch);
    else if (message.op == TRAJD_WIRE_EPOCH_END)
        handle_epoch_end(client, &message.epoch_end);
    else if (message.op == TRAJD_WIRE_WELCOME)
        handle_welcome(client, &message.welcome);
    else if (message.op == TRAJD_WIRE_OPENED)
        handle_opened(client, &message.opened);
    else if (message.op == TRAJD_WIRE_ERROR)
        handle_error(client, &message.error);
    else if (message.op == TRAJD_WIRE_GOAWAY)
        handle_goaway(client);
    else if (message.op == TRAJD_WIRE_STATE)
        handle_state(client, &message.state);
    else if (message.op == TRAJD_WIRE_CHECKPOINTED)
        trajd_checkpoint_note(client, &message.checkpointed);
}
