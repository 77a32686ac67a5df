/* Reads files of statistics in the forms of trajd, openpi and LeRobot. */
#include "daemon/window/feed_spec/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"

const struct trajd_statistics_figure trajd_statistics_figures[TRAJD_STATISTICS_FIGURES] = {
    {"mean", offsetof(struct trajd_feature_statistics, mean)},
    {"std", offsetof(struct trajd_feature_statistics, std)},
    {"min", offsetof(struct trajd_feature_statistics, min)},
    {"max", offsetof(struct trajd_feature_statistics, max)},
    {"q01", offsetof(struct trajd_feature_statistics, quantiles[0])},
    {"q10", offsetof(struct trajd_feature_statistics, quantiles[1])},
    {"q50", offsetof(struct trajd_feature_statistics, quantiles[2])},
    {"q90", offsetof(struct trajd_feature_statistics, quantiles[3])},
    {"q99", offsetof(struct trajd_feature_statistics, quantiles[4])},
};

struct trajd_statistics *trajd_statistics_new(enum trajd_statistics_source source,
                                              uint32_t feature_count)
{
    struct trajd_statistics *made =
        calloc(1, sizeof *made + (size_t)feature_count * sizeof made->features[0]);
    if (made) {
        made->source = source;
        made->feature_count = feature_count;
    }
    return made;
}

/* Counts the numbers of a list and of the lists in it. */
static uint32_t count_numbers(const struct trajd_yaml_node *node)
{
    uint32_t count = node->kind == TRAJD_YAML_SCALAR;

    for (const struct trajd_yaml_node *child = node->children; child; child = child->next)
        count += count_numbers(child);
    return count;
}

static bool is_unknown(const struct trajd_yaml_node *node)
{
    static const char *const words[] = {"null", "~",    "",         "NaN",
                                        "nan",  ".nan", "Infinity", "-Infinity"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(node->value, words[i]) == 0)
            return true;
    return false;
}

static enum trajd_status read_numbers(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, size_t offset,
                                      struct trajd_feature_statistics **next,
                                      struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_SCALAR) {
        double *place = (double *)((char *)(*next)++ + offset);
        return is_unknown(node) ? TRAJD_OK
                                : trajd_yaml_double(yaml, node, -1e308, 1e308, place, error);
    }
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_numbers(yaml, child, offset, next, error);
    return status;
}

/* Finds the mapping of names in a file of any of the three forms. */
static const struct trajd_yaml_node *find_names(const struct trajd_yaml_node *root)
{
    const struct trajd_yaml_node *found;

    if (root->kind != TRAJD_YAML_MAPPING)
        return NULL;
    if (trajd_yaml_get(root, "trajd_statistics"))
        found = trajd_yaml_get(root, "outputs");
    else
        found = trajd_yaml_get(root, "norm_stats");
    if (!found && !trajd_yaml_get(root, "trajd_statistics"))
        found = root;
    return found && found->kind == TRAJD_YAML_MAPPING ? found : NULL;
}

static enum trajd_status find_entry(const struct trajd_yaml *yaml, const char *name,
                                    const struct trajd_yaml_node **entry, struct trajd_error *error)
{
    const struct trajd_yaml_node *names = find_names(trajd_yaml_root(yaml));
    const char *list[256];
    uint32_t count = 0;

    if (!names)
        return trajd_yaml_error(yaml, trajd_yaml_root(yaml), error,
                                "the file has no statistics: expected the form of `trajctl stats`, "
                                "of openpi (norm_stats), or of LeRobot (a mapping of names)");
    *entry = trajd_yaml_get(names, name);
    if (*entry && (*entry)->kind == TRAJD_YAML_MAPPING)
        return TRAJD_OK;
    for (const struct trajd_yaml_node *child = names->children; child && count < 256;
         child = child->next)
        list[count++] = child->key;
    trajd_yaml_error(yaml, names, error,
                     "no statistics with the name %s (%sthe file has %u names, the first is "
                     "%s): choose one with `key:`",
                     name, trajd_yaml_suggest("", name, list, count, " ").text, names->child_count,
                     count ? list[0] : "none");
    if (error)
        error->status = TRAJD_ERR_NOT_FOUND;
    return TRAJD_ERR_NOT_FOUND;
}

static enum trajd_status measure(const struct trajd_yaml *yaml, const struct trajd_yaml_node *entry,
                                 uint32_t *features, struct trajd_error *error)
{
    *features = 0;
    for (size_t f = 0; f < TRAJD_STATISTICS_FIGURES; f++) {
        const struct trajd_yaml_node *node =
            trajd_yaml_get(entry, trajd_statistics_figures[f].name);
        const uint32_t count = node ? count_numbers(node) : 0;
        if (*features && count && count != *features)
            return trajd_yaml_error(yaml, node, error,
                                    "%u numbers, but the figures before it have %u", count,
                                    *features);
        *features = count ? count : *features;
    }
    return *features
               ? TRAJD_OK
               : trajd_yaml_error(
                     yaml, entry, error,
                     "no figures: expected some of mean, std, min, max, q01, q10, q50, q90, q99");
}

/* Reads which chain the figures are of. */
static enum trajd_status read_chain(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *entry, uint64_t *chain_id,
                                    struct trajd_error *error)
{
    const struct trajd_yaml_node *chain = trajd_yaml_get(entry, "chain"),
                                 *id = chain ? trajd_yaml_get(chain, "id") : NULL;
    const char *text;
    char *end;
    enum trajd_status status = TRAJD_OK;

    *chain_id = 0;
    if (!trajd_yaml_get(trajd_yaml_root(yaml), "trajd_statistics"))
        *chain_id = TRAJD_STATISTICS_ANY_CHAIN;
    else if (chain && !id)
        return trajd_yaml_error(yaml, chain, error, "the chain has no `id`");
    else if (id && !(status = trajd_yaml_string(yaml, id, &text, error))) {
        *chain_id = strtoull(text, &end, 16);
        if (*end || end == text)
            return trajd_yaml_error(yaml, id, error, "%s is not the number of a chain", text);
    }
    return status;
}

enum trajd_status trajd_statistics_read_yaml(const struct trajd_yaml *yaml, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error)
{
    const struct trajd_yaml_node *entry, *node;
    struct trajd_statistics *made;
    uint32_t features;
    enum trajd_status status = find_entry(yaml, name, &entry, error);

    *statistics = NULL;
    if (!status)
        status = measure(yaml, entry, &features, error);
    if (status)
        return status;
    made = trajd_statistics_new(TRAJD_STATISTICS_FILE, features);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
    for (size_t f = 0; f < TRAJD_STATISTICS_FIGURES && !status; f++) {
        struct trajd_feature_statistics *next = made->features;
        for (uint32_t i = 0; i < features; i++)
            *(double *)((char *)&made->features[i] + trajd_statistics_figures[f].offset) = NAN;
        node = trajd_yaml_get(entry, trajd_statistics_figures[f].name);
        if (node)
            status = read_numbers(yaml, node, trajd_statistics_figures[f].offset, &next, error);
    }
    if (!status)
        status = read_chain(yaml, entry, &made->chain_id, error);
    if (status)
        free(made);
    else
        *statistics = made;
    return status;
}

enum trajd_status trajd_statistics_read_file(const char *path, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error)
{
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_load(path, &yaml, error);

    *statistics = NULL;
    if (!status)
        status = trajd_statistics_read_yaml(yaml, name, statistics, error);
    trajd_yaml_destroy(&yaml);
    return status;
}
