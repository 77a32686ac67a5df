#include "daemon/server/slot_sends.h"

#include <stdlib.h>
#include <unistd.h>

#include "proto/dtype.h"

struct trajd_lending *trajd_lending_create(struct trajd_ring *ring,
                                           struct trajd_wire_tensor *tensors, uint32_t tensor_count,
                                           int wake_fd)
{
    struct trajd_lending *lending = calloc(1, sizeof *lending);
    uint32_t *loans = calloc(ring->slot_count, sizeof *loans);
    if (!lending || !loans) {
        free(lending);
        free(loans);
        return NULL;
    }
    *lending = (struct trajd_lending){.ring = *ring,
                                      .tensors = tensors,
                                      .tensor_count = tensor_count,
                                      .wake_fd = wake_fd,
                                      .references = 1,
                                      .loans = loans};
    *ring = (struct trajd_ring){.fd = -1};
    return lending;
}

static void drop_reference(struct trajd_lending *lending)
{
    /* acquire and release: all other users' reads come before the unmapping */
    if (__atomic_sub_fetch(&lending->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    trajd_ring_destroy(&lending->ring);
    free(lending->tensors);
    free(lending->loans);
    free(lending);
}

void trajd_lending_drop(struct trajd_lending **pointer)
{
    struct trajd_lending *lending = *pointer;
    *pointer = NULL;
    if (lending)
        drop_reference(lending);
}

void trajd_lending_borrow(struct trajd_lending *lending, uint32_t slot)
{
    /* relaxed: who borrows has the slot's lease or a loan of it, so no taker can be after it */
    __atomic_add_fetch(&lending->references, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&lending->loans[slot], 1, __ATOMIC_RELAXED);
}

void trajd_lending_return(struct trajd_lending *lending, uint32_t slot)
{
    const uint64_t one = 1;
    /* sequentially consistent, as in trajd_lending_is_lent: either this sees that the slot is
     * awaited, or the taker sees that it is back. And what was read of it was read before. */
    const bool back = __atomic_sub_fetch(&lending->loans[slot], 1, __ATOMIC_SEQ_CST) == 0;
    if (back && __atomic_load_n(&lending->awaited, __ATOMIC_SEQ_CST)) {
        /* pairs with trajd_lending_came_back */
        __atomic_store_n(&lending->returned, true, __ATOMIC_RELEASE);
        ssize_t size = write(lending->wake_fd, &one, sizeof one);
        (void)size; /* only a full counter refuses, and that is readable */
    }
    drop_reference(lending);
}

void trajd_lending_let_go(void *data, void *context)
{
    struct trajd_lending *lending = context;
    const size_t offset =
        (size_t)((unsigned char *)data - lending->ring.memory) - TRAJD_RING_ALIGNMENT;
    trajd_lending_return(lending, (uint32_t)(offset / lending->ring.slot_size_bytes));
}

bool trajd_lending_is_lent(struct trajd_lending *lending, uint32_t slot)
{
    /* its readers were before us */
    if (__atomic_load_n(&lending->loans[slot], __ATOMIC_ACQUIRE) == 0)
        return false;
    __atomic_store_n(&lending->awaited, true, __ATOMIC_SEQ_CST); /* see trajd_lending_return */
    return __atomic_load_n(&lending->loans[slot], __ATOMIC_SEQ_CST) != 0;
}

bool trajd_lending_came_back(struct trajd_lending *lending)
{
    if (!__atomic_load_n(&lending->returned, __ATOMIC_ACQUIRE))
        return false;
    __atomic_store_n(&lending->returned, false, __ATOMIC_SEQ_CST);
    /* the taker says it again if it must */
    __atomic_store_n(&lending->awaited, false, __ATOMIC_SEQ_CST);
    return true;
}

uint32_t trajd_lending_count(const struct trajd_lending *lending)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < lending->ring.slot_count; i++)
        count +=
            __atomic_load_n(&lending->loans[i], __ATOMIC_RELAXED) > 0; /* a number for people */
    return count;
}

static uint64_t row_size(const struct trajd_wire_tensor *tensor)
{
    uint64_t size_bytes = trajd_dtype_size(tensor->dtype);
    for (uint32_t i = 1; i < tensor->rank; i++)
        size_bytes *= tensor->shape[i];
    return size_bytes;
}

uint32_t trajd_lending_part(const struct trajd_lending *lending, uint32_t slot, uint32_t row_begin,
                            uint32_t row_count, struct trajd_piece *pieces)
{
    unsigned char *memory = trajd_ring_slot(&lending->ring, slot);
    uint32_t count = 0;
    for (uint32_t i = 0; i < lending->tensor_count; i++) {
        const uint64_t size_bytes = row_size(&lending->tensors[i]);
        struct trajd_piece piece = {.data = memory + lending->tensors[i].offset_bytes +
                                            row_begin * size_bytes,
                                    .size_bytes = row_count * size_bytes};
        piece.zeros = -piece.size_bytes % TRAJD_PART_ALIGNMENT;
        if (piece.size_bytes > 0)
            pieces[count++] = piece;
    }
    return count;
}
