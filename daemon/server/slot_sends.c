/* Counts the sends of each slot, and frees the ring with the last one. */
#include "daemon/server/slot_sends.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/dtype.h"

struct trajd_slot_sends *trajd_slot_sends_create(struct trajd_server_ring *ring,
                                                 const struct trajd_wire_tensor *tensors,
                                                 uint32_t tensor_count, int wake_fd)
{
    struct trajd_slot_sends *slot_sends = calloc(1, sizeof *slot_sends);
    uint32_t *sends = calloc(ring->slot_count, sizeof *sends);
    struct trajd_wire_tensor *copy = calloc(tensor_count + 1, sizeof *copy);
    if (!slot_sends || !sends || !copy) {
        free(slot_sends);
        free(sends);
        free(copy);
        return NULL;
    }
    memcpy(copy, tensors, tensor_count * sizeof *copy);
    *slot_sends = (struct trajd_slot_sends){.ring = *ring,
                                            .tensors = copy,
                                            .tensor_count = tensor_count,
                                            .wake_fd = wake_fd,
                                            .references = 1,
                                            .sends = sends};
    *ring = (struct trajd_server_ring){.fd = -1};
    return slot_sends;
}

static void drop_reference(struct trajd_slot_sends *slot_sends)
{
    /* acquire and release: the reads of all other users happen before the unmapping */
    if (__atomic_sub_fetch(&slot_sends->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    trajd_server_ring_destroy(&slot_sends->ring);
    free(slot_sends->tensors);
    free(slot_sends->sends);
    free(slot_sends);
}

void trajd_slot_sends_drop(struct trajd_slot_sends **pointer)
{
    struct trajd_slot_sends *slot_sends = *pointer;
    *pointer = NULL;
    if (slot_sends)
        drop_reference(slot_sends);
}

void trajd_slot_sends_acquire(struct trajd_slot_sends *slot_sends, uint32_t slot)
{
    /* relaxed: the caller has the slot's lease or a send reference, so no taker can take the
     * slot */
    __atomic_add_fetch(&slot_sends->references, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&slot_sends->sends[slot], 1, __ATOMIC_RELAXED);
}

void trajd_slot_sends_return(struct trajd_slot_sends *slot_sends, uint32_t slot)
{
    const uint64_t one = 1;
    /* Sequentially consistent, as in trajd_slot_sends_is_in_use: either this call sees `awaited`,
     * or the taker sees the new count. Also orders the reads of the slot before the count. */
    const bool back = __atomic_sub_fetch(&slot_sends->sends[slot], 1, __ATOMIC_SEQ_CST) == 0;
    if (back && __atomic_load_n(&slot_sends->awaited, __ATOMIC_SEQ_CST)) {
        /* pairs with trajd_slot_sends_take_returned */
        __atomic_store_n(&slot_sends->returned, true, __ATOMIC_RELEASE);
        ssize_t size = write(slot_sends->wake_fd, &one, sizeof one);
        (void)size; /* fails only on a full counter, which is readable already */
    }
    drop_reference(slot_sends);
}

void trajd_slot_sends_release(void *data, void *context)
{
    struct trajd_slot_sends *slot_sends = context;
    const size_t offset =
        (size_t)((unsigned char *)data - slot_sends->ring.memory) - TRAJD_RING_ALIGNMENT;
    trajd_slot_sends_return(slot_sends, (uint32_t)(offset / slot_sends->ring.slot_size_bytes));
}

bool trajd_slot_sends_is_in_use(struct trajd_slot_sends *slot_sends, uint32_t slot)
{
    /* acquire: the readers of the slot are done */
    if (__atomic_load_n(&slot_sends->sends[slot], __ATOMIC_ACQUIRE) == 0)
        return false;
    /* see trajd_slot_sends_return */
    __atomic_store_n(&slot_sends->awaited, true, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&slot_sends->sends[slot], __ATOMIC_SEQ_CST) != 0;
}

bool trajd_slot_sends_take_returned(struct trajd_slot_sends *slot_sends)
{
    if (!__atomic_load_n(&slot_sends->returned, __ATOMIC_ACQUIRE))
        return false;
    __atomic_store_n(&slot_sends->returned, false, __ATOMIC_SEQ_CST);
    /* a taker that still has to wait sets it again */
    __atomic_store_n(&slot_sends->awaited, false, __ATOMIC_SEQ_CST);
    return true;
}

uint32_t trajd_slot_sends_count(const struct trajd_slot_sends *slot_sends)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < slot_sends->ring.slot_count; i++)
        /* relaxed: a number for people */
        count += __atomic_load_n(&slot_sends->sends[i], __ATOMIC_RELAXED) > 0;
    return count;
}

static uint64_t row_size(const struct trajd_wire_tensor *tensor)
{
    uint64_t size_bytes = trajd_dtype_size(tensor->dtype);
    for (uint32_t i = 1; i < tensor->rank; i++)
        size_bytes *= tensor->shape[i];
    return size_bytes;
}

uint32_t trajd_slot_sends_payload(const struct trajd_slot_sends *slot_sends, uint32_t slot,
                                  uint32_t row_begin, uint32_t row_count,
                                  struct trajd_payload_segment *segments)
{
    unsigned char *memory = trajd_server_ring_slot(&slot_sends->ring, slot);
    uint32_t count = 0;
    for (uint32_t i = 0; i < slot_sends->tensor_count; i++) {
        const uint64_t size_bytes = row_size(&slot_sends->tensors[i]);
        struct trajd_payload_segment segment = {
            .data = memory + slot_sends->tensors[i].offset_bytes + row_begin * size_bytes,
            .size_bytes = row_count * size_bytes};
        segment.zeros = -segment.size_bytes % TRAJD_PAYLOAD_ALIGNMENT;
        if (segment.size_bytes > 0)
            segments[count++] = segment;
    }
    return count;
}
