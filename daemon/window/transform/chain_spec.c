#include "daemon/window/transform/chain_spec.h"
#include "proto/plural.h"

#include <stdlib.h>
#include <string.h>

/* Reads "3:6": columns 3, 4 and 5. */
static enum trajd_status read_columns(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, uint32_t *first,
                                      uint32_t *end, struct trajd_error *error)
{
    const char *text;
    char *rest;
    long from, to;
    enum trajd_status status = trajd_yaml_string(yaml, node, &text, error);

    if (status)
        return status;
    from = strtol(text, &rest, 10);
    to = *rest == ':' && rest != text ? strtol(rest + 1, &rest, 10) : -1;
    if (*rest || from < 0 || to <= from || to > TRAJD_TRANSFORM_MAX_COLUMNS)
        return trajd_yaml_error(yaml, node, error,
                                "%s: expected \"FROM:TO\", columns without the end, such as "
                                "\"3:6\" for columns 3, 4 and 5 (at most %d)",
                                text, TRAJD_TRANSFORM_MAX_COLUMNS);
    *first = (uint32_t)from;
    *end = (uint32_t)to;
    return TRAJD_OK;
}

static enum trajd_status read_form(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node,
                                   enum trajd_rotation_form *form, struct trajd_error *error)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(yaml, node, &text, error);

    if (status)
        return status;
    *form = trajd_rotation_parse(text);
    if (*form)
        return TRAJD_OK;
    if (strcmp(text, "quat") == 0 || strcmp(text, "quaternion") == 0)
        return trajd_yaml_error(yaml, node, error,
                                "a quaternion needs the order of its numbers: quat_xyzw or "
                                "quat_wxyz");
    if (strncmp(text, "euler", 5) == 0)
        return trajd_yaml_error(
            yaml, node, error,
            "%s: Euler angles need three different axes: euler_xyz for turns about fixed axes, or "
            "euler_XYZ for axes that turn along (as in scipy), in one of the six orders",
            text);
    return trajd_yaml_error(yaml, node, error,
                            "%s is not a form of rotations: expected quat_xyzw, quat_wxyz, "
                            "axis_angle, matrix, rot6d, euler_xyz, euler_XYZ, ...",
                            text);
}

static enum trajd_status read_rotation(const struct trajd_yaml *yaml,
                                       const struct trajd_yaml_node *node,
                                       enum trajd_rotation_form default_to,
                                       struct trajd_chain_rotation *rotation,
                                       struct trajd_error *error)
{
    static const char *const keys[] = {"from", "to", "columns", "position", NULL};
    const struct trajd_yaml_node *from = trajd_yaml_get(node, "from"),
                                 *to = trajd_yaml_get(node, "to"),
                                 *columns = trajd_yaml_get(node, "columns"),
                                 *position = trajd_yaml_get(node, "position");
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING || !from)
        return trajd_yaml_error(yaml, node, error,
                                "expected {from: FORM, to: FORM}, for example {from: quat_xyzw, "
                                "to: rot6d}, and optionally columns: and position:");
    status = trajd_yaml_check_keys(yaml, node, keys, error);
    if (!status)
        status = read_form(yaml, from, &rotation->from, error);
    rotation->to = default_to ? default_to : rotation->from;
    if (!status && to)
        status = read_form(yaml, to, &rotation->to, error);
    if (!status && columns)
        status = read_columns(yaml, columns, &rotation->first, &rotation->end, error);
    if (!status && position)
        status =
            read_columns(yaml, position, &rotation->position_first, &rotation->position_end, error);
    if (!status && columns &&
        rotation->end - rotation->first != trajd_rotation_width(rotation->from))
        return trajd_yaml_error(
            yaml, columns, error, "%u column%s, but %s has %u numbers",
            rotation->end - rotation->first, trajd_plural(rotation->end - rotation->first),
            trajd_rotation_name(rotation->from), trajd_rotation_width(rotation->from));
    if (!status && position && rotation->position_end - rotation->position_first != 3)
        return trajd_yaml_error(yaml, position, error, "a position has 3 columns, not %u",
                                rotation->position_end - rotation->position_first);
    return status;
}

enum trajd_status trajd_chain_read_rotations(const struct trajd_yaml *yaml,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_chain_spec *chain,
                                             struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE) {
        chain->rotation_count = 1;
        return read_rotation(yaml, node, chain->default_to, &chain->rotations[0], error);
    }
    if (!node->child_count || node->child_count > TRAJD_CHAIN_MAX_ROTATIONS)
        return trajd_yaml_error(yaml, node, error, "expected 1 to %d rotations",
                                TRAJD_CHAIN_MAX_ROTATIONS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_rotation(yaml, child, chain->default_to,
                               &chain->rotations[chain->rotation_count++], error);
    return status;
}

static enum trajd_status read_mask(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_chain_spec *chain, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE || !node->child_count ||
        node->child_count > TRAJD_TRANSFORM_MAX_COLUMNS)
        return trajd_yaml_error(yaml, node, error,
                                "expected a list with true or false per column (1 to %d); columns "
                                "with false stay as recorded",
                                TRAJD_TRANSFORM_MAX_COLUMNS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_bool(yaml, child, &chain->mask[chain->mask_count++], error);
    return status;
}

enum trajd_status trajd_chain_read_relative(const struct trajd_yaml *yaml,
                                            const struct trajd_yaml_node *node,
                                            struct trajd_chain_spec *chain,
                                            struct trajd_error *error)
{
    static const char *const keys[] = {"from", "mask", "step", "frame", "kind", "rotation", NULL};
    static const char *const steps[] = {"anchor", "before", NULL};
    static const char *const frames[] = {"anchor", "base", NULL};
    const struct trajd_yaml_node *child;
    enum trajd_status status;
    int choice;

    chain->is_relative = true;
    if (node->kind != TRAJD_YAML_MAPPING)
        return TRAJD_OK;
    status = trajd_yaml_check_keys(yaml, node, keys, error);
    if (!status && !trajd_yaml_get(node, "from"))
        return trajd_yaml_error(yaml, node, error,
                                "needs `from:`, the stream or streams of the state");
    if (!status && (child = trajd_yaml_get(node, "mask")))
        status = read_mask(yaml, child, chain, error);
    if (!status && (child = trajd_yaml_get(node, "step"))) {
        status = trajd_yaml_choice(yaml, child, steps, &choice, error);
        chain->from_step_before = !status && choice == 1;
    }
    if (!status && (child = trajd_yaml_get(node, "frame"))) {
        status = trajd_yaml_choice(yaml, child, frames, &choice, error);
        chain->frame = status ? chain->frame : (enum trajd_frame)choice;
    }
    if (!status && (child = trajd_yaml_get(node, "rotation")))
        status = read_form(yaml, child, &chain->reference_form, error);
    chain->has_kind = trajd_yaml_get(node, "kind");
    return status;
}
