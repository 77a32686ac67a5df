/* Answers "position": lists the windows at positions [first, first + count) of the epoch whose
 * number is in the query's field `window`. */
#include <inttypes.h>

#include "daemon/control/query.h"
#include "daemon/window/mixture_plan.h"

static void write_window(const struct trajd_mixture_plan *plan, uint64_t epoch, uint64_t position,
                         struct trajd_json *json)
{
    const struct trajd_dataset *dataset;
    const struct trajd_index *index;
    const struct trajd_episode *episode;
    struct trajd_window window;

    trajd_mixture_plan_run(plan, epoch, position, 1, &window);
    dataset = plan->members[window.dataset_index]->dataset;
    index = dataset->index;
    episode = &index->episodes[window.episode_index];
    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "position", position);
    trajd_json_u64(json, "window_id", window.window_id);
    trajd_json_string(json, "dataset", dataset->name);
    trajd_json_u64(json, "dataset_index", window.dataset_index);
    trajd_json_string(json, "file", index->files[episode->file_index].relative_path);
    trajd_json_string(json, "episode", episode->id);
    trajd_json_u64(json, "episode_index", window.episode_index);
    trajd_json_i64(json, "anchor", window.anchor);
    trajd_json_bool(json, "wrapped", window.wrapped);
    trajd_json_u64(json, "pass", window.pass);
    trajd_json_close_object(json);
}

enum trajd_status trajd_query_position(const struct trajd_query *query,
                                       const struct trajd_producer *producer,
                                       struct trajd_json *json, struct trajd_error *error)
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
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", trajd_producer_name(producer));
    trajd_json_u64(json, "epoch", query->window);
    trajd_json_u64(json, "length", length);
    trajd_json_u64(json, "first", query->first);
    trajd_json_open_array(json, "items");
    for (; next < length && next - query->first < wanted; next++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        write_window(plan, query->window, next, json);
        if (!trajd_query_fits(json, mark))
            break;
    }
    trajd_query_end_page(json, next, length);
    return TRAJD_OK;
}
