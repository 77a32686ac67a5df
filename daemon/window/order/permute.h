/* A keyed permutation of [0, n), and the mixing of key words. What depends on key and n alone is
 * computed once for all positions. */
#ifndef TRAJD_WINDOW_ORDER_PERMUTE_H
#define TRAJD_WINDOW_ORDER_PERMUTE_H

#include <stdint.h>

#define TRAJD_PERMUTATION_ROUNDS 8

struct trajd_permutation {
    uint64_t n, a, b; /* [0, n) as a rectangle of a rows of b columns */
    uint64_t keys[TRAJD_PERMUTATION_ROUNDS];
};

/* Prepares the permutation of [0, n) for a key; n >= 1. */
void trajd_permutation_make(struct trajd_permutation *permutation, uint64_t key, uint64_t n);
/* Replaces each position, all < n, by its image. This is a bijection on [0, n). Many positions in
 * one call are faster than one by one. */
void trajd_permutation_map(const struct trajd_permutation *permutation, uint64_t *positions,
                           uint32_t count);

/* Returns the image of a position under the keyed permutation of [0, n), n >= 1: a Feistel network
 * on Z_a x Z_b with a * b just above n, repeated until the image is below n. */
uint64_t trajd_permute(uint64_t key, uint64_t n, uint64_t position);

/* Mixes several words into one 64-bit key. */
uint64_t trajd_mix(const uint64_t *words, uint32_t count);

#endif
