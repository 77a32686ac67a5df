/* Candidate shapes of a launch, for a tuner, and the table of measured shapes. Pure C, without a
 * GPU. */
#ifndef TRAJD_KERNELS_CUDA_TRIALS_H
#define TRAJD_KERNELS_CUDA_TRIALS_H

#include <stdio.h>

#include "kernels/cuda/run.h"
#include "kernels/cuda/tuning.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_tuning_trial {
    struct trajd_cuda_shape shape;
    double us;
};

/* Lists shapes that are worth trying for a problem whose windows see row_count rows. All fit the
 * problem. Writes at most `limit` of them to *trials (NULL: only counts them). `wide` adds finer
 * steps, and every split and number of stages of the streaming kernel. */
uint32_t trajd_tuning_candidates(const struct trajd_cuda_problem *problem,
                                 const struct trajd_device_facts *facts, uint64_t row_count,
                                 int wide, struct trajd_tuning_trial *trials, uint32_t limit);

/* A row of a table, and its place. */
struct trajd_tuning_found {
    struct trajd_cuda_shape shape;
    const char *name; /* the table's name, and the row's line */
    uint32_t line;
    double us;
};

/* Finds the row that is nearest to the problem by the ratios of B, S, T and D, among the rows of
 * its kind (path, searched or not, compute capability). Returns false if there is none. row_count
 * is as in trajd_cuda_shape_of. The shape may not fit the problem yet. */
int trajd_tuning_find(const struct trajd_tuning *tuning, const struct trajd_cuda_problem *problem,
                      const struct trajd_device_facts *facts, uint64_t row_count,
                      struct trajd_tuning_found *found);

/* Prints the table row which states that this shape is the best for this problem. */
void trajd_tuning_print_row(FILE *out, const struct trajd_cuda_problem *problem, uint64_t row_count,
                            double us, const struct trajd_cuda_shape *shape);

/* Returns "steps", "walk", ... Never NULL. */
const char *trajd_cuda_style_name(uint32_t style);

#ifdef __cplusplus
}
#endif
#endif
