/* Sizes, durations and rates as people write them, in exact decimal arithmetic: no float is
 * involved. */
#ifndef TRAJD_BASE_QUANTITY_H
#define TRAJD_BASE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/timebase.h"

/* "4096", "64 MiB", "1.5GiB", "2 GB" (B, KiB to TiB; kB to TB are powers of ten): whole bytes, or
 * false. */
bool trajd_parse_size(const char *text, uint64_t *out_bytes);

/* "38ms", "-1.5s", "20us", "100ns", "10min", "1h", "30d": whole nanoseconds, or false. A bare
 * number is false unless it is 0. */
bool trajd_parse_duration(const char *text, int64_t *out_ns);

/* "20", "12.5", "30000/1001": a reduced fraction within 1e-6 to 1e9 Hz and the limits of struct
 * trajd_rate, or false. 23.976, 29.97, 59.94 and 119.88 are what everybody means by them: n/1001.
 */
bool trajd_parse_rate(const char *text, struct trajd_rate *out);

#endif
