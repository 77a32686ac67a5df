#include "daemon/control/reload_internal.h"

#include <string.h>

/* What counts from the moment of a reload on; the other keys' values are built into what runs. */
static const char *const live_keys[] = {
    "feed_idle",      "exit_idle",      "journal_idle",       "memory.store", "memory.rings",
    "memory.reserve", "index.children", "index.file_timeout", "limits.feeds", NULL};

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

bool trajd_reload_is_same_value(const struct trajd_config *a, const struct trajd_config *b,
                                const struct trajd_config_key *key)
{
    const char *const left = (const char *)a + key->offset, *const right =
                                                                (const char *)b + key->offset;
    const char *left_text, *right_text;

    switch (key->type) {
    case KEY_STRING:
        left_text = *(const char *const *)left;
        right_text = *(const char *const *)right;
        return left_text && right_text ? strcmp(left_text, right_text) == 0
                                       : left_text == right_text;
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
void trajd_reload_keep_shares(const struct trajd_config *now, struct trajd_config *next)
{
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (trajd_config_keys[k].type == KEY_SIZE && now->texts[k] && next->texts[k] &&
            strcmp(now->texts[k], next->texts[k]) == 0)
            memcpy((char *)next + trajd_config_keys[k].offset,
                   (const char *)now + trajd_config_keys[k].offset, sizeof(uint64_t));
}

enum trajd_status trajd_reload_check_keys(const struct trajd_reload_change *change,
                                          struct trajd_error *error)
{
    char names[384] = "";
    struct trajd_reload_text text = {names, sizeof names, 0};

    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (!is_live(&trajd_config_keys[k]) &&
            !trajd_reload_is_same_value(change->control->now->config, change->next->config,
                                        &trajd_config_keys[k]))
            trajd_reload_append_key(&text, &trajd_config_keys[k]);
    if (!text.length)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                           "%s: cannot change while the daemon runs: restart it", names);
}
