/* `where: {KEY: VALUE or [VALUE...]}` of a feed: selects episodes by their texts (the layout's
 * `meta:`). For every key, the episode's text must be one of those listed. */
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/select/select_internal.h"

uint64_t trajd_select_texts_digest(const struct trajd_select_rules *rules)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t w = 0; w < rules->text_count; w++) {
        trajd_digest_add_text(&digest, rules->texts[w].key);
        trajd_digest_add_u64(&digest, rules->texts[w].value_count);
        for (uint32_t v = 0; v < rules->texts[w].value_count; v++)
            trajd_digest_add_text(&digest, rules->texts[w].values[v]);
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

static bool is_one_of(const struct trajd_select_text *wanted, const char *text)
{
    for (uint32_t v = 0; v < wanted->value_count && text; v++)
        if (strcmp(wanted->values[v], text) == 0)
            return true;
    return false;
}

bool trajd_select_texts_match(const struct trajd_select_rules *rules,
                              const struct trajd_index *index, const struct trajd_episode *episode)
{
    for (uint32_t w = 0; w < rules->text_count; w++)
        if (!is_one_of(&rules->texts[w],
                       episode->metas[find_meta(index->layout, rules->texts[w].key)]))
            return false;
    return true;
}

/* Checks that some episode has one of the texts. The error names a text that exists. */
static enum trajd_status check_values(const struct trajd_select_text *wanted,
                                      const struct trajd_index *index, int64_t meta,
                                      struct trajd_error *error)
{
    const char *example = NULL;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *text = index->episodes[e].quarantine ? NULL : index->episodes[e].metas[meta];
        if (is_one_of(wanted, text))
            return TRAJD_OK;
        example = example ? example : text;
    }
    return trajd_error_set(
        error, TRAJD_ERR_NOT_FOUND, 0,
        "line %u: where.%s: no episode has \"%.100s\"%s (%s%.100s%s)", wanted->line, wanted->key,
        wanted->values[0], wanted->value_count > 1 ? " or another of those" : "",
        example ? "the first has \"" : "none has any", example ? example : "", example ? "\"" : "");
}

enum trajd_status trajd_select_texts_check(const struct trajd_select_rules *rules,
                                           const struct trajd_index *index,
                                           struct trajd_error *error)
{
    const struct trajd_layout *layout = index->layout;
    const char *names[TRAJD_LAYOUT_METAS_MAX], *nearest;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t m = 0; m < layout->meta_count; m++)
        names[m] = layout->metas[m].name;
    for (uint32_t w = 0; w < rules->text_count && !status; w++) {
        const struct trajd_select_text *wanted = &rules->texts[w];
        const int64_t meta = find_meta(layout, wanted->key);
        if (meta >= 0) {
            status = check_values(wanted, index, meta, error);
            continue;
        }
        nearest = trajd_yaml_nearest(wanted->key, names, layout->meta_count);
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "line %u: where.%s: layout %s has no such text%s%s%s", wanted->line,
                               wanted->key, layout->name,
                               nearest              ? " (did you mean "
                               : layout->meta_count ? ""
                                                    : " (it has no meta:)",
                               nearest ? nearest : "", nearest ? "?)" : "");
    }
    return status;
}
