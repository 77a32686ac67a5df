/* Prints the configuration in force: as YAML, like the file, and as JSON for programs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json_read.h"
#include "daemon/config/config_keys.h"

static bool is_unset(const struct trajd_config *config, const struct trajd_config_key *key)
{
    return key->type == KEY_STRING && !*(const char *const *)((const char *)config + key->offset);
}

/* Writes a member to an open object; with `name` NULL, the value alone. */
static void print_value(const struct trajd_config *config, const struct trajd_config_key *key,
                        const char *name, struct trajd_json *json)
{
    const void *field = (const char *)config + key->offset;

    switch (key->type) {
    case KEY_STRING:
        trajd_json_string(json, name, *(const char *const *)field);
        break;
    case KEY_BOOL:
        trajd_json_bool(json, name, *(const bool *)field);
        break;
    case KEY_COUNT:
        trajd_json_u64(json, name, *(const uint32_t *)field);
        break;
    case KEY_SIZE:
        trajd_json_u64(json, name, *(const uint64_t *)field);
        break;
    case KEY_DURATION:
        trajd_json_format(json, name, "%lldns", (long long)*(const int64_t *)field);
        break;
    }
}

/* ---- YAML ---- */

static void print_key(const struct trajd_config *config, const struct trajd_config_key *key,
                      FILE *out)
{
    struct trajd_json value = {.out = out}; /* a JSON value is a YAML value */

    if (is_unset(config, key))
        return; /* the value comes from the service manager's environment */
    fprintf(out, "%s%s: ", key->section ? "  " : "", key->name);
    print_value(config, key, NULL, &value);
    fputc('\n', out);
}

static void print_node(const struct trajd_yaml_node *node, int depth, FILE *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+@";

    fprintf(out, "%*s", 2 * depth, "");
    if (node->key) {
        trajd_json_text(out, node->key);
        fprintf(out, ": ");
    } else {
        fprintf(out, "- ");
    }
    if (node->kind == TRAJD_YAML_SCALAR) {
        if (node->quoted || strspn(node->value, plain) != strlen(node->value))
            trajd_json_text(out, node->value);
        else
            fputs(node->value, out);
        fputc('\n', out);
        return;
    }
    fputc('\n', out);
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next)
        print_node(child, depth + 1, out);
}

static void print_clock_rates(const struct trajd_config_dataset *dataset, FILE *out)
{
    for (uint32_t i = 0; i < dataset->clock_rate_count; i++) {
        const struct trajd_clock_rate *rate = &dataset->clock_rates[i];
        fputs(i ? ", " : ", rate: {", out);
        trajd_json_text(out, rate->clock);
        fprintf(out, ": %" PRId64 "/%" PRId64, rate->rate.num, rate->rate.den);
    }
    fputs(dataset->clock_rate_count ? "}" : "", out);
}

void trajd_config_print(const struct trajd_config *config, FILE *out)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(config->yaml), "feeds");
    const char *section = NULL;

    for (size_t k = 0; k < trajd_config_key_count; k++) {
        if (trajd_config_keys[k].section && trajd_config_keys[k].section != section)
            fprintf(out, "%s:\n", trajd_config_keys[k].section);
        section = trajd_config_keys[k].section;
        print_key(config, &trajd_config_keys[k], out);
    }
    fprintf(out, "datasets:\n");
    for (uint32_t d = 0; d < config->dataset_count; d++) {
        fprintf(out, "  %s: {path: ", config->datasets[d].name);
        trajd_json_text(out, config->datasets[d].path);
        fprintf(out, ", layout: ");
        trajd_json_text(out, config->datasets[d].layout);
        if (config->datasets[d].rate.num)
            fprintf(out, ", rate: %" PRId64 "/%" PRId64, config->datasets[d].rate.num,
                    config->datasets[d].rate.den);
        print_clock_rates(&config->datasets[d], out);
        if (config->datasets[d].color)
            fprintf(out, ", color: %s", trajd_image_color_name(config->datasets[d].color));
        if (config->datasets[d].media) {
            fprintf(out, ", media: ");
            trajd_json_text(out, config->datasets[d].media);
        }
        if (config->datasets[d].quarantine_at_most >= 0)
            fprintf(out, ", quarantine: {at_most: %lld}",
                    (long long)config->datasets[d].quarantine_at_most);
        fprintf(out, "}\n");
    }
    if (feeds)
        print_node(feeds, 0, out);
}

/* ---- JSON ---- */

/* Writes numbers, booleans and null as such, and everything else as a string. */
static void print_json_scalar(const struct trajd_yaml_node *node, const char *name,
                              struct trajd_json *json)
{
    bool is_whole;
    char *end;
    const char *value = node->value;
    const bool is_decimal =
        strspn(value, "0123456789+-.eE") == strlen(value) && strpbrk(value, "0123456789");
    const double number = is_decimal ? strtod(value, &end) : 0;

    if (node->quoted)
        trajd_json_string(json, name, value);
    else if (!*value || strcmp(value, "~") == 0)
        trajd_json_null(json, name);
    else if (trajd_json_is_number(value, &is_whole) || !strcmp(value, "true") ||
             !strcmp(value, "false") || !strcmp(value, "null"))
        trajd_json_raw(json, name, value);
    else if (is_decimal && !*end) /* such as +1, .5, 1. */
        trajd_json_number(json, name, "%.17g", number);
    else
        trajd_json_string(json, name, value);
}

void trajd_config_print_node(const struct trajd_yaml_node *node, const char *name,
                             struct trajd_json *json)
{
    const bool is_mapping = node->kind == TRAJD_YAML_MAPPING;

    if (node->kind == TRAJD_YAML_SCALAR) {
        print_json_scalar(node, name, json);
        return;
    }
    (is_mapping ? trajd_json_open_object : trajd_json_open_array)(json, name);
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next)
        trajd_config_print_node(child, is_mapping ? child->key : NULL, json);
    (is_mapping ? trajd_json_close_object : trajd_json_close_array)(json);
}

/* Writes the keys of the table, where the keys of a section stand side by side. */
static void print_json_keys(const struct trajd_config *config, struct trajd_json *json)
{
    const char *section = NULL;

    for (size_t k = 0; k < trajd_config_key_count; k++) {
        const struct trajd_config_key *key = &trajd_config_keys[k];
        if (is_unset(config, key))
            continue;
        if (key->section != section) {
            if (section)
                trajd_json_close_object(json);
            trajd_json_open_object(json, key->section);
        }
        section = key->section;
        print_value(config, key, key->name, json);
    }
    if (section)
        trajd_json_close_object(json);
}

void trajd_config_print_json(const struct trajd_config *config, FILE *out)
{
    const struct trajd_yaml_node *feeds = trajd_yaml_get(trajd_yaml_root(config->yaml), "feeds");
    struct trajd_json json = {.out = out};

    trajd_json_open_object(&json, NULL);
    print_json_keys(config, &json);
    trajd_json_open_object(&json, "datasets");
    for (uint32_t d = 0; d < config->dataset_count; d++) {
        trajd_json_open_object(&json, config->datasets[d].name);
        trajd_json_string(&json, "path", config->datasets[d].path);
        trajd_json_string(&json, "layout", config->datasets[d].layout);
        if (config->datasets[d].rate.num)
            trajd_json_format(&json, "rate", "%" PRId64 "/%" PRId64, config->datasets[d].rate.num,
                              config->datasets[d].rate.den);
        if (config->datasets[d].clock_rate_count)
            trajd_json_open_object(&json, "rate");
        for (uint32_t i = 0; i < config->datasets[d].clock_rate_count; i++) {
            const struct trajd_clock_rate *rate = &config->datasets[d].clock_rates[i];
            trajd_json_format(&json, rate->clock, "%" PRId64 "/%" PRId64, rate->rate.num,
                              rate->rate.den);
        }
        if (config->datasets[d].clock_rate_count)
            trajd_json_close_object(&json);
        if (config->datasets[d].color)
            trajd_json_string(&json, "color", trajd_image_color_name(config->datasets[d].color));
        if (config->datasets[d].media)
            trajd_json_string(&json, "media", config->datasets[d].media);
        if (config->datasets[d].quarantine_at_most >= 0) {
            trajd_json_open_object(&json, "quarantine");
            trajd_json_i64(&json, "at_most", config->datasets[d].quarantine_at_most);
            trajd_json_close_object(&json);
        }
        trajd_json_close_object(&json);
    }
    trajd_json_close_object(&json);
    if (feeds) {
        trajd_config_print_node(feeds, "feeds", &json);
    } else {
        trajd_json_open_object(&json, "feeds");
        trajd_json_close_object(&json);
    }
    trajd_json_close_object(&json);
    fputc('\n', out);
}
