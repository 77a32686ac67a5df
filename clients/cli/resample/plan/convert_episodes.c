/* The episodes of the output: which ones the options choose, their grids, and their parts. An
 * episode is cut where two rows of a stream are further apart than its max_gap. A span between such
 * gaps begins with the row after one gap and ends with the row before the next, so that no value is
 * interpolated across a gap. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/resample/plan/convert_plan.h"
#include "daemon/base/json.h"
#include "daemon/base/yaml.h"
#include "proto/plural.h"

enum { KEYS_MAX = 256 };

static const uint64_t steps_max = UINT64_C(1) << 40; /* of one episode */

/* ---- the chosen episodes ---- */

/* Reads the number at the end of the id: demo_12 -> 12. */
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

/* Reads "7" or "0..9". */
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

bool convert_has_key(const struct trajd_episode *episode, const char *key)
{
    for (const char *const *own = episode->filter_keys; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

static bool is_chosen(const struct trajd_convert_options *options,
                      const struct trajd_episode *episode)
{
    bool named = !options->episode_count;

    if (options->filter && !convert_has_key(episode, options->filter))
        return false;
    for (uint32_t i = 0; i < options->episode_count && !named; i++)
        named = names_episode(options->episodes[i], episode->id);
    return named;
}

/* Checks that each item of --episodes and the filter match an episode. */
static enum trajd_status check_selection(const struct convert_plan *plan)
{
    const struct trajd_convert_options *options = plan->options;
    const char *keys[KEYS_MAX];
    size_t key_count = 0;
    bool any = !options->filter;

    for (uint32_t i = 0; i < options->episode_count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < options->index_count && !found; k++)
            for (uint32_t e = 0; e < options->indexes[k]->episode_count && !found; e++)
                found = names_episode(options->episodes[i], options->indexes[k]->episodes[e].id);
        if (!found)
            return trajd_error_set(plan->error, TRAJD_ERR_NOT_FOUND, 0,
                                   "--episodes: there is no episode %s (the first one is %s)",
                                   options->episodes[i], plan->first->episodes[0].id);
    }
    for (uint32_t k = 0; k < options->index_count && options->filter; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count; e++)
            for (const char *const *own = options->indexes[k]->episodes[e].filter_keys; own && *own;
                 own++) {
                any = any || !strcmp(*own, options->filter);
                if (key_count < KEYS_MAX && (!key_count || strcmp(keys[key_count - 1], *own)))
                    keys[key_count++] = *own;
            }
    if (any)
        return TRAJD_OK;
    return trajd_error_set(plan->error, TRAJD_ERR_NOT_FOUND, 0,
                           "--filter: no episode has the mask key \"%s\"%s", options->filter,
                           trajd_yaml_suggest(" (", options->filter, keys, key_count, ")").text);
}

/* ---- one episode ---- */

/* Returns the file of the episode, relative to its dataset. */
static const char *file_of(const struct convert_plan *plan, const struct convert_episode *made)
{
    const uint32_t file = convert_source_of(plan, made)->file_index;

    return convert_index_of(plan, made)->files[file].relative_path;
}

static enum trajd_status leave_out(struct convert_plan *plan, const struct convert_episode *made,
                                   const char *why)
{
    const char *file = file_of(plan, made);
    const bool is_file = !strcmp(file, made->id);

    plan->left_out++;
    convert_note(plan->options, "%s%s%s: left out: %s", file, is_file ? "" : ": ",
                 is_file ? "" : made->id, why);
    return TRAJD_OK;
}

/* Returns whether the episode's rows have the type and shape of the first episode's. A stream of
 * some columns does not check the other columns. */
static bool has_its_rows(const struct convert_dataset *dataset, const struct trajd_array *array)
{
    bool same = !dataset->lane_count || dataset->is_encoded ||
                (array->dtype == dataset->from && array->rank == dataset->rank + 1);

    for (uint32_t d = 0; d < dataset->rank && dataset->lane_count && same; d++)
        same = array->shape[d + 1] == dataset->shape[d];
    return same;
}

bool convert_add_sizes(struct convert_plan *plan, const struct convert_episode *made)
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

/* Returns how many rows of the dataset its clock counts. A clock that drops rows counts the kept ones. A clock that no stream of the episode uses counts
 * no rows, even if its stamps exist. */
static int64_t row_count(const struct trajd_episode_clock *clock, const struct trajd_array *array)
{
    const uint64_t rows = array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes
                              ? 0
                              : trajd_array_row_count(array);

    if (clock->stamps_ns)
        return rows ? clock->row_count : 0;
    return clock->rate.num > 0 ? (int64_t)rows : 0;
}

/* ---- gaps ---- */

static const struct trajd_episode_clock *clock_of(const struct convert_cutter *cutter, uint32_t a)
{
    return &cutter->episode->clocks[cutter->plan->datasets[cutter->arrays[a].dataset].clock];
}

/* Moves the first row of all arrays on the clock of the gap, which have the same rows. */
static void begin_after(struct convert_cutter *cutter, const struct convert_gap *gap)
{
    for (uint32_t a = 0; a < cutter->array_count; a++)
        if (clock_of(cutter, a) == clock_of(cutter, gap->array) &&
            cutter->arrays[a].first_row < gap->row)
            cutter->arrays[a].first_row = gap->row;
}

/* Adds the gap in front of a row, if it is longer than the array's limit. */
static bool add_gap(struct convert_cutter *cutter, uint32_t a, int64_t row)
{
    const struct trajd_episode_clock *clock = clock_of(cutter, a);
    const struct convert_gap gap = {a, row, trajd_clock_row_ns(clock, row - 1),
                                    trajd_clock_row_ns(clock, row)};

    if (gap.to_ns - gap.from_ns <= cutter->plan->datasets[cutter->arrays[a].dataset].max_gap_ns)
        return false;
    if (cutter->gap_count == cutter->gap_capacity) {
        cutter->gap_capacity = 2 * cutter->gap_capacity + 16;
        cutter->gaps = trajd_memory_or_exit(
            realloc(cutter->gaps, cutter->gap_capacity * sizeof *cutter->gaps));
    }
    cutter->gaps[cutter->gap_count++] = gap;
    return true;
}

static int compare_gaps(const void *a, const void *b)
{
    const struct convert_gap *left = a, *right = b;

    return (left->from_ns > right->from_ns) - (left->from_ns < right->from_ns);
}

/* Lists the last gap before the begin and all gaps up to the end. Rows before the grid count,
 * because kind mean may average them into its first steps. */
void convert_cutter_begin(struct convert_cutter *cutter, int64_t begin_ns, int64_t end_ns)
{
    cutter->next_ns = begin_ns;
    cutter->end_ns = end_ns;
    cutter->is_over = begin_ns > end_ns;
    for (uint32_t a = 0; a < cutter->array_count; a++) {
        const struct convert_array *array = &cutter->arrays[a];
        const struct trajd_episode_clock *clock = clock_of(cutter, a);
        const int64_t first = trajd_clock_rows_until(clock, array->rows, begin_ns) - 1;
        if (cutter->plan->datasets[array->dataset].max_gap_ns <= 0)
            continue;
        for (int64_t row = first; row > 0 && !add_gap(cutter, a, row); row--)
            ;
        for (int64_t row = first < 0 ? 0 : first;
             row + 1 < array->rows && trajd_clock_row_ns(clock, row) < end_ns; row++)
            add_gap(cutter, a, row + 1);
    }
    if (cutter->gap_count)
        qsort(cutter->gaps, cutter->gap_count, sizeof *cutter->gaps, compare_gaps);
}

bool convert_cutter_next(struct convert_cutter *cutter, int64_t *begin_ns, int64_t *end_ns)
{
    while (!cutter->is_over) {
        const struct convert_gap *gap;
        for (; cutter->passed < cutter->gap_count &&
               cutter->gaps[cutter->passed].to_ns <= cutter->next_ns;
             cutter->passed++)
            begin_after(cutter, &cutter->gaps[cutter->passed]);
        gap = cutter->passed < cutter->gap_count ? &cutter->gaps[cutter->passed] : NULL;
        *begin_ns = cutter->next_ns;
        *end_ns = gap ? gap->from_ns : cutter->end_ns;
        cutter->is_over = !gap || gap->to_ns > cutter->end_ns;
        cutter->next_ns = gap ? gap->to_ns : cutter->next_ns;
        if (*begin_ns <= *end_ns)
            return true;
    }
    return false;
}

/* ---- parts of an episode ---- */

static struct convert_episode *next_episode(struct convert_plan *plan)
{
    /* Only where episodes are split. The old array stays in the arena. */
    if (plan->episode_count == plan->episode_capacity) {
        const uint32_t capacity = plan->episode_capacity + plan->episode_capacity / 2 + 16;
        struct convert_episode *grown = convert_alloc(plan, capacity * sizeof *grown);
        memcpy(grown, plan->episodes, plan->episode_count * sizeof *grown);
        plan->episodes = grown;
        plan->episode_capacity = capacity;
    }
    return &plan->episodes[plan->episode_count];
}

/* Adds one episode of the output, with a grid from begin to end. */
static enum trajd_status add_episode(struct convert_plan *plan, const struct convert_episode *uncut,
                                     int64_t begin, int64_t end, uint64_t steps)
{
    struct convert_episode *made = next_episode(plan);
    const size_t size = uncut->array_count * sizeof *uncut->arrays;
    const bool is_uncut = begin == uncut->begin_ns && end == uncut->end_ns;

    *made = *uncut;
    made->begin_ns = begin;
    made->end_ns = end;
    made->step_count = steps;
    if (!is_uncut) {
        made->arrays = convert_alloc(plan, size);
        memcpy(made->arrays, uncut->arrays, size);
    }
    if (steps > steps_max || !convert_add_sizes(plan, made))
        return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: %.3g s at this rate are %" PRIu64 " rows, which is too many",
                               made->id, (double)(end - begin) * 1e-9, steps);
    plan->episode_count++;
    return TRAJD_OK;
}

static enum trajd_status leave_out_for_gap(struct convert_plan *plan,
                                           const struct convert_episode *uncut,
                                           const struct convert_cutter *cutter)
{
    const struct convert_gap *found = NULL;
    char why[400] = "";

    for (uint32_t g = 0; g < cutter->gap_count; g++) {
        const struct convert_gap *gap = &cutter->gaps[g];
        if (gap->to_ns > uncut->begin_ns && (!found || gap->array < found->array))
            found = gap;
    }
    if (found) {
        const struct convert_dataset *dataset =
            &plan->datasets[uncut->arrays[found->array].dataset];
        snprintf(why, sizeof why,
                 "%.200s: a gap of %.6g ms after row %" PRId64
                 " (max_gap %.6g ms), and no two steps between gaps",
                 dataset->path, (double)(found->to_ns - found->from_ns) * 1e-6, found->row - 1,
                 (double)dataset->max_gap_ns * 1e-6);
    }
    return leave_out(plan, uncut, why);
}

static void note_parts(const struct convert_plan *plan, const struct convert_episode *uncut,
                       uint32_t count, uint32_t dropped)
{
    const char *file = file_of(plan, uncut);
    const bool is_file = !strcmp(file, uncut->id);
    char remainder[80] = "";

    if (dropped)
        snprintf(remainder, sizeof remainder, ", %u of a single step left out", dropped);
    convert_note(plan->options, "%s%s%s: split at gaps into %u part%s%s", file, is_file ? "" : ": ",
                 is_file ? "" : uncut->id, count, trajd_plural(count), remainder);
}

/* Adds the episode as one grid, or as the parts between gaps that are longer than max_gap. A part
 * of a single step is left out. */
static enum trajd_status add_parts(struct convert_plan *plan, const struct convert_episode *uncut)
{
    struct convert_cutter cutter = {.plan = plan,
                                    .episode = convert_source_of(plan, uncut),
                                    .arrays = uncut->arrays,
                                    .array_count = uncut->array_count};
    const uint32_t first = plan->episode_count;
    uint32_t dropped = 0, count;
    int64_t begin, end;
    bool is_whole = false;
    enum trajd_status status = TRAJD_OK;

    convert_cutter_begin(&cutter, uncut->begin_ns, uncut->end_ns);
    while (!status && convert_cutter_next(&cutter, &begin, &end)) {
        const uint64_t steps = (uint64_t)trajd_rate_row_at(plan->options->rate, end - begin) + 1;
        is_whole = begin == uncut->begin_ns && end == uncut->end_ns;
        if (steps < 2 && !is_whole)
            dropped++;
        else
            status = add_episode(plan, uncut, begin, end, steps);
        if (is_whole)
            break;
    }
    count = plan->episode_count - first;
    if (!status && !is_whole && !count)
        status = leave_out_for_gap(plan, uncut, &cutter);
    free(cutter.gaps);
    if (status || is_whole || !count)
        return status;
    for (uint32_t p = 0; p < count; p++) {
        plan->episodes[first + p].part = p;
        plan->episodes[first + p].part_count = count;
    }
    plan->cut_count++;
    note_parts(plan, uncut, count, dropped);
    return TRAJD_OK;
}

/* ---- streams that end before their episode ---- */

static const struct trajd_episode_clock *clock_in(const struct convert_plan *plan,
                                                  const struct convert_episode *made,
                                                  const struct convert_array *array)
{
    return &convert_source_of(plan, made)->clocks[plan->datasets[array->dataset].clock];
}

static int64_t last_row_ns(const struct convert_plan *plan, const struct convert_episode *made,
                           const struct convert_array *array)
{
    return trajd_clock_row_ns(clock_in(plan, made, array), array->rows - 1);
}

/* Returns whether a dataset tells how long the episode lasts. */
static bool is_lasting(const struct convert_plan *plan, const struct convert_episode *made,
                       const struct convert_array *array)
{
    return clock_in(plan, made, array)->median_ns && !plan->datasets[array->dataset].is_event;
}

/* Checks that the steps after a dataset's last row can be marked, which takes NaN. */
static enum trajd_status check_marks(const struct convert_plan *plan,
                                     const struct convert_episode *made,
                                     const struct convert_array *array)
{
    const struct convert_dataset *dataset = &plan->datasets[array->dataset];
    char text[TRAJD_EARLY_END_TEXT_SIZE] = "";

    if (!dataset->lane_count)
        return TRAJD_OK; /* stamps, which become those of the grid */
    trajd_episode_ends_early(convert_source_of(plan, made), dataset->clock, text);
    if (!dataset->is_encoded && convert_is_floating(dataset->to)) {
        convert_note(plan->options,
                     "%s: %s: %s %s; its steps after that are NaN, and datasets "
                     "beside it that no stream names repeat their last entry there",
                     file_of(plan, made), made->id, dataset->path, text);
        return TRAJD_OK;
    }
    return trajd_error_set(plan->error, TRAJD_ERR_DATA, 0,
                           "%s: %s: %s %s: its rows (%s) cannot say which steps after that have no "
                           "value; leave it out with --streams, or the episode with --episodes, or "
                           "write events: true in the layout if its rows are events",
                           file_of(plan, made), made->id, dataset->path, text,
                           dataset->is_encoded ? "frames" : trajd_dtype_name(dataset->to));
}

/* Finds where the grid ends: with the first of the datasets that last as long as the episode. Others
 * end earlier, and rows of events, or a single row, are held. Returns the dataset that ends first. */
static const struct convert_array *find_end(const struct convert_plan *plan,
                                            struct convert_episode *made)
{
    const struct convert_array *earliest = NULL;
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    bool any = false;

    for (uint32_t a = 0; a < made->array_count; a++) {
        const int64_t ns = last_row_ns(plan, made, &made->arrays[a]);
        if (!is_lasting(plan, made, &made->arrays[a]))
            continue;
        any = true;
        last_ns = ns > last_ns ? ns : last_ns;
    }
    made->end_ns = INT64_MAX;
    for (uint32_t a = 0; a < made->array_count; a++) {
        struct convert_array *array = &made->arrays[a];
        const int64_t ns = last_row_ns(plan, made, array);
        if (any && !is_lasting(plan, made, array))
            continue;
        array->ends_early =
            trajd_clock_too_old_ns(clock_in(plan, made, array), TRAJD_TOO_OLD_INTERVALS) < last_ns;
        if (!array->ends_early && ns < made->end_ns)
            made->end_ns = ns;
        if (ns < first_ns) {
            first_ns = ns;
            earliest = array;
        }
    }
    return earliest;
}

/* Returns whether a dataset ends so early that steps of the grid come after it. If none does, the grid
 * ends with it. */
static bool loses_steps(const struct convert_plan *plan, struct convert_episode *made,
                        struct convert_array *array)
{
    const int64_t last_ns = last_row_ns(plan, made, array);
    const struct trajd_rate rate = plan->options->rate;

    if (array->ends_early && trajd_rate_row_at(rate, last_ns - made->begin_ns) ==
                                 trajd_rate_row_at(rate, made->end_ns - made->begin_ns)) {
        array->ends_early = false;
        made->end_ns = last_ns < made->end_ns ? last_ns : made->end_ns;
    }
    return array->ends_early;
}

/* Finds the datasets that the episode has, and where the last of them begins. Returns false, with a
 * reason, if one has other rows than in the first episode. */
static bool find_arrays(struct convert_plan *plan, struct convert_episode *made,
                        const char **latest, char *why, size_t size)
{
    const struct trajd_episode *episode = convert_source_of(plan, made);

    made->arrays = convert_alloc(plan, plan->dataset_count * sizeof *made->arrays);
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        const struct convert_dataset *dataset = &plan->datasets[d];
        const bool is_there = plan->source_datasets[made->source][d] != UINT32_MAX;
        const struct trajd_array *array = is_there ? convert_extent_of(plan, made, d) : NULL;
        const struct trajd_episode_clock *clock = &episode->clocks[dataset->clock];
        const int64_t rows = is_there ? row_count(clock, array) : 0;
        if (rows <= 0)
            continue;
        if (!has_its_rows(dataset, array)) {
            snprintf(why, size,
                     "%.200s: its rows are %" PRIu64 " x %s, but %" PRIu64
                     " x %s in the first episode",
                     dataset->path, trajd_array_row_elements(array), trajd_dtype_name(array->dtype),
                     dataset->elements, trajd_dtype_name(dataset->from));
            return false;
        }
        if (trajd_clock_row_ns(clock, 0) > made->begin_ns) {
            made->begin_ns = trajd_clock_row_ns(clock, 0);
            *latest = dataset->path;
        }
        made->arrays[made->array_count++] = (struct convert_array){.dataset = d, .rows = rows};
    }
    snprintf(why, size, "it has no rows of the chosen streams");
    return made->array_count > 0;
}

/* Finds the episode's datasets, and the span of its grid. */
static enum trajd_status make_episode(struct convert_plan *plan, uint32_t source, uint32_t number)
{
    struct convert_episode made = {.source = source,
                                   .episode = number,
                                   .id = plan->options->indexes[source]->episodes[number].id,
                                   .begin_ns = INT64_MIN};
    const struct convert_array *earliest;
    enum trajd_status status = TRAJD_OK;
    const char *latest = "";
    int64_t end_ns;
    char why[400];

    if (!find_arrays(plan, &made, &latest, why, sizeof why))
        return leave_out(plan, &made, why);
    earliest = find_end(plan, &made);
    end_ns = last_row_ns(plan, &made, earliest);
    if (made.begin_ns > end_ns) {
        snprintf(why, sizeof why, "%.150s begins %.3f s after %.150s has ended", latest,
                 (double)(made.begin_ns - end_ns) * 1e-9, plan->datasets[earliest->dataset].path);
        return leave_out(plan, &made, why);
    }
    for (uint32_t a = 0; a < made.array_count && !status; a++)
        if (loses_steps(plan, &made, &made.arrays[a]))
            status = check_marks(plan, &made, &made.arrays[a]);
    return status ? status : add_parts(plan, &made);
}

/* Returns why an episode cannot be converted; NULL: it can. Another shape counts: the array would be
 * copied beside resampled ones as it is. */
static const char *reason_against(const struct trajd_index *index,
                                  const struct trajd_episode *episode)
{
    for (uint32_t i = 0; i < index->array_count && episode->other_shapes && !episode->quarantine;
         i++)
        if (episode->other_shapes[i])
            return episode->other_shapes[i];
    return episode->quarantine;
}

enum trajd_status convert_make_episodes(struct convert_plan *plan)
{
    const struct trajd_convert_options *options = plan->options;
    enum trajd_status status = check_selection(plan);
    size_t count = 1;

    for (uint32_t k = 0; k < options->index_count; k++)
        count += options->indexes[k]->episode_count;
    plan->episodes = convert_alloc(plan, count * sizeof *plan->episodes);
    plan->episode_capacity = (uint32_t)count;
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count && !status; e++) {
            const struct trajd_episode *episode = &options->indexes[k]->episodes[e];
            const char *why = reason_against(options->indexes[k], episode);
            if (!is_chosen(options, episode))
                continue;
            if (why && episode->has_uneven_rows)
                return trajd_error_set(plan->error, TRAJD_ERR_DATA, 0,
                                       "%s; --episodes chooses the others", why);
            if (why) {
                plan->left_out++;
                convert_note(options, "left out: %s", why);
            } else {
                status = make_episode(plan, k, e);
            }
        }
    if (!status && !plan->episode_count)
        return trajd_error_set(
            plan->error, TRAJD_ERR_DATA, 0,
            "all %" PRIu64 " episodes were left out (the notes give the reasons)", plan->left_out);
    return status;
}

/* ---- what a part states ---- */

/* Returns whether an earlier array has the same clock, which is then listed already. */
static bool is_listed(const struct convert_plan *plan, const struct convert_episode *made,
                      uint32_t a)
{
    for (uint32_t before = 0; before < a; before++)
        if (plan->datasets[made->arrays[before].dataset].clock ==
            plan->datasets[made->arrays[a].dataset].clock)
            return true;
    return false;
}

static void write_pair(struct trajd_json *json, const char *key, int64_t first, int64_t second)
{
    trajd_json_open_array(json, key);
    trajd_json_i64(json, NULL, first);
    trajd_json_i64(json, NULL, second);
    trajd_json_close_array(json);
}

char *convert_part_json(const struct convert_plan *plan, const struct convert_episode *made)
{
    const struct trajd_index *index = convert_index_of(plan, made);
    const struct trajd_episode *episode = convert_source_of(plan, made);
    char *text = NULL;
    size_t size = 0;
    struct trajd_json json = {0};

    if (!made->part_count)
        return trajd_memory_or_exit(strdup(""));
    json.out = trajd_memory_or_exit(open_memstream(&text, &size));
    trajd_json_open_object(&json, NULL);
    trajd_json_string(&json, "episode", episode->id);
    trajd_json_u64(&json, "part", made->part);
    trajd_json_u64(&json, "parts", made->part_count);
    write_pair(&json, "ns", episode->origin_ns + made->begin_ns, episode->origin_ns + made->end_ns);
    trajd_json_open_object(&json, "rows");
    for (uint32_t a = 0; a < made->array_count; a++) {
        const uint32_t k = plan->datasets[made->arrays[a].dataset].clock;
        const struct trajd_episode_clock *clock = &episode->clocks[k];
        if (!is_listed(plan, made, a))
            write_pair(&json, index->layout->clocks[k].name,
                       trajd_clock_rows_until(clock, made->arrays[a].rows, made->begin_ns - 1),
                       trajd_clock_rows_until(clock, made->arrays[a].rows, made->end_ns));
    }
    trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    trajd_memory_close_or_exit(json.out, &text);
    return text;
}
