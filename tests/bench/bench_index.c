// libs: trajd_index
/* Measures the time to an index: at the first opening (helper programs, stamps, digests), and at a
 * second one from the cache.
 *
 * usage: bench_index [FOLDER], with the files of `tests/tools/make_index_files.py FOLDER bench`:
 * large.hdf5 with 200 episodes of 19 datasets each, and small/ with 10,000 files of 50 datasets.
 * The page cache is warm in both cases: the figures are trajd's own work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/paths.h"
#include "daemon/index/index.h"

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Of this process and its finished children: on a shared machine, compare this figure. */
static double cpu_s(void)
{
    struct rusage own, children;

    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec + children.ru_utime.tv_sec +
                    children.ru_stime.tv_sec) +
           (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec + children.ru_utime.tv_usec +
                    children.ru_stime.tv_usec) /
               1e6;
}

static long peak_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static int measure(struct trajd_index_options *options, const char *label)
{
    struct trajd_index *index;
    struct trajd_error error;
    double begin = now_s(), cpu = cpu_s(), seconds;

    if (trajd_index_open(options, &index, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    seconds = now_s() - begin;
    printf("%-36s %9.1f ms (%.1f ms of CPU)  %u episodes, %u of %u files cached, %u datasets, peak "
           "RSS %ld "
           "MiB\n",
           label, seconds * 1e3, (cpu_s() - cpu) * 1e3, index->kept_count, index->cached_file_count,
           index->file_count, index->array_count, peak_kib() / 1024);
    trajd_index_destroy(&index);
    return 0;
}

static int measure_both(const char *folder, const char *name, struct trajd_index_options *options)
{
    char path[4096], label[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    options->path = path;
    snprintf(label, sizeof label, "%s, first", name);
    if (measure(options, label))
        return 1;
    snprintf(label, sizeof label, "%s, second (cached)", name);
    return measure(options, label);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/tmp/trajd_bench_index";
    struct trajd_index_options options = {.layout = "robomimic", .file_timeout_ms = 60000};
    char helper[4096], layouts[4096], cache[] = "/tmp/trajd_bench_cache_XXXXXX", command[4200];
    struct utsname machine;
    int failed;

    if (!trajd_paths_helper(helper, sizeof helper) ||
        !trajd_paths_layouts(layouts, sizeof layouts) || !mkdtemp(cache))
        return 1;
    options.helper_path = helper;
    options.layout_directory = layouts;
    options.cache_directory = cache;
    options.child_count = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    uname(&machine);
    printf("trajd %s, %s %s, %u children\n", TRAJD_VERSION, machine.sysname, machine.machine,
           options.child_count);
    failed =
        measure_both(folder, "large.hdf5", &options) || measure_both(folder, "small", &options);
    snprintf(command, sizeof command, "rm -r %s", cache);
    return system(command) || failed;
}
