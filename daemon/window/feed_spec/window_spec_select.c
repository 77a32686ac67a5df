/* Reads the keys that select episodes and rows: `filter:`, `where:`, `episodes:`, `split:` and
 * `ranges:`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/window_spec_internal.h"
#include "proto/array_len.h"

#define MAX_VALUES 4096

static enum trajd_status read_values(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node,
                                     struct trajd_select_text *text)
{
    const struct trajd_yaml_node *value = node->kind == TRAJD_YAML_SCALAR ? node : node->children;
    const uint32_t count = node->kind == TRAJD_YAML_SCALAR ? 1 : node->child_count;
    const char **values;
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_MAPPING || !count || count > MAX_VALUES)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a text or a list of 1 to %d texts", MAX_VALUES);
    values = trajd_yaml_alloc(r, count * sizeof *values);
    if (!values)
        return TRAJD_ERR_MEMORY;
    for (uint32_t i = 0; i < count && !status; i++, value = value->next)
        status = trajd_yaml_keep_string(r, value, &values[i]);
    text->values = values;
    text->value_count = count;
    return status;
}

enum trajd_status trajd_spec_read_where(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *member)
{
    struct trajd_select_rules *rules = member;
    struct trajd_select_text *texts;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count ||
        node->child_count > TRAJD_LAYOUT_METAS_MAX)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "expected {KEY: TEXT or [TEXT...]}, where each KEY is one of the layout's `meta:`");
    texts = trajd_yaml_alloc(r, node->child_count * sizeof *texts);
    if (!texts)
        return TRAJD_ERR_MEMORY;
    rules->texts = texts;
    rules->text_count = 0;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        struct trajd_select_text *text = &texts[rules->text_count];
        text->line = child->line;
        status = trajd_yaml_keep(r, child->key, &text->key);
        if (!status)
            status = read_values(r, child, text);
        rules->text_count++;
    }
    return status;
}

/* ---- episodes ---- */

/* Reads a number without a sign. Returns the text behind it; NULL: there is none. */
static const char *read_number(const char *text, uint32_t *number)
{
    uint64_t value = 0;

    if (*text < '0' || *text > '9')
        return NULL;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value > UINT32_MAX ? value : 10 * value + (uint64_t)(*text - '0');
    *number = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX - 1;
    return text;
}

/* Reads "12" or "0..39". False: it is a name. A number in quotes is a name, too: "12". */
static bool read_numbers(const struct trajd_yaml_node *node, struct trajd_select_entry *entry)
{
    const char *text = read_number(node->value, &entry->first);

    if (!text)
        return false;
    entry->last = entry->first;
    if (!*text)
        return !node->quoted;
    if (strncmp(text, "..", 2) != 0)
        return false;
    text = read_number(text + 2, &entry->last);
    return text && !*text;
}

static enum trajd_status read_entry(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_select_entry *entry)
{
    char place[512];
    const char *name;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &name, r->error);

    *entry = (struct trajd_select_entry){0};
    trajd_yaml_place(r->yaml, node, place, sizeof place);
    if (!status)
        status = trajd_yaml_keep(r, place, &entry->place);
    if (status)
        return status;
    if (!read_numbers(node, entry)) {
        entry->first = entry->last = 0;
        return trajd_yaml_keep(r, name, &entry->name);
    }
    return entry->first <= entry->last
               ? TRAJD_OK
               : trajd_yaml_error(r->yaml, node, r->error,
                                  "%s: the last number is smaller than the first", node->value);
}

enum trajd_status trajd_spec_read_episodes(const struct trajd_yaml_reader *r,
                                           const struct trajd_yaml_node *node, void *member)
{
    const struct trajd_yaml_node *child = node->kind == TRAJD_YAML_SCALAR ? node : node->children;
    const uint32_t count = node->kind == TRAJD_YAML_SCALAR ? 1 : node->child_count;
    struct trajd_select_rules *rules = member;
    struct trajd_select_entry *entries;
    enum trajd_status status = TRAJD_OK;

    if (node->kind == TRAJD_YAML_MAPPING || !count)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a list of episodes: numbers (12), ranges of numbers "
                                "(0..39), names (demo_12) and files (episode_3.hdf5)");
    entries = trajd_yaml_alloc(r, count * sizeof *entries);
    if (!entries)
        return TRAJD_ERR_MEMORY;
    for (uint32_t i = 0; i < count && !status; i++, child = child->next)
        status = read_entry(r, child, &entries[i]);
    rules->entries = entries;
    rules->entry_count = status ? 0 : count;
    return status;
}

/* ---- split ---- */

/* Reads `0..0.9`. */
static enum trajd_status read_range(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_select_rules *rules)
{
    char begin[32], *end;
    const char *text, *dots;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    dots = strstr(text, "..");
    if (dots && dots > text && (size_t)(dots - text) < sizeof begin) {
        memcpy(begin, text, (size_t)(dots - text)); /* strtod would read "0." from "0..1" */
        begin[dots - text] = 0;
        rules->split_begin = strtod(begin, &end);
        if (*end)
            return trajd_yaml_error(r->yaml, node, r->error, "%s: %s is not a number", text, begin);
        rules->split_end = strtod(dots + 2, &end);
        if (*end == 0 && end != dots + 2 && rules->split_begin >= 0 &&
            rules->split_begin < rules->split_end && rules->split_end <= 1)
            return TRAJD_OK;
    }
    return trajd_yaml_error(r->yaml, node, r->error,
                            "%s: expected a range within 0..1, for example 0..0.9 for training and "
                            "0.9..1 for validation, or {hold_out: 10, take: train}",
                            text);
}

enum trajd_status trajd_spec_read_split(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *member)
{
    static const char *const parts[] = {"train", "validation", NULL};
    static const struct trajd_yaml_key keys[] = {
        {"hold_out", TRAJD_YAML_U32, .offset = offsetof(struct trajd_select_rules, hold_out),
         .low = 1, .high = UINT32_MAX},
        {"take", TRAJD_YAML_FLAG, .offset = offsetof(struct trajd_select_rules, takes_held_out),
         .words = parts},
    };
    struct trajd_select_rules *rules = member;
    enum trajd_status status;

    rules->hold_out = 0; /* a member of a mixture replaces the feed's split */
    rules->split_begin = 0;
    rules->split_end = 1;
    if (node->kind != TRAJD_YAML_MAPPING)
        return read_range(r, node, rules);
    status = trajd_yaml_read_keys(r, node, NULL, keys, ARRAY_LEN(keys), rules);
    if (!status && node->child_count < ARRAY_LEN(keys))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected {hold_out: EPISODES, take: train|validation}");
    return status;
}

/* ---- ranges ---- */

/* Reads [[BEGIN, END], ...] of an episode. */
static enum trajd_status read_row_ranges(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node,
                                         struct trajd_ranges *ranges)
{
    const char *wrong = trajd_ranges_add_entry(ranges, node->key, strlen(node->key));
    enum trajd_status status = TRAJD_OK;

    if (!wrong && node->kind != TRAJD_YAML_SEQUENCE)
        wrong = "expected a list of ranges: [[BEGIN, END], ...]";
    for (const struct trajd_yaml_node *range = wrong ? NULL : node->children; range && !wrong;
         range = range->next) {
        int64_t rows[2] = {0, 0};
        if (range->kind != TRAJD_YAML_SEQUENCE || range->child_count != 2)
            return trajd_yaml_error(r->yaml, range, r->error, "expected [BEGIN, END]");
        for (int i = 0; i < 2 && !status; i++)
            status = trajd_yaml_int(r->yaml, i ? range->children->next : range->children, 0,
                                    INT64_C(999999999999999999), &rows[i], r->error);
        if (status)
            return status;
        wrong = trajd_ranges_add(ranges, rows[0], rows[1]);
    }
    return wrong ? trajd_yaml_error(r->yaml, node, r->error, "%s", wrong) : TRAJD_OK;
}

static enum trajd_status read_ranges_here(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_select_rules *rules)
{
    struct trajd_ranges *ranges = trajd_ranges_new(rules->ranges_place);
    enum trajd_status status = TRAJD_OK;

    if (!ranges)
        return trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_row_ranges(r, child, ranges);
    if (!status)
        status = trajd_ranges_finish(ranges, r->error);
    if (status)
        trajd_ranges_destroy(&ranges);
    rules->ranges = ranges;
    return status;
}

enum trajd_status trajd_spec_read_ranges(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *member)
{
    struct trajd_select_rules *rules = member;
    char place[512];
    enum trajd_status status;

    trajd_yaml_place(r->yaml, node, place, sizeof place);
    rules->ranges = NULL; /* a member of a mixture replaces the feed's ranges */
    rules->ranges_file = NULL;
    status = trajd_yaml_keep(r, place, &rules->ranges_place);
    if (status)
        return status;
    if (node->kind == TRAJD_YAML_SEQUENCE)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a JSON file, or {EPISODE: [[BEGIN, END], ...]}");
    return node->kind == TRAJD_YAML_SCALAR ? trajd_yaml_keep_string(r, node, &rules->ranges_file)
                                           : read_ranges_here(r, node, rules);
}

static enum trajd_status load_ranges(struct trajd_select_rules *rules, const char *folder,
                                     struct trajd_error *error)
{
    const char *file = rules->ranges_file;
    struct trajd_ranges *ranges;
    enum trajd_status status;
    char path[4096];

    if (snprintf(path, sizeof path, "%s%s%s", *file == '/' ? "" : folder, *file == '/' ? "" : "/",
                 file) >= (int)sizeof path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: the path is too long",
                               rules->ranges_place);
    status = trajd_ranges_load(path, &ranges, error);
    rules->ranges = ranges;
    return status ? trajd_error_prefix(error, "%s", rules->ranges_place) : TRAJD_OK;
}

enum trajd_status trajd_spec_ranges_load(struct trajd_window_spec *spec, const char *folder,
                                         struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (spec->select.ranges_file && !spec->select.ranges)
        status = load_ranges(&spec->select, folder, error);
    for (uint32_t m = 0; m < spec->member_count && !status; m++) {
        struct trajd_select_rules *rules = &spec->members[m].spec->select;
        if (!rules->ranges_file || rules->ranges)
            continue;
        if (rules->ranges_file == spec->select.ranges_file)
            rules->ranges = spec->select.ranges;
        else
            status = load_ranges(rules, folder, error);
    }
    return status;
}

uint64_t trajd_spec_ranges_digest(const struct trajd_window_spec *spec)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t m = 0; m < spec->member_count; m++) {
        const struct trajd_ranges *ranges = spec->members[m].spec->select.ranges;
        trajd_digest_add_u64(&digest, ranges ? ranges->digest : 0);
    }
    return trajd_digest_end(&digest);
}
