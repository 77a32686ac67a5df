/* `where: {KEY: VALUE or [VALUE...]}` of a feed: selects episodes by their texts (the layout's
 * `meta:`). For every key, the episode's text must be one of those listed. */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/window/window_plan_internal.h"
#include "daemon/window/window_spec_internal.h"

#define MAX_VALUES 4096

static enum trajd_status read_values(struct trajd_spec_parser *p,
                                     const struct trajd_yaml_node *node,
                                     struct trajd_spec_episode_filter *filter)
{
    const struct trajd_yaml_node *value = node->kind == TRAJD_YAML_SCALAR ? node : node->children;
    const uint32_t count = node->kind == TRAJD_YAML_SCALAR ? 1 : node->child_count;
    const char **values;
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_MAPPING || !count || count > MAX_VALUES)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "expected a text or a list of 1 to %d texts", MAX_VALUES);
    values = trajd_spec_copy(p, NULL, count * sizeof *values);
    if (!values)
        return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    for (uint32_t i = 0; i < count && !status; i++, value = value->next)
        status = trajd_spec_read_string(p, value, &values[i]);
    filter->values = values;
    filter->value_count = count;
    return status;
}

enum trajd_status trajd_spec_read_episode_filter(struct trajd_spec_parser *p,
                                                 const struct trajd_yaml_node *node)
{
    struct trajd_window_spec *spec = p->spec;
    struct trajd_spec_episode_filter *episode_filters;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count ||
        node->child_count > TRAJD_LAYOUT_METAS_MAX)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "expected {KEY: TEXT or [TEXT...]}, where each KEY is one of the layout's `meta:`");
    episode_filters = trajd_spec_copy(p, NULL, node->child_count * sizeof *episode_filters);
    if (!episode_filters)
        return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    spec->episode_filters = episode_filters;
    spec->episode_filter_count = 0;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        struct trajd_spec_episode_filter *filter = &episode_filters[spec->episode_filter_count];
        char *key = trajd_spec_copy(p, child->key, strlen(child->key) + 1);
        if (!key)
            return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
        *filter = (struct trajd_spec_episode_filter){.key = key, .line = child->line};
        status = read_values(p, child, filter);
        spec->episode_filter_count++;
    }
    return status;
}

uint64_t trajd_episode_filter_digest(const struct trajd_window_spec *spec)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t w = 0; w < spec->episode_filter_count; w++) {
        trajd_digest_add_text(&digest, spec->episode_filters[w].key);
        trajd_digest_add_u64(&digest, spec->episode_filters[w].value_count);
        for (uint32_t v = 0; v < spec->episode_filters[w].value_count; v++)
            trajd_digest_add_text(&digest, spec->episode_filters[w].values[v]);
    }
    return trajd_digest_end(&digest);
}

/* Returns the layout's number of a text, or -1. */
static int64_t find_meta(const struct trajd_layout *layout, const char *key)
{
    for (uint32_t m = 0; m < layout->meta_count; m++)
        if (strcmp(layout->metas[m].name, key) == 0)
            return m;
    return -1;
}

static bool is_one_of(const struct trajd_spec_episode_filter *filter, const char *text)
{
    for (uint32_t v = 0; v < filter->value_count && text; v++)
        if (strcmp(filter->values[v], text) == 0)
            return true;
    return false;
}

bool trajd_episode_filter_selects(const struct trajd_window_spec *spec,
                                  const struct trajd_index *index,
                                  const struct trajd_episode *episode)
{
    for (uint32_t w = 0; w < spec->episode_filter_count; w++)
        if (!is_one_of(&spec->episode_filters[w],
                       episode->metas[find_meta(index->layout, spec->episode_filters[w].key)]))
            return false;
    return true;
}

/* Checks that some episode has one of the texts. The error names a text that exists. */
static enum trajd_status check_values(const struct trajd_spec_episode_filter *filter,
                                      const struct trajd_index *index, int64_t meta,
                                      struct trajd_error *error)
{
    const char *example = NULL;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *text = index->episodes[e].quarantine ? NULL : index->episodes[e].metas[meta];
        if (is_one_of(filter, text))
            return TRAJD_OK;
        example = example ? example : text;
    }
    return trajd_error_set(
        error, TRAJD_ERR_NOT_FOUND, 0,
        "line %u: where.%s: no episode has \"%.100s\"%s (%s%.100s%s)", filter->line, filter->key,
        filter->values[0], filter->value_count > 1 ? " or another of those" : "",
        example ? "the first has \"" : "none has any", example ? example : "", example ? "\"" : "");
}

enum trajd_status trajd_episode_filter_check(const struct trajd_window_spec *spec,
                                             const struct trajd_index *index,
                                             struct trajd_error *error)
{
    const struct trajd_layout *layout = index->layout;
    const char *names[TRAJD_LAYOUT_METAS_MAX], *nearest;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t m = 0; m < layout->meta_count; m++)
        names[m] = layout->metas[m].name;
    for (uint32_t w = 0; w < spec->episode_filter_count && !status; w++) {
        const struct trajd_spec_episode_filter *filter = &spec->episode_filters[w];
        const int64_t meta = find_meta(layout, filter->key);
        if (meta >= 0) {
            status = check_values(filter, index, meta, error);
            continue;
        }
        nearest = trajd_yaml_nearest(filter->key, names, layout->meta_count);
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "line %u: where.%s: layout %s has no such text%s%s%s", filter->line,
                               filter->key, layout->name,
                               nearest              ? " (did you mean "
                               : layout->meta_count ? ""
                                                    : " (it has no meta:)",
                               nearest ? nearest : "", nearest ? "?)" : "");
    }
    return status;
}
