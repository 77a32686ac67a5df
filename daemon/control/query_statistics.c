/* Answers "statistics": of one output over rows or windows, or of a stream's rows (stream:NAME);
 * and the scale and offset that the feed normalises by. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/query.h"
#include "daemon/window/mixture_plan.h"
#include "daemon/stats/stats.h"
#include "daemon/stats/stats_service.h"
#include "proto/plural.h"

#define PAGE_FEATURES 128u /* features in an answer, of some 300 bytes each */
#define STREAM_PREFIX "stream:"

static enum trajd_status check_streams(const struct trajd_window_plan *plan, uint32_t output,
                                       struct trajd_error *error)
{
    if (!trajd_window_plan_lacks(plan, output))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "dataset %s lacks a stream of output %s",
                           plan->dataset->name, plan->rules.outputs[output].name);
}

static enum trajd_status find_subject(const struct trajd_window_plan *plan, const char *name,
                                      enum trajd_statistics_subject *subject, uint32_t *index,
                                      struct trajd_error *error)
{
    const struct trajd_index *streams = plan->dataset->index;
    const char *names[256] = {"none"};
    uint32_t count = 0;
    int64_t stream;

    *subject = strncmp(name, STREAM_PREFIX, sizeof STREAM_PREFIX - 1) == 0 ? TRAJD_SUBJECT_STREAM
                                                                           : TRAJD_SUBJECT_OUTPUT;
    if (*subject == TRAJD_SUBJECT_STREAM) {
        name += sizeof STREAM_PREFIX - 1;
        stream = trajd_index_find_stream(streams, name);
        *index = (uint32_t)stream;
        if (stream >= 0)
            return TRAJD_OK;
        for (; count < streams->stream_count && count < 256; count++)
            names[count] = streams->streams[count].name;
    } else {
        for (*index = 0; *index < plan->rules.visible_count; (*index)++)
            if (strcmp(plan->rules.outputs[*index].name, name) == 0)
                return check_streams(plan, *index, error);
        for (; count < plan->rules.visible_count; count++)
            names[count] = plan->rules.outputs[count].name;
    }
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "there is no %s %s (%sthere are %u, the first is %s; stream:NAME "
                           "selects recorded rows)",
                           *subject == TRAJD_SUBJECT_STREAM ? "stream" : "output", name,
                           trajd_yaml_suggest("", name, names, count, " ").text, count, names[0]);
}

/* Writes how the values of an output are scaled, without the scale: by, over, min_std, from. */
static void write_rule(const struct trajd_producer *producer, const struct trajd_window_plan *plan,
                       uint32_t output_index, const char *key_of_by, struct trajd_json *json)
{
    const struct trajd_spec_output *spec = &plan->spec->outputs[output_index];
    const bool computed = spec->norm_by > TRAJD_NORM_NUMBERS && !spec->norm_file;

    trajd_json_string(json, key_of_by, trajd_norm_name(spec->norm_by));
    if (!spec->norm_by)
        return;
    if (computed)
        trajd_json_string(json, "over",
                          trajd_norm_over_name(plan->rules.outputs[output_index].norm_over));
    if (plan->rules.outputs[output_index].norm_min_std > 0)
        trajd_json_number(json, "min_std", "%.17g", plan->rules.outputs[output_index].norm_min_std);
    if (spec->norm_file)
        trajd_json_string(json, "from", spec->norm_file);
    else if (computed)
        trajd_json_string(json, "from", trajd_producer_norm_source(producer));
    else
        trajd_json_null(json, "from");
}

static void write_image_norm(const struct trajd_image_spec *image, struct trajd_json *json)
{
    char norm[256];
    struct trajd_text text = {norm, sizeof norm, 0};

    trajd_image_write_norm(image, &text);
    trajd_json_string(json, "norm", norm);
}

static void write_norm(const struct trajd_producer *producer, const struct trajd_window_plan *plan,
                       uint32_t output_index, uint32_t first, uint32_t count,
                       struct trajd_json *json)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];

    if (!plan->spec->outputs[output_index].norm_by)
        return;
    trajd_json_open_object(json, "norm");
    write_rule(producer, plan, output_index, "by", json);
    trajd_statistics_write_floats(output->scale + first, count, "scale", json);
    trajd_statistics_write_floats(output->offset + first, count, "offset", json);
    trajd_json_close_object(json);
}

/* Writes what the figures are of: the transform, and how many steps have their own. */
static void write_chain(const struct trajd_window_plan *plan, uint32_t output_index,
                        struct trajd_json *json)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];

    if (output->norm_step_count > 1)
        trajd_json_u64(json, "norm_steps", output->norm_step_count);
    if (output->transform && trajd_chain_id(output->transform))
        trajd_chain_write(output->transform, json);
}

/* Checks the index of the dataset, which the query's field `window` holds. */
static enum trajd_status check_dataset(const struct trajd_mixture_plan *feed,
                                       uint64_t dataset_index, struct trajd_error *error)
{
    if (dataset_index < feed->member_count)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "dataset %" PRIu64 " does not exist: the feed has %u dataset%s",
                           dataset_index, feed->member_count, trajd_plural(feed->member_count));
}

static void write_output(const struct trajd_producer *producer, uint32_t o, struct trajd_json *json)
{
    const struct trajd_mixture_plan *feed = producer->plan;
    const struct trajd_window_plan *plan = feed->members[0];

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", plan->rules.outputs[o].name);
    trajd_json_u64(json, "features", trajd_plan_feature_count(plan, o));
    trajd_json_bool(json, "picture",
                    trajd_plan_is_image(plan, o) || trajd_plan_has_frames(plan, o));
    if (plan->spec->outputs[o].image.has_norm)
        write_image_norm(&plan->spec->outputs[o].image, json);
    else
        write_rule(producer, plan, o, "norm", json);
    trajd_json_open_array(json, "lacking");
    for (uint32_t p = 0; p < feed->member_count; p++)
        if (trajd_window_plan_lacks(feed->members[p], o))
            trajd_json_u64(json, NULL, p);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

/* Answers a query without a name: lists the outputs of all datasets. */
static enum trajd_status list_outputs(const struct trajd_producer *producer,
                                      struct trajd_json *json)
{
    const struct trajd_mixture_plan *feed = producer->plan;
    const struct trajd_window_plan *plan = feed->members[0];

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
    trajd_json_format(json, "norm_digest", "%016" PRIx64, trajd_mixture_plan_norm_digest(feed));
    trajd_json_open_array(json, "datasets");
    for (uint32_t p = 0; p < feed->member_count; p++)
        trajd_json_string(json, NULL, feed->members[p]->dataset->name);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "outputs");
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        write_output(producer, o, json);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
    return TRAJD_OK;
}

/* Writes the statistics of `wanted` features from `first` on; 0: as many as a page has. Returns how
 * many. */
static uint32_t write_page(const struct trajd_statistics *found, uint32_t first, uint32_t wanted,
                           struct trajd_json *json)
{
    const uint32_t left = found->feature_count - first;
    uint32_t count = left < PAGE_FEATURES ? left : PAGE_FEATURES;

    count = wanted && wanted < count ? wanted : count;
    trajd_json_u64(json, "first", first);
    if (count < left)
        trajd_json_u64(json, "next", first + count);
    else
        trajd_json_null(json, "next");
    trajd_statistics_write(found, first, count, json);
    return count;
}

enum trajd_status trajd_query_statistics(const struct trajd_query *query,
                                         const struct trajd_producer *producer,
                                         struct trajd_json *json, struct trajd_error *error)
{
    const struct trajd_mixture_plan *feed = producer->plan;
    const struct trajd_window_plan *plan =
        feed->members[query->window < feed->member_count ? query->window : 0];
    enum trajd_statistics_subject subject;
    struct trajd_statistics *found = NULL;
    uint32_t index, permille, first, count;
    enum trajd_status status = check_dataset(feed, query->window, error);

    if (!status && !query->name[0])
        return list_outputs(producer, json);
    if (!status)
        status = find_subject(plan, query->name, &subject, &index, error);
    if (!status)
        status = trajd_stats_service_request(producer->options.stats_service, plan, subject, index,
                                             &found, &permille, error);
    if (!status && found && query->first >= found->feature_count)
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "feature %" PRIu64 " does not exist: there are %u features",
                                 query->first, found->feature_count);
    if (status) {
        free(found);
        return status;
    }
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
    trajd_json_string(json, "dataset", plan->dataset->name);
    trajd_json_string(json, "name", query->name);
    trajd_json_string(json, "state", found ? "ready" : "computing");
    if (!found) {
        trajd_json_number(json, "done", "%.3f", permille / 1000.0);
        trajd_json_close_object(json);
        return TRAJD_OK;
    }
    first = (uint32_t)query->first;
    count = write_page(found, first, query->count, json);
    if (subject == TRAJD_SUBJECT_OUTPUT && first == 0)
        write_chain(plan, index, json);
    if (subject == TRAJD_SUBJECT_OUTPUT)
        write_norm(producer, plan, index, first, count, json);
    trajd_json_format(json, "norm_digest", "%016" PRIx64, trajd_mixture_plan_norm_digest(feed));
    trajd_json_close_object(json);
    free(found);
    return TRAJD_OK;
}
