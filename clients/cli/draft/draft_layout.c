#include "clients/cli/draft/draft_layout_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/json.h"
#include "proto/array_len.h"
#include "proto/plural.h"

enum { OUTSIDE_MAX = 24 };

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

static bool is_anything(const char *value)
{
    return *value;
}

static const char *const rates[] = {"fps", "hz", "freq", "rate"};
static const char *const periods[] = {"dt", "period", "timestep"};

/* Returns the dataset of one value that gives the rate, or -1 where an attribute gives it, or stamps, or
 * nothing. */
static int find_rate_stream(const struct draft_facts *facts)
{
    const struct trajd_tree_object *group;

    if (facts->plan->stamped.count ||
        draft_find_attribute(facts, rates, ARRAY_LEN(rates), is_rate, &group) ||
        draft_find_attribute(facts, periods, ARRAY_LEN(periods), is_period, &group))
        return -1;
    for (uint32_t i = 0; i < facts->streams->count; i++) {
        const struct draft_stream *stream = &facts->streams->list[i];
        if (!stream->example->rank && stream->example->dtype &&
            draft_contains(stream->path, rates, ARRAY_LEN(rates)))
            return (int)i;
    }
    return -1;
}

/* Writes the rate of the first regular clock. Returns it where it is known; *is_stated: the file
 * states it. */
static double write_rate(FILE *out, const struct draft_facts *facts, bool *is_stated)
{
    static const char *const env[] = {"env_args"};
    const int stream = find_rate_stream(facts);
    const struct trajd_tree_object *group;
    const struct trajd_tree_attribute *attribute =
        draft_find_attribute(facts, rates, ARRAY_LEN(rates), is_rate, &group);

    if (attribute) {
        fprintf(out, "{attribute: ");
        draft_write_attribute(out, facts, group, attribute->name);
        fprintf(out, "}");
        *is_stated = true;
        return strtod(attribute->value, NULL);
    }
    attribute = draft_find_attribute(facts, periods, ARRAY_LEN(periods), is_period, &group);
    if (attribute) {
        fprintf(out, "{attribute: ");
        draft_write_attribute(out, facts, group, attribute->name);
        fprintf(out, ", unit: s}");
        *is_stated = true;
        return 1 / strtod(attribute->value, NULL);
    }
    if (stream >= 0) {
        fprintf(out, "{path: ");
        draft_write_text(out, facts->streams->list[stream].path);
        fprintf(out, "}");
        *is_stated = true;
        return 0;
    }
    attribute = draft_find_attribute(facts, env, ARRAY_LEN(env), is_anything, &group);
    fprintf(out, "{attribute: ");
    if (attribute)
        draft_write_attribute(out, facts, group, attribute->name);
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
    return find_rate_stream(facts) == (int)which || draft_is_meta(facts, which);
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
        fprintf(out, "  # left out: %u more dataset%s outside the episodes\n", count - OUTSIDE_MAX,
                trajd_plural(count - OUTSIDE_MAX));
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
    draft_write_meta(out, facts);
    fprintf(out, "clocks:\n");
    write_stamped(out, facts);
    write_regular(out, facts);
    fprintf(out, "streams:\n");
    draft_write_streams(out, facts);
    write_left_out(out, facts);
}
