/* Reads the configuration again and applies it: all of it, or nothing.
 *
 *   read the file
 *     -> plan: what stays, goes and comes; refuse what is not possible (reload_plan.c)
 *     -> open new datasets and make new feeds, hidden from workers
 *     -> change over: close old feeds and show new ones at one moment (trajd_server_change)
 *     -> free what was closed
 *
 * A feed stays if its own lines are unchanged (apart from comments and YAML spelling), and those of
 * its datasets, and those of the feed that its statistics come from. A feed that stays is not
 * touched: its production and fingerprint are the same, and its workers notice nothing. A feed that
 * goes must have no worker. A dataset with the same lines but other files is opened again if no
 * worker reads it; otherwise it stays as it is, and the message says so (reload_keys.c). */
#include "daemon/control/reload_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the message ---- */

static bool has_name(const struct trajd_open_config *open_config, const char *dataset)
{
    return trajd_open_config_find(open_config, dataset) != NULL;
}

static void append_name(struct trajd_text *text, const char *before, const char *name, bool *begun)
{
    trajd_text_add(text, "%s%s%s",
                   *begun       ? ", "
                   : text->used ? "; "
                                : "",
                   *begun ? "" : before, name);
    *begun = true;
}

static void describe_feeds(const struct trajd_reload_change *change, struct trajd_text *text)
{
    const struct trajd_config *now = change->control->now->config, *next = change->next->config;
    bool begun = false;

    for (uint32_t f = 0; f < next->feed_count; f++)
        if (!trajd_reload_feed_node(now, next->feeds[f]->feed_name))
            append_name(text, "new feeds: ", next->feeds[f]->feed_name, &begun);
    begun = false;
    for (uint32_t f = 0; f < next->feed_count; f++)
        if (trajd_reload_feed_node(now, next->feeds[f]->feed_name) &&
            change->feed_reason[f] != TRAJD_FEED_STAYS)
            append_name(text, "changed feeds: ", next->feeds[f]->feed_name, &begun);
    begun = false;
    for (uint32_t f = 0; f < change->out_count; f++)
        if (change->out_reason[f] == TRAJD_FEED_IS_GONE ||
            !trajd_feed_name_is_configured(change->out[f]->name))
            append_name(text, "feeds gone: ", change->out[f]->name, &begun);
}

static void describe_datasets(const struct trajd_reload_change *change, struct trajd_text *text)
{
    const struct trajd_open_config *now = change->control->now, *next = change->next;
    bool begun = false;

    for (uint32_t d = 0; d < next->dataset_count; d++)
        if (change->is_new_dataset[d])
            append_name(text, "new or changed datasets: ", next->datasets[d]->name, &begun);
    begun = false;
    for (uint32_t d = 0; d < now->dataset_count; d++)
        if (!has_name(next, now->datasets[d]->name))
            append_name(text, "datasets gone: ", now->datasets[d]->name, &begun);
}

static void append_count(struct trajd_text *text, uint32_t count, const char *what, bool *begun)
{
    if (count)
        trajd_text_add(text, "%s%u %s", *begun ? ", " : "", count, what);
    *begun = *begun || count;
}

/* Lists changed files. Where a dataset keeps its old files, says why and what to do. */
static void describe_files(const struct trajd_reload_change *change, struct trajd_text *text)
{
    for (uint32_t d = 0; d < change->next->dataset_count; d++) {
        const struct trajd_file_changes *file_changes = &change->file_changes[d];
        bool begun = false;
        if (!trajd_file_changes_any(file_changes))
            continue;
        trajd_text_add(text, "%sfiles of %s: ", text->used ? "; " : "",
                       change->next->config->datasets[d].name);
        append_count(text, file_changes->added, "new", &begun);
        append_count(text, file_changes->changed, "changed", &begun);
        append_count(text, file_changes->gone, "gone", &begun);
        if (file_changes->layout_changed)
            trajd_text_add(text, "%sanother layout", begun ? ", " : "");
        if (change->not_taken[d])
            trajd_text_add(text, ", not taken: %s", change->not_taken[d]);
    }
}

void trajd_reload_describe(const struct trajd_reload_change *change, char *message, size_t size)
{
    struct trajd_text text = {message, size, 0};
    char names[256] = "";
    struct trajd_text keys = {names, sizeof names, 0};

    message[0] = 0;
    describe_feeds(change, &text);
    describe_datasets(change, &text);
    describe_files(change, &text);
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (!trajd_reload_is_same_value(change->control->now->config, change->next->config,
                                        &trajd_config_keys[k]))
            trajd_reload_append_key(&keys, &trajd_config_keys[k]);
    if (keys.used)
        trajd_text_add(&text, "%skeys: %s", text.used ? "; " : "", names);
    if (!text.used)
        trajd_text_add(&text, "nothing has changed");
}

/* ---- the reload ---- */

/* ---- new datasets and feeds ---- */

static enum trajd_status open_datasets(struct trajd_reload_change *change,
                                       struct trajd_error *error)
{
    struct trajd_open_config *next = change->next;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t d = 0; d < next->dataset_count && !status; d++)
        if (change->is_new_dataset[d])
            status = trajd_control_open_dataset(
                change->control, next->config, &next->config->datasets[d],
                change->cache_share_bytes, &next->datasets[d], error);
    return status;
}

static enum trajd_status make_feeds(struct trajd_reload_change *change, struct trajd_error *error)
{
    const struct trajd_config *config = change->next->config;
    uint64_t new_bytes = 0;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t f = 0; f < config->feed_count && !status; f++) {
        const struct trajd_feed_source source = {
            .name = config->feeds[f]->feed_name, .spec = config->feeds[f], .is_hidden = true};
        if (change->feed_reason[f] == TRAJD_FEED_STAYS)
            continue;
        do
            status = trajd_control_make_producer(change->control, change->next, &source,
                                                 trajd_reload_rings_of(change, false) + new_bytes,
                                                 &change->in[change->in_count], error);
        while (status == TRAJD_ERR_MEMORY && trajd_reload_close_unread(change));
        if (!status)
            new_bytes += trajd_producer_ring_bytes(change->in[change->in_count++]);
    }
    trajd_control_grow_rings(change->next->config,
                             trajd_reload_rings_of(change, false) + new_bytes);
    return status;
}

static void undo(struct trajd_reload_change *change)
{
    for (uint32_t f = 0; f < change->in_count; f++)
        trajd_producer_destroy(&change->in[f]);
    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (change->is_new_dataset[d])
            trajd_dataset_destroy(&change->next->datasets[d]);
    trajd_config_destroy(&change->next->config);
    free(change->next);
}

/* ---- the change-over ---- */

static void name_feeds(struct trajd_open_config *open_config)
{
    const struct trajd_yaml_node *feeds =
        trajd_yaml_get(trajd_yaml_root(open_config->config->yaml), "feeds");
    uint32_t count = 0;

    for (const struct trajd_yaml_node *feed = feeds ? feeds->children : NULL; feed;
         feed = feed->next)
        open_config->feed_names[count++] = feed->key;
}

static enum trajd_status show(const struct trajd_reload_change *change, struct trajd_error *error)
{
    struct trajd_feed *in[TRAJD_CONFIG_MAX_FEEDS], *out[TRAJD_CONTROL_MAX_PRODUCERS];
    const struct trajd_server_change moment = {
        .in = in,
        .in_count = change->in_count,
        .out = out,
        .out_count = change->out_count,
        .feed_names = change->next->feed_names,
        .feed_idle_ms = (uint32_t)(change->next->config->feed_idle_ns / 1000000)};
    uint32_t busy;

    for (uint32_t f = 0; f < change->in_count; f++)
        in[f] = change->in[f]->feed;
    for (uint32_t f = 0; f < change->out_count; f++)
        out[f] = change->out[f]->feed;
    return trajd_server_change(change->control->server, &moment, &busy)
               ? trajd_reload_refuse_busy(change, busy, error)
               : TRAJD_OK;
}

/* Moves the specifications of feeds that stay to the next configuration: their producers use them.
 * */
static void keep_specs(const struct trajd_reload_change *change)
{
    struct trajd_config *before = change->control->now->config, *next = change->next->config;

    for (uint32_t f = 0; f < next->feed_count; f++)
        for (uint32_t b = 0; b < before->feed_count && change->feed_reason[f] == TRAJD_FEED_STAYS;
             b++) {
            if (!before->feeds[b] ||
                strcmp(before->feeds[b]->feed_name, next->feeds[f]->feed_name) != 0)
                continue;
            trajd_window_spec_destroy(&next->feeds[f]);
            next->feeds[f] = before->feeds[b];
            before->feeds[b] = NULL;
            break;
        }
}

/* Puts the new configuration and list of feeds in place. Returns when the query service uses none
 * of the removed producers. The caller holds the mutex. */
static void swap_lists(struct trajd_reload_change *change)
{
    struct trajd_control *control = change->control;

    control->now = change->next;
    trajd_feed_list_replace(&control->feeds, change->out, change->out_count, change->in,
                            change->in_count);
    while (control->feeds.acquired && trajd_reload_goes(change, control->feeds.acquired))
        trajd_heartbeat_wait_for(&control->wake, &control->mutex);
}

/* Changes the server and the list of feeds under one lock, so that an OPEN request sees either the
 * old feeds or the new ones. */
static enum trajd_status change_over(struct trajd_reload_change *change, struct trajd_error *error)
{
    enum trajd_status status;

    pthread_mutex_lock(&change->control->mutex);
    status = show(change, error);
    if (!status) {
        keep_specs(change);
        swap_lists(change);
    }
    pthread_mutex_unlock(&change->control->mutex);
    return status;
}

static void free_before(struct trajd_reload_change *change, struct trajd_open_config *before)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        trajd_producer_stop(change->out[f]);
    for (uint32_t f = 0; f < change->out_count; f++)
        trajd_producer_destroy(&change->out[f]);
    for (uint32_t d = 0; d < before->dataset_count; d++)
        if (!trajd_reload_stays_open(change, before->datasets[d]))
            trajd_dataset_destroy(&before->datasets[d]);
    if (before->config != change->control->first_config)
        trajd_config_destroy(&before->config);
    free(before);
}

static void settle(struct trajd_reload_change *change, struct trajd_open_config *before)
{
    struct trajd_control *control = change->control;

    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (!change->is_new_dataset[d] && change->cache_raise_bytes)
            trajd_cache_raise_budget(change->next->datasets[d]->cache, change->cache_raise_bytes);
    /* relaxed: orders nothing */
    __atomic_store_n(&control->exit_idle_ns, change->next->config->exit_idle_ns, __ATOMIC_RELAXED);
    free_before(change, before);
    trajd_control_warn_of_norms(control, NULL);
}

/* ---- the whole reload ---- */

static enum trajd_status prepare(struct trajd_reload_change *change, struct trajd_error *error)
{
    const struct trajd_config_source *from = &change->control->reload_from;
    enum trajd_status status;

    trajd_heartbeat_wait();
    status = trajd_config_load(from->path, from->values, from->value_count, &change->next->config,
                               error);
    trajd_heartbeat_resume();
    if (status)
        return status;
    name_feeds(change->next);
    status = trajd_reload_plan(change, error);
    if (status)
        return status;
    status = open_datasets(change, error);
    return status ? status : make_feeds(change, error);
}

enum trajd_status trajd_reload_run(struct trajd_control *control, char *message, size_t size)
{
    struct trajd_reload_change *change = calloc(1, sizeof *change);
    struct trajd_open_config *before = control->now;
    struct trajd_error error;
    enum trajd_status status;

    if (!change || !(change->next = calloc(1, sizeof *change->next))) {
        free(change);
        snprintf(message, size, "no memory for the new configuration");
        return TRAJD_ERR_MEMORY;
    }
    change->control = control;
    status = prepare(change, &error);
    if (!status) {
        trajd_reload_describe(change, message, size);
        status = change_over(change, &error);
    }
    if (status) {
        snprintf(message, size, "%s", error.message);
        undo(change);
    } else {
        settle(change, before);
    }
    free(change);
    return status;
}
