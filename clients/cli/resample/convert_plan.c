#include "clients/cli/resample/convert_plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/base/digest.h"
#include "daemon/index/writer_protocol.h"

enum {
    NOTE_SIZE = 1024,
    CHUNK_BYTES = 64 << 10,
    CHUNK_BLOCK_BYTES_MAX = 64 << 20,
    KEYS_MAX = 256,
    ARRAY_BYTES = 32 /* of an array in a frame, beside its path */
};

static const size_t plan_bytes_max = (size_t)2 << 30;
static const uint64_t steps_max = UINT64_C(1) << 40; /* of one episode */

void convert_note(const struct trajd_convert_options *options, const char *format, ...)
{
    char text[NOTE_SIZE];
    va_list arguments;

    if (!options->on_note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    options->on_note(options->context, text);
}

/* ---- clocks ---- */

int64_t convert_row_at(const struct trajd_episode_clock *clock, int64_t rows, int64_t x)
{
    int64_t low = 0, high = rows; /* the first row behind x */

    if (!clock->stamps_ns) {
        const int64_t row =
            x < clock->start_ns ? -1 : trajd_rate_row_at(clock->rate, x - clock->start_ns);
        return row < rows ? row : rows - 1;
    }
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (clock->stamps_ns[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* Rows of the dataset that its clock counts: where it drops some, those that are left. A clock that
 * no stream of the episode is on counts none, even if its stamps are there. */
static int64_t row_count(const struct trajd_episode_clock *clock, const struct trajd_array *array)
{
    const uint64_t rows = array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes
                              ? 0
                              : trajd_array_row_count(array);

    if (clock->stamps_ns)
        return rows ? clock->row_count : 0;
    return clock->rate.num > 0 ? (int64_t)rows : 0;
}

/* ---- one episode ---- */

static enum trajd_status leave_out(struct convert_plan *plan, const struct trajd_index *index,
                                   const struct trajd_episode *episode, const char *why)
{
    const char *file = index->files[episode->file_index].relative_path;

    plan->left_out++;
    if (strcmp(file, episode->id))
        convert_note(plan->options, "%s: %s: left out: %s", file, episode->id, why);
    else
        convert_note(plan->options, "%s: left out: %s", file, why);
    return TRAJD_OK;
}

/* A stream of some columns says nothing of the others: rows are read only where all of them are as
 * wide as the first episode's. */
static bool has_its_rows(const struct convert_dataset *dataset, const struct trajd_array *array)
{
    bool same =
        !dataset->lane_count || (array->dtype == dataset->from && array->rank == dataset->rank + 1);

    for (uint32_t d = 0; d < dataset->rank && dataset->lane_count && same; d++)
        same = array->shape[d + 1] == dataset->shape[d];
    return same;
}

/* Whether the frame that names all compressed chunks still has room for the episode's. */
static bool add_chunks(struct convert_plan *plan, const struct convert_episode *made,
                       const char *groups)
{
    for (uint32_t a = 0; a < made->array_count; a++) {
        const struct convert_dataset *dataset = &plan->datasets[made->arrays[a].dataset];
        const uint64_t chunk_bytes = (dataset->rank + 1 + 2) * sizeof(uint64_t);
        uint64_t bytes;
        if (!dataset->is_compressed)
            continue;
        if (__builtin_mul_overflow(convert_chunk_count(dataset, made->step_count), chunk_bytes,
                                   &bytes) ||
            bytes > TRAJD_WRITER_FRAME_BYTES_MAX)
            return false;
        plan->chunk_bytes +=
            bytes + strlen(groups) + strlen(made->id) + strlen(dataset->path) + ARRAY_BYTES;
        if (plan->chunk_bytes > TRAJD_WRITER_FRAME_BYTES_MAX)
            return false;
    }
    return true;
}

/* Adds up sizes; false where they are beyond sense. */
static bool add_sizes(struct convert_plan *plan, const struct convert_episode *made)
{
    for (uint32_t a = 0; a < made->array_count; a++) {
        uint64_t bytes;
        if (__builtin_mul_overflow(plan->datasets[made->arrays[a].dataset].row_bytes,
                                   made->step_count, &bytes) ||
            __builtin_add_overflow(plan->byte_count, bytes, &plan->byte_count) ||
            plan->byte_count > INT64_MAX)
            return false;
    }
    plan->step_count += made->step_count;
    plan->duration_ns += (uint64_t)convert_step_ns(plan, made->step_count - 1);
    return true;
}

/* ---- its parts ---- */

static struct convert_episode *next_episode(struct convert_plan *plan)
{
    /* only where episodes are cut: the old ones stay in the arena */
    if (plan->episode_count == plan->episode_room) {
        const uint32_t room = plan->episode_room + plan->episode_room / 2 + 16;
        struct convert_episode *grown = trajd_arena_alloc(&plan->arena, room * sizeof *grown);
        if (!grown)
            return NULL;
        memcpy(grown, plan->episodes, plan->episode_count * sizeof *grown);
        plan->episodes = grown;
        plan->episode_room = room;
    }
    return &plan->episodes[plan->episode_count];
}

/* One grid, from begin to end. */
static enum trajd_status add_episode(struct convert_plan *plan, const struct convert_episode *whole,
                                     const struct gap_splitter *splitter, int64_t begin,
                                     int64_t end, uint64_t steps, struct trajd_error *error)
{
    struct convert_episode *made = next_episode(plan);
    const size_t size = (whole->array_count + 1) * sizeof *whole->arrays;
    const bool is_whole = begin == whole->begin_ns && end == whole->end_ns;

    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for a plan of so many episodes");
    *made = *whole;
    made->begin_ns = begin;
    made->end_ns = end;
    made->step_count = steps;
    if (!is_whole) {
        made->arrays = trajd_arena_alloc(&plan->arena, size);
        if (!made->arrays)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for a plan of so many episodes");
        memcpy(made->arrays, whole->arrays, size);
    }
    for (uint32_t a = 0; a < made->array_count; a++)
        made->arrays[a].first_row = splitter->holes[a].first_row;
    if (steps > steps_max || !add_sizes(plan, made))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: %.3g s at this rate are %" PRIu64 " rows: beyond sense",
                               made->id, (double)(end - begin) * 1e-9, steps);
    if (!add_chunks(plan, made, plan->options->indexes[made->source]->layout->groups))
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s: the output has too many compressed chunks: --compress none, or larger chunks",
            made->id);
    plan->episode_count++;
    return TRAJD_OK;
}

static enum trajd_status leave_out_for_hole(struct convert_plan *plan,
                                            const struct convert_episode *whole, bool may_be_cut)
{
    const struct trajd_index *index = plan->options->indexes[whole->source];
    const struct trajd_episode *episode = &index->episodes[whole->episode];
    struct convert_hole hole;
    char why[400] = "";

    for (uint32_t a = 0; a < whole->array_count && !*why; a++) {
        struct gap_splitter splitter = {.plan = plan,
                                        .episode = episode,
                                        .arrays = &whole->arrays[a],
                                        .array_count = 1,
                                        .holes = &hole};
        const struct convert_dataset *dataset = &plan->datasets[whole->arrays[a].dataset];
        gap_splitter_begin(&splitter, whole->begin_ns, whole->end_ns);
        if (hole.row >= 0)
            snprintf(why, sizeof why,
                     "%.200s: a hole of %.6g ms after row %" PRId64 " (max_gap %.6g ms)%s",
                     dataset->path, (double)(hole.to_ns - hole.from_ns) * 1e-6, hole.row,
                     (double)dataset->max_gap_ns * 1e-6,
                     may_be_cut ? ", and no two steps between holes"
                                : ": a layout of one episode a file has no place for its parts");
    }
    return leave_out(plan, index, episode, why);
}

static void tell_of_parts(const struct convert_plan *plan, const struct convert_episode *whole,
                          uint32_t count, uint32_t dropped)
{
    const struct trajd_index *index = plan->options->indexes[whole->source];
    char rest[80] = "";

    if (dropped)
        snprintf(rest, sizeof rest, ", %u of a single step left out", dropped);
    convert_note(plan->options, "%s: %s: cut at holes into %u part%s%s",
                 index->files[index->episodes[whole->episode].file_index].relative_path, whole->id,
                 count, count == 1 ? "" : "s", rest);
}

/* As one, or where it has holes that are too long as the parts between them. A part of a single
 * step is nobody's trajectory. */
static enum trajd_status add_parts(struct convert_plan *plan, const struct convert_episode *whole,
                                   struct trajd_error *error)
{
    const struct trajd_index *index = plan->options->indexes[whole->source];
    const bool may_be_cut = strpbrk(index->layout->groups, "*?[") != NULL;
    struct gap_splitter splitter = {.plan = plan,
                                    .episode = &index->episodes[whole->episode],
                                    .arrays = whole->arrays,
                                    .array_count = whole->array_count};
    const uint32_t first = plan->episode_count;
    uint32_t dropped = 0, count;
    int64_t begin, end;
    enum trajd_status status = TRAJD_OK;

    splitter.holes =
        trajd_arena_alloc(&plan->arena, (whole->array_count + 1) * sizeof *splitter.holes);
    if (!splitter.holes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for a plan of so many episodes");
    gap_splitter_begin(&splitter, whole->begin_ns, whole->end_ns);
    while (!status && gap_splitter_next(&splitter, &begin, &end)) {
        const uint64_t steps = (uint64_t)trajd_rate_row_at(plan->options->rate, end - begin) + 1;
        if (begin == whole->begin_ns && end == whole->end_ns)
            return add_episode(plan, whole, &splitter, begin, end, steps, error);
        if (!may_be_cut)
            break;
        if (steps < 2)
            dropped++;
        else
            status = add_episode(plan, whole, &splitter, begin, end, steps, error);
    }
    count = plan->episode_count - first;
    if (status)
        return status;
    if (!count)
        return leave_out_for_hole(plan, whole, may_be_cut);
    for (uint32_t p = 0; p < count; p++) {
        plan->episodes[first + p].part = p;
        plan->episodes[first + p].part_count = count;
    }
    plan->cut_count++;
    tell_of_parts(plan, whole, count, dropped);
    return TRAJD_OK;
}

/* The episode's datasets, and the span that all of them cover. */
static enum trajd_status make_episode(struct convert_plan *plan, uint32_t source, uint32_t number,
                                      struct trajd_error *error)
{
    const struct trajd_index *index = plan->options->indexes[source];
    const struct trajd_episode *episode = &index->episodes[number];
    struct convert_episode whole = {.source = source, .episode = number, .id = episode->id},
                           *made = &whole;
    int64_t begin = INT64_MIN, end = INT64_MAX;
    const char *latest = "", *earliest = "";
    char why[400];

    made->arrays =
        trajd_arena_alloc(&plan->arena, (plan->dataset_count + 1) * sizeof *made->arrays);
    if (!made->arrays)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for a plan of so many episodes");
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        const uint32_t mapped = plan->source_datasets[source][d];
        const struct trajd_episode_clock *clock = &episode->clocks[plan->datasets[d].clock];
        const int64_t rows = mapped == UINT32_MAX ? 0 : row_count(clock, &episode->extents[mapped]);
        if (rows <= 0)
            continue;
        if (!has_its_rows(&plan->datasets[d], &episode->extents[mapped])) {
            snprintf(why, sizeof why,
                     "%.200s: its rows are %" PRIu64 " x %s, and %" PRIu64
                     " x %s in the first episode",
                     plan->datasets[d].path, trajd_array_row_elements(&episode->extents[mapped]),
                     trajd_dtype_name(episode->extents[mapped].dtype), plan->datasets[d].elements,
                     trajd_dtype_name(plan->datasets[d].from));
            return leave_out(plan, index, episode, why);
        }
        if (convert_row_ns(clock, 0) > begin) {
            begin = convert_row_ns(clock, 0);
            latest = plan->datasets[d].path;
        }
        if (convert_row_ns(clock, rows - 1) < end) {
            end = convert_row_ns(clock, rows - 1);
            earliest = plan->datasets[d].path;
        }
        made->arrays[made->array_count++] = (struct convert_array){.dataset = d, .rows = rows};
    }
    if (!made->array_count)
        return leave_out(plan, index, episode, "it has no rows of the streams");
    if (begin > end) {
        snprintf(why, sizeof why, "%.150s begins %.3f s after %.150s has ended", latest,
                 (double)(begin - end) * 1e-9, earliest);
        return leave_out(plan, index, episode, why);
    }
    made->begin_ns = begin;
    made->end_ns = end;
    return add_parts(plan, made, error);
}

/* ---- which episodes ---- */

/* The number that ends the id: demo_12 -> 12. */
static bool last_number(const char *id, uint64_t *number)
{
    size_t end = strlen(id), begin = end;

    while (begin > 0 && id[begin - 1] >= '0' && id[begin - 1] <= '9')
        begin--;
    if (begin == end || end - begin > 18)
        return false;
    *number = strtoull(id + begin, NULL, 10);
    return true;
}

/* "7" or "0..9". */
static bool parse_range(const char *text, uint64_t *first, uint64_t *last)
{
    int used = 0;

    if (strspn(text, "0123456789.") != strlen(text))
        return false;
    if (sscanf(text, "%18" SCNu64 "..%18" SCNu64 "%n", first, last, &used) == 2 && !text[used])
        return *first <= *last;
    used = 0;
    *last = 0;
    if (sscanf(text, "%18" SCNu64 "%n", first, &used) != 1 || text[used])
        return false;
    *last = *first;
    return true;
}

static bool names_episode(const char *item, const char *id)
{
    uint64_t first, last, number;

    if (trajd_layout_match(item, id, NULL, 0))
        return true;
    return parse_range(item, &first, &last) && last_number(id, &number) && number >= first &&
           number <= last;
}

static bool has_key(const struct trajd_episode *episode, const char *key)
{
    for (const char *const *own = episode->filter_keys; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

bool convert_chooses_episode(const struct trajd_convert_options *options,
                             const struct trajd_episode *episode)
{
    bool named = !options->episode_count;

    if (options->filter && !has_key(episode, options->filter))
        return false;
    for (uint32_t i = 0; i < options->episode_count && !named; i++)
        named = names_episode(options->episodes[i], episode->id);
    return named;
}

/* Every wish finds an episode somewhere. */
static enum trajd_status check_wishes(const struct trajd_convert_options *options,
                                      struct trajd_error *error)
{
    const char *keys[KEYS_MAX], *near;
    size_t key_count = 0;
    bool any = !options->filter;

    for (uint32_t i = 0; i < options->episode_count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < options->index_count && !found; k++)
            for (uint32_t e = 0; e < options->indexes[k]->episode_count && !found; e++)
                found = names_episode(options->episodes[i], options->indexes[k]->episodes[e].id);
        if (!found)
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "--episodes: there is no %s (the first is %s)",
                                   options->episodes[i], options->indexes[0]->episodes[0].id);
    }
    for (uint32_t k = 0; k < options->index_count && options->filter; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count; e++)
            for (const char *const *own = options->indexes[k]->episodes[e].filter_keys; own && *own;
                 own++) {
                any = any || !strcmp(*own, options->filter);
                if (key_count < KEYS_MAX && (!key_count || strcmp(keys[key_count - 1], *own)))
                    keys[key_count++] = *own;
            }
    near = any ? NULL : trajd_yaml_nearest(options->filter, keys, key_count);
    return any ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "--filter: no episode has the mask key \"%s\"%s%s%s",
                                 options->filter, near ? " (did you mean " : "", near ? near : "",
                                 near ? "?)" : "");
}

/* ---- the output's ids ---- */

static int compare_ids(const void *a, const void *b)
{
    const struct convert_episode *const *left = a, *const *right = b;

    return strcmp((*left)->id, (*right)->id);
}

static bool ids_repeat(const struct convert_plan *plan)
{
    const struct convert_episode **sorted = malloc((plan->episode_count + 1) * sizeof *sorted);
    bool repeat = !sorted; /* without memory the ids are numbered anew, which is never wrong */

    for (uint32_t e = 0; sorted && e < plan->episode_count; e++)
        sorted[e] = &plan->episodes[e];
    if (sorted)
        qsort(sorted, plan->episode_count, sizeof *sorted, compare_ids);
    for (uint32_t e = 1; sorted && e < plan->episode_count && !repeat; e++)
        repeat = !strcmp(sorted[e - 1]->id, sorted[e]->id);
    free(sorted);
    return repeat;
}

/* Ids stay as they are where they are one's own; else demo_0, demo_1, ... in order: readers sort by
 * the number that ends the id, and some count up to how many there are, so that a part's number
 * does not go behind its episode's. */
static enum trajd_status name_episodes(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_index *first = plan->options->indexes[0];
    size_t stem;

    if (!strpbrk(first->layout->groups, "*?[")) {
        if (plan->episode_count > 1)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "layout %s has one episode a file, and here are %u: resample them one by one",
                first->layout->name, plan->episode_count);
        return TRAJD_OK;
    }
    if (!ids_repeat(plan))
        return TRAJD_OK;
    convert_note(plan->options, "%s: all are numbered anew, each with the attribute trajd_source",
                 plan->cut_count ? "parts need names of their own"
                                 : "episodes of several files have the same names");
    stem = strlen(plan->episodes[0].id);
    while (stem > 0 && plan->episodes[0].id[stem - 1] >= '0' &&
           plan->episodes[0].id[stem - 1] <= '9')
        stem--;
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        char id[1100];
        const int length = snprintf(id, sizeof id, "%.*s%u", (int)stem, plan->episodes[0].id, e);
        if ((size_t)length >= sizeof id)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "%.100s...: a name of %d bytes",
                                   plan->episodes[0].id, length);
        plan->episodes[e].id = trajd_arena_copy(&plan->arena, id, (size_t)length);
        if (!plan->episodes[e].id)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for names");
    }
    return TRAJD_OK;
}

/* ---- all ---- */

static uint64_t digest_plan(const struct convert_plan *plan)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, TRAJD_VERSION);
    trajd_digest_add_u64(&digest, (uint64_t)plan->options->rate.num);
    trajd_digest_add_u64(&digest, (uint64_t)plan->options->rate.den);
    trajd_digest_add_u64(&digest, plan->options->compress_level);
    /* of all: periods of angles, units of stamps */
    trajd_digest_add_u64(&digest, plan->options->indexes[0]->layout->hash);
    for (uint32_t k = 0; k < plan->options->index_count; k++)
        for (uint32_t f = 0; f < plan->options->indexes[k]->file_count; f++) {
            const struct trajd_index_file *file = &plan->options->indexes[k]->files[f];
            trajd_digest_add_text(&digest, file->path);
            trajd_digest_add_u64(&digest, file->size_bytes);
            trajd_digest_add_u64(&digest, (uint64_t)file->mtime_ns);
            trajd_digest_add_u64(&digest, file->inode);
        }
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        const struct convert_dataset *dataset = &plan->datasets[d];
        trajd_digest_add_text(&digest, dataset->path);
        trajd_digest_add_u64(&digest, (uint64_t)dataset->to);
        trajd_digest_add_u64(&digest, (uint64_t)dataset->max_gap_ns);
        trajd_digest_add_u64(&digest, dataset->is_compressed ? dataset->chunk_rows : 0);
        for (uint32_t l = 0; l < dataset->lane_count; l++) {
            trajd_digest_add_u64(&digest, (uint64_t)dataset->lanes[l].kind);
            trajd_digest_add_u64(&digest, dataset->lanes[l].first_column);
            trajd_digest_add_u64(&digest, (uint64_t)dataset->lanes[l].window_ns);
        }
    }
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        trajd_digest_add_text(&digest, plan->episodes[e].id);
        trajd_digest_add_u64(&digest, plan->episodes[e].source);
        trajd_digest_add_u64(&digest, plan->episodes[e].episode);
        trajd_digest_add_u64(&digest, (uint64_t)plan->episodes[e].begin_ns);
        trajd_digest_add_u64(&digest, plan->episodes[e].step_count);
    }
    return trajd_digest_end(&digest);
}

static enum trajd_status make_episodes(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_convert_options *options = plan->options;
    enum trajd_status status = check_wishes(options, error);
    size_t count = 1;

    for (uint32_t k = 0; k < options->index_count; k++)
        count += options->indexes[k]->episode_count;
    plan->episodes = trajd_arena_alloc(&plan->arena, count * sizeof *plan->episodes);
    plan->episode_room = (uint32_t)count;
    if (!plan->episodes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %zu episodes", count);
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count && !status; e++) {
            const struct trajd_episode *episode = &options->indexes[k]->episodes[e];
            if (!convert_chooses_episode(options, episode))
                continue;
            if (episode->quarantine) {
                plan->left_out++;
                convert_note(options, "left out: %s", episode->quarantine);
            } else {
                status = make_episode(plan, k, e, error);
            }
        }
    if (!status && !plan->episode_count)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "no episode is left of %" PRIu64 " (the notes say why)",
                               plan->left_out);
    return status;
}

static enum trajd_status check_options(const struct trajd_convert_options *options,
                                       struct trajd_error *error)
{
    const struct trajd_rate rate = options->rate;

    if (!options->index_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "no input");
    if (rate.num <= 0 || rate.den <= 0 || rate.num / rate.den > TRAJD_CONVERT_RATE_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "the rate must be above 0 and at most %d Hz",
                               TRAJD_CONVERT_RATE_MAX);
    for (uint32_t r = 0; r < options->rule_count; r++)
        if (options->rules[r].dtype == TRAJD_BF16)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "HDF5 has no bfloat16: float16, float32 or float64");
    return TRAJD_OK;
}

uint64_t convert_chunk_count(const struct convert_dataset *dataset, uint64_t step_count)
{
    return dataset->is_compressed
               ? (step_count + dataset->chunk_rows - 1) / dataset->chunk_rows * dataset->tile_count
               : 0;
}

/* The input's chunks where it has some, so that it packs as well (pictures are cut into tiles that
 * hold many frames); else whole rows. */
static void choose_chunks(struct convert_plan *plan)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        const bool takes = dataset->chunk_rows &&
                           dataset->chunk_rows <= CHUNK_BLOCK_BYTES_MAX / dataset->row_bytes;
        if (!takes)
            dataset->chunk_rows =
                dataset->row_bytes < CHUNK_BYTES ? CHUNK_BYTES / dataset->row_bytes : 1;
        dataset->tile_count = 1;
        for (uint32_t i = 0; i < dataset->rank; i++) {
            if (!takes || dataset->chunk_shape[i] > dataset->shape[i])
                dataset->chunk_shape[i] = dataset->shape[i];
            dataset->tile_count *=
                (dataset->shape[i] + dataset->chunk_shape[i] - 1) / dataset->chunk_shape[i];
        }
    }
}

enum trajd_status convert_plan_make(const struct trajd_convert_options *options,
                                    struct convert_plan *plan, struct trajd_error *error)
{
    enum trajd_status status;

    *plan = (struct convert_plan){.options = options, .arena = {.limit_bytes = plan_bytes_max}};
    status = check_options(options, error);
    if (!status)
        status = convert_choose_streams(plan, error);
    if (!status)
        choose_chunks(plan);
    if (!status)
        status = make_episodes(plan, error);
    if (!status)
        status = name_episodes(plan, error);
    if (!status)
        plan->digest = digest_plan(plan);
    return status;
}

void convert_plan_clear(struct convert_plan *plan)
{
    trajd_arena_free(&plan->arena);
    free(plan->streams);
    *plan = (struct convert_plan){0};
}
