// libs: PkgConfig::DAV1D trajd_flags
/* Bare dav1d: decodes the packets of each file in a thread of its own, with one context, and looks
 * at no pixel. A file has packets one after another, each with its size before it, as 32 bits.
 *
 *     bench_video FILE...     prints: frames, seconds, processor time per frame in us
 *
 * The settings are those of the decoder. The files are read before the clock starts. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <dav1d/dav1d.h>

struct job {
    pthread_t thread;
    uint8_t *bytes;
    size_t size;
    uint32_t frames;
};

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double processor_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

static void expect(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_video: %s\n", what);
    exit(1);
}

static void read_file(const char *path, struct job *job)
{
    FILE *file = fopen(path, "rb");
    struct stat about;

    expect(file && !fstat(fileno(file), &about), path);
    job->size = (size_t)about.st_size;
    job->bytes = malloc(job->size);
    expect(job->bytes && fread(job->bytes, 1, job->size, file) == job->size, path);
    fclose(file);
}

static void decode(Dav1dContext *context, const uint8_t *bytes, uint32_t size)
{
    Dav1dPicture image = {0};
    Dav1dData data = {0};
    uint8_t *room = dav1d_data_create(&data, size);

    expect(room != NULL, "no memory");
    memcpy(room, bytes, size);
    expect(!dav1d_send_data(context, &data), "a packet is refused");
    expect(!dav1d_get_picture(context, &image), "a packet has no frame");
    dav1d_picture_unref(&image);
}

static void *run(void *context)
{
    struct job *job = context;
    Dav1dContext *decoder;
    Dav1dSettings settings;
    uint32_t size;

    dav1d_default_settings(&settings);
    settings.n_threads = 1;
    settings.max_frame_delay = 1;
    expect(!dav1d_open(&decoder, &settings), "dav1d does not start");
    for (size_t at = 0; at < job->size; at += size, job->frames++) {
        memcpy(&size, job->bytes + at, sizeof size);
        at += sizeof size;
        expect(size && size <= job->size - at, "a packet is cut off");
        decode(decoder, job->bytes + at, size);
    }
    dav1d_close(&decoder);
    return NULL;
}

int main(int argc, char **argv)
{
    struct job *jobs = calloc((size_t)argc, sizeof *jobs);
    uint32_t frames = 0;
    double begin, processor;

    expect(jobs && argc > 1, "usage: bench_video FILE...");
    for (int i = 1; i < argc; i++)
        read_file(argv[i], &jobs[i]);
    begin = now_s();
    processor = processor_s();
    for (int i = 1; i < argc; i++)
        expect(!pthread_create(&jobs[i].thread, NULL, run, &jobs[i]), "no thread");
    for (int i = 1; i < argc; i++) {
        pthread_join(jobs[i].thread, NULL);
        frames += jobs[i].frames;
    }
    printf("%u %.6f %.2f\n", frames, now_s() - begin, 1e6 * (processor_s() - processor) / frames);
    for (int i = 1; i < argc; i++)
        free(jobs[i].bytes);
    free(jobs);
    return 0;
}
