/* The streams of a conversion: which ones the options choose, and the kind and element type of each. */

#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/window_report.h"

enum { NEAREST_MAX = 1024 };

static const double full_turn_rad = 6.283185307179586476925;
static const double full_turn_deg = 360.0;

static bool interpolates(enum trajd_kind kind)
{
    return kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST;
}

/* Sets the error for an unknown stream, with the nearest name and a list of names. */
static enum trajd_status no_stream(const struct trajd_index *index, const char *what,
                                   const char *name, struct trajd_error *error)
{
    const char *names[NEAREST_MAX + 1] = {0};
    uint32_t count = index->stream_count < NEAREST_MAX ? index->stream_count : NEAREST_MAX;
    char list[300];

    for (uint32_t i = 0; i < count; i++)
        names[i] = index->streams[i].name;
    trajd_yaml_join(names, list, sizeof list);
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "%s: there is no stream \"%s\"%s; the streams are %s", what, name,
                           trajd_yaml_suggest(" (", name, names, count, ")").text, list);
}

/* Marks the streams that match the patterns. */
static enum trajd_status choose(const struct trajd_convert_options *options,
                                const struct trajd_index *index, struct convert_choice *choices,
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

/* Notes streams that the layout requires and the output lacks: a reader with the same layout
 * refuses it. */
static void note_missing(const struct trajd_convert_options *options,
                         const struct trajd_index *index, const struct convert_choice *choices)
{
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (!choices[i].comes_along && !index->streams[i].optional)
            convert_note(options,
                         "layout %s requires %s, which is left out: to read the output, use a "
                         "layout without it",
                         index->layout->name, index->streams[i].name);
}

static void start_choice(const struct trajd_index *index, const struct trajd_index_stream *stream,
                         struct convert_choice *choice)
{
    choice->made.name = stream->name;
    choice->made.clock = index->clocks[stream->clock_index].name;
    choice->made.kind = stream->kind;
    choice->made.from = choice->made.to = stream->dtype;
    choice->made.feature_count = stream->feature_count;
    choice->max_gap_ns = stream->max_gap_ns;
}

static void apply(const struct trajd_convert_rule *rule, const struct trajd_index_stream *stream,
                  struct convert_choice *choice)
{
    if (rule->kind != TRAJD_CONVERT_NO_KIND)
        choice->has_kind = true;
    if (rule->kind != TRAJD_CONVERT_NO_KIND)
        choice->made.kind =
            rule->layout_order && convert_is_slerp(rule->kind) && convert_is_slerp(stream->kind)
                ? stream->kind
                : rule->kind;
    if (rule->dtype && (rule->stream || convert_is_floating(stream->dtype))) {
        choice->made.to = rule->dtype;
        choice->is_typed = true;
    }
    if (rule->window_ns)
        choice->made.window_ns = rule->window_ns;
    if (rule->max_gap_ns)
        choice->max_gap_ns = rule->max_gap_ns;
}

static enum trajd_status apply_rules(const struct trajd_convert_options *options,
                                     const struct trajd_index *index,
                                     struct convert_choice *choices, struct trajd_error *error)
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

/* Checks the kind and the element types of one stream. */
static enum trajd_status check_choice(const struct trajd_convert_options *options,
                                      const struct trajd_index_stream *stream,
                                      struct convert_choice *choice, struct trajd_error *error)
{
    struct trajd_convert_stream *made = &choice->made;

    if (stream->form == TRAJD_ROWS_VIDEO)
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s holds packed video, whose frames are not resampled: choose other "
            "streams with --streams",
            made->name);
    if (stream->form == TRAJD_ROWS_PACKED)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds packed frames: resample the file before `trajctl pack`, "
                               "or choose other streams with --streams",
                               made->name);
    if (stream->form != TRAJD_ROWS_PLAIN && made->from != made->to)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s holds encoded frames, which have no other type", made->name);
    made->adds = stream->is_delta && !choice->has_kind;
    if (made->adds)
        convert_note(
            options,
            "%s holds differences (semantics: delta): a step is the sum of the rows from "
            "its time on and before that of the next step, 0 without rows; the last step of "
            "an episode may have fewer rows, and rows before the first step are left out",
            made->name);
    if (convert_is_slerp(made->kind) && made->feature_count % 4)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: slerp needs a multiple of 4 features, it has %" PRIu64,
                               made->name, made->feature_count);
    if (interpolates(made->kind) && stream->never_blends)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: %s cannot be interpolated with kind %s: use previous or nearest", made->name,
            made->from == TRAJD_BOOL ? "bool"
            : stream->rank >= 2      ? "a uint8 image"
                                     : "an enum (names)",
            trajd_window_kind_name(made->kind));
    if (made->kind == TRAJD_KIND_ANGLE)
        choice->angle_period = stream->kind == TRAJD_KIND_ANGLE               ? stream->angle_period
                               : stream->unit && !strcmp(stream->unit, "deg") ? full_turn_deg
                                                                              : full_turn_rad;
    if (made->kind != TRAJD_KIND_MEAN)
        made->window_ns = 0;
    else if (!made->window_ns)
        made->window_ns = trajd_rate_row_ns(options->rate, 1);
    if (!choice->is_typed && (interpolates(made->kind) || made->adds) &&
        !convert_is_floating(made->from))
        made->to = TRAJD_F32;
    if (made->to != made->from && !convert_is_floating(made->to))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: cannot be written as %s: choose float16 or float32, or float64 "
                               "if the input has it",
                               made->name, trajd_dtype_name(made->to));
    if (made->to == TRAJD_F64 && made->from != TRAJD_F64)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: %s cannot be widened to float64", made->name,
                               trajd_dtype_name(made->from));
    return TRAJD_OK;
}

/* Returns the path of the first file in which the clock's rate is assumed. */
static const char *find_assumption(const struct trajd_convert_options *options, uint32_t clock)
{
    for (uint32_t k = 0; k < options->index_count; k++) {
        const struct trajd_index *index = options->indexes[k];
        for (uint32_t e = 0; e < index->episode_count; e++)
            if (!index->episodes[e].quarantine &&
                index->episodes[e].clocks[clock].rate_source == TRAJD_RATE_ASSUMED)
                return index->files[index->episodes[e].file_index].path;
    }
    return "";
}

/* Finds the rates of a stream's clock in all inputs, which have the same layout. */
static enum trajd_status find_rates(const struct trajd_convert_options *options,
                                    const struct trajd_index_stream *stream,
                                    struct trajd_convert_stream *made, struct trajd_error *error)
{
    const struct trajd_layout *layout = options->indexes[0]->layout;
    const struct trajd_layout_clock *clock = &layout->clocks[stream->clock_index];
    const char *place = trajd_layout_rate_place(clock);
    char text[TRAJD_RATES_TEXT_SIZE];

    for (uint32_t k = 0; k < options->index_count; k++)
        trajd_index_rates_add(options->indexes[k], stream->clock_index, &made->rates);
    if (options->accepts_assumed_rates || !made->rates.assumed_count)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: clock %s: %s: the file does not state the rate%s%s%s%s. It is only "
                           "the `rate:` of layout "
                           "%s: --assume-rate accepts it, --assume-rate=HZ replaces it",
                           find_assumption(options, stream->clock_index), clock->name,
                           trajd_index_rates_text(&made->rates, text), place ? " in " : "",
                           place ? place : "", clock->rate_json ? " " : "",
                           clock->rate_json ? clock->rate_json : "", layout->name);
}

/* ---- several inputs ---- */

static const char *name_of(const struct trajd_index *index)
{
    return index->file_count ? index->files[0].path : "an input";
}

/* Checks that the other index has the chosen streams of the first one, with the same types. If all
 * streams are chosen, it must have no others. */
static enum trajd_status compare(const struct convert_plan *plan,
                                 const struct convert_choice *choices,
                                 const struct trajd_index *other, struct trajd_error *error)
{
    const struct trajd_index *first = plan->options->indexes[0];

    if (first->layout->hash != other->layout->hash)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s has layout %s, but %s has layout %s", name_of(first),
                               first->layout->name, name_of(other), other->layout->name);
    for (uint32_t i = 0; i < first->stream_count; i++) {
        const struct trajd_index_stream *stream = &first->streams[i], *same;
        const int64_t found =
            choices[i].comes_along ? trajd_index_find_stream(other, stream->name) : -1;
        if (!choices[i].comes_along)
            continue;
        if (found < 0)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "%s has the stream %s, but %s does not: choose other streams with --streams",
                name_of(first), stream->name, name_of(other));
        same = &other->streams[found];
        if (same->dtype != stream->dtype || same->rank != stream->rank ||
            memcmp(same->shape, stream->shape, sizeof same->shape))
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "%s: %s with %" PRIu64 " elements per row in %s, but %s with %" PRIu64 " in %s",
                stream->name, trajd_dtype_name(stream->dtype), stream->feature_count,
                name_of(first), trajd_dtype_name(same->dtype), same->feature_count, name_of(other));
    }
    for (uint32_t i = 0; i < other->stream_count && !plan->options->stream_count; i++)
        if (trajd_index_find_stream(first, other->streams[i].name) < 0)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "%s has the stream %s, but %s does not: choose other streams with --streams",
                name_of(other), other->streams[i].name, name_of(first));
    return TRAJD_OK;
}

/* Copies the converted streams to the plan, and changes the lanes' stream numbers to match. */
static void keep_streams(struct convert_plan *plan, const struct trajd_index *index,
                         const struct convert_choice *choices)
{
    uint32_t *places = convert_alloc(plan, index->stream_count * sizeof *places);

    plan->streams = trajd_memory_or_exit(calloc(index->stream_count + 1, sizeof *plan->streams));
    for (uint32_t i = 0; i < index->stream_count; i++)
        if (choices[i].comes_along && convert_first_array(index, index->streams[i].array_index)) {
            places[i] = plan->stream_count;
            plan->streams[plan->stream_count++] = choices[i].made;
        }
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        for (uint32_t l = 0; l < plan->datasets[d].lane_count; l++)
            if (plan->datasets[d].lanes[l].stream != UINT32_MAX)
                plan->datasets[d].lanes[l].stream = places[plan->datasets[d].lanes[l].stream];
}

/* Notes texts that the output does not have: their JSON files stand beside the inputs. */
static void note_texts(const struct trajd_convert_options *options, const struct trajd_index *index)
{
    for (uint32_t i = 0; i < index->layout->meta_count; i++)
        if (index->layout->metas[i].file)
            convert_note(options,
                         "meta %s: %s is not copied: put it beside the output, with its name",
                         index->layout->metas[i].name, index->layout->metas[i].file);
}

/* Checks that each array has one name, which the output gets, and a dataset of its own. */
static enum trajd_status check_names(const struct trajd_index *index, struct trajd_error *error)
{
    for (uint32_t i = 0; i < index->array_count; i++)
        if (trajd_layout_is_pattern(index->layout, index->arrays[i].path))
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "layout %s names a dataset by a path with a '*' (%s): write it "
                                   "without one to resample, as `trajctl inspect` shows it",
                                   index->layout->name, index->arrays[i].path);
    return TRAJD_OK;
}

enum trajd_status convert_choose_streams(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_convert_options *options = plan->options;
    const struct trajd_index *index = options->indexes[0];
    struct convert_choice *choices = convert_alloc(plan, index->stream_count * sizeof *choices);
    enum trajd_status status = check_names(index, error);

    if (status)
        return status;
    note_texts(options, index);
    status = choose(options, index, choices, error);
    for (uint32_t i = 0; i < index->stream_count && !status; i++)
        start_choice(index, &index->streams[i], &choices[i]);
    if (!status)
        status = apply_rules(options, index, choices, error);
    for (uint32_t i = 0; i < index->stream_count && !status; i++)
        if (choices[i].comes_along)
            status = check_choice(options, &index->streams[i], &choices[i], error);
    for (uint32_t k = 1; k < options->index_count && !status; k++)
        status = compare(plan, choices, options->indexes[k], error);
    for (uint32_t i = 0; i < index->stream_count && !status; i++)
        if (choices[i].comes_along)
            status = find_rates(options, &index->streams[i], &choices[i].made, error);
    if (!status)
        status = convert_add_datasets(plan, index, choices, error);
    if (status)
        return status;
    convert_map_datasets(plan);
    keep_streams(plan, index, choices);
    note_missing(options, index, choices);
    return TRAJD_OK;
}
