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
    /* relaxed: a reference is held already */
    __atomic_add_fetch(&lease->references, 1, __ATOMIC_RELAXED);
    return lease;
}

void trajd_lease_drop(struct trajd_lease *lease)
{
    /* acquire and release: all other users' reads come before the memory is given back */
    if (!lease || __atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    trajd_batch_release(&lease->batch);
    free(lease);
}

void trajd_lease_abandon(struct trajd_lease *lease)
{
    if (__atomic_sub_fetch(&lease->references, 1, __ATOMIC_ACQ_REL) != 0) /* as above */
        return;
    trajd_batch_abandon(&lease->batch);
    free(lease);
}

int64_t trajd_lease_count(const struct trajd_lease *lease)
{
    /* what was dropped before is over */
    return __atomic_load_n(&lease->references, __ATOMIC_ACQUIRE);
}

struct trajd_batch *trajd_lease_batch(const struct trajd_lease *lease)
{
    return lease->batch;
}
