/* Measures pictures on the GPU: cold (buffers in turn, several times the L2), as graphs that are
 * replayed, median of 9, in us a launch. A copy moves as many bytes as the work must: the part of each
 * source that is used, and the tensors.
 *
 *     bench_image_gpu [ROW]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/image/cuda/image_gpu.h"
#include "kernels/image/cuda/image_launch.h"
#include "proto/array_len.h"

enum { SAMPLES = 9, SETS_MAX = 8 };
#define COLD_BYTES (UINT64_C(400) << 20)
#define SAMPLE_US 3000.0

struct row {
    const char *name;
    uint32_t frames, height, width, to; /* to: the side of the tensor */
    int filter;                         /* -1: prepared frames */
    struct trajd_augment augment;
    enum trajd_dtype type;
    const char *norm;
    double budget; /* copies; 0: none */
};

struct bench {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    /* of a row */
    const struct row *row;
    struct trajd_image_preparation preparation;
    struct trajd_image_gpu_spec spec;
    struct trajd_image_program program;
    struct trajd_image_launch launch;
    uint32_t *host_tables;
    void *resize_tables;
    uint64_t source_bytes, output_bytes, needed_bytes;
    uint32_t set_count;
    struct trajd_image_resize chosen;
    char *sources, *outputs, *records; /* of all sets */
};

static struct trajd_error error;

static void must(enum trajd_status status)
{
    if (!status)
        return;
    fprintf(stderr, "bench_image_gpu: %s: %s\n", trajd_status_name(status), error.message);
    exit(1);
}

static void must_launch(int code)
{
    if (!code)
        return;
    fprintf(stderr, "bench_image_gpu: CUDA error %d\n", code);
    exit(1);
}

static void *take(struct bench *b, uint64_t bytes)
{
    void *memory;

    must(trajd_device_alloc(b->device, bytes + 64, &memory, &error));
    return memory;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What a graph has for one set. */
typedef void work(struct bench *b, uint32_t set, const void *context);

static double measure(struct bench *b, work *run, const void *context)
{
    struct trajd_device_graph *graph;
    double us[SAMPLES];
    uint32_t replays = 1;

    run(b, 0, context); /* sets attributes, which a graph does not record */
    must(trajd_device_stream_wait(b->stream, &error));
    must(trajd_device_graph_begin(b->stream, &error));
    for (uint32_t i = 0; i < b->set_count; i++)
        run(b, i, context);
    must(trajd_device_graph_end(b->stream, &graph, &error));
    for (int i = -2; i < SAMPLES; i++) {
        float elapsed_us;
        must(trajd_device_timer_start(b->stream, &error));
        for (uint32_t k = 0; k < replays; k++)
            must(trajd_device_graph_replay_async(graph, b->stream, &error));
        must(trajd_device_timer_stop(b->stream, &elapsed_us, &error));
        if (i == -2 && (double)elapsed_us < SAMPLE_US)
            replays = (uint32_t)(SAMPLE_US / (double)elapsed_us) + 1;
        if (i >= 0)
            us[i] = (double)elapsed_us / replays / b->set_count;
    }
    trajd_device_graph_destroy(&graph);
    qsort(us, SAMPLES, sizeof *us, by_value);
    return us[SAMPLES / 2];
}

/* Half of the bytes is read, and half written. */
static void copy(struct bench *b, uint32_t set, const void *context)
{
    const uint64_t half = b->needed_bytes / 2;
    char *const *halves = context;

    must(trajd_device_copy_async(halves[1] + set * half, halves[0] + set * half, half, b->stream,
                                 &error));
}

static double measure_copy(struct bench *b)
{
    const uint64_t room = b->needed_bytes / 2 * b->set_count;
    char *halves[2] = {take(b, room), take(b, room)};
    double us;

    for (int i = 0; i < 2; i++)
        for (uint64_t at = 0; at + b->source_bytes <= room; at += b->source_bytes)
            must(trajd_device_copy_async(halves[i] + at, b->sources, b->source_bytes, b->stream,
                                         &error));
    us = measure(b, copy, halves);
    trajd_device_free(b->device, halves[0]);
    trajd_device_free(b->device, halves[1]);
    return us;
}

static struct trajd_image_launch launch_of(const struct bench *b, uint32_t set)
{
    struct trajd_image_launch launch = b->launch;

    launch.records = b->records + (uint64_t)set * b->row->frames * launch.record_bytes;
    return launch;
}

static void run_strip(struct bench *b, uint32_t set, const void *context)
{
    const struct trajd_image_launch launch = launch_of(b, set);

    must_launch(trajd_image_launch_strip(&b->program, context, &launch,
                                         trajd_device_stream_handle(b->stream)));
}

static void run_resize(struct bench *b, uint32_t set, const void *context)
{
    const struct trajd_image_launch launch = launch_of(b, set);

    must_launch(trajd_image_launch_resize(&b->program, context, b->resize_tables, &launch,
                                          trajd_device_stream_handle(b->stream)));
}

static void run_plan(struct bench *b, uint32_t set, const void *context)
{
    struct trajd_image_gpu *const *plan = context;
    const struct trajd_image_launch launch = launch_of(b, set);

    must(trajd_image_gpu_run(*plan, launch.records, b->row->frames,
                             trajd_device_stream_handle(b->stream), &error));
}

static void make_spec(struct bench *b, const struct row *row)
{
    const uint32_t side = row->filter < 0 ? row->height : row->to;

    b->row = row;
    b->spec = (struct trajd_image_gpu_spec){
        .frame = {side, side, 3, TRAJD_U8},
        .augment = &row->augment,
        .finish = {row->to, row->to, 3, TRAJD_U8, row->type, TRAJD_IMAGE_CHW, {0}, {0}}};
    must(trajd_image_finish_set_norm(&b->spec.finish, trajd_image_norm_named(row->norm), &error));
    if (row->filter >= 0) {
        b->preparation =
            (struct trajd_image_preparation){.source_height = row->height,
                                             .source_width = row->width,
                                             .channels = 3,
                                             .type = TRAJD_U8,
                                             .crop = {0, 0, row->height, row->width},
                                             .filter = (enum trajd_image_filter)row->filter};
        trajd_image_place(&b->preparation, TRAJD_IMAGE_STRETCH, row->to, row->to);
        b->spec.preparation = &b->preparation;
    }
    must(trajd_image_gpu_check(&b->spec, &error));
    must(trajd_image_program_make(&b->spec, &b->program, &b->host_tables, &error));
    b->launch.record_bytes = trajd_image_program_record_bytes(&b->program);
    b->launch.count = row->frames;
    b->launch.block_shared_bytes = b->facts.block_shared_bytes;
}

/* Frames of noise, one a set and frame, and records with a draw each. */
static void make_sets(struct bench *b)
{
    const struct row *row = b->row;
    const uint64_t used =
        row->filter < 0 ? (uint64_t)row->to * row->to * 3 : (uint64_t)row->height * row->width * 3;
    uint64_t set_bytes, all;
    uint8_t *noise;
    char *records;
    uint32_t state = 1;

    b->source_bytes = (uint64_t)row->height * row->width * 3;
    b->output_bytes = trajd_image_finish_bytes(&b->spec.finish);
    b->needed_bytes = row->frames * (used + b->output_bytes);
    set_bytes = row->frames * (b->source_bytes + b->output_bytes);
    b->set_count = (uint32_t)(COLD_BYTES / set_bytes) + 1;
    all = (uint64_t)b->set_count * row->frames;
    b->sources = take(b, all * b->source_bytes);
    b->outputs = take(b, all * b->output_bytes);
    b->records = take(b, all * b->launch.record_bytes);
    noise = malloc(b->source_bytes);
    records = aligned_alloc(16, all * b->launch.record_bytes);
    for (uint64_t i = 0; i < b->source_bytes; i++)
        noise[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
    for (uint64_t i = 0; i < all; i++) {
        struct trajd_image_record *record = (void *)(records + i * b->launch.record_bytes);
        const struct trajd_augment_key key = {1, 1, i, 0, 0};
        struct trajd_augment_params params;
        trajd_augment_draw(&row->augment, &key, b->spec.frame.height, b->spec.frame.width, &params);
        *record = (struct trajd_image_record){b->sources + i * b->source_bytes,
                                              b->outputs + i * b->output_bytes};
        trajd_image_program_write(&b->program, &params, (union trajd_image_value *)(record + 1));
        must(trajd_device_copy_async(b->sources + i * b->source_bytes, noise, b->source_bytes,
                                     b->stream, &error));
    }
    must(trajd_device_copy_async(b->records, records, all * b->launch.record_bytes, b->stream,
                                 &error));
    must(trajd_device_stream_wait(b->stream, &error));
    free(noise);
    free(records);
}

static void print_time(const char *what, double us, double copy_us)
{
    printf("    %-44s %8.1f us  %5.2f copies\n", what, us, us / copy_us);
    fflush(stdout);
}

static void bench_strips(struct bench *b, double copy_us)
{
    for (uint32_t blocks = 1; blocks <= 32; blocks *= 2) {
        struct trajd_image_strip strip;
        char what[64];
        if (!trajd_image_strip_cut(&b->program, blocks, &strip) ||
            (b->program.mean_count && blocks > 8))
            continue;
        snprintf(what, sizeof what, "strip, %u blocks a frame, %u bytes", strip.blocks,
                 strip.shared_bytes);
        print_time(what, measure(b, run_strip, &strip), copy_us);
    }
}

static void bench_resize(struct bench *b, uint32_t threads, uint32_t blocks, uint32_t chunks,
                         uint32_t strips, double copy_us)
{
    struct trajd_image_resize r;
    uint32_t *words;
    char what[96];

    if (!trajd_image_resize_cut(&b->program, b->host_tables, threads, blocks, chunks, &r))
        return;
    words = malloc(r.words * sizeof *words);
    trajd_image_resize_fill(&b->program, b->host_tables, &r, words);
    b->resize_tables = take(b, r.words * sizeof *words);
    must(trajd_device_copy_async(b->resize_tables, words, r.words * sizeof *words, b->stream,
                                 &error));
    trajd_image_resize_divide(b->row->frames, b->facts.sm_count * blocks, &r);
    if (strips) {
        r.strip_tiles = (r.tiles - 1) / strips + 1;
        r.strips = (r.tiles - 1) / r.strip_tiles + 1;
    }
    snprintf(what, sizeof what, "resize 1:%u x %u, %u chunks, %u strips", threads / 32, blocks,
             r.chunks, r.strips);
    print_time(what, measure(b, run_resize, &r), copy_us);
    trajd_device_free(b->device, b->resize_tables);
    free(words);
}

static void bench_resizes(struct bench *b, double copy_us)
{
    static const uint32_t cuts[][2] = {{256, 2}, {224, 2}, {192, 3}, {160, 3},
                                       {128, 4}, {512, 1}, {256, 1}};

    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        bench_resize(b, cuts[i][0], cuts[i][1], TRAJD_IMAGE_CHUNKS_MAX, 0, copy_us);
    for (uint32_t chunks = 4; chunks <= 8; chunks++)
        bench_resize(b, b->chosen.threads, b->chosen.blocks, chunks, 0, copy_us);
    for (uint32_t strips = 1; strips <= 7; strips += 2)
        bench_resize(b, b->chosen.threads, b->chosen.blocks, TRAJD_IMAGE_CHUNKS_MAX, strips,
                     copy_us);
}

static void bench_row(struct bench *b, const struct row *row)
{
    struct trajd_image_gpu *plan;
    struct trajd_image_strip strip;
    struct trajd_image_resize resize = {0};
    enum trajd_image_variant variant;
    double copy_us, us;
    const char *why, *name;

    *b = (struct bench){.device = b->device, .stream = b->stream, .facts = b->facts};
    make_spec(b, row);
    make_sets(b);
    copy_us = measure_copy(b);
    must(trajd_image_gpu_create(b->device, &b->spec, row->frames, &plan, &error));
    us = measure(b, run_plan, &plan);
    name = trajd_image_gpu_variant(plan, &why);
    printf("%s\n    %u frames, %.1f MB, %u sets: copy %.1f us, %.2f TB/s\n", row->name, row->frames,
           (double)b->needed_bytes / 1e6, b->set_count, copy_us,
           (double)b->needed_bytes / copy_us / 1e6);
    print_time(name, us, copy_us);
    if (row->budget > 0)
        printf("    budget %.1f copies: %s\n", row->budget,
               us <= row->budget * copy_us ? "met" : "MISSED");
    variant = trajd_image_choose(&b->program, b->host_tables, &b->facts, &strip, &resize, &why);
    b->chosen = resize;
    if (variant == TRAJD_IMAGE_STRIP)
        bench_strips(b, copy_us);
    if (variant == TRAJD_IMAGE_RESIZE)
        bench_resizes(b, copy_us);
    trajd_image_gpu_destroy(&plan);
    trajd_device_free(b->device, b->sources);
    trajd_device_free(b->device, b->outputs);
    trajd_device_free(b->device, b->records);
    free(b->host_tables);
}

#define CROP(side)                                                                                 \
    {                                                                                              \
        .kind = TRAJD_AUGMENT_CROP, .probability = 1, .height = side, .width = side                \
    }
#define COLOR(which, from, to)                                                                     \
    {                                                                                              \
        .kind = which, .probability = 1, .factor = { from, to }                                    \
    }
#define JITTER                                                                                     \
    COLOR(TRAJD_AUGMENT_BRIGHTNESS, 0.7, 1.3), COLOR(TRAJD_AUGMENT_CONTRAST, 0.6, 1.4),            \
        COLOR(TRAJD_AUGMENT_SATURATION, 0.5, 1.5)

static const struct row rows[] = {
    {"640x480 to 224, antialias, bf16 chw, imagenet",
     512,
     480,
     640,
     224,
     TRAJD_IMAGE_PILLOW_BILINEAR,
     {0},
     TRAJD_BF16,
     "imagenet",
     2.0},
    {"640x480 to 96, antialias, bf16 chw, imagenet",
     512,
     480,
     640,
     96,
     TRAJD_IMAGE_PILLOW_BILINEAR,
     {0},
     TRAJD_BF16,
     "imagenet",
     2.1},
    {"256 to 224, antialias, bf16 chw, imagenet",
     512,
     256,
     256,
     224,
     TRAJD_IMAGE_PILLOW_BILINEAR,
     {0},
     TRAJD_BF16,
     "imagenet",
     2.1},
    {"84 crop 76, f32 chw, unit", 1024, 84, 84, 76, -1, {1, {CROP(76)}, 0}, TRAJD_F32, "unit", 1.7},
    {"240 crop 224, brightness, contrast, saturation, hue, bf16 chw, imagenet",
     1024,
     240,
     240,
     224,
     -1,
     {5, {CROP(224), JITTER, COLOR(TRAJD_AUGMENT_HUE, -0.08, 0.08)}, 0},
     TRAJD_BF16,
     "imagenet",
     1.5},
    {"240 crop 224, brightness, contrast, saturation, bf16 chw, imagenet",
     1024,
     240,
     240,
     224,
     -1,
     {4, {CROP(224), JITTER}, 0},
     TRAJD_BF16,
     "imagenet",
     0},
    {"240 crop 224, bf16 chw, imagenet",
     1024,
     240,
     240,
     224,
     -1,
     {1, {CROP(224)}, 0},
     TRAJD_BF16,
     "imagenet",
     0},
    {"240 crop 224, u8 chw", 1024, 240, 240, 224, -1, {1, {CROP(224)}, 0}, TRAJD_U8, "none", 0},
    {"256 to 224, lanczos (rounds between), bf16 chw",
     128,
     256,
     256,
     224,
     TRAJD_IMAGE_PILLOW_LANCZOS,
     {0},
     TRAJD_BF16,
     "imagenet",
     0},
    {"224, random resized crop, antialias, bf16 chw",
     128,
     224,
     224,
     224,
     -1,
     {1,
      {{.kind = TRAJD_AUGMENT_RESIZED_CROP,
        .probability = 1,
        .height = 224,
        .width = 224,
        .scale = {0.8, 1},
        .ratio = {0.9, 1.1},
        .filter = TRAJD_IMAGE_PILLOW_BILINEAR}},
      0},
     TRAJD_BF16,
     "imagenet",
     0},
    {"224, rotate bilinear, jitter, bf16 chw",
     128,
     224,
     224,
     224,
     -1,
     {4,
      {{.kind = TRAJD_AUGMENT_AFFINE,
        .probability = 1,
        .degrees = 5,
        .scale = {1, 1},
        .filter = TRAJD_IMAGE_LINEAR},
       JITTER},
      0},
     TRAJD_BF16,
     "imagenet",
     0},
};

int main(int argc, char **argv)
{
    struct bench b = {0};
    const struct trajd_device_info *info;

    must(trajd_device_open(0, &b.device, &error));
    must(trajd_device_stream_create(b.device, &b.stream, &error));
    trajd_device_facts(b.device, &b.facts);
    info = trajd_device_info(b.device);
    printf("%s, %u multiprocessors, L2 %.0f MiB\n", info->name, info->sm_count,
           (double)info->l2_size_bytes / (1 << 20));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (argc < 2 || strtoul(argv[1], NULL, 10) == i)
            bench_row(&b, &rows[i]);
    trajd_device_stream_destroy(&b.stream);
    trajd_device_close(&b.device);
    return 0;
}
