/* Answers "position": lists the windows at positions [first, first + count) of the epoch whose
 * number is in the query's field `window`. */
#include <inttypes.h>

#include "daemon/control/query.h"
#include "daemon/base/json.h"
#include "daemon/window/mixture_plan.h"

static void write_window(const struct trajd_mixture_plan *plan, uint64_t epoch, uint64_t position,
                         FILE *out)
{
    const struct trajd_dataset *dataset;
    const struct trajd_index *index;
    const struct trajd_episode *episode;
    struct trajd_window window;

    trajd_mixture_plan_run(plan, epoch, position, 1, &window);
    dataset = plan->members[window.dataset_index]->dataset;
    index = dataset->index;
    episode = &index->episodes[window.episode_index];
    fprintf(out, "{\"position\":%" PRIu64 ",\"window_id\":%" PRIu64 ",\"dataset\":", position,
            window.window_id);
    trajd_json_text(out, dataset->name);
    fprintf(out, ",\"dataset_index\":%u,\"file\":", window.dataset_index);
    trajd_json_text(out, index->files[episode->file_index].relative_path);
    fprintf(out, ",\"episode\":");
    trajd_json_text(out, episode->id);
    fprintf(out, ",\"episode_index\":%u,\"anchor\":%" PRId64 ",\"wrapped\":%s}",
            window.episode_index, window.anchor, window.wrapped ? "true" : "false");
}

enum trajd_status trajd_query_position(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = trajd_producer_plan(producer);
    const uint64_t length = trajd_mixture_plan_epoch_length(plan);
    const uint64_t wanted = query->count ? query->count : length;
    uint64_t next = query->first;

    if (query->first >= length)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "position %" PRIu64 " does not exist: an epoch has %" PRIu64
                               " positions",
                               query->first, length);
    fprintf(out, "{\"feed\":");
    trajd_json_text(out, trajd_producer_name(producer));
    fprintf(out, ",\"epoch\":%" PRIu64 ",\"length\":%" PRIu64 ",\"first\":%" PRIu64 ",\"items\":[",
            query->window, length, query->first);
    for (; next < length && next - query->first < wanted; next++) {
        const long mark = ftell(out);
        if (next > query->first)
            fputc(',', out);
        write_window(plan, query->window, next, out);
        if (!trajd_query_fits(out, mark))
            break;
    }
    trajd_query_end_page(out, next, length);
    return TRAJD_OK;
}
