/* Graphs and timers on a GPU's stream, and the launch of an empty kernel: for benchmarks, and for
 * tests of what is recorded. In a build without CUDA all functions fail with
 * TRAJD_ERR_UNSUPPORTED. */
#ifndef TRAJD_TESTS_DEVICE_GRAPH_H
#define TRAJD_TESTS_DEVICE_GRAPH_H

#include "kernels/device.h"

struct device_graph;

/* Between begin and end, records the stream's work into a graph instead of running it. One call
 * replays the graph. */
enum trajd_status device_graph_begin(struct trajd_device_stream *stream, struct trajd_error *error);
enum trajd_status device_graph_end(struct trajd_device_stream *stream, struct device_graph **graph,
                                   struct trajd_error *error);
enum trajd_status device_graph_replay_async(struct device_graph *graph,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error);
void device_graph_destroy(struct device_graph **graph);

/* Measures the device time between two points of a stream. device_timer_stop waits. There is one
 * timer in a program. */
enum trajd_status device_timer_start(struct trajd_device_stream *stream, struct trajd_error *error);
enum trajd_status device_timer_stop(struct trajd_device_stream *stream, float *elapsed_us,
                                    struct trajd_error *error);

/* Launches an empty kernel: the lower bound of all times. overlaps: as in a shape. */
enum trajd_status device_run_nothing(int overlaps, struct trajd_device_stream *stream,
                                     struct trajd_error *error);

#endif
