/* Answers "live": how an observation of the feed is built from rows as they come. */
#include <inttypes.h>

#include "daemon/control/query.h"
#include "daemon/live/live_description.h"
#include "daemon/window/mixture_plan.h"
#include "proto/plural.h"

enum trajd_status trajd_query_live(const struct trajd_query *query,
                                   const struct trajd_producer *producer, struct trajd_json *json,
                                   struct trajd_error *error)
{
    const struct trajd_mixture_plan *feed = trajd_producer_plan(producer);
    struct trajd_live_choice choice;
    uint64_t next = query->first;
    enum trajd_status status;

    if (query->window >= feed->member_count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "dataset %" PRIu64 " does not exist: the feed has %u dataset%s",
                               query->window, feed->member_count, trajd_plural(feed->member_count));
    status = trajd_live_choose(feed->members[query->window], &choice, error);
    if (status)
        return status;
    if (query->first >= choice.output_count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "output %" PRIu64 " does not exist: there are %u", query->first,
                               choice.output_count);
    trajd_json_open_object(json, NULL);
    trajd_live_write_head(&choice, json);
    trajd_json_open_array(json, "outputs");
    for (; next < choice.output_count; next++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        trajd_live_write_output(&choice, (uint32_t)next, json);
        if (!trajd_query_fits(json, mark))
            break;
    }
    trajd_query_end_page(json, next, choice.output_count);
    if (next > query->first)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "the description of %s is longer than a message",
                           choice.plan->outputs[choice.outputs[next]].name);
}
