/* Shared by the files of a reload. Each file calls only files below it:
 *
 *   reload.c       makes the change, and describes it in a line
 *   reload_plan.c  finds out what stays, goes and comes, and what forbids the change
 *   reload_keys.c  single keys: which may change, which have changed; new files of datasets that
 *                  stay */
#ifndef TRAJD_CONTROL_RELOAD_INTERNAL_H
#define TRAJD_CONTROL_RELOAD_INTERNAL_H

#include "daemon/base/text/text.h"
#include "daemon/config/config_keys.h"
#include "daemon/control/control_internal.h"

/* Why a feed is closed or made again. */
enum trajd_reload_reason {
    TRAJD_FEED_STAYS,
    TRAJD_FEED_IS_GONE,
    TRAJD_FEED_HAS_CHANGED,
    TRAJD_FEED_DATASET_HAS_CHANGED,
    TRAJD_FEED_STATISTICS_HAVE_CHANGED,
};

struct trajd_reload_change {
    struct trajd_control *control;
    struct trajd_open_config *next;
    uint64_t cache_share_bytes; /* cache of each new dataset */
    uint64_t cache_raise_bytes; /* added to each dataset that stays, where no dataset is new */
    bool is_new_dataset[TRAJD_CONFIG_MAX_DATASETS]; /* of next->datasets */
    /* of next->datasets whose lines are unchanged */
    struct trajd_file_changes file_changes[TRAJD_CONFIG_MAX_DATASETS];
    /* why changed files are not read in this reload; NULL: they are read */
    const char *not_taken[TRAJD_CONFIG_MAX_DATASETS];
    /* of next->config->feeds: any reason but STAYS means that the feed is made */
    enum trajd_reload_reason feed_reason[TRAJD_CONFIG_MAX_FEEDS];
    /* the changed dataset or feed behind feed_reason; NULL: the feed's own lines */
    const char *feed_cause[TRAJD_CONFIG_MAX_FEEDS];
    /* producers that are made (in) and closed (out) */
    uint32_t in_count, out_count;
    struct trajd_producer *in[TRAJD_CONFIG_MAX_FEEDS];
    struct trajd_producer *out[TRAJD_CONTROL_MAX_PRODUCERS];
    enum trajd_reload_reason out_reason[TRAJD_CONTROL_MAX_PRODUCERS];
    const char *out_cause[TRAJD_CONTROL_MAX_PRODUCERS];
};

/* ---- reload_keys.c: keys ---- */

/* Appends "SECTION.NAME", after a comma where the text is not empty. */
void trajd_reload_append_key(struct trajd_text *text, const struct trajd_config_key *key);

bool trajd_reload_is_same_value(const struct trajd_config *a, const struct trajd_config *b,
                                const struct trajd_config_key *key);
/* Copies sizes such as "50%" that are written alike in both configurations from `now` to `next`:
 * they stay at the bytes that they stood for at the start. */
void trajd_reload_keep_shares(const struct trajd_config *now, struct trajd_config *next);
/* Returns TRAJD_ERR_UNSUPPORTED, with their names, where keys have changed that need a restart. */
enum trajd_status trajd_reload_check_keys(const struct trajd_reload_change *change,
                                          struct trajd_error *error);

/* ---- reload_keys.c: files that have changed ---- */

/* Looks for new, changed and removed files of the datasets whose lines are unchanged, and fills
 * change->file_changes. A dataset with such files counts as new unless workers read it. */
void trajd_reload_look_for_files(struct trajd_reload_change *change);
/* Called where memory is short: takes the last dataset that counts as new only because of its
 * files, and keeps it with its old files. Returns false where there is none. */
bool trajd_reload_put_off_files(struct trajd_reload_change *change);

/* ---- reload_plan.c ---- */

/* Finds out which datasets and feeds of next->config stay, go and come, and fills `change`. Returns
 * TRAJD_OK, or the reason why the reload is refused. */
enum trajd_status trajd_reload_plan(struct trajd_reload_change *change, struct trajd_error *error);
/* Returns the lines of a feed, or NULL where there is none of that name. */
const struct trajd_yaml_node *trajd_reload_feed_node(const struct trajd_config *config,
                                                     const char *name);
bool trajd_reload_stays_open(const struct trajd_reload_change *change,
                             const struct trajd_dataset *dataset);
/* Closes the feed of a job that no worker reads and that is idle for longest, to make room, as an
 * OPEN does. Returns false where there is none. */
bool trajd_reload_close_unread(struct trajd_reload_change *change);
bool trajd_reload_goes(const struct trajd_reload_change *change,
                       const struct trajd_producer *producer);
/* Returns the bytes of the rings of the feeds that go (`out`), or of those that stay. */
uint64_t trajd_reload_rings_of(const struct trajd_reload_change *change, bool out);
/* Fills *error for the feed change->out[index], which workers read. Returns TRAJD_ERR_BUSY. */
enum trajd_status trajd_reload_refuse_busy(const struct trajd_reload_change *change, uint32_t index,
                                           struct trajd_error *error);

/* ---- reload.c: the message ---- */

/* Writes what changes, in one line. Called before the change is made. */
void trajd_reload_describe(const struct trajd_reload_change *change, char *message, size_t size);

#endif
