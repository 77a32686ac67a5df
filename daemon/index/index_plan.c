/* Lists the streams that the dataset may have: those of the layout, with families expanded to the
 * arrays of the files. Settles the shape of each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/index/index_internal.h"
#include "daemon/layout/glob.h"

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
}

/* Returns the family's name with the star replaced by the captured text. */
static const char *member_name(struct trajd_validation *v, const char *name, const char *capture)
{
    const char *star = strchr(name, '*');

    if (!star)
        return trajd_arena_copy(v->arena, name, strlen(name));
    return trajd_arena_format(v->arena, "%.*s%s%s", (int)(star - name), name, capture, star + 1);
}

static uint32_t find_clock(const struct trajd_layout *layout, const char *name)
{
    uint32_t i = 0;

    while (i + 1 < layout->clock_count && strcmp(layout->clocks[i].name, name))
        i++;
    return i;
}

static enum trajd_status add_plan(struct trajd_validation *v, uint32_t stream, uint32_t array,
                                  const char *capture, struct trajd_error *error)
{
    const struct trajd_layout *layout = v->layout;
    const struct trajd_layout_stream *source = &layout->streams[stream];
    struct trajd_stream_plan *grown = realloc(v->plans, (v->plan_count + 1) * sizeof *grown);
    struct trajd_stream_plan *plan;

    if (!grown)
        return no_memory(error);
    v->plans = grown;
    plan = &v->plans[v->plan_count++];
    *plan = (struct trajd_stream_plan){.layout_stream = stream,
                                       .array_index = array,
                                       .clock_index = find_clock(layout, source->clock)};
    plan->stream = (struct trajd_index_stream){
        .name = member_name(v, source->name, capture),
        .array_index = array,
        .clock_index = plan->clock_index,
        .kind = source->kind,
        .angle_period = source->angle_period,
        .unit =
            source->unit ? trajd_arena_copy(v->arena, source->unit, strlen(source->unit)) : NULL,
        .max_gap_ns = source->max_gap_ns,
        .optional = source->optional};
    return plan->stream.name && (plan->stream.unit || !source->unit) ? TRAJD_OK : no_memory(error);
}

/* Adds the streams of an array. It belongs to the first stream that matches it; streams without a
 * star may share it. */
static enum trajd_status plan_array(struct trajd_validation *v, uint32_t array,
                                    struct trajd_error *error)
{
    const struct trajd_layout *layout = v->layout;
    const bool is_pattern = trajd_layout_is_pattern(layout, v->paths[array]);
    enum trajd_status status = TRAJD_OK;
    bool taken = false;

    for (uint32_t i = 0; i < layout->stream_count && !status; i++) {
        char capture[1024] = "";
        const bool is_family = trajd_layout_is_family(&layout->streams[i]);
        if (is_family ? taken || is_pattern ||
                            !trajd_layout_match(layout->streams[i].path, v->paths[array], capture,
                                                sizeof capture)
                      : strcmp(layout->streams[i].path, v->paths[array]) != 0)
            continue;
        taken = true;
        status = add_plan(v, i, array, capture, error);
    }
    return status;
}

static int compare_plans(const void *a, const void *b)
{
    const struct trajd_stream_plan *left = a, *right = b;

    if (left->layout_stream != right->layout_stream)
        return left->layout_stream < right->layout_stream ? -1 : 1;
    return trajd_natural_compare(left->stream.name, right->stream.name);
}

enum trajd_status trajd_index_plan_streams(struct trajd_validation *v, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < v->array_count && !status; i++)
        status = plan_array(v, i, error);
    if (status)
        return status;
    if (v->plan_count)
        qsort(v->plans, v->plan_count, sizeof *v->plans, compare_plans);
    v->found = calloc(v->plan_count ? v->plan_count : 1, sizeof *v->found);
    return v->found ? TRAJD_OK : no_memory(error);
}

/* ---- shapes ---- */

/* The array of one episode. */
struct vote {
    const struct trajd_array *array;
    uint32_t episode;
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Compares the frames of encoded rows. How they are stored does not count. */
static int compare_images(const struct trajd_image_header *a, const struct trajd_image_header *b)
{
    int by = compare_numbers(a->height, b->height);

    by = by ? by : compare_numbers(a->width, b->width);
    by = by ? by : compare_numbers(a->channels, b->channels);
    return by ? by : compare_numbers(a->bits, b->bits);
}

static int compare_preparations(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

/* Compares the type and the shape of the rows, and how frames were prepared. */
static int compare_shapes(const struct trajd_array *a, const struct trajd_array *b)
{
    int by = compare_numbers(trajd_array_is_encoded(a), trajd_array_is_encoded(b));

    if (!by && trajd_array_is_encoded(a)) {
        by = compare_images(&a->header, &b->header);
        return by ? by : compare_preparations(a->preparation, b->preparation);
    }
    by = by ? by : compare_numbers(a->dtype, b->dtype);

    by = by ? by : compare_numbers(a->rank, b->rank);
    for (uint32_t d = 1; d < a->rank && !by; d++)
        by = compare_numbers(a->shape[d], b->shape[d]);
    return by;
}

static int compare_votes(const void *a, const void *b)
{
    const struct vote *left = a, *right = b;
    const int by = compare_shapes(left->array, right->array);

    return by ? by : compare_numbers(left->episode, right->episode);
}

/* Returns the first of the votes for the most frequent shape, and how many they are. Sorts the
 * votes, which are in the order of the episodes, if they differ. */
static struct vote elect(struct vote *votes, uint32_t count, uint32_t *winners)
{
    struct vote first = votes[0];
    uint32_t same = 1;

    while (same < count && !compare_shapes(votes[same].array, first.array))
        same++;
    *winners = same;
    if (same == count)
        return first;
    qsort(votes, count, sizeof *votes, compare_votes);
    *winners = 0;
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count; end++)
            if (compare_shapes(votes[end].array, votes[begin].array))
                break;
        if (end - begin < *winners ||
            (end - begin == *winners && votes[begin].episode > first.episode))
            continue;
        *winners = end - begin;
        first = votes[begin];
    }
    return first;
}

#define SHAPE_TEXT_SIZE 320 /* a preparation that is longer is cut off */

/* Writes "float64 [3,4]". */
static void write_shape(const struct trajd_array *array, char *text, size_t size)
{
    const struct trajd_image_header *header = &array->header;
    size_t used = (size_t)snprintf(text, size, "%s [", trajd_dtype_name(array->dtype));

    if (trajd_array_is_encoded(array)) {
        snprintf(text, size, "%s frames of %ux%ux%u with %u bits%s%s",
                 array->preparation ? "prepared" : "encoded", header->height, header->width,
                 header->channels, header->bits, array->preparation ? ": " : "",
                 array->preparation ? array->preparation : "");
        return;
    }
    for (uint32_t d = 1; d < array->rank && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d > 1 ? "," : "",
                                 array->shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

#define NO_EPISODE UINT32_MAX

struct settling {
    struct trajd_validation *validation;
    struct trajd_index *index;
    struct trajd_episode *episodes;
    struct vote *votes; /* [episode_count] */
    uint32_t *firsts;   /* [array_count]: the first episode that has the array, or NO_EPISODE */
    bool *differs;      /* [array_count]: not all episodes have the shape of the first one */
    uint32_t array;
    bool is_required;
};

static const char *describe_other_shape(const struct settling *s, const struct vote *vote,
                                        const struct vote *kept, uint32_t winners, uint32_t voters)
{
    const struct trajd_episode *episode = &s->episodes[vote->episode];
    const char *file = s->index->files[episode->file_index].relative_path;
    const bool is_file = episode->id == file;
    char found[SHAPE_TEXT_SIZE], shape[SHAPE_TEXT_SIZE];

    write_shape(vote->array, found, sizeof found);
    write_shape(kept->array, shape, sizeof shape);
    return trajd_arena_format(s->validation->arena,
                              "%.400s: %.200s%s%.200s: its rows are %s; %s, the shape of %u of %u "
                              "episodes, is kept",
                              file, is_file ? "" : episode->id, is_file ? "" : ": ",
                              s->validation->paths[s->array], found, shape, winners, voters);
}

bool trajd_index_quarantine(struct trajd_validation *v, struct trajd_index *index,
                            struct trajd_episode *episodes, uint32_t e, const char *reason)
{
    struct trajd_episode *episode = &episodes[e];

    if (!reason)
        return false;
    episode->quarantine = reason;
    episode->extents = NULL;
    episode->clocks = NULL;
    index->kept_count--;
    v->trimmed_row_count -= v->trimmed_rows[e];
    return true;
}

/* Leaves the array, or the whole episode, out. Returns false if out of memory. */
static bool leave_out(struct settling *s, const struct vote *vote, const char *reason)
{
    struct trajd_episode *episode = &s->episodes[vote->episode];
    const char **other_shapes = (const char **)episode->other_shapes; /* allocated here */

    if (s->is_required || !reason)
        return trajd_index_quarantine(s->validation, s->index, s->episodes, vote->episode, reason);
    if (!other_shapes)
        other_shapes = trajd_arena_alloc(s->validation->arena,
                                         s->validation->array_count * sizeof *other_shapes);
    if (!other_shapes)
        return false;
    other_shapes[s->array] = reason;
    episode->other_shapes = other_shapes;
    /* allocated by trajd_index_validate; const for all other code */
    ((struct trajd_array *)episode->extents)[s->array] =
        (struct trajd_array){.storage = TRAJD_STORAGE_ABSENT};
    return true;
}

static bool has_rows(const struct trajd_array *array)
{
    return array->storage != TRAJD_STORAGE_ABSENT && array->size_bytes;
}

/* Finds the arrays of which all episodes have one shape: mostly all. In the order of the memory, in
 * which 10,000 episodes with 50 arrays take 200 MB. */
static void compare_all(struct settling *s)
{
    const uint32_t array_count = s->validation->array_count;

    memset(s->firsts, 0xff, array_count * sizeof *s->firsts);
    for (uint32_t e = 0; e < s->index->episode_count; e++) {
        const struct trajd_array *extents =
            s->episodes[e].quarantine ? NULL : s->episodes[e].extents;
        for (uint32_t i = 0; i < array_count && extents; i++) {
            if (s->differs[i] || !has_rows(&extents[i]))
                continue;
            if (s->firsts[i] == NO_EPISODE)
                s->firsts[i] = e;
            else
                s->differs[i] =
                    compare_shapes(&extents[i], &s->episodes[s->firsts[i]].extents[i]) != 0;
        }
    }
}

/* Establishes the streams of an array. */
static void establish(struct settling *s, uint32_t episode)
{
    struct trajd_validation *v = s->validation;

    for (uint32_t p = 0; p < v->plan_count; p++)
        if (v->plans[p].array_index == s->array)
            trajd_index_establish(v, &v->plans[p], s->episodes[episode].extents);
}

/* Settles one array. Returns false if out of memory. */
static bool settle(struct settling *s)
{
    const uint32_t first = s->firsts[s->array];
    uint32_t count = 0, winners;
    struct vote kept;

    if (first != NO_EPISODE && !s->differs[s->array] && !s->episodes[first].quarantine) {
        establish(s, first);
        return true;
    }
    for (uint32_t e = 0; e < s->index->episode_count; e++) {
        const struct trajd_array *array =
            s->episodes[e].quarantine ? NULL : &s->episodes[e].extents[s->array];
        if (array && has_rows(array))
            s->votes[count++] = (struct vote){array, e};
    }
    if (!count)
        return true;
    kept = elect(s->votes, count, &winners);
    establish(s, kept.episode);
    for (uint32_t i = 0; i < count && winners < count; i++)
        if (compare_shapes(s->votes[i].array, kept.array) &&
            !leave_out(s, &s->votes[i],
                       describe_other_shape(s, &s->votes[i], &kept, winners, count)))
            return false;
    return true;
}

enum trajd_status trajd_index_settle_shapes(struct trajd_validation *v, struct trajd_index *index,
                                            struct trajd_episode *episodes,
                                            struct trajd_error *error)
{
    struct settling s = {.validation = v, .index = index, .episodes = episodes};
    struct trajd_arena scratch = {.limit_bytes = SIZE_MAX};
    bool *is_stream = trajd_arena_array(&scratch, v->array_count, sizeof *is_stream),
         *is_required = trajd_arena_array(&scratch, v->array_count, sizeof *is_required);
    bool has_memory;

    s.votes = trajd_arena_array(&scratch, index->episode_count, sizeof *s.votes);
    s.firsts = trajd_arena_array(&scratch, v->array_count, sizeof *s.firsts);
    s.differs = trajd_arena_array(&scratch, v->array_count, sizeof *s.differs);
    has_memory = !scratch.is_starved;
    if (has_memory)
        compare_all(&s);
    for (uint32_t p = 0; p < v->plan_count && has_memory; p++) {
        is_stream[v->plans[p].array_index] = true;
        is_required[v->plans[p].array_index] |= !v->plans[p].stream.optional;
    }
    for (int pass = 0; pass < 2; pass++)
        for (s.array = 0; s.array < v->array_count && has_memory; s.array++) {
            s.is_required = pass == 0;
            if (is_stream[s.array] && is_required[s.array] == s.is_required)
                has_memory = settle(&s);
        }
    trajd_arena_free(&scratch);
    return has_memory ? TRAJD_OK : no_memory(error);
}
