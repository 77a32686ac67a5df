/* Inside the selection of episodes: select.c on top of one file for each rule. */
#ifndef TRAJD_WINDOW_SELECT_SELECT_INTERNAL_H
#define TRAJD_WINDOW_SELECT_SELECT_INTERNAL_H

#include "daemon/window/select/select.h"

/* ---- select_texts.c ---- */

/* Checks `where:` as trajd_select_episodes says. */
enum trajd_status trajd_select_texts_check(const struct trajd_select_rules *rules,
                                           const struct trajd_index *index,
                                           struct trajd_error *error);
/* Returns whether the episode has the texts. Check the rules first. */
bool trajd_select_texts_match(const struct trajd_select_rules *rules,
                              const struct trajd_index *index, const struct trajd_episode *episode);

/* ---- select_names.c ---- */

/* The names of an index, sorted for searches. */
struct trajd_select_names {
    const struct trajd_index *index;
    uint32_t *by_id;      /* [episode_count]: episodes in the order of their ids */
    uint32_t *by_path;    /* [file_count]: files in the order of their paths */
    uint32_t *file_begin; /* [file_count + 1]: each file's first episode */
};

/* What a name means. */
struct trajd_select_match {
    uint32_t file;        /* UINT32_MAX: not a file's name */
    uint32_t count;       /* of episodes */
    uint32_t first;       /* of a file: its first episode, the others follow */
    const uint32_t *list; /* of an episode's name: the episodes [count]; NULL: `first` */
};

/* Caller frees, also after an error. */
enum trajd_status trajd_select_names_make(const struct trajd_index *index,
                                          struct trajd_select_names *names,
                                          struct trajd_error *error);
void trajd_select_names_free(struct trajd_select_names *names);
/* Finds the file with that path, else the episodes with that id, else the episode of FILE:EPISODE.
 * False: nothing has that name. */
bool trajd_select_names_find(const struct trajd_select_names *names, const char *name,
                             struct trajd_select_match *match);
/* Returns a name of an episode or file that is spelled almost so, or NULL. */
const char *trajd_select_names_nearest(const struct trajd_select_names *names, const char *name);

/* ---- select_listed.c ---- */

/* Sets the flag LISTED of the episodes that `episodes:` lists. */
enum trajd_status trajd_select_mark_listed(const struct trajd_select_rules *rules,
                                           const struct trajd_index *index, uint8_t *flags,
                                           struct trajd_select_refused *refused,
                                           struct trajd_error *error);

/* ---- select_split.c ---- */

/* Removes the flag TAKEN from the episodes that the split leaves to other feeds. */
enum trajd_status trajd_select_split(const struct trajd_select_rules *rules,
                                     const struct trajd_index *index, uint8_t *flags,
                                     struct trajd_error *error);

#endif
