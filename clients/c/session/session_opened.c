/* Handles OPENED: checks the schema, maps the ring, or opens the memory of the GPU. */
#include <string.h>
#include <unistd.h>

#include "clients/c/session/session.h"

void trajd_session_fall_back_to_host(struct trajd_client *client, const struct trajd_error *error)
{
    client->open.gpu_refused = true;
    trajd_wire_text_copy(trajd_wire_text(error->message), client->open.gpu_refusal,
                         sizeof client->open.gpu_refusal);
    client->session.phase = TRAJD_PHASE_READY;
    client->session.retry_at_ns = 0;
    client->open.request = 0;
    if (client->open.is_fresh || client->feed.is_granted)
        trajd_session_send_open(client);
}

static struct trajd_mapping *find_mapping(const struct trajd_client *client)
{
    for (uint32_t i = 0; i < client->rings.mapped_count; i++)
        if (client->rings.mapped[i]->terms.ring_id == client->feed.ring_terms.ring_id)
            return client->rings.mapped[i];
    return NULL;
}

static void add_mapping(struct trajd_client *client, struct trajd_mapping *mapping)
{
    if (client->rings.mapped_count == TRAJD_CLIENT_MAX_RINGS) {
        trajd_mapping_drop(client->rings.mapped[0]);
        memmove(client->rings.mapped, client->rings.mapped + 1,
                --client->rings.mapped_count * sizeof *client->rings.mapped);
    }
    client->rings.mapped[client->rings.mapped_count++] = mapping;
}

/* Drops GPU rings other than the open feed's. Each OPENED brings the handle again, so nothing is
 * lost, and the daemon's memory becomes free only when all processes have closed it. */
static void drop_other_device_rings(struct trajd_client *client,
                                    const struct trajd_mapping *mapping)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < client->rings.mapped_count; i++) {
        if (client->rings.mapped[i] == mapping || !client->rings.mapped[i]->gpu)
            client->rings.mapped[kept++] = client->rings.mapped[i];
        else
            trajd_mapping_drop(client->rings.mapped[i]);
    }
    client->rings.mapped_count = kept;
}

static struct trajd_mapping *map_received(struct trajd_client *client)
{
    struct trajd_error error;
    struct trajd_mapping *mapping = NULL;
    for (uint32_t i = 0; i < client->rings.received_count; i++) {
        struct trajd_link_ring ring = client->rings.received[i];
        if (ring.ring_id != client->feed.ring_terms.ring_id)
            continue;
        client->rings.received[i] = client->rings.received[--client->rings.received_count];
        enum trajd_status status =
            trajd_mapping_create(ring.fd, &client->feed.ring_terms, &mapping, &error);
        close(ring.fd);
        if (!status)
            add_mapping(client, mapping);
        else
            trajd_session_fail(client, &error);
        return mapping;
    }
    return NULL;
}

/* Returns NULL if the GPU's memory cannot be opened here. The feed is then opened in host memory
 * instead. */
static struct trajd_mapping *map_device(struct trajd_client *client)
{
    struct trajd_error error;
    struct trajd_mapping *mapping = NULL;
    if (!trajd_mapping_create_device(client->feed.gpu, &client->feed.ring_terms, &mapping, &error))
        add_mapping(client, mapping);
    else
        trajd_session_fall_back_to_host(client, &error);
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

static void map_ring(struct trajd_client *client)
{
    if (client->session.phase != TRAJD_PHASE_MAPPING)
        return;
    struct trajd_mapping *mapping = find_mapping(client);
    if (mapping && !same_terms(&mapping->terms, &client->feed.ring_terms)) {
        trajd_session_fail_protocol(client, "two rings with the same number");
        return;
    }
    if (!mapping)
        mapping = client->feed.ring_terms.is_device ? map_device(client) : map_received(client);
    if (!mapping)
        return;
    drop_other_device_rings(client, mapping);
    client->feed.info.gpu = mapping->gpu ? client->feed.gpu : NULL;
    client->feed.info.gpu_ordinal = mapping->gpu ? trajd_cuda_ordinal(mapping->gpu) : 0;
    client->feed.mapping = mapping;
    client->feed.is_granted = true;
    client->session.phase = TRAJD_PHASE_OPEN;
}

void trajd_session_add_ring(struct trajd_client *client, const struct trajd_link_ring *ring)
{
    /* the oldest is of a feed that was opened and then refused */
    if (client->rings.received_count == TRAJD_CLIENT_MAX_RINGS) {
        close(client->rings.received[0].fd);
        memmove(client->rings.received, client->rings.received + 1,
                --client->rings.received_count * sizeof *client->rings.received);
    }
    client->rings.received[client->rings.received_count++] = *ring;
    map_ring(client);
}

static void store_texts(const struct trajd_wire_texts *from, struct trajd_client_texts *texts)
{
    texts->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        trajd_wire_text_copy(from->list[i], texts->room[i], sizeof texts->room[i]);
        texts->list[i] = texts->room[i];
    }
}

static void store_opened(struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    client->feed.id = opened->feed_id;
    store_texts(&opened->quarantined, &client->feed.quarantine_reasons);
    store_texts(&opened->warnings, &client->feed.warnings);
    /* trajd_client_update_poll_fd reads the credit in other threads */
    pthread_mutex_lock(&client->state_lock);
    client->feed.info = (struct trajd_feed_info){
        .global_batch = opened->batch,
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
        .norm_digest = opened->norm,
        .values_digest = opened->values,
        .gpu_refusal = client->open.gpu_refused ? client->open.gpu_refusal : NULL,
        .episodes_found = opened->found,
        .episodes_kept = opened->kept,
        .episodes_quarantined = opened->found > opened->kept ? opened->found - opened->kept : 0,
        .episodes_used = opened->used,
        .quarantine_reason_count = client->feed.quarantine_reasons.count,
        .quarantine_reasons = client->feed.quarantine_reasons.list,
        .warning_count = client->feed.warnings.count,
        .warnings = client->feed.warnings.list};
    pthread_mutex_unlock(&client->state_lock);
    if (client->open.terms.gpu[0] != '\0' && opened->gpu.size == 0 &&
        !client->feed.info.gpu_refusal)
        client->feed.info.gpu_refusal = "this daemon does not support GPUs";
    trajd_wire_text_copy(opened->gpu, client->feed.gpu, sizeof client->feed.gpu);
    client->feed.ring_terms =
        (struct trajd_ring_terms){.instance_id = client->session.instance,
                                  .size_bytes = opened->ring_size_bytes,
                                  .slot_size_bytes = opened->slot_size_bytes,
                                  .ring_id = opened->ring,
                                  .slot_count = opened->slot_count,
                                  .writable = opened->writable,
                                  .is_device = opened->gpu.size > 0,
                                  .handle_size_bytes = opened->handle.size,
                                  .handle_offset_bytes = opened->handle_offset_bytes};
    if (opened->handle.size > 0)
        memcpy(client->feed.ring_terms.handle, opened->handle.data, opened->handle.size);
    client->feed.next_position = opened->next;
}

/* A remote feed has no ring to map. */
static void open_remote(struct trajd_client *client)
{
    struct trajd_error error;
    if (trajd_payload_make_buffers(client, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    client->feed.is_granted = true;
    client->session.phase = TRAJD_PHASE_OPEN;
}

/* Returns true if the feed has no GPU, or the requested one. Another GPU would be opened although
 * the caller did not request it, and a second time after a refusal. */
static bool is_right_gpu(const struct trajd_client *client, const struct trajd_wire_opened *opened)
{
    return opened->gpu.size == 0 || (!client->open.gpu_refused &&
                                     trajd_wire_text_equals(opened->gpu, client->open.terms.gpu));
}

static bool is_unfinished(const struct trajd_schema *schema)
{
    for (uint32_t i = 0; i < schema->tensor_count; i++)
        if (schema->tensors[i].shape.finish)
            return true;
    return false;
}

void trajd_session_handle_opened(struct trajd_client *client,
                                 const struct trajd_wire_opened *opened)
{
    struct trajd_error error;
    struct trajd_schema *schema;
    if (client->session.phase != TRAJD_PHASE_OPENING || opened->request != client->open.request)
        return;
    if (opened->batch == 0 || opened->credit == 0 || opened->credit > TRAJD_WIRE_MAX_LEASES ||
        opened->row_begin > opened->batch ||
        opened->row_count > opened->batch - opened->row_begin) {
        trajd_session_fail_protocol(client,
                                    "OPENED with rows outside the batch, or without credit");
        return;
    }
    if (!is_right_gpu(client, opened)) {
        trajd_session_fail_protocol(client, "OPENED with a GPU that was not requested");
        return;
    }
    if (trajd_schema_create(opened, &schema, &error)) {
        trajd_session_fail(client, &error);
        return;
    }
    if (!client->open.is_fresh && is_unfinished(schema) != client->feed.is_unfinished) {
        trajd_schema_drop(schema);
        trajd_session_fail_protocol(client, "OPENED with images in another form than before");
        return;
    }
    trajd_schema_drop(client->feed.schema);
    client->feed.schema = schema;
    client->feed.is_unfinished = is_unfinished(schema);
    client->feed.mapping = NULL;
    trajd_session_return_queue(client);
    store_opened(client, opened);
    trajd_carried_settle(client, opened);
    client->session.phase = TRAJD_PHASE_MAPPING;
    if (client->link.remote)
        open_remote(client);
    else
        map_ring(client);
}
