/* Recorded stamps as int64 ns, exactly, and the policies for stamps that repeat or go back. */
#ifndef TRAJD_INDEX_STAMPS_H
#define TRAJD_INDEX_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/layout/layout.h"
#include "proto/dtype.h"
#include "proto/error.h"

/* value * unit in ns, rounded to the nearest (ties away from zero), in exact arithmetic. False for
 * NaN, infinity and beyond int64. */
bool trajd_stamp_from_f64(double value, enum trajd_stamp_unit unit, int64_t *stamp_ns);
/* False beyond int64. */
bool trajd_stamp_from_i64(int64_t value, enum trajd_stamp_unit unit, int64_t *stamp_ns);

/* `count` elements of any numeric type, `stride` elements apart, to ns. The error names the row and
 * its value. */
enum trajd_status trajd_stamps_convert(enum trajd_dtype dtype, const void *elements, uint64_t count,
                                       uint64_t stride, enum trajd_stamp_unit unit,
                                       int64_t *stamps_ns, struct trajd_error *error);

/* Applies the policies in place. stamps_ns[] and kept_rows[] hold *kept ascending stamps and their
 * source rows afterwards. TRAJD_ERR_DATA names the first row that breaks a policy of `error`;
 * stamps that are all equal are told apart. */
enum trajd_status trajd_stamps_filter(int64_t *stamps_ns, uint32_t *kept_rows, uint64_t count,
                                      enum trajd_stamp_policy repeated,
                                      enum trajd_stamp_policy backward, uint64_t *kept,
                                      struct trajd_error *error);

#endif
