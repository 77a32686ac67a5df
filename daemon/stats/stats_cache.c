/* Fingerprints of statistics, and the files that keep statistics of earlier runs, one per
 * fingerprint. The files only save time: if one is damaged, its statistics are computed and written
 * again. Sealed (base/files.h) are the struct and its features as they are in memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/base/files.h"
#include "daemon/base/heartbeat.h"
#include "daemon/stats/stats.h"
#include "proto/array_len.h"

/* "TRSTATS2"; changes with the structs */
#define CACHE_MAGIC UINT64_C(0x3253544154535254)
/* changes with the meaning of figures; part of every fingerprint */
#define FIGURES_VERSION 1

/* ---- fingerprints ---- */

/* Adds which anchors of which episodes are windows. Windows are numbered in episode order, so the
 * first window of the next run is found by a search. */
static void add_windows(struct trajd_digest *digest, const struct trajd_window_plan *plan)
{
    const uint64_t count = trajd_sampler_number_count(plan->sampler);
    struct trajd_window first, window;

    for (uint64_t id = 0; id < count;) {
        uint64_t low = id + 1, step = 1;
        trajd_sampler_window(plan->sampler, id, &first);
        for (uint64_t high = count; low < high;) { /* galloping, then halving */
            const uint64_t middle = low + step - 1 < high ? low + step - 1 : low + (high - low) / 2;
            trajd_sampler_window(plan->sampler, middle, &window);
            if (window.episode_index == first.episode_index &&
                window.anchor - first.anchor == (int64_t)(middle - id)) {
                low = middle + 1;
                step *= 2;
            } else {
                high = middle;
                step = 1;
            }
        }
        trajd_digest_add_u64(digest, first.episode_index);
        trajd_digest_add_u64(digest, (uint64_t)first.anchor);
        trajd_digest_add_u64(digest, low - id);
        id = low;
    }
}

static void add_rate(struct trajd_digest *digest, struct trajd_rate rate)
{
    trajd_digest_add_u64(digest, (uint64_t)rate.num);
    trajd_digest_add_u64(digest, (uint64_t)rate.den);
}

/* Adds the output's transform, and where its state comes from. */
static void add_chain(struct trajd_digest *digest, const struct trajd_window_plan *plan,
                      uint32_t output_index)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    const struct trajd_spec_output *state = &plan->spec->outputs[output->reference_output];

    if (!output->transform)
        return;
    trajd_digest_add_u64(digest, trajd_chain_id(output->transform));
    trajd_digest_add_u64(digest, output->norm_step_count);
    trajd_digest_add_u64(digest, plan->spec->edge);
    if (!output->transform->reference_count)
        return;
    trajd_digest_add_u64(digest, state->kind);
    for (uint32_t s = 0; s < state->source_count; s++)
        trajd_digest_add_text(digest, state->sources[s]);
}

/* Adds that steps after a stream that has ended do not count. */
static void add_ends(struct trajd_digest *digest, const struct trajd_window_plan *plan,
                     uint32_t output_index)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const uint32_t intervals =
            plan->rules.brackets[plan->rules.targets[t].bracket_index].too_old_intervals;
        if (intervals && trajd_window_plan_uses(plan, output_index, t))
            trajd_digest_add_u64(digest, intervals);
    }
}

uint64_t trajd_statistics_output_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t output_index)
{
    const struct trajd_window_spec *spec = plan->spec;
    const struct trajd_spec_output *output = &spec->outputs[output_index];
    const bool wide = plan->rules.outputs[output_index].dtype == TRAJD_F64;
    const bool rows = plan->rules.outputs[output_index].norm_over == TRAJD_NORM_OVER_ROWS;
    const uint64_t numbers[] = {FIGURES_VERSION,
                                rows ? TRAJD_STATISTICS_ROWS : TRAJD_STATISTICS_WINDOWS,
                                plan->dataset->index->fingerprint,
                                plan->dataset->index->files_digest,
                                spec->keep_bad_rows,
                                output->at.in_time,
                                rows ? 0 : (uint64_t)output->at.from,
                                rows ? 0 : (uint64_t)output->at.to,
                                output->goal.from ? TRAJD_ROLE_OBS : output->role,
                                output->kind,
                                wide,
                                (uint64_t)output->max_age_ns,
                                (uint64_t)output->max_gap_ns,
                                (uint64_t)output->lookahead_ns,
                                (uint64_t)output->mean_width_ns,
                                output->has_range};
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        trajd_digest_add_u64(&digest, numbers[i]);
    trajd_digest_add(&digest, &output->range_low, sizeof output->range_low);
    trajd_digest_add_text(&digest, spec->anchor_clock);
    if (output->returns.is_given) {
        trajd_digest_add_u64(&digest, output->returns.in_chunk);
        trajd_digest_add(&digest, &output->returns.gamma, sizeof output->returns.gamma);
    }
    add_rate(&digest, spec->anchor_rate);
    add_rate(&digest, spec->rate);
    add_rate(&digest, output->at.rate);
    for (uint32_t s = 0; s < output->source_count; s++)
        trajd_digest_add_text(&digest, output->sources[s]);
    add_ends(&digest, plan, output_index);
    if (plan->rules.targets[trajd_rules_first_target(&plan->rules, output_index)].is_filled)
        trajd_digest_add_text(&digest, "filled");
    add_chain(&digest, plan, output_index);
    if (rows)
        trajd_digest_add_u64(&digest, plan->anchors_digest);
    else
        add_windows(&digest, plan);
    return trajd_digest_end(&digest);
}

uint64_t trajd_statistics_stream_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t stream_index)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_u64(&digest, FIGURES_VERSION);
    trajd_digest_add_u64(&digest, TRAJD_STATISTICS_ROWS);
    trajd_digest_add_u64(&digest, plan->dataset->index->fingerprint);
    trajd_digest_add_u64(&digest, plan->dataset->index->files_digest);
    trajd_digest_add_u64(&digest, plan->spec->keep_bad_rows);
    trajd_digest_add_text(&digest, plan->dataset->index->streams[stream_index].name);
    for (uint32_t e = 0; e < plan->episode_count; e++)
        trajd_digest_add_u64(&digest, plan->episodes[e]);
    return trajd_digest_end(&digest);
}

/* ---- files ---- */

static bool cache_path(const char *directory, uint64_t fingerprint, char *path, size_t size)
{
    return directory && (size_t)snprintf(path, size, "%s/%016" PRIx64 ".statistics", directory,
                                         fingerprint) < size;
}

static uint64_t bytes_of(uint32_t feature_count)
{
    return sizeof(struct trajd_statistics) +
           (uint64_t)feature_count * sizeof(struct trajd_feature_statistics);
}

struct trajd_statistics *trajd_statistics_load(const char *directory, uint64_t fingerprint)
{
    struct trajd_statistics *found = NULL;
    char path[4096];
    size_t size;

    if (!cache_path(directory, fingerprint, path, sizeof path))
        return NULL;
    trajd_heartbeat_wait();
    found =
        trajd_file_read_sealed(path, CACHE_MAGIC, bytes_of(TRAJD_STATISTICS_MAX_FEATURES), &size);
    trajd_heartbeat_resume();
    if (found && size >= sizeof *found && found->fingerprint == fingerprint &&
        found->feature_count <= TRAJD_STATISTICS_MAX_FEATURES &&
        bytes_of(found->feature_count) == size)
        return found;
    free(found);
    return NULL;
}

void trajd_statistics_save(const char *directory, const struct trajd_statistics *statistics)
{
    char path[4096];

    if (!cache_path(directory, statistics->fingerprint, path, sizeof path))
        return;
    trajd_heartbeat_wait();
    trajd_file_write_sealed(path, CACHE_MAGIC, statistics, bytes_of(statistics->feature_count));
    trajd_heartbeat_resume();
}
