/* Answers "pictures": what decides the values of the feed's pictures, one item for each output of
 * pictures and each dataset. The item's fields are those of trajd_picture_words. */
#include <inttypes.h>

#include "daemon/control/query.h"
#include "daemon/window/mixture_plan.h"

static void write_picture(const struct trajd_window_plan *plan, uint32_t picture,
                          struct trajd_json *json)
{
    const uint32_t o = plan->targets[plan->row_target_count + picture].output_index;
    struct trajd_picture_words words;

    trajd_window_write_words(plan, picture, &words);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "output", plan->outputs[o].name);
    trajd_json_string(json, "dataset", plan->dataset->name);
    trajd_json_open_object(json, "keys");
    for (uint32_t w = 0; w < words.count; w++)
        trajd_json_string(json, words.list[w].key, words.list[w].text);
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

static uint64_t count_pictures(const struct trajd_mixture_plan *plan)
{
    uint64_t count = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        count += plan->members[p]->picture_count;
    return count;
}

/* Writes item `item` of all members. */
static void write_item(const struct trajd_mixture_plan *plan, uint64_t item,
                       struct trajd_json *json)
{
    uint32_t p = 0;

    for (; item >= plan->members[p]->picture_count; p++)
        item -= plan->members[p]->picture_count;
    write_picture(plan->members[p], (uint32_t)item, json);
}

enum trajd_status trajd_query_pictures(const struct trajd_query *query,
                                       const struct trajd_producer *producer,
                                       struct trajd_json *json, struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = trajd_producer_plan(producer);
    const uint64_t total = count_pictures(plan);
    uint64_t next = query->first;

    if (query->first > total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "item %" PRIu64 " does not exist: there are %" PRIu64, query->first,
                               total);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", trajd_producer_name(producer));
    trajd_json_format(json, "values_digest", "%016" PRIx64, trajd_mixture_plan_values_digest(plan));
    trajd_json_u64(json, "first", query->first);
    trajd_json_open_array(json, "items");
    for (; next < total && (!query->count || next - query->first < query->count); next++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        write_item(plan, next, json);
        if (!trajd_query_fits(json, mark))
            break;
    }
    trajd_query_end_page(json, next, total);
    return TRAJD_OK;
}
