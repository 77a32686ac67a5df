/* Reads a feed's outputs: streams, steps, and form. */
#include <stdio.h>
#include <string.h>

#include "daemon/window/picture/picture_preset.h"
#include "daemon/window/transform/chain_spec.h"
#include "daemon/window/transform/preset.h"
#include "daemon/window/feed_spec/window_spec_internal.h"
#include "proto/array_len.h"

static const char *const roles[] = {"obs", "action", "next", "goal", NULL};

const char *trajd_role_name(enum trajd_role role)
{
    return roles[role];
}

/* Refuses [-1, 0], and says how its range is written. */
static enum trajd_status refuse_list(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node)
{
    const struct trajd_yaml_node *from = node->children, *to = from ? from->next : NULL;
    struct trajd_spec_range range;
    char text[64] = "";

    if (node->child_count == 2 && from->value && to->value)
        snprintf(text, sizeof text, "%s..%s", from->value, to->value);
    return trajd_yaml_error(
        p->yaml, node, p->error, "steps are a range, not a list: write %s",
        *text && !trajd_spec_range_parse(text, &range) ? text : "FROM..TO, for example -1..0");
}

static enum trajd_status read_range(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                    struct trajd_spec_range *range)
{
    const char *text, *wrong;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SEQUENCE)
        return refuse_list(p, node);
    status = trajd_yaml_string(p->yaml, node, &text, p->error);
    if (status)
        return status;
    wrong = trajd_spec_range_parse(text, range);
    if (wrong)
        return trajd_yaml_error(p->yaml, node, p->error, "%s: %s", text, wrong);
    if (!range->in_time && range->to - range->from >= TRAJD_SPEC_MAX_STEPS)
        return trajd_yaml_error(p->yaml, node, p->error, "more than %d steps",
                                TRAJD_SPEC_MAX_STEPS);
    return TRAJD_OK;
}

enum trajd_status trajd_spec_read_sources(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_spec_output *output)
{
    enum trajd_status status = TRAJD_OK;

    output->source_count = 0;
    if (node->kind == TRAJD_YAML_SCALAR) {
        output->source_count = 1;
        return trajd_spec_read_string(p, node, &output->sources[0]);
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0 ||
        node->child_count > TRAJD_SPEC_MAX_SOURCES)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected a stream or a list of 1 to %d streams",
                                TRAJD_SPEC_MAX_SOURCES);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_spec_read_string(p, child, &output->sources[output->source_count++]);
    return status;
}

static enum trajd_status read_kind(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    static const char *const words[] = {"linear", "previous", "nearest", "mean", NULL};
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_PREVIOUS,
                                            TRAJD_KIND_NEAREST, TRAJD_KIND_MEAN};
    int choice;
    enum trajd_status status = trajd_yaml_choice(p->yaml, node, words, &choice, p->error);
    if (!status)
        output->kind = kinds[choice];
    return status;
}

static enum trajd_status read_goal(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    const struct trajd_yaml_node *streams;
    const enum trajd_status status =
        trajd_goal_read(p->yaml, node, &output->goal, &streams, p->error);

    return status ? status : trajd_spec_read_sources(p, streams, output);
}

static enum trajd_status read_output_word(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node, const char *key,
                                          struct trajd_spec_output *output)
{
    static const char *const missing[] = {"error", "zero", "skip", NULL};
    const char *text;
    enum trajd_status status;
    int choice;

    if (strcmp(key, "role") == 0) {
        status = trajd_yaml_choice(p->yaml, node, roles, &choice, p->error);
        output->role = status ? output->role : (enum trajd_role)choice;
        return status;
    }
    if (strcmp(key, "missing") == 0) {
        status = trajd_yaml_choice(p->yaml, node, missing, &choice, p->error);
        output->missing = status ? output->missing : (enum trajd_missing)choice;
        return status;
    }
    status = trajd_yaml_string(p->yaml, node, &text, p->error);
    if (status)
        return status;
    output->dtype = trajd_dtype_parse(text);
    return output->dtype
               ? TRAJD_OK
               : trajd_yaml_error(
                     p->yaml, node, p->error,
                     "%s is not a type: expected float32, float16, bfloat16, float64, uint8, ...",
                     text);
}

/* Reads `rotation:` or `relative_to:`. */
static enum trajd_status read_chain(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                    struct trajd_spec_output *output)
{
    struct trajd_chain_spec *chain = (struct trajd_chain_spec *)(uintptr_t)output->chain;
    enum trajd_status status;

    if (!chain) {
        chain = trajd_spec_copy(p, NULL, sizeof *chain);
        if (!chain)
            return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
        memset(chain, 0, sizeof *chain);
        output->chain = chain;
    }
    if (strcmp(node->key, "relative_to") == 0)
        return trajd_chain_read_relative(p->yaml, node, chain, p->error);
    chain->default_to = output->preset ? output->preset->rotation_to : TRAJD_ROTATION_NONE;
    status = trajd_chain_read_rotations(p->yaml, node, chain, p->error);
    chain->default_to = TRAJD_ROTATION_NONE; /* only what it leads to is part of the fingerprint */
    return status;
}

/* Sets the keys of the output's preset that the output does not have. */
static enum trajd_status apply_preset(struct trajd_spec_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_spec_output *output)
{
    const struct trajd_preset *preset = output->preset;
    struct trajd_spec_parser own = *p;
    struct trajd_yaml *yaml;
    enum trajd_status status = trajd_preset_check(preset, p->yaml, node, p->error);

    if (status)
        return status;
    if (!trajd_yaml_get(node, "at"))
        trajd_spec_range_parse(preset->at, &output->at);
    if (!preset->norm || trajd_yaml_get(node, "norm"))
        return TRAJD_OK;
    status = trajd_yaml_parse("preset", preset->norm, strlen(preset->norm), &yaml, p->error);
    if (status)
        return status;
    own.yaml = yaml;
    status = trajd_spec_read_norm(&own, trajd_yaml_root(yaml), output);
    trajd_yaml_destroy(&yaml);
    return status;
}

static enum trajd_status read_output_key(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node,
                                         struct trajd_spec_output *output)
{
    const char *key = node->key;

    if (strcmp(key, "from") == 0)
        return trajd_spec_read_sources(p, node, output);
    if (strcmp(key, "at") == 0)
        return read_range(p, node, &output->at);
    if (strcmp(key, "return") == 0)
        return trajd_return_read(p->yaml, node, &output->returns, p->error);
    if (strcmp(key, "goal") == 0)
        return read_goal(p, node, output);
    if (strcmp(key, "kind") == 0)
        return read_kind(p, node, output);
    if (strcmp(key, "image") == 0)
        return trajd_picture_spec_read(p->yaml, node, &output->picture, p->error);
    if (strcmp(key, "layout") == 0)
        return trajd_picture_spec_read_layout(p->yaml, node, &output->picture, p->error);
    if (strcmp(key, "norm") == 0 && trajd_picture_norm_is(node))
        return trajd_picture_spec_read_norm(p->yaml, node, &output->picture, p->error);
    if (strcmp(key, "norm") == 0)
        return trajd_spec_read_norm(p, node, output);
    if (strcmp(key, "preset") == 0)
        return TRAJD_OK; /* read before the other keys */
    if (strcmp(key, "rotation") == 0 || strcmp(key, "relative_to") == 0)
        return read_chain(p, node, output);
    if (strcmp(key, "max_age") == 0)
        return trajd_yaml_duration(p->yaml, node, &output->max_age_ns, p->error);
    if (strcmp(key, "max_gap") == 0)
        return trajd_yaml_duration(p->yaml, node, &output->max_gap_ns, p->error);
    if (strcmp(key, "lookahead") == 0)
        return trajd_yaml_duration(p->yaml, node, &output->lookahead_ns, p->error);
    if (strcmp(key, "width") == 0)
        return trajd_yaml_duration(p->yaml, node, &output->mean_width_ns, p->error);
    if (strcmp(key, "range_low") == 0) {
        output->has_range = true;
        return trajd_yaml_double(p->yaml, node, -1e6, 1e6, &output->range_low, p->error);
    }
    return read_output_word(p, node, key, output);
}

bool trajd_spec_name_is_reserved(const char *name)
{
    static const char *const ids[] = {"window_id", "dataset_index", "episode_index", "anchor_ns",
                                      "wrapped"};
    const size_t length = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (strcmp(name, ids[i]) == 0)
            return true;
    return (length >= 5 && strcmp(name + length - 5, ".mask") == 0) ||
           (length >= 8 && strcmp(name + length - 8, ".augment") == 0) ||
           (length >= 12 && strcmp(name + length - 12, ".relative_to") == 0);
}

static enum trajd_status read_name(struct trajd_spec_parser *p, const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    const enum trajd_status status = trajd_spec_copy_string(p, node->key, &output->name);

    if (status)
        return status;
    if (strlen(output->name) > TRAJD_SPEC_MAX_NAME)
        return trajd_yaml_error(p->yaml, node, p->error, "the name has more than %d bytes",
                                TRAJD_SPEC_MAX_NAME);
    if (trajd_spec_name_is_reserved(output->name))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "the name is reserved for the ids and masks of a batch");
    output->role = strncmp(output->name, "action", 6) == 0 ? TRAJD_ROLE_ACTION : TRAJD_ROLE_OBS;
    return TRAJD_OK;
}

static enum trajd_status read_output(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node,
                                     struct trajd_spec_output *output)
{
    static const char *const keys[] = {"from",    "at",       "role",        "kind",   "dtype",
                                       "max_age", "max_gap",  "lookahead",   "width",  "range_low",
                                       "norm",    "missing",  "image",       "layout", "goal",
                                       "return",  "rotation", "relative_to", "preset", NULL};
    enum trajd_status status;

    output->line = node->line;
    output->max_age_ns = output->max_gap_ns = -1;
    output->kind = TRAJD_SPEC_KIND_FROM_STREAM;
    if ((status = read_name(p, node, output)))
        return status;
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected a mapping with at least {at: FROM..TO}");
    if ((status = trajd_yaml_check_keys(p->yaml, node, keys, p->error)))
        return status;
    if (trajd_yaml_get(node, "preset") &&
        ((status = trajd_preset_read(p->yaml, trajd_yaml_get(node, "preset"), &output->preset,
                                     p->error)) ||
         (status = apply_preset(p, node, output))))
        return status;
    if ((status = trajd_picture_preset_read(p->yaml, node, &output->picture, p->error)))
        return status;
    if (!output->preset && !trajd_yaml_get(node, "at") &&
        !trajd_yaml_get(node, "goal")) /* of a goal: step 0 */
        return trajd_yaml_error(p->yaml, node, p->error,
                                "an output needs `at:`, its steps, for example {at: -1..0}");
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next)
        if ((status = read_output_key(p, child, output)))
            return status;
    if (!output->source_count) {
        output->source_count = 1;
        output->sources[0] = output->name;
    }
    return trajd_spec_check_output(p, node, output);
}

/* Adds the hidden output that has the state of `relative_to:`: its row at the anchor, as an
 * observation sees it. */
static enum trajd_status add_reference(struct trajd_spec_parser *p,
                                       const struct trajd_yaml_node *relative,
                                       struct trajd_spec_output *output)
{
    struct trajd_window_spec *spec = p->spec;
    struct trajd_spec_output *state = &spec->outputs[spec->output_count];
    const struct trajd_yaml_node *from = relative, *kind = NULL;
    char name[128];
    enum trajd_status status;

    if (spec->output_count == TRAJD_SPEC_MAX_OUTPUTS)
        return trajd_yaml_error(p->yaml, relative, p->error,
                                "more than %d outputs and states of relative_to",
                                TRAJD_SPEC_MAX_OUTPUTS);
    if (relative->kind == TRAJD_YAML_MAPPING) {
        from = trajd_yaml_get(relative, "from");
        kind = trajd_yaml_get(relative, "kind");
    }
    output->reference_output = spec->output_count++;
    *state = (struct trajd_spec_output){.line = relative->line,
                                        .is_hidden = true,
                                        .role = TRAJD_ROLE_OBS,
                                        .kind = TRAJD_SPEC_KIND_FROM_STREAM,
                                        .missing = output->missing,
                                        .max_age_ns = -1,
                                        .max_gap_ns = -1};
    snprintf(name, sizeof name, "%s.relative_to", output->name);
    status = trajd_spec_copy_string(p, name, &state->name);
    if (!status)
        status = trajd_spec_read_sources(p, from, state);
    return !status && kind ? read_kind(p, kind, state) : status;
}

static enum trajd_status add_references(struct trajd_spec_parser *p,
                                        const struct trajd_yaml_node *node)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t o = 0;

    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next, o++)
        if (trajd_yaml_get(child, "relative_to"))
            status = add_reference(p, trajd_yaml_get(child, "relative_to"), &p->spec->outputs[o]);
    return status;
}

enum trajd_status trajd_spec_read_outputs(struct trajd_spec_parser *p,
                                          const struct trajd_yaml_node *node)
{
    struct trajd_window_spec *spec = p->spec;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || node->child_count == 0 ||
        node->child_count > TRAJD_SPEC_MAX_OUTPUTS)
        return trajd_yaml_error(p->yaml, node, p->error, "expected a mapping of 1 to %d outputs",
                                TRAJD_SPEC_MAX_OUTPUTS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_output(p, child, &spec->outputs[spec->output_count++]);
    return status ? status : add_references(p, node);
}
