#include "daemon/window/select/select_internal.h"

#include <string.h>

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
    enum trajd_status status = trajd_select_texts_check(rules, index, error);

    memset(flags, 0, index->episode_count);
    *refused = (struct trajd_select_refused){0};
    if (!status)
        status = trajd_select_mark_listed(rules, index, flags, refused, error);
    for (uint32_t e = 0; e < index->episode_count && !status; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (flags[e] && !episode->quarantine &&
            (!rules->filter || trajd_select_mask_lists(episode, rules->filter)) &&
            trajd_select_texts_match(rules, index, episode))
            flags[e] |= TRAJD_SELECT_TAKEN;
    }
    return status ? status : trajd_select_split(rules, index, flags, error);
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
