// libs: trajd_index
/* Measures reading rows against the same bytes without trajd, in one run: gzip against libdeflate
 * alone with as many threads and against h5py, contiguous rows against plain pread.
 *
 * Run it in the source folder: build/release/tests/bench/bench_read [FOLDER]. The test file (about
 * 60 MB) goes into FOLDER, by default /tmp. Ratios are of the best of ROUNDS, which take turns. */
#include <fcntl.h>
#include <libdeflate.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "tests/support/array_list.h"

#define THREADS 2
#define ROUNDS 15
#define MAX_ARRAYS 64

struct bench {
    int fd;
    uint8_t *file; /* the whole file in memory, for libdeflate alone */
    struct listed_array arrays[MAX_ARRAYS];
    uint8_t *rows[MAX_ARRAYS];
    uint32_t array_count;
    const char *suffix; /* the arrays whose labels end with this */
    uint32_t next;      /* the next array, which any free thread takes */
    struct trajd_array_reader *readers[THREADS];
};

typedef void (*array_work)(struct bench *bench, struct trajd_array_reader *reader, uint32_t index);

static bool is_chosen(const struct bench *bench, uint32_t index)
{
    const char *slash = strrchr(bench->arrays[index].label, '/');

    return slash && strcmp(slash + 1, bench->suffix) == 0;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_read: %s\n", what);
    exit(1);
}

static void read_ours(struct bench *bench, struct trajd_array_reader *reader, uint32_t index)
{
    const struct trajd_array *array = &bench->arrays[index].array;
    struct trajd_error error;

    if (trajd_array_read(reader, bench->fd, array, 0, trajd_array_row_count(array),
                         bench->rows[index], &error))
        die(error.message);
}

static void inflate_alone(struct bench *bench, struct trajd_array_reader *reader, uint32_t index)
{
    const struct trajd_array *array = &bench->arrays[index].array;
    struct libdeflate_decompressor *deflate = libdeflate_alloc_decompressor();
    uint64_t chunk_bytes = trajd_array_chunk_bytes(array);
    uint8_t *out = malloc(chunk_bytes);

    (void)reader;
    for (uint64_t c = 0; c < array->chunk_count; c++)
        if (libdeflate_zlib_decompress(deflate, bench->file + array->chunks[c].offset,
                                       array->chunks[c].stored_size, out, chunk_bytes,
                                       NULL) != LIBDEFLATE_SUCCESS)
            die("a chunk does not inflate");
    free(out);
    libdeflate_free_decompressor(deflate);
}

static void read_plain(struct bench *bench, struct trajd_array_reader *reader, uint32_t index)
{
    const struct trajd_array *array = &bench->arrays[index].array;

    (void)reader;
    if (pread(bench->fd, bench->rows[index], array->size_bytes, (off_t)array->offset) !=
        (ssize_t)array->size_bytes)
        die("pread");
}

struct thread_context {
    struct bench *bench;
    array_work work;
    struct trajd_array_reader *reader;
};

static void *run_thread(void *context)
{
    struct thread_context *thread = context;
    uint32_t index;

    while ((index = __atomic_fetch_add(&thread->bench->next, 1, __ATOMIC_RELAXED)) <
           thread->bench->array_count)
        if (is_chosen(thread->bench, index))
            thread->work(thread->bench, thread->reader, index);
    return NULL;
}

/* CPU time as well: on a shared machine the wall time includes the load of others. */
struct spent {
    double wall_s, cpu_s;
};

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void measure(struct spent *best, struct bench *bench, array_work work)
{
    struct thread_context contexts[THREADS];
    pthread_t threads[THREADS];
    double begin_cpu_s = cpu_seconds(), cpu_s, wall_s;
    int64_t begin_ns = trajd_now_ns();

    bench->next = 0;
    for (int i = 0; i < THREADS; i++) {
        contexts[i] = (struct thread_context){bench, work, bench->readers[i]};
        if (pthread_create(&threads[i], NULL, run_thread, &contexts[i]) != 0)
            die("no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    wall_s = (double)(trajd_now_ns() - begin_ns) / 1e9;
    cpu_s = cpu_seconds() - begin_cpu_s;
    best->wall_s = wall_s < best->wall_s ? wall_s : best->wall_s;
    best->cpu_s = cpu_s < best->cpu_s ? cpu_s : best->cpu_s;
}

static double h5py_seconds(const char *folder, const char *suffix)
{
    char command[1024];
    double seconds = 0;
    const char *venv = TRAJD_SOURCE_DIR "/build/venv/bin/python";
    FILE *out;

    snprintf(command, sizeof command,
             "%s -c 'import h5py, time\n"
             "times = []\n"
             "for _ in range(3):\n" /* opened again, or the library answers from its chunk cache */
             "    with h5py.File(\"%s/arrays.h5\") as file:\n"
             "        begin = time.perf_counter()\n"
             "        for group in file.values(): group[\"%s\"][()]\n"
             "        times.append(time.perf_counter() - begin)\n"
             "print(min(times))'",
             access(venv, X_OK) == 0 ? venv : "python3", folder, suffix);
    out = popen(command, "r");
    if (!out || fscanf(out, "%lf", &seconds) != 1)
        die("h5py");
    pclose(out);
    return seconds;
}

static void compare(struct bench *bench, const char *folder, const char *suffix, const char *name,
                    array_work other)
{
    struct spent ours = {1e9, 1e9}, theirs = {1e9, 1e9};
    double bytes = 0;

    bench->suffix = suffix;
    for (uint32_t i = 0; i < bench->array_count; i++)
        if (is_chosen(bench, i))
            bytes += (double)bench->arrays[i].array.size_bytes;
    for (int round = 0; round < ROUNDS; round++) {
        measure(&ours, bench, read_ours);
        measure(&theirs, bench, other);
    }
    double h5py = h5py_seconds(folder, suffix);
    printf("%-20s %6.1f MB  ours %8.1f MB/s  %-10s %8.1f MB/s  ratio %.2f (CPU time %.2f)   h5py "
           "%7.1f MB/s  "
           "ratio %.1f\n",
           suffix, bytes / 1e6, bytes / 1e6 / ours.wall_s, name, bytes / 1e6 / theirs.wall_s,
           theirs.wall_s / ours.wall_s, theirs.cpu_s / ours.cpu_s, bytes / 1e6 / h5py,
           h5py / ours.wall_s);
}

static void load_list(struct bench *bench, const char *folder)
{
    char path[512];
    struct stat file_stat;
    FILE *list;

    snprintf(path, sizeof path, "%s/arrays.h5", folder);
    bench->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (bench->fd < 0 || fstat(bench->fd, &file_stat) != 0)
        die("the test file");
    bench->file = malloc((size_t)file_stat.st_size);
    if (!bench->file ||
        pread(bench->fd, bench->file, (size_t)file_stat.st_size, 0) != file_stat.st_size)
        die("the test file");
    snprintf(path, sizeof path, "%s/arrays.txt", folder);
    list = fopen(path, "r");
    while (list && bench->array_count < MAX_ARRAYS &&
           listed_next(list, &bench->arrays[bench->array_count])) {
        uint64_t bytes = bench->arrays[bench->array_count].array.size_bytes;
        uint8_t *rows = malloc(bytes);
        if (!rows)
            die("no memory");
        memset(rows, 0, bytes); /* allocates the pages before any measurement */
        bench->rows[bench->array_count++] = rows;
    }
    if (list)
        fclose(list);
}

static void print_line_of(const char *label, const char *command)
{
    char line[256] = "unknown\n";
    FILE *out = popen(command, "r");

    if (out && !fgets(line, sizeof line, out))
        snprintf(line, sizeof line, "unknown\n");
    if (out)
        pclose(out);
    printf("%s %s", label, line);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char folder[256], arguments[512];

    snprintf(folder, sizeof folder, "%s/trajd_bench_XXXXXX", argc > 1 ? argv[1] : "/tmp");
    if (!mkdtemp(folder))
        die("no folder for the test file");
    snprintf(arguments, sizeof arguments,
             TRAJD_SOURCE_DIR "/tests/tools/make_array_files.py %s bench", folder);
    if (run_python(arguments) != 0)
        die("h5py is needed to write the test file");
    load_list(&bench, folder);
    for (int i = 0; i < THREADS; i++)
        if (trajd_array_reader_create(&bench.readers[i], NULL))
            die("no reader");
    print_line_of("device:", "lscpu | sed -n 's/^Model name: *//p'");
    print_line_of("commit:", "git -C " TRAJD_SOURCE_DIR " rev-parse --short HEAD");
    printf("command: %s, %d threads, best of %d, warm page cache\n", argv[0], THREADS, ROUNDS);
    compare(&bench, folder, "image_gzip", "libdeflate", inflate_alone);
    compare(&bench, folder, "image_gzip_shuffle", "libdeflate", inflate_alone);
    compare(&bench, folder, "depth_gzip_shuffle", "libdeflate", inflate_alone);
    compare(&bench, folder, "image_contiguous", "pread", read_plain);
    snprintf(arguments, sizeof arguments, "rm -r %s", folder);
    for (uint32_t i = 0; i < bench.array_count; i++) {
        free(bench.rows[i]);
        free(bench.arrays[i].chunks);
    }
    for (int i = 0; i < THREADS; i++)
        trajd_array_reader_destroy(&bench.readers[i]);
    free(bench.file);
    close(bench.fd);
    return system(arguments) != 0;
}
