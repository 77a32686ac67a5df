/* Normalisation of a feed: finds the windows whose statistics its outputs are normalised by, and
 * sets these statistics before the first batch. */
#include <stdlib.h>
#include <string.h>

#include "daemon/stats/stats.h"
#include "daemon/producer/producer_internal.h"

/* Lists the outputs that still need statistics; returns how many. An output that a dataset of a
 * mixture lacks needs none. */
static uint32_t open_outputs(const struct trajd_window_plan *plan, uint32_t *outputs)
{
    uint32_t count = 0;

    for (uint32_t o = 0; o < plan->rules.output_count; o++)
        if (trajd_window_norm_is_open(plan, o) && !trajd_window_plan_lacks(plan, o))
            outputs[count++] = o;
    return count;
}

/* Sets *made to a plan of the feed that statistics_from names, which the caller destroys, or to
 * NULL where the feed uses its own windows. */
static enum trajd_status find_source(struct trajd_producer *producer,
                                     const struct trajd_window_plan *member,
                                     struct trajd_window_plan **made, struct trajd_error *error)
{
    const struct trajd_window_spec *other = producer->options.statistics_spec;

    *made = NULL;
    if (!producer->spec->statistics_from || (other && other == producer->spec))
        return TRAJD_OK;
    if (!other)
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "feed %s: statistics_from: no feed %s in this daemon's configuration", producer->name,
            producer->spec->statistics_from);
    if (other->statistics_from && strcmp(other->statistics_from, other->feed_name) != 0)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "feed %s: statistics_from: feed %s takes its own from %s: name that one",
            producer->name, other->feed_name, other->statistics_from);
    if (!other->is_mixture)
        return trajd_window_plan_create(other, producer->options.statistics_dataset, made, error);
    for (uint32_t p = 0; p < other->member_count; p++)
        if (strcmp(other->members[p].dataset, member->dataset->name) == 0)
            return trajd_window_plan_create(other->members[p].spec, member->dataset, made, error);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "feed %s: statistics_from: feed %s does not mix dataset %s in",
                           producer->name, other->feed_name, member->dataset->name);
}

/* Finds the output of the same name in the source. */
static enum trajd_status find_output(const struct trajd_producer *producer,
                                     const struct trajd_window_plan *source, uint32_t output,
                                     uint32_t *found, struct trajd_error *error)
{
    const char *wanted = producer->plan->members[0]->rules.outputs[output].name;
    const char *names[TRAJD_SPEC_MAX_OUTPUTS], *nearest;

    for (*found = 0; *found < source->rules.output_count; (*found)++)
        if (strcmp(source->rules.outputs[*found].name, wanted) == 0)
            return TRAJD_OK;
    for (uint32_t o = 0; o < source->rules.output_count; o++)
        names[o] = source->rules.outputs[o].name;
    nearest = trajd_yaml_nearest(wanted, names, source->rules.output_count);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "feed %s: outputs.%s: norm: feed %s, which statistics_from names, has "
                           "no output of that name%s%s%s",
                           producer->name, wanted, source->spec->feed_name,
                           nearest ? " (nearest: " : "", nearest ? nearest : "",
                           nearest ? ")" : "");
}

/* Refuses a key of an output that the output of statistics_from has with another value. */
static enum trajd_status refuse_key(const struct trajd_producer *producer, const char *output,
                                    const struct trajd_window_plan *source, const char *key,
                                    const char *own, const char *theirs, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "feed %s: outputs.%s: norm.%s: %s, but feed %s, which statistics_from "
                           "names, has %s: remove `%s:` here, or change it there",
                           producer->name, output, key, own, source->spec->feed_name, theirs, key);
}

/* Lets an output use over and min_std of the source's output. Refuses other ones of its own. */
static enum trajd_status follow_source(const struct trajd_producer *producer,
                                       struct trajd_window_plan *member, uint32_t output,
                                       const struct trajd_window_plan *source, uint32_t found,
                                       struct trajd_error *error)
{
    const struct trajd_spec_output *own = &member->spec->outputs[output],
                                   *theirs = &source->spec->outputs[found];
    const enum trajd_norm_over over = source->rules.outputs[found].norm_over;
    char text[32], other[32];

    if (own->norm_over && own->norm_over != over)
        return refuse_key(producer, own->name, source, "over", trajd_norm_over_name(own->norm_over),
                          trajd_norm_over_name(over), error);
    member->rules.outputs[output].norm_over = over;
    if (member->rules.outputs[output].transform || source->rules.outputs[found].transform) {
        const struct trajd_transform *a = member->rules.outputs[output].transform,
                                     *b = source->rules.outputs[found].transform;
        if ((a ? trajd_chain_id(a) : 0) != (b ? trajd_chain_id(b) : 0) ||
            member->rules.outputs[output].norm_step_count !=
                source->rules.outputs[found].norm_step_count)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "feed %s: outputs.%s: feed %s, which statistics_from names, "
                                   "has another rotation, relative_to or norm.per, so its "
                                   "statistics are of other values",
                                   producer->name, own->name, source->spec->feed_name);
    }
    if (own->norm_by != TRAJD_NORM_MEAN_STD || theirs->norm_by != TRAJD_NORM_MEAN_STD)
        return TRAJD_OK;
    snprintf(text, sizeof text, "%g", own->norm_min_std);
    snprintf(other, sizeof other, "%g", theirs->norm_min_std);
    if (own->norm_min_std > 0 && own->norm_min_std != theirs->norm_min_std)
        return refuse_key(producer, own->name, source, "min_std", text,
                          theirs->norm_min_std > 0 ? other : "none", error);
    member->rules.outputs[output].norm_min_std = theirs->norm_min_std;
    return TRAJD_OK;
}

/* Returns whether statistics of these outputs take no more than a moment. */
static bool is_little(const struct trajd_window_plan *plan, const uint32_t *outputs, uint32_t count,
                      uint64_t most_values)
{
    const uint64_t windows = trajd_sampler_number_count(plan->sampler);
    uint64_t values = 0; /* of a window */

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[outputs[i]];
        values += output->feature_count *
                  (output->norm_over == TRAJD_NORM_OVER_WINDOWS ? output->step_count : 1);
    }
    return !values || windows <= most_values / values;
}

static enum trajd_status put_in_force(struct trajd_producer *producer,
                                      struct trajd_window_plan *member,
                                      const struct trajd_window_plan *source,
                                      const uint32_t *outputs, uint32_t count,
                                      struct trajd_error *error)
{
    struct trajd_statistics *results[TRAJD_SPEC_MAX_OUTPUTS] = {NULL};
    uint32_t wanted[TRAJD_SPEC_MAX_OUTPUTS];
    enum trajd_status status = TRAJD_OK;
    bool known = true;

    for (uint32_t i = 0; i < count && !status; i++) {
        status = find_output(producer, source, outputs[i], &wanted[i], error);
        if (!status)
            status = follow_source(producer, member, outputs[i], source, wanted[i], error);
        known = known && !status &&
                trajd_stats_service_knows(producer->options.stats_service, source, wanted[i]);
    }
    if (status || (!known && !producer->options.server &&
                   !is_little(source, wanted, count, producer->options.most_check_values)))
        return status;
    status = trajd_stats_service_compute(producer->options.stats_service, source, wanted, count,
                                         results, error);
    if (status)
        return trajd_error_prefix(error, "feed %s: norm", producer->name);
    for (uint32_t i = 0; i < count; i++) {
        if (!status)
            status = trajd_window_norm_set(member, outputs[i], results[i], error);
        if (!status && !trajd_plan_is_image(member, outputs[i]))
            trajd_window_plan_warn_of_columns(member, outputs[i], results[i]);
        free(results[i]);
    }
    producer->norm_is_known = !status;
    return status;
}

/* Normalises one dataset of the feed. Each dataset of a mixture uses the statistics of its own
 * windows. */
static enum trajd_status normalise_member(struct trajd_producer *producer,
                                          struct trajd_window_plan *member,
                                          struct trajd_error *error)
{
    uint32_t outputs[TRAJD_SPEC_MAX_OUTPUTS];
    const uint32_t count = open_outputs(member, outputs);
    struct trajd_window_plan *source;
    enum trajd_status status = find_source(producer, member, &source, error);

    if (!status && count)
        status = put_in_force(producer, member, source ? source : member, outputs, count, error);
    trajd_window_plan_destroy(&source);
    return status;
}

/* Lists the outputs of numbers whose columns were not looked at yet. */
static uint32_t unseen_outputs(const struct trajd_window_plan *plan, uint32_t *outputs)
{
    uint32_t count = 0;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (!trajd_window_norm_is_open(plan, o) && trajd_statistics_are_cheap(plan, o))
            outputs[count++] = o;
    return count;
}

/* Warns of columns of outputs without norm that hardly vary: only for a check, which has the
 * time. */
static void look_at_columns(struct trajd_producer *producer, struct trajd_window_plan *member,
                            uint64_t most_values)
{
    struct trajd_statistics *results[TRAJD_SPEC_MAX_OUTPUTS] = {NULL};
    uint32_t outputs[TRAJD_SPEC_MAX_OUTPUTS];
    const uint32_t count = unseen_outputs(member, outputs);
    struct trajd_error error;

    if (!count || !is_little(member, outputs, count, most_values))
        return;
    if (trajd_stats_service_compute(producer->options.stats_service, member, outputs, count,
                                    results, &error))
        trajd_window_plan_warn(member, "rows cannot be read: %s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        if (results[i])
            trajd_window_plan_warn_of_columns(member, outputs[i], results[i]);
        free(results[i]);
    }
}

enum trajd_status trajd_producer_normalise(struct trajd_producer *producer,
                                           struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++)
        status = normalise_member(producer, producer->plan->members[p], error);
    for (uint32_t p = 0; p < producer->plan->member_count && !status && !producer->options.server;
         p++)
        look_at_columns(producer, producer->plan->members[p], producer->options.most_check_values);
    return status;
}
