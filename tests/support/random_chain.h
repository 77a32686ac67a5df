/* Random transforms of random rows, with all their bytes in one block of memory, for tests that
 * compare a GPU's transforms with those of the CPU. The bytes between arrays are the canary. */
#ifndef TRAJD_TESTS_RANDOM_CHAIN_H
#define TRAJD_TESTS_RANDOM_CHAIN_H

#include "kernels/transform/cuda/transform_gpu.h"

struct random_chain {
    struct trajd_transform transform;
    struct trajd_transform_job job; /* with addresses in `memory` */
    uint8_t *source_mask;
    uint32_t window_count;
    uint64_t random, size_bytes;
    uint64_t output_count; /* elements of the output */
    char *memory;          /* what the CPU has made */
    char *found;           /* the same block before: a run works on it, or on a copy on a device */
};

/* Makes a chain, fills its rows, and transforms them on the CPU. Aborts without memory. The caller
 * destroys it. */
struct random_chain *random_chain_create(uint64_t seed);
void random_chain_destroy(struct random_chain **chain);

/* Returns the job with the block at `device`; NULL: at `found`. */
struct trajd_transform_gpu_job random_chain_gpu_job(const struct random_chain *chain, char *device);

/* Compares a block after a run. Returns false and one line in `text` if a bit differs; NaN is
 * NaN. */
bool random_chain_matches(const struct random_chain *chain, const char *found, char *text,
                          uint32_t text_size);

#endif
