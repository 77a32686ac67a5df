/* Measures transforms on the GPU behind the resampling of a policy's batch: 256 windows, rows in
 * float32, normalised float32 outputs. Graphs of launches, which are replayed; median of 9, in us a
 * batch. The rows and outputs stay in the L2 cache, as in the daemon.
 *
 *     bench_transforms_gpu [ROW]
 *
 * `rows`: the resampling alone. `both`: with the transforms. `ratio`: both / rows. `sums`: the time
 * of a chunk of summed differences, alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_graph.h"
#include "kernels/cuda/run.h"
#include "kernels/transform/cuda/transform_gpu.h"
#include "proto/array_len.h"

enum { SAMPLES = 9, LAUNCHES = 50, WINDOWS = 256, EPISODES = 200, ROWS = 400 };
#define SAMPLE_US 1000.0
#define ROW_NS 10000000

struct row {
    const char *name;
    uint32_t steps, columns;
    bool is_pose, is_before, per_step, is_blended, is_sum;
};

static const struct row rows[] = {
    {"openpi, 50 x 14", 50, 14, false, false, false, false, false},
    {"umi, 16 x 7 to 10", 16, 7, true, false, false, false, false},
    {"gr00t, 16 x 7 to 10, norm per step", 16, 7, true, false, true, false, false},
    {"poses from the step before, 16 x 7", 16, 7, true, true, false, false, false},
    {"umi between rows (blended), 16 x 7", 16, 7, true, false, false, true, false},
    {"umi, 100 x 7 to 10", 100, 7, true, false, false, false, false},
    {"sums, 16 x 7, 3 rows a step", 16, 7, false, false, false, false, true},
};

struct bench {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    const struct row *row;
    char *memory;
    uint64_t used, size_bytes;
    uint64_t random;
    struct trajd_clock clock;
    struct trajd_grid grids[2];
    struct trajd_bracket brackets[2];
    struct trajd_stream streams[3];
    struct trajd_resample_request request;
    struct trajd_transform transform;
    struct trajd_transform_gpu_job job;
};

static struct trajd_error error;

static void must(enum trajd_status status)
{
    if (!status)
        return;
    fprintf(stderr, "bench_transforms_gpu: %s: %s\n", trajd_status_name(status), error.message);
    exit(1);
}

static double draw(struct bench *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(b->random >> 11) / 0x1p52 - 1;
}

/* ---- arrays on the GPU ---- */

static void *take(struct bench *b, uint64_t size_bytes)
{
    char *at = b->memory + b->used;

    b->used += (size_bytes + 255) / 256 * 256;
    if (b->used > b->size_bytes)
        exit(3);
    return at;
}

static void *put(struct bench *b, const void *from, uint64_t size_bytes)
{
    void *to = take(b, size_bytes);

    must(trajd_device_copy_async(to, from, size_bytes, b->stream, &error));
    must(trajd_device_stream_wait(b->stream, &error));
    return to;
}

static void *put_floats(struct bench *b, uint64_t count)
{
    float *numbers = malloc(count * sizeof *numbers);
    void *to;

    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (float)draw(b);
    to = put(b, numbers, count * sizeof *numbers);
    free(numbers);
    return to;
}

static void make_clock(struct bench *b)
{
    int64_t *stamps = malloc(sizeof(int64_t) * EPISODES * ROWS);

    for (uint32_t i = 0; i < EPISODES * ROWS; i++)
        stamps[i] = (int64_t)(i % ROWS) * ROW_NS + (int64_t)(draw(b) * ROW_NS / 5) + ROW_NS;
    b->clock = (struct trajd_clock){.stamps_ns = put(b, stamps, sizeof(int64_t) * EPISODES * ROWS)};
    free(stamps);
}

/* Bracket 0: the anchor's row. Bracket 1: the chunk, on rows, or at times between them. */
static void make_brackets(struct bench *b)
{
    const bool in_rows = !b->row->is_blended && !b->row->is_sum;
    const int64_t zero = 0, step = in_rows ? 1 : b->row->is_sum ? 3 * ROW_NS : ROW_NS / 2 * 3;
    int64_t offsets[256], begin[WINDOWS], count[WINDOWS], row[WINDOWS], anchor_ns[WINDOWS];

    for (uint32_t t = 0; t < b->row->steps; t++)
        offsets[t] = t * step;
    for (uint32_t w = 0; w < WINDOWS; w++) {
        row[w] = (int64_t)((draw(b) + 1) / 2 * (ROWS - 160));
        begin[w] = (int64_t)((draw(b) + 1) / 2 * (EPISODES - 1)) * ROWS;
        count[w] = ROWS;
        anchor_ns[w] = (row[w] + 1) * ROW_NS;
    }
    b->grids[0] = (struct trajd_grid){
        .unit = TRAJD_GRID_ROWS, .step_count = 1, .offsets = put(b, &zero, sizeof zero)};
    b->grids[1] = (struct trajd_grid){.unit = in_rows ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
                                      .step_count = b->row->steps,
                                      .offsets = put(b, offsets, b->row->steps * sizeof *offsets)};
    for (uint32_t i = 0; i < 2; i++)
        b->brackets[i] =
            (struct trajd_bracket){.grid_index = i,
                                   .row_begin = put(b, begin, sizeof begin),
                                   .row_count = put(b, count, sizeof count),
                                   .anchor = put(b, i && !in_rows ? anchor_ns : row, sizeof row)};
}

/* Stream 0: an observation. 1: the state. 2: the actions. */
static void make_streams(struct bench *b)
{
    for (uint32_t s = 0; s < 3; s++) {
        const uint32_t steps = s == 2 ? b->row->steps : 1, columns = s == 0 ? 14 : b->row->columns;
        b->streams[s] = (struct trajd_stream){
            .bracket_index = s == 2,
            .kind = s == 2 && b->row->is_blended ? TRAJD_KIND_LINEAR : TRAJD_KIND_PREVIOUS,
            .source_type = TRAJD_F32,
            .feature_count = columns,
            .row_stride_bytes = columns * sizeof(float),
            .base = put_floats(b, (uint64_t)EPISODES * ROWS * columns),
            .max_gap_ns = -1,
            .max_age_ns = -1,
            .output_type = TRAJD_F32,
            .output = take(b, (uint64_t)WINDOWS * steps * columns * sizeof(float)),
            .window_stride_bytes = steps * columns * sizeof(float),
            .step_stride_bytes = columns * sizeof(float),
            .mask = take(b, WINDOWS * steps),
            .mask_window_stride_bytes = steps};
    }
    if (b->row->is_sum) {
        b->streams[2].total = TRAJD_TOTAL_STEP;
        b->streams[2].total_width = 3 * ROW_NS;
    }
    b->request = (struct trajd_resample_request){.window_count = WINDOWS,
                                                 .clock_count = 1,
                                                 .grid_count = 2,
                                                 .bracket_count = 2,
                                                 .stream_count = 3,
                                                 .clocks = &b->clock,
                                                 .grids = b->grids,
                                                 .brackets = b->brackets,
                                                 .streams = b->streams};
}

/* Poses: position and axis-angle relative to the state, rot6d, and a gripper. Else all columns but
 * the last, minus the state's. */
static void make_transform(struct bench *b)
{
    struct trajd_transform *t = &b->transform;
    const uint32_t columns = b->row->columns;

    *t = (struct trajd_transform){.column_count = columns,
                                  .reference_count = columns,
                                  .from_step_before = b->row->is_before,
                                  .part_count = b->row->is_pose ? 3 : 2,
                                  .output_count = b->row->is_pose ? columns + 3 : columns};
    t->parts[0] = (struct trajd_transform_part){.is_relative = true,
                                                .count = b->row->is_pose ? 3 : columns - 1,
                                                .output_count = b->row->is_pose ? 3 : columns - 1,
                                                .turned_by = b->row->is_pose ? 1 : -1};
    t->parts[1] = (struct trajd_transform_part){.kind = TRAJD_PART_ROTATION,
                                                .is_relative = true,
                                                .first = 3,
                                                .count = 3,
                                                .output_first = 3,
                                                .output_count = 6,
                                                .reference_first = 3,
                                                .from = TRAJD_ROTATION_AXIS_ANGLE,
                                                .to = TRAJD_ROTATION_ROT6D,
                                                .reference_form = TRAJD_ROTATION_AXIS_ANGLE,
                                                .turned_by = -1};
    t->parts[t->part_count - 1] = (struct trajd_transform_part){.first = columns - 1,
                                                                .count = 1,
                                                                .output_first = t->output_count - 1,
                                                                .output_count = 1,
                                                                .turned_by = -1};
}

static void make_job(struct bench *b)
{
    const uint32_t steps = b->row->steps, columns = b->transform.output_count,
                   norms = b->row->per_step ? columns * steps : columns;

    b->job = (struct trajd_transform_gpu_job){
        .job = {.transform = &b->transform,
                .step_count = steps,
                .source_type = TRAJD_F32,
                .reference_type = TRAJD_F32,
                .output_type = TRAJD_F32,
                .source = b->streams[2].output,
                .reference = b->streams[1].output,
                .reference_mask = b->streams[1].mask,
                .mask = take(b, WINDOWS * steps),
                .output = take(b, (uint64_t)WINDOWS * steps * columns * sizeof(float)),
                .scale = put_floats(b, norms),
                .offset = put_floats(b, norms),
                .norm_per_step = b->row->per_step},
        .source_mask = b->streams[2].mask};
}

/* ---- times ---- */

enum what { ROWS_ALONE, BOTH };

static void launch(struct bench *b, enum what what)
{
    void *stream = trajd_device_stream_handle(b->stream);

    must(trajd_cuda_run(&b->request, &b->facts, NULL, stream, &error));
    if (what == ROWS_ALONE)
        return;
    if (b->row->is_blended)
        must(trajd_transform_gpu_blend(&b->request, 2, 3, TRAJD_ROTATION_AXIS_ANGLE, &b->facts,
                                       stream, &error));
    must(trajd_transform_gpu_run(&b->job, 1, WINDOWS, &b->facts, stream, &error));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double measure(struct bench *b, enum what what)
{
    struct device_graph *graph;
    double us[SAMPLES];
    uint32_t replays = 1;

    launch(b, what); /* loads the kernels, which a graph does not record */
    must(trajd_device_stream_wait(b->stream, &error));
    must(device_graph_begin(b->stream, &error));
    for (int i = 0; i < LAUNCHES; i++)
        launch(b, what);
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
            us[i] = (double)elapsed_us / replays / LAUNCHES;
    }
    device_graph_destroy(&graph);
    qsort(us, SAMPLES, sizeof *us, by_value);
    return us[SAMPLES / 2];
}

static void bench_row(struct bench *b, const struct row *row)
{
    double alone, both;

    b->row = row;
    b->used = 0;
    make_clock(b);
    make_brackets(b);
    make_streams(b);
    make_transform(b);
    make_job(b);
    alone = measure(b, ROWS_ALONE);
    if (row->is_sum) {
        printf("%-40s %8.2f us\n", row->name, alone);
        return;
    }
    both = measure(b, BOTH);
    printf("%-40s %8.2f us rows  %8.2f us both  ratio %5.2f\n", row->name, alone, both,
           both / alone);
}

int main(int argc, char **argv)
{
    static struct bench b = {.random = 1, .size_bytes = UINT64_C(64) << 20};
    void *memory;

    if (trajd_device_count() == 0) {
        fprintf(stderr, "bench_transforms_gpu: no GPU here, or built without CUDA\n");
        return 77;
    }
    must(trajd_device_open(0, &b.device, &error));
    must(trajd_device_stream_create(b.device, &b.stream, &error));
    must(trajd_device_alloc(b.device, b.size_bytes, &memory, &error));
    b.memory = memory;
    trajd_device_facts(b.device, &b.facts);
    printf("%s\n", trajd_device_info(b.device)->name);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (argc < 2 || strstr(rows[i].name, argv[1]))
            bench_row(&b, &rows[i]);
    trajd_device_free(b.device, memory);
    trajd_device_stream_destroy(&b.stream);
    trajd_device_close(&b.device);
    return 0;
}
