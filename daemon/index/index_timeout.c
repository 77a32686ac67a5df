/* How long a child may be at a file: index.file_timeout; ten times that where it is storage that
 * takes the time, and bytes still come. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "daemon/index/index_internal.h"

enum { LOOKS_MAX = 2 * 10 };

/* By its read calls; 0: the kernel does not say. */
static uint64_t read_bytes_of(pid_t pid)
{
    char path[64];
    uint64_t bytes = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    file = fopen(path, "re");
    if (file && fscanf(file, "rchar: %" SCNu64, &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

/* INT64_MAX: the kernel does not say. */
static int64_t cpu_ns_of(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
        return INT64_MAX;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

bool trajd_index_may_go_on(struct trajd_index_timeout *timeout, pid_t pid, int64_t now_ns)
{
    const struct trajd_index_timeout before = *timeout;
    bool reads, waits;

    *timeout =
        (struct trajd_index_timeout){now_ns, cpu_ns_of(pid), read_bytes_of(pid), before.looks + 1};
    reads = timeout->read_bytes > before.read_bytes;
    waits = timeout->cpu_ns != INT64_MAX &&
            timeout->cpu_ns - before.cpu_ns < (now_ns - before.at_ns) / 2;
    return before.looks == 0 || (reads && waits && timeout->looks < LOOKS_MAX);
}
