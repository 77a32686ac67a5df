/* A reload's parts: reload.c makes a change, reload_plan.c finds out what it comes to and what
 * speaks against it, reload_report.c says it. */
#ifndef TRAJD_CONTROL_RELOAD_INTERNAL_H
#define TRAJD_CONTROL_RELOAD_INTERNAL_H

#include "daemon/config/config_keys.h"
#include "daemon/control/control_internal.h"

/* Why a feed goes. */
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
    uint64_t cache_share_bytes; /* of each new dataset */
    /* for each that stays, where none is new */
    uint64_t cache_raise_bytes;
    bool is_new_dataset[TRAJD_CONFIG_MAX_DATASETS]; /* of next->datasets */
    /* of next->datasets whose lines are the same */
    struct trajd_file_changes file_changes[TRAJD_CONFIG_MAX_DATASETS];
    /* why it stays as it is all the same; NULL: it does not */
    const char *not_taken[TRAJD_CONFIG_MAX_DATASETS];
    /* of next->config->feeds: other than STAYS, it is to be made */
    enum trajd_reload_reason feed_reason[TRAJD_CONFIG_MAX_FEEDS];
    /* the dataset or feed that has changed */
    const char *feed_cause[TRAJD_CONFIG_MAX_FEEDS];
    uint32_t in_count, out_count;
    struct trajd_producer *in[TRAJD_CONFIG_MAX_FEEDS];
    struct trajd_producer *out[TRAJD_CONTROL_MAX_PRODUCERS];
    enum trajd_reload_reason out_reason[TRAJD_CONTROL_MAX_PRODUCERS];
    const char *out_cause[TRAJD_CONTROL_MAX_PRODUCERS];
};

/* ---- reload_plan.c ---- */

/* Fills in what stays, goes and comes, of next->config; TRAJD_OK, or what speaks against it. */
enum trajd_status trajd_reload_plan(struct trajd_reload_change *change, struct trajd_error *error);
bool trajd_reload_is_same_value(const struct trajd_config *a, const struct trajd_config *b,
                                const struct trajd_config_key *key);
/* The lines of a feed; NULL: there is none of that name. */
const struct trajd_yaml_node *trajd_reload_feed_node(const struct trajd_config *config,
                                                     const char *name);
bool trajd_reload_stays_open(const struct trajd_reload_change *change,
                             const struct trajd_dataset *dataset);
bool trajd_reload_goes(const struct trajd_reload_change *change,
                       const struct trajd_producer *producer);
/* Bytes of rings of the feeds that go (`out`), or of those that stay. */
uint64_t trajd_reload_rings_of(const struct trajd_reload_change *change, bool out);
/* The feed out[index] is read. */
enum trajd_status trajd_reload_refuse_busy(const struct trajd_reload_change *change, uint32_t index,
                                           struct trajd_error *error);

/* ---- reload_files.c ---- */

/* Datasets whose lines are the same: what has become of their files goes into change->news; one
 * that has others and is not read counts as new. */
void trajd_reload_look_for_files(struct trajd_reload_change *change);
/* Where memory is short: the last of those does not count as new after all, and goes on as it is.
 * False: there is none. */
bool trajd_reload_put_off_files(struct trajd_reload_change *change);

/* ---- reload_report.c ---- */

/* A text that is cut where its room ends. */
struct trajd_reload_text {
    char *at;
    size_t size, length;
};
void trajd_reload_append(struct trajd_reload_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void trajd_reload_append_key(struct trajd_reload_text *text, const struct trajd_config_key *key);
/* What has changed, in a line. Before the change is made. */
void trajd_reload_describe(const struct trajd_reload_change *change, char *message, size_t size);

#endif
