/* How much memory the daemon may still take: the machine's figure and the control group's,
 * whichever is smaller. */
#ifndef TRAJD_BASE_MEMORY_H
#define TRAJD_BASE_MEMORY_H

#include <stdint.h>

struct trajd_memory {
    uint64_t machine_bytes; /* MemAvailable; UINT64_MAX where it cannot be read */
    /* the least rest of a limit up the control group's tree; UINT64_MAX without a limit */
    uint64_t cgroup_bytes;
};

void trajd_memory_read(struct trajd_memory *memory);

/* The smaller of the two. */
uint64_t trajd_memory_available(const struct trajd_memory *memory);

#endif
