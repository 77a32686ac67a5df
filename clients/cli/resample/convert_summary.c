#include "clients/cli/resample/convert_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json.h"
#include "daemon/window/window_report.h"
#include "daemon/index/writer_protocol.h"
#include "proto/array_len.h"

enum { PATH_SIZE = 4096 };

void convert_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size)
{
    const char *groups = index->layout->groups;
    size_t length = strcspn(groups, "*?[");

    if (!groups[length]) {
        snprintf(path, size, "%s", groups);
        return;
    }
    while (length > 0 && groups[length - 1] != '/')
        length--;
    snprintf(path, size, "%.*s%s", (int)length, groups, id);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const struct trajd_episode *episode_of(const struct convert_plan *plan, uint32_t e)
{
    return &plan->options->indexes[plan->episodes[e].source]->episodes[plan->episodes[e].episode];
}

static bool lists(const struct trajd_episode *episode, const char *key)
{
    for (const char *const *own = episode->filter_keys; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

static void put_mask(struct convert_child *child, const char *key)
{
    uint32_t count = 0;

    trajd_bytes_add_text(&child->frame, key);
    for (uint32_t e = 0; e < child->plan->episode_count; e++)
        count += lists(episode_of(child->plan, e), key);
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t e = 0; e < child->plan->episode_count; e++)
        if (lists(episode_of(child->plan, e), key))
            trajd_bytes_add_text(&child->frame, child->plan->episodes[e].id);
}

enum trajd_status convert_summary_send_masks(struct convert_child *child)
{
    const struct convert_plan *plan = child->plan;
    const char *filter = plan->options->indexes[0]->layout->filter_path, **keys;
    size_t count = 0, distinct = 0;
    char folder[PATH_SIZE];

    if (!filter)
        return TRAJD_OK;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            count++;
    keys = malloc((count + 1) * sizeof *keys);
    if (!keys)
        return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0, "no memory for masks");
    count = 0;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            keys[count++] = *own;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (!i || strcmp(keys[i], keys[distinct - 1]))
            keys[distinct++] = keys[i];
    convert_child_begin(child);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(filter, '/') - filter), filter);
    trajd_bytes_add_text(&child->frame, folder);
    trajd_bytes_add_u32(&child->frame, (uint32_t)distinct);
    for (size_t i = 0; i < distinct; i++)
        put_mask(child, keys[i]);
    free(keys);
    return distinct ? convert_child_send(child, TRAJD_WRITER_MASKS, -1) : TRAJD_OK;
}

/* Writes the rate as a number: 20, 12.5, 29.97. Returns false if no short number is exactly the
 * rate. */
static bool rate_number(struct trajd_rate rate, char *text, size_t size)
{
    static const int digits[] = {4, 6, 9, 15};
    struct trajd_rate back;

    for (size_t i = 0; i < ARRAY_LEN(digits); i++) {
        snprintf(text, size, "%.*g", digits[i], (double)rate.num / (double)rate.den);
        if (!strchr(text, 'e') && trajd_parse_rate(text, &back) && back.num == rate.num &&
            back.den == rate.den)
            return true;
    }
    return false;
}

/* Returns the number that states the rate of a clock: Hz, or a period in the layout's unit. */
static struct trajd_rate number_of(const struct trajd_layout_clock *clock, struct trajd_rate rate)
{
    const int64_t units = trajd_layout_units_per_second(clock);
    int64_t a, b;

    if (!units)
        return rate;
    rate = (struct trajd_rate){rate.den * units, rate.num};
    for (a = rate.num, b = rate.den; b;) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (struct trajd_rate){rate.num / a, rate.den / a};
}

static bool clock_is_used(const struct convert_plan *plan, uint32_t clock)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].clock == clock)
            return true;
    return false;
}

/* Adds the clock's rate where the layout reads it: one attribute, or one in each episode. */
static uint32_t put_rate(struct convert_child *child, const struct trajd_layout_clock *clock,
                         const char *number)
{
    const struct convert_plan *plan = child->plan;
    const bool is_one = *clock->rate_attribute == '/';
    const uint32_t count = is_one ? 1 : plan->episode_count;
    const char *at = strchr(clock->rate_attribute, '@'); /* the layout checked that there is one */
    const int length = (int)(at - clock->rate_attribute);

    for (uint32_t e = 0; e < count; e++) {
        char object[2 * PATH_SIZE], group[PATH_SIZE];
        convert_episode_path(plan->options->indexes[plan->episodes[e].source], plan->episodes[e].id,
                             group, sizeof group);
        snprintf(object, sizeof object, "%s%s%.*s", is_one ? "" : group,
                 is_one || !length ? "" : "/", length, clock->rate_attribute);
        trajd_bytes_add_text(&child->frame, object);
        trajd_bytes_add_text(&child->frame, at + 1);
        trajd_bytes_add_text(&child->frame, clock->rate_json);
        trajd_bytes_add_text(&child->frame, number);
    }
    return count;
}

/* Adds the new rate of each regular clock, so that a reader with the same layout finds it. */
static void put_rates(struct convert_child *child)
{
    const struct convert_plan *plan = child->plan;
    const struct trajd_layout *layout = plan->options->indexes[0]->layout;
    const struct trajd_rate rate = plan->options->rate;
    const size_t at = child->frame.length;
    uint32_t count = 0;

    trajd_bytes_add_u32(&child->frame, 0);
    for (uint32_t k = 0; k < layout->clock_count; k++) {
        const struct trajd_layout_clock *clock = &layout->clocks[k];
        char number[64];
        bool exact;
        if (clock->stamps_path || !clock_is_used(plan, k))
            continue;
        if (clock->rate_path)
            convert_note(plan->options,
                         "clock %s: the dataset %s is copied and keeps the rate of the source; "
                         "trajd reads the new rate from the attribute trajd_resample",
                         clock->name, clock->rate_path);
        if (!clock->rate_attribute)
            continue;
        exact = rate_number(number_of(clock, rate), number, sizeof number);
        count += put_rate(child, clock, number);
        if (!exact)
            convert_note(plan->options,
                         "clock %s: no decimal number is exactly the rate of %" PRId64 "/%" PRId64
                         " Hz; %s is written to %s",
                         clock->name, rate.num, rate.den, number, clock->rate_attribute);
    }
    if (!child->frame.failed)
        memcpy(child->frame.data + at, &count, sizeof count);
}

/* Writes the assumed rate of the sources, if one was used. */
static void write_assumption(struct trajd_json *json, const struct convert_plan *plan)
{
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        const struct trajd_episode *episode = episode_of(plan, e);
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const struct trajd_episode_clock *clock = &episode->clocks[plan->datasets[d].clock];
            if (clock->rate_source != TRAJD_RATE_ASSUMED)
                continue;
            trajd_json_format(json, "assumed_rate", "%" PRId64 "/%" PRId64, clock->rate.num,
                              clock->rate.den);
            return;
        }
    }
}

static void write_provenance(struct trajd_json *json, const struct convert_plan *plan)
{
    const struct trajd_convert_options *options = plan->options;
    size_t files = 0;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "by", "trajd " TRAJD_VERSION);
    trajd_json_string(json, "layout", options->indexes[0]->layout->name);
    trajd_json_format(json, "rate", "%" PRId64 "/%" PRId64, options->rate.num, options->rate.den);
    write_assumption(json, plan);
    if (plan->is_on_gpu)
        trajd_json_string(json, "arithmetic", "gpu");
    trajd_json_open_array(json, "sources");
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t f = 0; f < options->indexes[k]->file_count && files < 1000; f++, files++)
            trajd_json_string(json, NULL, options->indexes[k]->files[f].path);
    trajd_json_close_array(json);
    trajd_json_open_object(json, "streams");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        trajd_json_open_object(json, stream->name);
        trajd_json_string(json, "kind", trajd_convert_kind_name(stream));
        trajd_json_string(json, "from", trajd_dtype_name(stream->from));
        trajd_json_string(json, "to", trajd_dtype_name(stream->to));
        if (stream->window_ns)
            trajd_json_i64(json, "window_ns", stream->window_ns);
        trajd_json_close_object(json);
    }
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

/* Returns {"by":...,"layout":...,"rate":...,"sources":[...],"streams":{...}}, or NULL without
 * memory. The caller frees it. */
static char *provenance(const struct convert_plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    struct trajd_json json = {.out = open_memstream(&text, &size)};

    if (!json.out)
        return NULL;
    write_provenance(&json, plan);
    if (fclose(json.out) == 0)
        return text;
    free(text);
    return NULL;
}

enum trajd_status convert_summary_send(struct convert_child *child)
{
    char *text = provenance(child->plan);
    enum trajd_status status;
    size_t length;

    if (!text)
        return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0,
                               "no memory to describe where the file comes from");
    convert_child_begin(child);
    trajd_bytes_add_u64(&child->frame, child->plan->step_count);
    trajd_bytes_add_u64(&child->frame, child->plan->episode_count);
    put_rates(child);
    trajd_bytes_add_text(&child->frame, text);
    free(text);
    status = convert_child_send(child, TRAJD_WRITER_FINISH, -1);
    if (!status)
        status = convert_child_reply(child, TRAJD_WRITER_DONE, &length);
    return status;
}
