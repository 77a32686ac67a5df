/* `like: FEED` of a feed: it has all keys of that feed, and its own ones in their place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json.h"
#include "daemon/config/config_keys.h"

#define MAX_MERGED_BYTES ((size_t)8 << 20)
/* Escaped, a key is up to six times as long, and YAML reads no key of more than 1024 bytes. */
#define MAX_KEY_BYTES 160

/* ---- merging ---- */

/* The children of a mapping while they are collected. */
struct children {
    struct trajd_yaml_node *first, *last;
    uint32_t count;
};

static void append(struct children *children, struct trajd_yaml_node *node)
{
    node->next = NULL;
    if (children->last)
        children->last->next = node;
    else
        children->first = node;
    children->last = node;
    children->count++;
}

/* Appends a copy of a node. The copy shares the node's children. */
static bool append_copy(struct trajd_arena *arena, const struct trajd_yaml_node *node,
                        struct children *children)
{
    struct trajd_yaml_node *copy = trajd_arena_alloc(arena, sizeof *copy);

    if (!copy)
        return false;
    *copy = *node;
    append(children, copy);
    return true;
}

static bool is_null(const struct trajd_yaml_node *node)
{
    return node->kind == TRAJD_YAML_SCALAR && !node->quoted &&
           (!*node->value || !strcmp(node->value, "~") || !strcmp(node->value, "null"));
}

/* This file alone writes nodes of a document. */
static struct trajd_yaml_node *writable(const struct trajd_yaml_node *node)
{
    return (struct trajd_yaml_node *)(uintptr_t)node;
}

/* Merges the mapping `base` into the mapping `node`. Keys that `node` lacks are added, with the
 * lines and paths of `base`; mappings in both are merged in the same way; a key whose value is null
 * is left out. The order is that of `base`, then the further keys of `node`. `arena` has the new
 * nodes; it and the document of `base` must live as long as that of `node`. False: no memory. */
static bool merge_mapping(struct trajd_arena *arena, struct trajd_yaml_node *node,
                          const struct trajd_yaml_node *base)
{
    struct children merged = {0};
    struct trajd_yaml_node *next;

    for (const struct trajd_yaml_node *old = base->children; old; old = old->next) {
        const struct trajd_yaml_node *given = trajd_yaml_get(node, old->key);
        if (given && is_null(given))
            continue;
        if (!append_copy(arena, given ? given : old, &merged))
            return false;
        if (given && given->kind == TRAJD_YAML_MAPPING && old->kind == TRAJD_YAML_MAPPING &&
            !merge_mapping(arena, merged.last, old))
            return false;
    }
    for (struct trajd_yaml_node *child = node->children; child; child = next) {
        next = child->next;
        if (!trajd_yaml_get(base, child->key))
            append(&merged, child);
    }
    node->children = merged.first;
    node->child_count = merged.count;
    return true;
}

/* Removes a key of a mapping, if it is there. */
static void remove_key(const struct trajd_yaml_node *mapping, const char *key)
{
    struct trajd_yaml_node *node = writable(mapping);
    struct trajd_yaml_node **place = &node->children;

    while (*place && strcmp((*place)->key, key) != 0)
        place = &(*place)->next;
    if (!*place)
        return;
    *place = (*place)->next;
    node->child_count--;
}

/* ---- feeds ---- */

static enum trajd_status find_model(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *like,
                                    const struct trajd_yaml_node *feeds,
                                    const struct trajd_yaml_node **model, struct trajd_error *error)
{
    const char *names[TRAJD_CONFIG_MAX_FEEDS], *name;
    enum trajd_status status = trajd_yaml_string(yaml, like, &name, error);
    size_t count = 0;

    if (status)
        return status;
    *model = feeds ? trajd_yaml_get(feeds, name) : NULL;
    if (*model)
        return TRAJD_OK;
    for (const struct trajd_yaml_node *feed = feeds ? feeds->children : NULL;
         feed && count < TRAJD_CONFIG_MAX_FEEDS; feed = feed->next)
        names[count++] = feed->key;
    return trajd_yaml_error(yaml, like, error, "the configuration has no feed %s%s", name,
                            trajd_yaml_suggest(" (", name, names, count, ")").text);
}

static enum trajd_status merge(const struct trajd_yaml *yaml, struct trajd_arena *arena,
                               const struct trajd_yaml_node *feed,
                               const struct trajd_yaml_node *model, struct trajd_error *error)
{
    if (model->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(yaml, model, error, "a feed must be a mapping");
    remove_key(feed, "like");
    return merge_mapping(arena, writable(feed), model)
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
}

/* Merges into a feed the one that it is like, which may be like another one itself. `depth` counts
 * the feeds on the way. */
static enum trajd_status resolve(struct trajd_config *config, const struct trajd_yaml_node *feeds,
                                 const struct trajd_yaml_node *feed, uint32_t depth,
                                 struct trajd_error *error)
{
    const struct trajd_yaml_node *like = trajd_yaml_get(feed, "like"), *model;
    enum trajd_status status;

    if (!like)
        return TRAJD_OK;
    if (depth >= feeds->child_count)
        return trajd_yaml_error(config->yaml, like, error,
                                "the feeds are like each other in a circle");
    status = find_model(config->yaml, like, feeds, &model, error);
    if (!status)
        status = resolve(config, feeds, model, depth + 1, error);
    return status ? status : merge(config->yaml, &config->merged, feed, model, error);
}

enum trajd_status trajd_config_resolve_like(struct trajd_config *config,
                                            const struct trajd_yaml_node *feeds,
                                            struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    config->merged.limit_bytes = MAX_MERGED_BYTES;
    for (const struct trajd_yaml_node *feed = feeds->children; feed && !status; feed = feed->next)
        status = resolve(config, feeds, feed, 0, error);
    return status;
}

static enum trajd_status check_keys(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status =
            child->key && strlen(child->key) > MAX_KEY_BYTES
                ? trajd_yaml_error(yaml, child, error, "a key has at most %d bytes", MAX_KEY_BYTES)
                : check_keys(yaml, child, error);
    return status;
}

static enum trajd_status write_text(const struct trajd_yaml_node *node, char **text,
                                    struct trajd_error *error)
{
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    struct trajd_json json = {.out = out};

    if (out)
        trajd_config_print_node(node, NULL, &json);
    return out && !fclose(out)
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
}

enum trajd_status trajd_config_expand_feed(const struct trajd_config *config, const char *text,
                                           char **expanded, struct trajd_error *error)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(config->yaml), "feeds");
    const struct trajd_yaml_node *root, *like, *model;
    struct trajd_arena arena = {.limit_bytes = MAX_MERGED_BYTES};
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse("spec", text, strlen(text), &yaml, error);

    *expanded = NULL;
    root = status ? NULL : trajd_yaml_root(yaml);
    like = root ? trajd_yaml_get(root, "like") : NULL;
    if (like)
        status = find_model(yaml, like, feeds, &model, error);
    if (like && !status)
        status = merge(yaml, &arena, root, model, error);
    if (like && !status)
        status = check_keys(yaml, root, error);
    if (like && !status)
        status = write_text(root, expanded, error);
    trajd_arena_free(&arena);
    trajd_yaml_destroy(&yaml);
    return status;
}
