#include "daemon/server/server.h"

#include "proto/ring_layout.h"

static bool tensor_size(const struct trajd_wire_tensor *tensor, uint64_t *size_bytes)
{
    *size_bytes = trajd_dtype_size(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(*size_bytes, tensor->shape[i], size_bytes))
            return false;
    return true;
}

/* Rounds up to a multiple of the alignment. Returns false on overflow. */
static bool align_up(uint64_t *value, uint64_t alignment)
{
    if (__builtin_add_overflow(*value, alignment - 1, value))
        return false;
    *value -= *value % alignment;
    return true;
}

static enum trajd_status check_tensor(const struct trajd_feed_schema *schema,
                                      const struct trajd_wire_tensor *tensor,
                                      struct trajd_error *error)
{
    if (tensor->rank == 0 || tensor->rank > TRAJD_WIRE_MAX_RANK ||
        tensor->shape[0] != schema->global_batch || trajd_dtype_size(tensor->dtype) == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "tensor %.*s: needs 1 to %d dimensions, of which the first is the "
                               "batch, and an element type",
                               (int)tensor->name.size, tensor->name.data, (int)TRAJD_WIRE_MAX_RANK);
    return TRAJD_OK;
}

enum trajd_status trajd_feed_schema_layout(struct trajd_feed_schema *schema,
                                           struct trajd_error *error)
{
    uint64_t end_bytes = sizeof(struct trajd_slot_header);
    for (uint32_t i = 0; i < schema->tensor_count; i++) {
        struct trajd_wire_tensor *tensor = &schema->tensors[i];
        uint64_t size_bytes;
        enum trajd_status status = check_tensor(schema, tensor, error);
        if (status)
            return status;
        bool fits = align_up(&end_bytes, TRAJD_TENSOR_ALIGNMENT);
        tensor->offset_bytes = end_bytes;
        fits = fits && tensor_size(tensor, &size_bytes) &&
               !__builtin_add_overflow(end_bytes, size_bytes, &end_bytes);
        if (!fits)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "tensor %.*s: the size of a batch overflows",
                                   (int)tensor->name.size, tensor->name.data);
    }
    if (!align_up(&end_bytes, TRAJD_RING_ALIGNMENT) || end_bytes > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "the size of a batch overflows");
    schema->slot_size_bytes = end_bytes;
    return TRAJD_OK;
}
