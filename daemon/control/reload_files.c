/* Finds new, changed and removed files of datasets whose lines are unchanged. Where workers read a
 * feed of such a dataset, it keeps its old files and stays as it is. Otherwise it is opened anew,
 * as after a restart. */
#include <limits.h>
#include <string.h>

#include "daemon/base/paths.h"
#include "daemon/control/reload_internal.h"

static bool lists_dataset(const struct trajd_window_spec *spec, const char *dataset)
{
    for (uint32_t p = 0; p < spec->member_count; p++)
        if (strcmp(spec->members[p].dataset, dataset) == 0)
            return true;
    return false;
}

/* Returns true where the feed uses the dataset, itself or through the feed that its statistics come
 * from. */
static bool uses_dataset(const struct trajd_config *config, const struct trajd_window_spec *spec,
                         const char *dataset)
{
    if (lists_dataset(spec, dataset))
        return true;
    for (uint32_t f = 0; spec->statistics_from && f < config->feed_count; f++)
        if (config->feeds[f] && strcmp(config->feeds[f]->feed_name, spec->statistics_from) == 0)
            return lists_dataset(config->feeds[f], dataset);
    return false;
}

static bool is_read(const struct trajd_control *control, const char *dataset)
{
    for (uint32_t f = 0; f < control->feeds.count; f++)
        if (uses_dataset(control->now->config, trajd_producer_spec(control->feeds.producers[f]),
                         dataset) &&
            !trajd_feed_is_idle(trajd_producer_feed(control->feeds.producers[f])))
            return true;
    return false;
}

void trajd_reload_look_for_files(struct trajd_reload_change *change)
{
    const struct trajd_control *control = change->control;
    struct trajd_open_config *next = change->next;
    char layouts[PATH_MAX];
    struct trajd_error error;

    if (!trajd_paths_layouts(layouts, sizeof layouts))
        return;
    for (uint32_t d = 0; d < next->dataset_count; d++) {
        const struct trajd_config_dataset *from = &next->config->datasets[d];
        const struct trajd_index_options options = {
            .path = from->path, .layout = from->layout, .layout_directory = layouts};
        struct trajd_file_changes *file_changes = &change->file_changes[d];
        if (change->is_new_dataset[d])
            continue;
        if (trajd_index_find_changes(&options, next->datasets[d]->index, file_changes, &error)) {
            LOG(control->log, WARNING, "dataset %s: cannot look for new files: %s", from->name,
                error.message);
            continue;
        }
        if (!trajd_file_changes_any(file_changes))
            continue;
        if (is_read(control, from->name)) {
            change->not_taken[d] = "workers read the dataset; reload after they have ended, or "
                                   "configure the path under another name, too";
            continue;
        }
        change->is_new_dataset[d] = true;
        next->datasets[d] = NULL;
    }
}

bool trajd_reload_put_off_files(struct trajd_reload_change *change)
{
    static const char again[] =
        "there is no memory for it beside the other new datasets; reload again";
    static const char restart[] =
        "there is no memory for it beside the one that is open; restart the daemon";
    struct trajd_open_config *next = change->next;
    uint32_t last = UINT32_MAX, new_count = 0;

    for (uint32_t d = 0; d < next->dataset_count; d++) {
        new_count += change->is_new_dataset[d];
        if (change->is_new_dataset[d] && trajd_file_changes_any(&change->file_changes[d]))
            last = d;
    }
    if (last == UINT32_MAX)
        return false;
    change->is_new_dataset[last] = false;
    next->datasets[last] =
        trajd_open_config_find(change->control->now, next->config->datasets[last].name);
    change->not_taken[last] = again;
    for (uint32_t d = 0; d < next->dataset_count && new_count == 1; d++)
        if (change->not_taken[d] == again)
            change->not_taken[d] = restart;
    return true;
}
