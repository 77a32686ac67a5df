/* Runs a block in parts, by the threads of a pool or on a GPU. */
#include "kernels/dispatch/runner.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch/choose.h"
#include "kernels/pool.h"
#include "kernels/cpu/cpu.h"

/* Several parts per thread, so that threads wait less for each other. */
enum { ALIGNMENT = 64, PARTS_PER_THREAD = 4 };

static const uint64_t room_step_bytes = UINT64_C(1) << 20;

struct trajd_runner {
    struct trajd_device *device; /* NULL: the CPU */
    struct trajd_pool *pool;     /* CPU only; may be NULL */
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    uint8_t *room;   /* pinned if there is a GPU */
    void *on_device; /* GPU memory of the same size */
    uint64_t room_bytes;
    struct trajd_block block;
    uint32_t part_steps; /* steps per part, for a block that runs on the CPU */
};

/* The block's request, limited to some of its steps. */
struct part {
    struct trajd_grid grid;
    struct trajd_resample_request request;
    struct trajd_stream streams[TRAJD_BLOCK_MAX_STREAMS];
};

enum trajd_status trajd_runner_create(struct trajd_device *device, struct trajd_pool *pool,
                                      struct trajd_runner **out, struct trajd_error *error)
{
    struct trajd_runner *runner = calloc(1, sizeof *runner);
    struct trajd_choice choice;
    enum trajd_status status = TRAJD_OK;

    *out = runner;
    if (!runner)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "block runner: no memory");
    runner->device = device;
    runner->pool = pool;
    runner->facts.cpu_threads = 1;
    if (device) {
        trajd_device_facts(device, &runner->facts);
        status = trajd_device_enter(device, error);
        if (!status &&
            trajd_choose(&(struct trajd_problem){0}, &runner->facts, "cuda", &choice, NULL))
            status = trajd_error_set(
                error, TRAJD_ERR_UNSUPPORTED, 0, "%s: no kernel is built for compute capability %u",
                trajd_device_info(device)->name, runner->facts.compute_capability);
    }
    if (device && !status)
        status = trajd_device_stream_create(device, &runner->stream, error);
    if (status)
        trajd_runner_destroy(out);
    return status;
}

void trajd_runner_trim(struct trajd_runner *runner)
{
    if (runner->device && runner->on_device)
        trajd_device_free(runner->device, runner->on_device);
    if (runner->device && runner->room)
        trajd_device_host_free(runner->device, runner->room);
    else
        free(runner->room);
    runner->on_device = runner->room = NULL;
    runner->room_bytes = 0;
}

void trajd_runner_destroy(struct trajd_runner **out)
{
    struct trajd_runner *runner = *out;

    *out = NULL;
    if (!runner)
        return;
    trajd_runner_trim(runner);
    if (runner->stream)
        trajd_device_stream_destroy(&runner->stream);
    free(runner);
}

enum trajd_status trajd_runner_room(struct trajd_runner *runner, uint64_t size_bytes, void **room,
                                    struct trajd_error *error)
{
    const uint64_t bytes = (size_bytes + room_step_bytes - 1) / room_step_bytes * room_step_bytes;
    enum trajd_status status = TRAJD_OK;

    if (size_bytes > TRAJD_BLOCK_MAX_BYTES)
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0, "a block of %llu bytes is too large (at most %llu)",
            (unsigned long long)size_bytes, (unsigned long long)TRAJD_BLOCK_MAX_BYTES);
    if (bytes > runner->room_bytes) {
        trajd_runner_trim(runner);
        if (runner->device) {
            status = trajd_device_host_alloc(runner->device, bytes, (void **)&runner->room, error);
            if (!status)
                status = trajd_device_alloc(runner->device, bytes, &runner->on_device, error);
        } else {
            runner->room = aligned_alloc(ALIGNMENT, bytes);
            if (!runner->room)
                status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                         "no memory for a block of %llu bytes",
                                         (unsigned long long)bytes);
        }
        if (status) {
            trajd_runner_trim(runner);
            return status;
        }
        runner->room_bytes = bytes;
    }
    *room = runner->room;
    return TRAJD_OK;
}

static void run_part(void *context, uint32_t index)
{
    const struct trajd_runner *runner = context;
    const struct trajd_block *block = &runner->block;
    const uint32_t begin = index * runner->part_steps, remaining = block->grid.step_count - begin;
    struct part part;

    part.grid = block->grid;
    part.request = block->request;
    part.grid.offsets += begin;
    part.grid.step_count = remaining < runner->part_steps ? remaining : runner->part_steps;
    for (uint32_t s = 0; s < block->request.stream_count; s++) {
        part.streams[s] = block->streams[s];
        part.streams[s].output =
            (uint8_t *)part.streams[s].output + begin * part.streams[s].step_stride_bytes;
        if (part.streams[s].mask)
            part.streams[s].mask += begin;
    }
    part.request.grids = &part.grid;
    part.request.streams = part.streams;
    trajd_resample_cpu(&part.request, 0, 1);
}

/* Runs the block on the CPU. A block is one window, so the threads share its steps. Parts begin
 * where chunks of the CPU variant begin, so the result has the same bytes for any number of
 * threads. */
static void run_on_cpu(struct trajd_runner *runner)
{
    const uint32_t steps = runner->block.grid.step_count,
                   parts = trajd_pool_thread_count(runner->pool) * PARTS_PER_THREAD;
    const uint32_t chunks = (steps - 1) / TRAJD_CPU_CHUNK_STEPS + 1;

    runner->part_steps = ((chunks - 1) / parts + 1) * TRAJD_CPU_CHUNK_STEPS;
    trajd_pool_run(runner->pool, (steps - 1) / runner->part_steps + 1, run_part, runner);
}

static enum trajd_status run_on_gpu(struct trajd_runner *runner, uint64_t size_bytes,
                                    struct trajd_error *error)
{
    const struct trajd_block *block = &runner->block;
    uint8_t *answer = (uint8_t *)runner->on_device + block->answer_at;
    struct trajd_plan *plan = NULL;
    struct trajd_error later;
    enum trajd_status status =
                          trajd_plan_create(&block->request, &runner->facts, NULL, &plan, error),
                      waited;

    if (!status)
        status = trajd_device_enter(runner->device, error);
    if (!status)
        status = trajd_device_copy_async(runner->on_device, runner->room, size_bytes,
                                         runner->stream, error);
    if (!status)
        status = trajd_plan_run_async(plan, &block->request, runner->stream, error);
    if (!status)
        status = trajd_device_copy_async(runner->room + block->answer_at, answer,
                                         block->answer_bytes, runner->stream, error);
    /* wait even after an error: work that was queued reads the room */
    waited = trajd_device_stream_wait(runner->stream, status ? &later : error);
    trajd_plan_destroy(&plan);
    return status ? status : waited;
}

enum trajd_status trajd_runner_run(struct trajd_runner *runner, uint64_t size_bytes,
                                   uint64_t *answer_at, uint64_t *answer_bytes,
                                   struct trajd_error *error)
{
    struct trajd_block *block = &runner->block;
    enum trajd_status status;

    if (size_bytes > runner->room_bytes)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "a block is larger than the memory reserved for it");
    status = trajd_block_open(runner->room, size_bytes,
                              runner->device ? runner->on_device : runner->room, block, error);
    if (status)
        return status;
    /* clear the bytes between outputs, which otherwise hold data of an earlier block */
    memset(runner->room + block->answer_at, 0, block->answer_bytes);
    *answer_at = block->answer_at;
    *answer_bytes = block->answer_bytes;
    if (runner->device)
        return run_on_gpu(runner, size_bytes, error);
    run_on_cpu(runner);
    return TRAJD_OK;
}
