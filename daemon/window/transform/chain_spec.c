/* Reads the keys `rotation:`, `relative_to:` and `preset:` of an output. */
#include "daemon/window/transform/chain_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"
#include "proto/plural.h"

#define AT(member) offsetof(struct trajd_chain_spec, member)

static const char *const steps[] = {"anchor", "before", NULL};
static const char *const frames[] = {"anchor", "base", NULL};

/* Reads `columns:` or `position:`. "3:6" are the columns 3, 4 and 5. */
static enum trajd_status read_columns(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *member)
{
    struct trajd_chain_rotation *rotation = member;
    const bool is_position = strcmp(node->key, "position") == 0;
    const char *text;
    char *rest;
    long from, to;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    from = strtol(text, &rest, 10);
    to = *rest == ':' && rest != text ? strtol(rest + 1, &rest, 10) : -1;
    if (*rest || from < 0 || to <= from || to > TRAJD_TRANSFORM_MAX_COLUMNS)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "%s: expected \"FROM:TO\", columns without the end, such as "
                                "\"3:6\" for columns 3, 4 and 5 (at most %d)",
                                text, TRAJD_TRANSFORM_MAX_COLUMNS);
    *(is_position ? &rotation->position_first : &rotation->first) = (uint32_t)from;
    *(is_position ? &rotation->position_end : &rotation->end) = (uint32_t)to;
    return TRAJD_OK;
}

static enum trajd_status read_form(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    enum trajd_rotation_form *form = member;
    const char *text;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    *form = trajd_rotation_parse(text);
    if (*form)
        return TRAJD_OK;
    if (strcmp(text, "quat") == 0 || strcmp(text, "quaternion") == 0)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "a quaternion needs the order of its numbers: quat_xyzw or "
                                "quat_wxyz");
    if (strncmp(text, "euler", 5) == 0)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "%s: Euler angles need three different axes: euler_xyz for turns about fixed axes, or "
            "euler_XYZ for axes that turn along (as in scipy), in one of the six orders",
            text);
    return trajd_yaml_error(r->yaml, node, r->error,
                            "%s is not a form of rotations: expected quat_xyzw, quat_wxyz, "
                            "axis_angle, matrix, rot6d, euler_xyz, euler_XYZ, ...",
                            text);
}

static enum trajd_status read_rotation(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node,
                                       enum trajd_rotation_form default_to,
                                       struct trajd_chain_rotation *rotation)
{
    static const struct trajd_yaml_key keys[] = {
        {"from", .offset = offsetof(struct trajd_chain_rotation, from), .read = read_form,
         .is_needed = true},
        {"to", .offset = offsetof(struct trajd_chain_rotation, to), .read = read_form},
        {"columns", .read = read_columns},
        {"position", .read = read_columns},
    };
    static const char form[] = "{from: FORM, to: FORM}, for example {from: quat_xyzw, to: rot6d}, "
                               "and optionally columns: and position:";
    const struct trajd_yaml_node *columns = trajd_yaml_get(node, "columns"),
                                 *position = trajd_yaml_get(node, "position");
    const enum trajd_status status =
        trajd_yaml_read_keys(r, node, form, keys, ARRAY_LEN(keys), rotation);

    if (status)
        return status;
    if (!trajd_yaml_get(node, "to"))
        rotation->to = default_to ? default_to : rotation->from;
    if (columns && rotation->end - rotation->first != trajd_rotation_width(rotation->from))
        return trajd_yaml_error(
            r->yaml, columns, r->error, "%u column%s, but %s has %u numbers",
            rotation->end - rotation->first, trajd_plural(rotation->end - rotation->first),
            trajd_rotation_name(rotation->from), trajd_rotation_width(rotation->from));
    if (position && rotation->position_end - rotation->position_first != 3)
        return trajd_yaml_error(r->yaml, position, r->error, "a position has 3 columns, not %u",
                                rotation->position_end - rotation->position_first);
    return TRAJD_OK;
}

enum trajd_status trajd_chain_read_rotations(const struct trajd_yaml_reader *r,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_chain_spec *chain)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE) {
        chain->rotation_count = 1;
        return read_rotation(r, node, chain->default_to, &chain->rotations[0]);
    }
    if (!node->child_count || node->child_count > TRAJD_CHAIN_MAX_ROTATIONS)
        return trajd_yaml_error(r->yaml, node, r->error, "expected 1 to %d rotations",
                                TRAJD_CHAIN_MAX_ROTATIONS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status =
            read_rotation(r, child, chain->default_to, &chain->rotations[chain->rotation_count++]);
    return status;
}

static enum trajd_status read_mask(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    struct trajd_chain_spec *chain = member;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE || !node->child_count ||
        node->child_count > TRAJD_TRANSFORM_MAX_COLUMNS)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a list with true or false per column (1 to %d); columns "
                                "with false stay as recorded",
                                TRAJD_TRANSFORM_MAX_COLUMNS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_bool(r->yaml, child, &chain->mask[chain->mask_count++], r->error);
    return status;
}

enum trajd_status trajd_chain_read_relative(const struct trajd_yaml_reader *r,
                                            const struct trajd_yaml_node *node,
                                            struct trajd_chain_spec *chain)
{
    static const struct trajd_yaml_key keys[] = {
        {"from", .type = TRAJD_YAML_LATER}, /* this and `kind` are keys of the hidden output */
        {"mask", .read = read_mask},
        {"step", TRAJD_YAML_FLAG, .offset = AT(from_step_before), .words = steps},
        {"frame", TRAJD_YAML_CHOICE, .offset = AT(frame), .words = frames},
        {"kind", .type = TRAJD_YAML_LATER},
        {"rotation", .offset = AT(reference_form), .read = read_form},
    };
    enum trajd_status status;

    chain->is_relative = true;
    chain->has_kind = trajd_yaml_get(node, "kind");
    if (node->kind != TRAJD_YAML_MAPPING)
        return TRAJD_OK;
    status = trajd_yaml_read_keys(r, node, NULL, keys, ARRAY_LEN(keys), chain);
    if (!status && !trajd_yaml_get(node, "from"))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "needs `from:`, the stream or streams of the state");
    return status;
}

/* ---- presets ---- */

/* Chunk lengths and norms are the defaults of the trainers' repositories. ACT's script for real
 * robots takes actions from one step before the observation on (action[max(0, ts - 1):]). */
static const struct trajd_preset presets[] = {
    {"openpi", "0..49", .norm = "q01_q99", .needs_relative_to = true},
    {"umi", "0..15", .norm = "{by: min_max, mask: all_but_rotations}", .norm_of_1 = "none",
     .rotation_to = TRAJD_ROTATION_ROT6D, .needs_relative_to = true, .needs_rotation = true},
    {"gr00t", "0..15", .norm = "{by: min_max, per: step}", .rotation_to = TRAJD_ROTATION_ROT6D,
     .needs_relative_to = true},
    {"act", "0..99", .norm = "{by: mean_std, min_std: 0.01}"},
    {"act_real", "-1..98", .norm = "{by: mean_std, min_std: 0.01}"},
    {"diffusion_policy", "-1..14", .norm = "none",
     .norm_of_poses = "{by: min_max, mask: positions}", .norm_of_1 = "min_max",
     .rotation_to = TRAJD_ROTATION_ROT6D,
     .note = "this is its robomimic data set, whose actions are within [-1, 1], or poses with "
             "rotation:; for its real robot, PushT and kitchen it is diffusion_policy_real"},
    {"diffusion_policy_real", "-1..14", .norm = "min_max"},
    {"octo", "0..3", .norm = "mean_std"},
};

enum trajd_status trajd_preset_read(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_preset **preset, struct trajd_error *error)
{
    int choice;
    const enum trajd_status status = trajd_yaml_choose_row(yaml, node, presets, ARRAY_LEN(presets),
                                                           sizeof presets[0], &choice, error);

    *preset = status ? NULL : &presets[choice];
    return status;
}

enum trajd_status trajd_preset_check(const struct trajd_preset *preset,
                                     const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *output,
                                     struct trajd_error *error)
{
    if (preset->needs_relative_to && !trajd_yaml_get(output, "relative_to"))
        return trajd_yaml_error(yaml, output, error,
                                "preset: %s predicts actions relative to a state: name its streams "
                                "with `relative_to:`",
                                preset->name);
    if (preset->needs_rotation && !trajd_yaml_get(output, "rotation"))
        return trajd_yaml_error(
            yaml, output, error,
            "preset: %s predicts poses: say which columns are the rotation, "
            "with `rotation: {from: FORM, columns: \"3:6\", position: \"0:3\"}`",
            preset->name);
    return TRAJD_OK;
}

const char *trajd_preset_norm(const struct trajd_preset *preset, bool has_rotation,
                              uint32_t version)
{
    if (version < 2 && preset->norm_of_1)
        return preset->norm_of_1;
    return has_rotation && preset->norm_of_poses ? preset->norm_of_poses : preset->norm;
}

void trajd_preset_describe(const struct trajd_preset *preset, bool has_rotation, uint32_t version,
                           char *text, size_t size)
{
    char rotation[64] = "";

    if (has_rotation && preset->rotation_to)
        snprintf(rotation, sizeof rotation, ", rotation: {to: %s}",
                 trajd_rotation_name(preset->rotation_to));
    snprintf(text, size, "at: %s%s, norm: %s", preset->at, rotation,
             trajd_preset_norm(preset, has_rotation, version));
}
