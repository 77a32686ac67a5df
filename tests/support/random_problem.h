/* Random requests of one stream, with all memory that they refer to. Outputs are poisoned and have
 * canaries around them. */
#ifndef TRAJD_TESTS_PROBLEM_H
#define TRAJD_TESTS_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/resample.h"

enum stamps_flavour {
    STAMPS_JITTER,
    STAMPS_EQUAL,
    STAMPS_REVERSED,
    STAMPS_WILD,
    STAMPS_REGULAR,
    STAMPS_COUNT
};

struct problem_spec {
    uint64_t seed; /* all members that are not set below are drawn from it */
    uint32_t windows, rows, steps, features;
    enum trajd_kind kind;
    enum trajd_dtype source, output;
    enum stamps_flavour stamps;
    enum trajd_grid_unit unit;
};

struct problem {
    struct problem_spec spec;
    struct trajd_resample_request request;
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket bracket;
    struct trajd_stream stream;
    uint64_t output_bytes, mask_bytes, derivative_bytes;
    void *blocks[20]; /* all allocations */
    uint32_t block_count;
    uint64_t random;
};

/* Returns a number in [0, limit) from the problem's own sequence. */
uint64_t problem_draw(struct problem *problem, uint64_t limit);

void problem_create(struct problem *problem, const struct problem_spec *spec);
void problem_destroy(struct problem *problem);

/* Allocates new poisoned outputs with canaries. The previous ones stay until problem_destroy and
 * are not written again. */
void problem_new_outputs(struct problem *problem);

/* Adds window_rows to the request, and allocates poisoned outputs with as many rows as it needs. */
void problem_scatter(struct problem *problem);

/* Returns false if a byte was written in a row that belongs to no window. */
bool problem_other_rows_live(const struct problem *problem);

/* Returns false if a byte before or after an output was written. */
bool problem_canaries_live(const struct problem *problem);

/* Describes the problem in one line, for failures. */
const char *problem_name(const struct problem *problem, char *text, uint32_t size);

#endif
