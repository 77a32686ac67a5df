// libs: trajd_decode trajd_decode_child
/* Measures images on one core. Prints us of processor time a frame.
 *
 *     bench_images resize                  resize of 640x480, for each filter: the best turn
 *     bench_images decode FILE.jpg...      bare libjpeg-turbo; a decoder in this thread; the helper
 *                                            program and its parent. The last two with and without a
 *                                            resize to 224x224, into memory for 64 frames
 *
 * tests/bench/part_images.py measures other programs beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#include "daemon/base/paths.h"
#include "daemon/decode/decode_child.h"
#include "daemon/decode/decoder.h"
#include "daemon/index/rows/image_header.h"

enum {
    HEIGHT = 480,
    WIDTH = 640,
    TURNS = 60,
    DECODE_TURNS = 16,
    FRAMES = 64,
    JOB_FRAMES = 32,
    LARGEST = 1 << 20
};

static double now_us(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_images: %s\n", what);
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

/* ---- decoding: each way takes turns with the others ---- */

enum way { BARE, THREAD, HELPER, THREAD_224, HELPER_224, WAY_COUNT };

static const char *const way_names[] = {"bare", "thread", "helper", "thread_224", "helper_224"};

struct ways {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct trajd_decode_state states[WAY_COUNT];
    struct trajd_decoder *decoders[WAY_COUNT];
    clockid_t child_clocks[WAY_COUNT];
    uint8_t *
        pixels; /* of FRAMES frames: the cache of the daemon, as large as the processor's are not */
    double us[WAY_COUNT];
};

static struct trajd_layout_image image(void)
{
    return (struct trajd_layout_image){
        .is_present = true, .color = TRAJD_COLOR_RGB, .height = HEIGHT, .width = WIDTH};
}

/* Returns the processor clock of the child that was started last. */
static clockid_t clock_of_child(void)
{
    char path[64];
    FILE *children;
    clockid_t clock;
    int pid = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    children = fopen(path, "r");
    while (children && fscanf(children, "%d", &pid) == 1)
        ;
    if (!children || clock_getcpuclockid(pid, &clock))
        fail("no clock of the helper program");
    fclose(children);
    return clock;
}

static void start_helper(struct ways *ways, enum way way,
                         const struct trajd_image_preparation *preparation)
{
    char program[4096];
    const struct trajd_decoder_options options = {.program = program,
                                                  .image = image(),
                                                  .bits = 8,
                                                  .upright = true,
                                                  .preparation = preparation,
                                                  .largest_frame_bytes = LARGEST,
                                                  .timeout_ms = 60000};
    struct trajd_error error;

    if (!trajd_paths_decoder(program, sizeof program))
        fail("trajd-decoder is not built");
    if (trajd_decoder_create(&options, &ways->decoders[way], &error))
        fail(error.message);
    ways->child_clocks[way] = clock_of_child();
}

static void start_thread(struct ways *ways, enum way way,
                         const struct trajd_image_preparation *preparation)
{
    struct trajd_decode_setup setup = {.image = image(),
                                       .bits = 8,
                                       .upright = true,
                                       .is_prepared = preparation != NULL,
                                       .frame_bytes = preparation ? trajd_image_bytes(preparation)
                                                                  : HEIGHT * WIDTH * 3};

    if (preparation)
        setup.preparation = *preparation;
    if (!trajd_decode_state_make(&setup, &ways->states[way]))
        fail("no memory");
}

/* The least that a program does with libjpeg-turbo: one decompressor for all frames. */
static void decode_bare(struct ways *ways, const struct file *file, uint8_t *pixels)
{
    struct jpeg_decompress_struct *jpeg = &ways->jpeg;

    jpeg_mem_src(jpeg, file->bytes, file->size);
    jpeg_read_header(jpeg, TRUE);
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = pixels + jpeg->output_scanline * (size_t)(WIDTH * 3);
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
}

static void decode_by_helper(struct ways *ways, enum way way, const struct file *files, int count)
{
    struct trajd_decoder_frame frames[FRAMES];
    struct trajd_error error;
    const uint64_t bytes = trajd_decoder_frame_bytes(ways->decoders[way]);

    for (int i = 0; i < FRAMES; i++)
        frames[i] = (struct trajd_decoder_frame){.bytes = files[i % count].bytes,
                                                 .size = files[i % count].size,
                                                 .room = files[i % count].size,
                                                 .pixels = ways->pixels + i * bytes};
    for (int i = 0; i < FRAMES; i += JOB_FRAMES) /* as the daemon's threads ask for them */
        if (trajd_decoder_run(ways->decoders[way], frames + i, JOB_FRAMES, &error) ||
            *frames[i].reason)
            fail("a frame was not decoded");
}

static void decode_all(struct ways *ways, enum way way, const struct file *files, int count)
{
    struct trajd_decode_state *state = &ways->states[way];
    char reason[160];

    if (ways->decoders[way]) {
        decode_by_helper(ways, way, files, count);
        return;
    }
    for (int i = 0; i < FRAMES; i++) {
        const struct file *file = &files[i % count];
        if (way == BARE)
            decode_bare(ways, file, ways->pixels + (size_t)i * HEIGHT * WIDTH * 3);
        else if (!trajd_decode_frame(state, file->bytes, file->size, file->size,
                                     ways->pixels + i * state->setup.frame_bytes, reason,
                                     sizeof reason))
            fail(reason);
    }
}

static double time_turn(struct ways *ways, enum way way, const struct file *files, int count)
{
    const bool has_child = ways->decoders[way];
    const double begin = now_us(CLOCK_THREAD_CPUTIME_ID),
                 child = has_child ? now_us(ways->child_clocks[way]) : 0;

    decode_all(ways, way, files, count);
    return (now_us(CLOCK_THREAD_CPUTIME_ID) - begin +
            (has_child ? now_us(ways->child_clocks[way]) - child : 0)) /
           FRAMES;
}

/* Prints the best turn of each way: other programs that run make times longer, never shorter. */
static void measure_decode(const struct file *files, int count)
{
    static struct ways ways;
    const struct trajd_image_preparation to_224 =
        preparation_for(TRAJD_IMAGE_PILLOW_BILINEAR, 224, 224);

    ways.jpeg.err = jpeg_std_error(&ways.errors);
    jpeg_create_decompress(&ways.jpeg);
    start_thread(&ways, THREAD, NULL);
    start_thread(&ways, THREAD_224, &to_224);
    start_helper(&ways, HELPER, NULL);
    start_helper(&ways, HELPER_224, &to_224);
    ways.pixels = malloc((size_t)FRAMES * HEIGHT * WIDTH * 3);
    if (!ways.pixels)
        fail("no memory");
    for (int turn = 0; turn <= DECODE_TURNS; turn++) /* the first touches all memory */
        for (int way = 0; way < WAY_COUNT; way++) {
            const double us = time_turn(&ways, (enum way)way, files, count);
            if (turn <= 1 || us < ways.us[way])
                ways.us[way] = us;
        }
    for (int way = 0; way < WAY_COUNT; way++) {
        printf("decode %s %.1f\n", way_names[way], ways.us[way]);
        trajd_decode_state_free(&ways.states[way]);
        trajd_decoder_destroy(&ways.decoders[way]);
    }
    jpeg_destroy_decompress(&ways.jpeg);
    free(ways.pixels);
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
        for (int i = 2; i < argc; i++)
            files[i - 2] = load(argv[i]);
        measure_decode(files, argc - 2);
        return 0;
    }
    fail("usage: bench_images resize | decode FILE.jpg...");
}
