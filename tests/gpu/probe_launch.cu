/* Measures the CPU time to submit one small batch to a GPU in several ways, and to learn that it is
 * done. Prints one line per answer, for daemon/producer/README.md. Does not check the answers.
 *
 *   nvcc -O2 -arch=sm_90 -o probe_launch tests/gpu/probe_launch.cu && ./probe_launch
 *
 * The batch is like that of a feed: 40 KB of arrays are copied to the GPU, a kernel with 4 KB of
 * parameters reads them, and 6 KB of ids go into the slot. Eight batches are in flight. A second
 * thread polls the event of each batch. Between two batches the first thread is busy for 12 us, so
 * that the GPU does not wait for calls. */
#include <cuda_runtime.h>

#include <atomic>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH 8
#define SLOTS 16
#define BLOCK_BYTES 40000
#define IDS_BYTES 6144
#define VALUES 32768
#define BATCHES 40000
#define WARM_UP 2000
#define OTHERWISE_US 12.0

struct parameters {
    char bytes[3800];
};

struct submission {
    char *staging, *block; /* staging: pinned; block: on the GPU */
    cudaEvent_t over;
    cudaGraphExec_t graph; /* copy, kernel, copy */
};

static struct submission submissions[DEPTH];
static cudaStream_t stream;
static char *ids;
static float *values;
static std::atomic<uint64_t> launched, published;
static std::atomic<bool> stopping;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void need(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    printf("%s: %s\n", what, cudaGetErrorName(code));
    exit(1);
}

__global__ void make(const __grid_constant__ struct parameters parameters, const char *block,
                     float *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = block[i % BLOCK_BYTES] + parameters.bytes[i % sizeof parameters.bytes];
}

static void *publish_all(void *)
{
    need(cudaSetDevice(0), "device");
    while (!stopping) {
        const uint64_t number = published;
        if (number == launched) {
            sched_yield();
            continue;
        }
        while (cudaEventQuery(submissions[number % DEPTH].over) == cudaErrorNotReady)
            sched_yield();
        published++;
    }
    return NULL;
}

static void copy(void *to, const void *from, size_t size_bytes)
{
    need(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream), "copy");
}

static void launch(const char *block, uint64_t number)
{
    static struct parameters parameters;
    make<<<VALUES / 128, 128, 0, stream>>>(parameters, block, values + number % SLOTS * VALUES);
    need(cudaGetLastError(), "launch");
}

static void copies_and_launch(struct submission *submission, uint64_t number)
{
    copy(submission->block, submission->staging, BLOCK_BYTES);
    launch(submission->block, number);
    copy(ids + number % SLOTS * IDS_BYTES, submission->staging + BLOCK_BYTES, IDS_BYTES);
}

static void one_copy(struct submission *submission, uint64_t number)
{
    copy(submission->block, submission->staging, BLOCK_BYTES + IDS_BYTES);
    launch(submission->block, number);
}

static void no_copy(struct submission *submission, uint64_t number)
{
    launch(submission->staging, number);
}

static void graph(struct submission *submission, uint64_t)
{
    need(cudaGraphLaunch(submission->graph, stream), "graph");
}

static void measure(const char *name, void (*give)(struct submission *, uint64_t))
{
    double calls_us = 0;
    pthread_t publisher;

    launched = published = 0;
    stopping = false;
    pthread_create(&publisher, NULL, publish_all, NULL);
    for (uint64_t number = 0; number < BATCHES; number++) {
        struct submission *submission = &submissions[number % DEPTH];
        while (launched - published >= DEPTH)
            ;
        const double begin_us = now_us();
        give(submission, number);
        need(cudaEventRecord(submission->over, stream), "event");
        const double end_us = now_us();
        calls_us += number < WARM_UP ? 0 : end_us - begin_us;
        launched++;
        while (now_us() - end_us < OTHERWISE_US)
            ;
    }
    while (published < BATCHES)
        ;
    stopping = true;
    pthread_join(publisher, NULL);
    printf("%s: %.1f us\n", name, calls_us / (BATCHES - WARM_UP));
}

static void prepare(struct submission *submission)
{
    cudaGraph_t recorded;

    need(
        cudaHostAlloc((void **)&submission->staging, BLOCK_BYTES + IDS_BYTES, cudaHostAllocDefault),
        "pinned memory");
    memset(submission->staging, 0, BLOCK_BYTES + IDS_BYTES);
    need(cudaMalloc((void **)&submission->block, BLOCK_BYTES + IDS_BYTES), "memory");
    need(cudaEventCreateWithFlags(&submission->over, cudaEventDisableTiming), "event");
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    copies_and_launch(submission, 0);
    need(cudaStreamEndCapture(stream, &recorded), "capture");
    need(cudaGraphInstantiate(&submission->graph, recorded, 0), "graph");
}

int main(void)
{
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    need(cudaMalloc((void **)&ids, SLOTS * IDS_BYTES), "memory");
    need(cudaMalloc((void **)&values, SLOTS * VALUES * sizeof(float)), "memory");
    for (int i = 0; i < DEPTH; i++)
        prepare(&submissions[i]);
    measure("copy, launch, copy, event", copies_and_launch);
    measure("one copy, launch, event", one_copy);
    measure("launch that reads pinned memory, event", no_copy);
    measure("a graph of copy, launch, copy; event", graph);
    return 0;
}
