/* `like: FEED` of a feed: it has all keys of that feed, and its own ones in their place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json.h"
#include "daemon/config/config_internal.h"

#define MAX_MERGED_BYTES ((size_t)8 << 20)
/* Escaped, a key is up to six times as long, and YAML reads no key of more than 1024 bytes. */
#define MAX_KEY_BYTES 160

static enum trajd_status find_model(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *like,
                                    const struct trajd_yaml_node *feeds,
                                    const struct trajd_yaml_node **model, struct trajd_error *error)
{
    const char *names[TRAJD_CONFIG_MAX_FEEDS], *name, *nearest;
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
    nearest = trajd_yaml_nearest(name, names, count);
    return trajd_yaml_error(yaml, like, error, "the configuration has no feed %s%s%s%s", name,
                            nearest ? " (did you mean " : "", nearest ? nearest : "",
                            nearest ? "?)" : "");
}

static enum trajd_status merge(const struct trajd_yaml *yaml, struct trajd_arena *arena,
                               const struct trajd_yaml_node *feed,
                               const struct trajd_yaml_node *model, struct trajd_error *error)
{
    if (model->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(yaml, model, error, "a feed must be a mapping");
    trajd_config_remove(feed, "like");
    return trajd_config_merge(arena, feed, model)
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
