/* Answers "statistics": of one output over the feed's windows, or of a stream's rows (stream:NAME);
 * and the scale and offset that the feed normalises by. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/query.h"
#include "daemon/base/json.h"
#include "daemon/window/mixture_plan.h"
#include "daemon/stats/stats.h"
#include "daemon/stats/stats_service.h"

#define PAGE_FEATURES 128u /* features in an answer, of some 300 bytes each */
#define STREAM_PREFIX "stream:"

static enum trajd_status check_streams(const struct trajd_window_plan *plan, uint32_t output,
                                       struct trajd_error *error)
{
    if (!trajd_window_plan_lacks(plan, output))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "dataset %s lacks a stream of output %s",
                           plan->dataset->name, plan->outputs[output].name);
}

static enum trajd_status find_subject(const struct trajd_window_plan *plan, const char *name,
                                      enum trajd_statistics_subject *subject, uint32_t *index,
                                      struct trajd_error *error)
{
    const struct trajd_index *streams = plan->dataset->index;
    const char *names[256] = {"none"}, *nearest;
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
        for (*index = 0; *index < plan->output_count; (*index)++)
            if (strcmp(plan->outputs[*index].name, name) == 0)
                return check_streams(plan, *index, error);
        for (; count < plan->output_count; count++)
            names[count] = plan->outputs[count].name;
    }
    nearest = trajd_yaml_nearest(name, names, count);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "there is no %s %s (%s%s%sthere are %u, the first is %s; stream:NAME "
                           "selects recorded rows)",
                           *subject == TRAJD_SUBJECT_STREAM ? "stream" : "output", name,
                           nearest ? "did you mean " : "", nearest ? nearest : "",
                           nearest ? "? " : "", count, names[0]);
}

static void write_norm(const struct trajd_producer *producer, const struct trajd_window_plan *plan,
                       uint32_t output_index, uint32_t first, uint32_t count, FILE *out)
{
    const struct trajd_spec_output *spec = &plan->spec->outputs[output_index];
    const struct trajd_plan_output *output = &plan->outputs[output_index];

    if (!spec->norm_by)
        return;
    fprintf(out, ",\"norm\":{\"by\":\"%s\",\"from\":", trajd_norm_name(spec->norm_by));
    if (spec->norm_file)
        trajd_json_text(out, spec->norm_file);
    else
        trajd_json_text(
            out, spec->norm_by == TRAJD_NORM_NUMBERS ? NULL : trajd_producer_norm_source(producer));
    fprintf(out, ",\"scale\":");
    trajd_statistics_write_floats(output->scale + first, count, out);
    fprintf(out, ",\"offset\":");
    trajd_statistics_write_floats(output->offset + first, count, out);
    fputc('}', out);
}

/* Checks the index of the dataset, which the query's field `window` holds. */
static enum trajd_status check_dataset(const struct trajd_mixture_plan *feed,
                                       uint64_t dataset_index, struct trajd_error *error)
{
    if (dataset_index < feed->member_count)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "dataset %" PRIu64 " does not exist: the feed has %u datasets",
                           dataset_index, feed->member_count);
}

/* Answers a query without a name: lists the outputs of all datasets. */
static enum trajd_status list_outputs(const struct trajd_producer *producer, FILE *out)
{
    const struct trajd_mixture_plan *feed = trajd_producer_plan(producer);
    const struct trajd_window_plan *plan = feed->members[0];

    fprintf(out, "{\"feed\":");
    trajd_json_text(out, trajd_producer_name(producer));
    fprintf(out, ",\"norm_digest\":\"%016" PRIx64 "\",\"datasets\":[",
            trajd_mixture_plan_norm_digest(feed));
    for (uint32_t p = 0; p < feed->member_count; p++) {
        fprintf(out, p ? "," : "");
        trajd_json_text(out, feed->members[p]->dataset->name);
    }
    fprintf(out, "],\"outputs\":[");
    for (uint32_t o = 0; o < plan->output_count; o++) {
        fprintf(out, "%s{\"name\":", o ? "," : "");
        trajd_json_text(out, plan->outputs[o].name);
        fprintf(out, ",\"features\":%u,\"picture\":%s,\"norm\":\"%s\",\"lacking\":[",
                trajd_statistics_output_features(plan, o),
                trajd_statistics_is_picture(plan, o) ? "true" : "false",
                trajd_norm_name(plan->spec->outputs[o].norm_by));
        for (uint32_t p = 0, before = 0; p < feed->member_count; p++)
            if (trajd_window_plan_lacks(feed->members[p], o))
                fprintf(out, "%s%u", before++ ? "," : "", p);
        fprintf(out, "]}");
    }
    fprintf(out, "]}");
    return TRAJD_OK;
}

enum trajd_status trajd_query_statistics(const struct trajd_query *query,
                                         const struct trajd_producer *producer, FILE *out,
                                         struct trajd_error *error)
{
    const struct trajd_mixture_plan *feed = trajd_producer_plan(producer);
    const struct trajd_window_plan *plan =
        feed->members[query->window < feed->member_count ? query->window : 0];
    enum trajd_statistics_subject subject;
    struct trajd_statistics *found = NULL;
    uint32_t index, permille, first, count;
    enum trajd_status status = check_dataset(feed, query->window, error);

    if (!status && !query->name[0])
        return list_outputs(producer, out);
    if (!status)
        status = find_subject(plan, query->name, &subject, &index, error);
    if (!status)
        status = trajd_stats_service_request(trajd_producer_stats_service(producer), plan, subject,
                                             index, &found, &permille, error);
    if (!status && found && query->first >= found->feature_count)
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "feature %" PRIu64 " does not exist: there are %u features",
                                 query->first, found->feature_count);
    if (status) {
        free(found);
        return status;
    }
    fprintf(out, "{\"feed\":");
    trajd_json_text(out, trajd_producer_name(producer));
    fprintf(out, ",\"dataset\":");
    trajd_json_text(out, plan->dataset->name);
    fprintf(out, ",\"name\":");
    trajd_json_text(out, query->name);
    if (!found) {
        fprintf(out, ",\"state\":\"computing\",\"done\":%.3f}", permille / 1000.0);
        return TRAJD_OK;
    }
    first = (uint32_t)query->first;
    count =
        found->feature_count - first < PAGE_FEATURES ? found->feature_count - first : PAGE_FEATURES;
    count = query->count && query->count < count ? query->count : count;
    fprintf(out, ",\"state\":\"ready\",\"first\":%u,\"next\":", first);
    if (first + count < found->feature_count)
        fprintf(out, "%u,", first + count);
    else
        fprintf(out, "null,");
    trajd_statistics_write(found, first, count, out);
    if (subject == TRAJD_SUBJECT_OUTPUT)
        write_norm(producer, plan, index, first, count, out);
    fprintf(out, ",\"norm_digest\":\"%016" PRIx64 "\"}", trajd_mixture_plan_norm_digest(feed));
    free(found);
    return TRAJD_OK;
}
