/* Facts about a plan's targets and times, for the files that make a plan and those that use it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/window_plan_internal.h"

int64_t trajd_plan_anchor_ns(const struct trajd_window_plan *plan,
                             const struct trajd_episode *episode, int64_t j)
{
    return trajd_rules_anchor_ns(&plan->rules, episode->clocks, j);
}

int64_t trajd_plan_row_count(const struct trajd_window_plan *plan,
                             const struct trajd_plan_bracket *bracket,
                             const struct trajd_episode *episode)
{
    (void)plan;
    if (bracket->array_index >= 0)
        return (int64_t)trajd_array_row_count(&episode->extents[bracket->array_index]);
    return episode->clocks[bracket->clock_index].row_count;
}

const struct trajd_index_stream *trajd_plan_stream(const struct trajd_window_plan *plan,
                                                   const struct trajd_plan_target *target)
{
    return target->stream_index == TRAJD_PLAN_ABSENT
               ? &plan->models[target - plan->rules.targets]
               : &plan->dataset->index->streams[target->stream_index];
}

enum trajd_kind trajd_plan_kind(const struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target)
{
    const enum trajd_kind kind = plan->spec->outputs[target->output_index].kind;
    return kind == TRAJD_SPEC_KIND_FROM_STREAM ? trajd_plan_stream(plan, target)->kind : kind;
}

bool trajd_plan_adds(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];

    return trajd_plan_stream(plan, target)->is_delta &&
           output->kind == TRAJD_SPEC_KIND_FROM_STREAM && grid->rule != TRAJD_TARGET_ROWS &&
           (grid->rule == TRAJD_TARGET_OFFSETS ||
            (int64_t)bracket->clock_index != plan->rules.anchor_clock);
}

static const struct trajd_index_stream *only_stream(const struct trajd_window_plan *plan,
                                                    uint32_t output_index)
{
    const struct trajd_index_stream *found = NULL;

    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].output_index == output_index) {
            if (found)
                return NULL;
            found = trajd_plan_stream(plan, &plan->rules.targets[t]);
        }
    return found;
}

static bool is_bytes(enum trajd_dtype dtype)
{
    return dtype == TRAJD_U8 || dtype == TRAJD_BOOL;
}

/* Bytes that are passed on are counted as bytes, even if the feed delivers another type. */
enum trajd_dtype trajd_plan_byte_type(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_index_stream *stream = only_stream(plan, output_index);
    enum trajd_kind kind = plan->spec->outputs[output_index].kind;

    if (!stream || !is_bytes(stream->dtype) || plan->rules.outputs[output_index].transform ||
        plan->spec->outputs[output_index].returns.is_given)
        return TRAJD_DTYPE_NONE;
    kind = kind == TRAJD_SPEC_KIND_FROM_STREAM ? stream->kind : kind;
    return kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST ? stream->dtype
                                                                     : TRAJD_DTYPE_NONE;
}

bool trajd_plan_is_image(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    return trajd_plan_byte_type(plan, output_index) == TRAJD_U8 &&
           (output->rank == 2 || output->rank == 3);
}

bool trajd_plan_has_frames(const struct trajd_window_plan *plan, uint32_t output_index)
{
    for (uint32_t t = plan->rules.row_target_count; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].output_index == output_index)
            return true;
    return false;
}

uint64_t trajd_plan_norm_count(const struct trajd_plan_output *output)
{
    return output->feature_count * output->norm_step_count;
}

uint32_t trajd_plan_feature_count(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_plan_rules *rules = &plan->rules;
    const struct trajd_plan_output *output = &rules->outputs[output_index];

    for (uint32_t p = 0; p < rules->image_count; p++) /* channels may come first */
        if (rules->targets[rules->row_target_count + p].output_index == output_index)
            return rules->images[p].written.channels;
    if (trajd_plan_is_image(plan, output_index))
        return output->rank == 3 ? (uint32_t)output->shape[2] : 1;
    return (uint32_t)trajd_plan_norm_count(output);
}

enum trajd_status trajd_plan_no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a window plan");
}

enum trajd_status trajd_plan_output_error(const struct trajd_spec_output *output,
                                          struct trajd_error *error, enum trajd_status status,
                                          const char *format, ...)
{
    char text[384];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return trajd_error_set(error, status, 0, "line %u: outputs.%s: %s", output->line, output->name,
                           text);
}

void trajd_plan_write_tensor(const struct trajd_plan_output *output, uint32_t batch_size,
                             struct trajd_text *text)
{
    trajd_text_add(text, "%s [", trajd_dtype_name(output->dtype));
    if (batch_size)
        trajd_text_add(text, "%u,", batch_size);
    trajd_text_add(text, "%u", output->step_count);
    for (uint32_t i = 0; i < output->rank; i++)
        trajd_text_add(text, ",%llu", (unsigned long long)output->shape[i]);
    trajd_text_add(text, "]");
}

const char *trajd_window_plan_quarantine(const struct trajd_window_plan *plan,
                                         const struct trajd_episode *episode)
{
    const struct trajd_index *index = plan->dataset->index;

    for (uint32_t t = 0;
         t < plan->rules.target_count && !episode->quarantine && episode->other_shapes; t++) {
        const uint32_t stream = plan->rules.targets[t].stream_index;
        const char *reason = stream == TRAJD_PLAN_ABSENT
                                 ? NULL
                                 : episode->other_shapes[index->streams[stream].array_index];
        if (reason)
            return reason;
    }
    return episode->quarantine;
}

/* ---- lines for people ---- */

/* Returns how long the longest episode is, in rows of the anchors' clock or in ns of the target's:
 * of the episodes that have windows, or of all usable ones where none has. */
static double longest_episode(const struct trajd_window_plan *plan, uint32_t clock, bool in_rows)
{
    const struct trajd_index *index = plan->dataset->index;
    const uint32_t count = plan->episode_count ? plan->episode_count : index->episode_count;
    double longest = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_episode *episode =
            &index->episodes[plan->episode_count ? plan->episodes[i] : i];
        const struct trajd_episode_clock *view = &episode->clocks[clock];
        double length = 0;
        if (!trajd_window_plan_quarantine(plan, episode) && view->row_count > 0)
            length = in_rows ? (double)view->row_count
                             : (double)trajd_clock_row_ns(view, view->row_count - 1) -
                                   (double)trajd_clock_row_ns(view, 0);
        longest = length > longest ? length : longest;
    }
    return longest;
}

bool trajd_plan_reaches_out(const struct trajd_window_plan *plan,
                            const struct trajd_plan_target *target,
                            char text[TRAJD_PLAN_REACH_SIZE])
{
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];
    const bool in_rows = grid->rule != TRAJD_TARGET_OFFSETS && plan->rules.anchor_clock >= 0;
    /* in double: a difference of two times of int64 may not be an int64 */
    const double from = (double)(in_rows ? grid->from : grid->step_ns[0]),
                 to = (double)(in_rows ? grid->from + grid->step_count - 1
                                       : grid->step_ns[grid->step_count - 1]),
                 reach = (to > 0 ? to : 0) - (from < 0 ? from : 0) + in_rows,
                 longest = longest_episode(
                     plan, in_rows ? (uint32_t)plan->rules.anchor_clock : bracket->clock_index,
                     in_rows);

    if (grid->goal || longest <= 0 || reach <= longest)
        return false;
    if (in_rows)
        snprintf(text, TRAJD_PLAN_REACH_SIZE,
                 "reach over %.0f rows, and the longest episode has %.0f rows", reach, longest);
    else
        snprintf(text, TRAJD_PLAN_REACH_SIZE,
                 "reach over %.4g s, and the longest episode lasts %.4g s", reach / 1e9,
                 longest / 1e9);
    return true;
}

/* Prints a text into the plan's arena. NULL if out of memory. */
static const char *print_all(struct trajd_window_plan *plan, const char *format, va_list arguments)
{
    char *text, *kept = NULL;

    if (vasprintf(&text, format, arguments) >= 0) {
        kept = trajd_arena_copy(&plan->arena, text, strlen(text));
        free(text);
    }
    return kept;
}

static const char *print(struct trajd_window_plan *plan, const char *format, ...)
{
    const char *text;
    va_list arguments;

    va_start(arguments, format);
    text = print_all(plan, format, arguments);
    va_end(arguments);
    return text;
}

void trajd_plan_texts_add(struct trajd_window_plan *plan, struct trajd_plan_texts *texts,
                          const char *line)
{
    if (line && texts->count < TRAJD_PLAN_TEXTS_MAX)
        texts->list[texts->count] =
            plan->is_member ? print(plan, "dataset %s: %s", plan->dataset->name, line) : line;
    texts->count++;
}

void trajd_plan_texts_print(const struct trajd_plan_texts *texts, const char *before, FILE *out)
{
    for (uint32_t i = 0; i < TRAJD_PLAN_TEXTS_MAX && i < texts->count; i++)
        if (texts->list[i])
            fprintf(out, "%s%s\n", before, texts->list[i]);
    if (texts->count > TRAJD_PLAN_TEXTS_MAX)
        fprintf(out, "%s%u more\n", before, texts->count - TRAJD_PLAN_TEXTS_MAX);
}

void trajd_window_plan_warn(struct trajd_window_plan *plan, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    trajd_plan_texts_add(plan, &plan->warnings, print_all(plan, format, arguments));
    va_end(arguments);
}

void trajd_window_plan_keeps(struct trajd_window_plan *plan, const char *format, ...)
{
    const char *before = plan->version_changes, *change;
    va_list arguments;

    va_start(arguments, format);
    change = print_all(plan, format, arguments);
    va_end(arguments);
    if (change)
        plan->version_changes = before ? print(plan, "%s; %s", before, change) : change;
}
