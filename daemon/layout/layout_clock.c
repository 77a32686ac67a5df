/* Reads the clocks of a layout: stamps or a rate, and their place in the common time. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/layout/layout_internal.h"
#include "proto/array_len.h"

#define LOST_ROWS_PERCENT 10 /* unless the layout says otherwise */

static const char *const unit_words[] = {"ns", "us", "ms", "s", NULL};
static const char *const rate_unit_words[] = {"hz", "s", "ms", "us", NULL};
static const char *const policy_words[] = {"error", "drop", "keep_last", NULL};

static enum trajd_status read_unit(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *mapping,
                                   enum trajd_stamp_unit *unit)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, "unit");
    enum trajd_status status;
    int choice;

    if (!node)
        return trajd_yaml_error(p->yaml, mapping, p->error, "unit: missing (one of ns, us, ms, s)");
    status = trajd_yaml_choice(p->yaml, node, unit_words, &choice, p->error);
    if (!status)
        *unit = (enum trajd_stamp_unit)choice;
    return status;
}

static enum trajd_status read_policy(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *mapping, const char *key,
                                     enum trajd_stamp_policy *policy)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    enum trajd_status status;
    int choice;

    if (!node)
        return TRAJD_OK;
    status = trajd_yaml_choice(p->yaml, node, policy_words, &choice, p->error);
    if (!status)
        *policy = (enum trajd_stamp_policy)choice;
    return status;
}

/* Reads "10%". */
static enum trajd_status read_percent(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node, double *percent)
{
    int length = 0;

    if (node->kind == TRAJD_YAML_SCALAR && sscanf(node->value, "%lf%%%n", percent, &length) == 1 &&
        length && !node->value[length] && *percent >= 0 && *percent <= 100)
        return TRAJD_OK;
    return trajd_yaml_error(p->yaml, node, p->error,
                            "must be a share of the rows from 0%% to 100%%, like 10%%");
}

/* Reads "OBJECT@NAME", where the object may be empty. */
static enum trajd_status read_attribute(struct trajd_layout_parser *p,
                                        const struct trajd_yaml_node *node, const char **out)
{
    enum trajd_status status = trajd_layout_read_text(p, node, out);
    const char *at;

    if (status)
        return status;
    at = strchr(*out, '@');
    if (!at || !at[1] ||
        (at != *out && strncmp(*out, "/@", 2) && !trajd_layout_path_is_clean(*out)))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": an attribute is written OBJECT@NAME, like /data@env_args",
                                *out);
    return TRAJD_OK;
}

/* Returns whether a text ends in a word for a period, which stands alone or after one of "_.@/". */
static bool is_named_like_period(const char *text)
{
    static const char *const words[] = {"dt",       "delta_t",  "period",
                                        "interval", "timestep", "time_step"};
    const size_t length = strlen(text);

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        const size_t size = strlen(words[i]);
        if (length >= size && !strcasecmp(text + length - size, words[i]) &&
            (length == size || strchr("_.@/", text[length - size - 1])))
            return true;
    }
    return false;
}

/* Reads the place where a file states the rate. */
static enum trajd_status read_rate_place(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node,
                                         struct trajd_layout_clock *clock)
{
    const struct trajd_yaml_node *attribute = trajd_yaml_get(node, "attribute"),
                                 *path = trajd_yaml_get(node, "path"),
                                 *json = trajd_yaml_get(node, "json");
    enum trajd_status status;

    if (!attribute == !path)
        return trajd_yaml_error(p->yaml, node, p->error, "needs attribute or path, one of them");
    status = attribute ? read_attribute(p, attribute, &clock->rate_attribute)
                       : trajd_layout_read_text(p, path, &clock->rate_path);
    if (!status && path &&
        (!trajd_layout_path_is_clean(clock->rate_path) ||
         trajd_layout_star_count(clock->rate_path)))
        status = trajd_yaml_error(
            p->yaml, path, p->error,
            "\"%s\": a dataset of one number, like info/frequency or /info/dt", clock->rate_path);
    if (!status && json)
        status = trajd_layout_read_text(p, json, &clock->rate_json);
    return status;
}

/* Reads "20" or {attribute: /data@env_args, json: env_kwargs.control_freq, default: 20}. */
static enum trajd_status read_rate(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"attribute", "path", "json", "unit", "default", NULL};
    const struct trajd_yaml_node *unit, *fallback;
    enum trajd_status status;
    const char *name;
    int choice = -1;

    if (node->kind == TRAJD_YAML_SCALAR)
        return trajd_yaml_rate(p->yaml, node, &clock->rate, p->error);
    status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    if (!status)
        status = read_rate_place(p, node, clock);
    unit = status ? NULL : trajd_yaml_get(node, "unit");
    if (unit)
        status = trajd_yaml_choice(p->yaml, unit, rate_unit_words, &choice, p->error);
    clock->rate_unit = (enum trajd_rate_unit)(choice + 1);
    name = clock->rate_json ? clock->rate_json : trajd_layout_rate_place(clock);
    if (!status && !unit && is_named_like_period(name))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\" is the name of a period: add unit: s (or ms, us), or unit: "
                                "hz if it holds a rate",
                                name);
    fallback = status ? NULL : trajd_yaml_get(node, "default");
    return fallback ? trajd_yaml_rate(p->yaml, fallback, &clock->rate_default, p->error) : status;
}

static enum trajd_status read_start(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"path", "unit", NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *path;

    if (status)
        return status;
    path = trajd_yaml_get(node, "path");
    if (!path)
        return trajd_yaml_error(p->yaml, node, p->error, "path: missing");
    status = trajd_layout_read_path(p, path, 0, &clock->start_path);
    return status ? status : read_unit(p, node, &clock->start_unit);
}

/* Refuses keys that only the other sort of clock has. */
static enum trajd_status refuse_keys(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node, const char *const *keys,
                                     const char *sort)
{
    for (; *keys; keys++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, *keys);
        if (child)
            return trajd_yaml_error(p->yaml, child, p->error, "does not belong to a %s clock",
                                    sort);
    }
    return TRAJD_OK;
}

static enum trajd_status read_stamped(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_layout_clock *clock)
{
    static const char *const others[] = {"rate", "rows", "start", NULL};
    const struct trajd_yaml_node *column = trajd_yaml_get(node, "column");
    const struct trajd_yaml_node *lost = trajd_yaml_get(node, "lost_rows");
    enum trajd_status status = refuse_keys(p, node, others, "stamped (path:)");
    int64_t number = 0;

    if (!status)
        status = trajd_layout_read_path(p, trajd_yaml_get(node, "path"), 1, &clock->stamps_path);
    if (!status)
        status = read_unit(p, node, &clock->unit);
    if (!status && column)
        status = trajd_yaml_int(p->yaml, column, 0, 65535, &number, p->error);
    clock->stamps_column = (uint32_t)number;
    if (!status)
        status = read_policy(p, node, "repeated", &clock->repeated);
    if (!status)
        status = read_policy(p, node, "backward", &clock->backward);
    clock->lost_rows_percent = LOST_ROWS_PERCENT;
    return status || !lost ? status : read_percent(p, lost, &clock->lost_rows_percent);
}

static enum trajd_status read_regular(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_layout_clock *clock)
{
    static const char *const others[] = {"column",   "unit",      "repeated",
                                         "backward", "lost_rows", NULL};
    const struct trajd_yaml_node *rate = trajd_yaml_get(node, "rate");
    const struct trajd_yaml_node *rows = trajd_yaml_get(node, "rows");
    const struct trajd_yaml_node *start = trajd_yaml_get(node, "start");
    enum trajd_status status;

    if (!rate)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "needs path: (recorded stamps) or rate: (a regular clock)");
    status = refuse_keys(p, node, others, "regular (rate:)");
    if (!status)
        status = read_rate(p, rate, clock);
    if (!status && rows)
        status = trajd_layout_read_text(p, rows, &clock->rows);
    if (!status && start)
        status = read_start(p, start, clock);
    return status;
}

static enum trajd_status read_clock(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"path",     "column",   "unit",      "rate",
                                       "start",    "latency",  "offset",    "rows",
                                       "repeated", "backward", "lost_rows", NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *child;

    if (!status)
        status = trajd_layout_copy_text(p, node->key, &clock->name);
    if (!status)
        status = trajd_yaml_get(node, "path") ? read_stamped(p, node, clock)
                                              : read_regular(p, node, clock);
    child = status ? NULL : trajd_yaml_get(node, "latency");
    if (child)
        status = trajd_yaml_duration(p->yaml, child, &clock->latency_ns, p->error);
    child = status ? NULL : trajd_yaml_get(node, "offset");
    if (child)
        status = trajd_yaml_duration(p->yaml, child, &clock->offset_ns, p->error);
    return status;
}

enum trajd_status trajd_layout_read_clocks(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    bool stamped = false;
    enum trajd_status status = TRAJD_OK;
    const struct trajd_yaml_node *child;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count ||
        node->child_count > TRAJD_LAYOUT_CLOCKS_MAX)
        return trajd_yaml_error(p->yaml, node, p->error, "must be a mapping of 1 to %d clocks",
                                TRAJD_LAYOUT_CLOCKS_MAX);
    p->clocks = trajd_arena_alloc(&p->memory->arena, node->child_count * sizeof *p->clocks);
    if (!p->clocks)
        return trajd_layout_no_memory(p);
    for (child = node->children; child && !status; child = child->next) {
        status = read_clock(p, child, &p->clocks[layout->clock_count]);
        stamped = stamped || p->clocks[layout->clock_count].stamps_path;
        layout->clock_count++;
    }
    child = node->children;
    for (uint32_t i = 0; i < layout->clock_count && !status; i++, child = child->next) {
        if (stamped && !p->clocks[i].stamps_path && !p->clocks[i].start_path)
            status = trajd_yaml_error(p->yaml, child, p->error,
                                      "start: missing (a regular clock beside stamped ones must "
                                      "say when its first row was)");
    }
    return status;
}
