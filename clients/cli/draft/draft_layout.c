#include "clients/cli/draft/draft_layout.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/json.h"
#include "proto/array_len.h"

enum { NAME_SIZE = 512, COMMENT_COLUMN = 72 };

static const char *const unit_names[] = {
    [TRAJD_UNIT_NS] = "ns", [TRAJD_UNIT_US] = "us", [TRAJD_UNIT_MS] = "ms", [TRAJD_UNIT_S] = "s"};

/* Writes a YAML scalar. */
static void write_text(FILE *out, const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";

    if (*text && strspn(text, letters) == strlen(text) && isalpha((unsigned char)*text))
        fputs(text, out);
    else
        trajd_json_text(out, text);
}

static void write_episodes(FILE *out, const struct draft_facts *facts)
{
    fprintf(out, "episodes: {files: \"**/*%s\", groups: ", facts->extension);
    trajd_json_text(out, facts->episodes->pattern);
    fprintf(out, "}\n");
}

void draft_write_probe(FILE *out, const struct draft_facts *facts)
{
    fprintf(out, "layout: probe\nversion: 1\n");
    write_episodes(out, facts);
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
        write_text(out, stream->path);
        fprintf(out, ", clock: c%u, kind: previous, optional: true", s);
        fprintf(out, "}\n");
    }
}

static bool contains(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcasestr(text, words[i]))
            return true;
    }
    return false;
}

/* Writes the name of a clock: letters of its path. */
static void name_clock(const struct draft_facts *facts, int clock, char name[NAME_SIZE])
{
    const struct draft_plan *plan = facts->plan;
    const char *path;

    if (!plan->stamped.count) {
        snprintf(name, NAME_SIZE, clock ? "steps%d" : "steps", clock + 1);
        return;
    }
    path = facts->streams->list[plan->stamped.list[clock].stream].path;
    snprintf(name, NAME_SIZE, "%s%s", isalpha((unsigned char)*path) ? "" : "t", path);
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
}

static void write_stamped(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t c = 0; c < facts->plan->stamped.count; c++) {
        const struct draft_clock *clock = &facts->plan->stamped.list[c];
        const struct draft_stream *stream = &facts->streams->list[clock->stream];
        char name[NAME_SIZE];
        if (!draft_is_clock_used(facts->streams, facts->plan, (int)c))
            continue;
        name_clock(facts, (int)c, name);
        fprintf(out, "  %s: {path: ", name);
        write_text(out, stream->path);
        fprintf(
            out,
            "%s, unit: %s%s}   # GUESS: stamps of %.4g Hz, intervals within %.0f %% of the mean\n",
            stream->example->rank > 1 ? ", column: 0" : "", unit_names[clock->unit],
            clock->has_repeats ? ", repeated: drop" : "", clock->rate_hz, clock->jitter_percent);
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
    char text[NAME_SIZE];

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
            if (contains(attribute->name, words, count) && fits(attribute->value)) {
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
            contains(stream->path, rates, ARRAY_LEN(rates))) {
            fprintf(out, "{path: ");
            write_text(out, stream->path);
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
        write_text(out, facts->streams->list[clock->stream].path);
        fprintf(out, "}%s\n",
                c ? "   # GUESS: by the number of rows; both begin at the same time"
                : is_stated
                    ? "   # GUESS: this is the rate"
                    : "   # GUESS: nothing states a rate. Write your recorder's: {rate: HZ, ...}");
    }
}

static void write_comment(FILE *out, long begin, const char *comment)
{
    const long column = ftell(out) - begin;

    if (*comment)
        fprintf(out, "%*s# %s", column < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - column) : 1, "",
                comment);
    fprintf(out, "\n");
}

static void write_shape(const struct draft_stream *stream, char text[NAME_SIZE])
{
    size_t used = (size_t)snprintf(text, NAME_SIZE, "%s (T", stream->example->type);

    for (uint32_t i = 1; i < stream->example->rank && used < NAME_SIZE; i++)
        used +=
            (size_t)snprintf(text + used, NAME_SIZE - used, ",%" PRIu64, stream->example->shape[i]);
    if (used < NAME_SIZE)
        snprintf(text + used, NAME_SIZE - used, ")");
}

/* One line of `streams:`. */
struct entry {
    uint32_t stream;
    uint64_t begin, end; /* columns; end 0: all */
    const char *kind;    /* with its order */
    const char *guess;   /* NULL: none */
};

static void write_entry(FILE *out, const struct draft_facts *facts, const struct entry *entry)
{
    const struct draft_stream *stream = &facts->streams->list[entry->stream];
    const int clock = facts->plan->clock_of[entry->stream];
    char name[NAME_SIZE], shape[NAME_SIZE], comment[2 * NAME_SIZE];
    const long begin = ftell(out);

    fprintf(out, "  ");
    snprintf(name, sizeof name, "%s", stream->path);
    if (entry->end)
        snprintf(name, sizeof name, "%s_%" PRIu64 "_%" PRIu64, stream->path, entry->begin,
                 entry->end);
    write_text(out, name);
    fprintf(out, ": {path: ");
    write_text(out, stream->path);
    if (facts->plan->stamped.count + facts->plan->regular_count > 1) {
        name_clock(facts, clock, name);
        fprintf(out, ", clock: %s", name);
    }
    fprintf(out, ", kind: %s", entry->kind);
    if (entry->end)
        fprintf(out, ", columns: \"%" PRIu64 ":%" PRIu64 "\"", entry->begin, entry->end);
    if (facts->plan->is_row_longer[entry->stream])
        fprintf(out, ", rows: first");
    if (stream->episode_count < facts->episodes->count)
        fprintf(out, ", optional: true");
    fprintf(out, "}");
    write_shape(stream, shape);
    snprintf(comment, sizeof comment, "%s%s%s", shape, entry->guess ? "; GUESS: " : "",
             entry->guess ? entry->guess : "");
    write_comment(out, begin, comment);
}

/* Finds the quaternions that the probe saw in the stream's rows. */
static uint32_t find_quaternions(const struct draft_facts *facts, uint32_t stream,
                                 const struct trajd_quaternion **list)
{
    char name[32];
    int64_t found;

    snprintf(name, sizeof name, "s%u", stream);
    found = trajd_index_find_stream(facts->probe, name);
    if (found < 0)
        return 0;
    *list = facts->probe->arrays[facts->probe->streams[found].array_index].quaternions;
    return facts->probe->arrays[facts->probe->streams[found].array_index].quaternion_count;
}

static struct entry make_quaternion(uint32_t stream, const struct trajd_quaternion *quaternion)
{
    const char *order = trajd_quaternion_order(quaternion);

    return (struct entry){.stream = stream,
                          .begin = quaternion->column,
                          .end = quaternion->column + 4,
                          .kind = order && !strcmp(order, "wxyz") ? "slerp, order: wxyz"
                                                                  : "slerp, order: xyzw",
                          .guess = order ? "a quaternion; the order by its values"
                                         : "a quaternion; nothing shows its order"};
}

/* Writes the entries of a stream of rank 2 some of whose columns are quaternions. */
static void write_columns(FILE *out, const struct draft_facts *facts, struct entry rest,
                          const struct trajd_quaternion *quaternions, uint32_t count)
{
    const uint64_t columns = facts->streams->list[rest.stream].example->shape[1];
    uint64_t column = 0;

    if (count == 1 && columns == 4) {
        struct entry entry = make_quaternion(rest.stream, quaternions);
        entry.end = 0;
        write_entry(out, facts, &entry);
        return;
    }
    for (uint32_t q = 0; q <= count; q++) {
        rest.begin = column;
        rest.end = q < count ? quaternions[q].column : columns;
        if (rest.end > rest.begin)
            write_entry(out, facts, &rest);
        if (q < count) {
            const struct entry entry = make_quaternion(rest.stream, &quaternions[q]);
            write_entry(out, facts, &entry);
            column = quaternions[q].column + 4;
        }
    }
}

static void write_stream(FILE *out, const struct draft_facts *facts, uint32_t which)
{
    static const char *const commands[] = {"action", "cmd", "command", "target", "ctrl", "reward"};
    const struct draft_stream *stream = &facts->streams->list[which];
    const struct trajd_tree_object *example = stream->example;
    const bool is_float =
        example->dtype == TRAJD_F16 || example->dtype == TRAJD_F32 || example->dtype == TRAJD_F64;
    const bool is_command = contains(stream->path, commands, ARRAY_LEN(commands));
    struct entry entry = {.stream = which, .kind = "previous"};
    const struct trajd_quaternion *quaternions;
    uint32_t count;

    if (draft_is_picture(stream)) {
        const bool is_depth =
            example->dtype == TRAJD_U16 || is_float || strcasestr(stream->path, "depth");
        entry.kind = is_depth ? "previous, image: {unit: mm}" : "previous, image: {color: rgb}";
        entry.guess = is_depth ? "depth; look up its unit"
                               : "pictures; look at one: red and blue may be swapped";
        write_entry(out, facts, &entry);
        return;
    }
    count = is_float ? find_quaternions(facts, which, &quaternions) : 0;
    if (is_float && !is_command) {
        entry.kind = "linear";
        entry.guess = NULL;
    }
    if (count && example->rank == 2)
        write_columns(out, facts, entry, quaternions, count);
    else
        write_entry(out, facts, &entry);
}

/* Writes the lists of episode names, if the file has such. */
static void write_filter(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t i = 0; i < facts->tree->object_count; i++) {
        const struct trajd_tree_object *object = &facts->tree->objects[i];
        if (!strncmp(object->path, "mask/", 5) && object->rank == 1 &&
            (object->form == TRAJD_TREE_STRING || object->form == TRAJD_TREE_TEXT)) {
            fprintf(out, "filter: /mask/{key}\n");
            return;
        }
    }
}

static void write_meta(FILE *out, const struct draft_facts *facts)
{
    static const char *const words[] = {"language", "instruction", "task", "prompt"};
    const struct trajd_tree_object *group;
    const struct trajd_tree_attribute *attribute =
        find_attribute(facts, words, ARRAY_LEN(words), is_text, &group);

    if (attribute) {
        fprintf(out, "meta: {language: {attribute: ");
        write_attribute(out, facts, group, attribute->name);
        fprintf(out, "}}   # GUESS: the task in words\n");
        return;
    }
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (stream->example->rank ||
            (stream->example->form != TRAJD_TREE_TEXT &&
             stream->example->form != TRAJD_TREE_STRING) ||
            !contains(stream->path, words, ARRAY_LEN(words)))
            continue;
        fprintf(out, "meta: {language: {path: ");
        write_text(out, stream->path);
        fprintf(out, "}}   # GUESS: the task in words\n");
        return;
    }
}

static void write_left_out(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (stream->left_out)
            fprintf(out, "  # left out: %s: %s\n", stream->path, stream->left_out);
    }
    if (facts->streams->is_cut)
        fprintf(out, "  # left out: all datasets after the first %d\n", DRAFT_STREAMS_MAX);
}

void draft_write_layout(FILE *out, const struct draft_facts *facts)
{
    fprintf(
        out,
        "# A draft, made from names, shapes and values of one file. Check each line with GUESS.\n"
        "layout: ");
    write_text(out, facts->name);
    fprintf(out, "\nversion: 1\n");
    write_episodes(out, facts);
    write_filter(out, facts);
    write_meta(out, facts);
    fprintf(out, "clocks:\n");
    write_stamped(out, facts);
    write_regular(out, facts);
    fprintf(out, "streams:\n");
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        if (!facts->streams->list[s].left_out)
            write_stream(out, facts, s);
    }
    write_left_out(out, facts);
}
