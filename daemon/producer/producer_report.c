/* A feed in words, as JSON, and as reported to its workers; and how it normalises, in words. */
#include "daemon/producer/producer_internal.h"

#include <string.h>

#include "daemon/base/defaults.h"
#include "daemon/feed/core.h"
#include "daemon/producer/gpu.h"
#include "daemon/stats/stats.h"
#include "daemon/window/window_report.h"
#include "kernels/dispatch/plan.h"

static const char *const counter_names[TRAJD_PRODUCER_COUNTERS] = {
    [TRAJD_PRODUCER_BATCHES] = "batches",        [TRAJD_PRODUCER_WINDOWS] = "windows",
    [TRAJD_PRODUCER_FAILED] = "failed_batches",  [TRAJD_PRODUCER_WAIT_NS] = "wait_ns",
    [TRAJD_PRODUCER_LOAD_NS] = "load_ns",        [TRAJD_PRODUCER_FRAMES_NS] = "frames_ns",
    [TRAJD_PRODUCER_RESAMPLE_NS] = "resample_ns"};

static void add_texts(const struct trajd_plan_texts *texts, struct trajd_wire_texts *list)
{
    for (uint32_t i = 0; i < texts->count && i < TRAJD_PLAN_TEXTS_MAX; i++)
        if (texts->list[i] && list->count < TRAJD_WIRE_MAX_TEXTS)
            list->list[list->count++] = trajd_wire_text(texts->list[i]);
}

struct trajd_feed_data trajd_producer_data(const struct trajd_producer *producer)
{
    struct trajd_feed_data data = {0};

    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_window_plan *member = producer->plan->members[p];
        data.found_count += member->found_count;
        data.kept_count += member->found_count - member->quarantined.count;
        data.used_count += member->episode_count;
        add_texts(&member->quarantined, &data.quarantined);
        add_texts(&member->warnings, &data.warnings);
    }
    return data;
}

/* ---- normalisation ---- */

const char *trajd_producer_norm_source(const struct trajd_producer *producer)
{
    return producer->spec->statistics_from ? producer->spec->statistics_from
                                           : producer->spec->feed_name;
}

const char *trajd_producer_changed_norm(const struct trajd_producer *producer)
{
    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_window_plan *plan = producer->plan->members[p];
        for (uint32_t o = 0; o < plan->rules.output_count; o++)
            if (plan->rules.outputs[o].norm_min_std > 0 ||
                (trajd_window_norm_is_open(plan, o) &&
                 plan->rules.outputs[o].norm_over == TRAJD_NORM_OVER_ROWS))
                return plan->rules.outputs[o].name;
    }
    return NULL;
}

void trajd_producer_report_norm(const struct trajd_producer *producer, FILE *out)
{
    for (uint32_t o = 0; o < producer->plan->members[0]->rules.output_count; o++) {
        const struct trajd_spec_output *output = &producer->spec->outputs[o];
        if (!output->norm_by)
            continue;
        fprintf(out, "  norm %s: %s", output->name, trajd_norm_name(output->norm_by));
        if (output->norm_file)
            fprintf(out, " of %s", output->norm_file);
        else if (output->norm_by != TRAJD_NORM_NUMBERS)
            fprintf(out, ", statistics over %s of %s%s%s%s",
                    trajd_norm_over_name(producer->plan->members[0]->rules.outputs[o].norm_over),
                    producer->spec->statistics_from ? "feed " : "this feed",
                    producer->spec->statistics_from ? producer->spec->statistics_from : "",
                    producer->spec->is_mixture ? ", for each dataset its own" : "",
                    producer->norm_is_known ? "" : " (to be computed when it is opened)");
        if (producer->plan->members[0]->rules.outputs[o].norm_min_std > 0)
            fprintf(out, ", std at least %g",
                    producer->plan->members[0]->rules.outputs[o].norm_min_std);
        if (output->norm_features)
            fprintf(out, ", mask: %s", trajd_norm_features_name(output->norm_features));
        for (uint32_t d = 0; d < output->norm_mask_count; d++)
            if (!output->norm_mask[d])
                fprintf(out, ", feature %u unchanged", d);
        fputc('\n', out);
    }
}

static const char *differs(const struct trajd_window_plan *a, const struct trajd_window_plan *b)
{
    for (uint32_t i = 0; i < a->rules.output_count && a->dataset == b->dataset; i++)
        for (uint32_t j = 0; j < b->rules.output_count; j++)
            if (trajd_window_norm_is_open(a, i) && trajd_window_norm_is_open(b, j) &&
                strcmp(a->rules.outputs[i].name, b->rules.outputs[j].name) == 0 &&
                trajd_statistics_output_fingerprint(a, i) !=
                    trajd_statistics_output_fingerprint(b, j))
                return a->rules.outputs[i].name;
    return NULL;
}

const char *trajd_producer_norm_differs(const struct trajd_producer *a,
                                        const struct trajd_producer *b)
{
    const char *found = NULL;

    if (a->spec->statistics_from || b->spec->statistics_from)
        return NULL;
    for (uint32_t p = 0; p < a->plan->member_count && !found; p++)
        for (uint32_t q = 0; q < b->plan->member_count && !found; q++)
            found = differs(a->plan->members[p], b->plan->members[q]);
    return found;
}

/* ---- in words and as JSON ---- */

/* Writes the slots and the credit, and the reason for their number. */
static void ring_text(const struct trajd_producer *producer, char *text, size_t size)
{
    const uint64_t slot_bytes = producer->schema.slot_size_bytes;

    snprintf(text, size, "%u slots of %llu bytes (%s); a worker may hold %u", producer->slot_count,
             (unsigned long long)slot_bytes,
             trajd_slots_reason(producer->spec->slot_count, slot_bytes, producer->slot_count),
             trajd_core_credit(TRAJD_WIRE_ANY_CREDIT, producer->options.max_credit,
                               producer->slot_count));
}

void trajd_producer_report(const struct trajd_producer *producer, FILE *out)
{
    char ring[160];

    trajd_window_report(producer->plan, out);
    trajd_producer_report_norm(producer, out);
    ring_text(producer, ring, sizeof ring);
    fprintf(out, "  %s\n  kernels: %s\n", ring,
            trajd_plan_describe(producer->members[0].kernel_plan));
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

/* Writes the member last_failure, a text, if a batch has failed. */
static void describe_failure(struct trajd_producer *producer, struct trajd_json *json)
{
    struct trajd_error error;

    pthread_mutex_lock(&producer->failure_mutex);
    error = producer->last_failure;
    pthread_mutex_unlock(&producer->failure_mutex);
    if (error.status)
        trajd_json_string(json, "last_failure", error.message);
}

void trajd_producer_describe(struct trajd_producer *producer, struct trajd_json *json)
{
    const struct trajd_feed_data data = trajd_producer_data(producer);
    uint32_t resident_count = 0;
    char ring[160];

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
    ring_text(producer, ring, sizeof ring);
    trajd_json_string(json, "ring", ring);
    if (producer->options.gpu)
        trajd_json_string(json, "gpu", trajd_gpu_id(producer->options.gpu));
    trajd_json_format(json, "norm_digest", "%016llx",
                      (unsigned long long)trajd_mixture_plan_norm_digest(producer->plan));
    trajd_json_format(json, "values_digest", "%016llx",
                      (unsigned long long)trajd_mixture_plan_values_digest(producer->plan));
    describe_members(producer, json);
    for (int c = 0; c < TRAJD_PRODUCER_COUNTERS; c++)
        trajd_json_u64(json, counter_names[c], trajd_counter_read(&producer->counters[c]));
    describe_failure(producer, json);
    trajd_json_close_object(json);
}
