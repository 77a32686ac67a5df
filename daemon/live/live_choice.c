/* Which outputs, streams and clocks are in a live description. */
#include <string.h>

#include "daemon/live/live_description.h"

/* Returns why frames of a camera cannot be prepared as those of the recordings; NULL: they can. */
static const char *why_no_frames(const struct trajd_window_plan *plan, uint32_t output_index)
{
    for (uint32_t t = plan->rules.row_target_count; t < plan->rules.target_count; t++) {
        const struct trajd_index_stream *stream = trajd_plan_stream(plan, &plan->rules.targets[t]);
        if (plan->rules.targets[t].output_index != output_index)
            continue;
        if (plan->rules.targets[t].stream_index == TRAJD_PLAN_ABSENT)
            return "this dataset has no such camera";
        if (stream->preparation)
            return "the files have frames of `trajctl pack --prepare`: take the feed of those "
                   "before it";
        if (stream->image.color == TRAJD_COLOR_UNDECIDED)
            return "nothing says whether its frames have red or blue first: write color: rgb or "
                   "bgr in the dataset's entry";
        if (stream->image.masks_zero_frames)
            return "the layout masks frames of zeros, which are not looked for as rows come";
    }
    return NULL;
}

const char *trajd_live_left_out(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[output_index];
    const struct trajd_plan_grid *grid;

    if (output->role == TRAJD_ROLE_ACTION)
        return "an action is what the policy predicts";
    if (output->role == TRAJD_ROLE_NEXT)
        return "role next: it is recorded after the action";
    if (output->role == TRAJD_ROLE_GOAL)
        return "role goal: it is in the future of the episode";
    if (output->returns.is_given)
        return "a return adds rows of the future";
    grid = trajd_rules_grid(&plan->rules, trajd_rules_first_target(&plan->rules, output_index));
    if (grid->from + grid->step_count > 1)
        return "at: its steps reach beyond the anchor (lookahead), to rows that a robot does not "
               "have yet: end at 0";
    return why_no_frames(plan, output_index);
}

static uint32_t find_or_add(uint32_t *list, uint32_t *count, uint32_t limit, uint32_t value)
{
    uint32_t i = 0;

    while (i < *count && list[i] != value)
        i++;
    if (i == *count && *count < limit)
        list[(*count)++] = value;
    return i;
}

static enum trajd_status add_streams(struct trajd_live_choice *choice, uint32_t output,
                                     struct trajd_error *error)
{
    const struct trajd_window_plan *plan = choice->plan;

    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        if (target->output_index != output || target->stream_index == TRAJD_PLAN_ABSENT)
            continue;
        if (find_or_add(choice->streams, &choice->stream_count, TRAJD_LIVE_MAX_STREAMS,
                        target->stream_index) == TRAJD_LIVE_MAX_STREAMS)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "an observation of more than %d streams has no live description",
                                   TRAJD_LIVE_MAX_STREAMS);
        find_or_add(choice->clocks, &choice->clock_count, TRAJD_LIVE_MAX_STREAMS + 1,
                    plan->dataset->index->streams[target->stream_index].clock_index);
    }
    return TRAJD_OK;
}

/* Returns whether the steps lie at the stamps of other anchors than the window's. */
static bool reads_anchors(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid)
{
    return grid->rule == TRAJD_TARGET_ANCHOR_STEPS &&
           !(grid->rate.num && plan->rules.anchor_rate.num) &&
           (grid->from != 0 || grid->step_count > 1);
}

/* Returns whether a target of the output has steps at the stamps of earlier anchors. */
static bool needs_ticks(const struct trajd_window_plan *plan, uint32_t output)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_bracket *bracket =
            &plan->rules.brackets[plan->rules.targets[t].bracket_index];
        if (plan->rules.targets[t].output_index == output &&
            reads_anchors(plan, &plan->rules.grids[bracket->grid_index]))
            return true;
    }
    return false;
}

/* Refuses a feed without an output for a robot. Names the first observation and why it is none. */
static enum trajd_status no_outputs(const struct trajd_window_plan *plan, struct trajd_error *error)
{
    for (uint32_t o = 0; o < plan->rules.visible_count; o++) {
        const struct trajd_spec_output *output = &plan->spec->outputs[o];
        if (output->role == TRAJD_ROLE_OBS)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "feed %s has no output of role obs that can be built as rows "
                                   "come: line %u: outputs.%s: %s",
                                   plan->spec->feed_name, output->line, output->name,
                                   trajd_live_left_out(plan, o));
    }
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "feed %s has no output of role obs",
                           plan->spec->feed_name);
}

static bool has_stream_on(const struct trajd_live_choice *choice, int64_t clock)
{
    for (uint32_t s = 0; s < choice->stream_count; s++)
        if ((int64_t)choice->plan->dataset->index->streams[choice->streams[s]].clock_index == clock)
            return true;
    return false;
}

enum trajd_status trajd_live_choose(const struct trajd_window_plan *plan, bool is_whole,
                                    struct trajd_live_choice *choice, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    memset(choice, 0, sizeof *choice);
    choice->plan = plan;
    choice->is_whole = is_whole;
    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        if (is_whole || !trajd_live_left_out(plan, o))
            choice->outputs[choice->output_count++] = o;
    if (!choice->output_count)
        return no_outputs(plan, error);
    for (uint32_t i = choice->output_count, n = 0; n < i; n++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[choice->outputs[n]];
        if (output->transform && output->transform->reference_count)
            choice->outputs[choice->output_count++] = output->reference_output;
    }
    for (uint32_t i = 0; i < choice->output_count && !status; i++) {
        status = add_streams(choice, choice->outputs[i], error);
        choice->needs_ticks = choice->needs_ticks || needs_ticks(plan, choice->outputs[i]);
    }
    if (plan->rules.anchor_clock >= 0)
        find_or_add(choice->clocks, &choice->clock_count, TRAJD_LIVE_MAX_STREAMS + 1,
                    (uint32_t)plan->rules.anchor_clock);
    choice->needs_ticks = choice->needs_ticks && !has_stream_on(choice, plan->rules.anchor_clock);
    return status;
}
