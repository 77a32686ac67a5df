/* Converts recorded stamps to int64 nanoseconds exactly, and applies the policies for stamps that
 * repeat or go back. */
#ifndef TRAJD_INDEX_STAMPS_H
#define TRAJD_INDEX_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/layout/layout.h"
#include "proto/dtype.h"
#include "proto/error.h"

/* Converts value * unit to ns, rounded to the nearest with ties away from zero, in exact
 * arithmetic. False for NaN, infinity and results that int64 cannot hold. */
bool trajd_stamp_from_f64(double value, enum trajd_stamp_unit unit, int64_t *stamp_ns);
/* The same for integers, which need no rounding. */
bool trajd_stamp_from_i64(int64_t value, enum trajd_stamp_unit unit, int64_t *stamp_ns);

/* Converts `count` elements of any numeric type, `stride` elements apart, to ns. TRAJD_ERR_DATA
 * names the row and its value. */
enum trajd_status trajd_stamps_convert(enum trajd_dtype dtype, const void *elements, uint64_t count,
                                       uint64_t stride, enum trajd_stamp_unit unit,
                                       int64_t *stamps_ns, struct trajd_error *error);

/* Applies the policies in place. Afterwards stamps_ns[] and kept_rows[] hold *kept ascending stamps
 * and their source rows. TRAJD_ERR_DATA names the first row that is an error under its policy;
 * stamps that are all equal have a message of their own. */
enum trajd_status trajd_stamps_filter(int64_t *stamps_ns, uint32_t *kept_rows, uint64_t count,
                                      enum trajd_stamp_policy repeated,
                                      enum trajd_stamp_policy backward, uint64_t *kept,
                                      struct trajd_error *error);

/* Returns the first of `count` stamps that is more than a step and a unit away from its place on a
 * grid of `rate`, which begins at the first stamp; `count` where there is none. rows[] holds the
 * row of each stamp; NULL: all rows are there. */
uint64_t trajd_stamps_find_off_grid(const int64_t *stamps_ns, const uint32_t *rows, uint64_t count,
                                    struct trajd_rate rate, enum trajd_stamp_unit unit);

#endif
