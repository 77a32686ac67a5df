/* Reads the key meta: texts of episodes, such as the task in words. */
#include <string.h>

#include "daemon/layout/layout_internal.h"

/* Returns whether the text is a place in the file: "/from/the/root", "below/the/episode",
 * "../beside/it", or empty, which is the episode itself. */
static bool is_place(const char *text, size_t length)
{
    char place[TRAJD_LAYOUT_PATH_MAX + 1];
    const char *next = place;

    memcpy(place, text, length);
    place[length] = '\0';
    while (strncmp(next, "../", 3) == 0)
        next += 3;
    if (!*next || !strcmp(next, ".."))
        return true;
    if (*next == '/')
        return next == place && (!next[1] || trajd_layout_path_is_clean(next));
    return trajd_layout_path_is_clean(next);
}

static enum trajd_status read_attribute(struct trajd_layout_parser *p,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_layout_meta *meta)
{
    enum trajd_status status = trajd_layout_read_text(p, node, &meta->attribute);
    const char *at = status ? NULL : strchr(meta->attribute, '@');

    if (status)
        return status;
    if (!at || !at[1] || !is_place(meta->attribute, (size_t)(at - meta->attribute)))
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "\"%s\": an attribute is written OBJECT@NAME, like @task, ../@task or /data@env_args",
            meta->attribute);
    return TRAJD_OK;
}

static enum trajd_status read_dataset(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_layout_meta *meta)
{
    enum trajd_status status = trajd_layout_read_text(p, node, &meta->path);

    if (!status &&
        (!is_place(meta->path, strlen(meta->path)) || trajd_layout_star_count(meta->path)))
        status = trajd_yaml_error(p->yaml, node, p->error,
                                  "\"%s\": a dataset of one text, like task, ../task or /data/task",
                                  meta->path);
    return status;
}

static enum trajd_status read_meta(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_meta *meta)
{
    static const char *const keys[] = {"attribute", "path", "json", "required", NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *attribute, *path, *json, *required;

    if (status)
        return status;
    attribute = trajd_yaml_get(node, "attribute");
    path = trajd_yaml_get(node, "path");
    json = trajd_yaml_get(node, "json");
    required = trajd_yaml_get(node, "required");
    if (!attribute == !path)
        return trajd_yaml_error(p->yaml, node, p->error, "needs attribute or path, one of them");
    status = attribute ? read_attribute(p, attribute, meta) : read_dataset(p, path, meta);
    if (!status && json)
        status = trajd_layout_read_text(p, json, &meta->json);
    if (!status && required)
        status = trajd_yaml_bool(p->yaml, required, &meta->required, p->error);
    return status;
}

enum trajd_status trajd_layout_read_metas(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *child = node->children;
    struct trajd_layout_meta *metas;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "must be a mapping: NAME: {attribute: ...}");
    metas = trajd_arena_alloc(&p->memory->arena, TRAJD_LAYOUT_METAS_MAX * sizeof *metas);
    if (!metas)
        return trajd_layout_no_memory(p);
    layout->metas = metas;
    for (; child && !status; child = child->next) {
        struct trajd_layout_meta *meta = &metas[layout->meta_count];
        if (layout->meta_count == TRAJD_LAYOUT_METAS_MAX)
            return trajd_yaml_error(p->yaml, child, p->error, "at most %d texts",
                                    TRAJD_LAYOUT_METAS_MAX);
        if (!*child->key || strlen(child->key) > TRAJD_LAYOUT_META_NAME_MAX)
            return trajd_yaml_error(p->yaml, child, p->error, "a name has 1 to %d characters",
                                    TRAJD_LAYOUT_META_NAME_MAX);
        *meta = (struct trajd_layout_meta){0};
        status = trajd_layout_copy_text(p, child->key, &meta->name);
        if (!status)
            status = read_meta(p, child, meta);
        layout->meta_count++;
    }
    return status;
}
