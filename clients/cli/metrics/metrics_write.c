#include "clients/cli/metrics/metrics_write.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/metrics/metrics_table.h"
#include "daemon/base/yaml.h"

/* The buckets of the histogram that are written: below 2^10 ns (a microsecond) to 2^34 ns (17 s). */
enum { FIRST_BUCKET = 10, LAST_BUCKET = 34, KEY_SIZE = 64 };

/* An item of a list, and the items that hold it. */
struct place {
    const struct trajd_yaml_node *root, *outer, *item;
    enum metrics_list list;
};

static const char *text_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = mapping ? trajd_yaml_get(mapping, key) : NULL;
    return node && node->value ? node->value : "";
}

static const struct trajd_yaml_node *first_of(const struct trajd_yaml_node *mapping,
                                              const char *key)
{
    const struct trajd_yaml_node *node = mapping ? trajd_yaml_get(mapping, key) : NULL;
    return node ? node->children : NULL;
}

/* Returns the member at "a.b", or NULL. */
static const struct trajd_yaml_node *find(const struct trajd_yaml_node *mapping, const char *path)
{
    const char *dot = strchr(path, '.');
    char key[KEY_SIZE];

    if (!dot)
        return trajd_yaml_get(mapping, path);
    snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
    mapping = trajd_yaml_get(mapping, key);
    return mapping ? trajd_yaml_get(mapping, dot + 1) : NULL;
}

/* ---- labels ---- */

static void write_label(FILE *out, bool *is_first, const char *name, const char *value)
{
    fprintf(out, "%c%s=\"", *is_first ? '{' : ',', name);
    for (; *value; value++)
        if (*value == '\n')
            fputs("\\n", out);
        else
            fprintf(out, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
    fputc('"', out);
    *is_first = false;
}

/* Returns the name of the feed that a worker has open. */
static const char *feed_of_worker(const struct place *place)
{
    const char *id = text_of(place->item, "feed_id");

    for (const struct trajd_yaml_node *feed = first_of(place->root, "feeds"); feed;
         feed = feed->next)
        if (strcmp(text_of(feed, "feed_id"), id) == 0)
            return text_of(feed, "name");
    return "";
}

static void write_labels(FILE *out, const struct place *place, const struct metrics_sample *sample)
{
    bool is_first = true;

    switch (place->list) {
    case METRICS_DAEMON:
        break;
    case METRICS_DATASETS:
        write_label(out, &is_first, "dataset", text_of(place->item, "name"));
        break;
    case METRICS_GPUS:
        write_label(out, &is_first, "gpu", text_of(place->item, "uuid"));
        break;
    case METRICS_FEEDS:
    case METRICS_PRODUCERS:
        write_label(out, &is_first, "feed", text_of(place->item, "name"));
        break;
    case METRICS_JOBS:
        write_label(out, &is_first, "feed", text_of(place->outer, "name"));
        write_label(out, &is_first, "job", text_of(place->item, "job"));
        break;
    case METRICS_FEED_DATASETS:
        write_label(out, &is_first, "feed", text_of(place->outer, "name"));
        write_label(out, &is_first, "dataset", text_of(place->item, "name"));
        break;
    case METRICS_WORKERS:
        write_label(out, &is_first, "feed", feed_of_worker(place));
        write_label(out, &is_first, "worker", text_of(place->item, "client"));
        write_label(out, &is_first, "rank", text_of(place->item, "rank"));
        write_label(out, &is_first, "pid", text_of(place->item, "pid"));
        write_label(out, &is_first, "session", text_of(place->item, "session"));
        break;
    }
    if (sample->label)
        write_label(out, &is_first, sample->label, sample->value);
    if (!is_first)
        fputc('}', out);
}

/* ---- samples ---- */

static bool read_number(const char *text, double *value)
{
    char *end;

    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

/* Writes HELP, TYPE and UNIT before the first sample of a family. */
static void write_head(FILE *out, const struct metrics_family *family, bool *is_written)
{
    const char *unit = strrchr(family->name, '_');

    if (*is_written)
        return;
    *is_written = true;
    fprintf(out, "# TYPE %s %s\n", family->name, family->type);
    if (strcmp(unit, "_seconds") == 0 || strcmp(unit, "_bytes") == 0)
        fprintf(out, "# UNIT %s %s\n", family->name, unit + 1);
    fprintf(out, "# HELP %s %s\n", family->name, family->help);
}

static void write_sample(FILE *out, const struct metrics_family *family,
                         const struct metrics_sample *sample, const struct place *place,
                         bool *is_written)
{
    const struct trajd_yaml_node *node = find(place->item, sample->key);
    double value;

    if (place->list == METRICS_WORKERS && !*feed_of_worker(place))
        return; /* it only asks: a label for each trajctl would fill a time-series database */
    if (!node || !node->value || !read_number(node->value, &value))
        return;
    write_head(out, family, is_written);
    fprintf(out, "%s%s", family->name, strcmp(family->type, "counter") ? "" : "_total");
    write_labels(out, place, sample);
    if (sample->scale > 0)
        fprintf(out, " %.9f\n", value * sample->scale);
    else
        fprintf(out, " %s\n", node->value);
}

/* Writes the sample of each item of a list that is in the document, or of each item of the lists
 * that are in the items. */
static void write_samples(FILE *out, const struct metrics_family *family,
                          const struct metrics_sample *sample, const struct trajd_yaml_node *root,
                          bool *is_written)
{
    static const struct {
        const char *outer, *inner;
    } lists[] = {
        [METRICS_DATASETS] = {"datasets", NULL},
        [METRICS_GPUS] = {"gpus", NULL},
        [METRICS_FEEDS] = {"feeds", NULL},
        [METRICS_JOBS] = {"feeds", "jobs"},
        [METRICS_PRODUCERS] = {"producers", NULL},
        [METRICS_FEED_DATASETS] = {"producers", "datasets"},
        [METRICS_WORKERS] = {"sessions", NULL},
    };
    struct place place = {.root = root, .item = root, .list = sample->list};

    if (sample->list == METRICS_DAEMON) {
        write_sample(out, family, sample, &place, is_written);
        return;
    }
    for (place.outer = first_of(root, lists[sample->list].outer); place.outer;
         place.outer = place.outer->next) {
        const char *inner = lists[sample->list].inner;
        place.item = inner ? first_of(place.outer, inner) : place.outer;
        for (; place.item; place.item = inner ? place.item->next : NULL)
            write_sample(out, family, sample, &place, is_written);
    }
}

static void write_info(FILE *out, const struct trajd_yaml_node *root)
{
    bool is_first = true;

    fputs("# TYPE trajd info\n# HELP trajd The daemon that answers.\ntrajd_info", out);
    write_label(out, &is_first, "version", text_of(root, "version"));
    write_label(out, &is_first, "instance_id", text_of(root, "instance"));
    fputs("} 1\n", out);
}

/* Writes the time from READY until a batch was sent. */
static void write_histogram(FILE *out, const struct trajd_yaml_node *root)
{
    static const char name[] = "trajd_ready_to_sent_seconds";
    const struct trajd_yaml_node *histogram = trajd_yaml_get(root, "ready_to_sent");
    uint64_t sum = 0;
    int bucket = 0;

    if (!histogram)
        return;
    fprintf(out,
            "# TYPE %s histogram\n# UNIT %s seconds\n# HELP %s Time from when a batch was ready "
            "until it was sent to its worker; long where no worker asked.\n",
            name, name, name);
    for (const struct trajd_yaml_node *count = first_of(histogram, "below_power_of_two_ns"); count;
         count = count->next, bucket++) {
        sum += count->value ? strtoull(count->value, NULL, 10) : 0;
        if (bucket >= FIRST_BUCKET && bucket <= LAST_BUCKET)
            fprintf(out, "%s_bucket{le=\"%.9f\"} %llu\n", name, ldexp(1e-9, bucket),
                    (unsigned long long)sum);
    }
    fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %s\n%s_count %llu\n", name,
            (unsigned long long)sum, name, text_of(histogram, "sum_seconds"), name,
            (unsigned long long)sum);
}

enum trajd_status metrics_write(const char *json, FILE *out, struct trajd_error *error)
{
    const struct trajd_yaml_node *root;
    struct trajd_yaml *yaml = NULL;

    if (trajd_yaml_parse("status", json, strlen(json), &yaml, error))
        return TRAJD_ERR_DATA;
    root = trajd_yaml_root(yaml);
    write_info(out, root);
    for (size_t f = 0; f < metrics_family_count; f++) {
        const struct metrics_family *family = &metrics_families[f];
        bool is_written = false;
        for (const struct metrics_sample *sample = family->samples; sample->key; sample++)
            write_samples(out, family, sample, root, &is_written);
    }
    write_histogram(out, root);
    fputs("# EOF\n", out);
    trajd_yaml_destroy(&yaml);
    return TRAJD_OK;
}
