/* Checks the tensors of OPENED against the size of a slot, and copies them. */
#include "clients/c/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ring_layout.h"

/* Checks one tensor, and subtracts it from the slot's remaining bytes. All tensors together are not
 * larger than the slot, so sums of their sizes cannot overflow. */
static enum trajd_status check_tensor(const struct trajd_wire_opened *opened,
                                      const struct trajd_wire_tensor *tensor,
                                      uint64_t *remaining_bytes, struct trajd_error *error)
{
    uint64_t size_bytes = trajd_dtype_size(tensor->dtype), end_bytes;
    bool good = tensor->rank >= 1 && tensor->rank <= TRAJD_TENSOR_RANK_LIMIT && size_bytes > 0 &&
                tensor->shape[0] == opened->batch;
    const uint64_t item_bytes = size_bytes;
    for (uint32_t i = 0; good && i < tensor->rank; i++)
        good = tensor->shape[i] <= INT64_MAX &&
               !__builtin_mul_overflow(size_bytes, tensor->shape[i], &size_bytes);
    good = good && !__builtin_add_overflow(tensor->offset_bytes, size_bytes, &end_bytes) &&
           end_bytes <= opened->slot_size_bytes &&
           tensor->offset_bytes >= sizeof(struct trajd_slot_header) &&
           tensor->offset_bytes % item_bytes == 0 && size_bytes <= *remaining_bytes;
    if (!good)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "tensor %.*s is not within a slot of %llu bytes",
                               (int)tensor->name.size, tensor->name.data ? tensor->name.data : "",
                               (unsigned long long)opened->slot_size_bytes);
    *remaining_bytes -= size_bytes;
    return TRAJD_OK;
}

/* Checks how images are to be finished: frames of u8, [G, T, H, W] or [G, T, H, W, C]. */
static enum trajd_status check_finish(const struct trajd_wire_tensor *tensor,
                                      struct trajd_error *error)
{
    const uint64_t channels = tensor->rank == 5 ? tensor->shape[4] : 1;
    const bool is_narrow = tensor->finished == TRAJD_F16 || tensor->finished == TRAJD_BF16;
    const bool is_scaled = tensor->scale.size > 0;

    if (tensor->finished == TRAJD_DTYPE_NONE)
        return TRAJD_OK;
    if (tensor->dtype != TRAJD_U8 || tensor->rank < (tensor->planes ? 5u : 4u) ||
        tensor->rank > 5 || channels < 1 || channels > TRAJD_WIRE_MAX_CHANNELS ||
        (tensor->finished != (is_scaled ? TRAJD_F32 : TRAJD_U8) && !(is_scaled && is_narrow)) ||
        tensor->scale.size != tensor->shift.size ||
        (is_scaled && tensor->scale.size != channels * sizeof(float)))
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "tensor %.*s cannot be finished as OPENED describes it",
                               (int)tensor->name.size, tensor->name.data ? tensor->name.data : "");
    return TRAJD_OK;
}

static void copy_finish(struct trajd_schema_tensor *to, const struct trajd_wire_tensor *from)
{
    if (from->finished == TRAJD_DTYPE_NONE)
        return;
    to->finish =
        (struct trajd_finish){.dtype = from->finished,
                              .is_planes = from->planes != 0,
                              .channel_count = (uint32_t)(from->scale.size / sizeof(float))};
    if (from->scale.size > 0) {
        memcpy(to->finish.scale, from->scale.data, from->scale.size);
        memcpy(to->finish.shift, from->shift.data, from->shift.size);
    }
    to->shape.finish = &to->finish;
}

static const char *copy_text(char **room, struct trajd_wire_text text)
{
    char *kept = *room;
    trajd_wire_text_copy(text, kept, text.size + 1);
    *room += text.size + 1;
    return kept;
}

static void copy_tensor(struct trajd_schema_tensor *to, const struct trajd_wire_tensor *from,
                        char **room)
{
    to->shape.name = copy_text(room, from->name);
    to->shape.role = copy_text(room, from->role);
    to->shape.of = from->of.size > 0 ? copy_text(room, from->of) : NULL;
    to->shape.dtype = from->dtype;
    to->shape.rank = from->rank;
    memcpy(to->shape.shape, from->shape, from->rank * sizeof *from->shape);
    uint64_t stride_bytes = trajd_dtype_size(from->dtype);
    for (uint32_t i = from->rank; i-- > 0;) {
        to->shape.strides_bytes[i] = (int64_t)stride_bytes;
        stride_bytes *= from->shape[i];
    }
    copy_finish(to, from);
    to->offset_bytes = from->offset_bytes;
    to->row_size_bytes = (uint64_t)to->shape.strides_bytes[0];
}

enum trajd_status trajd_schema_create(const struct trajd_wire_opened *opened,
                                      struct trajd_schema **out, struct trajd_error *error)
{
    uint64_t remaining_bytes =
        opened->slot_size_bytes < INT64_MAX ? opened->slot_size_bytes : INT64_MAX;
    size_t text_size = 0;
    for (uint32_t i = 0; i < opened->tensor_count; i++) {
        const struct trajd_wire_tensor *tensor = &opened->tensors[i];
        enum trajd_status status = check_tensor(opened, tensor, &remaining_bytes, error);
        if (!status)
            status = check_finish(tensor, error);
        if (status)
            return status;
        text_size += (size_t)tensor->name.size + tensor->role.size + tensor->of.size + 3;
    }
    struct trajd_schema *schema = calloc(1, sizeof *schema);
    if (schema)
        schema->tensors = calloc(1, opened->tensor_count * sizeof *schema->tensors + text_size + 1);
    if (!schema || !schema->tensors) {
        free(schema);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed: out of memory");
    }
    char *room = (char *)(schema->tensors + opened->tensor_count);
    schema->references = 1;
    schema->global_batch = opened->batch;
    schema->tensor_count = opened->tensor_count;
    for (uint32_t i = 0; i < opened->tensor_count; i++)
        copy_tensor(&schema->tensors[i], &opened->tensors[i], &room);
    *out = schema;
    return TRAJD_OK;
}

struct trajd_schema *trajd_schema_hold(struct trajd_schema *schema)
{
    /* relaxed: the caller already holds a reference */
    __atomic_add_fetch(&schema->references, 1, __ATOMIC_RELAXED);
    return schema;
}

void trajd_schema_drop(struct trajd_schema *schema)
{
    /* acquire and release: all reads by other threads happen before the memory is freed */
    if (!schema || __atomic_sub_fetch(&schema->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    free(schema->tensors);
    free(schema);
}
