/* Chooses the CPU, the GPU or a daemon for a conversion by their estimated times, and runs
 * blocks on it. */
#include "clients/cli/resample/convert_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/memory.h"
#include "kernels/dispatch/choose.h"
#include "kernels/dispatch/runner.h"

enum { SAMPLE_STEPS = 4096, THREADS_BESIDE_MAX = 8 };

/* Constants of the rule that chooses a backend. For a GPU, rows are copied twice more, at about
 * copy_bytes_per_s. A CUDA context takes a quarter of a second to create (H200,
 * tests/gpu/test_backends.py), a request to a daemon nearly nothing. */
static const double copy_bytes_per_s = 8e9, cuda_start_s = 0.25, daemon_start_s = 0.05;
static const double worth = 0.8; /* a GPU must need less than this share of the CPU's time */

static uint32_t count_threads(const struct trajd_convert_options *options)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t count = options->thread_count ? options->thread_count
                           : processors > 0      ? (uint32_t)processors
                                                 : 1;

    return count > CONVERT_THREADS_MAX ? CONVERT_THREADS_MAX : count;
}

uint32_t convert_backend_threads(const struct convert_backend *backend)
{
    return backend->kind != TRAJD_CONVERT_CPU && backend->thread_count > THREADS_BESIDE_MAX
               ? THREADS_BESIDE_MAX
               : backend->thread_count;
}

/* ---- the rule ---- */

/* Returns the time that one thread needs for one step of all streams, from the costs that the
 * kernels choose with. */
static double step_ns(const struct convert_plan *plan)
{
    const struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = SAMPLE_STEPS};
    const struct trajd_bracket bracket = {0};
    double ns = 0;

    for (uint32_t d = 0; d < plan->dataset_count; d++)
        for (uint32_t l = 0; l < plan->datasets[d].lane_count && !plan->datasets[d].is_encoded;
             l++) {
            const struct convert_lane *lane = &plan->datasets[d].lanes[l];
            const struct trajd_stream stream = {.kind = lane->stream->kind,
                                                .source_type = plan->datasets[d].from,
                                                .output_type = plan->datasets[d].to,
                                                .feature_count = (uint32_t)lane->column_count};
            const struct trajd_resample_request shape = {.window_count = 1,
                                                         .grid_count = 1,
                                                         .bracket_count = 1,
                                                         .stream_count = 1,
                                                         .grids = &grid,
                                                         .brackets = &bracket,
                                                         .streams = &stream};
            struct trajd_problem problem;
            trajd_problem_of(&shape, &problem);
            ns += problem.cpu_ns / SAMPLE_STEPS;
        }
    return ns;
}

/* Returns the bytes of all rows, read and written. */
static double moved_bytes(const struct convert_plan *plan)
{
    double bytes = (double)plan->byte_count;

    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++) {
            const struct convert_array *array = &plan->episodes[e].arrays[a];
            if (plan->episodes[e].part == 0) /* parts share their episode's rows */
                bytes += (double)array->rows * (double)plan->datasets[array->dataset].source_bytes;
        }
    return bytes;
}

/* ---- choosing ---- */

static enum trajd_status use_daemon(struct convert_backend *backend, bool only_gpu,
                                    struct trajd_error *error)
{
    struct convert_remote *remote;
    char device[TRAJD_DEVICE_NAME_SIZE];
    enum trajd_status status = TRAJD_OK;

    if (strncmp(backend->directory, "tcp://", 6) == 0)
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s: only a daemon on this machine can resample rows: use --backend cpu or cuda",
            backend->directory);
    status = convert_remote_create(backend->directory, backend->cancel, device, &remote, error);
    convert_remote_destroy(&remote);
    if (!status && only_gpu && !*device)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "the daemon at %s has no GPU",
                               backend->directory);
    if (status)
        return status;
    backend->kind = TRAJD_CONVERT_DAEMON;
    backend->is_on_gpu = *device != 0;
    snprintf(backend->text, sizeof backend->text, "the daemon at %.150s, on its %s",
             backend->directory, *device ? device : "CPU");
    return TRAJD_OK;
}

static enum trajd_status use_cuda(struct convert_backend *backend, struct trajd_error *error)
{
    static const char instead[] =
        "use --backend daemon for a running daemon, or --backend cpu for this CPU";
    struct trajd_runner *runner = NULL;
    enum trajd_status status = trajd_device_open(0, &backend->device, error);

    if (!trajd_device_count())
        return status == TRAJD_ERR_UNSUPPORTED
                   ? trajd_error_set(error, status, 0,
                                     "--backend cuda: this trajctl is built without CUDA: %s",
                                     instead)
                   : trajd_error_set(
                         error, TRAJD_ERR_NOT_FOUND, 0,
                         "--backend cuda: there is no GPU that this process can use: %s", instead);
    if (!status)
        status = trajd_runner_create(backend->device, NULL, &runner, error);
    trajd_runner_destroy(&runner);
    if (status)
        return trajd_error_prefix(error, "--backend cuda");
    backend->kind = TRAJD_CONVERT_CUDA;
    backend->is_on_gpu = true;
    snprintf(backend->text, sizeof backend->text, "%s", trajd_device_info(backend->device)->name);
    return TRAJD_OK;
}

/* Chooses the backend that is the fastest by the rule, among those that are available. */
static void use_fastest(const struct convert_plan *plan, bool has_daemon,
                        struct convert_backend *backend)
{
    const double copy_s = moved_bytes(plan) / copy_bytes_per_s,
                 thread_s = copy_s / backend->thread_count,
                 enough_s = worth * (step_ns(plan) * 1e-9 * (double)plan->step_count /
                                     backend->thread_count),
                 daemon_s = daemon_start_s + thread_s + copy_s /* in the daemon's single thread */,
                 cuda_s = cuda_start_s + thread_s;
    struct trajd_error unwanted;

    backend->may_fall_back = true;
    if (has_daemon && daemon_s < enough_s && !use_daemon(backend, true, &unwanted))
        return;
    if (cuda_s < enough_s && trajd_device_count() && !use_cuda(backend, &unwanted))
        return;
    backend->kind = TRAJD_CONVERT_CPU;
}

/* Returns the name of a stream whose rows are added, which only the CPU does; NULL: there is none. */
static const char *find_added(const struct convert_plan *plan)
{
    for (uint32_t s = 0; s < plan->stream_count; s++)
        if (plan->streams[s]->adds)
            return plan->streams[s]->source->name;
    return NULL;
}

enum trajd_status convert_backend_choose(const struct convert_plan *plan,
                                         struct convert_backend *backend, struct trajd_error *error)
{
    const struct trajd_convert_options *options = plan->options;
    const char *directory = options->endpoint ? options->endpoint : TRAJD_CONVERT_ENDPOINT_DEFAULT;
    const char *added = find_added(plan);

    *backend = (struct convert_backend){.kind = TRAJD_CONVERT_CPU,
                                        .cancel = options->cancel,
                                        .text = "the CPU",
                                        .thread_count = count_threads(options)};
    if (strlen(directory) >= sizeof backend->directory)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%.100s...: the path of the daemon's directory is too long",
                               directory);
    strcpy(backend->directory, directory);
    if (added && options->backend != TRAJD_CONVERT_AUTO && options->backend != TRAJD_CONVERT_CPU)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds differences (semantics: delta), which are added on the "
                               "CPU alone: use --backend cpu",
                               added);
    if (options->backend == TRAJD_CONVERT_CUDA)
        return use_cuda(backend, error);
    if (options->backend == TRAJD_CONVERT_DAEMON)
        return use_daemon(backend, false, error);
    if (options->backend == TRAJD_CONVERT_AUTO && !added)
        use_fastest(plan, options->endpoint != NULL, backend);
    return TRAJD_OK;
}

void convert_backend_clear(struct convert_backend *backend)
{
    if (backend->device)
        trajd_device_close(&backend->device);
}

/* ---- engines ---- */

void convert_engine_end(struct convert_engine *engine)
{
    trajd_runner_destroy(&engine->runner);
    convert_remote_destroy(&engine->remote);
}

static enum trajd_status run_here(const struct trajd_resample_request *request,
                                  struct trajd_error *error)
{
    const struct trajd_device_facts facts = {.cpu_threads = 1};
    struct trajd_plan *plan = NULL;
    enum trajd_status status = trajd_resample_check(request, error);

    if (!status)
        status = trajd_plan_create(request, &facts, NULL, &plan, error);
    if (!status)
        status = trajd_plan_run(plan, request, NULL, error);
    trajd_plan_destroy(&plan);
    return status;
}

/* Returns room for a block: of the GPU, or shared with the daemon. Opens either when it is first
 * needed. */
static enum trajd_status make_room(struct convert_engine *engine, bool is_remote,
                                   uint64_t size_bytes, void **room, struct trajd_error *error)
{
    struct convert_backend *backend = engine->backend;
    enum trajd_status status = TRAJD_OK;

    if (is_remote && !engine->remote)
        status = convert_remote_create(backend->directory, backend->cancel, NULL, &engine->remote,
                                       error);
    else if (!is_remote && !engine->runner)
        status = trajd_runner_create(backend->device, NULL, &engine->runner, error);
    if (is_remote && status == TRAJD_ERR_NOT_FOUND) /* it was there when it was chosen */
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon at %s has ended",
                               backend->directory);
    if (status)
        return status;
    return is_remote ? convert_remote_room(engine->remote, size_bytes, room, error)
                     : trajd_runner_room(engine->runner, size_bytes, room, error);
}

static enum trajd_status run_there(struct convert_engine *engine, bool is_remote,
                                   const struct trajd_resample_request *request,
                                   const struct trajd_block_memory *memory,
                                   struct trajd_error *error)
{
    uint64_t size_bytes, answer_at, answer_bytes;
    void *room;
    enum trajd_status status = trajd_block_measure(request, memory, &size_bytes, error);

    if (!status)
        status = make_room(engine, is_remote, size_bytes, &room, error);
    if (status)
        return status;
    trajd_block_write(request, memory, room);
    status = is_remote
                 ? convert_remote_run(engine->remote, size_bytes, error)
                 : trajd_runner_run(engine->runner, size_bytes, &answer_at, &answer_bytes, error);
    if (!status)
        trajd_block_read_answer(request, room, memory);
    return status;
}

/* Switches to the CPU. The first thread that gets here records the failure. */
static void give_up(struct convert_backend *backend, const struct trajd_error *why)
{
    enum trajd_convert_backend before =
        __atomic_exchange_n(&backend->kind, TRAJD_CONVERT_CPU, __ATOMIC_RELAXED);

    if (before == TRAJD_CONVERT_CPU)
        return;
    backend->failure = *why;
    /* release: publishes `failure` */
    __atomic_store_n(&backend->has_failed, true, __ATOMIC_RELEASE);
}

enum trajd_status convert_engine_run(struct convert_engine *engine,
                                     const struct trajd_resample_request *request,
                                     const struct trajd_block_memory *memory,
                                     struct trajd_error *error)
{
    struct convert_backend *backend = engine->backend;
    /* Relaxed: an old value only sends one more segment to the failed backend. */
    const enum trajd_convert_backend kind = __atomic_load_n(&backend->kind, __ATOMIC_RELAXED);
    enum trajd_status status;

    __atomic_fetch_add(&backend->segments, 1, __ATOMIC_RELAXED); /* relaxed: a counter */
    if (kind == TRAJD_CONVERT_CPU)
        return run_here(request, error);
    status = run_there(engine, kind == TRAJD_CONVERT_DAEMON, request, memory, error);
    if (!status)
        return TRAJD_OK;
    if (status == TRAJD_ERR_UNSUPPORTED)
        __atomic_fetch_add(&backend->segments_here, 1, __ATOMIC_RELAXED); /* relaxed: a counter */
    else if (!backend->may_fall_back ||
             (backend->cancel && __atomic_load_n(backend->cancel, __ATOMIC_RELAXED)))
        return status;
    else
        give_up(backend, error);
    return run_here(request, error);
}
