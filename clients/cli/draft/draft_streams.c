#include "clients/cli/draft/draft_streams.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE_MAX = 256, PATH_SIZE_MAX = 240 /* a name in YAML has at most 255 bytes */ };

/* Returns the stream of the path. Adds it where it is new; NULL where there is no room. */
static struct draft_stream *find(struct draft_streams *streams, const char *path, uint32_t hint,
                                 uint32_t episode_count)
{
    struct draft_stream *stream;

    if (hint < streams->count && !strcmp(streams->list[hint].path, path))
        return &streams->list[hint];
    for (uint32_t i = 0; i < streams->count; i++) {
        if (!strcmp(streams->list[i].path, path))
            return &streams->list[i];
    }
    if (streams->count == DRAFT_STREAMS_MAX) {
        streams->is_cut = true;
        return NULL;
    }
    stream = &streams->list[streams->count];
    stream->rows = trajd_arena_alloc(&streams->arena, (size_t)episode_count * sizeof *stream->rows);
    if (!stream->rows)
        return NULL;
    memset(stream->rows, 0xff, (size_t)episode_count * sizeof *stream->rows);
    stream->path = path;
    stream->least_rows = UINT64_MAX;
    streams->count++;
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

/* Returns whether strings are too short for encoded pictures. */
static bool is_short_text(const struct trajd_tree_object *object)
{
    return object->form == TRAJD_TREE_STRING && strtoul(object->type + 1, NULL, 10) < TEXT_SIZE_MAX;
}

/* Returns whether a part of the path is "." or "..". A layout's path has none. */
static bool has_dots(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        const size_t length = strcspn(part, "/");
        if (length && length <= 2 && strspn(part, ".") >= length)
            return true;
    }
    return false;
}

/* Returns why the dataset is no stream, as far as one dataset alone tells. */
static const char *reason_of(const struct draft_stream *stream)
{
    const struct trajd_tree_object *object = stream->example;

    if (object->form == TRAJD_TREE_FOREIGN)
        return "its type is not supported";
    if (!object->rank)
        return "it is one value";
    if (object->form == TRAJD_TREE_TEXT || is_short_text(object))
        return "it has texts";
    if (stream->differs)
        return "its type or shape differs between episodes";
    if (stream->most_rows <= 1)
        return "it has one row";
    if (strchr(stream->path, '*'))
        return "its name has a *";
    if (strlen(stream->path) > PATH_SIZE_MAX)
        return "its path has more than 240 bytes";
    if (has_dots(stream->path))
        return "a part of its path is . or ..";
    for (uint32_t i = 1; i < object->rank; i++) {
        if (!object->shape[i])
            return "its rows are empty";
    }
    return NULL;
}

bool draft_collect_streams(const struct trajd_tree *tree, const struct draft_episodes *episodes,
                           struct draft_streams *streams)
{
    for (uint32_t e = 0; e < episodes->count; e++) {
        const uint32_t group = episodes->groups[e], end = draft_end_of(tree, group);
        const size_t length = strlen(tree->objects[group].path);
        uint32_t hint = 0;
        for (uint32_t i = group + 1; i < end; i++) {
            const struct trajd_tree_object *object = &tree->objects[i];
            struct draft_stream *stream;
            if (object->kind != TRAJD_TREE_DATASET)
                continue;
            stream = find(streams, object->path + length + (length > 0), hint, episodes->count);
            if (!stream && !streams->is_cut)
                return false;
            if (!stream)
                continue;
            add(stream, object, e);
            hint = (uint32_t)(stream - streams->list) + 1;
        }
    }
    for (uint32_t i = 0; i < streams->count; i++)
        streams->list[i].left_out = reason_of(&streams->list[i]);
    return true;
}

bool draft_same_rows(const struct draft_episodes *episodes, const struct draft_stream *a,
                     uint64_t more, const struct draft_stream *b)
{
    bool any = false;

    for (uint32_t e = 0; e < episodes->count; e++) {
        if (a->rows[e] == UINT64_MAX || b->rows[e] == UINT64_MAX)
            continue;
        if (a->rows[e] + more != b->rows[e])
            return false;
        any = true;
    }
    return any;
}

bool draft_is_picture(const struct draft_stream *stream)
{
    const struct trajd_tree_object *object = stream->example;

    if (stream->is_encoded || object->form == TRAJD_TREE_BYTES || object->form == TRAJD_TREE_STRING)
        return true;
    return (object->dtype == TRAJD_U8 && object->rank == 4 && object->shape[3] <= 4) ||
           ((object->dtype == TRAJD_U16 || object->dtype == TRAJD_U8) && object->rank >= 3 &&
            object->shape[1] >= 16 && object->shape[2] >= 16) ||
           (object->dtype == TRAJD_F32 && object->rank == 4 && object->shape[3] == 1);
}
