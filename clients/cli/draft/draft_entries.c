/* Writes the lines of `streams:` of a draft. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "clients/cli/draft/draft_layout_internal.h"
#include "daemon/base/json.h"
#include "proto/array_len.h"

enum { COMMENT_COLUMN = 72 };

void draft_write_text(FILE *out, const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";

    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    bool is_word = false; /* of YAML */

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        is_word = is_word || !strcasecmp(text, words[i]);
    if (*text && strspn(text, letters) == strlen(text) && isalpha((unsigned char)*text) && !is_word)
        fputs(text, out);
    else
        trajd_json_text(out, text);
}

void draft_name_clock(const struct draft_facts *facts, int clock, char name[DRAFT_NAME_MAX])
{
    const struct draft_plan *plan = facts->plan;
    const char *path;

    if (!plan->stamped.count) {
        snprintf(name, DRAFT_NAME_MAX, clock ? "steps%d" : "steps", clock + 1);
        return;
    }
    path = facts->streams->list[plan->stamped.list[clock].stream].path;
    snprintf(name, DRAFT_NAME_MAX, "%s%s", isalpha((unsigned char)*path) ? "" : "t", path);
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
}

const char *draft_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void write_comment(FILE *out, long begin, const char *comment)
{
    const long column = ftell(out) - begin;

    if (*comment)
        fprintf(out, "%*s# %s", column < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - column) : 1, "",
                comment);
    fprintf(out, "\n");
}

static void write_shape(const struct draft_stream *stream, char text[DRAFT_NAME_MAX])
{
    size_t used = (size_t)snprintf(text, DRAFT_NAME_MAX, "%s (T", stream->example->type);

    for (uint32_t i = 1; i < stream->example->rank && used < DRAFT_NAME_MAX; i++)
        used += (size_t)snprintf(text + used, DRAFT_NAME_MAX - used, ",%" PRIu64,
                                 stream->example->shape[i]);
    if (used < DRAFT_NAME_MAX)
        snprintf(text + used, DRAFT_NAME_MAX - used, ")");
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
    char name[DRAFT_NAME_MAX], shape[DRAFT_NAME_MAX], comment[2 * DRAFT_NAME_MAX];
    const long begin = ftell(out);

    fprintf(out, "  ");
    snprintf(name, sizeof name, "%s", stream->path);
    if (entry->end)
        snprintf(name, sizeof name, "%s_%" PRIu64 "_%" PRIu64, stream->path, entry->begin,
                 entry->end);
    draft_write_text(out, name);
    fprintf(out, ": {path: ");
    draft_write_text(out, stream->path);
    if (facts->plan->stamped.count + facts->plan->regular_count > 1) {
        draft_name_clock(facts, clock, name);
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

/* Returns the order that the name states ("ee_quat_wxyz"), or NULL. */
static const char *named_order(const char *path)
{
    return strcasestr(path, "wxyz") ? "wxyz" : strcasestr(path, "xyzw") ? "xyzw" : NULL;
}

static struct entry make_quaternion(const struct draft_facts *facts, uint32_t stream,
                                    const struct trajd_quaternion *quaternion)
{
    const char *named = named_order(facts->streams->list[stream].path);
    const char *order = named ? named : trajd_quaternion_order(quaternion);

    return (struct entry){.stream = stream,
                          .begin = quaternion->column,
                          .end = quaternion->column + 4,
                          .kind = order && !strcmp(order, "wxyz") ? "slerp, order: wxyz"
                                                                  : "slerp, order: xyzw",
                          .guess = named   ? "a quaternion; the order by its name"
                                   : order ? "a quaternion; the order by its values"
                                           : "a quaternion; nothing shows its order"};
}

/* Writes the entries of a stream of rank 2 some of whose columns are quaternions. */
static void write_columns(FILE *out, const struct draft_facts *facts, struct entry rest,
                          const struct trajd_quaternion *quaternions, uint32_t count)
{
    const uint64_t columns = facts->streams->list[rest.stream].example->shape[1];
    uint64_t column = 0;

    if (count == 1 && columns == 4) {
        struct entry entry = make_quaternion(facts, rest.stream, quaternions);
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
            const struct entry entry = make_quaternion(facts, rest.stream, &quaternions[q]);
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
    const bool is_command = draft_contains(stream->path, commands, ARRAY_LEN(commands));
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
    count = is_float && !is_command ? find_quaternions(facts, which, &quaternions) : 0;
    if (stream->is_matrix)
        entry.guess = "rotations as matrices, which are held: a blend of two is no rotation";
    else if (is_float && !is_command)
        entry.kind = "linear";
    if (count && example->rank == 2 && !stream->is_matrix)
        write_columns(out, facts, entry, quaternions, count);
    else
        write_entry(out, facts, &entry);
}

void draft_write_streams(FILE *out, const struct draft_facts *facts)
{
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        if (!facts->streams->list[s].left_out)
            write_stream(out, facts, s);
    }
}
