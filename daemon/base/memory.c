/* Reads the free memory of the machine and of the control groups above the process, and ends
 * programs that are out of memory. */
#include "daemon/base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_number(const char *folder, const char *name, uint64_t *value)
{
    char path[PATH_MAX], text[64] = "";
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(text, sizeof text, file))
        text[0] = 0;
    fclose(file);
    if (text[0] < '0' || text[0] > '9') /* "max" */
        return 0;
    *value = strtoull(text, NULL, 10);
    return 1;
}

/* Returns the inactive page cache of the group. It counts as used, but the kernel frees it on
 * demand. */
static uint64_t read_inactive_file(const char *folder)
{
    char path[PATH_MAX + 16], line[128];
    unsigned long long bytes = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/memory.stat", folder);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) &&
           sscanf(line, "inactive_file %llu", &bytes) != 1)
        ;
    if (file)
        fclose(file);
    return bytes;
}

/* Returns the smallest remainder of the limits of a group and of the groups above it. */
static uint64_t walk_groups(const char *mount, const char *group, const char *limit_name,
                            const char *usage_name)
{
    char folder[PATH_MAX];
    uint64_t rest = UINT64_MAX, limit, used;

    snprintf(folder, sizeof folder, "%s%s", mount, group);
    for (;;) {
        char *slash;
        if (read_number(folder, limit_name, &limit) && read_number(folder, usage_name, &used)) {
            const uint64_t cache = read_inactive_file(folder);
            const uint64_t held = used > cache ? used - cache : 0;
            const uint64_t here = limit > held ? limit - held : 0;
            rest = here < rest ? here : rest;
        }
        slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(mount))
            return rest;
        *slash = 0;
    }
}

static uint64_t read_cgroup(void)
{
    char line[PATH_MAX];
    uint64_t rest = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");

    while (file && fgets(line, sizeof line, file)) {
        /* the path may contain colons */
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        uint64_t here = UINT64_MAX;
        if (!group)
            continue;
        group[strcspn(group, "\n")] = 0;
        if (strncmp(line, "0::", 3) == 0)
            here = walk_groups("/sys/fs/cgroup", group + 1, "memory.max", "memory.current");
        else if (strstr(line, ":memory:"))
            here = walk_groups("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes",
                               "memory.usage_in_bytes");
        rest = here < rest ? here : rest;
    }
    if (file)
        fclose(file);
    return rest;
}

static uint64_t read_machine(void)
{
    char line[128];
    unsigned long long kib;
    uint64_t bytes = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (uint64_t)kib << 10;
    if (file)
        fclose(file);
    return bytes;
}

void trajd_memory_read(struct trajd_memory *memory)
{
    memory->machine_bytes = read_machine();
    memory->cgroup_bytes = read_cgroup();
}

uint64_t trajd_memory_available(const struct trajd_memory *memory)
{
    return memory->machine_bytes < memory->cgroup_bytes ? memory->machine_bytes
                                                        : memory->cgroup_bytes;
}

uint64_t trajd_memory_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;

    if (file && fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void *trajd_memory_or_exit(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
    exit(EXIT_FAILURE);
}

void trajd_memory_close_or_exit(FILE *out, char *const *text)
{
    /* fclose does not tell, and sets *text to NULL where it cannot shrink the text */
    const bool is_cut = ferror(out);

    trajd_memory_or_exit(fclose(out) || is_cut ? NULL : *text);
}
