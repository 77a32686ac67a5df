/* Which streams a conversion takes, how each is made, and the datasets that they are columns of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/window_report.h"
#include "clients/cli/resample/convert_plan.h"

enum { NEAREST_MAX = 1024 };

static const double full_turn_rad = 6.283185307179586476925;
static const double full_turn_deg = 360.0;

/* A stream of the first index and what becomes of it. */
struct choice {
    struct trajd_convert_stream made;
    double angle_period;
    int64_t max_gap_ns;
    bool is_chosen, comes_along; /* asked for; or shares its dataset with one that is */
    bool is_typed;               /* `to` is a wish for this very stream */
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the plan");
}

static bool is_floating(enum trajd_dtype dtype)
{
    return dtype == TRAJD_F16 || dtype == TRAJD_F32 || dtype == TRAJD_F64;
}

static bool blends(enum trajd_kind kind)
{
    return kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST;
}

static bool is_slerp(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

/* "no stream is called X (did you mean Y?); there are: A, B, ..." */
static enum trajd_status no_stream(const struct trajd_index *index, const char *what,
                                   const char *name, struct trajd_error *error)
{
    const char *names[NEAREST_MAX] = {0}, *near;
    uint32_t count = index->stream_count < NEAREST_MAX ? index->stream_count : NEAREST_MAX;
    size_t used = 0;
    char list[300] = "";

    for (uint32_t i = 0; i < count; i++)
        names[i] = index->streams[i].name;
    near = trajd_yaml_nearest(name, names, count);
    for (uint32_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "%s: no stream is called \"%s\"%s%s%s; there are %s", what, name,
                           near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", list);
}

/* Marks the streams that the patterns name. */
static enum trajd_status choose(const struct trajd_convert_options *options,
                                const struct trajd_index *index, struct choice *choices,
                                struct trajd_error *error)
{
    for (uint32_t i = 0; i < index->stream_count; i++)
        choices[i].is_chosen = !options->stream_count;
    for (uint32_t s = 0; s < options->stream_count; s++) {
        bool any = false;
        for (uint32_t i = 0; i < index->stream_count; i++)
            if (trajd_layout_match(options->streams[s], index->streams[i].name, NULL, 0))
                any = choices[i].is_chosen = true;
        if (!any)
            return no_stream(index, "--streams", options->streams[s], error);
    }
    for (uint32_t i = 0; i < index->stream_count; i++)
        for (uint32_t k = 0; k < index->stream_count; k++)
            if (choices[k].is_chosen &&
                index->streams[k].array_index == index->streams[i].array_index)
                choices[i].comes_along = true;
    return TRAJD_OK;
}

/* A reader by the same layout misses what it requires. */
static void tell_missing(const struct trajd_convert_options *options,
                         const struct trajd_index *index, const struct choice *choices)
{
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (!choices[i].comes_along && !index->streams[i].optional)
            convert_note(
                options,
                "layout %s requires %s, which is not taken: the output needs a layout without it",
                index->layout->name, index->streams[i].name);
}

static void start_choice(const struct trajd_index *index, const struct trajd_index_stream *stream,
                         struct choice *choice)
{
    choice->made.name = stream->name;
    choice->made.clock = index->clocks[stream->clock_index].name;
    choice->made.kind = stream->kind;
    choice->made.from = choice->made.to = stream->dtype;
    choice->made.feature_count = stream->feature_count;
    choice->max_gap_ns = stream->max_gap_ns;
}

static void apply(const struct trajd_convert_rule *rule, const struct trajd_index_stream *stream,
                  struct choice *choice)
{
    if (rule->kind != TRAJD_CONVERT_NO_KIND)
        choice->made.kind = rule->layout_order && is_slerp(rule->kind) && is_slerp(stream->kind)
                                ? stream->kind
                                : rule->kind;
    if (rule->dtype && (rule->stream || is_floating(stream->dtype))) {
        choice->made.to = rule->dtype;
        choice->is_typed = true;
    }
    if (rule->window_ns)
        choice->made.window_ns = rule->window_ns;
    if (rule->max_gap_ns)
        choice->max_gap_ns = rule->max_gap_ns;
}

static enum trajd_status apply_rules(const struct trajd_convert_options *options,
                                     const struct trajd_index *index, struct choice *choices,
                                     struct trajd_error *error)
{
    for (uint32_t r = 0; r < options->rule_count; r++) {
        const struct trajd_convert_rule *rule = &options->rules[r];
        bool any = !rule->stream;
        for (uint32_t i = 0; i < index->stream_count; i++) {
            if (!choices[i].comes_along ||
                (rule->stream &&
                 !trajd_layout_match(rule->stream, index->streams[i].name, NULL, 0)))
                continue;
            apply(rule, &index->streams[i], &choices[i]);
            any = true;
        }
        if (!any)
            return no_stream(index, "a rule", rule->stream, error);
    }
    return TRAJD_OK;
}

/* Kind and types of one stream. */
static enum trajd_status check_choice(const struct trajd_convert_options *options,
                                      const struct trajd_index_stream *stream,
                                      struct choice *choice, struct trajd_error *error)
{
    struct trajd_convert_stream *made = &choice->made;

    if (is_slerp(made->kind) && made->feature_count % 4)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: slerp needs a multiple of 4 features, it has %" PRIu64,
                               made->name, made->feature_count);
    if (blends(made->kind) &&
        (made->from == TRAJD_BOOL || (made->from == TRAJD_U8 && stream->rank >= 2)))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: %s cannot be blended by %s: previous or nearest", made->name,
                               made->from == TRAJD_BOOL ? "bool" : "a picture of uint8",
                               trajd_window_kind_name(made->kind));
    if (made->kind == TRAJD_KIND_ANGLE)
        choice->angle_period = stream->kind == TRAJD_KIND_ANGLE               ? stream->angle_period
                               : stream->unit && !strcmp(stream->unit, "deg") ? full_turn_deg
                                                                              : full_turn_rad;
    if (made->kind != TRAJD_KIND_MEAN)
        made->window_ns = 0;
    else if (!made->window_ns)
        made->window_ns = trajd_rate_row_ns(options->rate, 1);
    if (!choice->is_typed && blends(made->kind) && !is_floating(made->from))
        made->to = TRAJD_F32;
    if (made->to != made->from && !is_floating(made->to))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: cannot be written as %s (float16, float32, or float64 where it is that)",
            made->name, trajd_dtype_name(made->to));
    if (made->to == TRAJD_F64 && made->from != TRAJD_F64)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "%s: %s is not widened to float64",
                               made->name, trajd_dtype_name(made->from));
    return TRAJD_OK;
}

/* ---- datasets ---- */

static struct convert_dataset *add_dataset(struct convert_plan *plan,
                                           const struct trajd_index *index, uint32_t dataset,
                                           uint32_t clock)
{
    struct convert_dataset *made = &plan->datasets[plan->dataset_count++];

    *made = (struct convert_dataset){.path = index->arrays[dataset].path,
                                     .index_dataset = dataset,
                                     .clock = clock,
                                     .stamps_column = CONVERT_NO_COLUMN,
                                     .max_gap_ns = -1};
    return made;
}

static const struct trajd_array *first_array(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (!index->episodes[e].quarantine &&
            index->episodes[e].extents[dataset].storage != TRAJD_STORAGE_ABSENT &&
            index->episodes[e].extents[dataset].size_bytes)
            return &index->episodes[e].extents[dataset];
    return NULL;
}

static void take_shape(struct convert_dataset *dataset, const struct trajd_array *array)
{
    dataset->from = dataset->to = array->dtype;
    dataset->rank = array->rank - 1;
    dataset->elements = 1;
    for (uint32_t d = 1; d < array->rank; d++) {
        dataset->shape[d - 1] = array->shape[d];
        dataset->elements *= array->shape[d];
    }
    dataset->source_bytes = dataset->elements * trajd_dtype_size(array->dtype);
    dataset->is_compressed = array->storage == TRAJD_STORAGE_CHUNKED && array->filter_count > 0;
    dataset->chunk_rows = dataset->is_compressed ? array->chunk_shape[0] : 0;
    for (uint32_t d = 1; d < array->rank && dataset->is_compressed; d++)
        dataset->chunk_shape[d - 1] = array->chunk_shape[d];
}

/* Lanes of consecutive columns of one owner: plan stream numbers, UINT32_MAX where there is none.
 */
static enum trajd_status add_lanes(struct convert_plan *plan, struct convert_dataset *dataset,
                                   const uint32_t *owners, const struct choice *choices,
                                   const struct trajd_index *index, const uint32_t *numbers,
                                   struct trajd_error *error)
{
    dataset->lanes =
        trajd_arena_alloc(&plan->arena, (index->stream_count * 2 + 1) * sizeof *dataset->lanes);
    if (!dataset->lanes)
        return no_memory(error);
    for (uint64_t c = 0, end; c < dataset->elements; c = end) {
        const uint32_t owner = owners ? owners[c] : numbers[0];
        struct convert_lane lane = {UINT32_MAX, TRAJD_KIND_PREVIOUS, c, 0, 0, 0};
        for (end = owners ? c + 1 : dataset->elements;
             end < dataset->elements && owners[end] == owner; end++)
            ;
        lane.column_count = end - c;
        if (owner != UINT32_MAX) {
            lane.stream = owner;
            lane.kind = choices[owner].made.kind;
            lane.angle_period = choices[owner].angle_period;
            lane.window_ns = choices[owner].made.window_ns;
            if (is_slerp(lane.kind) &&
                ((c - index->streams[owner].first_column) % 4 || lane.column_count % 4))
                return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                       "%s: another stream has some columns of its quaternions",
                                       index->streams[owner].name);
        } else {
            convert_note(plan->options,
                         "%s: columns %" PRIu64 " to %" PRIu64
                         " belong to no stream of the layout: held (previous)",
                         dataset->path, c, end - 1);
        }
        dataset->lanes[dataset->lane_count++] = lane;
    }
    return TRAJD_OK;
}

/* Whose columns are whose: streams of some columns before those of all. */
static enum trajd_status share_columns(struct convert_plan *plan, struct convert_dataset *dataset,
                                       const struct trajd_index *index,
                                       const struct choice *choices, struct trajd_error *error)
{
    uint32_t *owners = NULL, whole = UINT32_MAX, slices = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < index->stream_count; i++) {
        if (index->streams[i].array_index != dataset->index_dataset)
            continue;
        if (index->streams[i].feature_count == dataset->elements)
            whole = i;
        else
            slices++;
    }
    if (slices) {
        owners = malloc(dataset->elements * sizeof *owners);
        for (uint64_t c = 0; owners && c < dataset->elements; c++)
            owners[c] = whole;
        for (uint32_t i = 0; owners && i < index->stream_count; i++) {
            const struct trajd_index_stream *stream = &index->streams[i];
            if (stream->array_index == dataset->index_dataset &&
                stream->feature_count != dataset->elements)
                for (uint64_t c = 0; c < stream->feature_count; c++)
                    owners[stream->first_column + c] = i;
        }
        if (!owners)
            return no_memory(error);
    }
    status = add_lanes(plan, dataset, owners, choices, index, &whole, error);
    free(owners);
    return status;
}

/* The element type: one for all streams of the dataset. */
static enum trajd_status settle_type(struct convert_plan *plan, struct convert_dataset *dataset,
                                     const struct trajd_index *index, struct choice *choices,
                                     struct trajd_error *error)
{
    const char *by = NULL;

    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_convert_stream *made = &choices[i].made;
        if (index->streams[i].array_index != dataset->index_dataset || made->to == dataset->from)
            continue;
        if (by && made->to != dataset->to)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s and %s are columns of one dataset and cannot be %s and %s",
                                   by, made->name, trajd_dtype_name(dataset->to),
                                   trajd_dtype_name(made->to));
        by = made->name;
        dataset->to = made->to;
    }
    if (by && dataset->stamps_column != CONVERT_NO_COLUMN && is_floating(dataset->from)) {
        convert_note(plan->options, "%s: holds stamps and stays %s", dataset->path,
                     trajd_dtype_name(dataset->from));
        dataset->to = dataset->from;
    } else if (by && dataset->stamps_column != CONVERT_NO_COLUMN) {
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s: holds stamps as %s, and %s would make it %s: previous or nearest", dataset->path,
            trajd_dtype_name(dataset->from), by, trajd_dtype_name(dataset->to));
    }
    dataset->row_bytes = dataset->elements * trajd_dtype_size(dataset->to);
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (index->streams[i].array_index == dataset->index_dataset) {
            choices[i].made.to = dataset->to;
            choices[i].made.row_bytes =
                index->streams[i].feature_count * trajd_dtype_size(dataset->to);
            choices[i].made.is_compressed = dataset->is_compressed;
        }
    return TRAJD_OK;
}

static int64_t find_dataset(const struct trajd_index *index, const char *path)
{
    for (uint32_t d = 0; path && d < index->array_count; d++)
        if (!strcmp(index->arrays[d].path, path))
            return d;
    return -1;
}

static struct convert_dataset *find_made(struct convert_plan *plan, uint32_t index_dataset)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].index_dataset == index_dataset)
            return &plan->datasets[d];
    return NULL;
}

/* The stamps of every clock that a dataset of the output is on. */
static void add_stamps(struct convert_plan *plan, const struct trajd_index *index)
{
    const uint32_t count = plan->dataset_count;

    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        const int64_t found = find_dataset(index, clock->stamps_path);
        struct convert_dataset *dataset;
        bool used = false;
        for (uint32_t d = 0; d < count; d++)
            used = used || plan->datasets[d].clock == k;
        if (!used || found < 0 || !first_array(index, (uint32_t)found))
            continue;
        dataset = find_made(plan, (uint32_t)found);
        if (!dataset)
            dataset = add_dataset(plan, index, (uint32_t)found, k);
        dataset->stamps_column = clock->stamps_column;
        dataset->stamps_unit = clock->unit;
    }
}

/* Whether the times of the grid can stand there, each another one. */
static enum trajd_status check_stamps(const struct convert_plan *plan,
                                      const struct convert_dataset *dataset,
                                      struct trajd_error *error)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct trajd_rate rate = plan->options->rate;

    if (dataset->stamps_column == CONVERT_NO_COLUMN)
        return TRAJD_OK;
    if (dataset->stamps_column >= dataset->elements)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%s: has %" PRIu64 " columns, the stamps are to be column %" PRIu64,
                               dataset->path, dataset->elements, dataset->stamps_column);
    if (dataset->from == TRAJD_F16)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: stamps as float16 are too coarse to be written", dataset->path);
    if (!is_floating(dataset->from) && trajd_rate_row_ns(rate, 1) < units_ns[dataset->stamps_unit])
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: holds stamps in whole units of %" PRId64 " ns, which repeat at %.6g Hz",
            dataset->path, units_ns[dataset->stamps_unit], (double)rate.num / (double)rate.den);
    return TRAJD_OK;
}

static enum trajd_status add_datasets(struct convert_plan *plan, const struct trajd_index *index,
                                      struct choice *choices, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    plan->datasets = trajd_arena_alloc(&plan->arena, (index->stream_count + index->clock_count) *
                                                         sizeof *plan->datasets);
    if (!plan->datasets)
        return no_memory(error);
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_index_stream *stream = &index->streams[i];
        struct convert_dataset *dataset = find_made(plan, stream->array_index);
        if (!choices[i].comes_along || !first_array(index, stream->array_index))
            continue;
        if (dataset && dataset->clock != stream->clock_index)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%s: its columns are on two clocks, %s and %s", dataset->path,
                                   index->clocks[dataset->clock].name,
                                   index->clocks[stream->clock_index].name);
        if (!dataset)
            dataset = add_dataset(plan, index, stream->array_index, stream->clock_index);
        if (choices[i].max_gap_ns > 0 &&
            (dataset->max_gap_ns < 0 || choices[i].max_gap_ns < dataset->max_gap_ns))
            dataset->max_gap_ns = choices[i].max_gap_ns;
    }
    add_stamps(plan, index);
    for (uint32_t d = 0; d < plan->dataset_count && !status; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        take_shape(dataset, first_array(index, dataset->index_dataset));
        if (plan->options->compress != TRAJD_CONVERT_KEEP)
            dataset->is_compressed = plan->options->compress == TRAJD_CONVERT_DEFLATE;
        status = check_stamps(plan, dataset, error);
        if (!status)
            status = settle_type(plan, dataset, index, choices, error);
        if (!status && !(dataset->stamps_column != CONVERT_NO_COLUMN && dataset->elements == 1))
            status = share_columns(plan, dataset, index, choices, error);
    }
    return status;
}

/* ---- several indexes ---- */

static const char *name_of(const struct trajd_index *index)
{
    return index->file_count ? index->files[0].path : "an input";
}

/* The other index has the chosen streams of the first, alike; and no other ones where all are
 * taken. */
static enum trajd_status compare(const struct convert_plan *plan, const struct choice *choices,
                                 const struct trajd_index *other, struct trajd_error *error)
{
    const struct trajd_index *first = plan->options->indexes[0];

    if (first->layout->hash != other->layout->hash)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s is of layout %s, %s of %s",
                               name_of(first), first->layout->name, name_of(other),
                               other->layout->name);
    for (uint32_t i = 0; i < first->stream_count; i++) {
        const struct trajd_index_stream *stream = &first->streams[i], *same;
        const int64_t found =
            choices[i].comes_along ? trajd_index_find_stream(other, stream->name) : -1;
        if (!choices[i].comes_along)
            continue;
        if (found < 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s has a stream %s, %s has not: take others by --streams",
                                   name_of(first), stream->name, name_of(other));
        same = &other->streams[found];
        if (same->dtype != stream->dtype || same->rank != stream->rank ||
            memcmp(same->shape, stream->shape, sizeof same->shape))
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "%s: %s with %" PRIu64 " elements a row in %s, %s with %" PRIu64 " in %s",
                stream->name, trajd_dtype_name(stream->dtype), stream->feature_count,
                name_of(first), trajd_dtype_name(same->dtype), same->feature_count, name_of(other));
    }
    for (uint32_t i = 0; i < other->stream_count && !plan->options->stream_count; i++)
        if (trajd_index_find_stream(first, other->streams[i].name) < 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s has a stream %s, %s has not: take others by --streams",
                                   name_of(other), other->streams[i].name, name_of(first));
    return TRAJD_OK;
}

static enum trajd_status map_datasets(struct convert_plan *plan, struct trajd_error *error)
{
    const uint32_t count = plan->options->index_count;
    uint32_t **maps = trajd_arena_alloc(&plan->arena, count * sizeof *maps);

    for (uint32_t k = 0; maps && k < count; k++) {
        maps[k] = trajd_arena_alloc(&plan->arena, (plan->dataset_count + 1) * sizeof **maps);
        if (!maps[k])
            return no_memory(error);
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const int64_t found = find_dataset(plan->options->indexes[k], plan->datasets[d].path);
            maps[k][d] = found < 0 ? UINT32_MAX : (uint32_t)found;
        }
    }
    plan->source_datasets = maps;
    return maps ? TRAJD_OK : no_memory(error);
}

/* The plan's streams are those that come along; lanes name them by their place there. */
static enum trajd_status keep_streams(struct convert_plan *plan, const struct trajd_index *index,
                                      const struct choice *choices, struct trajd_error *error)
{
    uint32_t *places = trajd_arena_alloc(&plan->arena, index->stream_count * sizeof *places);

    plan->streams = calloc(index->stream_count ? index->stream_count : 1, sizeof *plan->streams);
    if (!places || !plan->streams)
        return no_memory(error);
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (choices[i].comes_along && first_array(index, index->streams[i].array_index)) {
            places[i] = plan->stream_count;
            plan->streams[plan->stream_count++] = choices[i].made;
        }
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        for (uint32_t l = 0; l < plan->datasets[d].lane_count; l++)
            if (plan->datasets[d].lanes[l].stream != UINT32_MAX)
                plan->datasets[d].lanes[l].stream = places[plan->datasets[d].lanes[l].stream];
    return TRAJD_OK;
}

enum trajd_status convert_choose_streams(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_convert_options *options = plan->options;
    const struct trajd_index *index = options->indexes[0];
    struct choice *choices = calloc(index->stream_count ? index->stream_count : 1, sizeof *choices);
    enum trajd_status status = choices ? choose(options, index, choices, error) : no_memory(error);

    for (uint32_t i = 0; i < index->stream_count && !status; i++)
        start_choice(index, &index->streams[i], &choices[i]);
    if (!status)
        status = apply_rules(options, index, choices, error);
    for (uint32_t i = 0; i < index->stream_count && !status; i++)
        if (choices[i].comes_along)
            status = check_choice(options, &index->streams[i], &choices[i], error);
    for (uint32_t k = 1; k < options->index_count && !status; k++)
        status = compare(plan, choices, options->indexes[k], error);
    if (!status)
        status = add_datasets(plan, index, choices, error);
    if (!status)
        status = map_datasets(plan, error);
    if (!status)
        status = keep_streams(plan, index, choices, error);
    if (!status)
        tell_missing(options, index, choices);
    free(choices);
    return status;
}

enum trajd_kind trajd_convert_kind_parse(const char *word, struct trajd_error *error)
{
    static const char *const words[] = {"linear",     "previous",   "nearest", "slerp",
                                        "slerp_xyzw", "slerp_wxyz", "angle",   "mean"};
    static const enum trajd_kind kinds[] = {
        TRAJD_KIND_LINEAR,     TRAJD_KIND_PREVIOUS,   TRAJD_KIND_NEAREST, TRAJD_KIND_SLERP_XYZW,
        TRAJD_KIND_SLERP_XYZW, TRAJD_KIND_SLERP_WXYZ, TRAJD_KIND_ANGLE,   TRAJD_KIND_MEAN};
    const char *near;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], word))
            return kinds[i];
    near = trajd_yaml_nearest(word, words, sizeof words / sizeof *words);
    trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                    "\"%s\" is no kind%s%s%s; there are linear, previous, nearest, slerp (or "
                    "slerp_xyzw, slerp_wxyz), angle, mean",
                    word, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return TRAJD_CONVERT_NO_KIND;
}
