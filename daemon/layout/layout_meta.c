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

/* Returns whether the text is a path of a JSON file: relative, with {stem} as the only word in
 * braces. */
static bool is_file(const char *text)
{
    while (strncmp(text, "../", 3) == 0)
        text += 3;
    if (*text == '/' || !trajd_layout_path_is_clean(text))
        return false;
    for (const char *c = text; *c; c++) {
        if (strncmp(c, "{stem}", 6) == 0)
            c += 5;
        else if (*c == '{' || *c == '}')
            return false;
    }
    return true;
}

/* Reads how the entry of an episode is found. */
static enum trajd_status read_key(struct trajd_layout_parser *p, const struct trajd_yaml_node *node,
                                  struct trajd_layout_meta *meta)
{
    static const char *const words[] = {"episode", "number", "file", NULL};
    const struct trajd_yaml_node *by = trajd_yaml_get(node, "by"),
                                 *key = trajd_yaml_get(node, "key");
    enum trajd_status status = TRAJD_OK;
    int choice;

    if (!by)
        return key ? trajd_yaml_error(p->yaml, key, p->error, "needs by: what it is compared with")
                   : TRAJD_OK;
    if (by->kind == TRAJD_YAML_SCALAR && strchr(by->value, '@')) {
        meta->by = TRAJD_TEXT_KEY_ATTRIBUTE;
        status = read_attribute(p, by, meta);
    } else {
        status = trajd_yaml_choice(p->yaml, by, words, &choice, p->error);
        meta->by = status ? TRAJD_TEXT_KEY_NONE : (enum trajd_text_key)(choice + 1);
    }
    return status || !key ? status : trajd_layout_read_text(p, key, &meta->key);
}

/* Reads a text of a JSON file beside the data file. */
static enum trajd_status read_sidecar(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_layout_meta *meta)
{
    static const char *const words[] = {"first", "hash", NULL};
    const struct trajd_yaml_node *file = trajd_yaml_get(node, "file"),
                                 *list = trajd_yaml_get(node, "list"),
                                 *pick = trajd_yaml_get(node, "pick");
    enum trajd_status status = trajd_layout_read_text(p, file, &meta->file);
    int choice = 0;

    if (!status && !is_file(meta->file))
        status = trajd_yaml_error(
            p->yaml, file, p->error,
            "\"%s\": a JSON file relative to the data file, like \"{stem}.json\" or ../tasks.json",
            meta->file);
    if (!status && list)
        status = trajd_layout_read_text(p, list, &meta->list);
    if (!status)
        status = read_key(p, node, meta);
    if (!status && pick)
        status = trajd_yaml_choice(p->yaml, pick, words, &choice, p->error);
    meta->picks_by_hash = choice == 1;
    return status;
}

/* Refuses the keys that only a text of a JSON file has. */
static enum trajd_status refuse_keys(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"list", "by", "key", "pick", NULL};

    for (size_t i = 0; keys[i]; i++)
        if (trajd_yaml_get(node, keys[i]))
            return trajd_yaml_error(p->yaml, trajd_yaml_get(node, keys[i]), p->error,
                                    "belongs to a text of a JSON file (file:)");
    return TRAJD_OK;
}

static enum trajd_status read_meta(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_meta *meta)
{
    static const char *const keys[] = {"attribute", "path", "json", "required", "file",
                                       "list",      "by",   "key",  "pick",     NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *attribute, *path, *file, *json, *required;

    if (status)
        return status;
    attribute = trajd_yaml_get(node, "attribute");
    path = trajd_yaml_get(node, "path");
    file = trajd_yaml_get(node, "file");
    json = trajd_yaml_get(node, "json");
    required = trajd_yaml_get(node, "required");
    if (!!attribute + !!path + !!file != 1)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "needs attribute, path or file, one of them");
    if (!file)
        status = refuse_keys(p, node);
    if (!status)
        status = attribute ? read_attribute(p, attribute, meta)
                 : path    ? read_dataset(p, path, meta)
                           : read_sidecar(p, node, meta);
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
