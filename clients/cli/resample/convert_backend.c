/* Opens the CPU, the GPU or a daemon for a conversion, and runs blocks on it. */
#include "clients/cli/resample/convert_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/memory.h"
#include "kernels/dispatch/choose.h"
#include "kernels/dispatch/runner.h"

enum { THREADS_BESIDE_MAX = 8 };

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

/* ---- choosing ---- */

static enum trajd_status use_daemon(struct convert_backend *backend, struct trajd_error *error)
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
    if (options->backend == TRAJD_CONVERT_CPU || options->backend == TRAJD_CONVERT_AUTO)
        return TRAJD_OK;
    if (added)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds differences (semantics: delta), which are added on the "
                               "CPU alone: use --backend cpu",
                               added);
    return options->backend == TRAJD_CONVERT_CUDA ? use_cuda(backend, error)
                                                  : use_daemon(backend, error);
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

enum trajd_status convert_engine_run(struct convert_engine *engine,
                                     const struct trajd_resample_request *request,
                                     const struct trajd_block_memory *memory,
                                     struct trajd_error *error)
{
    struct convert_backend *backend = engine->backend;
    enum trajd_status status;

    __atomic_fetch_add(&backend->segments, 1, __ATOMIC_RELAXED); /* relaxed: a counter */
    if (backend->kind == TRAJD_CONVERT_CPU)
        return run_here(request, error);
    status = run_there(engine, backend->kind == TRAJD_CONVERT_DAEMON, request, memory, error);
    if (status != TRAJD_ERR_UNSUPPORTED)
        return status;
    __atomic_fetch_add(&backend->segments_here, 1, __ATOMIC_RELAXED); /* relaxed: a counter */
    return run_here(request, error);
}
