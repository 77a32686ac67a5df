/* The streams of a conversion: which ones the options choose, and the kind and element type of each. */

#include "clients/cli/resample/plan/convert_plan.h"

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
static enum trajd_status no_stream(const struct convert_plan *plan, const char *what,
                                   const char *name)
{
    const struct trajd_index *index = plan->first;
    const char *names[NEAREST_MAX + 1] = {0};
    uint32_t count = index->stream_count < NEAREST_MAX ? index->stream_count : NEAREST_MAX;
    char list[300];

    for (uint32_t i = 0; i < count; i++)
        names[i] = index->streams[i].name;
    trajd_yaml_join(names, list, sizeof list);
    return trajd_error_set(plan->error, TRAJD_ERR_NOT_FOUND, 0,
                           "%s: there is no stream \"%s\"%s; the streams are %s", what, name,
                           trajd_yaml_suggest(" (", name, names, count, ")").text, list);
}

/* Takes all streams of the dataset. */
static void take(struct convert_plan *plan, uint32_t dataset)
{
    for (uint32_t i = 0; i < plan->first->stream_count; i++)
        if (plan->first->streams[i].array_index == dataset)
            plan->all[i].is_taken = true;
}

/* Starts all streams as the layout says, and takes those that match the patterns. */
static enum trajd_status choose(struct convert_plan *plan)
{
    const struct trajd_convert_options *options = plan->options;
    const struct trajd_index *index = plan->first;

    plan->all = convert_alloc(plan, (index->stream_count + 1) * sizeof *plan->all);
    plan->all[index->stream_count].kind = TRAJD_KIND_PREVIOUS;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_index_stream *source = &index->streams[i];
        plan->all[i] =
            (struct trajd_convert_stream){.source = source,
                                          .clock = index->clocks[source->clock_index].name,
                                          .kind = source->kind,
                                          .to = source->dtype,
                                          .max_gap_ns = source->max_gap_ns,
                                          .is_taken = !options->stream_count};
    }
    for (uint32_t s = 0; s < options->stream_count; s++) {
        bool any = false;
        for (uint32_t i = 0; i < index->stream_count; i++) {
            if (!trajd_layout_match(options->streams[s], index->streams[i].name, NULL, 0))
                continue;
            take(plan, index->streams[i].array_index);
            any = true;
        }
        if (!any)
            return no_stream(plan, "--streams", options->streams[s]);
    }
    return TRAJD_OK;
}

static void apply(const struct trajd_convert_rule *rule, struct trajd_convert_stream *stream)
{
    const struct trajd_index_stream *source = stream->source;

    if (rule->kind != TRAJD_CONVERT_NO_KIND) {
        stream->has_kind = true;
        stream->kind =
            rule->layout_order && convert_is_slerp(rule->kind) && convert_is_slerp(source->kind)
                ? source->kind
                : rule->kind;
    }
    if (rule->dtype && (rule->stream || convert_is_floating(source->dtype))) {
        stream->to = rule->dtype;
        stream->has_type = true;
    }
    if (rule->window_ns)
        stream->window_ns = rule->window_ns;
    if (rule->max_gap_ns)
        stream->max_gap_ns = rule->max_gap_ns;
}

static enum trajd_status apply_rules(struct convert_plan *plan)
{
    for (uint32_t r = 0; r < plan->options->rule_count; r++) {
        const struct trajd_convert_rule *rule = &plan->options->rules[r];
        bool any = !rule->stream;
        for (uint32_t i = 0; i < plan->first->stream_count; i++) {
            struct trajd_convert_stream *stream = &plan->all[i];
            if (!stream->is_taken ||
                (rule->stream && !trajd_layout_match(rule->stream, stream->source->name, NULL, 0)))
                continue;
            apply(rule, stream);
            any = true;
        }
        if (!any)
            return no_stream(plan, "a rule", rule->stream);
    }
    return TRAJD_OK;
}

/* Checks the kind and the element types of one stream. */
static enum trajd_status check_stream(struct convert_plan *plan,
                                      struct trajd_convert_stream *stream)
{
    const struct trajd_index_stream *source = stream->source;
    const enum trajd_dtype from = source->dtype;

    if (source->form == TRAJD_ROWS_VIDEO)
        return trajd_error_set(
            plan->error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s holds packed video, whose frames are not resampled: choose other "
            "streams with --streams",
            source->name);
    if (source->form == TRAJD_ROWS_PACKED)
        return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds packed frames: resample the file before `trajctl pack`, "
                               "or choose other streams with --streams",
                               source->name);
    if (source->form != TRAJD_ROWS_PLAIN && from != stream->to)
        return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s holds encoded frames, which have no other type", source->name);
    stream->adds = source->is_delta && !stream->has_kind;
    if (stream->adds)
        convert_note(
            plan->options,
            "%s holds differences (semantics: delta): a step is the sum of the rows from "
            "its time on and before that of the next step, 0 without rows; the last step of "
            "an episode may have fewer rows, and rows before the first step are left out",
            source->name);
    if (convert_is_slerp(stream->kind) && source->feature_count % 4)
        return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: slerp needs a multiple of 4 features, it has %" PRIu64,
                               source->name, source->feature_count);
    if (interpolates(stream->kind) && source->never_blends)
        return trajd_error_set(
            plan->error, TRAJD_ERR_ARGUMENT, 0,
            "%s: %s cannot be interpolated with kind %s: use previous or nearest", source->name,
            from == TRAJD_BOOL  ? "bool"
            : source->rank >= 2 ? "a uint8 image"
                                : "an enum (names)",
            trajd_window_kind_name(stream->kind));
    if (stream->kind == TRAJD_KIND_ANGLE)
        stream->angle_period = source->kind == TRAJD_KIND_ANGLE               ? source->angle_period
                               : source->unit && !strcmp(source->unit, "deg") ? full_turn_deg
                                                                              : full_turn_rad;
    if (stream->kind != TRAJD_KIND_MEAN)
        stream->window_ns = 0;
    else if (!stream->window_ns)
        stream->window_ns = convert_step_ns(plan, 1);
    if (!stream->has_type && (interpolates(stream->kind) || stream->adds) &&
        !convert_is_floating(from))
        stream->to = TRAJD_F32;
    if (stream->to != from && !convert_is_floating(stream->to))
        return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: cannot be written as %s: choose float16 or float32, or float64 "
                               "if the input has it",
                               source->name, trajd_dtype_name(stream->to));
    if (stream->to == TRAJD_F64 && from != TRAJD_F64)
        return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: %s cannot be widened to float64", source->name,
                               trajd_dtype_name(from));
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
static enum trajd_status find_rates(struct convert_plan *plan, struct trajd_convert_stream *stream)
{
    const struct trajd_convert_options *options = plan->options;
    const struct trajd_layout *layout = plan->first->layout;
    const uint32_t number = stream->source->clock_index;
    const struct trajd_layout_clock *clock = &layout->clocks[number];
    const char *place = trajd_layout_rate_place(clock);
    char text[TRAJD_RATES_TEXT_SIZE];

    for (uint32_t k = 0; k < options->index_count; k++)
        trajd_index_rates_add(options->indexes[k], number, &stream->rates);
    if (options->accepts_assumed_rates || !stream->rates.assumed_count)
        return TRAJD_OK;
    return trajd_error_set(plan->error, TRAJD_ERR_DATA, 0,
                           "%s: clock %s: %s: the file does not state the rate%s%s%s%s. It is only "
                           "the `rate:` of layout "
                           "%s: --assume-rate accepts it, --assume-rate=HZ replaces it",
                           find_assumption(options, number), clock->name,
                           trajd_index_rates_text(&stream->rates, text), place ? " in " : "",
                           place ? place : "", clock->rate_json ? " " : "",
                           clock->rate_json ? clock->rate_json : "", layout->name);
}

/* ---- several inputs ---- */

static const char *name_of(const struct trajd_index *index)
{
    return index->file_count ? index->files[0].path : "an input";
}

static enum trajd_status lacks(const struct convert_plan *plan, const struct trajd_index *a,
                               const char *stream, const struct trajd_index *b)
{
    return trajd_error_set(
        plan->error, TRAJD_ERR_ARGUMENT, 0,
        "%s has the stream %s, but %s does not: choose other streams with --streams", name_of(a),
        stream, name_of(b));
}

/* Checks that the other index has the streams that are taken, with the same types. If all streams
 * are chosen, it must have no others. */
static enum trajd_status compare(const struct convert_plan *plan, const struct trajd_index *other)
{
    const struct trajd_index *first = plan->first;

    if (first->layout->hash != other->layout->hash)
        return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s has layout %s, but %s has layout %s", name_of(first),
                               first->layout->name, name_of(other), other->layout->name);
    for (uint32_t i = 0; i < first->stream_count; i++) {
        const struct trajd_index_stream *stream = &first->streams[i], *same;
        const int64_t found = trajd_index_find_stream(other, stream->name);
        if (!plan->all[i].is_taken)
            continue;
        if (found < 0)
            return lacks(plan, first, stream->name, other);
        same = &other->streams[found];
        if (same->dtype != stream->dtype || same->rank != stream->rank ||
            memcmp(same->shape, stream->shape, sizeof same->shape))
            return trajd_error_set(
                plan->error, TRAJD_ERR_ARGUMENT, 0,
                "%s: %s with %" PRIu64 " elements per row in %s, but %s with %" PRIu64 " in %s",
                stream->name, trajd_dtype_name(stream->dtype), stream->feature_count,
                name_of(first), trajd_dtype_name(same->dtype), same->feature_count, name_of(other));
    }
    for (uint32_t i = 0; i < other->stream_count && !plan->options->stream_count; i++)
        if (trajd_index_find_stream(first, other->streams[i].name) < 0)
            return lacks(plan, other, other->streams[i].name, first);
    return TRAJD_OK;
}

/* Lists the streams that are converted. Notes those that the layout requires and the output lacks: a
 * reader with the same layout refuses it. */
static void list_streams(struct convert_plan *plan)
{
    const struct trajd_index *index = plan->first;

    plan->streams = convert_alloc(plan, (index->stream_count + 1) * sizeof *plan->streams);
    for (uint32_t i = 0; i < index->stream_count; i++) {
        struct trajd_convert_stream *stream = &plan->all[i];
        if (stream->is_taken && convert_first_array(plan, stream->source->array_index))
            plan->streams[plan->stream_count++] = stream;
        else if (!stream->is_taken && !stream->source->optional)
            convert_note(plan->options,
                         "layout %s requires %s, which is left out: to read the output, use a "
                         "layout without it",
                         index->layout->name, stream->source->name);
    }
}

/* Notes texts that the output does not have: their JSON files stand beside the inputs. */
static void note_texts(const struct convert_plan *plan)
{
    const struct trajd_layout *layout = plan->first->layout;

    for (uint32_t i = 0; i < layout->meta_count; i++)
        if (layout->metas[i].file)
            convert_note(plan->options,
                         "meta %s: %s is not copied: put it beside the output, with its name",
                         layout->metas[i].name, layout->metas[i].file);
}

/* Checks that each array has one name, which the output gets, and a dataset of its own. */
static enum trajd_status check_names(const struct convert_plan *plan)
{
    const struct trajd_index *index = plan->first;

    for (uint32_t i = 0; i < index->array_count; i++)
        if (trajd_layout_is_pattern(index->layout, index->arrays[i].path))
            return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "layout %s names a dataset by a path with a '*' (%s): write it "
                                   "without one to resample, as `trajctl inspect` shows it",
                                   index->layout->name, index->arrays[i].path);
    return TRAJD_OK;
}

enum trajd_status convert_choose_streams(struct convert_plan *plan)
{
    enum trajd_status status = check_names(plan);

    if (status)
        return status;
    note_texts(plan);
    if ((status = choose(plan)) || (status = apply_rules(plan)))
        return status;
    for (uint32_t i = 0; i < plan->first->stream_count && !status; i++)
        if (plan->all[i].is_taken)
            status = check_stream(plan, &plan->all[i]);
    for (uint32_t k = 1; k < plan->options->index_count && !status; k++)
        status = compare(plan, plan->options->indexes[k]);
    for (uint32_t i = 0; i < plan->first->stream_count && !status; i++)
        if (plan->all[i].is_taken)
            status = find_rates(plan, &plan->all[i]);
    if (!status)
        status = convert_add_datasets(plan);
    if (!status)
        list_streams(plan);
    return status;
}
