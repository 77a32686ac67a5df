/* Plans each dataset of a feed, and the order of their windows. */
#include "daemon/window/mixture_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/window_plan_internal.h"

/* Returns the output whose line says in what datasets a and b differ: that of a dataset's own keys in
 * `mix:`, if there are such. */
static const struct trajd_spec_output *blame(const struct trajd_mixture_plan *plan, uint32_t b,
                                             uint32_t output_index)
{
    const struct trajd_spec_output *own = &plan->members[b]->spec->outputs[output_index];

    return own->line != plan->spec->outputs[output_index].line
               ? own
               : &plan->members[0]->spec->outputs[output_index];
}

static bool is_same(const struct trajd_plan_output *a, const struct trajd_plan_output *b)
{
    return a->dtype == b->dtype && a->step_count == b->step_count && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static enum trajd_status check_outputs(const struct trajd_mixture_plan *plan,
                                       struct trajd_error *error)
{
    const struct trajd_window_plan *first = plan->members[0];

    for (uint32_t p = 1; p < plan->member_count; p++)
        for (uint32_t o = 0; o < first->rules.visible_count; o++) {
            const struct trajd_plan_output *a = &first->rules.outputs[o],
                                           *b = &plan->members[p]->rules.outputs[o];
            char of_a[128], of_b[128];
            struct trajd_text text_a = {of_a, sizeof of_a, 0}, text_b = {of_b, sizeof of_b, 0};
            if (is_same(a, b))
                continue;
            trajd_plan_write_tensor(a, 0, &text_a);
            trajd_plan_write_tensor(b, 0, &text_b);
            trajd_plan_output_error(
                blame(plan, p, o), error, TRAJD_ERR_ARGUMENT,
                "a window is %s in dataset %s and %s in dataset %s: all datasets of a mixture need "
                "the same type and shape",
                of_a, first->dataset->name, of_b, plan->members[p]->dataset->name);
            return trajd_error_prefix(error, "feed %s", plan->spec->feed_name);
        }
    return TRAJD_OK;
}

static enum trajd_status make_mixture(struct trajd_mixture_plan *plan, struct trajd_error *error)
{
    const struct trajd_window_spec *spec = plan->spec;
    const struct trajd_sampler *samplers[TRAJD_MIXTURE_MAX_DATASETS];
    uint64_t weights[TRAJD_MIXTURE_MAX_DATASETS], hash[2 * TRAJD_MIXTURE_MAX_DATASETS + 2];
    struct trajd_mixture_options options = {.samplers = samplers,
                                            .weights = spec->mix_by_size ? NULL : weights,
                                            .dataset_count = plan->member_count,
                                            .seed = spec->seed,
                                            .epoch_windows = spec->epoch_windows,
                                            .tail = spec->tail,
                                            .global_batch = spec->global_batch};

    hash[0] = TRAJD_MIXTURE_VERSION;
    hash[1] = spec->epoch_windows;
    for (uint32_t p = 0; p < plan->member_count; p++) {
        samplers[p] = plan->members[p]->sampler;
        hash[2 + 2 * p] = weights[p] = spec->members[p].weight;
        hash[3 + 2 * p] = plan->members[p]->fingerprint;
    }
    options.fingerprint = plan->fingerprint = trajd_mix(hash, 2 * plan->member_count + 2);
    if (trajd_mixture_create(&options, &plan->mixture, error))
        return trajd_error_prefix(error, "feed %s: mix", spec->feed_name);
    return TRAJD_OK;
}

/* Plans the one dataset, or each member of the mixture. */
static enum trajd_status make_members(struct trajd_mixture_plan *plan,
                                      struct trajd_dataset *const *datasets,
                                      struct trajd_error *error)
{
    const struct trajd_window_spec *spec = plan->spec;
    enum trajd_status status = TRAJD_OK;

    if (!spec->is_mixture)
        return trajd_window_plan_create(spec, datasets[0], &plan->members[0], error);
    for (uint32_t p = 0; p < plan->member_count; p++)
        plan->peers[p] = (struct trajd_plan_peer){spec->members[p].spec, datasets[p]};
    for (uint32_t p = 0; p < plan->member_count && !status; p++) {
        status = trajd_window_plan_create_member(plan->peers, plan->member_count, p,
                                                 &plan->members[p], error);
        if (status)
            return trajd_error_prefix(error, "dataset %s", datasets[p]->name);
    }
    return status;
}

enum trajd_status trajd_mixture_plan_create(const struct trajd_window_spec *spec,
                                            struct trajd_dataset *const *datasets,
                                            struct trajd_mixture_plan **out,
                                            struct trajd_error *error)
{
    struct trajd_mixture_plan *plan = calloc(1, sizeof *plan);
    enum trajd_status status;

    *out = NULL;
    if (plan) {
        plan->arena.limit_bytes = SIZE_MAX;
        plan->spec = spec;
        plan->member_count = spec->member_count;
        plan->members = trajd_arena_array(&plan->arena, spec->member_count, sizeof *plan->members);
        plan->peers = trajd_arena_array(&plan->arena, spec->member_count, sizeof *plan->peers);
    }
    if (!plan || plan->arena.is_starved) {
        trajd_mixture_plan_destroy(&plan);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s",
                               spec->feed_name);
    }
    status = make_members(plan, datasets, error);
    if (!status)
        status = check_outputs(plan, error);
    if (!status && spec->is_mixture)
        status = make_mixture(plan, error);
    else if (!status)
        plan->fingerprint = plan->members[0]->fingerprint;
    if (status)
        trajd_mixture_plan_destroy(&plan);
    *out = plan;
    return status;
}

void trajd_mixture_plan_destroy(struct trajd_mixture_plan **out)
{
    struct trajd_mixture_plan *plan = *out;

    *out = NULL;
    if (!plan)
        return;
    trajd_mixture_destroy(&plan->mixture);
    for (uint32_t p = 0; plan->members && p < plan->member_count; p++)
        trajd_window_plan_destroy(&plan->members[p]);
    trajd_arena_free(&plan->arena);
    free(plan);
}

enum trajd_status trajd_mixture_plan_check_quarantine(const struct trajd_mixture_plan *plan,
                                                      const int64_t *at_most,
                                                      struct trajd_error *error)
{
    for (uint32_t p = 0; p < plan->member_count; p++) {
        const struct trajd_window_plan *member = plan->members[p];
        const struct trajd_plan_texts *quarantined = &member->quarantined;
        if (at_most[p] >= 0 && quarantined->count > at_most[p])
            return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                   "feed %s: %u of %u episodes of dataset %s are quarantined, and "
                                   "datasets.%s.quarantine.at_most is %lld; the first: %s",
                                   plan->spec->feed_name, quarantined->count, member->found_count,
                                   member->dataset->name, member->dataset->name,
                                   (long long)at_most[p],
                                   quarantined->list[0] ? quarantined->list[0] : "");
    }
    return TRAJD_OK;
}

uint64_t trajd_mixture_plan_window_count(const struct trajd_mixture_plan *plan)
{
    return plan->mixture ? trajd_mixture_epoch_windows(plan->mixture)
                         : trajd_sampler_window_count(plan->members[0]->sampler);
}

uint64_t trajd_mixture_plan_epoch_length(const struct trajd_mixture_plan *plan)
{
    return plan->mixture ? trajd_mixture_epoch_length(plan->mixture)
                         : trajd_sampler_epoch_length(plan->members[0]->sampler);
}

uint64_t trajd_mixture_plan_dropped_count(const struct trajd_mixture_plan *plan)
{
    return plan->mixture ? trajd_mixture_dropped_count(plan->mixture)
                         : trajd_sampler_dropped_count(plan->members[0]->sampler);
}

static uint64_t digest_members(const struct trajd_mixture_plan *plan,
                               uint64_t digest(const struct trajd_window_plan *))
{
    uint64_t digests[TRAJD_MIXTURE_MAX_DATASETS], any = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        any |= digests[p] = digest(plan->members[p]);
    return plan->mixture && any ? trajd_mix(digests, plan->member_count) : digests[0];
}

uint64_t trajd_mixture_plan_norm_digest(const struct trajd_mixture_plan *plan)
{
    return digest_members(plan, trajd_window_norm_digest);
}

uint64_t trajd_mixture_plan_values_digest(const struct trajd_mixture_plan *plan)
{
    return digest_members(plan, trajd_window_values_digest);
}

void trajd_mixture_plan_run(const struct trajd_mixture_plan *plan, uint64_t epoch,
                            uint64_t position, uint32_t count, struct trajd_window *windows)
{
    if (plan->mixture)
        trajd_mixture_run(plan->mixture, epoch, position, count, windows);
    else
        trajd_sampler_run(plan->members[0]->sampler, epoch, position, count, windows);
}

uint64_t trajd_mixture_plan_number_count(const struct trajd_mixture_plan *plan)
{
    uint64_t total = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        total += trajd_sampler_number_count(plan->members[p]->sampler);
    return total;
}

bool trajd_mixture_plan_window(const struct trajd_mixture_plan *plan, uint64_t window_id,
                               struct trajd_window *window)
{
    if (window_id >= trajd_mixture_plan_number_count(plan))
        return false;
    if (plan->mixture)
        trajd_mixture_window(plan->mixture, window_id, window);
    else
        trajd_sampler_window(plan->members[0]->sampler, window_id, window);
    return true;
}
