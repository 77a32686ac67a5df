/* Which datasets of the episodes can be streams, and which clock each of them has. */
#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/memory.h"
#include "proto/array_len.h"

enum { TEXT_SIZE_MAX = 256, PATH_SIZE_MAX = 240 /* a name in YAML has at most 255 bytes */ };
enum { NAMED_ALIKE = 100, ONE_COLUMN = 10 };

/* Returns the stream of the path. Adds it where it is new; NULL where there is no room. */
static struct draft_stream *find(struct draft_facts *facts, const char *path, uint32_t hint)
{
    const size_t bytes = facts->episode_count * sizeof(uint64_t);
    struct draft_stream *stream = &facts->streams[facts->stream_count];

    if (hint < facts->stream_count && !strcmp(facts->streams[hint].path, path))
        return &facts->streams[hint];
    for (uint32_t i = 0; i < facts->stream_count; i++)
        if (!strcmp(facts->streams[i].path, path))
            return &facts->streams[i];
    facts->is_cut = facts->is_cut || facts->stream_count == DRAFT_STREAMS_MAX;
    if (facts->stream_count == DRAFT_STREAMS_MAX)
        return NULL;
    facts->stream_count++;
    *stream = (struct draft_stream){
        .path = path, .least_rows = UINT64_MAX, .rows = trajd_memory_or_exit(malloc(bytes))};
    memset(stream->rows, 0xff, bytes);
    return stream;
}

/* Returns whether rows of both fit into one stream. The width of padded bytes may differ. */
static bool are_alike(const struct trajd_tree_object *a, const struct trajd_tree_object *b)
{
    if (a->form != b->form || a->dtype != b->dtype || a->rank != b->rank)
        return false;
    if (a->rank < 2 || (a->rank == 2 && a->dtype == TRAJD_U8))
        return true;
    return !memcmp(a->shape + 1, b->shape + 1, (a->rank - 1) * sizeof a->shape[0]);
}

static void add(struct draft_stream *stream, const struct trajd_tree_object *object,
                uint32_t episode)
{
    const uint64_t rows = object->rank ? object->shape[0] : 0;

    if (!stream->example)
        stream->example = object;
    stream->differs = stream->differs || !are_alike(stream->example, object);
    stream->episode_count++;
    stream->rows[episode] = rows;
    stream->least_rows = rows < stream->least_rows ? rows : stream->least_rows;
    stream->most_rows = rows > stream->most_rows ? rows : stream->most_rows;
}

/* Returns why the dataset is not a stream, as far as one dataset alone tells. */
static const char *reason_of(const struct draft_stream *stream)
{
    const struct trajd_tree_object *object = stream->example;
    const bool is_short = object->form == TRAJD_TREE_STRING && /* too short for encoded images */
                          strtoul(object->type + 1, NULL, 10) < TEXT_SIZE_MAX;

    if (draft_is_table(object))
        return "it is a table with named columns (a compound type), which trajd does not read: "
               "store each column as an array of its own";
    if (object->form == TRAJD_TREE_FOREIGN)
        return "its type is not supported";
    if (!object->rank)
        return "it is one value";
    if (object->form == TRAJD_TREE_TEXT || is_short)
        return "it has texts";
    if (stream->differs)
        return "its type or shape differs between episodes";
    if (stream->most_rows <= 1)
        return "it has one row";
    if (strchr(stream->path, '*'))
        return "its name has a *";
    if (strlen(stream->path) > PATH_SIZE_MAX)
        return "its path has more than 240 bytes";
    if (draft_matches(stream->path, "(^|/)\\.\\.?(/|$)", 0))
        return "a part of its path is . or ..";
    for (uint32_t i = 1; i < object->rank; i++)
        if (!object->shape[i])
            return "its rows are empty";
    return NULL;
}

void draft_collect_streams(struct draft_facts *facts)
{
    for (uint32_t e = 0; e < facts->episode_count; e++) {
        const uint32_t group = facts->groups[e], end = draft_end_of(facts->tree, group);
        const size_t length = strlen(facts->tree->objects[group].path);
        uint32_t hint = 0;
        for (uint32_t i = group + 1; i < end; i++) {
            const struct trajd_tree_object *object = &facts->tree->objects[i];
            struct draft_stream *stream =
                object->kind == TRAJD_TREE_DATASET
                    ? find(facts, object->path + length + (length > 0), hint)
                    : NULL;
            if (!stream)
                continue;
            add(stream, object, e);
            hint = (uint32_t)(stream - facts->streams) + 1;
        }
    }
    for (uint32_t i = 0; i < facts->stream_count; i++)
        facts->streams[i].left_out = reason_of(&facts->streams[i]);
}

bool draft_is_image(const struct draft_stream *stream)
{
    const struct trajd_tree_object *object = stream->example;

    if (stream->is_encoded || object->form == TRAJD_TREE_BYTES || object->form == TRAJD_TREE_STRING)
        return true;
    return (object->dtype == TRAJD_U8 && object->rank == 4 && object->shape[3] <= 4) ||
           ((object->dtype == TRAJD_U16 || object->dtype == TRAJD_U8) && object->rank >= 3 &&
            object->shape[1] >= 16 && object->shape[2] >= 16) ||
           (object->dtype == TRAJD_F32 && object->rank == 4 && object->shape[3] == 1);
}

/* ---- arrays that hold several episodes ---- */

/* Finds two streams that are named alike but for next_, like observations and next_observations. */
static void find_next(struct draft_facts *facts, uint64_t rows)
{
    for (uint32_t s = 0; s < facts->stream_count && !facts->split_next; s++) {
        const struct draft_stream *next = &facts->streams[s];
        const char *name = draft_last_name(next->path);
        const size_t folder = (size_t)(name - next->path);
        if (next->left_out || next->most_rows != rows || next->example->rank > 2 ||
            strncmp(name, "next_", 5))
            continue;
        for (uint32_t r = 0; r < facts->stream_count; r++) {
            const struct draft_stream *stream = &facts->streams[r];
            if (stream->left_out || strncmp(stream->path, next->path, folder) ||
                strcmp(stream->path + folder, name + 5) || stream->most_rows != rows ||
                !are_alike(stream->example, next->example))
                continue;
            facts->split_rows = stream->path;
            facts->split_next = next->path;
        }
    }
}

static void find_flags_or_numbers(struct draft_facts *facts)
{
    static const struct {
        const char *kind, *name;
    } kinds[] = {
        {"ends", "(^|/)episode_ends$"},
        {"lengths", "(^|/)(episode_lengths?|traj_lengths)$"},
        {"starts", "(^|/)episode_starts$"},
        {"flags", "(^|/)(terminals|timeouts|terminations|truncations|terminated|truncated|dones?|"
                  "is_last)$"},
    };

    for (uint32_t s = 0; s < facts->stream_count; s++) {
        const struct draft_stream *stream = &facts->streams[s];
        const uint64_t rows = facts->streams[facts->split_streams[0]].most_rows;
        uint32_t k = 0;
        if (stream->left_out || stream->example->rank != 1)
            continue;
        while (k < ARRAY_LEN(kinds) && !draft_matches(stream->path, kinds[k].name, REG_ICASE))
            k++;
        if (k < ARRAY_LEN(kinds) - 1) { /* these come before flags, and one is enough */
            facts->split = kinds[k].kind;
            facts->split_count = 1;
            facts->split_streams[0] = s;
            return;
        }
        if (k == ARRAY_LEN(kinds) || facts->split_count == DRAFT_SPLIT_MAX ||
            (facts->split_count && stream->most_rows != rows))
            continue;
        facts->split = kinds[k].kind;
        facts->split_streams[facts->split_count++] = s;
    }
}

void draft_find_split(struct draft_facts *facts)
{
    find_flags_or_numbers(facts);
    if (facts->split && !strcmp(facts->split, "flags"))
        find_next(facts, facts->streams[facts->split_streams[0]].most_rows);
}

/* Returns the number of rows that most streams have. */
static uint64_t most_common_rows(const struct draft_facts *facts)
{
    uint64_t rows = 0;
    uint32_t most = 0;

    for (uint32_t s = 0; s < facts->stream_count; s++) {
        uint32_t count = 0;
        for (uint32_t other = 0; other < facts->stream_count; other++)
            count += !facts->streams[other].left_out &&
                     facts->streams[other].most_rows == facts->streams[s].most_rows;
        if (!facts->streams[s].left_out && count > most) {
            most = count;
            rows = facts->streams[s].most_rows;
        }
    }
    return rows;
}

void draft_apply_split(struct draft_facts *facts)
{
    const uint64_t rows = strcmp(facts->split, "flags")
                              ? most_common_rows(facts)
                              : facts->streams[facts->split_streams[0]].most_rows;

    for (uint32_t s = 0; s < facts->stream_count; s++)
        if (!facts->streams[s].left_out && facts->streams[s].most_rows != rows)
            facts->streams[s].left_out = "it does not have one row for each step";
}

/* ---- the clock of each stream ---- */

/* Returns whether the two have the same number of rows in each episode that has both, after `more`
 * rows were added to those of `a`. False where no episode has both. */
static bool same_rows(const struct draft_facts *facts, const struct draft_stream *a, uint64_t more,
                      const struct draft_stream *b)
{
    bool any = false;

    for (uint32_t e = 0; e < facts->episode_count; e++) {
        if (a->rows[e] == UINT64_MAX || b->rows[e] == UINT64_MAX)
            continue;
        if (a->rows[e] + more != b->rows[e])
            return false;
        any = true;
    }
    return any;
}

/* Returns how well the paths of stamps and of a stream go together: groups in common, and words of
 * the stamps' path that the stream's path has, too ("time/arm" and "arm/q"). */
static int affinity(const char *stamps, const char *stream)
{
    int score = 0;

    for (size_t i = 0; stamps[i] && stamps[i] == stream[i]; i++)
        score += stamps[i] == '/';
    while (*stamps) {
        const size_t length = strcspn(stamps, "/_");
        char word[128];
        snprintf(word, sizeof word, "%.*s", (int)length, stamps);
        if (length > 1 && strstr(stream, word) &&
            !draft_matches(word, "^(times?|timestamps?|stamps?|clock|data)$", 0))
            score += NAMED_ALIKE;
        stamps += length + (stamps[length] != '\0');
    }
    return score;
}

/* Gives the stream the first clock without stamps that has its rows, or the stamps whose path goes
 * best with its own. */
static void choose_clock(struct draft_facts *facts, struct draft_stream *stream)
{
    int best_score = -1;

    for (uint32_t c = 0; c < facts->clock_count; c++) {
        const struct draft_stream *rows = &facts->streams[facts->clocks[c].stream];
        const bool is_longer = same_rows(facts, rows, 1, stream);
        int score = 0;
        if (facts->has_stamps)
            score = affinity(rows->path, stream->path) +
                    (rows->example->rank == 1 ? ONE_COLUMN : 0) +
                    (rows == stream ? 2 * NAMED_ALIKE : 0);
        if (!is_longer && !same_rows(facts, rows, 0, stream))
            continue;
        if (score == best_score)
            stream->other_clock = (int)c;
        if (score > best_score) {
            stream->other_clock = DRAFT_NO_CLOCK;
            stream->clock = (int)c;
            stream->is_row_longer = is_longer;
            best_score = score;
        }
    }
}

/* Makes a clock without stamps that has the rows of the stream. */
static void add_regular(struct draft_facts *facts, uint32_t stream)
{
    struct draft_clock *clock = &facts->clocks[facts->clock_count];

    if (facts->clock_count == DRAFT_REGULAR_MAX)
        return;
    *clock = (struct draft_clock){.stream = stream, .ratio = 1};
    if (facts->clock_count)
        clock->ratio = (double)facts->streams[stream].most_rows /
                       (double)facts->streams[facts->clocks[0].stream].most_rows;
    facts->streams[stream].clock = (int)facts->clock_count++;
    facts->streams[stream].is_row_longer = false;
}

/* Returns the stream whose number of rows most streams have. Of T and T+1 rows it is T. */
static uint32_t find_main(const struct draft_facts *facts)
{
    const struct draft_stream *streams = facts->streams;
    uint32_t best = 0, best_count = 0;

    for (uint32_t s = 0; s < facts->stream_count; s++) {
        uint32_t count = 0;
        for (uint32_t other = 0; other < facts->stream_count && !streams[s].left_out; other++)
            count += !streams[other].left_out && same_rows(facts, &streams[s], 0, &streams[other]);
        if (count > best_count) {
            best = s;
            best_count = count;
        }
    }
    for (uint32_t s = 0; s < facts->stream_count; s++)
        if (!streams[s].left_out && same_rows(facts, &streams[s], 1, &streams[best]))
            return s;
    return best;
}

/* Returns whether the stream has the same number of rows in each episode although the episodes differ
 * in length: a table, such as the matrix of a camera. */
static bool is_table(const struct draft_facts *facts, const struct draft_stream *stream,
                     const struct draft_stream *rows)
{
    return facts->episode_count > 1 && stream->least_rows == stream->most_rows &&
           rows->least_rows != rows->most_rows;
}

void draft_plan_clocks(struct draft_facts *facts)
{
    struct draft_stream *streams = facts->streams;
    const uint32_t first = find_main(facts);

    facts->has_stamps = facts->clock_count > 0;
    if (!facts->has_stamps && facts->stream_count && !streams[first].left_out)
        add_regular(facts, first);
    for (uint32_t s = 0; s < facts->stream_count; s++) {
        streams[s].clock = streams[s].other_clock = DRAFT_NO_CLOCK;
        if (streams[s].left_out)
            continue;
        if (facts->has_stamps || !is_table(facts, &streams[s], &streams[first]))
            choose_clock(facts, &streams[s]);
        if (streams[s].clock == DRAFT_NO_CLOCK && !facts->has_stamps &&
            !is_table(facts, &streams[s], &streams[first]))
            add_regular(facts, s);
        if (streams[s].clock == DRAFT_NO_CLOCK)
            streams[s].left_out = facts->has_stamps
                                      ? "no stamps have its number of rows"
                                      : "it has the same number of rows in each episode";
    }
    for (uint32_t c = 0; c < facts->clock_count && facts->has_stamps; c++)
        if (streams[facts->clocks[c].stream].example->rank == 1)
            streams[facts->clocks[c].stream].left_out = "its values are stamps";
    for (uint32_t c = 0; c < facts->clock_count && facts->has_stamps; c++)
        if (streams[facts->clocks[c].stream].left_out && !draft_is_clock_used(facts, c))
            streams[facts->clocks[c].stream].left_out =
                "its values are stamps that no stream needs";
}

bool draft_is_clock_used(const struct draft_facts *facts, uint32_t clock)
{
    for (uint32_t s = 0; s < facts->stream_count; s++)
        if (!facts->streams[s].left_out && facts->streams[s].clock == (int)clock)
            return true;
    return false;
}
