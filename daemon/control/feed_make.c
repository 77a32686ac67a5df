#include "daemon/control/control_internal.h"

#include <stdlib.h>

#include "daemon/control/feed_name.h"

const char *trajd_control_state_directory(const struct trajd_control *control)
{
    const struct trajd_config *config = control->first_config;

    return config->state ? config->state : getenv("STATE_DIRECTORY");
}

uint64_t trajd_control_rings_remaining_bytes(struct trajd_control *control)
{
    const uint64_t budget_bytes = control->now->config->rings_bytes;
    uint64_t used_bytes;

    pthread_mutex_lock(&control->mutex);
    used_bytes = trajd_feed_list_ring_bytes(&control->feeds);
    pthread_mutex_unlock(&control->mutex);
    return budget_bytes > used_bytes ? budget_bytes - used_bytes : 0;
}

enum trajd_status trajd_control_make_producer(struct trajd_control *control,
                                              const struct trajd_open_config *open_config,
                                              const struct trajd_feed_source *source,
                                              uint64_t rings_remaining_bytes,
                                              struct trajd_producer **producer,
                                              struct trajd_error *error)
{
    struct trajd_window_spec *spec = source->spec;
    const struct trajd_window_spec *statistics_spec =
        spec->statistics_from ? trajd_open_config_find_spec(open_config, spec->statistics_from)
                              : NULL;
    struct trajd_dataset *datasets[TRAJD_CONFIG_MAX_DATASETS];
    const struct trajd_producer_options options = {
        .name = source->name,
        .instance_of = source->instance_of,
        .spec = spec,
        .owns_spec = source->text != NULL,
        .is_hidden = source->is_hidden,
        .text = source->text,
        .datasets = datasets,
        .tuning = control->first_config->tuning_table,
        .pool = control->pool,
        .server = control->server,
        .journal_directory = trajd_control_state_directory(control),
        .max_credit = control->first_config->max_credit,
        .rings_remaining_bytes = rings_remaining_bytes,
        .stats_service = control->stats_service,
        .statistics_spec = statistics_spec,
        .statistics_dataset =
            statistics_spec
                ? trajd_open_config_find(open_config, statistics_spec->members[0].dataset)
                : NULL,
        .gpu = source->gpu,
        .gpu_lost = trajd_control_on_gpu_lost,
        .context = control,
        .log = control->log};

    for (uint32_t p = 0; p < spec->member_count; p++)
        if (!(datasets[p] = trajd_open_config_find(open_config, spec->members[p].dataset)))
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "feed %s: no dataset %s in this daemon's configuration",
                                   source->name, spec->members[p].dataset);
    return trajd_producer_create(&options, producer, error);
}

bool trajd_control_close_unread(struct trajd_control *control)
{
    struct trajd_producer *producer;

    pthread_mutex_lock(&control->mutex);
    producer = trajd_feed_list_remove_unread(&control->feeds);
    pthread_mutex_unlock(&control->mutex);
    if (!producer)
        return false;
    LOG(control->log, INFO,
        "feed %s: closed, because no worker reads it and another feed needs room",
        trajd_producer_name(producer));
    trajd_producer_destroy(&producer);
    return true;
}

enum trajd_status trajd_control_add_producer(struct trajd_control *control,
                                             const struct trajd_feed_source *source,
                                             struct trajd_producer **producer,
                                             struct trajd_error *error)
{
    enum trajd_status status;

    while (control->feeds.count >= control->now->config->max_feeds &&
           trajd_control_close_unread(control))
        ;
    if (control->feeds.count >= control->now->config->max_feeds)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: %u feeds are open, and limits.feeds is %u", source->name,
                               control->feeds.count, control->now->config->max_feeds);
    do
        status = trajd_control_make_producer(control, control->now, source,
                                             trajd_control_rings_remaining_bytes(control), producer,
                                             error);
    while (status == TRAJD_ERR_MEMORY && trajd_control_close_unread(control));
    if (status == TRAJD_ERR_DEVICE && source->gpu)
        trajd_control_suspect_gpu(control, source->gpu, error);
    if (status)
        return status;
    pthread_mutex_lock(&control->mutex);
    trajd_feed_list_add(&control->feeds, *producer);
    pthread_mutex_unlock(&control->mutex);
    return TRAJD_OK;
}

static void warn_of_pair(struct trajd_control *control, const struct trajd_producer *a,
                         const struct trajd_producer *b, FILE *report)
{
    const char *first = trajd_producer_name(a), *second = trajd_producer_name(b);
    const char *output = trajd_producer_norm_differs(a, b);
    char line[1024];

    if (!output)
        return;
    snprintf(line, sizeof line,
             "feeds %s and %s normalise output %s by the statistics of different windows: set "
             "`statistics_from: %s` in feed %s to normalise both alike",
             first, second, output, first, second);
    LOG(control->log, WARNING, "%s", line);
    if (report)
        fprintf(report, "warning: %s\n", line);
}

void trajd_control_warn_of_norms(struct trajd_control *control, FILE *report)
{
    const struct trajd_feed_list *feeds = &control->feeds;

    for (uint32_t a = 0; a < feeds->count; a++)
        for (uint32_t b = a + 1; b < feeds->count; b++)
            warn_of_pair(control, feeds->producers[a], feeds->producers[b], report);
}
