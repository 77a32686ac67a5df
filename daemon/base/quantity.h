/* Parses sizes, durations and rates as people write them, in exact decimal arithmetic without
 * floating point. */
#ifndef TRAJD_BASE_QUANTITY_H
#define TRAJD_BASE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/timebase.h"

/* "4096", "64 MiB", "1.5GiB", "2 GB" (B, KiB to TiB; kB to TB are powers of ten). False where the
 * text is not a size or not a whole number of bytes. */
bool trajd_parse_size(const char *text, uint64_t *out_bytes);

/* "38ms", "-1.5s", "20us", "100ns", "10min", "1h", "30d". False where the text is
 * not a duration, not a whole number of nanoseconds, or a number without unit other than 0. */
bool trajd_parse_duration(const char *text, int64_t *out_ns);

/* "20", "12.5", "30000/1001": writes a reduced fraction. False outside 1e-6 to 1e9 Hz or the limits
 * of struct trajd_rate. 23.976, 29.97, 59.94 and 119.88 are read as the broadcast rates n/1001. */
bool trajd_parse_rate(const char *text, struct trajd_rate *out);

/* Reads a period, of which `per_second` units are a second, as a rate. A whole number of Hz whose
 * period differs by less than 0.005 % is meant: 0.033333 s are 30 Hz. */
bool trajd_parse_period(const char *text, uint32_t per_second, struct trajd_rate *out);

#endif
