/* What a launch could be cut like, for who measures; and what was measured. Pure C, no GPU needed.
 */
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

/* Shapes worth trying for a problem whose windows see row_count rows, all of which fit it: at most
 * `limit`, into *trials (NULL: counted only). wide: finer steps, every split and number of stages
 * of the streaming kernel. */
uint32_t trajd_tuning_candidates(const struct trajd_cuda_problem *problem,
                                 const struct trajd_device_facts *facts, uint64_t row_count,
                                 int wide, struct trajd_tuning_trial *trials, uint32_t limit);

/* A row of a table, and where it stands. */
struct trajd_tuning_found {
    struct trajd_cuda_shape shape;
    const char *name; /* the table's, and its line */
    uint32_t line;
    double us;
};

/* The row nearest to the problem, by how many times B, S, T and D are apart, of those of its kind
 * (path, searched or not, compute capability). False: there is none. row_count as in
 * trajd_cuda_shape_of. The shape may not fit the problem yet. */
int trajd_tuning_find(const struct trajd_tuning *tuning, const struct trajd_cuda_problem *problem,
                      const struct trajd_device_facts *facts, uint64_t row_count,
                      struct trajd_tuning_found *found);

/* The row that says that this shape is the best for this problem. */
void trajd_tuning_print_row(FILE *out, const struct trajd_cuda_problem *problem, uint64_t row_count,
                            double us, const struct trajd_cuda_shape *shape);

/* "steps", "walk", ... Never NULL. */
const char *trajd_cuda_style_name(uint32_t style);

#ifdef __cplusplus
}
#endif
#endif
