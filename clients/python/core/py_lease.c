/* Leases: a batch and the count of its references. No function here needs Python, so the last
 * reference may be dropped by a thread without the GIL, or after the interpreter has ended. */
#include <stdlib.h>

#include "clients/python/core/py_core.h"

struct trajd_lease {
    int64_t references; /* atomic */
    struct trajd_batch *batch;
};

struct trajd_lease *trajd_lease_create(struct trajd_batch *batch)
{
    struct trajd_lease *lease = malloc(sizeof *lease);
    if (lease)
        *lease = (struct trajd_lease){.references = 1, .batch = batch};
    return lease;
}

struct trajd_lease *trajd_lease_hold(struct trajd_lease *lease)
{
    /* relaxed: the caller already holds a reference */
    __atomic_add_fetch(&lease->references, 1, __ATOMIC_RELAXED);
    return lease;
}

void trajd_lease_drop(struct trajd_lease *lease)
{
    /* acquire and release: all reads by other threads happen before the memory goes back */
    if (!lease || __atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    trajd_batch_release(&lease->batch);
    free(lease);
}

void trajd_lease_abandon(struct trajd_lease *lease)
{
    if (__atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0) /* the same */
        return;
    trajd_batch_abandon(&lease->batch);
    free(lease);
}

int64_t trajd_lease_count(const struct trajd_lease *lease)
{
    /* acquire: earlier drops by other threads are complete */
    return __atomic_load_n(&lease->references, __ATOMIC_ACQUIRE);
}

struct trajd_batch *trajd_lease_batch(const struct trajd_lease *lease)
{
    return lease->batch;
}
