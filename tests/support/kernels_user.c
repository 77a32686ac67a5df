/* A program of somebody else: built from the installed headers and libtrajd_kernels alone. Runs a
 * request of three kinds on two threads, compares it with the reference, counts allocations of the
 * runs, and prints what it found. tests/integration/test_kernels_library.py builds and reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trajd_kernels.h>

enum { WINDOWS = 600, ROWS = 40, STEPS = 25, RUNS = 50 };

static unsigned long allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(memory, size);
}

static int64_t stamps[WINDOWS * ROWS], offsets[WINDOWS * STEPS];
static int64_t row_begin[WINDOWS], row_count[WINDOWS], anchor[WINDOWS];
static float rows[WINDOWS * ROWS][7];
static float outputs[2][3][WINDOWS * STEPS][7];
static uint8_t masks[2][3][WINDOWS * STEPS];

static void fill(void)
{
    srand(7);
    for (int w = 0; w < WINDOWS; w++) {
        row_begin[w] = w * ROWS;
        row_count[w] = ROWS;
        for (int i = 0; i < ROWS; i++)
            stamps[w * ROWS + i] = 2000000 * i + rand() % 1000000;
        for (int t = 0; t < STEPS; t++)
            offsets[w * STEPS + t] = rand() % 90000000 - 5000000;
    }
    for (int i = 0; i < WINDOWS * ROWS * 7; i++)
        rows[0][i] = (float)rand() / (float)RAND_MAX - .5F;
}

static int run(void)
{
    const struct trajd_clock clock = {.stamps_ns = stamps};
    const struct trajd_grid grid = {
        .step_count = STEPS, .offsets = offsets, .offsets_per_window = STEPS};
    const struct trajd_bracket bracket = {
        .row_begin = row_begin, .row_count = row_count, .anchor = anchor};
    static const enum trajd_kind kinds[3] = {TRAJD_KIND_LINEAR, TRAJD_KIND_NEAREST,
                                             TRAJD_KIND_MEAN};
    struct trajd_stream streams[3];
    const struct trajd_resample_request request = {.window_count = WINDOWS,
                                                   .clock_count = 1,
                                                   .grid_count = 1,
                                                   .bracket_count = 1,
                                                   .stream_count = 3,
                                                   .clocks = &clock,
                                                   .grids = &grid,
                                                   .brackets = &bracket,
                                                   .streams = streams};
    struct trajd_kernels *kernels = NULL;
    struct trajd_kernels_plan *plan = NULL;
    struct trajd_error error;
    unsigned long before;

    memset(streams, 0, sizeof streams);
    for (int s = 0; s < 3; s++) {
        struct trajd_stream *stream = &streams[s];
        stream->kind = kinds[s];
        stream->source_type = stream->output_type = TRAJD_F32;
        stream->feature_count = 7;
        stream->row_stride_bytes = sizeof rows[0];
        stream->base = rows;
        stream->max_gap_ns = 3000000;
        stream->max_age_ns = -1;
        stream->mean_width = kinds[s] == TRAJD_KIND_MEAN ? 6000000 : 0;
        stream->output = outputs[0][s];
        stream->window_stride_bytes = sizeof outputs[0][0][0] * STEPS;
        stream->step_stride_bytes = sizeof outputs[0][0][0];
        stream->mask = masks[0][s];
        stream->mask_window_stride_bytes = STEPS;
    }
    if (trajd_kernels_open(&(struct trajd_kernels_options){.thread_count = 2}, &kernels, &error) ||
        trajd_kernels_plan_create(kernels, &request, NULL, &plan, &error)) {
        printf("error: %s\n", error.message);
        return 1;
    }
    before = allocations;
    for (int i = 0; i < RUNS; i++)
        if (trajd_kernels_run(plan, &request, NULL, &error))
            return printf("error: %s\n", error.message), 1;
    printf("allocations %lu\n", allocations - before);
    for (int s = 0; s < 3; s++) {
        streams[s].output = outputs[1][s];
        streams[s].mask = masks[1][s];
    }
    trajd_resample_reference(&request, 0, WINDOWS);
    printf("equal %d\n", !memcmp(outputs[0], outputs[1], sizeof outputs[0]) &&
                             !memcmp(masks[0], masks[1], sizeof masks[0]));
    printf("valid %d\n", masks[0][0][0] == TRAJD_MASK_VALID || masks[0][0][1] == TRAJD_MASK_VALID ||
                             masks[0][0][2] == TRAJD_MASK_VALID);
    printf("plan %s\n", trajd_kernels_plan_describe(plan));
    streams[1].reserved[3] = 1;
    printf("reserved %s\n",
           trajd_kernels_run(plan, &request, NULL, &error) ? error.message : "accepted");
    streams[1].reserved[3] = 0;
    printf("stream %s\n",
           trajd_kernels_run(plan, &request, &error, &error) ? error.message : "accepted");
    trajd_kernels_plan_destroy(&plan);
    trajd_kernels_close(&kernels);
    printf("gpu %s\n",
           trajd_kernels_open(
               &(struct trajd_kernels_options){.place = TRAJD_KERNELS_GPU, .gpu_ordinal = 99},
               &kernels, &error)
               ? trajd_status_name(error.status)
               : "opened");
    return 0;
}

int main(void)
{
    fill();
    return run();
}
