/* A reload: the configuration is read again, and the running pipeline becomes what it says, all of it or nothing.
 *
 *   read -> what stays, goes, comes -> refusals that need no work -> new datasets and feeds, which nobody finds yet
 *        -> one moment in which old feeds go and new ones are shown (trajd_server_change) -> what went is freed
 *
 * A feed stays if its lines are the same (comments and spelling of YAML aside), and its datasets' are, and those of the feed that its
 * statistics are of. One that stays is not touched: same production, same fingerprint, whoever reads it notices nothing. One that
 * goes must have no worker. A dataset whose lines are the same is not looked at again: new files in it are found by a restart. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/config_keys.h"
#include "daemon/memory.h"
#include "daemon/pipeline_parts.h"

#define MIN_STORE_BYTES (UINT64_C(1) << 16)
#define MIB (UINT64_C(1) << 20)

/* What counts from the moment of a reload on; the other keys' values are built into what runs. */
static const char *const live_keys[] = {"feed_idle", "exit_idle", "memory.store", "memory.rings", "memory.reserve",
                                        "index.children", "index.file_timeout", "limits.feeds", NULL};

/* Why a feed goes. */
enum reason { FEED_STAYS, FEED_IS_GONE, FEED_HAS_CHANGED, DATASET_HAS_CHANGED, STATISTICS_HAVE_CHANGED };

struct change {
    struct trajd_pipeline *pipeline;
    struct trajd_holdings *next;
    uint64_t store_share_bytes;                          /* of each new dataset */
    uint64_t store_raise_bytes;                          /* for each that stays, where none is new */
    bool is_new_dataset[TRAJD_CONFIG_MAX_DATASETS];      /* of next->datasets */
    enum reason feed_reason[TRAJD_CONFIG_MAX_FEEDS];     /* of next->config->feeds: other than STAYS, it is to be made */
    const char *feed_cause[TRAJD_CONFIG_MAX_FEEDS];      /* the dataset or feed that has changed */
    uint32_t in_count, out_count;
    struct trajd_feeder *in[TRAJD_CONFIG_MAX_FEEDS];
    struct trajd_feeder *out[TRAJD_PIPELINE_MAX_FEEDERS];
    enum reason out_reason[TRAJD_PIPELINE_MAX_FEEDERS];
    const char *out_cause[TRAJD_PIPELINE_MAX_FEEDERS];
};

/* ---- texts ---- */

struct text {
    char *at;
    size_t size, length;
};

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text->at + text->length, text->size - text->length, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->length = text->length + (size_t)length < text->size ? text->length + (size_t)length : text->size - 1;
}

static void append_key(struct text *text, const struct trajd_config_key *key)
{
    append(text, "%s%s%s%s", text->length ? ", " : "", key->section ? key->section : "", key->section ? "." : "", key->name);
}

/* ---- keys ---- */

static bool is_live(const struct trajd_config_key *key)
{
    for (const char *const *name = live_keys; *name; name++) {
        const char *rest = *name;
        if (key->section) {
            const size_t length = strlen(key->section);
            if (strncmp(rest, key->section, length) != 0 || rest[length] != '.')
                continue;
            rest += length + 1;
        }
        if (strcmp(rest, key->name) == 0)
            return true;
    }
    return false;
}

static bool is_same_value(const struct trajd_config *a, const struct trajd_config *b, const struct trajd_config_key *key)
{
    const char *const left = (const char *)a + key->offset, *const right = (const char *)b + key->offset;
    const char *left_text, *right_text;

    switch (key->type) {
    case KEY_STRING:
        left_text = *(const char *const *)left;
        right_text = *(const char *const *)right;
        return left_text && right_text ? strcmp(left_text, right_text) == 0 : left_text == right_text;
    case KEY_BOOL:
        return *(const bool *)left == *(const bool *)right;
    case KEY_COUNT:
        return *(const uint32_t *)left == *(const uint32_t *)right;
    case KEY_SIZE:
        return *(const uint64_t *)left == *(const uint64_t *)right;
    case KEY_DURATION:
        return *(const int64_t *)left == *(const int64_t *)right;
    }
    return false;
}

/* "50%" of what was free at the start stays what it came to. */
static void keep_shares(const struct trajd_config *now, struct trajd_config *next)
{
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (trajd_config_keys[k].type == KEY_SIZE && now->texts[k] && next->texts[k] && strcmp(now->texts[k], next->texts[k]) == 0)
            memcpy((char *)next + trajd_config_keys[k].offset, (const char *)now + trajd_config_keys[k].offset, sizeof(uint64_t));
}

static enum trajd_status check_keys(const struct change *change, struct trajd_error *error)
{
    char names[384] = "";
    struct text text = {names, sizeof names, 0};

    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (!is_live(&trajd_config_keys[k]) &&
            !is_same_value(change->pipeline->now->config, change->next->config, &trajd_config_keys[k]))
            append_key(&text, &trajd_config_keys[k]);
    if (!text.length)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "%s: cannot change while the daemon runs: restart it", names);
}

/* ---- what stays ---- */

static const struct trajd_yaml_node *feed_node(const struct trajd_config *config, const char *name)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(config->yaml), "feeds");
    return feeds ? trajd_yaml_get(feeds, name) : NULL;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* As deep as a document may be. */
static bool is_same_node(const struct trajd_yaml_node *a, const struct trajd_yaml_node *b)
{
    if (a->kind != b->kind || a->quoted != b->quoted || !is_same_text(a->key, b->key) || !is_same_text(a->value, b->value) ||
        a->child_count != b->child_count)
        return false;
    for (a = a->children, b = b->children; a && b; a = a->next, b = b->next)
        if (!is_same_node(a, b))
            return false;
    return true;
}

static void match_datasets(struct change *change)
{
    const struct trajd_holdings *now = change->pipeline->now;
    struct trajd_holdings *next = change->next;

    next->dataset_count = next->config->dataset_count;
    for (uint32_t d = 0; d < next->dataset_count; d++) {
        const struct trajd_config_dataset *wanted = &next->config->datasets[d];
        change->is_new_dataset[d] = true;
        for (uint32_t n = 0; n < now->dataset_count; n++) {
            const struct trajd_config_dataset *have = &now->config->datasets[n];
            if (strcmp(wanted->name, have->name) || strcmp(wanted->path, have->path) || strcmp(wanted->layout, have->layout))
                continue;
            change->is_new_dataset[d] = false;
            next->datasets[d] = now->datasets[n];
        }
    }
}

static bool stays_open(const struct change *change, const struct trajd_dataset *dataset)
{
    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (change->next->datasets[d] == dataset)
            return true;
    return false;
}

/* The first dataset of the specification that is not the one that is open now; NULL: all are. */
static const char *changed_dataset(const struct change *change, const struct trajd_window_spec *spec)
{
    for (uint32_t p = 0; p < spec->part_count; p++) {
        const struct trajd_dataset *dataset = trajd_holdings_find(change->pipeline->now, spec->parts[p].dataset);
        if (!dataset || !stays_open(change, dataset))
            return spec->parts[p].dataset;
    }
    return NULL;
}

/* What the feed's own lines and datasets say. */
static enum reason judge_feed(const struct change *change, const struct trajd_window_spec *spec, const char **cause)
{
    const struct trajd_yaml_node *before = feed_node(change->pipeline->now->config, spec->feed_name);

    if (!before || !is_same_node(before, feed_node(change->next->config, spec->feed_name)))
        return FEED_HAS_CHANGED;
    *cause = changed_dataset(change, spec);
    return *cause ? DATASET_HAS_CHANGED : FEED_STAYS;
}

static void judge_feeds(struct change *change)
{
    const struct trajd_config *config = change->next->config;

    for (uint32_t f = 0; f < config->feed_count; f++)
        change->feed_reason[f] = judge_feed(change, config->feeds[f], &change->feed_cause[f]);
    for (uint32_t f = 0; f < config->feed_count; f++)
        for (uint32_t s = 0; s < config->feed_count && config->feeds[f]->statistics_from; s++) {
            const char *from = config->feeds[f]->statistics_from, *cause;
            if (strcmp(config->feeds[s]->feed_name, from) || change->feed_reason[f] != FEED_STAYS ||
                judge_feed(change, config->feeds[s], &cause) == FEED_STAYS)
                continue;
            change->feed_reason[f] = STATISTICS_HAVE_CHANGED;
            change->feed_cause[f] = from;
        }
}

/* A feeder goes by its feed of the new configuration; one that a job has sent by its datasets. */
static enum reason judge_feeder(const struct change *change, const struct trajd_feeder *feeder, const char **cause)
{
    const char *name = trajd_feeder_name(feeder);
    const size_t length = trajd_pipeline_base_length(name);

    *cause = NULL;
    if (!trajd_pipeline_is_configured(feeder)) {
        *cause = changed_dataset(change, trajd_feeder_spec(feeder));
        return *cause ? DATASET_HAS_CHANGED : FEED_STAYS;
    }
    for (uint32_t f = 0; f < change->next->config->feed_count; f++) {
        const char *wanted = change->next->config->feeds[f]->feed_name;
        if (strlen(wanted) != length || strncmp(wanted, name, length) != 0)
            continue;
        *cause = change->feed_cause[f];
        return change->feed_reason[f];
    }
    return FEED_IS_GONE;
}

static void judge_feeders(struct change *change)
{
    struct trajd_pipeline *pipeline = change->pipeline;

    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        const char *cause;
        const enum reason reason = judge_feeder(change, pipeline->feeders[f], &cause);
        if (reason == FEED_STAYS)
            continue;
        change->out[change->out_count] = pipeline->feeders[f];
        change->out_cause[change->out_count] = cause;
        change->out_reason[change->out_count++] = reason;
    }
}

static bool goes(const struct change *change, const struct trajd_feeder *feeder)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        if (change->out[f] == feeder)
            return true;
    return false;
}

/* ---- refusals ---- */

static enum trajd_status refuse_busy(const struct change *change, uint32_t index, struct trajd_error *error)
{
    const char *name = trajd_feeder_name(change->out[index]), *cause = change->out_cause[index];
    const char *const advice = "and workers read it; a running feed is never changed: let them end, or give what is new another name";

    switch (change->out_reason[index]) {
    case FEED_IS_GONE:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feeds.%s: is not there any more, and workers read it: let them end first", name);
    case DATASET_HAS_CHANGED:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "datasets.%s: has changed or is gone, feed %s is of it, %s", cause, name, advice);
    case STATISTICS_HAVE_CHANGED:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feeds.%s: has changed, feed %s takes its statistics from it, %s", cause, name,
                               advice);
    default:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feeds.%s: has changed, %s", name, advice);
    }
}

static enum trajd_status check_idle(const struct change *change, struct trajd_error *error)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        if (!trajd_feed_is_idle(trajd_feeder_feed(change->out[f])))
            return refuse_busy(change, f, error);
    return TRAJD_OK;
}

static uint64_t rings_of(const struct change *change, bool out)
{
    uint64_t bytes = 0;

    for (uint32_t f = 0; f < change->pipeline->feeder_count; f++)
        if (goes(change, change->pipeline->feeders[f]) == out)
            bytes += trajd_feeder_ring_bytes(change->pipeline->feeders[f]);
    return bytes;
}

static uint32_t count_new_feeds(const struct change *change)
{
    uint32_t count = 0;

    for (uint32_t f = 0; f < change->next->config->feed_count; f++)
        count += change->feed_reason[f] != FEED_STAYS;
    return count;
}

static enum trajd_status check_limits(const struct change *change, struct trajd_error *error)
{
    const struct trajd_config *config = change->next->config;
    const uint32_t feeds = change->pipeline->feeder_count - change->out_count + count_new_feeds(change);

    if (feeds > config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "limits.feeds: %u, and there would be %u, those of jobs and of other instances included",
                               config->max_feeds, feeds);
    if (rings_of(change, false) > config->rings_bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "memory.rings: %llu bytes, and the feeds that stay have %llu",
                               (unsigned long long)config->rings_bytes, (unsigned long long)rings_of(change, false));
    return TRAJD_OK;
}

/* A store never shrinks: datasets that stay keep what they have, new ones share the rest. */
static enum trajd_status share_store(struct change *change, struct trajd_error *error)
{
    const struct trajd_holdings *next = change->next;
    const uint64_t all = next->config->store_bytes;
    uint64_t kept_bytes = 0;
    uint32_t new_count = 0;
    const char *name = "";

    for (uint32_t d = 0; d < next->dataset_count; d++) {
        struct trajd_store_stats stats;
        if (change->is_new_dataset[d]) {
            new_count++;
            name = next->config->datasets[d].name;
            continue;
        }
        trajd_store_get_stats(next->datasets[d]->store, &stats);
        kept_bytes += stats.budget_bytes;
    }
    if (kept_bytes > all)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "memory.store: %llu MiB, and the datasets that stay have %llu: it cannot shrink while the "
                               "daemon runs", (unsigned long long)(all / MIB), (unsigned long long)(kept_bytes / MIB));
    if (new_count && (all - kept_bytes) / new_count < MIN_STORE_BYTES)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "memory.store: the datasets that stay have all of its %llu MiB: raise it by what "
                               "datasets.%s is to have", (unsigned long long)(all / MIB), name);
    if (new_count)
        change->store_share_bytes = (all - kept_bytes) / new_count;
    else
        change->store_raise_bytes = (all - kept_bytes) / next->dataset_count;
    return TRAJD_OK;
}

/* What is new stands beside what goes for a while. */
static enum trajd_status check_memory(const struct change *change, struct trajd_error *error)
{
    const struct trajd_config *now = change->pipeline->now->config, *next = change->next->config;
    struct trajd_memory memory;
    uint64_t wanted = next->rings_bytes > now->rings_bytes ? next->rings_bytes - now->rings_bytes : 0;

    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        wanted += change->is_new_dataset[d] ? change->store_share_bytes : change->store_raise_bytes;
    if (count_new_feeds(change))
        wanted += rings_of(change, true);
    trajd_memory_read(&memory);
    if (!wanted || wanted + next->reserve_bytes <= trajd_memory_available(&memory))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                           "memory.store and memory.rings would take %llu MiB more, and %llu MiB less memory.reserve are free",
                           (unsigned long long)(wanted / MIB), (unsigned long long)(trajd_memory_available(&memory) / MIB));
}

/* ---- what is new ---- */

static enum trajd_status open_datasets(struct change *change, struct trajd_error *error)
{
    struct trajd_holdings *next = change->next;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t d = 0; d < next->dataset_count && !status; d++)
        if (change->is_new_dataset[d])
            status = trajd_pipeline_open_dataset(change->pipeline, next->config, &next->config->datasets[d], change->store_share_bytes,
                                                 &next->datasets[d], error);
    return status;
}

static enum trajd_status make_feeds(struct change *change, struct trajd_error *error)
{
    const struct trajd_config *config = change->next->config;
    uint64_t left = config->rings_bytes - rings_of(change, false);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t f = 0; f < config->feed_count && !status; f++) {
        const struct trajd_feed_source source = {.name = config->feeds[f]->feed_name, .spec = config->feeds[f], .is_hidden = true};
        if (change->feed_reason[f] == FEED_STAYS)
            continue;
        status = trajd_pipeline_make_feeder(change->pipeline, change->next, &source, left, &change->in[change->in_count], error);
        if (!status)
            left -= trajd_feeder_ring_bytes(change->in[change->in_count++]);
    }
    return status;
}

static void undo(struct change *change)
{
    for (uint32_t f = 0; f < change->in_count; f++)
        trajd_feeder_destroy(&change->in[f]);
    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (change->is_new_dataset[d])
            trajd_dataset_destroy(&change->next->datasets[d]);
    trajd_config_destroy(&change->next->config);
    free(change->next);
}

/* ---- the moment ---- */

static void name_feeds(struct trajd_holdings *holdings)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(holdings->config->yaml), "feeds");
    uint32_t count = 0;

    for (const struct trajd_yaml_node *feed = feeds ? feeds->children : NULL; feed; feed = feed->next)
        holdings->feed_names[count++] = feed->key;
}

static enum trajd_status show(const struct change *change, struct trajd_error *error)
{
    struct trajd_feed *in[TRAJD_CONFIG_MAX_FEEDS], *out[TRAJD_PIPELINE_MAX_FEEDERS];
    const struct trajd_server_change moment = {.in = in,
                                               .in_count = change->in_count,
                                               .out = out,
                                               .out_count = change->out_count,
                                               .feed_names = change->next->feed_names,
                                               .feed_idle_ms = (uint32_t)(change->next->config->feed_idle_ns / 1000000)};
    uint32_t busy;

    for (uint32_t f = 0; f < change->in_count; f++)
        in[f] = trajd_feeder_feed(change->in[f]);
    for (uint32_t f = 0; f < change->out_count; f++)
        out[f] = trajd_feeder_feed(change->out[f]);
    return trajd_server_change(change->pipeline->server, &moment, &busy) ? refuse_busy(change, busy, error) : TRAJD_OK;
}

/* Feeds that stay go by the specification that they were made of. */
static void keep_specs(const struct change *change)
{
    struct trajd_config *before = change->pipeline->now->config, *next = change->next->config;

    for (uint32_t f = 0; f < next->feed_count; f++)
        for (uint32_t b = 0; b < before->feed_count && change->feed_reason[f] == FEED_STAYS; b++) {
            if (!before->feeds[b] || strcmp(before->feeds[b]->feed_name, next->feeds[f]->feed_name) != 0)
                continue;
            trajd_window_spec_destroy(&next->feeds[f]);
            next->feeds[f] = before->feeds[b];
            before->feeds[b] = NULL;
            break;
        }
}

/* The lists as they are from now on; returns when nobody looks at what has gone. */
static void swap_lists(struct change *change)
{
    struct trajd_pipeline *pipeline = change->pipeline;
    uint32_t count = 0;

    pthread_mutex_lock(&pipeline->mutex);
    pipeline->now = change->next;
    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        if (goes(change, pipeline->feeders[f]))
            continue;
        pipeline->is_idle[count] = pipeline->is_idle[f];
        pipeline->feeders[count++] = pipeline->feeders[f];
    }
    for (uint32_t f = 0; f < change->in_count; f++) {
        pipeline->is_idle[count] = false;
        pipeline->feeders[count++] = change->in[f];
    }
    pipeline->feeder_count = count;
    while (pipeline->lent && goes(change, pipeline->lent))
        pthread_cond_wait(&pipeline->asked, &pipeline->mutex);
    pthread_mutex_unlock(&pipeline->mutex);
}

static void free_before(struct change *change, struct trajd_holdings *before)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        trajd_feeder_stop(change->out[f]);
    for (uint32_t f = 0; f < change->out_count; f++)
        trajd_feeder_destroy(&change->out[f]);
    for (uint32_t d = 0; d < before->dataset_count; d++)
        if (!stays_open(change, before->datasets[d]))
            trajd_dataset_destroy(&before->datasets[d]);
    if (before->config != change->pipeline->first_config)
        trajd_config_destroy(&before->config);
    free(before);
}

static void commit(struct change *change)
{
    struct trajd_pipeline *pipeline = change->pipeline;
    struct trajd_holdings *before = pipeline->now;

    keep_specs(change);
    swap_lists(change);
    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (!change->is_new_dataset[d] && change->store_raise_bytes)
            trajd_store_raise_budget(change->next->datasets[d]->store, change->store_raise_bytes);
    __atomic_store_n(&pipeline->exit_idle_ns, change->next->config->exit_idle_ns, __ATOMIC_RELAXED); /* a number on its own */
    free_before(change, before);
    trajd_pipeline_warn_of_norms(pipeline, NULL);
}

/* ---- what is said ---- */

static bool has_name(const struct trajd_holdings *holdings, const char *dataset)
{
    return trajd_holdings_find(holdings, dataset) != NULL;
}

static void append_name(struct text *text, const char *before, const char *name, bool *begun)
{
    append(text, "%s%s%s", *begun ? ", " : text->length ? "; " : "", *begun ? "" : before, name);
    *begun = true;
}

static void describe_feeds(const struct change *change, struct text *text)
{
    const struct trajd_config *now = change->pipeline->now->config, *next = change->next->config;
    bool begun = false;

    for (uint32_t f = 0; f < next->feed_count; f++)
        if (!feed_node(now, next->feeds[f]->feed_name))
            append_name(text, "new feeds: ", next->feeds[f]->feed_name, &begun);
    begun = false;
    for (uint32_t f = 0; f < next->feed_count; f++)
        if (feed_node(now, next->feeds[f]->feed_name) && change->feed_reason[f] != FEED_STAYS)
            append_name(text, "changed feeds: ", next->feeds[f]->feed_name, &begun);
    begun = false;
    for (uint32_t f = 0; f < change->out_count; f++)
        if (change->out_reason[f] == FEED_IS_GONE || !trajd_pipeline_is_configured(change->out[f]))
            append_name(text, "feeds gone: ", trajd_feeder_name(change->out[f]), &begun);
}

static void describe_datasets(const struct change *change, struct text *text)
{
    const struct trajd_holdings *now = change->pipeline->now, *next = change->next;
    bool begun = false;

    for (uint32_t d = 0; d < next->dataset_count; d++)
        if (change->is_new_dataset[d])
            append_name(text, "new or changed datasets: ", next->datasets[d]->name, &begun);
    begun = false;
    for (uint32_t d = 0; d < now->dataset_count; d++)
        if (!has_name(next, now->datasets[d]->name))
            append_name(text, "datasets gone: ", now->datasets[d]->name, &begun);
}

static void describe(const struct change *change, char *message, size_t size)
{
    struct text text = {message, size, 0};
    char names[256] = "";
    struct text keys = {names, sizeof names, 0};

    message[0] = 0;
    describe_feeds(change, &text);
    describe_datasets(change, &text);
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (!is_same_value(change->pipeline->now->config, change->next->config, &trajd_config_keys[k]))
            append_key(&keys, &trajd_config_keys[k]);
    if (keys.length)
        append(&text, "%skeys: %s", text.length ? "; " : "", names);
    if (!text.length)
        append(&text, "nothing has changed");
}

/* ---- all of it ---- */

static enum trajd_status prepare(struct change *change, struct trajd_error *error)
{
    const struct trajd_config_source *from = &change->pipeline->reload_from;
    enum trajd_status status = trajd_config_load(from->path, from->values, from->value_count, &change->next->config, error);

    if (status)
        return status;
    name_feeds(change->next);
    keep_shares(change->pipeline->now->config, change->next->config);
    if ((status = check_keys(change, error)))
        return status;
    match_datasets(change);
    judge_feeds(change);
    judge_feeders(change);
    if ((status = check_idle(change, error)) || (status = check_limits(change, error)) || (status = share_store(change, error)) ||
        (status = check_memory(change, error)))
        return status;
    status = open_datasets(change, error);
    return status ? status : make_feeds(change, error);
}

enum trajd_status trajd_reload_run(struct trajd_pipeline *pipeline, char *message, size_t size)
{
    struct change *change = calloc(1, sizeof *change);
    struct trajd_error error;
    enum trajd_status status;

    if (!change || !(change->next = calloc(1, sizeof *change->next))) {
        free(change);
        snprintf(message, size, "no memory for the new configuration");
        return TRAJD_ERR_MEMORY;
    }
    change->pipeline = pipeline;
    status = prepare(change, &error);
    if (!status) {
        describe(change, message, size);
        status = show(change, &error);
    }
    if (status) {
        snprintf(message, size, "%s", error.message);
        undo(change);
    } else {
        commit(change);
    }
    free(change);
    return status;
}
