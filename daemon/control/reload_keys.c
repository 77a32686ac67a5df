#include "daemon/control/reload_internal.h"

#include <stdio.h>
#include <string.h>

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
