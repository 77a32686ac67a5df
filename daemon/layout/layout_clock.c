/* The clocks of a layout: stamps or a rate, and their place in the common time. Rates that files
 * state, and rates that are given from outside in their place. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/quantity.h"
#include "daemon/layout/layout_internal.h"
#include "proto/array_len.h"

#define LOST_ROWS_PERCENT 10 /* unless the layout says otherwise */

static const char *const unit_words[] = {"ns", "us", "ms", "s", NULL};
static const char *const rate_unit_words[] = {"hz", "s", "ms", "us", NULL};
static const char *const policy_words[] = {"error", "drop", "keep_last", NULL};

/* Reads "10%". */
static enum trajd_status read_percent(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *out)
{
    double *percent = out;
    int length = 0;

    if (node->kind == TRAJD_YAML_SCALAR && sscanf(node->value, "%lf%%%n", percent, &length) == 1 &&
        length && !node->value[length] && *percent >= 0 && *percent <= 100)
        return TRAJD_OK;
    return trajd_yaml_error(r->yaml, node, r->error,
                            "must be a share of the rows from 0%% to 100%%, like 10%%");
}

/* Reads "OBJECT@NAME", where the object may be empty. */
static enum trajd_status read_attribute(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *text = status ? NULL : *(const char **)out, *at;

    if (status)
        return status;
    at = strchr(text, '@');
    if (!at || !at[1] ||
        (at != text && strncmp(text, "/@", 2) && !trajd_layout_path_is_clean(text)))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "\"%s\": an attribute is written OBJECT@NAME, like /data@env_args",
                                text);
    return TRAJD_OK;
}

/* Reads the path of a dataset that holds the rate, which may be outside the episode. */
static enum trajd_status read_rate_path(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *path = status ? NULL : *(const char **)out;

    if (!status && (!trajd_layout_path_is_clean(path) || trajd_layout_star_count(path)))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "\"%s\": a dataset of one number, like info/frequency or /info/dt",
                                path);
    return status;
}

static enum trajd_status read_column(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *out)
{
    int64_t number = 0;
    enum trajd_status status = trajd_yaml_int(r->yaml, node, 0, 65535, &number, r->error);

    *(uint32_t *)out = (uint32_t)number;
    return status;
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

#define MEMBER(member) .offset = offsetof(struct trajd_layout_clock, member)

static const struct trajd_yaml_key rate_keys[] = {
    {"attribute", .read = read_attribute, MEMBER(rate_attribute)},
    {"path", .read = read_rate_path, MEMBER(rate_path)},
    {"json", .read = trajd_layout_read_text, MEMBER(rate_json)},
    {"unit", TRAJD_YAML_CHOICE, MEMBER(rate_unit), .words = rate_unit_words, .low = TRAJD_RATE_HZ},
    {"default", TRAJD_YAML_RATE, MEMBER(rate_default)},
};

/* Reads "20" or {attribute: /data@env_args, json: env_kwargs.control_freq, default: 20}. */
static enum trajd_status read_rate(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_clock *clock = out;
    enum trajd_status status;
    const char *name;

    if (node->kind == TRAJD_YAML_SCALAR)
        return trajd_yaml_rate(r->yaml, node, &clock->rate, r->error);
    status = trajd_yaml_read_keys(r, node, NULL, rate_keys, ARRAY_LEN(rate_keys), clock);
    if (status)
        return status;
    if (!clock->rate_attribute == !clock->rate_path)
        return trajd_yaml_error(r->yaml, node, r->error, "needs attribute or path, one of them");
    name = clock->rate_json ? clock->rate_json : trajd_layout_rate_place(clock);
    if (clock->rate_unit == TRAJD_RATE_HZ_LIKELY && is_named_like_period(name))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "\"%s\" is the name of a period: add unit: s (or ms, us), or unit: "
                                "hz if it holds a rate",
                                name);
    return TRAJD_OK;
}

static enum trajd_status require_unit(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node)
{
    return trajd_yaml_get(node, "unit")
               ? TRAJD_OK
               : trajd_yaml_error(r->yaml, node, r->error, "unit: missing (one of ns, us, ms, s)");
}

static const struct trajd_yaml_key start_keys[] = {
    {"path", .read = trajd_layout_read_path, MEMBER(start_path)},
    {"unit", TRAJD_YAML_CHOICE, MEMBER(start_unit), .words = unit_words, .low = TRAJD_UNIT_NS},
};

static enum trajd_status read_start(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_clock *clock = out;
    enum trajd_status status =
        trajd_yaml_read_keys(r, node, NULL, start_keys, ARRAY_LEN(start_keys), clock);

    if (!status && !clock->start_path)
        return trajd_yaml_error(r->yaml, node, r->error, "path: missing");
    return status ? status : require_unit(r, node);
}

static const struct trajd_yaml_key clock_keys[] = {
    {"path", .read = trajd_layout_read_pattern, MEMBER(stamps_path)},
    {"column", .read = read_column, MEMBER(stamps_column)},
    {"unit", TRAJD_YAML_CHOICE, MEMBER(unit), .words = unit_words, .low = TRAJD_UNIT_NS},
    {"rate", .read = read_rate},
    {"start", .read = read_start},
    {"latency", TRAJD_YAML_DURATION, MEMBER(latency_ns)},
    {"offset", TRAJD_YAML_DURATION, MEMBER(offset_ns)},
    {"rows", .read = trajd_layout_read_text, MEMBER(rows)},
    {"repeated", TRAJD_YAML_CHOICE, MEMBER(repeated), .words = policy_words,
     .low = TRAJD_STAMPS_ERROR},
    {"backward", TRAJD_YAML_CHOICE, MEMBER(backward), .words = policy_words,
     .low = TRAJD_STAMPS_ERROR},
    {"lost_rows", .read = read_percent, MEMBER(lost_rows_percent)},
};

/* Checks that the clock has the keys of its sort, and none of the other one. */
static enum trajd_status check_sort(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node)
{
    static const char *const of_regular[] = {"rate", "rows", "start", NULL};
    static const char *const of_stamped[] = {"column",   "unit",      "repeated",
                                             "backward", "lost_rows", NULL};
    const bool is_stamped = trajd_yaml_get(node, "path") != NULL;

    if (!is_stamped && !trajd_yaml_get(node, "rate"))
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "needs path: (recorded stamps) or rate: (a regular clock)");
    for (const char *const *key = is_stamped ? of_regular : of_stamped; *key; key++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, *key);
        if (child)
            return trajd_yaml_error(p->r.yaml, child, p->r.error, "does not belong to a %s clock",
                                    is_stamped ? "stamped (path:)" : "regular (rate:)");
    }
    return is_stamped ? require_unit(&p->r, node) : TRAJD_OK;
}

static enum trajd_status read_clock(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_layout_clock *clock)
{
    enum trajd_status status = trajd_yaml_keep(&p->r, node->key, &clock->name);

    if (trajd_yaml_get(node, "path"))
        clock->lost_rows_percent = LOST_ROWS_PERCENT;
    if (!status)
        status = trajd_yaml_read_keys(&p->r, node, NULL, clock_keys, ARRAY_LEN(clock_keys), clock);
    return status ? status : check_sort(p, node);
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
        return trajd_yaml_error(p->r.yaml, node, p->r.error, "must be a mapping of 1 to %d clocks",
                                TRAJD_LAYOUT_CLOCKS_MAX);
    p->clocks = trajd_yaml_alloc(&p->r, node->child_count * sizeof *p->clocks);
    if (!p->clocks)
        return TRAJD_ERR_MEMORY;
    for (child = node->children; child && !status; child = child->next) {
        status = read_clock(p, child, &p->clocks[layout->clock_count]);
        stamped = stamped || p->clocks[layout->clock_count].stamps_path;
        layout->clock_count++;
    }
    child = node->children;
    for (uint32_t i = 0; i < layout->clock_count && !status; i++, child = child->next) {
        if (stamped && !p->clocks[i].stamps_path && !p->clocks[i].start_path)
            status = trajd_yaml_error(p->r.yaml, child, p->r.error,
                                      "start: missing (a regular clock beside stamped ones must "
                                      "say when its first row was)");
    }
    return status;
}

enum trajd_status trajd_layout_find_multiple(struct trajd_layout_parser *p, uint32_t multiple,
                                             const char **name)
{
    struct trajd_layout *layout = &p->memory->layout;
    const uint32_t count = layout->clock_count;
    struct trajd_layout_clock *clocks;
    uint32_t of = 0, i = 0;
    char text[TRAJD_LAYOUT_PATH_MAX + 16];

    while (strcmp(p->clocks[of].name, *name) != 0)
        of++;
    while (i < count && !(p->clocks[i].multiple == multiple && p->clocks[i].multiple_of == of))
        i++;
    if (count == TRAJD_LAYOUT_CLOCKS_MAX && i == count)
        return trajd_error_set(p->r.error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: `rows: every %u` needs a clock of its own, and there are %d",
                               layout->name, multiple, TRAJD_LAYOUT_CLOCKS_MAX);
    if (i == count) { /* the old list stays in the arena */
        clocks = trajd_yaml_alloc(&p->r, (count + 1) * sizeof *clocks);
        if (!clocks)
            return TRAJD_ERR_MEMORY;
        memcpy(clocks, p->clocks, count * sizeof *clocks);
        clocks[i] = clocks[of];
        snprintf(text, sizeof text, "%s*%u", *name, multiple);
        if (trajd_yaml_keep(&p->r, text, &clocks[i].name))
            return TRAJD_ERR_MEMORY;
        clocks[i].rows = NULL;
        clocks[i].multiple = multiple;
        clocks[i].multiple_of = of;
        p->clocks = clocks;
        layout->clock_count++;
    }
    *name = p->clocks[i].name;
    return TRAJD_OK;
}

/* ---- rates ---- */

const char *trajd_rate_source_name(enum trajd_rate_source source)
{
    static const char *const names[] = {"measured", "declared", "assumed"};

    return names[source];
}

const char *trajd_layout_rate_place(const struct trajd_layout_clock *clock)
{
    return clock->rate_attribute ? clock->rate_attribute : clock->rate_path;
}

uint32_t trajd_layout_units_per_second(const struct trajd_layout_clock *clock)
{
    static const uint32_t units[] = {
        [TRAJD_RATE_S] = 1, [TRAJD_RATE_MS] = 1000, [TRAJD_RATE_US] = 1000000};

    return units[clock->rate_unit];
}

bool trajd_layout_read_rate(const struct trajd_layout_clock *clock, const char *text,
                            struct trajd_rate *rate)
{
    const uint32_t units = trajd_layout_units_per_second(clock);

    return units ? trajd_parse_period(text, units, rate) : trajd_parse_rate(text, rate);
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same_rate(const struct trajd_layout_clock *a, const struct trajd_layout_clock *b)
{
    return a->rate.num == b->rate.num && a->rate.den == b->rate.den &&
           a->rate_default.num == b->rate_default.num &&
           a->rate_default.den == b->rate_default.den &&
           is_same_text(a->rate_attribute, b->rate_attribute) &&
           is_same_text(a->rate_path, b->rate_path) && a->rate_unit == b->rate_unit &&
           is_same_text(a->rate_json, b->rate_json);
}

enum trajd_status trajd_layout_check_one_rate(const struct trajd_layout *layout,
                                              struct trajd_error *error)
{
    const struct trajd_layout_clock *first = NULL;

    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        if (clock->stamps_path)
            continue;
        if (first && !is_same_rate(first, clock))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "rate: layout %s has clocks of different rates (%s, %s): a "
                                   "dataset's entry takes rate: {%s: HZ, %s: HZ}, and trajctl a "
                                   "copy of the layout with other rates",
                                   layout->name, first->name, clock->name, first->name,
                                   clock->name);
        if (!first)
            first = clock;
    }
    if (first)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "rate: layout %s takes all times from recorded stamps (clock %s): leave "
                           "the rate out",
                           layout->name, layout->clocks[0].name);
}

enum trajd_status trajd_layout_check_rates(const struct trajd_layout *layout,
                                           const struct trajd_clock_rate *rates, uint32_t count,
                                           struct trajd_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t c = 0;
        while (c < layout->clock_count &&
               (layout->clocks[c].multiple || strcmp(layout->clocks[c].name, rates[i].clock)))
            c++;
        if (c == layout->clock_count)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "rate: layout %s has no clock %s",
                                   layout->name, rates[i].clock);
        if (layout->clocks[c].stamps_path)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "rate: clock %s of layout %s has recorded stamps, and no rate",
                                   rates[i].clock, layout->name);
    }
    return TRAJD_OK;
}
