/* How much memory the daemon may still take, by the machine and by its control group; and how
 * programs end that get none. */
#ifndef TRAJD_BASE_MEMORY_H
#define TRAJD_BASE_MEMORY_H

#include <stdint.h>
#include <stdio.h>

struct trajd_memory {
    uint64_t machine_bytes; /* MemAvailable; UINT64_MAX where it cannot be read */
    /* the smallest remainder of a limit on the way up the control groups; UINT64_MAX: no limit */
    uint64_t cgroup_bytes;
};

/* Reads /proc/meminfo and the control groups of this process. */
void trajd_memory_read(struct trajd_memory *memory);

/* Returns the smaller of the two. */
uint64_t trajd_memory_available(const struct trajd_memory *memory);

/* Returns the resident memory of this process; 0 where it cannot be read. */
uint64_t trajd_memory_resident(void);

/* Returns `memory`. Where it is NULL, prints "PROGRAM: out of memory" and exits with status 1. For
 * programs that do one task and keep nothing: trajctl. */
void *trajd_memory_or_exit(void *memory);
/* Closes a stream of open_memstream, and exits likewise where a part of its text found no memory. */
void trajd_memory_close_or_exit(FILE *out, char *const *text);

#endif
