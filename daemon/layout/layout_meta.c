/* Reads the key meta: texts of episodes, such as the task in words. */
#include <string.h>

#include "daemon/layout/layout_internal.h"
#include "proto/array_len.h"

static const char *const pick_words[] = {"first", "hash", NULL};

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

static enum trajd_status read_attribute(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *text = status ? NULL : *(const char **)out, *at = text ? strchr(text, '@') : NULL;

    if (status)
        return status;
    if (!at || !at[1] || !is_place(text, (size_t)(at - text)))
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "\"%s\": an attribute is written OBJECT@NAME, like @task, ../@task or /data@env_args",
            text);
    return TRAJD_OK;
}

static enum trajd_status read_dataset(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *path = status ? NULL : *(const char **)out;

    if (!status && (!is_place(path, strlen(path)) || trajd_layout_star_count(path)))
        status = trajd_yaml_error(r->yaml, node, r->error,
                                  "\"%s\": a dataset of one text, like task, ../task or /data/task",
                                  path);
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

static enum trajd_status read_file(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *file = status ? NULL : *(const char **)out;

    if (!status && !is_file(file))
        status = trajd_yaml_error(
            r->yaml, node, r->error,
            "\"%s\": a JSON file relative to the data file, like \"{stem}.json\" or ../tasks.json",
            file);
    return status;
}

/* Reads how the entry of an episode is found. */
static enum trajd_status read_by(const struct trajd_yaml_reader *r,
                                 const struct trajd_yaml_node *node, void *out)
{
    static const char *const words[] = {"episode", "number", "file", NULL};
    struct trajd_layout_meta *meta = out;
    int choice;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR && strchr(node->value, '@')) {
        meta->by = TRAJD_TEXT_KEY_ATTRIBUTE;
        return read_attribute(r, node, &meta->attribute);
    }
    status = trajd_yaml_choice(r->yaml, node, words, &choice, r->error);
    if (!status)
        meta->by = (enum trajd_text_key)(TRAJD_TEXT_KEY_EPISODE + choice);
    return status;
}

#define MEMBER(member) .offset = offsetof(struct trajd_layout_meta, member)
static const struct trajd_yaml_key meta_keys[] = {
    {"attribute", .read = read_attribute, MEMBER(attribute)},
    {"path", .read = read_dataset, MEMBER(path)},
    {"json", .read = trajd_layout_read_text, MEMBER(json)},
    {"required", TRAJD_YAML_BOOL, MEMBER(required)},
    {"file", .read = read_file, MEMBER(file)},
    {"list", .read = trajd_layout_read_text, MEMBER(list)},
    {"by", .read = read_by},
    {"key", .read = trajd_layout_read_text, MEMBER(key)},
    {"pick", TRAJD_YAML_FLAG, MEMBER(picks_by_hash), .words = pick_words},
};

static enum trajd_status read_meta(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_meta *meta)
{
    static const char *const of_files[] = {"list", "by", "key", "pick", NULL};
    const bool has_file = trajd_yaml_get(node, "file") != NULL;
    const struct trajd_yaml_node *key = trajd_yaml_get(node, "key");
    enum trajd_status status =
        trajd_yaml_read_keys(&p->r, node, NULL, meta_keys, ARRAY_LEN(meta_keys), meta);

    if (status)
        return status;
    if (!!trajd_yaml_get(node, "attribute") + !!trajd_yaml_get(node, "path") + has_file != 1)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "needs attribute, path or file, one of them");
    for (size_t i = 0; of_files[i] && !has_file; i++)
        if (trajd_yaml_get(node, of_files[i]))
            return trajd_yaml_error(p->r.yaml, trajd_yaml_get(node, of_files[i]), p->r.error,
                                    "belongs to a text of a JSON file (file:)");
    if (key && !trajd_yaml_get(node, "by"))
        return trajd_yaml_error(p->r.yaml, key, p->r.error, "needs by: what it is compared with");
    return TRAJD_OK;
}

enum trajd_status trajd_layout_read_metas(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *child = node->children;
    struct trajd_layout_meta *metas;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "must be a mapping: NAME: {attribute: ...}");
    metas = trajd_yaml_alloc(&p->r, TRAJD_LAYOUT_METAS_MAX * sizeof *metas);
    if (!metas)
        return TRAJD_ERR_MEMORY;
    layout->metas = metas;
    for (; child && !status; child = child->next) {
        struct trajd_layout_meta *meta = &metas[layout->meta_count];
        if (layout->meta_count == TRAJD_LAYOUT_METAS_MAX)
            return trajd_yaml_error(p->r.yaml, child, p->r.error, "at most %d texts",
                                    TRAJD_LAYOUT_METAS_MAX);
        if (!*child->key || strlen(child->key) > TRAJD_LAYOUT_META_NAME_MAX)
            return trajd_yaml_error(p->r.yaml, child, p->r.error, "a name has 1 to %d characters",
                                    TRAJD_LAYOUT_META_NAME_MAX);
        *meta = (struct trajd_layout_meta){0};
        status = trajd_yaml_keep(&p->r, child->key, &meta->name);
        if (!status)
            status = read_meta(p, child, meta);
        layout->meta_count++;
    }
    return status;
}
