/* Measures launches as graphs that are replayed, and one by one. */
#include "tests/bench/resample_bench.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE_US 700.0 /* least device time of a sample */

void bench_launch(struct bench *b, const struct bench_set *set,
                  const struct trajd_cuda_shape *shape)
{
    bench_must(trajd_cuda_run(&set->request, &b->facts, shape,
                              trajd_device_stream_handle(b->stream), &bench_error));
}

int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void set_median(struct bench_sample *sample)
{
    double sorted[BENCH_SAMPLES];

    memcpy(sorted, sample->us, sizeof sorted);
    qsort(sorted, BENCH_SAMPLES, sizeof sorted[0], bench_by_value);
    sample->median_us = sorted[BENCH_SAMPLES / 2];
}

/* Replays a graph of `count` launches often enough for a sample, BENCH_SAMPLES times. */
static void time_graph(struct bench *b, struct device_graph *graph, uint32_t count,
                       struct bench_sample *sample)
{
    float elapsed_us = 0;
    uint32_t replays = 1;

    for (int i = -2; i < BENCH_SAMPLES; i++) {
        bench_must(device_timer_start(b->stream, &bench_error));
        for (uint32_t r = 0; r < replays; r++)
            bench_must(device_graph_replay_async(graph, b->stream, &bench_error));
        bench_must(device_timer_stop(b->stream, &elapsed_us, &bench_error));
        if (i == -2)
            replays = elapsed_us < SAMPLE_US ? (uint32_t)(SAMPLE_US / (double)elapsed_us) + 1 : 1;
        if (i >= 0)
            sample->us[i] = (double)elapsed_us / replays / count;
    }
    set_median(sample);
}

void bench_time_shape(struct bench *b, const struct trajd_cuda_shape *shape,
                      enum bench_temperature temperature, struct bench_sample *sample)
{
    struct device_graph *graph;
    uint32_t count = b->set_count < 50 && temperature == BENCH_HOT ? 50 : b->set_count;

    bench_must(device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < count; i++)
        bench_launch(b, &b->sets[temperature == BENCH_HOT ? 0 : i], shape);
    bench_must(device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, count, sample);
    device_graph_destroy(&graph);
}

void bench_time_single(struct bench *b, const struct trajd_cuda_shape *shape,
                       struct bench_sample *sample)
{
    float elapsed_us;

    for (int i = 0; i < BENCH_SAMPLES; i++) {
        bench_must(device_timer_start(b->stream, &bench_error));
        for (uint32_t k = 0; k < b->set_count; k++)
            bench_launch(b, &b->sets[k], shape);
        bench_must(device_timer_stop(b->stream, &elapsed_us, &bench_error));
        sample->us[i] = (double)elapsed_us / b->set_count;
    }
    set_median(sample);
}

/* A pure write of the same outputs, in turns. */
void bench_time_write(struct bench *b, struct bench_sample *sample)
{
    struct device_graph *graph;

    bench_must(device_graph_begin(b->stream, &bench_error));
    for (uint32_t k = 0; k < b->set_count; k++) {
        void *output = b->sets[k].streams[0].output;
        bench_must(trajd_device_fill_async(output, 1, b->output_bytes, b->stream, &bench_error));
    }
    bench_must(device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, b->set_count, sample);
    device_graph_destroy(&graph);
}

double bench_time_copy_gb_s(struct bench *b)
{
    const uint64_t half = BENCH_SETS_BYTES / 2;
    struct device_graph *graph;
    struct bench_sample sample;

    bench_must(device_graph_begin(b->stream, &bench_error));
    bench_must(trajd_device_copy_async(b->sets_memory, b->sets_memory + half, half, b->stream,
                                       &bench_error));
    bench_must(device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, 1, &sample);
    device_graph_destroy(&graph);
    return 2.0 * (double)half / sample.median_us / 1000;
}

double bench_time_nothing_us(struct bench *b, int overlaps)
{
    struct device_graph *graph;
    struct bench_sample sample;

    bench_must(device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < 100; i++)
        bench_must(device_run_nothing(overlaps, b->stream, &bench_error));
    bench_must(device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, 100, &sample);
    device_graph_destroy(&graph);
    return sample.median_us;
}

double bench_quick_us(struct bench *b, const struct trajd_cuda_shape *shape)
{
    struct device_graph *graph;
    float elapsed_us = 0;

    bench_must(device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < b->set_count; i++)
        bench_launch(b, &b->sets[i], shape);
    bench_must(device_graph_end(b->stream, &graph, &bench_error));
    for (int i = 0; i < 2; i++) {
        bench_must(device_timer_start(b->stream, &bench_error));
        bench_must(device_graph_replay_async(graph, b->stream, &bench_error));
        bench_must(device_timer_stop(b->stream, &elapsed_us, &bench_error));
    }
    device_graph_destroy(&graph);
    return (double)elapsed_us / b->set_count;
}
