/* For LD_PRELOAD: /proc/meminfo is replaced by the file in TRAJD_TEST_MEMINFO, read anew at each
 * open. */
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
    const char *instead = getenv("TRAJD_TEST_MEMINFO");

    memcpy(&real, &symbol, sizeof real);
    return real(instead && strcmp(path, "/proc/meminfo") == 0 ? instead : path, mode);
}
