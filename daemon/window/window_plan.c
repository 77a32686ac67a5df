/* Makes a window plan in its steps, and computes the fingerprint of the specification. */
#include "daemon/window/window_plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/window/transform/chain_spec.h"

static enum trajd_status refuse_clock(const struct trajd_index *index, const char *wanted,
                                      struct trajd_error *error)
{
    const char *names[257] = {NULL};
    const uint32_t count = index->clock_count < 256 ? index->clock_count : 256;
    char list[TRAJD_ERROR_MESSAGE_SIZE / 2];

    for (uint32_t c = 0; c < count; c++)
        names[c] = index->clocks[c].name;
    trajd_yaml_join(names, list, sizeof list);
    return trajd_error_set(
        error, TRAJD_ERR_NOT_FOUND, 0, "anchor.clock: no clock %s in layout %s (%sthere are: %s)",
        wanted, index->layout->name, trajd_yaml_suggest("", wanted, names, count, " ").text, list);
}

static enum trajd_status resolve_anchor(struct trajd_window_plan *plan, struct trajd_error *error)
{
    const char *wanted = plan->spec->anchor_clock;

    plan->rules.anchor_clock = wanted ? trajd_index_find_clock(plan->dataset->index, wanted) : -1;
    if (wanted && plan->rules.anchor_clock < 0)
        return refuse_clock(plan->dataset->index, wanted, error);
    plan->rules.anchor_rate = plan->rules.anchor_clock >= 0
                                  ? plan->dataset->clock_rates[plan->rules.anchor_clock]
                                  : plan->spec->anchor_rate;
    return TRAJD_OK;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return trajd_fnv(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static uint64_t hash_goal(uint64_t hash, const struct trajd_goal_rule *goal)
{
    const uint64_t fields[] = {goal->from, goal->geometric};

    if (goal->from == TRAJD_GOAL_NONE)
        return hash;
    return trajd_fnv(trajd_fnv(hash, fields, sizeof fields), &goal->gamma, sizeof goal->gamma);
}

static uint64_t hash_return(uint64_t hash, const struct trajd_return_rule *rule)
{
    const uint64_t fields[] = {rule->is_given, rule->in_chunk};

    if (!rule->is_given)
        return hash;
    return trajd_fnv(trajd_fnv(hash, fields, sizeof fields), &rule->gamma, sizeof rule->gamma);
}

static uint64_t hash_output(uint64_t hash, const struct trajd_spec_output *output)
{
    const uint64_t fields[] = {output->at.in_time,
                               (uint64_t)output->at.from,
                               (uint64_t)output->at.to,
                               (uint64_t)output->at.rate.num,
                               (uint64_t)output->at.rate.den,
                               output->role,
                               output->kind,
                               output->dtype,
                               (uint64_t)output->max_age_ns,
                               (uint64_t)output->max_gap_ns,
                               (uint64_t)output->lookahead_ns,
                               (uint64_t)output->mean_width_ns,
                               output->missing,
                               0,
                               output->has_range};

    hash = trajd_fnv(hash_text(hash, output->name), fields, sizeof fields);
    hash = trajd_fnv(hash, &output->range_low, sizeof output->range_low);
    for (uint32_t s = 0; s < output->source_count; s++)
        hash = hash_text(hash, output->sources[s]);
    hash = hash_return(hash_goal(hash, &output->goal), &output->returns);
    if (output->chain)
        hash = trajd_fnv(hash, output->chain, sizeof *output->chain);
    return hash;
}

/* Hashes everything that decides which windows there are and what is in them. The batch size,
 * slots, tail and seed are not part of it, nor is normalisation, which moves no window
 * (trajd_window_norm_digest covers it). */
static uint64_t hash_spec(const struct trajd_window_spec *spec)
{
    uint64_t hash = TRAJD_FNV_BEGIN;
    const uint64_t texts = trajd_select_texts_digest(&spec->select),
                   selection = trajd_select_digest(&spec->select);
    const uint64_t passes[] = {spec->epoch_windows, spec->one_per_episode};
    const uint64_t numbers[] = {(uint64_t)spec->rate.num,
                                (uint64_t)spec->rate.den,
                                (uint64_t)spec->anchor_rate.num,
                                (uint64_t)spec->anchor_rate.den,
                                spec->pad_before,
                                spec->pad_after,
                                spec->edge,
                                spec->order,
                                spec->block_windows,
                                spec->block_neighbours,
                                spec->keep_bad_rows,
                                TRAJD_SAMPLER_VERSION};

    hash = trajd_fnv(hash, numbers, sizeof numbers);
    hash = hash_text(hash_text(hash, spec->select.filter), spec->anchor_clock);
    hash = trajd_fnv(hash, &spec->select.split_begin, sizeof(double));
    hash = trajd_fnv(hash, &spec->select.split_end, sizeof(double));
    hash = trajd_fnv(hash, &texts, spec->select.text_count ? sizeof texts : 0);
    hash = trajd_fnv(hash, &selection, selection ? sizeof selection : 0);
    if (spec->epoch_windows || spec->one_per_episode)
        hash = trajd_fnv(hash, passes, sizeof passes);
    if (spec->version > 1)
        hash = trajd_fnv(hash, &spec->version, sizeof spec->version);
    for (uint32_t o = 0; o < spec->output_count; o++)
        hash = hash_output(hash, &spec->outputs[o]);
    return hash;
}

static enum trajd_status allocate(struct trajd_window_plan *plan, struct trajd_error *error)
{
    struct trajd_arena *arena = &plan->arena;
    size_t targets = 0;

    for (uint32_t o = 0; o < plan->spec->output_count; o++)
        targets += plan->spec->outputs[o].source_count;
    plan->rules.output_count = plan->spec->output_count;
    for (uint32_t o = 0; o < plan->rules.output_count; o++)
        plan->rules.visible_count += !plan->spec->outputs[o].is_hidden;
    plan->rules.outputs =
        trajd_arena_array(arena, plan->rules.output_count, sizeof *plan->rules.outputs);
    plan->rules.targets = trajd_arena_array(arena, targets, sizeof *plan->rules.targets);
    plan->models = trajd_arena_array(arena, targets, sizeof *plan->models);
    plan->rules.grids = trajd_arena_array(arena, targets, sizeof *plan->rules.grids);
    plan->goals = trajd_arena_array(arena, plan->rules.output_count, sizeof *plan->goals);
    plan->rules.brackets = trajd_arena_array(arena, targets, sizeof *plan->rules.brackets);
    plan->entry_arrays = trajd_arena_array(arena, targets, sizeof *plan->entry_arrays);
    plan->entry_as_float32 = trajd_arena_array(arena, targets, sizeof *plan->entry_as_float32);
    return arena->is_starved ? trajd_plan_no_memory(error) : TRAJD_OK;
}

static enum trajd_status create(const struct trajd_plan_peer *peer,
                                const struct trajd_plan_peer *peers, uint32_t peer_count,
                                bool is_member, struct trajd_window_plan **out,
                                struct trajd_error *error)
{
    const struct trajd_window_spec *spec = peer->spec;
    struct trajd_dataset *dataset = peer->dataset;
    struct trajd_window_plan *plan = calloc(1, sizeof *plan);
    const uint64_t hashes[] = {dataset->index->fingerprint, hash_spec(spec)};
    enum trajd_status status;

    *out = NULL;
    if (!plan)
        return trajd_plan_no_memory(error);
    plan->arena.limit_bytes = SIZE_MAX;
    plan->spec = spec;
    plan->dataset = dataset;
    plan->peers = peers;
    plan->peer_count = peer_count;
    plan->is_member = is_member;
    plan->rules.edge = spec->edge;
    plan->rules.clock_count = dataset->index->clock_count;
    plan->fingerprint = trajd_mix(hashes, 2);
    status = allocate(plan, error);
    if (!status)
        status = resolve_anchor(plan, error);
    for (uint32_t o = 0; o < spec->output_count && !status; o++)
        status = trajd_plan_resolve_output(plan, o, error);
    if (!status)
        status = trajd_plan_put_images_last(plan, error);
    for (uint32_t o = 0; o < spec->output_count && !status; o++)
        status = trajd_plan_resolve_chain(plan, o, error);
    for (uint32_t o = 0; o < spec->output_count && !status; o++)
        if (spec->outputs[o].norm_by)
            status = trajd_window_norm_prepare(plan, o, error);
    if (!status) {
        trajd_plan_sort_entries(plan);
        trajd_window_plan_choose_forms(plan);
    }
    if (!status)
        status = trajd_window_plan_segments(plan, error);
    if (!status)
        status = trajd_window_plan_prepare(plan, error);
    if (!status)
        trajd_window_plan_find_warnings(plan);
    if (status) {
        trajd_error_prefix(error, "feed %s", spec->feed_name);
        trajd_window_plan_destroy(&plan);
    }
    *out = plan;
    return status;
}

enum trajd_status trajd_window_plan_create(const struct trajd_window_spec *spec,
                                           struct trajd_dataset *dataset,
                                           struct trajd_window_plan **plan,
                                           struct trajd_error *error)
{
    const struct trajd_plan_peer alone = {spec, dataset};

    return create(&alone, NULL, 0, false, plan, error);
}

enum trajd_status trajd_window_plan_create_member(const struct trajd_plan_peer *peers,
                                                  uint32_t peer_count, uint32_t index,
                                                  struct trajd_window_plan **plan,
                                                  struct trajd_error *error)
{
    return create(&peers[index], peers, peer_count, true, plan, error);
}

enum trajd_status trajd_window_plan_create_again(const struct trajd_window_plan *plan,
                                                 const struct trajd_window_spec *spec,
                                                 struct trajd_window_plan **again,
                                                 struct trajd_error *error)
{
    const struct trajd_plan_peer alone = {spec, plan->dataset};

    return create(&alone, plan->peers, plan->peer_count, false, again, error);
}

bool trajd_window_plan_uses(const struct trajd_window_plan *plan, uint32_t output_index,
                            uint32_t target)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    const uint32_t own = plan->rules.targets[target].output_index;

    return own == output_index || (output->transform && output->transform->reference_count &&
                                   own == output->reference_output);
}

bool trajd_window_plan_lacks(const struct trajd_window_plan *plan, uint32_t output_index)
{
    bool lacks = false, has_filled = false;

    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        const bool is_absent = target->stream_index == TRAJD_PLAN_ABSENT;
        if (!trajd_window_plan_uses(plan, output_index, t))
            continue;
        lacks = lacks || is_absent;
        has_filled = has_filled || (target->is_filled && !is_absent);
    }
    return lacks && !has_filled;
}

void trajd_window_plan_destroy(struct trajd_window_plan **out)
{
    struct trajd_window_plan *plan = *out;

    *out = NULL;
    if (!plan)
        return;
    trajd_rules_clear_grids(&plan->rules);
    trajd_sampler_destroy(&plan->sampler);
    trajd_arena_free(&plan->arena);
    free(plan);
}
