/* Reads the key episodes.split: how the arrays of a group are cut into episodes. */
#include "daemon/layout/layout_internal.h"

static const char *const words[] = {"flags", "lengths", "ends", "starts", NULL};

/* Reads one path, or a list of paths. */
static enum trajd_status read_paths(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_layout_split *split)
{
    const bool is_list = node->kind == TRAJD_YAML_SEQUENCE && split->kind == TRAJD_SPLIT_FLAGS;
    enum trajd_status status = TRAJD_OK;

    if (is_list && (!node->child_count || node->child_count > TRAJD_LAYOUT_SPLIT_PATHS_MAX))
        return trajd_yaml_error(p->yaml, node, p->error, "must be a list of 1 to %d datasets",
                                TRAJD_LAYOUT_SPLIT_PATHS_MAX);
    for (const struct trajd_yaml_node *child = is_list ? node->children : node; child && !status;
         child = is_list ? child->next : NULL)
        status = trajd_layout_read_path(p, child, 0, &split->paths[split->path_count++]);
    return status;
}

enum trajd_status trajd_layout_read_split(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node)
{
    struct trajd_layout_split *split = &p->memory->layout.split;
    const struct trajd_yaml_node *found = NULL;
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, words, p->error);

    for (int i = 0; words[i] && !status; i++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, words[i]);
        if (!child)
            continue;
        if (found)
            return trajd_yaml_error(p->yaml, child, p->error,
                                    "only one of flags, lengths, ends and starts");
        found = child;
        split->kind = (enum trajd_split_kind)(i + 1);
    }
    if (!status && !found)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "needs one of flags, lengths, ends and starts");
    return status ? status : read_paths(p, found, split);
}

enum trajd_status trajd_layout_check_split(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node)
{
    const struct trajd_layout *layout = &p->memory->layout;

    for (uint32_t i = 0; i < layout->clock_count; i++)
        if (p->clocks[i].start_path)
            return trajd_yaml_error(p->yaml, node, p->error,
                                    "split: does not go with start: of clock %s",
                                    p->clocks[i].name);
    for (uint32_t i = 0; i < layout->stream_count; i++)
        if (p->streams[i].drops_last_row)
            return trajd_yaml_error(p->yaml, node, p->error,
                                    "split: does not go with rows: first of stream %s",
                                    p->streams[i].name);
    return TRAJD_OK;
}
