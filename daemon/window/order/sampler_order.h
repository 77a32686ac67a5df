/* The order of one pass of a sampler, prepared, for a mixture that uses several samplers at
 * once. */
#ifndef TRAJD_WINDOW_ORDER_SAMPLER_ORDER_H
#define TRAJD_WINDOW_ORDER_SAMPLER_ORDER_H

#include "daemon/window/order/permute.h"
#include "daemon/window/order/sampler.h"

struct trajd_sampler_order {
    uint64_t epoch;                  /* or pass */
    struct trajd_permutation global; /* of order global */
};

void trajd_sampler_order_make(const struct trajd_sampler *sampler, uint64_t epoch,
                              struct trajd_sampler_order *order);
/* Writes the windows at some positions of that pass, each less than its length, as trajd_sampler_at
 * does one by one, but faster. */
void trajd_sampler_order_map(const struct trajd_sampler *sampler,
                             const struct trajd_sampler_order *order, const uint64_t *positions,
                             uint32_t count, struct trajd_window *windows);

#endif
