/* Applies the rules of a feed to the episodes of an index: the mask, the texts and the split. */
#include "daemon/window/select/select.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/order/sampler.h"
#include "proto/plural.h"

/* ---- `where: {KEY: VALUE or [VALUE...]}`: an episode's text (the layout's `meta:`) must be one of
 * those listed, for every key ---- */

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

static bool match_texts(const struct trajd_select_rules *rules, const struct trajd_index *index,
                        const struct trajd_episode *episode)
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

static enum trajd_status check_texts(const struct trajd_select_rules *rules,
                                     const struct trajd_index *index, struct trajd_error *error)
{
    const struct trajd_layout *layout = index->layout;
    const char *names[TRAJD_LAYOUT_METAS_MAX];
    struct trajd_yaml_suggestion meant;
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
        meant = trajd_yaml_suggest(" (", wanted->key, names, layout->meta_count, ")");
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "line %u: where.%s: layout %s has no such text%s", wanted->line,
                               wanted->key, layout->name,
                               layout->meta_count ? meant.text : " (it has no meta:)");
    }
    return status;
}

/* ---- `split:`: by an episode's hash, which depends only on its name. So new data never moves an
 * episode of a split by ranges, and moves one for each new episode at most in a split by count ---- */

struct place {
    uint64_t hash;
    uint32_t episode;
};

static uint64_t split_hash(const struct trajd_index *index, const struct trajd_episode *episode)
{
    const char *const texts[] = {index->files[episode->file_index].relative_path, episode->id};
    uint64_t hash = TRAJD_FNV_BEGIN;

    for (int i = 0; i < 2; i++)
        hash = trajd_fnv(hash, texts[i], strlen(texts[i]) + 1);
    return trajd_mix(&hash, 1);
}

static void split_by_range(const struct trajd_select_rules *rules, const struct trajd_index *index,
                           uint8_t *flags)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const double place =
            (double)(split_hash(index, &index->episodes[e]) >> 11) * 0x1p-53; /* in [0, 1) */
        if (place < rules->split_begin || place >= rules->split_end)
            flags[e] &= (uint8_t)~TRAJD_SELECT_TAKEN;
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a, *right = b;

    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return (left->episode > right->episode) - (left->episode < right->episode);
}

static enum trajd_status split_by_count(const struct trajd_select_rules *rules,
                                        const struct trajd_index *index, uint8_t *flags,
                                        struct trajd_error *error)
{
    struct place *places = calloc(index->episode_count + 1, sizeof *places);
    uint32_t count = 0;

    if (!places)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a split");
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (flags[e] & TRAJD_SELECT_TAKEN)
            places[count++] = (struct place){split_hash(index, &index->episodes[e]), e};
    qsort(places, count, sizeof *places, compare_places);
    for (uint32_t i = 0; i < count; i++)
        if ((i < rules->hold_out) != rules->takes_held_out)
            flags[places[i].episode] &= (uint8_t)~TRAJD_SELECT_TAKEN;
    free(places);
    if (rules->hold_out < count || !count)
        return TRAJD_OK; /* none at all is reported with the other rules */
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "split.hold_out is %u, but the other keys select %u episode%s, so that "
                           "none would be left for training",
                           rules->hold_out, count, trajd_plural(count));
}

static enum trajd_status split_episodes(const struct trajd_select_rules *rules,
                                        const struct trajd_index *index, uint8_t *flags,
                                        struct trajd_error *error)
{
    if (rules->hold_out)
        return split_by_count(rules, index, flags, error);
    if (rules->split_begin > 0 || rules->split_end < 1)
        split_by_range(rules, index, flags);
    return TRAJD_OK;
}

/* ---- all rules ---- */

bool trajd_select_mask_lists(const struct trajd_episode *episode, const char *mask)
{
    for (const char *const *key = episode->filter_keys; key && *key; key++)
        if (strcmp(*key, mask) == 0)
            return true;
    return false;
}

enum trajd_status trajd_select_episodes(const struct trajd_select_rules *rules,
                                        const struct trajd_index *index, uint8_t *flags,
                                        struct trajd_select_refused *refused,
                                        struct trajd_error *error)
{
    enum trajd_status status = check_texts(rules, index, error);

    memset(flags, 0, index->episode_count);
    *refused = (struct trajd_select_refused){0};
    if (!status)
        status = trajd_select_mark_listed(rules, index, flags, refused, error);
    for (uint32_t e = 0; e < index->episode_count && !status; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (flags[e] && !episode->quarantine &&
            (!rules->filter || trajd_select_mask_lists(episode, rules->filter)) &&
            match_texts(rules, index, episode))
            flags[e] |= TRAJD_SELECT_TAKEN;
    }
    return status ? status : split_episodes(rules, index, flags, error);
}

uint64_t trajd_select_digest(const struct trajd_select_rules *rules)
{
    struct trajd_digest digest;

    if (!rules->entry_count && !rules->hold_out && !rules->ranges)
        return 0;
    trajd_digest_init(&digest);
    trajd_digest_add_u64(&digest, rules->entry_count);
    for (uint32_t i = 0; i < rules->entry_count; i++) {
        trajd_digest_add_text(&digest, rules->entries[i].name);
        trajd_digest_add_u64(&digest, rules->entries[i].first);
        trajd_digest_add_u64(&digest, rules->entries[i].last);
    }
    trajd_digest_add_u64(&digest, rules->hold_out);
    trajd_digest_add_u64(&digest, rules->takes_held_out);
    if (rules->ranges)
        trajd_digest_add_u64(&digest, rules->ranges->digest);
    return trajd_digest_end(&digest);
}
