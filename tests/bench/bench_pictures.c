// libs: trajd_decode trajd_decode_child
/* Measures pictures on one core. Prints the best time of many turns, in us of processor time a frame.
 *
 *     bench_pictures resize                  resize of 640x480, for each filter
 *     bench_pictures decode FILE.jpg...      bare libjpeg-turbo; a decoder in this thread; the helper
 *                                            program and its parent. The last two with and without a
 *                                            resize to 224x224, into memory for 64 frames
 *
 * tests/bench/pictures.py makes the files, and measures other programs beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/base/paths.h"
#include "daemon/decode/decode_frame.h"
#include "daemon/decode/decode_library.h"
#include "daemon/decode/decoder.h"
#include "daemon/index/rows/picture_header.h"

enum { HEIGHT = 480, WIDTH = 640, TURNS = 60, FRAMES = 64, HELPER_TURNS = 32, LARGEST = 1 << 20 };

static double now_us(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_pictures: %s\n", what);
    exit(1);
}

static struct trajd_image_preparation preparation_for(enum trajd_image_filter filter,
                                                      uint32_t height, uint32_t width)
{
    struct trajd_image_preparation p = {.source_height = HEIGHT,
                                        .source_width = WIDTH,
                                        .channels = 3,
                                        .type = TRAJD_U8,
                                        .crop = {0, 0, HEIGHT, WIDTH},
                                        .filter = filter};

    trajd_image_place(&p, TRAJD_IMAGE_STRETCH, height, width);
    return p;
}

static void measure_resize(enum trajd_image_filter filter, uint32_t side)
{
    static uint8_t source[HEIGHT * WIDTH * 3], output[224 * 224 * 3];
    const struct trajd_image_preparation p = preparation_for(filter, side, side);
    struct trajd_image_plan *plan;
    double best = 1e12;

    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 2654435761u >> 24);
    if (trajd_image_plan_create(&p, &plan, NULL))
        fail("no plan");
    for (int turn = 0; turn < TURNS; turn++) {
        const double begin = now_us(CLOCK_THREAD_CPUTIME_ID);
        trajd_image_prepare(plan, source, output);
        const double time = now_us(CLOCK_THREAD_CPUTIME_ID) - begin;
        best = time < best ? time : best;
    }
    trajd_image_plan_destroy(&plan);
    printf("resize %s %u %.1f\n", trajd_image_filter_name(filter), side, best);
}

struct file {
    uint8_t *bytes;
    uint64_t size;
};

static struct file load(const char *path)
{
    struct file file = {malloc(LARGEST), 0};
    FILE *in = fopen(path, "rb");

    if (!file.bytes || !in)
        fail(path);
    file.size = fread(file.bytes, 1, LARGEST, in);
    fclose(in);
    return file;
}

static void measure_library(const struct file *files, int count)
{
    static uint8_t pixels[HEIGHT * WIDTH * 3];
    const struct trajd_picture picture = {TRAJD_PICTURE_JPEG, HEIGHT, WIDTH, 3, 8, false};
    double best = 1e12;
    char reason[160];

    for (int turn = 0; turn < TURNS / 4; turn++) {
        const double begin = now_us(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < FRAMES; i++)
            if (!trajd_decode_jpeg(files[i % count].bytes, files[i % count].size, &picture, pixels,
                                   reason, sizeof reason))
                fail(reason);
        const double time = (now_us(CLOCK_THREAD_CPUTIME_ID) - begin) / FRAMES;
        best = time < best ? time : best;
    }
    printf("decode library %.1f\n", best);
}

/* Returns the processor time of this thread and of the children that have ended, in us. */
static double all_us(void)
{
    struct rusage children;

    getrusage(RUSAGE_CHILDREN, &children);
    return now_us(CLOCK_THREAD_CPUTIME_ID) +
           (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) * 1e6 +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec);
}

static struct trajd_layout_image image(void)
{
    return (struct trajd_layout_image){
        .is_present = true, .color = TRAJD_COLOR_RGB, .height = HEIGHT, .width = WIDTH};
}

static uint64_t frame_bytes(const struct trajd_image_preparation *preparation)
{
    return preparation ? trajd_image_bytes(preparation) : HEIGHT * WIDTH * 3;
}

/* Decodes and prepares as the helper program does it, but in this thread. */
static void measure_thread(const struct file *files, int count,
                           const struct trajd_image_preparation *preparation, const char *name)
{
    struct trajd_decode_setup setup = {.image = image(),
                                       .bits = 8,
                                       .upright = true,
                                       .is_prepared = preparation != NULL,
                                       .frame_bytes = frame_bytes(preparation)};
    uint8_t *pixels = malloc(FRAMES * setup.frame_bytes);
    struct trajd_decode_state state;
    char reason[160];
    double best = 1e12;

    if (preparation)
        setup.preparation = *preparation;
    if (!pixels || !trajd_decode_state_make(&setup, &state))
        fail("no memory");
    for (int turn = 0; turn < TURNS / 4; turn++) {
        const double begin = now_us(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < FRAMES; i++)
            if (!trajd_decode_frame(&state, files[i % count].bytes, files[i % count].size,
                                    files[i % count].size, pixels + i * setup.frame_bytes, reason,
                                    sizeof reason))
                fail(reason);
        const double time = (now_us(CLOCK_THREAD_CPUTIME_ID) - begin) / FRAMES;
        best = time < best ? time : best;
    }
    trajd_decode_state_free(&state);
    free(pixels);
    printf("decode %s %.1f\n", name, best);
}

static void run_helper(const struct trajd_decoder_options *options, const struct file *files,
                       int count)
{
    struct trajd_decoder_frame frames[FRAMES];
    struct trajd_decoder *decoder;
    struct trajd_error error;
    uint8_t *pixels;

    if (trajd_decoder_create(options, &decoder, &error))
        fail(error.message);
    pixels = malloc(FRAMES * trajd_decoder_frame_bytes(decoder));
    for (int turn = 0; pixels && turn < HELPER_TURNS; turn++) {
        for (int i = 0; i < FRAMES; i++)
            frames[i] = (struct trajd_decoder_frame){
                files[i % count].bytes, files[i % count].size, files[i % count].size,
                pixels + (size_t)i * trajd_decoder_frame_bytes(decoder), ""};
        if (trajd_decoder_run(decoder, frames, FRAMES, &error) || *frames[0].reason)
            fail("a frame was not decoded");
    }
    free(pixels);
    trajd_decoder_destroy(&decoder);
}

/* The time of both processes, from the start of the child to its end. */
static void measure_helper(const struct file *files, int count,
                           const struct trajd_image_preparation *preparation, const char *name)
{
    char program[4096];
    const struct trajd_decoder_options options = {.program = program,
                                                  .image = image(),
                                                  .bits = 8,
                                                  .upright = true,
                                                  .preparation = preparation,
                                                  .largest_frame_bytes = LARGEST,
                                                  .timeout_ms = 60000};
    double best = 1e12;

    if (!trajd_paths_decoder(program, sizeof program))
        fail("trajd-decoder is not built");
    for (int turn = 0; turn < 3; turn++) {
        const double begin = all_us();
        run_helper(&options, files, count);
        const double time = (all_us() - begin) / (HELPER_TURNS * FRAMES);
        best = time < best ? time : best;
    }
    printf("decode %s %.1f\n", name, best);
}

int main(int argc, char **argv)
{
    struct file files[16];

    if (argc == 2 && !strcmp(argv[1], "resize")) {
        for (int filter = 0; filter < TRAJD_IMAGE_FILTER_COUNT; filter++) {
            measure_resize((enum trajd_image_filter)filter, 224);
            measure_resize((enum trajd_image_filter)filter, 96);
        }
        return 0;
    }
    if (argc >= 3 && argc <= 18 && !strcmp(argv[1], "decode")) {
        const struct trajd_image_preparation to_224 =
            preparation_for(TRAJD_IMAGE_PILLOW_BILINEAR, 224, 224);
        for (int i = 2; i < argc; i++)
            files[i - 2] = load(argv[i]);
        measure_library(files, argc - 2);
        measure_thread(files, argc - 2, NULL, "thread");
        measure_thread(files, argc - 2, &to_224, "thread_224");
        measure_helper(files, argc - 2, NULL, "helper");
        measure_helper(files, argc - 2, &to_224, "helper_224");
        return 0;
    }
    fail("usage: bench_pictures resize | decode FILE.jpg...");
}
