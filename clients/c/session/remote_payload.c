/* Payloads: the rows of a batch that a remote daemon sends after BATCH (PROTOCOL.md, "Over
 * tcp"). */
#include "clients/c/session/session.h"

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

enum trajd_status trajd_payload_make_buffers(struct trajd_client *client, struct trajd_error *error)
{
    const uint32_t world =
        client->open.terms.mode == TRAJD_MODE_SHARD ? client->open.terms.world : 1;
    client->feed.row_limit =
        client->feed.info.global_batch / world + (client->feed.info.global_batch % world > 0);
    const uint64_t size_bytes = trajd_payload_size(client->feed.schema, client->feed.row_limit);
    trajd_buffers_drop(client->feed.buffers);
    client->feed.buffers = trajd_buffers_create(size_bytes, client->feed.info.credit + 1);
    return client->feed.buffers
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed: out of memory");
}

enum trajd_status trajd_payload_receive(struct trajd_client *client, uint32_t row_count,
                                        unsigned char **payload, struct trajd_error *error)
{
    *payload = NULL;
    if (row_count > client->feed.row_limit)
        return trajd_error_set(
            error, TRAJD_ERR_PROTOCOL, 0,
            "the daemon breaks the protocol: a payload of %u rows, where %u are the most",
            row_count, client->feed.row_limit);
    const uint64_t size_bytes = trajd_payload_size(client->feed.schema, row_count);
    *payload = trajd_buffers_take(client->feed.buffers);
    if (!*payload)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "batch: no memory for %llu bytes",
                               (unsigned long long)size_bytes);
    if (trajd_link_receive_payload(&client->link, *payload, size_bytes))
        return TRAJD_OK;
    trajd_buffers_give(client->feed.buffers, *payload);
    *payload = NULL;
    return trajd_error_set(
        error, TRAJD_ERR_PROTOCOL, 0,
        "the daemon breaks the protocol: a payload that does not have %llu bytes",
        (unsigned long long)size_bytes);
}
