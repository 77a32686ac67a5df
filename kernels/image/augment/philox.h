/* Philox4x32-10, a counter-based generator of random numbers: 128 random bits are a function of a
 * key and a counter. (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3.
 * SC 2011.) Compiles as C11, C++17 and CUDA device code. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_PHILOX_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_PHILOX_H

#include <stdint.h>

#include "proto/timebase.h"

struct trajd_philox {
    uint32_t words[4];
};

TRAJD_BOTH_SIDES struct trajd_philox trajd_philox(struct trajd_philox counter, uint32_t key_low,
                                                  uint32_t key_high)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * counter.words[0];
        const uint64_t b = (uint64_t)0xCD9E8D57 * counter.words[2];
        const struct trajd_philox next = {
            {(uint32_t)(b >> 32) ^ counter.words[1] ^ key_low, (uint32_t)b,
             (uint32_t)(a >> 32) ^ counter.words[3] ^ key_high, (uint32_t)a}};
        counter = next;
        key_low += 0x9E3779B9;
        key_high += 0xBB67AE85;
    }
    return counter;
}

/* Returns a number of [0, 1): a multiple of 2^-24, exact as a float. */
TRAJD_BOTH_SIDES float trajd_philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * (1.0F / 16777216);
}

/* Returns a whole number of [0, count), count > 0. */
TRAJD_BOTH_SIDES uint32_t trajd_philox_below(uint32_t word, uint32_t count)
{
    return (uint32_t)((uint64_t)word * count >> 32);
}

#endif
