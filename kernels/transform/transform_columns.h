/* Rows of an array as columns of doubles, one number per lane, and columns as rows. */
#ifndef TRAJD_KERNELS_TRANSFORM_TRANSFORM_COLUMNS_H
#define TRAJD_KERNELS_TRANSFORM_TRANSFORM_COLUMNS_H

#include "kernels/resample.h"
#include "kernels/transform/rotation_lanes.h"

typedef double trajd_column[TRAJD_LANES];

/* The row of lane l begins at element at[l] of the array. */
struct trajd_column_source {
    enum trajd_dtype type; /* f32 or f64 */
    const void *array;
    uint32_t width, count; /* columns of a row; lanes */
    const uint64_t *at;    /* [count, rounded up to a multiple of 4] */
};

struct trajd_column_target {
    enum trajd_dtype type;
    void *array;
    uint32_t count;
    const uint64_t *at;          /* [count] */
    const float *scale, *offset; /* [columns of a row]: normalisation; or NULL */
};

/* Gathers columns [first, first + count) into `room`, which has count + 3. Returns the first one. */
trajd_column *trajd_columns_gather(const struct trajd_column_source *source, uint32_t first,
                                   uint32_t count, trajd_column *room);

/* Normalises columns and stores them from column `first` of the rows on. Returns false if all of
 * their numbers are finite. */
bool trajd_columns_store(const struct trajd_column_target *target, uint32_t first, uint32_t count,
                         double *const *columns);
/* Sets lost[lane] where a number that trajd_columns_store stored is not finite. */
void trajd_columns_find_lost(const struct trajd_column_target *target, uint32_t first,
                             uint32_t count, double *const *columns, bool *lost);

#endif
