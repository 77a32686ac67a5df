/* Faults that only two of a kind show: masks of training and validation with the same episode. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "proto/plural.h"

enum { MASK_PAIRS_MAX = 64, NAME_SIZE = 256 };

/* ---- masks ---- */

static bool is_listed(const struct trajd_episode *episode, const char *mask)
{
    const char *const *key = episode->filter_keys;

    while (key && *key && strcmp(*key, mask))
        key++;
    return key && *key;
}

/* Returns whether the mask's name ends with the word of training masks. Then writes the name of its
 * validation mask: "20_percent_valid" for "20_percent_train". */
static bool find_partner(const struct examine_limits *limits, const char *mask,
                         char partner[NAME_SIZE])
{
    const size_t word = strlen(limits->train), length = strlen(mask);

    return length >= word && !strcmp(mask + length - word, limits->train) &&
           snprintf(partner, NAME_SIZE, "%.*s%s", (int)(length - word), mask, limits->valid) <
               NAME_SIZE;
}

/* Reports a training mask that shares its first episode, number `first`, with the other mask. */
static void report_masks(struct examiner *examiner, uint32_t first, const char *mask,
                         const char *partner)
{
    const struct trajd_index *index = examiner->index;
    const struct trajd_episode *episode = &index->episodes[first];
    struct examine_finding finding = {
        EXAMINE_MASKS, index->files[episode->file_index].relative_path, episode->id, NULL, -1, 0,
        NULL};

    for (uint32_t e = first; e < index->episode_count; e++)
        finding.count +=
            is_listed(&index->episodes[e], mask) && is_listed(&index->episodes[e], partner);
    examine_report(examiner, &finding,
                   "the masks %s and %s share %" PRIu64 " episode%s; this is the first", mask,
                   partner, finding.count, trajd_plural(finding.count));
}

static void examine_masks(struct examiner *examiner, const struct examine_limits *limits)
{
    const struct trajd_index *index = examiner->index;
    const char *told[MASK_PAIRS_MAX];
    char partner[NAME_SIZE];
    size_t count = 0, t;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *const *mask = index->episodes[e].filter_keys;
        for (; mask && *mask && count < MASK_PAIRS_MAX; mask++) {
            if (!find_partner(limits, *mask, partner) || !is_listed(&index->episodes[e], partner))
                continue;
            for (t = 0; t < count && strcmp(told[t], *mask); t++)
                ;
            if (t < count)
                continue;
            told[count++] = *mask;
            report_masks(examiner, e, *mask, partner);
        }
    }
}

void examine_pairs(const struct trajd_index *index, const struct examine_limits *limits,
                   void (*report)(void *context, const struct examine_finding *finding),
                   void *context)
{
    struct examiner examiner = {.index = index, .report = report, .context = context};

    examine_masks(&examiner, limits);
}
