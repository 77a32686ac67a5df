/* The ending of a noun after a number. */
#ifndef TRAJD_PROTO_PLURAL_H
#define TRAJD_PROTO_PLURAL_H

#include <stdint.h>

/* Returns "" after 1, else "s": "%u episode%s". */
static inline const char *trajd_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
