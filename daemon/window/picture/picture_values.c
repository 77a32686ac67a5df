/* Values that several keys have: sizes and filters. */
#include "daemon/window/picture/picture_internal.h"

enum trajd_status trajd_picture_read_side(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, int64_t least,
                                          uint32_t *side, struct trajd_error *error)
{
    int64_t value;
    const enum trajd_status status =
        trajd_yaml_int(yaml, node, least, TRAJD_IMAGE_SIDE_MAX, &value, error);

    *side = status ? 0 : (uint32_t)value;
    return status;
}

enum trajd_status trajd_picture_read_size(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, uint32_t *height,
                                          uint32_t *width, struct trajd_error *error)
{
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR) {
        status = trajd_picture_read_side(yaml, node, 1, height, error);
        *width = *height;
        return status;
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(yaml, node, error,
                                "expected [HEIGHT, WIDTH], or one number for a square");
    status = trajd_picture_read_side(yaml, node->children, 1, height, error);
    return status ? status : trajd_picture_read_side(yaml, node->children->next, 1, width, error);
}

enum trajd_status trajd_picture_read_filter(const struct trajd_yaml *yaml,
                                            const struct trajd_yaml_node *node, int *filter,
                                            struct trajd_error *error)
{
    return trajd_yaml_choice(yaml, node, trajd_image_filter_names(), filter, error);
}
