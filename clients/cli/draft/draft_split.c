#include "clients/cli/draft/draft_split.h"

#include <string.h>
#include <strings.h>

#include "proto/array_len.h"

static const struct {
    const char *kind, *name;
} names[] = {
    {"ends", "episode_ends"},    {"lengths", "episode_lengths"}, {"lengths", "episode_length"},
    {"lengths", "traj_lengths"}, {"starts", "episode_starts"},   {"flags", "terminals"},
    {"flags", "timeouts"},       {"flags", "terminations"},      {"flags", "truncations"},
    {"flags", "terminated"},     {"flags", "truncated"},         {"flags", "dones"},
    {"flags", "done"},           {"flags", "is_last"},
};

/* Returns the kind of split for which the stream has a name and one column, or NULL. */
static const char *kind_of(const struct draft_stream *stream)
{
    const char *slash = strrchr(stream->path, '/'), *last = slash ? slash + 1 : stream->path;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!stream->left_out && stream->example->rank == 1 && !strcasecmp(last, names[i].name))
            return names[i].kind;
    }
    return NULL;
}

struct draft_split draft_find_split(const struct draft_streams *streams)
{
    struct draft_split split = {0};

    for (uint32_t s = 0; s < streams->count; s++) {
        const char *kind = kind_of(&streams->list[s]);
        if (!kind)
            continue;
        if (strcmp(kind, "flags"))
            return (struct draft_split){.kind = kind, .count = 1, .streams = {s}};
        if (split.count == DRAFT_SPLIT_MAX ||
            (split.count &&
             streams->list[s].most_rows != streams->list[split.streams[0]].most_rows))
            continue;
        split.kind = kind;
        split.streams[split.count++] = s;
    }
    return split;
}

/* Returns the number of rows that most streams have. */
static uint64_t most_common_rows(const struct draft_streams *streams)
{
    uint64_t rows = 0;
    uint32_t most = 0;

    for (uint32_t s = 0; s < streams->count; s++) {
        uint32_t count = 0;
        for (uint32_t other = 0; other < streams->count; other++)
            count += !streams->list[other].left_out &&
                     streams->list[other].most_rows == streams->list[s].most_rows;
        if (!streams->list[s].left_out && count > most) {
            most = count;
            rows = streams->list[s].most_rows;
        }
    }
    return rows;
}

void draft_apply_split(const struct draft_split *split, struct draft_streams *streams)
{
    const uint64_t rows = strcmp(split->kind, "flags") ? most_common_rows(streams)
                                                       : streams->list[split->streams[0]].most_rows;

    for (uint32_t s = 0; s < streams->count; s++) {
        struct draft_stream *stream = &streams->list[s];
        if (!stream->left_out && stream->most_rows != rows)
            stream->left_out = "it does not have one row for each step";
    }
}
