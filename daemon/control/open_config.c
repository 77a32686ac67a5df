#include "daemon/control/control_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/paths.h"
#include "proto/plural.h"

enum { UNREAD_LOGGED = 16 };

const char *trajd_control_cache_directory(const struct trajd_config *config)
{
    return config->cache ? config->cache : getenv("CACHE_DIRECTORY");
}

uint32_t trajd_control_processor_count(void)
{
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t trajd_control_decoder_count(const struct trajd_config *config)
{
    return config->decoder_threads ? config->decoder_threads : trajd_control_processor_count();
}

/* Logs rows that the layout's policies for stamps leave out of kept episodes. */
static void log_dropped_rows(const struct trajd_control *control,
                             const struct trajd_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        unsigned long long dropped = 0, kept = 0;
        for (uint32_t e = 0; e < index->episode_count; e++) {
            if (index->episodes[e].quarantine)
                continue;
            dropped += index->episodes[e].clocks[c].dropped_rows;
            kept += (unsigned long long)index->episodes[e].clocks[c].row_count;
        }
        if (dropped)
            LOG(control->log, WARNING,
                "dataset %s: clock %s: %llu of %llu rows are left out: their stamps repeat or go "
                "back",
                dataset->name, index->clocks[c].name, dropped, dropped + kept);
    }
}

static void log_quarantine(const struct trajd_control *control, const struct trajd_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    LOG(control->log, INFO, "dataset %s: %u file%s (%u from the cache), %u episode%s kept of %u",
        dataset->name, index->file_count, trajd_plural(index->file_count), index->cached_file_count,
        index->kept_count, trajd_plural(index->kept_count),
        index->episode_count + index->refused_file_count);
    if (index->cache_errno)
        LOG(control->log, WARNING,
            "dataset %s: its index cannot be written to the directory of caches: %s: the next "
            "start reads all files again",
            dataset->name, strerror(index->cache_errno));
    for (uint32_t n = 0; n < index->unread_count && n < UNREAD_LOGGED; n++)
        LOG(control->log, WARNING, "dataset %s: %s", dataset->name, index->notes[n]);
    if (index->unread_count > UNREAD_LOGGED)
        LOG(control->log, WARNING,
            "dataset %s: %u files in all are left out: trajctl inspect lists them", dataset->name,
            index->unread_count);
    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            LOG(control->log, WARNING, "dataset %s: refused: %s", dataset->name,
                index->files[f].refusal);
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (index->episodes[e].quarantine)
            LOG(control->log, WARNING, "dataset %s: quarantined: %s", dataset->name,
                index->episodes[e].quarantine);
    log_dropped_rows(control, dataset);
}

enum trajd_status trajd_control_open_dataset(struct trajd_control *control,
                                             const struct trajd_config *config,
                                             const struct trajd_config_dataset *from,
                                             uint64_t cache_bytes, struct trajd_dataset **dataset,
                                             struct trajd_error *error)
{
    char helper[PATH_MAX], layouts[PATH_MAX];
    const struct trajd_dataset_options options = {
        .name = from->name,
        .decoders = control->decoders,
        .decoder_count = trajd_control_decoder_count(config),
        .cache_budget_bytes = cache_bytes,
        .reader_count = config->reader_threads,
        .index = {.path = from->path,
                  .layout = from->layout,
                  .layout_directory = layouts,
                  .cache_directory = trajd_control_cache_directory(config),
                  .helper_path = helper,
                  .child_count = config->index_children ? config->index_children
                                                        : trajd_control_processor_count(),
                  .file_timeout_ms = (uint32_t)(config->index_file_timeout_ns / 1000000),
                  .rate = from->rate,
                  .color = from->color}};
    enum trajd_status status;

    if (!trajd_paths_helper(helper, sizeof helper) || !trajd_paths_layouts(layouts, sizeof layouts))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "cannot find trajd-indexer or the layouts, neither beside this program nor below its "
            "prefix: install trajd completely");
    status = trajd_dataset_open(&options, dataset, error);
    if (!status)
        log_quarantine(control, *dataset);
    return status;
}

struct trajd_dataset *trajd_open_config_find(const struct trajd_open_config *open_config,
                                             const char *name)
{
    for (uint32_t d = 0; d < open_config->dataset_count; d++)
        if (strcmp(open_config->datasets[d]->name, name) == 0)
            return open_config->datasets[d];
    return NULL;
}

int64_t trajd_open_config_at_most(const struct trajd_open_config *open_config, const char *name)
{
    const struct trajd_config *config = open_config->config;

    for (uint32_t d = 0; d < config->dataset_count; d++)
        if (strcmp(config->datasets[d].name, name) == 0)
            return config->datasets[d].quarantine_at_most;
    return -1;
}

struct trajd_window_spec *trajd_open_config_find_spec(const struct trajd_open_config *open_config,
                                                      const char *name)
{
    const struct trajd_config *config = open_config->config;

    for (uint32_t f = 0; f < config->feed_count; f++)
        if (strcmp(config->feeds[f]->feed_name, name) == 0)
            return config->feeds[f];
    return NULL;
}
