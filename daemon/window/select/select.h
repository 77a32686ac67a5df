/* Which episodes of a dataset a feed takes: by mask, text, number, name and split. The rules stand
 * in the feed's specification; they are resolved on an index. Immutable, and thread-safe. */
#ifndef TRAJD_WINDOW_SELECT_SELECT_H
#define TRAJD_WINDOW_SELECT_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/digest.h"
#include "daemon/index/index.h"
#include "daemon/window/select/ranges.h"
#include "proto/error.h"

/* One key of `where:`. An episode's text must be one of the values. */
struct trajd_select_text {
    const char *key;
    uint32_t line, value_count;
    const char *const *values;
};

/* One entry of `episodes:`: a run of numbers, or a name. */
struct trajd_select_entry {
    const char *place;    /* "trajd.yaml:14: feeds.train.episodes[2]", for errors */
    const char *name;     /* an episode, a file, or FILE:EPISODE; NULL: numbers */
    uint32_t first, last; /* both included */
};

/* All rules of a feed. An episode must match each of them. */
struct trajd_select_rules {
    const char *filter;  /* name of a mask; NULL: any */
    uint32_t text_count; /* `where:` */
    const struct trajd_select_text *texts;
    uint32_t entry_count; /* `episodes:`; 0: all */
    const struct trajd_select_entry *entries;
    double split_begin, split_end; /* of [0, 1): episodes with a hash in [begin, end) */
    /* of the episodes that match all other rules, the `hold_out` ones with the smallest hashes are
     * for validation; 0: no such split */
    uint32_t hold_out;
    bool takes_held_out;
    const char *ranges_file;  /* `ranges: FILE`; NULL: none */
    const char *ranges_place; /* of the key `ranges:`, for errors */
    /* the anchors that may be windows; NULL: all, or the file was not loaded; not owned */
    const struct trajd_ranges *ranges;
};

enum {
    TRAJD_SELECT_LISTED = 1, /* `episodes:` lists it, or there is no such key */
    /* it matches all rules, and the index keeps it */
    TRAJD_SELECT_TAKEN = 2,
};

/* Refused files that `episodes:` lists. */
struct trajd_select_refused {
    uint32_t count;
    const char *first; /* the reason of the first; borrowed from the index */
};

/* Sets flags[index->episode_count]. TRAJD_ERR_NOT_FOUND for a key of `where:` that the layout
 * lacks, a text that no episode has, and an entry of `episodes:` that matches nothing.
 * TRAJD_ERR_DATA where a split would hold out all episodes. */
enum trajd_status trajd_select_episodes(const struct trajd_select_rules *rules,
                                        const struct trajd_index *index, uint8_t *flags,
                                        struct trajd_select_refused *refused,
                                        struct trajd_error *error);

/* ---- select_names.c ---- */

/* Sets the flag LISTED of the episodes that `episodes:` lists. */
enum trajd_status trajd_select_mark_listed(const struct trajd_select_rules *rules,
                                           const struct trajd_index *index, uint8_t *flags,
                                           struct trajd_select_refused *refused,
                                           struct trajd_error *error);

/* Which entry of `ranges:` each episode has. */
struct trajd_select_ranges {
    uint32_t *entry_of;     /* [episode_count]: UINT32_MAX: none */
    uint32_t unknown_count; /* entries that name no episode of the index */
    const char *first_unknown;
};

/* Finds the entries of all episodes. The caller frees after success. TRAJD_ERR_ARGUMENT where a key
 * names several episodes, or two keys name the same one. */
enum trajd_status trajd_select_ranges_find(const struct trajd_ranges *ranges,
                                           const struct trajd_index *index,
                                           struct trajd_select_ranges *found,
                                           struct trajd_error *error);
void trajd_select_ranges_free(struct trajd_select_ranges *found);

/* Returns a digest of `where:`. */
uint64_t trajd_select_texts_digest(const struct trajd_select_rules *rules);
/* Returns a digest of the rules that 0.1.0 did not have; 0 where none is used. */
uint64_t trajd_select_digest(const struct trajd_select_rules *rules);

/* Returns whether the mask lists the episode. */
bool trajd_select_mask_lists(const struct trajd_episode *episode, const char *mask);

#endif
