#include "clients/cli/draft/draft_layout_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/json.h"
#include "proto/array_len.h"

enum { OUTSIDE_MAX = 24, META_MAX = 8 };

static const char *const unit_names[] = {
    [TRAJD_UNIT_NS] = "ns", [TRAJD_UNIT_US] = "us", [TRAJD_UNIT_MS] = "ms", [TRAJD_UNIT_S] = "s"};

static void write_episodes(FILE *out, const struct draft_facts *facts, const char *groups)
{
    fprintf(out, "episodes: {files: \"**/*%s\", groups: ", facts->extension);
    trajd_json_text(out, groups);
    if (facts->split.kind) {
        fprintf(out, ", split: {%s: %s", facts->split.kind, facts->split.count > 1 ? "[" : "");
        for (uint32_t i = 0; i < facts->split.count; i++) {
            fputs(i ? ", " : "", out);
            draft_write_text(out, facts->streams->list[facts->split.streams[i]].path);
        }
        fprintf(out, "%s}}   # GUESS: where episodes end, by the names\n",
                facts->split.count > 1 ? "]" : "");
        return;
    }
    fprintf(out, "}\n");
}

void draft_write_probe(FILE *out, const struct draft_facts *facts)
{
    fprintf(out, "layout: draft\nversion: 1\n");
    write_episodes(out, facts, facts->few ? facts->few : facts->episodes->pattern);
    fprintf(out, "clocks:\n");
    for (uint32_t s = 0; s < facts->streams->count; s++)
        if (!facts->streams->list[s].left_out &&
            facts->streams->list[s].example->form == TRAJD_TREE_PLAIN)
            fprintf(out, "  c%u: {rate: 1, rows: s%u}\n", s, s);
    fprintf(out, "streams:\n");
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (stream->left_out || stream->example->form != TRAJD_TREE_PLAIN)
            continue;
        fprintf(out, "  s%u: {path: ", s);
        draft_write_text(out, stream->path);
        fprintf(out, ", clock: c%u, kind: previous, optional: true", s);
        fprintf(out, "}\n");
    }
}

/* Warns of a clock that has no time in common with most others. */
static void write_foreign(FILE *out, const struct draft_facts *facts, uint32_t which)
{
    const struct draft_clocks *clocks = &facts->plan->stamped;
    uint32_t others = 0, foreign = 0, first = 0;
    char name[DRAFT_NAME_MAX];

    for (uint32_t c = 0; c < clocks->count; c++) {
        if (c == which || !draft_is_clock_used(facts->streams, facts->plan, (int)c))
            continue;
        others++;
        if (!draft_have_common_time(&clocks->list[which], &clocks->list[c]))
            first = foreign++ ? first : c;
    }
    if (!foreign || 2 * foreign <= others)
        return;
    draft_name_clock(facts, (int)first, name);
    fprintf(out, "; no time in common with %s: add `offset:`, the difference of the two", name);
}

static void write_stamped(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t c = 0; c < facts->plan->stamped.count; c++) {
        const struct draft_clock *clock = &facts->plan->stamped.list[c];
        const struct draft_stream *stream = &facts->streams->list[clock->stream];
        char name[DRAFT_NAME_MAX];
        if (!draft_is_clock_used(facts->streams, facts->plan, (int)c))
            continue;
        draft_name_clock(facts, (int)c, name);
        fprintf(out, "  %s: {path: ", name);
        draft_write_text(out, stream->path);
        fprintf(
            out,
            "%s, unit: %s%s}   # GUESS: stamps of %.4g Hz, intervals within %.0f %% of the mean",
            stream->example->rank > 1 ? ", column: 0" : "", unit_names[clock->unit],
            clock->has_repeats ? ", repeated: drop" : "", clock->rate_hz, clock->jitter_percent);
        write_foreign(out, facts, c);
        fprintf(out, "\n");
    }
}

static bool is_above(const struct draft_facts *facts, const struct trajd_tree_object *group)
{
    const char *episode = facts->tree->objects[facts->episodes->groups[0]].path;
    const size_t length = strlen(group->path);

    return !length ||
           (!strncmp(episode, group->path, length) && (episode[length] == '/' || !episode[length]));
}

/* Writes OBJECT@NAME, relative to the episode where the object is its group. */
static void write_attribute(FILE *out, const struct draft_facts *facts,
                            const struct trajd_tree_object *group, const char *name)
{
    const bool is_episode =
        !strcmp(group->path, facts->tree->objects[facts->episodes->groups[0]].path);
    char text[DRAFT_NAME_MAX];

    snprintf(text, sizeof text, "%s%s@%s", is_episode ? "" : "/", is_episode ? "" : group->path,
             name);
    trajd_json_text(out, text);
}

/* Finds an attribute, of the episode's group or one above it, whose name has one of the words and
 * whose value fits. */
static const struct trajd_tree_attribute *find_attribute(const struct draft_facts *facts,
                                                         const char *const *words, size_t count,
                                                         bool (*fits)(const char *),
                                                         const struct trajd_tree_object **group)
{
    const uint32_t last = facts->episodes->groups[0];

    for (uint32_t i = last + 1; i-- > 0;) {
        const struct trajd_tree_object *object = &facts->tree->objects[i];
        if (object->kind != TRAJD_TREE_GROUP || !is_above(facts, object))
            continue;
        for (uint32_t a = 0; a < object->attribute_count; a++) {
            const struct trajd_tree_attribute *attribute =
                &facts->tree->attributes[object->first_attribute + a];
            if (draft_contains(attribute->name, words, count) && fits(attribute->value)) {
                *group = object;
                return attribute;
            }
        }
    }
    return NULL;
}

static bool is_rate(const char *value)
{
    char *end;
    const double number = strtod(value, &end);

    return end != value && !*end && number >= 1 && number <= 5000;
}

static bool is_period(const char *value)
{
    char *end;
    const double number = strtod(value, &end);

    return end != value && !*end && number >= 0.0002 && number < 1;
}

static bool is_text(const char *value)
{
    char *end;

    return *value && *value != '(' && *value != '{' && strcmp(value, "?") &&
           strcmp(value, "true") && strcmp(value, "false") &&
           strlen(value) < TRAJD_TREE_VALUE_MAX && (strtod(value, &end), *end);
}

static bool is_anything(const char *value)
{
    return *value;
}

/* Writes the rate of the first regular clock. Returns it where it is known; *is_stated: the file
 * states it. */
static double write_rate(FILE *out, const struct draft_facts *facts, bool *is_stated)
{
    static const char *const rates[] = {"fps", "hz", "freq", "rate"}, *const env[] = {"env_args"};
    static const char *const periods[] = {"dt", "period", "timestep"};
    const struct trajd_tree_object *group;
    const struct trajd_tree_attribute *attribute =
        find_attribute(facts, rates, ARRAY_LEN(rates), is_rate, &group);

    if (attribute) {
        fprintf(out, "{attribute: ");
        write_attribute(out, facts, group, attribute->name);
        fprintf(out, "}");
        *is_stated = true;
        return strtod(attribute->value, NULL);
    }
    attribute = find_attribute(facts, periods, ARRAY_LEN(periods), is_period, &group);
    if (attribute) {
        fprintf(out, "{attribute: ");
        write_attribute(out, facts, group, attribute->name);
        fprintf(out, ", unit: s}");
        *is_stated = true;
        return 1 / strtod(attribute->value, NULL);
    }
    for (uint32_t i = 0; i < facts->streams->count; i++) {
        const struct draft_stream *stream = &facts->streams->list[i];
        if (!stream->example->rank && stream->example->dtype &&
            draft_contains(stream->path, rates, ARRAY_LEN(rates))) {
            fprintf(out, "{path: ");
            draft_write_text(out, stream->path);
            fprintf(out, "}");
            *is_stated = true;
            return 0;
        }
    }
    attribute = find_attribute(facts, env, ARRAY_LEN(env), is_anything, &group);
    fprintf(out, "{attribute: ");
    if (attribute)
        write_attribute(out, facts, group, attribute->name);
    else
        fprintf(out, "\"@rate\"");
    fprintf(out, "%s, default: 20}", attribute ? ", json: env_kwargs.control_freq" : "");
    return 0;
}

static void write_regular(FILE *out, const struct draft_facts *facts)
{
    bool is_stated = false;
    double rate_hz = 0;

    for (uint32_t c = 0; c < facts->plan->regular_count; c++) {
        const struct draft_regular *clock = &facts->plan->regular[c];
        fprintf(out, c ? "  steps%u: {rate: " : "  steps: {rate: ", c + 1);
        if (!c)
            rate_hz = write_rate(out, facts, &is_stated);
        else
            fprintf(out, "%.9g",
                    (double)(int64_t)((rate_hz > 0 ? rate_hz : 20) * clock->ratio * 1000 + 0.5) /
                        1000);
        fprintf(out, ", rows: ");
        draft_write_text(out, facts->streams->list[clock->stream].path);
        fprintf(out, "}%s\n",
                c ? "   # GUESS: by the number of rows; both begin at the same time"
                : is_stated
                    ? "   # GUESS: this is the rate"
                    : "   # GUESS: nothing states a rate. Write your recorder's: {rate: HZ, ...}");
    }
}

/* Returns whether the dataset is a list of episode names. */
static bool is_filter(const struct trajd_tree_object *object)
{
    return !strncmp(object->path, "mask/", 5) && object->rank == 1 &&
           (object->form == TRAJD_TREE_STRING || object->form == TRAJD_TREE_TEXT);
}

/* Writes the lists of episode names, if the file has such. */
static void write_filter(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t i = 0; i < facts->tree->object_count; i++) {
        if (is_filter(&facts->tree->objects[i])) {
            fprintf(out, "filter: /mask/{key}\n");
            return;
        }
    }
}

/* Where the task is described in words. */
struct meta {
    const struct trajd_tree_attribute *attribute; /* or NULL */
    const struct trajd_tree_object *group;        /* of the attribute */
    const struct draft_stream *stream;            /* without an attribute: a dataset, or NULL */
};

static struct meta find_words(const struct draft_facts *facts, const char *const *words,
                              size_t count)
{
    struct meta meta = {0};

    meta.attribute = find_attribute(facts, words, count, is_text, &meta.group);
    for (uint32_t s = 0; s < facts->streams->count && !meta.attribute && !meta.stream; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (!stream->example->rank &&
            (stream->example->form == TRAJD_TREE_TEXT ||
             stream->example->form == TRAJD_TREE_STRING) &&
            draft_contains(stream->path, words, count))
            meta.stream = stream;
    }
    return meta;
}

/* Prefers what must be words to a task, which may be a number or the name of an environment. */
static struct meta find_meta(const struct draft_facts *facts)
{
    static const char *const words[] = {"language", "instruction", "prompt", "task"};
    const struct meta meta = find_words(facts, words, ARRAY_LEN(words) - 1);

    return meta.attribute || meta.stream ? meta
                                         : find_words(facts, words + ARRAY_LEN(words) - 1, 1);
}

static bool is_plain_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    return strcmp(name, "language") && isalpha((unsigned char)*name) &&
           strlen(name) <= TRAJD_LAYOUT_META_NAME_MAX && strspn(name, letters) == strlen(name);
}

/* Returns whether all episodes have the attribute, as one value, and the values differ. */
static bool differs(const struct draft_facts *facts, const struct trajd_tree_attribute *attribute)
{
    bool found = false;

    for (uint32_t e = 0; e < facts->episodes->count; e++) {
        const struct trajd_tree_object *group = &facts->tree->objects[facts->episodes->groups[e]];
        const struct trajd_tree_attribute *list = &facts->tree->attributes[group->first_attribute];
        uint32_t a = 0;
        while (a < group->attribute_count && strcmp(list[a].name, attribute->name))
            a++;
        if (a == group->attribute_count || *list[a].value == '(' || !strcmp(list[a].value, "?"))
            return false;
        found = found || strcmp(list[a].value, attribute->value);
    }
    return found;
}

static void write_meta(FILE *out, const struct draft_facts *facts)
{
    const struct meta meta = find_meta(facts);

    const struct trajd_tree_object *first = &facts->tree->objects[facts->episodes->groups[0]];
    uint32_t count = meta.attribute || meta.stream;

    if (count) {
        fprintf(out, "meta:\n  language: {%s: ", meta.attribute ? "attribute" : "path");
        if (meta.attribute)
            write_attribute(out, facts, meta.group, meta.attribute->name);
        else
            draft_write_text(out, meta.stream->path);
        fprintf(out, "}   # GUESS: the task in words\n");
    }
    for (uint32_t a = 0; a < first->attribute_count && count < META_MAX; a++) {
        const struct trajd_tree_attribute *attribute =
            &facts->tree->attributes[first->first_attribute + a];
        if (attribute == meta.attribute || !is_plain_name(attribute->name) ||
            !differs(facts, attribute))
            continue;
        fprintf(out, "%s  %s: {attribute: \"@%s\"}   # to select by, with `where:` of a feed\n",
                count++ ? "" : "meta:\n", attribute->name, attribute->name);
    }
}

/* Returns whether a line above names the dataset: the draft reads it, though not as a stream. */
static bool is_named(const struct draft_facts *facts, uint32_t which)
{
    for (uint32_t c = 0; c < facts->plan->stamped.count; c++) {
        if (facts->plan->stamped.list[c].stream == which)
            return draft_is_clock_used(facts->streams, facts->plan, (int)c);
    }
    for (uint32_t i = 0; i < facts->split.count; i++) {
        if (facts->split.streams[i] == which)
            return true;
    }
    return find_meta(facts).stream == &facts->streams->list[which];
}

/* Names the datasets that are outside all episodes. */
static void write_outside(FILE *out, const struct draft_facts *facts)
{
    const struct trajd_tree *tree = facts->tree;
    const uint32_t *groups = facts->episodes->groups;
    bool *is_inside = calloc(tree->object_count, sizeof *is_inside);
    uint32_t count = 0;

    for (uint32_t e = 0; is_inside && e < facts->episodes->count; e++)
        memset(is_inside + groups[e], true, draft_end_of(tree, groups[e]) - groups[e]);
    for (uint32_t i = 0; is_inside && i < tree->object_count; i++) {
        const struct trajd_tree_object *object = &tree->objects[i];
        if (is_inside[i] || object->kind != TRAJD_TREE_DATASET || is_filter(object))
            continue;
        if (count++ < OUTSIDE_MAX)
            fprintf(out, "  # left out: /%s: it is outside the episodes\n", object->path);
    }
    if (count > OUTSIDE_MAX)
        fprintf(out, "  # left out: %u more datasets outside the episodes\n", count - OUTSIDE_MAX);
    free(is_inside);
}

static void write_left_out(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (stream->left_out && !is_named(facts, s))
            fprintf(out, "  # left out: %s: %s\n", stream->path, stream->left_out);
    }
    if (facts->streams->is_cut)
        fprintf(out, "  # left out: all datasets after the first %d\n", DRAFT_STREAMS_MAX);
    write_outside(out, facts);
}

void draft_write_layout(FILE *out, const struct draft_facts *facts)
{
    fprintf(
        out,
        "# A draft, made from names, shapes and values of one file. Check each line with GUESS.\n"
        "layout: ");
    draft_write_text(out, facts->name);
    fprintf(out, "\nversion: 1\n");
    write_episodes(out, facts, facts->episodes->pattern);
    write_filter(out, facts);
    write_meta(out, facts);
    fprintf(out, "clocks:\n");
    write_stamped(out, facts);
    write_regular(out, facts);
    fprintf(out, "streams:\n");
    draft_write_streams(out, facts);
    write_left_out(out, facts);
}
