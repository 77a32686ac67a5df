/* For LD_PRELOAD: /proc/meminfo is replaced by the file in TRAJD_TEST_MEMINFO, read again at each
 * open, and the limit of the control group's processors by the one in TRAJD_TEST_CPU_MAX. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRELOADED __attribute__((visibility("default")))

PRELOADED FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);
    void *symbol = dlsym(RTLD_NEXT, "fopen");
    const char *instead = strcmp(path, "/proc/meminfo") == 0 ? getenv("TRAJD_TEST_MEMINFO")
                          : strcmp(path, "/sys/fs/cgroup/cpu.max") == 0
                              ? getenv("TRAJD_TEST_CPU_MAX")
                              : NULL;

    memcpy(&real, &symbol, sizeof real);
    return real(instead ? instead : path, mode);
}
