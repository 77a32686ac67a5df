/* Answers "episodes": lists all episodes of the feed's datasets, kept or quarantined, with the
 * digests that the fingerprint is made from. Episodes are numbered through all datasets. */
#include <inttypes.h>
#include <string.h>

#include "daemon/control/query.h"
#include "daemon/window/mixture_plan.h"

/* of one text with its key as JSON in a list: 16 of them fit a document */
#define TEXT_BYTES_MAX 2047

/* Returns the rows of the anchor's clock; where anchors have a rate of their own, of the clock with
 * the most rows. */
static int64_t row_count(const struct trajd_window_plan *plan, const struct trajd_episode *episode)
{
    int64_t rows = 0;

    if (trajd_window_plan_quarantine(plan, episode))
        return 0;
    if (plan->rules.anchor_clock >= 0)
        return episode->clocks[plan->rules.anchor_clock].row_count;
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        rows = episode->clocks[c].row_count > rows ? episode->clocks[c].row_count : rows;
    return rows;
}

/* Writes the episode's texts, or the one called `name`. Long texts are left out of a list and only
 * named; a query for one name gets the text. */
static void write_metas(const struct trajd_index *index, const struct trajd_episode *episode,
                        const char *name, struct trajd_json *json)
{
    uint64_t left_out = 0;

    trajd_json_open_object(json, "meta");
    for (uint32_t m = 0; m < index->layout->meta_count; m++) {
        const char *key = index->layout->metas[m].name;
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        if (*name && strcmp(name, key) != 0)
            continue;
        trajd_json_string(json, key, episode->metas[m]);
        if (!*name && !trajd_json_fits(json, mark, (size_t)mark.at + TEXT_BYTES_MAX))
            left_out |= UINT64_C(1) << m;
    }
    trajd_json_close_object(json);
    if (!left_out)
        return;
    trajd_json_open_array(json, "meta_left_out");
    for (uint32_t m = 0; m < index->layout->meta_count; m++)
        if (left_out >> m & 1)
            trajd_json_string(json, NULL, index->layout->metas[m].name);
    trajd_json_close_array(json);
}

static enum trajd_status check_name(const struct trajd_index *index, const char *name,
                                    struct trajd_error *error)
{
    char names[256] = "";
    size_t used = 0;

    for (uint32_t m = 0; m < index->layout->meta_count; m++) {
        if (!*name || strcmp(index->layout->metas[m].name, name) == 0)
            return TRAJD_OK;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", m ? ", " : "",
                                     index->layout->metas[m].name);
    }
    if (!*name)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "layout %s has no meta %s (metas: %s)",
                           index->layout->name, name, used ? names : "none");
}

static uint64_t episode_count(const struct trajd_mixture_plan *plan)
{
    uint64_t count = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        count += plan->members[p]->dataset->index->episode_count;
    return count;
}

/* Writes episode `number`, counted through all datasets. */
static void write_episode(const struct trajd_mixture_plan *mixture, uint64_t number,
                          const char *name, struct trajd_json *json)
{
    const struct trajd_window_plan *plan = mixture->members[0];
    const struct trajd_index *index;
    const struct trajd_episode *episode;

    for (uint32_t p = 0; number >= plan->dataset->index->episode_count;
         plan = mixture->members[++p])
        number -= plan->dataset->index->episode_count;
    index = plan->dataset->index;
    episode = &index->episodes[number];

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "dataset", plan->dataset->name);
    trajd_json_u64(json, "episode_index", number);
    trajd_json_string(json, "file", index->files[episode->file_index].relative_path);
    trajd_json_string(json, "episode", episode->id);
    trajd_json_i64(json, "rows", row_count(plan, episode));
    trajd_json_format(json, "digest", "%016" PRIx64, episode->digest);
    if (trajd_window_plan_quarantine(plan, episode))
        trajd_json_string(json, "quarantine", trajd_window_plan_quarantine(plan, episode));
    write_metas(index, episode, name, json);
    trajd_json_close_object(json);
}

/* Checks that one of the datasets has a text of that name. */
static enum trajd_status check_names(const struct trajd_mixture_plan *plan, const char *name,
                                     struct trajd_error *error)
{
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;

    for (uint32_t p = 0; p < plan->member_count && status; p++)
        status = check_name(plan->members[p]->dataset->index, name, error);
    return status;
}

enum trajd_status trajd_query_episodes(const struct trajd_query *query,
                                       const struct trajd_producer *producer,
                                       struct trajd_json *json, struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = producer->plan;
    const uint64_t total = episode_count(plan);
    const uint64_t wanted = query->count ? query->count : total;
    uint64_t next = query->first;
    enum trajd_status status = check_names(plan, query->name, error);

    if (status)
        return status;
    if (query->first >= total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "episode %" PRIu64 " does not exist: the feed has %" PRIu64
                               " episodes",
                               query->first, total);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
    trajd_json_format(json, "fingerprint", "%016" PRIx64, plan->fingerprint);
    trajd_json_open_array(json, "datasets");
    for (uint32_t p = 0; p < plan->member_count; p++) {
        const struct trajd_dataset *dataset = plan->members[p]->dataset;
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "name", dataset->name);
        trajd_json_format(json, "fingerprint", "%016" PRIx64, dataset->index->fingerprint);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
    trajd_json_u64(json, "episodes", total);
    trajd_json_u64(json, "first", query->first);
    trajd_json_open_array(json, "items");
    for (; next < total && next - query->first < wanted; next++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        write_episode(plan, next, query->name, json);
        if (!trajd_query_fits(json, mark))
            break;
    }
    trajd_query_end_page(json, next, total);
    return TRAJD_OK;
}
