#include "daemon/control/reload_internal.h"

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
            !trajd_feed_name_is_configured(trajd_producer_name(change->out[f])))
            append_name(text, "feeds gone: ", trajd_producer_name(change->out[f]), &begun);
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
