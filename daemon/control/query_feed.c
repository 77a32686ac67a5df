/* Short answers about a feed: "position", "live" and "pictures". */
#include "daemon/control/query.h"

#include <inttypes.h>

#include "daemon/live/live_description.h"
#include "daemon/window/mixture_plan.h"
#include "proto/plural.h"

/* Answers "position": lists the windows at positions [first, first + count) of the epoch whose
 * number is in the query's field `window`. */

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
    const struct trajd_mixture_plan *plan = producer->plan;
    const uint64_t length = trajd_mixture_plan_epoch_length(plan);
    const uint64_t wanted = query->count ? query->count : length;
    uint64_t next = query->first;

    if (query->first >= length)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "position %" PRIu64 " does not exist: an epoch has %" PRIu64
                               " positions",
                               query->first, length);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
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

/* Answers "live", how an observation of the feed is built from rows as they come, and "plan", how
 * all outputs are: the document of a plan, page by page. */

static enum trajd_status write_page(const struct trajd_document *document, uint64_t first,
                                    struct trajd_json *json, struct trajd_error *error)
{
    uint64_t next = first;

    if (first >= document->output_count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "output %" PRIu64 " does not exist: there are %u", first,
                               document->output_count);
    trajd_json_open_object(json, NULL);
    if (!trajd_document_write_head(document, json))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the document of a plan");
    trajd_json_open_array(json, "outputs");
    for (; next < document->output_count; next++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        if (!trajd_document_write_output(&document->outputs[next], json))
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for the document of a plan");
        if (!trajd_query_fits(json, mark))
            break;
    }
    trajd_query_end_page(json, next, document->output_count);
    if (next > first)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "the description of %s is longer than a message",
                           document->outputs[next].name);
}

static enum trajd_status describe(const struct trajd_query *query,
                                  const struct trajd_producer *producer, bool is_whole,
                                  struct trajd_json *json, struct trajd_error *error)
{
    const struct trajd_mixture_plan *feed = producer->plan;
    struct trajd_arena arena = {.limit_bytes = SIZE_MAX};
    struct trajd_document document;
    enum trajd_status status;

    if (query->window >= feed->member_count)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "dataset %" PRIu64 " does not exist: the feed has %u dataset%s",
                               query->window, feed->member_count, trajd_plural(feed->member_count));
    status = trajd_live_describe(feed->members[query->window], is_whole, &arena, &document, error);
    if (!status)
        status = write_page(&document, query->first, json, error);
    trajd_arena_free(&arena);
    return status;
}

enum trajd_status trajd_query_live(const struct trajd_query *query,
                                   const struct trajd_producer *producer, struct trajd_json *json,
                                   struct trajd_error *error)
{
    return describe(query, producer, false, json, error);
}

enum trajd_status trajd_query_plan(const struct trajd_query *query,
                                   const struct trajd_producer *producer, struct trajd_json *json,
                                   struct trajd_error *error)
{
    return describe(query, producer, true, json, error);
}

/* Answers "pictures": what decides the values of the feed's images, one item for each output of
 * images and each dataset. The item's fields are those of trajd_image_words. */

static void write_image(const struct trajd_window_plan *plan, uint32_t image,
                        struct trajd_json *json)
{
    const uint32_t o = plan->rules.targets[plan->rules.row_target_count + image].output_index;
    struct trajd_image_words words;

    trajd_window_write_words(plan, image, &words);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "output", plan->rules.outputs[o].name);
    trajd_json_string(json, "dataset", plan->dataset->name);
    trajd_json_open_object(json, "keys");
    for (uint32_t w = 0; w < words.count; w++)
        trajd_json_string(json, words.list[w].key, words.list[w].text);
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

static uint64_t count_images(const struct trajd_mixture_plan *plan)
{
    uint64_t count = 0;

    for (uint32_t p = 0; p < plan->member_count; p++)
        count += plan->members[p]->rules.image_count;
    return count;
}

/* Writes item `item` of all members. */
static void write_item(const struct trajd_mixture_plan *plan, uint64_t item,
                       struct trajd_json *json)
{
    uint32_t p = 0;

    for (; item >= plan->members[p]->rules.image_count; p++)
        item -= plan->members[p]->rules.image_count;
    write_image(plan->members[p], (uint32_t)item, json);
}

enum trajd_status trajd_query_images(const struct trajd_query *query,
                                     const struct trajd_producer *producer, struct trajd_json *json,
                                     struct trajd_error *error)
{
    const struct trajd_mixture_plan *plan = producer->plan;
    const uint64_t total = count_images(plan);
    uint64_t next = query->first;

    if (query->first > total)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "item %" PRIu64 " does not exist: there are %" PRIu64, query->first,
                               total);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "feed", producer->name);
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
