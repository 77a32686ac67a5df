/* Checks that the keys of an output fit each other. */
#include "daemon/window/feed_spec/window_spec_internal.h"

/* Checks that `goal:` and the keys beside it fit, and sets the role. */
static enum trajd_status check_goal(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                    struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *goal = trajd_yaml_get(node, "goal");

    if (!goal && output->role == TRAJD_ROLE_GOAL)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "role: goal needs goal:, for example {from: future, of: STREAM}");
    if (!goal)
        return TRAJD_OK;
    if (trajd_yaml_get(node, "role") && output->role != TRAJD_ROLE_GOAL)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "role"), p->error,
                                "an output with goal: has the role goal: remove role:");
    if (trajd_yaml_get(node, "from"))
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "from"), p->error,
                                "goal: names its streams with of: remove from:");
    if (trajd_yaml_get(node, "relative_to"))
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "relative_to"), p->error,
                                "a goal is delivered as it is observed: remove relative_to:");
    if (output->norm_over == TRAJD_NORM_OVER_WINDOWS || output->norm_per_step)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "norm"), p->error,
                                "goals are drawn anew in every pass, so windows give no fixed "
                                "statistics: use over: rows, the statistics of the stream");
    output->role = TRAJD_ROLE_GOAL;
    return TRAJD_OK;
}

/* Checks that `return:` and the keys beside it fit, and sets the role. */
static enum trajd_status check_return(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_spec_output *output)
{
    if (!output->returns.is_given)
        return TRAJD_OK;
    if (!trajd_yaml_get(node, "role"))
        output->role = output->goal.from ? output->role : TRAJD_ROLE_ACTION;
    if (output->role == TRAJD_ROLE_OBS || output->role == TRAJD_ROLE_GOAL)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "return"), p->error,
                                "a return adds rows after its step, which an observation may not "
                                "read: remove goal: and role: obs");
    if (trajd_yaml_get(node, "relative_to") || trajd_yaml_get(node, "rotation"))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "a return adds rows as they are recorded: remove relative_to and "
                                "rotation");
    if (trajd_yaml_get(node, "kind") || trajd_yaml_get(node, "max_age") ||
        trajd_yaml_get(node, "width") || output->has_range)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "a return adds rows as they are recorded: remove kind, max_age, "
                                "width and range_low");
    if (output->returns.in_chunk && output->norm_over == TRAJD_NORM_OVER_ROWS)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "norm"), p->error,
                                "a return until the end of the chunk is another at each step, so "
                                "rows have no statistics of it: use over: windows");
    return TRAJD_OK;
}

enum trajd_status trajd_spec_check_output(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_output *output)
{
    enum trajd_status status;

    if (output->preset && output->role != TRAJD_ROLE_ACTION)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "preset"), p->error,
                                "a preset is for an output of role action");
    if ((status = check_goal(p, node, output)) || (status = check_return(p, node, output)))
        return status;
    if (output->role == TRAJD_ROLE_GOAL && output->at.to > 0)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "at"), p->error,
                                "steps of a goal count from the goal: end at 0");
    if (output->role == TRAJD_ROLE_OBS && output->at.to > 0 && output->lookahead_ns == 0)
        return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "at"), p->error,
                                "an observation reads nothing after its anchor: end at 0, or set "
                                "role: action, role: next or lookahead:");
    if (output->role != TRAJD_ROLE_OBS && output->lookahead_ns)
        return trajd_yaml_error(p->yaml, node, p->error, "lookahead: is for observations: %s",
                                output->role == TRAJD_ROLE_GOAL ? "a goal sees nothing after itself"
                                                                : "this role reads ahead anyway");
    if ((trajd_yaml_get(node, "max_age") && output->max_age_ns < 0) ||
        (trajd_yaml_get(node, "max_gap") && output->max_gap_ns < 0) || output->lookahead_ns < 0 ||
        output->lookahead_ns > TRAJD_SPEC_MAX_NS || output->mean_width_ns < 0 ||
        output->mean_width_ns > TRAJD_SPEC_MAX_NS || output->max_age_ns > TRAJD_SPEC_MAX_NS ||
        output->max_gap_ns > TRAJD_SPEC_MAX_NS)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "max_age, max_gap, lookahead and width must be between 0 and one day");
    return TRAJD_OK;
}
