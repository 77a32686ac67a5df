/* Measured launch shapes. The tuner (bench_resample tune) measures them on a GPU and writes a
 * table, which the daemon loads, so a new GPU needs no new release. The table is text: a version
 * line, then lines of two kinds. Each of these is one line:
 *
 *   trajd-tuning 1
 *   origin compute 90 NVIDIA H200, 132 multiprocessors, driver 13000, 2026-11-21, commit 1234567,
 *     bench_resample tune
 *   row path bf16 kind 0 search 1 B 32 S 100 T 256 D 128 us 3.04 style direct tile 16 threads 128
 *     tiles 1 stage 100 prefetch 1 vectors 2 producers 0 stages 0
 *
 * A row belongs to the origin before it. It states the best shape measured for B windows of S rows,
 * resampled to T steps of D features. search 0: a grid of rows, 1: stamps, 2: a regular clock. The
 * row serves GPUs with its origin's compute capability. kind is an enum trajd_kind, the costliest
 * of several; it counts only for path full. tiles, producers and stages belonged to the style
 * `stream`, which no longer exists: they are read and not used, and rows of that style are passed
 * over. Immutable after loading; thread-safe. */
#ifndef TRAJD_KERNELS_CUDA_TUNING_H
#define TRAJD_KERNELS_CUDA_TUNING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/cuda/run.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_tuning;

/* Parses a table. Accepts any bytes and checks all ranges. TRAJD_ERR_ARGUMENT: "NAME:LINE: what".
 * The caller destroys the result. */
enum trajd_status trajd_tuning_parse(const char *name, const char *text, size_t size,
                                     struct trajd_tuning **tuning, struct trajd_error *error);

/* The same for a file of at most 4 MiB. */
enum trajd_status trajd_tuning_load(const char *path, struct trajd_tuning **tuning,
                                    struct trajd_error *error);

uint32_t trajd_tuning_row_count(const struct trajd_tuning *tuning);

/* Frees the table and clears the caller's pointer. NULL is fine. */
void trajd_tuning_destroy(struct trajd_tuning **tuning);

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
