/* Records and replays graphs, and measures times on a GPU's stream. */
#include "gpu/device_graph.h"

#include <stdlib.h>

#ifdef TRAJD_WITH_CUDA
#include <cuda_runtime_api.h>

struct device_graph {
    cudaGraph_t recorded;
    cudaGraphExec_t ready;
};

static cudaEvent_t start, stop; /* of the timer */

int device_launch_nothing(int overlaps, void *stream); /* device_nothing.cu */

static cudaStream_t handle(const struct trajd_device_stream *stream)
{
    return trajd_device_stream_handle(stream);
}

static enum trajd_status check(struct trajd_error *error, cudaError_t code, const char *operation)
{
    if (code == cudaSuccess)
        return TRAJD_OK;
    cudaGetLastError(); /* clears the error, so that a later launch does not find it */
    return trajd_error_set(error, TRAJD_ERR_DEVICE, (int)code, "%s: %s", operation,
                           cudaGetErrorString(code));
}

enum trajd_status device_graph_begin(struct trajd_device_stream *stream, struct trajd_error *error)
{
    return check(error, cudaStreamBeginCapture(handle(stream), cudaStreamCaptureModeThreadLocal),
                 "beginning a graph");
}

enum trajd_status device_graph_end(struct trajd_device_stream *stream, struct device_graph **graph,
                                   struct trajd_error *error)
{
    struct device_graph *ended = *graph = calloc(1, sizeof *ended);
    cudaError_t code;

    if (!ended)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "a GPU graph: no memory");
    code = cudaStreamEndCapture(handle(stream), &ended->recorded);
    if (code == cudaSuccess)
        code = cudaGraphInstantiate(&ended->ready, ended->recorded, 0);
    if (code == cudaSuccess)
        code = cudaGraphUpload(ended->ready, handle(stream));
    if (code != cudaSuccess)
        device_graph_destroy(graph);
    return check(error, code, "ending a graph");
}

enum trajd_status device_graph_replay_async(struct device_graph *graph,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error)
{
    return check(error, cudaGraphLaunch(graph->ready, handle(stream)), "replaying a graph");
}

void device_graph_destroy(struct device_graph **graph)
{
    if (!*graph)
        return;
    if ((*graph)->ready)
        cudaGraphExecDestroy((*graph)->ready);
    if ((*graph)->recorded)
        cudaGraphDestroy((*graph)->recorded);
    free(*graph);
    *graph = NULL;
}

enum trajd_status device_timer_start(struct trajd_device_stream *stream, struct trajd_error *error)
{
    cudaError_t code = cudaSuccess;

    if (!start)
        code = cudaEventCreate(&start);
    if (code == cudaSuccess && !stop)
        code = cudaEventCreate(&stop);
    if (code == cudaSuccess)
        code = cudaEventRecord(start, handle(stream));
    return check(error, code, "starting a GPU timer");
}

enum trajd_status device_timer_stop(struct trajd_device_stream *stream, float *elapsed_us,
                                    struct trajd_error *error)
{
    float elapsed_ms = 0;
    cudaError_t code = cudaEventRecord(stop, handle(stream));

    if (code == cudaSuccess)
        code = cudaEventSynchronize(stop);
    if (code == cudaSuccess)
        code = cudaEventElapsedTime(&elapsed_ms, start, stop);
    *elapsed_us = elapsed_ms * 1000;
    return check(error, code, "stopping a GPU timer");
}

enum trajd_status device_run_nothing(int overlaps, struct trajd_device_stream *stream,
                                     struct trajd_error *error)
{
    return check(error, (cudaError_t)device_launch_nothing(overlaps, handle(stream)),
                 "launching nothing");
}
#else
static enum trajd_status refuse(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "GPU: built without CUDA");
}

enum trajd_status device_graph_begin(struct trajd_device_stream *stream, struct trajd_error *error)
{
    (void)stream;
    return refuse(error);
}

enum trajd_status device_graph_end(struct trajd_device_stream *stream, struct device_graph **graph,
                                   struct trajd_error *error)
{
    (void)stream;
    *graph = NULL;
    return refuse(error);
}

enum trajd_status device_graph_replay_async(struct device_graph *graph,
                                            struct trajd_device_stream *stream,
                                            struct trajd_error *error)
{
    (void)graph;
    (void)stream;
    return refuse(error);
}

void device_graph_destroy(struct device_graph **graph)
{
    *graph = NULL;
}

enum trajd_status device_timer_start(struct trajd_device_stream *stream, struct trajd_error *error)
{
    (void)stream;
    return refuse(error);
}

enum trajd_status device_timer_stop(struct trajd_device_stream *stream, float *elapsed_us,
                                    struct trajd_error *error)
{
    (void)stream;
    *elapsed_us = 0;
    return refuse(error);
}

enum trajd_status device_run_nothing(int overlaps, struct trajd_device_stream *stream,
                                     struct trajd_error *error)
{
    (void)overlaps;
    (void)stream;
    return refuse(error);
}
#endif
