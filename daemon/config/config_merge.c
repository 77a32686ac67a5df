/* Merges one mapping of a document into another. */
#include <string.h>

#include "daemon/config/config_internal.h"

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

bool trajd_config_merge(struct trajd_arena *arena, const struct trajd_yaml_node *node,
                        const struct trajd_yaml_node *base)
{
    return merge_mapping(arena, writable(node), base);
}

void trajd_config_remove(const struct trajd_yaml_node *mapping, const char *key)
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
