/* Matches episodes with the options --episodes and --filter. */

#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"

enum { KEYS_MAX = 256 };

/* Reads the number at the end of the id: demo_12 -> 12. */
static bool last_number(const char *id, uint64_t *number)
{
    size_t end = strlen(id), begin = end;

    while (begin > 0 && id[begin - 1] >= '0' && id[begin - 1] <= '9')
        begin--;
    if (begin == end || end - begin > 18)
        return false;
    *number = strtoull(id + begin, NULL, 10);
    return true;
}

/* Reads "7" or "0..9". */
static bool parse_range(const char *text, uint64_t *first, uint64_t *last)
{
    int used = 0;

    if (strspn(text, "0123456789.") != strlen(text))
        return false;
    if (sscanf(text, "%18" SCNu64 "..%18" SCNu64 "%n", first, last, &used) == 2 && !text[used])
        return *first <= *last;
    used = 0;
    *last = 0;
    if (sscanf(text, "%18" SCNu64 "%n", first, &used) != 1 || text[used])
        return false;
    *last = *first;
    return true;
}

static bool names_episode(const char *item, const char *id)
{
    uint64_t first, last, number;

    if (trajd_layout_match(item, id, NULL, 0))
        return true;
    return parse_range(item, &first, &last) && last_number(id, &number) && number >= first &&
           number <= last;
}

static bool has_key(const struct trajd_episode *episode, const char *key)
{
    for (const char *const *own = episode->filter_keys; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

bool convert_chooses_episode(const struct trajd_convert_options *options,
                             const struct trajd_episode *episode)
{
    bool named = !options->episode_count;

    if (options->filter && !has_key(episode, options->filter))
        return false;
    for (uint32_t i = 0; i < options->episode_count && !named; i++)
        named = names_episode(options->episodes[i], episode->id);
    return named;
}

/* Checks that each item of --episodes and the filter match an episode. */
enum trajd_status convert_check_selection(const struct trajd_convert_options *options,
                                          struct trajd_error *error)
{
    const char *keys[KEYS_MAX], *near;
    size_t key_count = 0;
    bool any = !options->filter;

    for (uint32_t i = 0; i < options->episode_count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < options->index_count && !found; k++)
            for (uint32_t e = 0; e < options->indexes[k]->episode_count && !found; e++)
                found = names_episode(options->episodes[i], options->indexes[k]->episodes[e].id);
        if (!found)
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "--episodes: there is no episode %s (the first one is %s)",
                                   options->episodes[i], options->indexes[0]->episodes[0].id);
    }
    for (uint32_t k = 0; k < options->index_count && options->filter; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count; e++)
            for (const char *const *own = options->indexes[k]->episodes[e].filter_keys; own && *own;
                 own++) {
                any = any || !strcmp(*own, options->filter);
                if (key_count < KEYS_MAX && (!key_count || strcmp(keys[key_count - 1], *own)))
                    keys[key_count++] = *own;
            }
    near = any ? NULL : trajd_yaml_nearest(options->filter, keys, key_count);
    return any ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "--filter: no episode has the mask key \"%s\"%s%s%s",
                                 options->filter, near ? " (did you mean " : "", near ? near : "",
                                 near ? "?)" : "");
}
