/* The functions of libtrajd_kernels, the public header's side of plans and runs. */
#include "kernels/library/trajd_kernels.h"

#include <stdlib.h>

#include "kernels/cuda/tuning.h"
#include "kernels/device.h"
#include "kernels/dispatch/plan.h"
#include "kernels/pool.h"

#define THREAD_LIMIT 1024u

struct trajd_kernels {
    struct trajd_device_facts facts;
    struct trajd_pool *pool;     /* NULL: on the caller's thread */
    struct trajd_device *device; /* NULL: on the CPU */
    struct trajd_tuning *tuning;
};

struct trajd_kernels_plan {
    const struct trajd_kernels *kernels;
    struct trajd_plan *plan;
};

static enum trajd_status check_options(const struct trajd_kernels_options *options,
                                       struct trajd_error *error)
{
    uint64_t reserved = 0;

    for (size_t i = 0; i < sizeof options->reserved / sizeof options->reserved[0]; i++)
        reserved |= options->reserved[i];
    if (reserved)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "options: reserved is not zero");
    if (options->place != TRAJD_KERNELS_CPU && options->place != TRAJD_KERNELS_GPU)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "options: place is unknown");
    if (options->thread_count > THREAD_LIMIT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "options: thread_count is %u (at most %u)", options->thread_count,
                               THREAD_LIMIT);
    return TRAJD_OK;
}

static enum trajd_status open_gpu(struct trajd_kernels *kernels,
                                  const struct trajd_kernels_options *options,
                                  struct trajd_error *error)
{
    enum trajd_status status = trajd_device_open(options->gpu_ordinal, &kernels->device, error);

    if (!status && options->tuning_path)
        status = trajd_tuning_load(options->tuning_path, &kernels->tuning, error);
    if (status)
        return status;
    trajd_device_facts(kernels->device, &kernels->facts);
    kernels->facts.tuning = kernels->tuning;
    return TRAJD_OK;
}

static enum trajd_status open_cpu(struct trajd_kernels *kernels, uint32_t thread_count,
                                  struct trajd_error *error)
{
    if (thread_count > 1)
        kernels->facts.cpu_threads = thread_count;
    return thread_count > 1
               ? trajd_pool_create(thread_count, "trajd-kernels", &kernels->pool, error)
               : TRAJD_OK;
}

enum trajd_status trajd_kernels_open(const struct trajd_kernels_options *options,
                                     struct trajd_kernels **kernels, struct trajd_error *error)
{
    enum trajd_status status = check_options(options, error);

    *kernels = NULL;
    if (status)
        return status;
    *kernels = calloc(1, sizeof **kernels);
    if (!*kernels)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "kernels: no memory");
    (*kernels)->facts.cpu_threads = 1;
    status = options->place == TRAJD_KERNELS_GPU ? open_gpu(*kernels, options, error)
                                                 : open_cpu(*kernels, options->thread_count, error);
    if (status)
        trajd_kernels_close(kernels);
    return status;
}

void trajd_kernels_close(struct trajd_kernels **kernels)
{
    if (!*kernels)
        return;
    trajd_pool_destroy(&(*kernels)->pool);
    trajd_tuning_destroy(&(*kernels)->tuning);
    trajd_device_close(&(*kernels)->device);
    free(*kernels);
    *kernels = NULL;
}

/* A GPU of these kernels never falls back to the CPU, which cannot read its memory. */
static enum trajd_status require_cuda(const struct trajd_kernels *kernels,
                                      const struct trajd_plan *plan, struct trajd_error *error)
{
    if (!kernels->device || trajd_plan_is_cuda(plan))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "plan: no CUDA kernel serves this GPU, which needs compute capability "
                           "8.0 or later");
}

enum trajd_status trajd_kernels_plan_create(struct trajd_kernels *kernels,
                                            const struct trajd_resample_request *shape,
                                            const char *variant, struct trajd_kernels_plan **plan,
                                            struct trajd_error *error)
{
    struct trajd_kernels_plan *created = calloc(1, sizeof *created);
    enum trajd_status status;

    *plan = NULL;
    if (!created)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "plan: no memory");
    created->kernels = kernels;
    status = trajd_plan_create(shape, &kernels->facts, variant, &created->plan, error);
    if (!status)
        status = require_cuda(kernels, created->plan, error);
    if (status)
        trajd_kernels_plan_destroy(&created);
    *plan = created;
    return status;
}

const char *trajd_kernels_plan_describe(const struct trajd_kernels_plan *plan)
{
    return trajd_plan_describe(plan->plan);
}

enum trajd_status trajd_kernels_run(const struct trajd_kernels_plan *plan,
                                    const struct trajd_resample_request *request, void *stream,
                                    struct trajd_error *error)
{
    const struct trajd_kernels *kernels = plan->kernels;
    enum trajd_status status = TRAJD_OK;

    if (kernels->device) {
        status = trajd_device_enter(kernels->device, error);
        return status ? status : trajd_plan_run_on(plan->plan, request, stream, error);
    }
    if (stream)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "run: stream is not NULL, but the plan is for the CPU");
    return trajd_plan_run(plan->plan, request, kernels->pool, error);
}

void trajd_kernels_plan_destroy(struct trajd_kernels_plan **plan)
{
    if (!*plan)
        return;
    trajd_plan_destroy(&(*plan)->plan);
    free(*plan);
    *plan = NULL;
}
