/* Reads a feed's outputs: streams, steps and form, and whether the keys of an output fit each
 * other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/window_spec_internal.h"
#include "daemon/window/image/image_preset.h"
#include "daemon/window/transform/chain_spec.h"
#include "proto/array_len.h"

#define AT(member) offsetof(struct trajd_spec_output, member)

static const char *const roles[] = {"obs", "action", "next", "goal", NULL};
static const char *const missings[] = {"error", "zero", "skip", NULL};
static const char *const goals_from[] = {"last", "future", NULL};
static const char *const distances[] = {"uniform", "geometric", NULL};
static const char *const untils[] = {"episode", "chunk", NULL};

const char *trajd_role_name(enum trajd_role role)
{
    return roles[role];
}

/* ---- steps and streams ---- */

/* Parses a step count like "-1" or a time like "-200ms". False: neither. */
static bool parse_end(const char *text, bool *in_time, int64_t *value)
{
    char *end;
    long long steps = strtoll(text, &end, 10);

    if (end != text && *end == 0) {
        *in_time = false;
        *value = steps;
        return steps >= -TRAJD_SPEC_MAX_STEPS && steps <= TRAJD_SPEC_MAX_STEPS;
    }
    *in_time = true;
    return trajd_parse_duration(text, value) && llabs(*value) <= TRAJD_SPEC_MAX_NS;
}

static void trim(char *text)
{
    size_t length = strlen(text), lead = strspn(text, " \t");
    while (length > lead && strchr(" \t", text[length - 1]))
        length--;
    memmove(text, text + lead, length - lead);
    text[length - lead] = 0;
}

const char *trajd_spec_range_parse(const char *text, struct trajd_spec_range *range)
{
    char from[64], to[64], *at, *dots;
    bool to_in_time;

    memset(range, 0, sizeof *range);
    if (strlen(text) >= sizeof from)
        return "too long";
    strcpy(from, text);
    at = strchr(from, '@');
    if (at) {
        *at++ = 0;
        strcpy(to, at);
        trim(to);
        if (!trajd_parse_rate(to, &range->rate))
            return "the text after '@' is not a rate in Hz";
    }
    dots = strstr(from, "..");
    strcpy(to, dots ? dots + 2 : from);
    if (dots)
        *dots = 0;
    trim(from);
    trim(to);
    if (!parse_end(from, &range->in_time, &range->from) || !parse_end(to, &to_in_time, &range->to))
        return "expected FROM..TO of whole steps (-1..14) or of times (-200ms..0ms), and "
               "optionally '@ RATE' after it";
    if (range->from == 0 || range->to == 0) /* "0" is a step and a time */
        range->in_time = to_in_time = range->in_time || to_in_time;
    if (range->in_time != to_in_time)
        return "one end is a number of steps and the other a time";
    if (range->from > range->to)
        return "FROM is greater than TO";
    return NULL;
}

/* Refuses [-1, 0], and says how its range is written. */
static enum trajd_status refuse_list(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node)
{
    const struct trajd_yaml_node *from = node->children, *to = from ? from->next : NULL;
    struct trajd_spec_range range;
    char text[64] = "";

    if (node->child_count == 2 && from->value && to->value)
        snprintf(text, sizeof text, "%s..%s", from->value, to->value);
    return trajd_yaml_error(
        r->yaml, node, r->error, "steps are a range, not a list: write %s",
        *text && !trajd_spec_range_parse(text, &range) ? text : "FROM..TO, for example -1..0");
}

static enum trajd_status read_range(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_range *range = member;
    const char *text, *wrong;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SEQUENCE)
        return refuse_list(r, node);
    status = trajd_yaml_string(r->yaml, node, &text, r->error);
    if (status)
        return status;
    wrong = trajd_spec_range_parse(text, range);
    if (wrong)
        return trajd_yaml_error(r->yaml, node, r->error, "%s: %s", text, wrong);
    if (!range->in_time && range->to - range->from >= TRAJD_SPEC_MAX_STEPS)
        return trajd_yaml_error(r->yaml, node, r->error, "more than %d steps",
                                TRAJD_SPEC_MAX_STEPS);
    return TRAJD_OK;
}

enum trajd_status trajd_spec_read_sources(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;
    enum trajd_status status = TRAJD_OK;

    output->source_count = 0;
    if (node->kind == TRAJD_YAML_SCALAR) {
        output->source_count = 1;
        return trajd_yaml_keep_string(r, node, &output->sources[0]);
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count == 0 ||
        node->child_count > TRAJD_SPEC_MAX_SOURCES)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a stream or a list of 1 to %d streams",
                                TRAJD_SPEC_MAX_SOURCES);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_keep_string(r, child, &output->sources[output->source_count++]);
    return status;
}

/* ---- keys ---- */

static enum trajd_status read_kind(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *kind)
{
    static const char *const words[] = {"linear", "previous", "nearest", "mean", NULL};
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_PREVIOUS,
                                            TRAJD_KIND_NEAREST, TRAJD_KIND_MEAN};
    int choice;
    const enum trajd_status status = trajd_yaml_choice(r->yaml, node, words, &choice, r->error);

    if (!status)
        *(enum trajd_kind *)kind = kinds[choice];
    return status;
}

static enum trajd_status read_dtype(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *member)
{
    enum trajd_dtype *dtype = member;
    const char *text;
    const enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    *dtype = trajd_dtype_parse(text);
    if (*dtype)
        return TRAJD_OK;
    return trajd_yaml_error(
        r->yaml, node, r->error,
        "%s is not a type: expected float32, float16, bfloat16, float64, uint8, ...", text);
}

static enum trajd_status read_goal(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    static const struct trajd_yaml_key keys[] = {
        {"from", TRAJD_YAML_CHOICE, .offset = AT(goal.from), .low = TRAJD_GOAL_LAST,
         .words = goals_from, .is_needed = true},
        {"p", TRAJD_YAML_FLAG, .offset = AT(goal.geometric), .words = distances},
        {"gamma", TRAJD_YAML_DOUBLE, .offset = AT(goal.gamma), .low = 1e-6, .high = 1 - 1e-6},
        {"of", .read = trajd_spec_read_sources, .is_needed = true},
    };
    const struct trajd_spec_output *output = member;
    const struct trajd_yaml_node *p = trajd_yaml_get(node, "p"),
                                 *gamma = trajd_yaml_get(node, "gamma");
    const enum trajd_status status = trajd_yaml_read_keys(
        r, node, "{from: last|future, p: uniform|geometric, of: STREAM or [STREAMS]}", keys,
        ARRAY_LEN(keys), member);

    if (status)
        return status;
    if (p && output->goal.from == TRAJD_GOAL_LAST)
        return trajd_yaml_error(r->yaml, p, r->error,
                                "from: last draws nothing: remove p:, or use from: future");
    if (gamma && !output->goal.geometric)
        return trajd_yaml_error(r->yaml, gamma, r->error, "gamma: is for p: geometric");
    if (!gamma && output->goal.geometric)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "p: geometric needs gamma:, for example 0.99: a goal then lies "
                                "more than d anchors ahead with probability gamma^d");
    return TRAJD_OK;
}

static enum trajd_status read_return(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *member)
{
    static const struct trajd_yaml_key keys[] = {
        {"gamma", TRAJD_YAML_DOUBLE, .offset = AT(returns.gamma), .high = 1, .is_needed = true},
        {"until", TRAJD_YAML_FLAG, .offset = AT(returns.in_chunk), .words = untils},
    };

    ((struct trajd_spec_output *)member)->returns.is_given = true;
    return trajd_yaml_read_keys(r, node,
                                "{gamma: 0.99, until: episode|chunk}; gamma: 1 adds the rows "
                                "without a discount",
                                keys, ARRAY_LEN(keys), member);
}

static bool is_none(const struct trajd_yaml_node *norm)
{
    return norm && norm->kind == TRAJD_YAML_SCALAR && strcmp(norm->value, "none") == 0;
}

/* Reads `norm:`. Where it is none, read_output reads that of an image. */
static enum trajd_status read_norm(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;

    return trajd_image_norm_is(node) && !is_none(node)
               ? trajd_image_spec_read_norm(r, node, &output->image)
               : trajd_spec_read_norm(r, node, output);
}

static enum trajd_status read_range_low(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;

    output->has_range = true;
    return trajd_yaml_double(r->yaml, node, -1e6, 1e6, &output->range_low, r->error);
}

/* Reads `rotation:` or `relative_to:`. */
static enum trajd_status read_chain(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *member)
{
    struct trajd_spec_output *output = member;
    struct trajd_chain_spec *chain = (struct trajd_chain_spec *)(uintptr_t)output->chain;
    enum trajd_status status;

    if (!chain && !(chain = trajd_yaml_alloc(r, sizeof *chain)))
        return TRAJD_ERR_MEMORY;
    output->chain = chain;
    if (strcmp(node->key, "relative_to") == 0)
        return trajd_chain_read_relative(r, node, chain);
    chain->default_to = output->preset ? output->preset->rotation_to : TRAJD_ROTATION_NONE;
    status = trajd_chain_read_rotations(r, node, chain);
    chain->default_to = TRAJD_ROTATION_NONE; /* only what it leads to is part of the fingerprint */
    return status;
}

static const struct trajd_yaml_key output_keys[] = {
    {"from", .read = trajd_spec_read_sources},
    {"at", .offset = AT(at), .read = read_range},
    {"kind", .offset = AT(kind), .read = read_kind},
    {"max_age", TRAJD_YAML_DURATION, .offset = AT(max_age_ns)},
    {"max_gap", TRAJD_YAML_DURATION, .offset = AT(max_gap_ns)},
    {"lookahead", TRAJD_YAML_DURATION, .offset = AT(lookahead_ns)},
    {"width", TRAJD_YAML_DURATION, .offset = AT(mean_width_ns)},
    {"role", TRAJD_YAML_CHOICE, .offset = AT(role), .words = roles},
    {"dtype", .offset = AT(dtype), .read = read_dtype},
    {"range_low", .read = read_range_low},
    {"norm", .read = read_norm},
    {"missing", TRAJD_YAML_CHOICE, .offset = AT(missing), .words = missings},
    {"image", .offset = AT(image), .read = trajd_image_spec_read},
    {"layout", .offset = AT(image), .read = trajd_image_spec_read_layout},
    {"goal", .read = read_goal},
    {"return", .read = read_return},
    {"rotation", .read = read_chain},
    {"relative_to", .read = read_chain},
    {"preset", .type = TRAJD_YAML_LATER}, /* before the other keys */
};

/* The first keys of the table say which rows make the steps. Datasets of a mixture may differ in
 * them, and in no other: those describe the tensor, which is one for all. */
enum { MEMBER_KEY_COUNT = 7 };

/* Sets the keys of the output's preset that the output does not have. */
static enum trajd_status apply_preset(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, uint32_t version,
                                      struct trajd_spec_output *output)
{
    const struct trajd_preset *preset = output->preset;
    const char *norm = trajd_preset_norm(preset, trajd_yaml_get(node, "rotation"), version);
    struct trajd_yaml_reader own = *r;
    struct trajd_yaml *yaml;
    enum trajd_status status = trajd_preset_check(preset, r->yaml, node, r->error);

    if (status)
        return status;
    if (!trajd_yaml_get(node, "at"))
        trajd_spec_range_parse(preset->at, &output->at);
    output->norm_is_presets = !trajd_yaml_get(node, "norm");
    if (!output->norm_is_presets)
        return TRAJD_OK;
    status = trajd_yaml_parse("preset", norm, strlen(norm), &yaml, r->error);
    if (status)
        return status;
    own.yaml = yaml;
    status = trajd_spec_read_norm(&own, trajd_yaml_root(yaml), output);
    trajd_yaml_destroy(&yaml);
    return status;
}

/* ---- rules ---- */

static bool is_a_day_at_most(int64_t ns)
{
    return ns >= 0 && ns <= TRAJD_SPEC_MAX_NS;
}

struct rule {
    bool is_broken;
    const char *key; /* the error names it if the output has it, else the output */
    const char *message;
};

static enum trajd_status check_rules(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, const struct rule *rules,
                                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct trajd_yaml_node *key =
            rules[i].key ? trajd_yaml_get(node, rules[i].key) : NULL;
        if (rules[i].is_broken)
            return trajd_yaml_error(r->yaml, key ? key : node, r->error, "%s", rules[i].message);
    }
    return TRAJD_OK;
}

/* Sets the role that `goal:` and `return:` imply, and checks that the keys fit it. */
static enum trajd_status read_role(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    const bool has_goal = trajd_yaml_get(node, "goal"), has_role = trajd_yaml_get(node, "role");
    const enum trajd_role given = output->role,
                          implied = output->returns.is_given ? TRAJD_ROLE_ACTION : given;
    const struct rule rules[] = {
        {output->preset && given != TRAJD_ROLE_ACTION, "preset",
         "a preset is for an output of role action"},
        {!has_goal && given == TRAJD_ROLE_GOAL, NULL,
         "role: goal needs goal:, for example {from: future, of: STREAM}"},
        {has_goal && has_role && given != TRAJD_ROLE_GOAL, "role",
         "an output with goal: has the role goal: remove role:"},
        {has_goal && trajd_yaml_get(node, "from"), "from",
         "goal: names its streams with of: remove from:"},
    };

    output->role = has_goal ? TRAJD_ROLE_GOAL : has_role ? given : implied;
    return check_rules(r, node, rules, ARRAY_LEN(rules));
}

/* Checks that the keys of an output fit each other. `node` may also have the keys alone in which a
 * dataset of a mixture differs. */
static enum trajd_status check_output(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node,
                                      const struct trajd_spec_output *output)
{
    const bool returns = output->returns.is_given,
               is_relative = trajd_yaml_get(node, "relative_to");
    const enum trajd_role role = output->role;
    const bool over_windows = output->norm_over == TRAJD_NORM_OVER_WINDOWS || output->norm_per_step,
               over_rows = output->norm_over == TRAJD_NORM_OVER_ROWS;
    const struct rule rules[] = {
        {role == TRAJD_ROLE_GOAL && is_relative, "relative_to",
         "a goal is delivered as it is observed: remove relative_to:"},
        {role == TRAJD_ROLE_GOAL && over_windows, "norm",
         "goals are drawn again in every pass, so windows give no fixed statistics: use "
         "over: rows, the statistics of the stream"},
        {returns && (role == TRAJD_ROLE_OBS || role == TRAJD_ROLE_GOAL), "return",
         "a return adds rows after its step, which an observation may not read: remove goal: and "
         "role: obs"},
        {returns && (is_relative || trajd_yaml_get(node, "rotation")), NULL,
         "a return adds rows as they are recorded: remove relative_to and rotation"},
        {returns && (trajd_yaml_get(node, "kind") || trajd_yaml_get(node, "max_age") ||
                     trajd_yaml_get(node, "width") || output->has_range),
         NULL,
         "a return adds rows as they are recorded: remove kind, max_age, width and range_low"},
        {returns && output->returns.in_chunk && over_rows, "norm",
         "a return until the end of the chunk is another at each step, so rows have no statistics "
         "of it: use over: windows"},
        {role == TRAJD_ROLE_GOAL && output->at.to > 0, "at",
         "steps of a goal count from the goal: end at 0"},
        {role == TRAJD_ROLE_OBS && output->at.to > 0 && output->lookahead_ns == 0, "at",
         "an observation reads nothing after its anchor: end at 0, or set role: action, role: next "
         "or lookahead:"},
        {role == TRAJD_ROLE_GOAL && output->lookahead_ns, NULL,
         "lookahead: is for observations: a goal sees nothing after itself"},
        {role != TRAJD_ROLE_OBS && output->lookahead_ns, NULL,
         "lookahead: is for observations: this role reads ahead anyway"},
        {(trajd_yaml_get(node, "max_age") && !is_a_day_at_most(output->max_age_ns)) ||
             (trajd_yaml_get(node, "max_gap") && !is_a_day_at_most(output->max_gap_ns)) ||
             !is_a_day_at_most(output->lookahead_ns) || !is_a_day_at_most(output->mean_width_ns),
         NULL, "max_age, max_gap, lookahead and width must be between 0 and one day"},
    };

    return check_rules(r, node, rules, ARRAY_LEN(rules));
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
           (length >= 8 && strcmp(name + length - 8, ".missing") == 0) ||
           (length >= 12 && strcmp(name + length - 12, ".relative_to") == 0);
}

static enum trajd_status read_name(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_spec_output *output)
{
    const enum trajd_status status = trajd_yaml_keep(r, node->key, &output->name);

    if (status)
        return status;
    if (strlen(output->name) > TRAJD_SPEC_MAX_NAME)
        return trajd_yaml_error(r->yaml, node, r->error, "the name has more than %d bytes",
                                TRAJD_SPEC_MAX_NAME);
    if (trajd_spec_name_is_reserved(output->name))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "the name is reserved for the ids and masks of a batch");
    output->role = strncmp(output->name, "action", 6) == 0 ? TRAJD_ROLE_ACTION : TRAJD_ROLE_OBS;
    return TRAJD_OK;
}

static enum trajd_status read_output(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, uint32_t version,
                                     struct trajd_spec_output *output)
{
    const char *names[ARRAY_LEN(output_keys) + 1] = {NULL};
    const struct trajd_yaml_node *preset = trajd_yaml_get(node, "preset");
    enum trajd_status status;

    output->line = node->line;
    output->max_age_ns = output->max_gap_ns = -1;
    output->kind = TRAJD_SPEC_KIND_FROM_STREAM;
    if ((status = read_name(r, node, output)))
        return status;
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a mapping with at least {at: FROM..TO}");
    for (size_t k = 0; k < ARRAY_LEN(output_keys); k++)
        names[k] = output_keys[k].name;
    if ((status = trajd_yaml_check_keys(r->yaml, node, names, r->error)))
        return status;
    if (preset && ((status = trajd_preset_read(r->yaml, preset, &output->preset, r->error)) ||
                   (status = apply_preset(r, node, version, output))))
        return status;
    if ((status = trajd_image_preset_read(r->yaml, node, &output->image, r->error)))
        return status;
    if (!output->preset && !trajd_yaml_get(node, "at") &&
        !trajd_yaml_get(node, "goal")) /* of a goal: step 0 */
        return trajd_yaml_error(r->yaml, node, r->error,
                                "an output needs `at:`, its steps, for example {at: -1..0}");
    status = trajd_yaml_read_keys(r, node, NULL, output_keys, ARRAY_LEN(output_keys), output);
    if (!status && output->image.is_given && is_none(trajd_yaml_get(node, "norm")))
        status = trajd_image_spec_read_norm(r, trajd_yaml_get(node, "norm"), &output->image);
    if (status)
        return status;
    if (!output->source_count) {
        output->source_count = 1;
        output->sources[0] = output->name;
    }
    status = read_role(r, node, output);
    return status ? status : check_output(r, node, output);
}

enum trajd_status trajd_spec_read_member_output(const struct trajd_yaml_reader *r,
                                                const struct trajd_yaml_node *node, void *member)
{
    enum trajd_status status;

    for (size_t k = MEMBER_KEY_COUNT; k < ARRAY_LEN(output_keys); k++)
        if (trajd_yaml_get(node, output_keys[k].name))
            return trajd_yaml_error(r->yaml, trajd_yaml_get(node, output_keys[k].name), r->error,
                                    "all datasets of a mixture share this key: only from, at, "
                                    "kind, max_age, max_gap, lookahead and width may differ");
    status = trajd_yaml_read_keys(r, node, "{from: STREAM or [STREAM...], at: FROM..TO}",
                                  output_keys, MEMBER_KEY_COUNT, member);
    return status ? status : check_output(r, node, member);
}

/* Adds the hidden output that has the state of `relative_to:`: its row at the anchor, as an
 * observation sees it. */
static enum trajd_status add_reference(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *relative,
                                       struct trajd_window_spec *spec,
                                       struct trajd_spec_output *output)
{
    struct trajd_spec_output *state = &spec->outputs[spec->output_count];
    const struct trajd_yaml_node *from = relative, *kind = NULL;
    char name[128];
    enum trajd_status status;

    if (spec->output_count == TRAJD_SPEC_MAX_OUTPUTS)
        return trajd_yaml_error(r->yaml, relative, r->error,
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
    status = trajd_yaml_keep(r, name, &state->name);
    if (!status)
        status = trajd_spec_read_sources(r, from, state);
    return !status && kind ? read_kind(r, kind, &state->kind) : status;
}

static enum trajd_status add_references(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_window_spec *spec)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t o = 0;

    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next, o++)
        if (trajd_yaml_get(child, "relative_to"))
            status =
                add_reference(r, trajd_yaml_get(child, "relative_to"), spec, &spec->outputs[o]);
    return status;
}

enum trajd_status trajd_spec_read_outputs(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node, void *member)
{
    struct trajd_window_spec *spec = member;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || node->child_count == 0 ||
        node->child_count > TRAJD_SPEC_MAX_OUTPUTS)
        return trajd_yaml_error(r->yaml, node, r->error, "expected a mapping of 1 to %d outputs",
                                TRAJD_SPEC_MAX_OUTPUTS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_output(r, child, spec->version, &spec->outputs[spec->output_count++]);
    return status ? status : add_references(r, node, spec);
}
