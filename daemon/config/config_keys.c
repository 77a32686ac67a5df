/* The table of keys with a single value, with their defaults and limits. */
#include "daemon/config/config_keys.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/memory.h"
#include "proto/array_len.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND INT64_C(1000000000)
#define DAY (86400 * SECOND)
#define AT(member) offsetof(struct trajd_config, member)

const struct trajd_config_key trajd_config_keys[] = {
    {NULL, "version", KEY_COUNT, AT(version), 1, 2, 2},
    {NULL, "runtime", KEY_STRING, AT(runtime), 0, 0, 0},
    {NULL, "cache", KEY_STRING, AT(cache), 0, 0, 0},
    {NULL, "state", KEY_STRING, AT(state), 0, 0, 0},
    {NULL, "tuning", KEY_STRING, AT(tuning), 0, 0, 0},
    {NULL, "group_access", KEY_BOOL, AT(group_access), 0, 0, false},
    {NULL, "feed_idle", KEY_DURATION, AT(feed_idle_ns), SECOND / 10, 86400 * SECOND, 60 * SECOND},
    {NULL, "exit_idle", KEY_DURATION, AT(exit_idle_ns), 0, 86400 * SECOND, 0},
    {NULL, "journal_idle", KEY_DURATION, AT(journal_idle_ns), 0, 36500 * DAY, 90 * DAY},
    {"memory", "store", KEY_SIZE, AT(cache_bytes), 1 << 16, INT64_C(1) << 50, 1024 * MIB},
    {"memory", "rings", KEY_SIZE, AT(rings_bytes), 1 << 16, INT64_C(1) << 50, 1024 * MIB},
    {"memory", "reserve", KEY_SIZE, AT(reserve_bytes), 0, INT64_C(1) << 50, 256 * MIB},
    {"gpu", "devices", KEY_STRING, AT(gpu_devices), 0, 0, 0},
    {"gpu", "rows", KEY_SIZE, AT(gpu_rows_bytes), 1 << 16, INT64_C(1) << 50, 4096 * MIB},
    {"gpu", "rings", KEY_SIZE, AT(gpu_rings_bytes), 1 << 16, INT64_C(1) << 50, 512 * MIB},
    {"gpu", "fall_back", KEY_BOOL, AT(gpu_fall_back), 0, 0, false},
    {"threads", "readers", KEY_COUNT, AT(threads.readers), 0, 256, 0},
    {"threads", "resample", KEY_COUNT, AT(threads.resample), 0, 1024, 0},
    {"threads", "decoders", KEY_COUNT, AT(threads.decoders), 0, 256, 0},
    {"index", "children", KEY_COUNT, AT(index_children), 0, 256, 0},
    {"index", "file_timeout", KEY_DURATION, AT(index_file_timeout_ns), SECOND, 3600 * SECOND,
     60 * SECOND},
    {"listen", "tcp", KEY_STRING, AT(listen_tcp), 0, 0, 0},
    {"listen", "keys", KEY_STRING, AT(listen_keys), 0, 0, 0},
    {"listen", "worker_timeout", KEY_DURATION, AT(worker_timeout_ns), SECOND, 3600 * SECOND,
     10 * SECOND},
    {"listen", "insecure_loopback", KEY_BOOL, AT(insecure_loopback), 0, 0, false},
    {"limits", "sessions", KEY_COUNT, AT(max_sessions), 1, 65536, 256},
    {"limits", "feeds", KEY_COUNT, AT(max_feeds), 1, 1024, 16},
    {"limits", "credit", KEY_COUNT, AT(max_credit), 2, 1024, 16},
};
#define KEYS ARRAY_LEN(trajd_config_keys)
const size_t trajd_config_key_count = KEYS;
static_assert(KEYS <= TRAJD_CONFIG_MAX_KEYS,
              "struct trajd_config has room for the texts of all keys");

/* Reads a size: "64MiB", or "50%" of the memory that is free now. */
static enum trajd_status read_size(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node, uint64_t *bytes,
                                   struct trajd_error *error)
{
    struct trajd_memory memory;
    unsigned percent;
    int length = 0;

    if (node->kind != TRAJD_YAML_SCALAR || sscanf(node->value, "%3u%%%n", &percent, &length) != 1 ||
        !length || node->value[length])
        return trajd_yaml_size(yaml, node, bytes, error);
    if (percent < 1 || percent > 100)
        return trajd_yaml_error(
            yaml, node, error, "%s: must be between 1%% and 100%% of the free memory", node->value);
    trajd_memory_read(&memory);
    *bytes = trajd_memory_available(&memory) / 100 * percent;
    return TRAJD_OK;
}

enum trajd_status trajd_config_read_key(struct trajd_config *config,
                                        const struct trajd_config_key *key,
                                        const struct trajd_yaml *yaml,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_error *error)
{
    void *field = (char *)config + key->offset;
    enum trajd_status status = TRAJD_OK;
    int64_t number;

    config->texts[key - trajd_config_keys] = node->value;
    switch (key->type) {
    case KEY_STRING:
        return trajd_yaml_string(yaml, node, field, error);
    case KEY_BOOL:
        return trajd_yaml_bool(yaml, node, field, error);
    case KEY_COUNT:
        status = trajd_yaml_int(yaml, node, key->low, key->high, &number, error);
        if (!status)
            *(uint32_t *)field = (uint32_t)number;
        return status;
    case KEY_SIZE:
        status = read_size(yaml, node, field, error);
        if (!status &&
            (*(uint64_t *)field < (uint64_t)key->low || *(uint64_t *)field > (uint64_t)key->high))
            return trajd_yaml_error(yaml, node, error, "%s: must be between %lld and %lld bytes",
                                    node->value, (long long)key->low, (long long)key->high);
        return status;
    case KEY_DURATION:
        status = trajd_yaml_duration(yaml, node, field, error);
        if (!status && (*(int64_t *)field < key->low || *(int64_t *)field > key->high))
            return trajd_yaml_error(yaml, node, error, "%s: must be between %g s and %g s",
                                    node->value, (double)key->low / SECOND,
                                    (double)key->high / SECOND);
        return status;
    }
    return status;
}

void trajd_config_set_default(struct trajd_config *config, const struct trajd_config_key *key)
{
    void *field = (char *)config + key->offset;

    if (key->type == KEY_COUNT)
        *(uint32_t *)field = (uint32_t)key->initial;
    else if (key->type == KEY_SIZE)
        *(uint64_t *)field = (uint64_t)key->initial;
    else if (key->type == KEY_DURATION)
        *(int64_t *)field = key->initial;
}

bool trajd_config_key_is_named(const struct trajd_config_key *key, const char *name)
{
    const size_t length = key->section ? strlen(key->section) : 0;

    if (!key->section)
        return strcmp(name, key->name) == 0;
    return strncmp(name, key->section, length) == 0 && name[length] == '.' &&
           strcmp(name + length + 1, key->name) == 0;
}
