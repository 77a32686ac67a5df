/* Reads `norm:` of an output: the name of a rule, numbers, or a rule with a mask, a file, what
 * its statistics weigh, and a floor for the std. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/statistics.h"
#include "daemon/window/feed_spec/window_spec_internal.h"

/* of min_std */
#define MIN_STD 1e-30
#define MAX_STD 1e30

static const char *const rules[] = {"mean_std", "min_max", "q01_q99", NULL};
static const char *const overs[] = {"rows", "windows", NULL};

const char *trajd_norm_name(enum trajd_norm norm)
{
    return norm == TRAJD_NORM_NONE      ? "none"
           : norm == TRAJD_NORM_NUMBERS ? "numbers"
                                        : rules[norm - TRAJD_NORM_MEAN_STD];
}

const char *trajd_norm_over_name(enum trajd_norm_over over)
{
    return over == TRAJD_NORM_OVER_WINDOWS ? overs[1] : overs[0];
}

void trajd_spec_norm_clear(struct trajd_spec_output *output)
{
    output->norm_by = TRAJD_NORM_NONE;
    output->norm_over = TRAJD_NORM_OVER_DEFAULT;
    output->norm_min_std = 0;
    output->norm_per_step = false;
    output->norm_count = output->norm_mask_count = 0;
    output->scale = output->offset = NULL;
    output->norm_mask = NULL;
    output->norm_file = output->norm_key = NULL;
    output->norm_statistics = NULL;
}

static enum trajd_status no_memory(struct trajd_spec_parser *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
}

static enum trajd_status read_floats(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node, uint32_t *count,
                                     const float **out)
{
    float *values;
    uint32_t i = 0;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected a list with one number per feature");
    if (*count && *count != node->child_count)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "%u numbers, but `scale` and `offset` need the same count, and the other has %u",
            node->child_count, *count);
    values = trajd_spec_copy(p, NULL, node->child_count * sizeof *values);
    if (!values)
        return no_memory(p);
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next) {
        double value;
        enum trajd_status status = trajd_yaml_double(p->yaml, child, -3e38, 3e38, &value, p->error);
        if (status)
            return status;
        values[i++] = (float)value;
    }
    *count = node->child_count;
    *out = values;
    return TRAJD_OK;
}

/* Reads `{scale: [...], offset: [...]}`. A missing scale is 1, a missing offset 0. */
static enum trajd_status read_numbers(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *child;
    enum trajd_status status;
    float *values;

    if ((child = trajd_yaml_get(node, "scale")) &&
        (status = read_floats(p, child, &output->norm_count, &output->scale)))
        return status;
    if ((child = trajd_yaml_get(node, "offset")) &&
        (status = read_floats(p, child, &output->norm_count, &output->offset)))
        return status;
    values = trajd_spec_copy(p, NULL, output->norm_count * sizeof *values);
    if (!values)
        return no_memory(p);
    for (uint32_t i = 0; i < output->norm_count; i++)
        values[i] = output->scale ? 0.0f : 1.0f;
    if (!output->scale)
        output->scale = values;
    else if (!output->offset)
        output->offset = values;
    output->norm_by = TRAJD_NORM_NUMBERS;
    return TRAJD_OK;
}

static enum trajd_status read_rule(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    int choice;
    enum trajd_status status = trajd_yaml_choice(p->yaml, node, rules, &choice, p->error);

    if (!status)
        output->norm_by = (enum trajd_norm)(TRAJD_NORM_MEAN_STD + choice);
    return status;
}

static enum trajd_status read_mask(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;
    bool *mask;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "expected a list with true or false per feature; features with false pass unchanged");
    mask = trajd_spec_copy(p, NULL, node->child_count * sizeof *mask);
    if (!mask)
        return no_memory(p);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_bool(p->yaml, child, &mask[i++], p->error);
    output->norm_mask = mask;
    output->norm_mask_count = node->child_count;
    return status;
}

static enum trajd_status read_over(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    int choice;
    enum trajd_status status = trajd_yaml_choice(p->yaml, node, overs, &choice, p->error);

    if (!status)
        output->norm_over = (enum trajd_norm_over)(TRAJD_NORM_OVER_ROWS + choice);
    return status;
}

static enum trajd_status read_per(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                  struct trajd_spec_output *output)
{
    static const char *const units[] = {"output", "step", NULL};
    int choice;
    enum trajd_status status = trajd_yaml_choice(p->yaml, node, units, &choice, p->error);

    output->norm_per_step = !status && choice == 1;
    if (output->norm_per_step && output->norm_over == TRAJD_NORM_OVER_ROWS)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "statistics per step are over windows: remove `over: rows`");
    return status;
}

/* Checks that the keys beside `by:` fit it and one another. */
static enum trajd_status check_rule(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                    const struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *over = trajd_yaml_get(node, "over"),
                                 *min_std = trajd_yaml_get(node, "min_std");

    if (output->norm_key && !output->norm_file)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "key: needs `stats: FILE`: it names statistics in that file");
    if (over && output->norm_file)
        return trajd_yaml_error(p->yaml, over, p->error,
                                "the statistics of a file are complete: remove `over:`, which says "
                                "what the daemon counts when it computes them");
    if (min_std && output->norm_by != TRAJD_NORM_MEAN_STD)
        return trajd_yaml_error(p->yaml, min_std, p->error,
                                "min_std is a floor for the std, and %s divides by no std: remove "
                                "it, or use `by: mean_std`",
                                trajd_norm_name(output->norm_by));
    return TRAJD_OK;
}

/* Reads a rule and the keys beside it. */
static enum trajd_status read_rule_keys(struct trajd_spec_parser *p,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *child;
    enum trajd_status status = read_rule(p, trajd_yaml_get(node, "by"), output);

    if (!status && (child = trajd_yaml_get(node, "mask")))
        status = read_mask(p, child, output);
    if (!status && (child = trajd_yaml_get(node, "stats")))
        status = trajd_spec_read_string(p, child, &output->norm_file);
    if (!status && (child = trajd_yaml_get(node, "key")))
        status = trajd_spec_read_string(p, child, &output->norm_key);
    if (!status && (child = trajd_yaml_get(node, "over")))
        status = read_over(p, child, output);
    if (!status && (child = trajd_yaml_get(node, "min_std")))
        status =
            trajd_yaml_double(p->yaml, child, MIN_STD, MAX_STD, &output->norm_min_std, p->error);
    if (!status && (child = trajd_yaml_get(node, "per")))
        status = read_per(p, child, output);
    return status ? status : check_rule(p, node, output);
}

enum trajd_status trajd_spec_read_norm(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_spec_output *output)
{
    static const char *const keys[] = {"by",      "mask", "stats", "key",    "over",
                                       "min_std", "per",  "scale", "offset", NULL};
    enum trajd_status status;
    bool numbers;

    if (node->kind == TRAJD_YAML_SCALAR)
        return read_rule(p, node, output);
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected mean_std, min_max, q01_q99, {by: RULE, ...} or {scale: "
                                "[...], offset: [...]}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)))
        return status;
    numbers = trajd_yaml_get(node, "scale") || trajd_yaml_get(node, "offset");
    if (numbers && node->child_count != (uint32_t) !!trajd_yaml_get(node, "scale") +
                                            !!trajd_yaml_get(node, "offset"))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "scale and offset cannot be combined with other keys");
    if (numbers)
        return read_numbers(p, node, output);
    if (trajd_yaml_get(node, "by"))
        return read_rule_keys(p, node, output);
    if (trajd_yaml_get(node, "over") && node->child_count == 1)
        return read_over(p, trajd_yaml_get(node, "over"), output);
    return trajd_yaml_error(p->yaml, node, p->error,
                            "expected `by:` (mean_std, min_max, q01_q99), scale and offset, or "
                            "`over:` alone");
}

enum trajd_status trajd_spec_norm_load(struct trajd_window_spec *spec, const char *folder,
                                       struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t o = 0; o < spec->output_count && !status; o++) {
        struct trajd_spec_output *output = &spec->outputs[o];
        struct trajd_statistics *read = NULL;
        char path[4096];
        if (!output->norm_file)
            continue;
        if (snprintf(path, sizeof path, "%s%s%s", *output->norm_file == '/' ? "" : folder,
                     *output->norm_file == '/' ? "" : "/", output->norm_file) >= (int)sizeof path)
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                     "the path has more than %zu bytes", sizeof path - 1);
        else
            status = trajd_statistics_read_file(
                path, output->norm_key ? output->norm_key : output->name, &read, error);
        for (uint32_t p = 0; p < spec->member_count; p++)
            spec->members[p].spec->outputs[o].norm_statistics = read;
        output->norm_statistics = read;
        if (status)
            trajd_error_prefix(error, "feed %s: line %u: outputs.%s.norm.stats", spec->feed_name,
                               output->line, output->name);
    }
    return status;
}
