/* A keyed permutation made ready: what depends on key and n is formed once for all positions. */
#ifndef TRAJD_WINDOW_ORDER_PERMUTE_H
#define TRAJD_WINDOW_ORDER_PERMUTE_H

#include <stdint.h>

#define TRAJD_PERMUTATION_ROUNDS 8

struct trajd_permutation {
    uint64_t n, a, b; /* [0, n) laid out as a rectangle of a rows of b */
    uint64_t keys[TRAJD_PERMUTATION_ROUNDS];
};

/* n >= 1. */
void trajd_permutation_make(struct trajd_permutation *permutation, uint64_t key, uint64_t n);
/* A bijection on [0, n): positions, each < n, give way to what they are mapped to. Many at once are
 * sooner done than one by one. */
void trajd_permutation_map(const struct trajd_permutation *permutation, uint64_t *positions,
                           uint32_t count);

#endif
