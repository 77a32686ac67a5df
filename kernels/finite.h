/* Which numbers are finite once they are stored. For host and device. */
#ifndef TRAJD_KERNELS_FINITE_H
#define TRAJD_KERNELS_FINITE_H

#include <math.h>

#include "proto/dtype.h"
#include "proto/timebase.h"

/* Returns the least magnitude that is infinite as an element of that type: half a step above the
 * type's largest number, where the store rounds up. A value x is finite if fabs(x) is below it; NaN
 * is below nothing. */
TRAJD_BOTH_SIDES double trajd_finite_limit(uint32_t type)
{
    return type == TRAJD_F16    ? 65520
           : type == TRAJD_BF16 ? 0x1.ffp127
           : type == TRAJD_F32  ? 0x1.ffffffp127
                                : (double)INFINITY;
}

#endif
