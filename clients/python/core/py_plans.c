/* Finds the plan of libtrajd_kernels for a request of trajd.resample, or creates it. */
#include "clients/python/core/py_plans.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_COUNT 16u
#define STREAMS_MAX 8u /* requests of more streams get a plan of their own */
#define THREADS_MAX 8u
#define GPUS_MAX 64
#define ALONE_BELOW 4096u /* elements that one thread makes faster than it wakes another */

/* What trajd_kernels_plan_create looks at. All bytes are set, because keys are compared as bytes. */
struct shape_key {
    struct trajd_kernels *kernels;
    uint32_t window_count, stream_count;
    struct {
        uint32_t kind, source_type, output_type, bracket_index, feature_count, step_count;
    } streams[STREAMS_MAX];
};

struct trajd_shape_plan {
    struct shape_key key;
    struct trajd_kernels_plan *plan;
    uint32_t users;
    bool is_kept; /* false: freed at its release */
    uint64_t last_use;
};

static struct trajd_shape_plan *kept[PLAN_COUNT];
static uint64_t use_count;
/* Kernels of one thread, and of several. A process made by fork has no threads of a pool, so it
 * uses the former alone; workers of a DataLoader are such processes. */
static struct trajd_kernels *alone, *shared, *on_gpu[GPUS_MAX];
static bool is_forked, notes_forks;

static void note_fork(void)
{
    is_forked = true;
}

static uint32_t count_processors(void)
{
    cpu_set_t set;
    const uint32_t count =
        sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;

    return count < THREADS_MAX ? count : THREADS_MAX;
}

static enum trajd_status open_kernels(uint32_t thread_count, struct trajd_kernels **kernels,
                                      struct trajd_error *error)
{
    return *kernels
               ? TRAJD_OK
               : trajd_kernels_open(&(struct trajd_kernels_options){.thread_count = thread_count},
                                    kernels, error);
}

static enum trajd_status open_gpu(int gpu, struct trajd_kernels **kernels,
                                  struct trajd_error *error)
{
    const struct trajd_kernels_options options = {.place = TRAJD_KERNELS_GPU,
                                                  .gpu_ordinal = (uint32_t)gpu};
    enum trajd_status status = TRAJD_OK;

    if (gpu < 0 || gpu >= GPUS_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "GPU %d: at most %d GPUs", gpu,
                               GPUS_MAX);
    if (!on_gpu[gpu])
        status = trajd_kernels_open(&options, &on_gpu[gpu], error);
    *kernels = on_gpu[gpu];
    return status;
}

static const struct trajd_grid *grid_of(const struct trajd_resample_request *request, uint32_t s)
{
    return &request->grids[request->brackets[request->streams[s].bracket_index].grid_index];
}

/* Selects the kernels for a request. Threads start when a request is worth them. */
static enum trajd_status select_kernels(const struct trajd_resample_request *request,
                                        struct trajd_kernels **kernels, struct trajd_error *error)
{
    uint64_t elements = 0;
    enum trajd_status status;

    for (uint32_t s = 0; s < request->stream_count; s++)
        elements += (uint64_t)request->window_count * grid_of(request, s)->step_count *
                    request->streams[s].feature_count;
    if (is_forked || elements < ALONE_BELOW) {
        status = open_kernels(1, &alone, error);
        *kernels = alone;
        return status;
    }
    if (!notes_forks && pthread_atfork(NULL, NULL, note_fork) != 0)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "resample: no memory to note forks");
    notes_forks = true;
    status = open_kernels(count_processors(), &shared, error);
    *kernels = shared;
    return status;
}

static bool fill_key(const struct trajd_resample_request *request, struct trajd_kernels *kernels,
                     struct shape_key *key)
{
    memset(key, 0, sizeof *key);
    key->kernels = kernels;
    key->window_count = request->window_count;
    key->stream_count = request->stream_count;
    for (uint32_t s = 0; s < request->stream_count && s < STREAMS_MAX; s++) {
        const struct trajd_stream *stream = &request->streams[s];
        key->streams[s].kind = stream->kind;
        key->streams[s].source_type = stream->source_type;
        key->streams[s].output_type = stream->output_type;
        key->streams[s].bracket_index = stream->bracket_index;
        key->streams[s].feature_count = stream->feature_count;
        key->streams[s].step_count = grid_of(request, s)->step_count;
    }
    return request->stream_count <= STREAMS_MAX;
}

static struct trajd_shape_plan *find(const struct shape_key *key)
{
    for (uint32_t i = 0; i < PLAN_COUNT; i++)
        if (kept[i] && memcmp(&kept[i]->key, key, sizeof *key) == 0)
            return kept[i];
    return NULL;
}

static void destroy(struct trajd_shape_plan *plan)
{
    trajd_kernels_plan_destroy(&plan->plan);
    free(plan);
}

/* Keeps the plan in place of the one that was used the longest time ago, if that one is idle. */
static void keep(struct trajd_shape_plan *plan)
{
    uint32_t oldest = 0;

    for (uint32_t i = 0; i < PLAN_COUNT && kept[oldest]; i++)
        if (!kept[i] || kept[i]->last_use < kept[oldest]->last_use)
            oldest = i;
    if (kept[oldest] && kept[oldest]->users)
        return;
    if (kept[oldest])
        destroy(kept[oldest]);
    kept[oldest] = plan;
    plan->is_kept = true;
}

enum trajd_status trajd_shape_plan_take(const struct trajd_resample_request *request, int gpu,
                                        struct trajd_shape_plan **plan, struct trajd_error *error)
{
    struct trajd_kernels *kernels = NULL;
    struct shape_key key;
    enum trajd_status status = gpu == TRAJD_PY_HOST ? select_kernels(request, &kernels, error)
                                                    : open_gpu(gpu, &kernels, error);
    const bool is_whole = !status && fill_key(request, kernels, &key);

    *plan = is_whole ? find(&key) : NULL;
    if (!status && !*plan) {
        *plan = calloc(1, sizeof **plan);
        if (!*plan)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "resample: no memory for a plan");
        (*plan)->key = key;
        status = trajd_kernels_plan_create(kernels, request, NULL, &(*plan)->plan, error);
        if (status) {
            destroy(*plan);
            return status;
        }
        if (is_whole)
            keep(*plan);
    }
    if (!status) {
        (*plan)->users++;
        (*plan)->last_use = ++use_count;
    }
    return status;
}

enum trajd_status trajd_shape_plan_run(const struct trajd_shape_plan *plan,
                                       const struct trajd_resample_request *request, void *stream,
                                       struct trajd_error *error)
{
    return trajd_kernels_run(plan->plan, request, stream, error);
}

void trajd_shape_plan_release(struct trajd_shape_plan *plan)
{
    if (--plan->users == 0 && !plan->is_kept)
        destroy(plan);
}
