/* Reads trajd.yaml: its sections, datasets and feeds, the values of the command line, and the paths. */
#include "daemon/config/config_keys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/tuning.h"
#include "proto/array_len.h"
#include "proto/plural.h"
#include "proto/regular_file.h"
#include "proto/visible.h"

static const char *const sections[] = {"memory", "gpu",    "threads", "index",
                                       "listen", "limits", NULL};

static bool is_in_section(const struct trajd_config_key *key, const char *section)
{
    return section && key->section ? !strcmp(key->section, section) : section == key->section;
}

/* Reads the keys of one section. NULL: the top level, which also has the sections, `version`,
 * `datasets` and `feeds`. */
static enum trajd_status read_section(struct trajd_config *config, const char *section,
                                      const struct trajd_yaml_node *node, struct trajd_error *error)
{
    const char *allowed[TRAJD_CONFIG_MAX_KEYS + ARRAY_LEN(sections) + 4] = {NULL};
    size_t count = 0;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(config->yaml, node, error, "must be a mapping of keys");
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (is_in_section(&trajd_config_keys[k], section))
            allowed[count++] = trajd_config_keys[k].name;
    if (!section) {
        for (size_t s = 0; sections[s]; s++)
            allowed[count++] = sections[s];
        allowed[count++] = "datasets";
        allowed[count++] = "feeds";
    }
    if ((status = trajd_yaml_check_keys(config->yaml, node, allowed, error)))
        return status;
    for (size_t k = 0; k < trajd_config_key_count; k++) {
        const struct trajd_config_key *key = &trajd_config_keys[k];
        const struct trajd_yaml_node *child;
        child = is_in_section(key, section) ? trajd_yaml_get(node, key->name) : NULL;
        if (child && (status = trajd_config_read_key(config, key, config->yaml, child, error)))
            return status;
    }
    return TRAJD_OK;
}

/* Checks a name of a dataset or feed. Names become parts of file names, messages and documents. */
static enum trajd_status check_name(const struct trajd_config *config,
                                    const struct trajd_yaml_node *node, struct trajd_error *error)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const size_t length = strlen(node->key);

    if (length > 0 && length <= 64 && strspn(node->key, allowed) == length && node->key[0] != '.')
        return TRAJD_OK;
    return trajd_yaml_error(
        config->yaml, node, error,
        "a name is 1 to 64 letters, digits, '_', '-' and '.', and does not begin with '.'");
}

/* Reads `quarantine: {at_most: N}`. */
static enum trajd_status read_quarantine(const struct trajd_config *config,
                                         const struct trajd_yaml_node *node, int64_t *at_most,
                                         struct trajd_error *error)
{
    static const char *const keys[] = {"at_most", NULL};
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count)
        return trajd_yaml_error(config->yaml, node, error,
                                "must be {at_most: N}, a number of episodes");
    status = trajd_yaml_check_keys(config->yaml, node, keys, error);
    return status ? status
                  : trajd_yaml_int(config->yaml, trajd_yaml_get(node, "at_most"), 0, UINT32_MAX,
                                   at_most, error);
}

/* Reads what a standard decoder gives of the dataset's encoded frames. */
static enum trajd_status read_color(const struct trajd_config *config,
                                    const struct trajd_yaml_node *node,
                                    enum trajd_image_color *color, struct trajd_error *error)
{
    static const char *const words[] = {"rgb", "bgr", NULL};
    int choice = 0;
    const enum trajd_status status = trajd_yaml_choice(config->yaml, node, words, &choice, error);

    *color = choice ? TRAJD_COLOR_BGR : TRAJD_COLOR_RGB;
    return status;
}

/* Reads "20", the rate of all regular clocks, or {steps: 20, force: 1000}. */
static enum trajd_status read_rates(struct trajd_config *config, const struct trajd_yaml_node *node,
                                    struct trajd_config_dataset *dataset, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_rate(config->yaml, node, &dataset->rate, error);
    if (!node->child_count || node->child_count > TRAJD_CONFIG_MAX_RATES)
        return trajd_yaml_error(config->yaml, node, error,
                                "must be a rate in Hz, or the rates of 1 to %d clocks",
                                TRAJD_CONFIG_MAX_RATES);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        struct trajd_clock_rate *rate = &dataset->clock_rates[dataset->clock_rate_count++];
        rate->clock = child->key;
        status = trajd_yaml_rate(config->yaml, child, &rate->rate, error);
    }
    return status;
}

static enum trajd_status read_dataset(struct trajd_config *config,
                                      const struct trajd_yaml_node *node, struct trajd_error *error)
{
    static const char *const keys[] = {"path",  "layout",     "rate", "color",
                                       "media", "quarantine", NULL};
    struct trajd_config_dataset *dataset = &config->datasets[config->dataset_count];
    const struct trajd_yaml_node *path, *layout, *rate, *color, *media, *quarantine;
    enum trajd_status status;

    if ((status = check_name(config, node, error)))
        return status;
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(config->yaml, node, error,
                                "must be {path: FILE OR FOLDER, layout: NAME, rate: HZ}");
    if ((status = trajd_yaml_check_keys(config->yaml, node, keys, error)))
        return status;
    path = trajd_yaml_get(node, "path");
    layout = trajd_yaml_get(node, "layout");
    rate = trajd_yaml_get(node, "rate");
    if (!path || !layout)
        return trajd_yaml_error(config->yaml, node, error, "`%s:` is missing",
                                path ? "layout" : "path");
    dataset->name = node->key;
    dataset->quarantine_at_most = -1;
    config->dataset_count++;
    status = trajd_yaml_string(config->yaml, path, &dataset->path, error);
    if (!status)
        status = trajd_yaml_string(config->yaml, layout, &dataset->layout, error);
    if (!status && rate)
        status = read_rates(config, rate, dataset, error);
    color = trajd_yaml_get(node, "color");
    if (!status && color)
        status = read_color(config, color, &dataset->color, error);
    media = trajd_yaml_get(node, "media");
    if (!status && media)
        status = trajd_yaml_string(config->yaml, media, &dataset->media, error);
    quarantine = trajd_yaml_get(node, "quarantine");
    if (!status && quarantine)
        status = read_quarantine(config, quarantine, &dataset->quarantine_at_most, error);
    return status;
}

static enum trajd_status read_datasets(struct trajd_config *config,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (!node || node->kind != TRAJD_YAML_MAPPING || !node->child_count ||
        node->child_count > TRAJD_CONFIG_MAX_DATASETS)
        return trajd_yaml_error(config->yaml, node ? node : trajd_yaml_root(config->yaml), error,
                                "`datasets:` must name 1 to %d datasets",
                                TRAJD_CONFIG_MAX_DATASETS);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_dataset(config, child, error);
    return status;
}

static enum trajd_status check_dataset(const struct trajd_config *config,
                                       const struct trajd_yaml_node *node, const char *name,
                                       struct trajd_error *error)
{
    const char *names[TRAJD_CONFIG_MAX_DATASETS];

    for (uint32_t d = 0; d < config->dataset_count; d++) {
        names[d] = config->datasets[d].name;
        if (strcmp(names[d], name) == 0)
            return TRAJD_OK;
    }
    return trajd_yaml_error(config->yaml, node, error, "there is no dataset %s%s", name,
                            trajd_yaml_suggest(" (", name, names, config->dataset_count, ")").text);
}

static enum trajd_status read_feed(struct trajd_config *config, const struct trajd_yaml_node *node,
                                   struct trajd_error *error)
{
    struct trajd_window_spec **spec = &config->feeds[config->feed_count];
    enum trajd_status status = check_name(config, node, error);

    if (!status)
        status =
            trajd_window_spec_parse(config->yaml, node, node->key, config->version, spec, error);
    if (status)
        return status;
    config->feed_count++;
    for (uint32_t i = 0; i < (*spec)->member_count && !status; i++)
        status =
            check_dataset(config, trajd_yaml_get(node, (*spec)->is_mixture ? "mix" : "dataset"),
                          (*spec)->members[i].dataset, error);
    return status;
}

static enum trajd_status read_feeds(struct trajd_config *config, const struct trajd_yaml_node *node,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (!node) /* jobs send all feeds */
        return TRAJD_OK;
    if (node->kind != TRAJD_YAML_MAPPING || node->child_count > config->max_feeds ||
        node->child_count > TRAJD_CONFIG_MAX_FEEDS)
        return trajd_yaml_error(config->yaml, node, error,
                                "must be a mapping of at most %u feed%s (limits.feeds)",
                                config->max_feeds, trajd_plural(config->max_feeds));
    status = trajd_config_resolve_like(config, node, error);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_feed(config, child, error);
    return status;
}

static enum trajd_status read_config(struct trajd_config *config, struct trajd_error *error)
{
    const struct trajd_yaml_node *root = trajd_yaml_root(config->yaml), *node;
    enum trajd_status status;

    for (size_t k = 0; k < trajd_config_key_count; k++)
        trajd_config_set_default(config, &trajd_config_keys[k]);
    if ((status = read_section(config, NULL, root, error)))
        return status;
    if (!trajd_yaml_get(root, "version"))
        return trajd_yaml_error(config->yaml, root, error, "`version: 2` is missing");
    for (size_t s = 0; sections[s]; s++)
        if ((node = trajd_yaml_get(root, sections[s])) &&
            (status = read_section(config, sections[s], node, error)))
            return status;
    if ((status = read_datasets(config, trajd_yaml_get(root, "datasets"), error)))
        return status;
    return read_feeds(config, trajd_yaml_get(root, "feeds"), error);
}

/* ---- values of the command line ---- */

static enum trajd_status unknown_key(const char *name, struct trajd_error *error)
{
    char texts[TRAJD_CONFIG_MAX_KEYS][64];
    const char *names[TRAJD_CONFIG_MAX_KEYS], *nearest;
    char shown[64];

    trajd_visible(shown, sizeof shown, name);
    for (size_t k = 0; k < trajd_config_key_count; k++) {
        const struct trajd_config_key *key = &trajd_config_keys[k];
        snprintf(texts[k], sizeof texts[k], "%s%s%s", key->section ? key->section : "",
                 key->section ? "." : "", key->name);
        names[k] = texts[k];
    }
    nearest = trajd_yaml_nearest(name, names, trajd_config_key_count);
    return trajd_error_set(
        error, TRAJD_ERR_ARGUMENT, 0, "command line: %s: no such key (%s%s)", shown,
        nearest ? "did you mean " : "keys are SECTION.NAME as in the file, such as memory.store",
        nearest ? nearest : "");
}

static bool is_given(const struct trajd_config *config, const struct trajd_config_key *key)
{
    const struct trajd_yaml_node *section = trajd_yaml_root(config->yaml);

    if (key->section)
        section = trajd_yaml_get(section, key->section);
    return section && trajd_yaml_get(section, key->name);
}

bool trajd_config_states(const struct trajd_config *config, const char *name)
{
    size_t k = 0;

    while (!trajd_config_key_is_named(&trajd_config_keys[k], name))
        k++;
    return config->is_set[k] || is_given(config, &trajd_config_keys[k]);
}

static enum trajd_status apply_value(struct trajd_config *config, const struct trajd_yaml *yaml,
                                     const struct trajd_config_value *value,
                                     struct trajd_error *error)
{
    const size_t length = strcspn(value->text, "=");
    struct trajd_yaml_node node = {
        .kind = TRAJD_YAML_SCALAR, .line = 1, .value = value->text + length + 1};
    char name[64], shown[64];
    size_t k = 0;

    if (!value->text[length] || length >= sizeof name) {
        trajd_visible(shown, sizeof shown, value->text);
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "command line: %s: must have the form KEY=VALUE", shown);
    }
    memcpy(name, value->text, length);
    name[length] = 0;
    node.path = name;
    while (k < trajd_config_key_count && !trajd_config_key_is_named(&trajd_config_keys[k], name))
        k++;
    if (k == trajd_config_key_count)
        return unknown_key(name, error);
    if (value->is_preset && (config->is_set[k] || is_given(config, &trajd_config_keys[k])))
        return TRAJD_OK;
    config->is_set[k] = !value->is_preset;
    return trajd_config_read_key(config, &trajd_config_keys[k], yaml, &node, error);
}

static enum trajd_status apply_values(struct trajd_config *config,
                                      const struct trajd_config_value *values, uint32_t count,
                                      struct trajd_error *error)
{
    struct trajd_yaml *name = NULL; /* an empty document: errors name it instead of a file */
    enum trajd_status status = trajd_yaml_parse("command line", "{}", 2, &name, error);

    for (uint32_t v = 0; v < count && !status; v++)
        status = apply_value(config, name, &values[v], error);
    trajd_yaml_destroy(&name);
    return status;
}

/* Resolves a path of the file against `folder`, the file's folder with symbolic links resolved.
 * Replaces *text by a new string, which the configuration owns. */
static enum trajd_status resolve_path(struct trajd_config *config, const char *folder,
                                      const char **text, struct trajd_error *error)
{
    const char *given = *text;
    char above[PATH_MAX], *resolved = NULL;

    snprintf(above, sizeof above, "%s", folder);
    while (*given != '/' && strncmp(given, "../", 3) == 0 && strrchr(above, '/')) {
        *strrchr(above, '/') = 0;
        given += 3;
    }
    if (asprintf(&resolved, "%s%s%s", *given == '/' ? "" : above, *given == '/' ? "" : "/", given) <
        0)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the configuration");
    config->resolved[config->resolved_count++] = resolved;
    *text = resolved;
    return TRAJD_OK;
}

static enum trajd_status load_files(const struct trajd_config *config,
                                    struct trajd_window_spec *spec, struct trajd_error *error)
{
    const enum trajd_status status = trajd_spec_norm_load(spec, config->folder, error);

    return status ? status : trajd_spec_ranges_load(spec, config->folder, error);
}

enum trajd_status trajd_config_load_files(const struct trajd_config *config,
                                          struct trajd_window_spec *spec, struct trajd_error *error)
{
    const char *file;

    for (uint32_t i = 0; (file = trajd_spec_file(spec, i)); i++) {
        bool is_known = false;
        const char *known;
        for (uint32_t f = 0; f < config->feed_count && !is_known; f++)
            for (uint32_t k = 0;
                 config->feeds[f] && !is_known && (known = trajd_spec_file(config->feeds[f], k));
                 k++)
                is_known = strcmp(known, file) == 0;
        if (!is_known)
            return TRAJD_OK; /* the plan rejects files that were not read */
    }
    return load_files(config, spec, error);
}

static enum trajd_status resolve_paths(struct trajd_config *config, const char *file,
                                       struct trajd_error *error)
{
    const char **directories[] = {&config->runtime, &config->cache, &config->state,
                                  &config->listen_keys, &config->tuning};
    char *real = realpath(file, NULL);
    enum trajd_status status = TRAJD_OK;

    if (!real)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", file, strerror(errno));
    *strrchr(real, '/') = 0;
    for (size_t i = 0; i < ARRAY_LEN(directories) && !status; i++)
        if (*directories[i])
            status = resolve_path(config, real, directories[i], error);
    for (uint32_t d = 0; d < config->dataset_count && !status; d++) {
        status = resolve_path(config, real, &config->datasets[d].path, error);
        if (!status && trajd_layout_is_path(config->datasets[d].layout))
            status = resolve_path(config, real, &config->datasets[d].layout, error);
        if (!status && config->datasets[d].media)
            status = resolve_path(config, real, &config->datasets[d].media, error);
    }
    config->folder = real;
    for (uint32_t f = 0; f < config->feed_count && !status; f++)
        status = load_files(config, config->feeds[f], error);
    return status;
}

/* Refuses an HDF5 file, which a user may take for a configuration: the YAML parser only finds a
 * wrong character, or a file that is too long. */
static enum trajd_status refuse_hdf5(const char *path, struct trajd_error *error)
{
    static const char signature[8] = "\x89HDF\r\n\x1a\n";
    char begin[sizeof signature] = "";
    int fd;
    const enum trajd_status status = trajd_open_regular(path, &fd, error);
    ssize_t count;

    if (status)
        return status;
    count = pread(fd, begin, sizeof begin, 0);
    close(fd);
    if (count < (ssize_t)sizeof begin || memcmp(begin, signature, sizeof begin) != 0)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "%s: an HDF5 file, and no configuration (YAML). `trajctl init %s -o "
                           "trajd.yaml` writes a configuration that reads it",
                           path, path);
}

enum trajd_status trajd_config_load(const char *path, const struct trajd_config_value *values,
                                    uint32_t value_count, struct trajd_config **out,
                                    struct trajd_error *error)
{
    struct trajd_config *config = calloc(1, sizeof *config);
    enum trajd_status status;

    *out = NULL;
    if (!config)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the configuration");
    status = refuse_hdf5(path, error);
    if (!status)
        status = trajd_yaml_load(path, &config->yaml, error);
    if (!status)
        status = read_config(config, error);
    if (!status)
        status = apply_values(config, values, value_count, error);
    if (!status)
        status = resolve_paths(config, path, error);
    if (!status && config->tuning &&
        trajd_tuning_load(config->tuning, &config->tuning_table, error))
        status = trajd_error_prefix(error, "%s: tuning", path);
    if (status)
        trajd_config_destroy(&config);
    *out = config;
    return status;
}

void trajd_config_destroy(struct trajd_config **out)
{
    struct trajd_config *config = *out;

    *out = NULL;
    if (!config)
        return;
    for (uint32_t f = 0; f < config->feed_count; f++)
        trajd_window_spec_destroy(&config->feeds[f]);
    for (uint32_t i = 0; i < config->resolved_count; i++)
        free(config->resolved[i]);
    trajd_tuning_destroy(&config->tuning_table);
    trajd_yaml_destroy(&config->yaml);
    trajd_arena_free(&config->merged);
    free(config->folder);
    free(config);
}
