/* `split:` of a feed: by an episode's hash, which depends only on its name. So new data never moves
 * an episode of a split by ranges, and moves one for each new episode at most in a split by
 * count. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/order/sampler.h"
#include "daemon/window/select/select_internal.h"
#include "proto/plural.h"

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

enum trajd_status trajd_select_split(const struct trajd_select_rules *rules,
                                     const struct trajd_index *index, uint8_t *flags,
                                     struct trajd_error *error)
{
    if (rules->hold_out)
        return split_by_count(rules, index, flags, error);
    if (rules->split_begin > 0 || rules->split_end < 1)
        split_by_range(rules, index, flags);
    return TRAJD_OK;
}
