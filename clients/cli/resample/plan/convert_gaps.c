/* Splits an episode where two rows of a stream are further apart than its max_gap. A span between
 * such gaps begins with the row after one gap and ends with the row before the next, so that no
 * value is interpolated across a gap. */
#include "clients/cli/resample/plan/convert_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/json.h"

static const struct trajd_episode_clock *clock_of(const struct gap_splitter *splitter, uint32_t a)
{
    return &splitter->episode->clocks[splitter->plan->datasets[splitter->arrays[a].dataset].clock];
}

/* Finds the next gap from `row` on that begins before the end. */
static void find_gap(const struct gap_splitter *splitter, uint32_t a, int64_t row)
{
    const int64_t max_gap_ns = splitter->plan->datasets[splitter->arrays[a].dataset].max_gap_ns;
    const struct trajd_episode_clock *clock = clock_of(splitter, a);
    struct convert_gap *gap = &splitter->gaps[a];

    gap->row = -1;
    for (; max_gap_ns > 0 && row + 1 < splitter->arrays[a].rows &&
           convert_row_ns(clock, row) < splitter->end_ns;
         row++)
        if (convert_row_ns(clock, row + 1) - convert_row_ns(clock, row) > max_gap_ns) {
            gap->row = row;
            gap->from_ns = convert_row_ns(clock, row);
            gap->to_ns = convert_row_ns(clock, row + 1);
            return;
        }
}

/* Moves the first row of all arrays on the same clock, which have the same rows. */
static void begin_after(struct gap_splitter *splitter, uint32_t a, int64_t row)
{
    for (uint32_t other = 0; other < splitter->array_count; other++)
        if (clock_of(splitter, other) == clock_of(splitter, a) &&
            splitter->gaps[other].first_row < row)
            splitter->gaps[other].first_row = row;
}

/* Returns the row after the last gap before `row`. Rows before the grid count, because kind mean
 * may average them into its first steps. */
static int64_t row_after_gap(const struct gap_splitter *splitter, uint32_t a, int64_t row)
{
    const int64_t max_gap_ns = splitter->plan->datasets[splitter->arrays[a].dataset].max_gap_ns;
    const struct trajd_episode_clock *clock = clock_of(splitter, a);

    for (; max_gap_ns > 0 && row > 0; row--)
        if (convert_row_ns(clock, row) - convert_row_ns(clock, row - 1) > max_gap_ns)
            return row;
    return 0;
}

void gap_splitter_begin(struct gap_splitter *splitter, int64_t begin_ns, int64_t end_ns)
{
    splitter->next_ns = begin_ns;
    splitter->end_ns = end_ns;
    splitter->is_over = begin_ns > end_ns;
    for (uint32_t a = 0; a < splitter->array_count; a++)
        splitter->gaps[a].first_row = 0;
    for (uint32_t a = 0; a < splitter->array_count; a++) {
        const int64_t row =
            convert_row_at(clock_of(splitter, a), splitter->arrays[a].rows, begin_ns);
        begin_after(splitter, a, row_after_gap(splitter, a, row));
        find_gap(splitter, a, row < 0 ? 0 : row);
    }
}

/* Skips gaps that end before the next span can begin. */
static void pass_gaps(struct gap_splitter *splitter)
{
    for (uint32_t a = 0; a < splitter->array_count; a++)
        while (splitter->gaps[a].row >= 0 && splitter->gaps[a].to_ns <= splitter->next_ns) {
            const int64_t row = splitter->gaps[a].row + 1;
            begin_after(splitter, a, row);
            find_gap(splitter, a, row);
        }
}

bool gap_splitter_next(struct gap_splitter *splitter, int64_t *begin_ns, int64_t *end_ns)
{
    while (!splitter->is_over) {
        const struct convert_gap *first = NULL;
        pass_gaps(splitter);
        for (uint32_t a = 0; a < splitter->array_count; a++)
            if (splitter->gaps[a].row >= 0 &&
                (!first || splitter->gaps[a].from_ns < first->from_ns))
                first = &splitter->gaps[a];
        *begin_ns = splitter->next_ns;
        *end_ns = first ? first->from_ns : splitter->end_ns;
        splitter->is_over = !first || first->to_ns > splitter->end_ns;
        splitter->next_ns = first ? first->to_ns : splitter->next_ns;
        if (*begin_ns <= *end_ns)
            return true;
    }
    return false;
}

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
    const struct trajd_index *index = plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
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
                       convert_row_at(clock, made->arrays[a].rows, made->begin_ns - 1) + 1,
                       convert_row_at(clock, made->arrays[a].rows, made->end_ns) + 1);
    }
    trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    return trajd_memory_or_exit(fclose(json.out) ? NULL : text);
}
