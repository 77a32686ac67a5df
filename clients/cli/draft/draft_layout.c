/* Writes a draft layout as YAML, with a comment at each guess and a list of all of them. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

enum { OUTSIDE_MAX = 24, META_MAX = 8, OUTCOMES_MAX = 4, COMMENT_COLUMN = 72 };
/* a text of a layout has at most 1024 bytes */
enum { WHY_SIZE = 704, GUESS_SIZE = 1000 };

static const char *const unit_names[] = {
    [TRAJD_UNIT_NS] = "ns", [TRAJD_UNIT_US] = "us", [TRAJD_UNIT_MS] = "ms", [TRAJD_UNIT_S] = "s"};

void draft_write_text(FILE *out, const char *text)
{
    const bool is_word = draft_matches(text, "^(null|true|false|yes|no|on|off|y|n)$", REG_ICASE);

    if (!is_word && draft_matches(text, "^[a-zA-Z][a-zA-Z0-9_./]*$", 0))
        fputs(text, out);
    else
        trajd_json_text(out, text);
}

/* Writes "GUESS: WHY" into a comment, and an entry of `guessed:` that names the key. */
static void write_guess(FILE *out, const struct draft_facts *facts, const char *section,
                        const char *name, const char *why)
{
    char entry[GUESS_SIZE];

    snprintf(entry, sizeof entry, "%s%s%s: %s", section, *name ? "." : "", name, why);
    fprintf(out, "GUESS: %s\n", why);
    fputs("  - ", facts->guesses);
    trajd_json_text(facts->guesses, entry);
    fputc('\n', facts->guesses);
}

/* ---- attributes ---- */

/* An attribute of a group, or a dataset of one value. */
struct place {
    const struct trajd_tree_attribute *attribute; /* or NULL */
    const struct trajd_tree_object *group;        /* of the attribute */
    const struct draft_stream *stream;            /* without an attribute: the dataset, or NULL */
};

static const struct trajd_tree_object *first_episode(const struct draft_facts *facts)
{
    return &facts->tree->objects[facts->groups[0]];
}

/* Returns whether the first episode is in the group, or is the group. */
static bool is_above(const struct draft_facts *facts, const struct trajd_tree_object *group)
{
    const char *episode = first_episode(facts)->path;
    const size_t length = strlen(group->path);

    return !length ||
           (!strncmp(episode, group->path, length) && (episode[length] == '/' || !episode[length]));
}

/* Finds an attribute, of the episode's group or one above it, whose name matches and whose value
 * fits. */
static struct place find_attribute(const struct draft_facts *facts, const char *names,
                                   bool (*fits)(const char *))
{
    for (uint32_t i = facts->groups[0] + 1; i-- > 0;) {
        const struct trajd_tree_object *object = &facts->tree->objects[i];
        const struct trajd_tree_attribute *list = &facts->tree->attributes[object->first_attribute];
        if (object->kind != TRAJD_TREE_GROUP || !is_above(facts, object))
            continue;
        for (uint32_t a = 0; a < object->attribute_count; a++)
            if (draft_matches(list[a].name, names, REG_ICASE) && fits(list[a].value))
                return (struct place){.attribute = &list[a], .group = object};
    }
    return (struct place){0};
}

/* Writes "attribute: OBJECT@NAME", relative to the episode where the object is its group, or "path:
 * DATASET". */
static void write_place(FILE *out, const struct draft_facts *facts, const struct place *place)
{
    char text[DRAFT_NAME_MAX];
    const bool is_episode =
        place->attribute && !strcmp(place->group->path, first_episode(facts)->path);

    if (!place->attribute) {
        fprintf(out, "path: ");
        draft_write_text(out, place->stream->path);
        return;
    }
    snprintf(text, sizeof text, "%s%s@%s", is_episode ? "" : "/",
             is_episode ? "" : place->group->path, place->attribute->name);
    fprintf(out, "attribute: ");
    trajd_json_text(out, text);
}

/* ---- meta: texts and numbers of the episodes ---- */

static bool is_text(const char *value)
{
    char *end;

    return *value && *value != '(' && *value != '{' && strcmp(value, "?") &&
           strcmp(value, "true") && strcmp(value, "false") &&
           strlen(value) < TRAJD_TREE_VALUE_MAX && (strtod(value, &end), *end);
}

static struct place find_words(const struct draft_facts *facts, const char *names)
{
    struct place place = find_attribute(facts, names, is_text);

    for (uint32_t s = 0; s < facts->stream_count && !place.attribute && !place.stream; s++) {
        const struct trajd_tree_object *object = facts->streams[s].example;
        if (!object->rank &&
            (object->form == TRAJD_TREE_TEXT || object->form == TRAJD_TREE_STRING) &&
            draft_matches(facts->streams[s].path, names, REG_ICASE))
            place.stream = &facts->streams[s];
    }
    return place;
}

/* Finds where the task is described in words. Prefers what must be words to a task, which may be a
 * number or the name of an environment. */
static struct place find_language(const struct draft_facts *facts)
{
    const struct place place = find_words(facts, "language|instruction|prompt");

    return place.attribute || place.stream ? place : find_words(facts, "task");
}

static bool is_plain_name(const char *name)
{
    return strcmp(name, "language") && strlen(name) <= TRAJD_LAYOUT_META_NAME_MAX &&
           draft_matches(name, "^[a-zA-Z][a-zA-Z0-9_]*$", 0);
}

/* Returns whether a dataset has the path that is one of the first OUTCOMES_MAX of one value that say
 * how the episode went. */
static bool is_outcome(const struct draft_facts *facts, const char *path)
{
    static const char words[] = "success|outcome|result|fail|abort";
    uint32_t count = 0;

    if (!draft_matches(path, words, REG_ICASE))
        return false;
    for (uint32_t s = 0; s < facts->stream_count && count < OUTCOMES_MAX; s++) {
        const struct draft_stream *stream = &facts->streams[s];
        if (stream->example->rank || stream->example->form == TRAJD_TREE_FOREIGN ||
            !draft_matches(stream->path, words, REG_ICASE) || !is_plain_name(stream->path))
            continue;
        if (!strcmp(stream->path, path))
            return true;
        count++;
    }
    return false;
}

/* Returns whether all episodes have the attribute, as one value, and the values differ. */
static bool differs(const struct draft_facts *facts, const struct trajd_tree_attribute *attribute)
{
    bool found = false;

    for (uint32_t e = 0; e < facts->episode_count; e++) {
        const struct trajd_tree_object *group = &facts->tree->objects[facts->groups[e]];
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
    const struct place language = find_language(facts);
    const struct trajd_tree_object *first = first_episode(facts);
    const struct trajd_tree_attribute *list = &facts->tree->attributes[first->first_attribute];
    uint32_t count = language.attribute || language.stream;

    if (count) {
        fprintf(out, "meta:\n  language: {");
        write_place(out, facts, &language);
        fprintf(out, "}   # ");
        write_guess(out, facts, "meta", "language", "the task in words");
    }
    for (uint32_t s = 0; s < facts->stream_count; s++) {
        const char *path = facts->streams[s].path;
        if (!facts->streams[s].example->rank && is_outcome(facts, path))
            fprintf(out, "%s  %s: {path: %s}   # to select by, with `where:` of a feed\n",
                    count++ ? "" : "meta:\n", path, path);
    }
    for (uint32_t a = 0; a < first->attribute_count && count < META_MAX; a++)
        if (&list[a] != language.attribute && is_plain_name(list[a].name) &&
            !is_outcome(facts, list[a].name) && differs(facts, &list[a]))
            fprintf(out, "%s  %s: {attribute: \"@%s\"}   # to select by, with `where:` of a feed\n",
                    count++ ? "" : "meta:\n", list[a].name, list[a].name);
}

/* ---- clocks ---- */

static void name_clock(const struct draft_facts *facts, uint32_t clock, char name[DRAFT_NAME_MAX])
{
    const char *path = facts->streams[facts->clocks[clock].stream].path;

    if (!facts->has_stamps) {
        snprintf(name, DRAFT_NAME_MAX, clock ? "steps%u" : "steps", clock + 1);
        return;
    }
    snprintf(name, DRAFT_NAME_MAX, "%s%s", isalpha((unsigned char)*path) ? "" : "t", path);
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
}

/* Writes that the clock has no time in common with most others, or "". */
static void describe_foreign(const struct draft_facts *facts, uint32_t which,
                             char text[DRAFT_NAME_MAX])
{
    uint32_t others = 0, foreign = 0, first = 0;
    char name[DRAFT_NAME_MAX];

    *text = '\0';
    for (uint32_t c = 0; c < facts->clock_count; c++) {
        if (c == which || !draft_is_clock_used(facts, c))
            continue;
        others++;
        if (!draft_have_common_time(&facts->clocks[which], &facts->clocks[c]))
            first = foreign++ ? first : c;
    }
    if (!foreign || 2 * foreign <= others)
        return;
    name_clock(facts, first, name);
    snprintf(text, DRAFT_NAME_MAX,
             "; no time in common with %.200s: add `offset:`, the difference of the two", name);
}

/* Writes which other stamps the streams of the clock could have as well, or "". */
static void describe_other(const struct draft_facts *facts, uint32_t which,
                           char text[DRAFT_NAME_MAX])
{
    *text = '\0';
    for (uint32_t s = 0; s < facts->stream_count && !*text; s++) {
        const struct draft_stream *stream = &facts->streams[s];
        if (!stream->left_out && stream->clock == (int)which && stream->other_clock >= 0)
            snprintf(text, DRAFT_NAME_MAX, "; %.250s would fit as well",
                     facts->streams[facts->clocks[stream->other_clock].stream].path);
    }
}

static void write_stamped(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t c = 0; c < facts->clock_count; c++) {
        const struct draft_clock *clock = &facts->clocks[c];
        const struct draft_stream *stream = &facts->streams[clock->stream];
        char name[DRAFT_NAME_MAX], foreign[DRAFT_NAME_MAX], other[DRAFT_NAME_MAX], why[WHY_SIZE];
        if (!draft_is_clock_used(facts, c))
            continue;
        name_clock(facts, c, name);
        describe_foreign(facts, c, foreign);
        describe_other(facts, c, other);
        fprintf(out, "  %s: {path: ", name);
        draft_write_text(out, stream->path);
        fprintf(out, "%s, unit: %s%s}   # ", stream->example->rank > 1 ? ", column: 0" : "",
                unit_names[clock->unit], clock->has_repeats ? ", repeated: drop" : "");
        snprintf(why, sizeof why,
                 "stamps of %.4g Hz, intervals within %.0f %% of the mean%.300s%.300s",
                 clock->rate_hz, clock->jitter_percent, foreign, other);
        write_guess(out, facts, "clocks", name, why);
    }
}

static bool is_between(const char *value, double least, double most)
{
    char *end;
    const double number = strtod(value, &end);

    return end != value && !*end && number >= least && number <= most;
}

static bool is_rate(const char *value)
{
    return is_between(value, 1, 5000);
}

static bool is_period(const char *value)
{
    return is_between(value, 0.0002, nextafter(1, 0));
}

static bool is_anything(const char *value)
{
    return *value;
}

/* What the file says of the rate of clocks without stamps. */
struct rate {
    struct place place; /* empty: nothing */
    const char *more;   /* how to read it */
    bool is_stated;     /* else the draft assumes one */
    double hz;          /* 0: not known */
};

static struct rate find_rate(const struct draft_facts *facts)
{
    static const char names[] = "fps|hz|freq|rate";
    struct rate rate = {.place = find_attribute(facts, names, is_rate), .more = "", true};

    if (rate.place.attribute) {
        rate.hz = strtod(rate.place.attribute->value, NULL);
        return rate;
    }
    rate.place = find_attribute(facts, "dt|period|timestep", is_period);
    if (rate.place.attribute) {
        rate.more = ", unit: s";
        rate.hz = 1 / strtod(rate.place.attribute->value, NULL);
        return rate;
    }
    for (uint32_t s = 0; s < facts->stream_count; s++) {
        const struct draft_stream *stream = &facts->streams[s];
        if (!stream->example->rank && stream->example->dtype &&
            draft_matches(stream->path, names, REG_ICASE)) {
            rate.place.stream = stream;
            return rate;
        }
    }
    rate.is_stated = false;
    rate.place = find_attribute(facts, "env_args", is_anything);
    rate.more = rate.place.attribute ? ", json: env_kwargs.control_freq, default: 20"
                                     : "attribute: \"@rate\", default: 20";
    return rate;
}

/* Says why a clock without stamps has its rate, and how long its longest episode is then. */
static void describe_rate(const struct draft_facts *facts, const struct rate *rate, uint32_t which,
                          double hz, char why[DRAFT_NAME_MAX])
{
    const struct draft_stream *stream = &facts->streams[facts->clocks[which].stream];
    const struct draft_stream *first = &facts->streams[facts->clocks[0].stream];

    if (which)
        snprintf(why, DRAFT_NAME_MAX,
                 "by the number of rows, %" PRIu64 " where %.200s has %" PRIu64
                 "; right only if both begin at the same time and axis 0 is time",
                 stream->most_rows, first->path, first->most_rows);
    else if (!rate->is_stated)
        snprintf(why, DRAFT_NAME_MAX,
                 "nothing states a rate. Write your recorder's as `rate:` of the dataset");
    else if (rate->hz > 0)
        snprintf(why, DRAFT_NAME_MAX,
                 "this is the rate of the rows, by its name; %" PRIu64 " rows are then %.4g s",
                 stream->most_rows, (double)stream->most_rows / hz);
    else
        snprintf(why, DRAFT_NAME_MAX, "this is the rate of the rows, by its name");
}

static void write_regular(FILE *out, const struct draft_facts *facts)
{
    const struct rate rate = find_rate(facts);

    for (uint32_t c = 0; c < facts->clock_count; c++) {
        const double hz = (rate.hz > 0 ? rate.hz : 20) * facts->clocks[c].ratio;
        char name[DRAFT_NAME_MAX], why[DRAFT_NAME_MAX];
        name_clock(facts, c, name);
        fprintf(out, "  %s: {rate: ", name);
        if (c) {
            fprintf(out, "%.9g", (double)(int64_t)(hz * 1000 + 0.5) / 1000);
        } else {
            fprintf(out, "{");
            if (rate.place.attribute || rate.place.stream)
                write_place(out, facts, &rate.place);
            fprintf(out, "%s}", rate.more);
        }
        fprintf(out, ", rows: ");
        draft_write_text(out, facts->streams[facts->clocks[c].stream].path);
        fprintf(out, "}   # ");
        describe_rate(facts, &rate, c, hz, why);
        write_guess(out, facts, "clocks", name, why);
    }
}

/* ---- streams ---- */

/* One line of `streams:`. */
struct entry {
    const struct draft_stream *stream;
    uint64_t begin, end; /* columns; end 0: all */
    const char *kind;    /* with its order */
    const char *guess;   /* NULL: none */
};

static void write_entry(FILE *out, const struct draft_facts *facts, const struct entry *entry)
{
    const struct draft_stream *stream = entry->stream;
    char name[DRAFT_NAME_MAX], clock[DRAFT_NAME_MAX];
    const long begin = ftell(out);
    long column;

    snprintf(name, sizeof name, "%s", stream->path);
    if (entry->end)
        snprintf(name, sizeof name, "%s_%" PRIu64 "_%" PRIu64, stream->path, entry->begin,
                 entry->end);
    fprintf(out, "  ");
    draft_write_text(out, name);
    fprintf(out, ": {path: ");
    draft_write_text(out, stream->path);
    if (facts->clock_count > 1) {
        name_clock(facts, (uint32_t)stream->clock, clock);
        fprintf(out, ", clock: %s", clock);
    }
    fprintf(out, ", kind: %s", entry->kind);
    if (entry->end)
        fprintf(out, ", columns: \"%" PRIu64 ":%" PRIu64 "\"", entry->begin, entry->end);
    fprintf(out, "%s%s}", stream->is_row_longer ? ", rows: first" : "",
            stream->episode_count < facts->episode_count ? ", optional: true" : "");
    column = ftell(out) - begin;
    fprintf(out, "%*s# %s (T", column < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - column) : 1, "",
            stream->example->type);
    for (uint32_t i = 1; i < stream->example->rank; i++)
        fprintf(out, ",%" PRIu64, stream->example->shape[i]);
    fputs(entry->guess ? "); " : ")\n", out);
    if (entry->guess)
        write_guess(out, facts, "streams", name, entry->guess);
}

static struct entry make_quaternion(const struct draft_stream *stream,
                                    const struct trajd_quaternion *quaternion)
{
    const char *order = trajd_quaternion_order(quaternion);
    struct entry entry = {stream, quaternion->column, quaternion->column + 4, NULL,
                          order ? "a quaternion; the order by its values"
                                : "a quaternion; nothing shows its order"};

    if (draft_matches(stream->path, "wxyz|xyzw", REG_ICASE)) {
        order = draft_matches(stream->path, "wxyz", REG_ICASE) ? "wxyz" : "xyzw";
        entry.guess = "a quaternion; the order by its name";
    }
    entry.kind = order && !strcmp(order, "wxyz") ? "slerp, order: wxyz" : "slerp, order: xyzw";
    return entry;
}

/* Writes the entries of a stream of rank 2 some of whose columns are quaternions. */
static void write_columns(FILE *out, const struct draft_facts *facts, struct entry rest,
                          const struct trajd_index_array *array)
{
    const uint64_t columns = rest.stream->example->shape[1];
    const uint32_t count = array->quaternion_count;

    for (uint32_t q = 0; q <= count; q++) {
        rest.end = q < count ? array->quaternions[q].column : columns;
        if (rest.end > rest.begin)
            write_entry(out, facts, &rest);
        if (q < count) {
            struct entry entry = make_quaternion(rest.stream, &array->quaternions[q]);
            rest.begin = entry.end;
            if (columns == 4)
                entry.end = 0;
            write_entry(out, facts, &entry);
        }
    }
}

static void write_stream(FILE *out, const struct draft_facts *facts, uint32_t which)
{
    const struct draft_stream *stream = &facts->streams[which];
    const struct trajd_tree_object *example = stream->example;
    const bool is_float =
        example->dtype == TRAJD_F16 || example->dtype == TRAJD_F32 || example->dtype == TRAJD_F64;
    const bool is_blended =
        is_float &&
        !draft_matches(stream->path, "action|cmd|command|target|ctrl|reward", REG_ICASE);
    const struct trajd_index_stream *probed = is_blended ? draft_probed(facts, which) : NULL;
    struct entry entry = {.stream = stream, .kind = "previous"};

    if (draft_is_image(stream)) {
        const bool is_depth =
            example->dtype == TRAJD_U16 || is_float || strcasestr(stream->path, "depth");
        entry.kind = is_depth ? "previous, image: {unit: mm}" : "previous, image: {color: rgb}";
        entry.guess = is_depth ? "depth; look up its unit"
                               : "images; look at one: red and blue may be swapped";
    } else if (stream->is_matrix) {
        entry.guess = "rotations as matrices, which are held: a blend of two is not a rotation";
    } else if (is_blended) {
        entry.kind = "linear";
        if (probed && example->rank == 2 &&
            facts->probe->arrays[probed->array_index].quaternion_count) {
            write_columns(out, facts, entry, &facts->probe->arrays[probed->array_index]);
            return;
        }
    }
    write_entry(out, facts, &entry);
}

/* ---- what is left out ---- */

/* Returns whether the dataset is a list of episode names. */
static bool is_filter(const struct trajd_tree_object *object)
{
    return !strncmp(object->path, "mask/", 5) && object->rank == 1 &&
           (object->form == TRAJD_TREE_STRING || object->form == TRAJD_TREE_TEXT);
}

/* Returns whether a line above names the dataset: the draft reads it, though not as a stream. */
static bool is_named(const struct draft_facts *facts, uint32_t which)
{
    const struct draft_stream *stream = &facts->streams[which];

    for (uint32_t c = 0; c < facts->clock_count && facts->has_stamps; c++)
        if (facts->clocks[c].stream == which)
            return draft_is_clock_used(facts, c);
    for (uint32_t i = 0; i < facts->split_count; i++)
        if (facts->split_streams[i] == which)
            return true;
    return !stream->example->rank &&
           ((!facts->has_stamps && find_rate(facts).place.stream == stream) ||
            find_language(facts).stream == stream || is_outcome(facts, stream->path));
}

/* Names the datasets that are outside all episodes. */
static void write_outside(FILE *out, const struct draft_facts *facts)
{
    const struct trajd_tree *tree = facts->tree;
    bool *is_inside = trajd_memory_or_exit(calloc(tree->object_count + 1, sizeof *is_inside));
    uint32_t count = 0;

    for (uint32_t e = 0; e < facts->episode_count; e++)
        memset(is_inside + facts->groups[e], true,
               draft_end_of(tree, facts->groups[e]) - facts->groups[e]);
    for (uint32_t i = 0; i < tree->object_count; i++) {
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
    for (uint32_t s = 0; s < facts->stream_count; s++) {
        const struct draft_stream *stream = &facts->streams[s];
        if (stream->left_out && !is_named(facts, s))
            fprintf(out, "  # left out: %s: %s\n", stream->path, stream->left_out);
    }
    if (facts->is_cut)
        fprintf(out, "  # left out: all datasets after the first %d\n", DRAFT_STREAMS_MAX);
    write_outside(out, facts);
}

/* ---- the layouts ---- */

static void write_episodes(FILE *out, const struct draft_facts *facts, const char *groups)
{
    const bool is_list = facts->split_count > 1;

    fprintf(out, "episodes: {files: \"**/*%s\", groups: ", facts->extension);
    trajd_json_text(out, groups);
    if (facts->split)
        fprintf(out, ", split: {%s: %s", facts->split, is_list ? "[" : "");
    for (uint32_t i = 0; i < facts->split_count; i++) {
        fputs(i ? ", " : "", out);
        draft_write_text(out, facts->streams[facts->split_streams[i]].path);
    }
    fputs(is_list ? "]" : "", out);
    if (facts->split_next) {
        fputs(", next: [", out);
        draft_write_text(out, facts->split_rows);
        fputs(", ", out);
        draft_write_text(out, facts->split_next);
        fputc(']', out);
    }
    fputs(facts->split ? "}}" : "}", out);
}

/* Writes why the episodes are a guess, if they are one. */
static void write_doubt(FILE *out, const struct draft_facts *facts)
{
    static const char words[] = "(demo|episode|ep|traj|trajectory|trial|run|rollout|take|recording|"
                                "rec|sample|seq|sequence|session)[^a-z/]*[*]$";
    char why[DRAFT_NAME_MAX] = "";
    const char *alike = draft_find_alike(facts);

    if (facts->split)
        snprintf(why, sizeof why, "where episodes end, by the names%s",
                 facts->split_next ? ", and where a next row is not the next row" : "");
    else if (alike)
        snprintf(why, sizeof why,
                 "%.300s and groups beside it are alike. They are read as parts of one episode, "
                 "but may be recordings of their own",
                 alike);
    else if (strcmp(facts->pattern, "/") && !draft_matches(facts->pattern, words, REG_ICASE))
        snprintf(why, sizeof why,
                 "each of these groups is read as an episode, but they may be parts of one "
                 "recording");
    fputs(*why ? "   # " : "\n", out);
    if (*why)
        write_guess(out, facts, "episodes", "", why);
}

/* Returns the text of a closed stream. */
static char *close_text(FILE *out, char **text)
{
    trajd_memory_close_or_exit(out, text);
    return *text;
}

char *draft_write_probe(const struct draft_facts *facts, const char *groups)
{
    char *text;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    fprintf(out, "layout: draft\nversion: 1\n");
    write_episodes(out, facts, groups);
    fputc('\n', out);
    for (int part = 0; part < 2; part++) {
        fprintf(out, part ? "streams:\n" : "clocks:\n");
        for (uint32_t s = 0; s < facts->stream_count; s++) {
            const struct draft_stream *stream = &facts->streams[s];
            if (stream->left_out || stream->example->form != TRAJD_TREE_PLAIN)
                continue;
            if (!part) {
                fprintf(out, "  c%u: {rate: 1, rows: s%u}\n", s, s);
                continue;
            }
            fprintf(out, "  s%u: {path: ", s);
            draft_write_text(out, stream->path);
            fprintf(out, ", clock: c%u, kind: previous, optional: true}\n", s);
        }
    }
    return close_text(out, &text);
}

/* Joins the head of the draft, the list of its guesses and the lines that it is about. */
static char *join(const struct draft_facts *facts, char *guesses, char *lines)
{
    char *text;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    fprintf(out, "# A draft, made from names, shapes and values of one file. `trajctl inspect`, "
                 "`check` and `plot` take\n# it as it is. Feeds, `resample`, `preprocess` and "
                 "`pack` do so once `guessed:` has no entry: look at each\n# line with GUESS, "
                 "correct it if it is wrong, and delete its entry.\nlayout: ");
    draft_write_text(out, facts->name);
    fprintf(out, "\nversion: 1\n%s%s%s", *guesses ? "guessed:\n" : "", guesses, lines);
    free(guesses);
    free(lines);
    return close_text(out, &text);
}

char *draft_write_layout(struct draft_facts *facts)
{
    char *text, *guesses;
    size_t size, guesses_size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    uint32_t filter = 0;

    facts->guesses = trajd_memory_or_exit(open_memstream(&guesses, &guesses_size));
    write_episodes(out, facts, facts->pattern);
    write_doubt(out, facts);
    while (filter < facts->tree->object_count && !is_filter(&facts->tree->objects[filter]))
        filter++;
    if (filter < facts->tree->object_count)
        fprintf(out, "filter: /mask/{key}\n");
    write_meta(out, facts);
    fprintf(out, "clocks:\n");
    (facts->has_stamps ? write_stamped : write_regular)(out, facts);
    fprintf(out, "streams:\n");
    for (uint32_t s = 0; s < facts->stream_count; s++)
        if (!facts->streams[s].left_out)
            write_stream(out, facts, s);
    write_left_out(out, facts);
    close_text(out, &text);
    close_text(facts->guesses, &guesses);
    facts->guesses = NULL;
    return join(facts, guesses, text);
}
