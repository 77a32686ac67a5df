/* Parts that travel: how long they are, and their way into a buffer (PROTOCOL.md, "Over tcp"). */
#include <stdlib.h>

#include "clients/c/client_internal.h"

/* Each tensor's rows, padded: what the schema has been checked for does not overflow. */
uint64_t trajd_payload_size(const struct trajd_schema *schema, uint32_t row_count)
{
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        const uint64_t rows_bytes = row_count * schema->tensors[i].row_size_bytes;
        size_bytes += (rows_bytes + TRAJD_TENSOR_ALIGNMENT - 1) / TRAJD_TENSOR_ALIGNMENT *
                      TRAJD_TENSOR_ALIGNMENT;
    }
    return size_bytes;
}

enum trajd_status trajd_client_make_buffers(struct trajd_client *client, struct trajd_error *error)
{
    const uint32_t world = client->wanted.mode == TRAJD_MODE_SHARD ? client->wanted.world : 1;
    client->row_limit = client->info.global_batch / world + (client->info.global_batch % world > 0);
    const uint64_t size_bytes = trajd_payload_size(client->schema, client->row_limit);
    trajd_buffers_drop(client->buffers);
    client->buffers = trajd_buffers_create(size_bytes, client->info.credit + 1);
    return client->buffers ? TRAJD_OK
                           : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed: out of memory");
}

enum trajd_status trajd_client_receive_payload(struct trajd_client *client, uint32_t row_count,
                                               unsigned char **payload, struct trajd_error *error)
{
    *payload = NULL;
    if (row_count > client->row_limit)
        return trajd_error_set(
            error, TRAJD_ERR_PROTOCOL, 0,
            "the daemon breaks the protocol: a part of %u rows, where %u are the most", row_count,
            client->row_limit);
    const uint64_t size_bytes = trajd_payload_size(client->schema, row_count);
    *payload = trajd_buffers_take(client->buffers);
    if (!*payload)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "batch: no memory for %llu bytes",
                               (unsigned long long)size_bytes);
    if (trajd_link_receive_payload(&client->link, *payload, size_bytes))
        return TRAJD_OK;
    trajd_buffers_give(client->buffers, *payload);
    *payload = NULL;
    return trajd_error_set(
        error, TRAJD_ERR_PROTOCOL, 0,
        "the daemon breaks the protocol: a part of another length than its %llu bytes",
        (unsigned long long)size_bytes);
}

void trajd_delivery_drop(struct trajd_client *client, struct trajd_delivery *delivery)
{
    free(delivery->failure);
    delivery->failure = NULL;
    trajd_buffers_give(client->buffers, delivery->payload);
    delivery->payload = NULL;
}
