/* What the kernels need of CUDA's header, for the CPU. */
#ifndef TRAJD_TESTS_COOPERATIVE_GROUPS_H
#define TRAJD_TESTS_COOPERATIVE_GROUPS_H

#include "support/simt/simt.h"

namespace cooperative_groups
{

struct cluster_group {
    void sync() const
    {
        simt::wait_for_cluster();
    }
    uint32_t num_blocks() const
    {
        return simt::cluster_size();
    }
    template <typename V> V *map_shared_rank(V *address, uint32_t block) const
    {
        return (V *)simt::in_block(address, block);
    }
};

static inline cluster_group this_cluster()
{
    return {};
}

} // namespace cooperative_groups

#endif
