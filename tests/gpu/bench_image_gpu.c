/* Measures images on the GPU: cold (buffers in turn, several times the L2), as graphs that are
 * replayed, median of 9, in us a launch. A copy moves as many bytes as the work must: the part of each
 * source that is used, and the tensors.
 *
 *     bench_image_gpu [ROW]    the rows of kernels/image/cuda/README.md, and all ways to cut them
 *     bench_image_gpu grid     many shapes, a line each way; image_regret.py reads two such runs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/device_graph.h"
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
    void *ordered_tables;
    uint64_t source_bytes, output_bytes, needed_bytes;
    uint32_t set_count;
    double copy_us;
    char *sources, *outputs, *records; /* of all sets */
};

static struct trajd_error error;
static bool is_grid;

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
    struct device_graph *graph;
    double us[SAMPLES];
    uint32_t replays = 1;

    run(b, 0, context); /* sets attributes, which a graph does not record */
    must(trajd_device_stream_wait(b->stream, &error));
    must(device_graph_begin(b->stream, &error));
    for (uint32_t i = 0; i < b->set_count; i++)
        run(b, i, context);
    must(device_graph_end(b->stream, &graph, &error));
    for (int i = -2; i < SAMPLES; i++) {
        float elapsed_us;
        must(device_timer_start(b->stream, &error));
        for (uint32_t k = 0; k < replays; k++)
            must(device_graph_replay_async(graph, b->stream, &error));
        must(device_timer_stop(b->stream, &elapsed_us, &error));
        if (i == -2 && (double)elapsed_us < SAMPLE_US)
            replays = (uint32_t)(SAMPLE_US / (double)elapsed_us) + 1;
        if (i >= 0)
            us[i] = (double)elapsed_us / replays / b->set_count;
    }
    device_graph_destroy(&graph);
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

    must_launch(trajd_image_launch_resize(&b->program, context, b->ordered_tables, &launch,
                                          trajd_device_stream_handle(b->stream)));
}

static void run_matrix(struct bench *b, uint32_t set, const void *context)
{
    const struct trajd_image_launch launch = launch_of(b, set);

    must_launch(trajd_image_launch_matrix(&b->program, context, b->ordered_tables, &launch,
                                          trajd_device_stream_handle(b->stream)));
}

static void run_crop(struct bench *b, uint32_t set, const void *context)
{
    struct trajd_image_launch launch = launch_of(b, set);
    void *stream = trajd_device_stream_handle(b->stream);

    launch.own_tables = b->ordered_tables;
    must_launch(trajd_image_launch_boxes(&b->program, &launch, stream));
    must_launch(trajd_image_launch_crop(&b->program, context, &launch, stream));
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

/* Prints one way's time: in a grid as a line of its own. */
static void print_time(const struct bench *b, const char *what, double us)
{
    if (is_grid)
        printf("grid; %s, %u frames; %s; %.2f; %.2f\n", b->row->name, b->row->frames, what, us,
               us / b->copy_us);
    else
        printf("    %-52s %8.1f us  %5.2f copies\n", what, us, us / b->copy_us);
    fflush(stdout);
}

static void bench_strips(struct bench *b, enum trajd_image_strip_colors colors)
{
    static const char *const names[] = {"plain", "steps", "ordered"};

    for (uint32_t blocks = 1; blocks <= 32; blocks *= 2) {
        struct trajd_image_strip strip = {.colors = colors};
        char what[96];
        if (!trajd_image_strip_cut(&b->program, blocks, &strip) ||
            (b->program.mean_count && blocks > 8))
            continue;
        snprintf(what, sizeof what, "strip %s, %u blocks a frame, %u bytes", names[colors],
                 strip.blocks, strip.shared_bytes);
        print_time(b, what, measure(b, run_strip, &strip));
    }
}

static void take_tables(struct bench *b, uint32_t *words, uint32_t count)
{
    b->ordered_tables = take(b, count * sizeof *words);
    must(trajd_device_copy_async(b->ordered_tables, words, count * sizeof *words, b->stream,
                                 &error));
    must(trajd_device_stream_wait(b->stream, &error));
    free(words);
}

static void bench_resize(struct bench *b, uint32_t threads, uint32_t blocks)
{
    struct trajd_image_resize r;
    uint32_t *words;
    char what[96];

    if (!trajd_image_resize_cut(&b->program, b->host_tables, threads, blocks,
                                TRAJD_IMAGE_CHUNKS_MAX, &r))
        return;
    words = malloc(r.words * sizeof *words);
    trajd_image_resize_fill(&b->program, b->host_tables, &r, words);
    take_tables(b, words, r.words);
    trajd_image_resize_divide(b->row->frames, b->facts.sm_count * blocks, &r);
    snprintf(what, sizeof what, "resize 1:%u x %u, %u chunks, %u strips", threads / 32, blocks,
             r.chunks, r.strips);
    print_time(b, what, measure(b, run_resize, &r));
    trajd_device_free(b->device, b->ordered_tables);
}

/* `strips` 0: as the kernel would be divided. */
static void bench_matrix(struct bench *b, uint32_t warps, uint32_t chunks, uint32_t strips)
{
    struct trajd_image_matrix m;
    uint32_t *words;
    char what[96];

    if (!trajd_image_matrix_cut(&b->program, b->host_tables, warps, chunks, &m))
        return;
    words = malloc(m.words * sizeof *words);
    trajd_image_matrix_fill(&b->program, b->host_tables, &m, words);
    take_tables(b, words, m.words);
    trajd_image_matrix_divide(b->row->frames, b->facts.sm_count * m.blocks, &m);
    if (strips) {
        m.strip_tiles = (m.row_tiles - 1) / strips + 1;
        m.strips = (m.row_tiles - 1) / m.strip_tiles + 1;
    }
    snprintf(what, sizeof what, "matrix %ux%ux%u, 1:%u, %u chunks, %u strips", m.tiles, m.steps,
             m.live, m.warps, m.chunks, m.strips);
    print_time(b, what, measure(b, run_matrix, &m));
    trajd_device_free(b->device, b->ordered_tables);
}

static void bench_resizes(struct bench *b)
{
    static const uint32_t cuts[][2] = {{256, 2}, {128, 4}, {512, 1}};

    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        bench_resize(b, cuts[i][0], cuts[i][1]);
    for (uint32_t warps = 7; warps >= 4; warps--)
        bench_matrix(b, warps, 8, 0);
    for (uint32_t chunks = 4; chunks <= 16 && !is_grid; chunks *= 2)
        bench_matrix(b, UINT32_MAX, chunks, 0);
    for (uint32_t strips = 1; strips <= 4; strips *= 2)
        bench_matrix(b, UINT32_MAX, 8, strips);
}

static void bench_crops(struct bench *b)
{
    b->ordered_tables =
        take(b, (uint64_t)b->row->frames * b->program.own_table_words * sizeof(uint32_t));
    for (uint32_t warps = 5; warps >= 3; warps--) {
        struct trajd_image_matrix m;
        char what[96];
        if (!trajd_image_crop_cut(&b->program, warps, TRAJD_IMAGE_CHUNKS_MAX, &m))
            continue;
        trajd_image_matrix_divide(b->row->frames, b->facts.sm_count * m.blocks, &m);
        snprintf(what, sizeof what, "crop %u steps, 1:%u, %u strips", m.steps, m.warps, m.strips);
        print_time(b, what, measure(b, run_crop, &m));
    }
    trajd_device_free(b->device, b->ordered_tables);
}

/* Measures the kernels of a name, if they serve the row. */
static void bench_plan(struct bench *b, const char *requested)
{
    struct trajd_image_gpu *plan;
    const char *name, *why;
    char what[64];
    double us;

    b->spec.requested = requested;
    must(trajd_image_gpu_create(b->device, &b->spec, b->row->frames, &plan, &error));
    name = trajd_image_gpu_variant(plan, &why);
    if (!requested || strcmp(name, "general") || !strcmp(requested, "general")) {
        us = measure(b, run_plan, &plan);
        snprintf(what, sizeof what, "%s %s",
                 requested ? "plan" : "chosen:", requested ? requested : name);
        print_time(b, what, us);
        if (!requested && b->row->budget > 0)
            printf("    budget %.1f copies: %s\n", b->row->budget,
                   us <= b->row->budget * b->copy_us ? "met" : "MISSED");
    }
    trajd_image_gpu_destroy(&plan);
}

static void bench_row(struct bench *b, const struct row *row)
{
    static const char *const names[] = {"strip", "resize", "matrix", "crop", "general"};
    struct trajd_image_choice choice;

    *b = (struct bench){.device = b->device, .stream = b->stream, .facts = b->facts};
    make_spec(b, row);
    make_sets(b);
    b->copy_us = measure_copy(b);
    if (!is_grid)
        printf("%s\n    %u frames, %.1f MB, %u sets: copy %.1f us, %.2f TB/s\n", row->name,
               row->frames, (double)b->needed_bytes / 1e6, b->set_count, b->copy_us,
               (double)b->needed_bytes / b->copy_us / 1e6);
    bench_plan(b, NULL);
    for (size_t i = 0; i < ARRAY_LEN(names) && !is_grid; i++)
        bench_plan(b, names[i]);
    trajd_image_choose(&b->program, b->host_tables, &b->facts, row->frames, NULL, &choice);
    if (choice.variant == TRAJD_IMAGE_STRIP) {
        const enum trajd_image_strip_colors most = trajd_image_strip_colors_of(&b->program);
        const enum trajd_image_strip_colors least = most ? TRAJD_IMAGE_STRIP_STEPS : most;
        for (uint32_t colors = least; colors <= most; colors++)
            bench_strips(b, (enum trajd_image_strip_colors)colors);
    } else if (b->program.step_count == 1 && b->program.steps[0].op == TRAJD_IMAGE_OP_FILTER) {
        if (b->program.steps[0].has_own_tables)
            bench_crops(b);
        else if (!b->program.steps[0].rounds_between)
            bench_resizes(b);
    }
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

/* Shapes around the rows: sizes, numbers of frames, types and colours. */
static void bench_grid(struct bench *b)
{
    static const uint32_t resizes[][3] = {{96, 128, 84},   {128, 128, 96},  {256, 256, 224},
                                          {256, 256, 128}, {240, 320, 224}, {240, 320, 96},
                                          {360, 640, 224}, {480, 640, 256}, {480, 640, 224},
                                          {480, 640, 128}, {480, 640, 96},  {720, 1280, 224}};
    static const uint32_t crops[][2] = {{84, 76}, {128, 112}, {240, 224}, {256, 224}};
    static const uint32_t frames[] = {8, 64, 512};
    static const struct trajd_augment_step colors[] = {JITTER,
                                                       COLOR(TRAJD_AUGMENT_HUE, -0.08, 0.08)};
    static const enum trajd_dtype types[] = {TRAJD_BF16, TRAJD_U8, TRAJD_F32};
    char name[96];

    for (size_t i = 0; i < ARRAY_LEN(resizes) * ARRAY_LEN(frames); i++) {
        const uint32_t *r = resizes[i / ARRAY_LEN(frames)];
        const enum trajd_dtype type = types[i % 7 % 3];
        const struct row row = {name,
                                frames[i % ARRAY_LEN(frames)],
                                r[0],
                                r[1],
                                r[2],
                                TRAJD_IMAGE_PILLOW_BILINEAR,
                                {0},
                                type,
                                type == TRAJD_U8 ? "none" : "imagenet",
                                0};
        snprintf(name, sizeof name, "%ux%u to %u, %s", r[1], r[0], r[2], trajd_dtype_name(type));
        bench_row(b, &row);
    }
    for (size_t i = 0; i < ARRAY_LEN(crops) * ARRAY_LEN(frames) * 3; i++) {
        const uint32_t *c = crops[i / 3 / ARRAY_LEN(frames)];
        struct row row = {name,
                          frames[i / 3 % ARRAY_LEN(frames)],
                          c[0],
                          c[0],
                          c[1],
                          -1,
                          {1, {CROP(c[1])}, 0},
                          TRAJD_BF16,
                          "imagenet",
                          0};
        const uint32_t count = i % 3 ? (uint32_t)(2 + i % 3) : 0;
        memcpy(&row.augment.steps[1], colors, count * sizeof *colors);
        row.augment.count += count;
        snprintf(name, sizeof name, "%u crop %u, %u colours", c[0], c[1], count);
        bench_row(b, &row);
    }
}

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
    is_grid = argc > 1 && !strcmp(argv[1], "grid");
    if (is_grid)
        bench_grid(&b);
    for (size_t i = 0; i < ARRAY_LEN(rows) && !is_grid; i++)
        if (argc < 2 || strtoul(argv[1], NULL, 10) == i)
            bench_row(&b, &rows[i]);
    trajd_device_stream_destroy(&b.stream);
    trajd_device_close(&b.device);
    return 0;
}
