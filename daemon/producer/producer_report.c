/* A feed in words, as JSON, and as its workers are told. */
#include "daemon/producer/producer_internal.h"

#include "daemon/producer/gpu.h"
#include "daemon/window/window_report.h"
#include "kernels/dispatch/plan.h"

static void add_texts(const struct trajd_plan_texts *texts, const char **list, uint32_t *count)
{
    for (uint32_t i = 0; i < texts->count && i < TRAJD_PLAN_TEXTS_MAX; i++)
        if (texts->list[i] && *count < TRAJD_FEED_MAX_TEXTS)
            list[(*count)++] = texts->list[i];
}

struct trajd_feed_data trajd_producer_data(const struct trajd_producer *producer)
{
    struct trajd_feed_data data = {0};
    uint32_t quarantined = 0, warnings = 0;

    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_window_plan *member = producer->plan->members[p];
        data.found_count += member->found_count;
        data.kept_count += member->found_count - member->quarantined.count;
        data.used_count += member->episode_count;
        add_texts(&member->quarantined, data.quarantined, &quarantined);
        add_texts(&member->warnings, data.warnings, &warnings);
    }
    return data;
}

/* Writes each dataset's windows and its share of a mixture, as configured and as made. */
static void describe_members(const struct trajd_producer *producer, struct trajd_json *json)
{
    const struct trajd_mixture *mixture = producer->plan->mixture;

    trajd_json_open_array(json, "datasets");
    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_producer_member *member = &producer->members[p];
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "name", member->dataset->name);
        trajd_json_u64(json, "weight", mixture ? trajd_mixture_weight(mixture, p) : 1);
        trajd_json_u64(json, "of", mixture ? trajd_mixture_weight_sum(mixture) : 1);
        trajd_json_u64(json, "windows", trajd_sampler_number_count(member->plan->sampler));
        trajd_json_u64(json, "episodes", member->plan->episode_count);
        trajd_json_bool(json, "resident", member->resident);
        trajd_json_u64(json, "made", trajd_counter_read(&member->windows));
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

void trajd_producer_report(const struct trajd_producer *producer, FILE *out)
{
    trajd_window_report(producer->plan, out);
    trajd_producer_report_norm(producer, out);
    fprintf(out, "  %u slots of %llu bytes\n  kernels: %s\n", producer->slot_count,
            (unsigned long long)producer->schema.slot_size_bytes,
            trajd_plan_describe(producer->members[0].kernel_plan));
}

void trajd_producer_describe(struct trajd_producer *producer, struct trajd_json *json)
{
    const struct trajd_feed_data data = trajd_producer_data(producer);
    uint32_t resident_count = 0;

    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        resident_count += producer->members[p].resident;
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", producer->name);
    trajd_json_bool(json, "resident", resident_count == producer->plan->member_count);
    trajd_json_u64(json, "episodes", data.used_count);
    trajd_json_u64(json, "episodes_found", data.found_count);
    trajd_json_u64(json, "episodes_kept", data.kept_count);
    trajd_json_u64(json, "episodes_quarantined", data.found_count - data.kept_count);
    trajd_json_u64(json, "episodes_used", data.used_count);
    trajd_json_string(json, "plan", trajd_plan_describe(producer->members[0].kernel_plan));
    if (producer->gpu)
        trajd_json_string(json, "gpu", trajd_gpu_id(producer->gpu));
    trajd_json_format(json, "norm_digest", "%016llx",
                      (unsigned long long)trajd_mixture_plan_norm_digest(producer->plan));
    trajd_json_format(json, "values_digest", "%016llx",
                      (unsigned long long)trajd_mixture_plan_values_digest(producer->plan));
    describe_members(producer, json);
    for (int c = 0; c < TRAJD_PRODUCER_COUNTERS; c++)
        trajd_json_u64(json, producer->counters[c].name,
                       trajd_counter_read(&producer->counters[c]));
    trajd_producer_describe_failure(&producer->last_failure, json);
    trajd_json_close_object(json);
}
