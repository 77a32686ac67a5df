/* Reads `norm:` of an output: the name of a rule, numbers, or a rule with a mask, a file, what
 * its statistics weigh, and a floor for the std. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/statistics.h"
#include "daemon/window/feed_spec/window_spec_internal.h"
#include "proto/array_len.h"

#define AT(member) offsetof(struct trajd_spec_output, member)

/* of min_std */
#define MIN_STD 1e-30
#define MAX_STD 1e30

static const char *const rules[] = {"mean_std", "min_max", "q01_q99", NULL};
static const char *const overs[] = {"rows", "windows", NULL};
static const char *const units[] = {"output", "step", NULL};
static const char *const features[] = {"positions", "all_but_rotations", NULL};

const char *trajd_norm_name(enum trajd_norm norm)
{
    return norm == TRAJD_NORM_NONE      ? "none"
           : norm == TRAJD_NORM_NUMBERS ? "numbers"
                                        : rules[norm - TRAJD_NORM_MEAN_STD];
}

const char *trajd_norm_features_name(enum trajd_norm_features which)
{
    return features[which - TRAJD_NORM_POSITIONS];
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
    output->norm_features = TRAJD_NORM_ALL_FEATURES;
    output->norm_count = output->norm_mask_count = 0;
    output->scale = output->offset = NULL;
    output->norm_mask = NULL;
    output->norm_file = output->norm_key = NULL;
    output->norm_statistics = NULL;
}

/* Reads `scale:` or `offset:`. */
static enum trajd_status read_floats(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;
    float *values;
    uint32_t i = 0;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a list with one number per feature");
    if (output->norm_count && output->norm_count != node->child_count)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "%u numbers, but `scale` and `offset` need the same count, and the other has %u",
            node->child_count, output->norm_count);
    values = trajd_yaml_alloc(r, node->child_count * sizeof *values);
    if (!values)
        return TRAJD_ERR_MEMORY;
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next) {
        double value;
        enum trajd_status status = trajd_yaml_double(r->yaml, child, -3e38, 3e38, &value, r->error);
        if (status)
            return status;
        values[i++] = (float)value;
    }
    output->norm_count = node->child_count;
    *(strcmp(node->key, "scale") == 0 ? &output->scale : &output->offset) = values;
    return TRAJD_OK;
}

/* A missing scale is 1, a missing offset 0. */
static enum trajd_status complete_numbers(const struct trajd_yaml_reader *r,
                                          struct trajd_spec_output *output)
{
    float *values = trajd_yaml_alloc(r, output->norm_count * sizeof *values);

    if (!values)
        return TRAJD_ERR_MEMORY;
    for (uint32_t i = 0; i < output->norm_count; i++)
        values[i] = output->scale ? 0.0f : 1.0f;
    if (!output->scale)
        output->scale = values;
    else if (!output->offset)
        output->offset = values;
    output->norm_by = TRAJD_NORM_NUMBERS;
    return TRAJD_OK;
}

/* Reads `mask:`, a word or a list. */
static enum trajd_status read_mask(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;
    bool *mask;

    for (int w = 0; node->kind == TRAJD_YAML_SCALAR && features[w]; w++)
        if (strcmp(node->value, features[w]) == 0) {
            output->norm_features = TRAJD_NORM_POSITIONS + (enum trajd_norm_features)w;
            return TRAJD_OK;
        }
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "expected positions, all_but_rotations, or a list with true or false per feature; "
            "features with false pass unchanged");
    mask = trajd_yaml_alloc(r, node->child_count * sizeof *mask);
    if (!mask)
        return TRAJD_ERR_MEMORY;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_bool(r->yaml, child, &mask[i++], r->error);
    output->norm_mask = mask;
    output->norm_mask_count = node->child_count;
    return status;
}

static const struct trajd_yaml_key norm_keys[] = {
    {"by", TRAJD_YAML_CHOICE, .offset = AT(norm_by), .low = TRAJD_NORM_MEAN_STD, .words = rules},
    {"mask", .read = read_mask},
    {"stats", TRAJD_YAML_STRING, .offset = AT(norm_file)},
    {"key", TRAJD_YAML_STRING, .offset = AT(norm_key)},
    {"over", TRAJD_YAML_CHOICE, .offset = AT(norm_over), .low = TRAJD_NORM_OVER_ROWS,
     .words = overs},
    {"min_std", TRAJD_YAML_DOUBLE, .offset = AT(norm_min_std), .low = MIN_STD, .high = MAX_STD},
    {"per", TRAJD_YAML_FLAG, .offset = AT(norm_per_step), .words = units},
    {"scale", .read = read_floats},
    {"offset", .read = read_floats},
};

/* Checks that the keys beside `by:` fit it and one another. */
static enum trajd_status check_rule(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *over = trajd_yaml_get(node, "over"),
                                 *min_std = trajd_yaml_get(node, "min_std");

    if (output->norm_per_step && output->norm_over == TRAJD_NORM_OVER_ROWS)
        return trajd_yaml_error(r->yaml, trajd_yaml_get(node, "per"), r->error,
                                "statistics per step are over windows: remove `over: rows`");
    if (output->norm_key && !output->norm_file)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "key: needs `stats: FILE`: it names statistics in that file");
    if (over && output->norm_file)
        return trajd_yaml_error(r->yaml, over, r->error,
                                "the statistics of a file are complete: remove `over:`, which says "
                                "what the daemon counts when it computes them");
    if (min_std && output->norm_by != TRAJD_NORM_MEAN_STD)
        return trajd_yaml_error(r->yaml, min_std, r->error,
                                "min_std is a floor for the std, and %s divides by no std: remove "
                                "it, or use `by: mean_std`",
                                trajd_norm_name(output->norm_by));
    return TRAJD_OK;
}

enum trajd_status trajd_spec_read_norm(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node, void *member)
{
    static const char form[] =
        "none, mean_std, min_max, q01_q99, {by: RULE, ...} or {scale: [...], offset: [...]}";
    struct trajd_spec_output *output = member;
    const uint32_t numbers =
        (uint32_t) !!trajd_yaml_get(node, "scale") + !!trajd_yaml_get(node, "offset");
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR && strcmp(node->value, "none") == 0)
        return TRAJD_OK; /* the norm of a preset is not read where the output has this key */
    if (node->kind == TRAJD_YAML_SCALAR)
        return trajd_yaml_read_key(r, node, &norm_keys[0], output);
    status = trajd_yaml_read_keys(r, node, form, norm_keys, ARRAY_LEN(norm_keys), output);
    if (status)
        return status;
    if (numbers && node->child_count != numbers)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "scale and offset cannot be combined with other keys");
    if (numbers)
        return complete_numbers(r, output);
    if (trajd_yaml_get(node, "by"))
        return check_rule(r, node, output);
    if (trajd_yaml_get(node, "over") && node->child_count == 1)
        return TRAJD_OK;
    return trajd_yaml_error(r->yaml, node, r->error,
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
