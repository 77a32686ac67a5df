/* What has changed: single keys, and files of datasets whose lines are unchanged. */
#include "daemon/control/reload_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/paths.h"

/* ---- keys ---- */

/* ---- text ---- */

void trajd_reload_append_key(struct trajd_text *text, const struct trajd_config_key *key)
{
    trajd_text_add(text, "%s%s%s%s", text->used ? ", " : "", key->section ? key->section : "",
                   key->section ? "." : "", key->name);
}

/* ---- keys ---- */

/* The keys that a reload can change. The values of all other keys are built into running parts. */
static const char *const live_keys[] = {
    "feed_idle",      "exit_idle",      "journal_idle",       "memory.store", "memory.rings",
    "memory.reserve", "index.children", "index.file_timeout", "limits.feeds", NULL};

static bool is_live(const struct trajd_config_key *key)
{
    for (const char *const *name = live_keys; *name; name++)
        if (trajd_config_key_is_named(key, *name))
            return true;
    return false;
}

bool trajd_reload_is_same_value(const struct trajd_config *a, const struct trajd_config *b,
                                const struct trajd_config_key *key)
{
    const char *const value_a = (const char *)a + key->offset;
    const char *const value_b = (const char *)b + key->offset;
    const char *text_a, *text_b;

    switch (key->type) {
    case KEY_STRING:
        text_a = *(const char *const *)value_a;
        text_b = *(const char *const *)value_b;
        return text_a && text_b ? strcmp(text_a, text_b) == 0 : text_a == text_b;
    case KEY_BOOL:
        return *(const bool *)value_a == *(const bool *)value_b;
    case KEY_COUNT:
        return *(const uint32_t *)value_a == *(const uint32_t *)value_b;
    case KEY_SIZE:
        return *(const uint64_t *)value_a == *(const uint64_t *)value_b;
    case KEY_DURATION:
        return *(const int64_t *)value_a == *(const int64_t *)value_b;
    }
    return false;
}

void trajd_reload_keep_shares(const struct trajd_config *now, struct trajd_config *next)
{
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (trajd_config_keys[k].type == KEY_SIZE &&
            (now->texts[k] && next->texts[k] ? strcmp(now->texts[k], next->texts[k]) == 0
                                             : now->texts[k] == next->texts[k]))
            memcpy((char *)next + trajd_config_keys[k].offset,
                   (const char *)now + trajd_config_keys[k].offset, sizeof(uint64_t));
}

enum trajd_status trajd_reload_check_keys(const struct trajd_reload_change *change,
                                          struct trajd_error *error)
{
    char names[384] = "";
    struct trajd_text text = {names, sizeof names, 0};

    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (!is_live(&trajd_config_keys[k]) &&
            !trajd_reload_is_same_value(change->control->now->config, change->next->config,
                                        &trajd_config_keys[k]))
            trajd_reload_append_key(&text, &trajd_config_keys[k]);
    if (!text.used)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "%s: cannot change while the daemon runs: restart the daemon", names);
}

/* Finds new, changed and removed files of datasets whose lines are unchanged. Where workers read a
 * feed of such a dataset, it keeps its old files and stays as it is. Otherwise it is opened again,
 * as after a restart. */

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
        if (uses_dataset(control->now->config, control->feeds.producers[f]->spec, dataset) &&
            !trajd_feed_is_idle(control->feeds.producers[f]->feed))
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
        const struct trajd_index_options options = {.path = from->path,
                                                    .layout = from->layout,
                                                    .layout_directory = layouts,
                                                    .version = next->config->version};
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
