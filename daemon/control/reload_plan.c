/* Compares two configurations, and decides which datasets and feeds stay open during a reload. */
#include "daemon/control/reload_internal.h"

#include <string.h>

#include "daemon/base/memory.h"

#define MIN_CACHE_BYTES (UINT64_C(1) << 16)
#define MIB (UINT64_C(1) << 20)

/* ---- what stays ---- */

const struct trajd_yaml_node *trajd_reload_feed_node(const struct trajd_config *config,
                                                     const char *name)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(config->yaml), "feeds");
    return feeds ? trajd_yaml_get(feeds, name) : NULL;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Compares two nodes and their children. The parser limits the depth of a document. */
static bool is_same_node(const struct trajd_yaml_node *a, const struct trajd_yaml_node *b)
{
    if (a->kind != b->kind || a->quoted != b->quoted || !is_same_text(a->key, b->key) ||
        !is_same_text(a->value, b->value) || a->child_count != b->child_count)
        return false;
    for (a = a->children, b = b->children; a && b; a = a->next, b = b->next)
        if (!is_same_node(a, b))
            return false;
    return true;
}

static bool have_same_rates(const struct trajd_config_dataset *a,
                            const struct trajd_config_dataset *b)
{
    bool is_same = a->rate.num == b->rate.num && a->rate.den == b->rate.den &&
                   a->clock_rate_count == b->clock_rate_count;

    for (uint32_t i = 0; i < a->clock_rate_count && is_same; i++) {
        const struct trajd_clock_rate *left = &a->clock_rates[i], *right = &b->clock_rates[i];
        is_same = !strcmp(left->clock, right->clock) && left->rate.num == right->rate.num &&
                  left->rate.den == right->rate.den;
    }
    return is_same;
}

static void match_datasets(struct trajd_reload_change *change)
{
    const struct trajd_open_config *now = change->control->now;
    struct trajd_open_config *next = change->next;

    next->dataset_count = next->config->dataset_count;
    for (uint32_t d = 0; d < next->dataset_count; d++) {
        const struct trajd_config_dataset *wanted = &next->config->datasets[d];
        change->is_new_dataset[d] = true;
        for (uint32_t n = 0; n < now->dataset_count; n++) {
            const struct trajd_config_dataset *have = &now->config->datasets[n];
            if (strcmp(wanted->name, have->name) || strcmp(wanted->path, have->path) ||
                strcmp(wanted->layout, have->layout) || !have_same_rates(wanted, have) ||
                wanted->color != have->color || !is_same_text(wanted->media, have->media))
                continue;
            change->is_new_dataset[d] = false;
            next->datasets[d] = now->datasets[n];
        }
    }
}

bool trajd_reload_stays_open(const struct trajd_reload_change *change,
                             const struct trajd_dataset *dataset)
{
    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        if (change->next->datasets[d] == dataset)
            return true;
    return false;
}

/* Returns the first dataset of the specification that does not stay open; NULL: all stay. */
static const char *changed_dataset(const struct trajd_reload_change *change,
                                   const struct trajd_window_spec *spec)
{
    for (uint32_t p = 0; p < spec->member_count; p++) {
        const struct trajd_dataset *dataset =
            trajd_open_config_find(change->control->now, spec->members[p].dataset);
        if (!dataset || !trajd_reload_stays_open(change, dataset))
            return spec->members[p].dataset;
    }
    return NULL;
}

/* Returns whether a file of `ranges:` has another content. */
static bool ranges_have_changed(const struct trajd_reload_change *change,
                                const struct trajd_window_spec *spec)
{
    const struct trajd_window_spec *before =
        trajd_open_config_find_spec(change->control->now, spec->feed_name);

    return before && trajd_spec_ranges_digest(before) != trajd_spec_ranges_digest(spec);
}

/* Returns whether the feed stays: its own lines, its ranges and its datasets decide. */
static enum trajd_reload_reason validate_feed(const struct trajd_reload_change *change,
                                              const struct trajd_window_spec *spec,
                                              const char **cause)
{
    const struct trajd_yaml_node *before =
        trajd_reload_feed_node(change->control->now->config, spec->feed_name);

    if (!before ||
        !is_same_node(before, trajd_reload_feed_node(change->next->config, spec->feed_name)) ||
        ranges_have_changed(change, spec))
        return TRAJD_FEED_HAS_CHANGED;
    *cause = changed_dataset(change, spec);
    return *cause ? TRAJD_FEED_DATASET_HAS_CHANGED : TRAJD_FEED_STAYS;
}

static void validate_feeds(struct trajd_reload_change *change)
{
    const struct trajd_config *config = change->next->config;

    for (uint32_t f = 0; f < config->feed_count; f++)
        change->feed_reason[f] = validate_feed(change, config->feeds[f], &change->feed_cause[f]);
    for (uint32_t f = 0; f < config->feed_count; f++)
        for (uint32_t s = 0; s < config->feed_count && config->feeds[f]->statistics_from; s++) {
            const char *from = config->feeds[f]->statistics_from, *cause;
            if (strcmp(config->feeds[s]->feed_name, from) ||
                change->feed_reason[f] != TRAJD_FEED_STAYS ||
                validate_feed(change, config->feeds[s], &cause) == TRAJD_FEED_STAYS)
                continue;
            change->feed_reason[f] = TRAJD_FEED_STATISTICS_HAVE_CHANGED;
            change->feed_cause[f] = from;
        }
}

/* Returns the feed that statistics_from names if it was changed or removed, else NULL. */
static const char *changed_statistics(const struct trajd_reload_change *change,
                                      const struct trajd_window_spec *spec)
{
    const struct trajd_config *config = change->next->config;
    const char *cause;

    for (uint32_t f = 0; spec->statistics_from && f < config->feed_count; f++)
        if (strcmp(config->feeds[f]->feed_name, spec->statistics_from) == 0)
            return validate_feed(change, config->feeds[f], &cause) == TRAJD_FEED_STAYS
                       ? NULL
                       : spec->statistics_from;
    return spec->statistics_from;
}

/* Returns whether the producer stays. A configured feed is compared with its new lines, a feed that
 * a job sent depends on its datasets and statistics. */
static enum trajd_reload_reason validate_producer(const struct trajd_reload_change *change,
                                                  const struct trajd_producer *producer,
                                                  const char **cause)
{
    const char *name = producer->name;
    const size_t length = trajd_feed_name_base_length(name);

    *cause = NULL;
    if (!trajd_feed_name_is_configured(name)) {
        if ((*cause = changed_dataset(change, producer->spec)))
            return TRAJD_FEED_DATASET_HAS_CHANGED;
        *cause = changed_statistics(change, producer->spec);
        return *cause ? TRAJD_FEED_STATISTICS_HAVE_CHANGED : TRAJD_FEED_STAYS;
    }
    for (uint32_t f = 0; f < change->next->config->feed_count; f++) {
        const char *wanted = change->next->config->feeds[f]->feed_name;
        if (strlen(wanted) != length || strncmp(wanted, name, length) != 0)
            continue;
        *cause = change->feed_cause[f];
        return change->feed_reason[f];
    }
    return TRAJD_FEED_IS_GONE;
}

static void validate_producers(struct trajd_reload_change *change)
{
    struct trajd_control *control = change->control;

    change->out_count = 0;
    for (uint32_t f = 0; f < control->feeds.count; f++) {
        const char *cause;
        const enum trajd_reload_reason reason =
            validate_producer(change, control->feeds.producers[f], &cause);
        if (reason == TRAJD_FEED_STAYS)
            continue;
        change->out[change->out_count] = control->feeds.producers[f];
        change->out_cause[change->out_count] = cause;
        change->out_reason[change->out_count++] = reason;
    }
}

bool trajd_reload_close_unread(struct trajd_reload_change *change)
{
    if (!trajd_control_close_unread(change->control))
        return false;
    validate_producers(change);
    return true;
}

bool trajd_reload_goes(const struct trajd_reload_change *change,
                       const struct trajd_producer *producer)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        if (change->out[f] == producer)
            return true;
    return false;
}

/* ---- refusals ---- */

enum trajd_status trajd_reload_refuse_busy(const struct trajd_reload_change *change, uint32_t index,
                                           struct trajd_error *error)
{
    const char *name = change->out[index]->name, *cause = change->out_cause[index];
    const char *const advice = "and workers read it; a running feed is never changed: wait until "
                               "they end, or use another name for the new one";

    switch (change->out_reason[index]) {
    case TRAJD_FEED_IS_GONE:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "feeds.%s: was removed, but workers read it: wait until they end",
                               name);
    case TRAJD_FEED_DATASET_HAS_CHANGED:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "datasets.%s: was changed or removed, feed %s uses it, %s", cause,
                               name, advice);
    case TRAJD_FEED_STATISTICS_HAVE_CHANGED:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "feeds.%s: was changed, feed %s takes its statistics from it, %s",
                               cause, name, advice);
    default:
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feeds.%s: was changed, %s", name, advice);
    }
}

static enum trajd_status check_idle(const struct trajd_reload_change *change,
                                    struct trajd_error *error)
{
    for (uint32_t f = 0; f < change->out_count; f++)
        if (!trajd_feed_is_idle(change->out[f]->feed))
            return trajd_reload_refuse_busy(change, f, error);
    return TRAJD_OK;
}

uint64_t trajd_reload_rings_of(const struct trajd_reload_change *change, bool out)
{
    uint64_t bytes = 0;

    for (uint32_t f = 0; f < change->control->feeds.count; f++)
        if (trajd_reload_goes(change, change->control->feeds.producers[f]) == out)
            bytes += trajd_producer_ring_bytes(change->control->feeds.producers[f]);
    return bytes;
}

static uint32_t count_new_feeds(const struct trajd_reload_change *change)
{
    uint32_t count = 0;

    for (uint32_t f = 0; f < change->next->config->feed_count; f++)
        count += change->feed_reason[f] != TRAJD_FEED_STAYS;
    return count;
}

static enum trajd_status check_limits(const struct trajd_reload_change *change,
                                      struct trajd_error *error)
{
    const struct trajd_config *config = change->next->config;
    const uint32_t feeds =
        change->control->feeds.count - change->out_count + count_new_feeds(change);

    if (feeds > config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "limits.feeds: %u, but there would be %u feeds, including those of "
                               "jobs and further instances",
                               config->max_feeds, feeds);
    if (trajd_reload_rings_of(change, false) > config->rings_bytes &&
        trajd_config_states(config, "memory.rings"))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "memory.rings: %llu bytes, but the feeds that stay need %llu",
                               (unsigned long long)config->rings_bytes,
                               (unsigned long long)trajd_reload_rings_of(change, false));
    return TRAJD_OK;
}

/* Divides memory.store. A cache never shrinks: datasets that stay keep their share, and new ones
 * divide the remainder. */
static enum trajd_status share_cache(struct trajd_reload_change *change, struct trajd_error *error)
{
    const struct trajd_open_config *next = change->next;
    const uint64_t all = next->config->cache_bytes;
    uint64_t kept_bytes = 0;
    uint32_t new_count = 0;
    const char *name = "";

    for (uint32_t d = 0; d < next->dataset_count; d++) {
        struct trajd_cache_stats stats;
        if (change->is_new_dataset[d]) {
            new_count++;
            name = next->config->datasets[d].name;
            continue;
        }
        trajd_cache_get_stats(next->datasets[d]->cache, &stats);
        kept_bytes += stats.budget_bytes;
    }
    if (kept_bytes > all)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "memory.store: %llu MiB, but the datasets that stay have %llu MiB: "
                               "it cannot shrink while the daemon runs",
                               (unsigned long long)(all / MIB),
                               (unsigned long long)(kept_bytes / MIB));
    if (new_count && (all - kept_bytes) / new_count < MIN_CACHE_BYTES)
        return trajd_error_set(
            error, TRAJD_ERR_MEMORY, 0,
            "memory.store: the datasets that stay have all of its %llu MiB: raise it to make room "
            "for datasets.%s",
            (unsigned long long)(all / MIB), name);
    if (new_count)
        change->cache_share_bytes = (all - kept_bytes) / new_count;
    else
        change->cache_raise_bytes = (all - kept_bytes) / next->dataset_count;
    return TRAJD_OK;
}

/* Checks that memory suffices while new parts exist beside those that go. */
static enum trajd_status check_memory(const struct trajd_reload_change *change,
                                      struct trajd_error *error)
{
    const struct trajd_config *now = change->control->now->config, *next = change->next->config;
    struct trajd_memory memory;
    uint64_t wanted =
        next->rings_bytes > now->rings_bytes ? next->rings_bytes - now->rings_bytes : 0;

    for (uint32_t d = 0; d < change->next->dataset_count; d++)
        wanted += change->is_new_dataset[d] ? change->cache_share_bytes : change->cache_raise_bytes;
    if (count_new_feeds(change))
        wanted += trajd_reload_rings_of(change, true);
    trajd_memory_read(&memory);
    if (!wanted || wanted + next->reserve_bytes <= trajd_memory_available(&memory))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                           "memory.store and memory.rings need %llu MiB more, but only %llu MiB "
                           "are free, of which memory.reserve must stay free",
                           (unsigned long long)(wanted / MIB),
                           (unsigned long long)(trajd_memory_available(&memory) / MIB));
}

enum trajd_status trajd_reload_plan(struct trajd_reload_change *change, struct trajd_error *error)
{
    enum trajd_status status;

    trajd_reload_keep_shares(change->control->now->config, change->next->config);
    if ((status = trajd_reload_check_keys(change, error)))
        return status;
    match_datasets(change);
    trajd_reload_look_for_files(change);
    /* changed files alone never make a reload fail: a dataset without room waits for the next one
     * */
    do {
        change->cache_share_bytes = change->cache_raise_bytes = 0;
        validate_feeds(change);
        validate_producers(change);
        if ((status = check_idle(change, error)))
            return status;
        while ((status = check_limits(change, error)) && trajd_reload_close_unread(change))
            ;
        if (status || (status = share_cache(change, error)))
            return status;
        status = check_memory(change, error);
    } while (status && trajd_reload_put_off_files(change));
    return status;
}
