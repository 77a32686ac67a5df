/* An index as text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/inspect/inspect.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

enum { LISTED_MAX = 20 };

/* Prints which datasets a path with a '*' matched: the first, and how many others there are. */
static void print_match(const struct trajd_index *index, uint32_t array)
{
    const char *first = NULL;
    uint32_t others = 0;

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const char *const *matches =
            index->episodes[i].quarantine ? NULL : index->episodes[i].matches;
        if (matches && matches[array] && !first)
            first = matches[array];
        else if (matches && matches[array])
            others += strcmp(first, matches[array]) != 0;
    }
    if (first)
        printf(", the dataset %s", first);
    if (others)
        printf(" (another one in %u episode%s)", others, trajd_plural(others));
}

static void print_clock(const struct trajd_index *index, uint32_t which)
{
    struct inspect_clock_summary summary = inspect_summarize_clock(index, which);
    const struct trajd_index_clock *clock = &index->clocks[which];
    struct trajd_index_rates rates = {0};
    char text[TRAJD_RATES_TEXT_SIZE];

    trajd_index_rates_add(index, which, &rates);
    printf("  %-24s ", clock->name);
    if (clock->regular)
        printf("regular, %s",
               rates.episode_count ? trajd_index_rates_text(&rates, text) : "in no episode");
    else if (summary.intervals)
        printf("stamped, mean %.6g Hz, intervals %.6g to %.6g ms",
               (double)summary.intervals / summary.sum_s, (double)summary.shortest_ns / 1e6,
               (double)summary.longest_ns / 1e6);
    else
        printf("stamped");
    printf(", %" PRIu64 " row%s", summary.rows, trajd_plural(summary.rows));
    if (summary.dropped)
        printf(", %" PRIu64 " dropped (their stamps repeat or go back)", summary.dropped);
    for (uint32_t i = 0; i < index->array_count && !clock->regular; i++)
        if (!strcmp(index->arrays[i].path, index->layout->clocks[which].stamps_path))
            print_match(index, i);
    printf("\n");
}

static void print_stream(const struct trajd_index *index, const struct trajd_index_stream *stream)
{
    char shape[128], storage[INSPECT_STORAGE_SIZE], rows[64];
    uint64_t least, most;
    uint32_t episodes;

    inspect_describe_shape(stream, shape, sizeof shape);
    inspect_describe_storage(inspect_example_array(index, stream->array_index), stream, storage,
                             sizeof storage);
    inspect_count_rows(index, stream->array_index, &least, &most, &episodes);
    snprintf(rows, sizeof rows, least == most ? "%" PRIu64 : "%" PRIu64 "..%" PRIu64, least, most);
    printf("  %-32s %-5s %-16s %-10s %-12s T=%-10s %s", stream->name,
           trajd_dtype_name(stream->dtype), shape, trajd_window_kind_name(stream->kind),
           index->clocks[stream->clock_index].name, rows, storage);
    if (episodes < index->kept_count)
        printf(", in %u of %u episode%s", episodes, index->kept_count,
               trajd_plural(index->kept_count));
    print_match(index, stream->array_index);
    printf("\n");
}

/* Prints how many episodes have it, and the first value, with control characters escaped as in
 * JSON. */
static void print_meta(const struct trajd_index *index, uint32_t which)
{
    const char *example = NULL;
    uint32_t episodes = 0;

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const char *text = index->episodes[i].quarantine ? NULL : index->episodes[i].metas[which];
        episodes += text != NULL;
        example = example ? example : text;
    }
    printf("%s  %-32s in %u of %u episode%s", which ? "" : " meta\n",
           index->layout->metas[which].name, episodes, index->kept_count,
           trajd_plural(index->kept_count));
    if (example) {
        printf(", the first: ");
        trajd_json_text(stdout, example);
    }
    printf("\n");
}

static void print_problems(const struct trajd_index *index)
{
    uint32_t listed = 0, problems = index->note_count;

    for (uint32_t i = 0; i < index->file_count; i++) {
        problems += index->files[i].refusal != NULL;
        if (index->files[i].refusal && listed++ < LISTED_MAX)
            printf("  refused: %s\n", index->files[i].refusal);
    }
    for (uint32_t i = 0; i < index->episode_count; i++) {
        problems += index->episodes[i].quarantine != NULL;
        if (index->episodes[i].quarantine && listed++ < LISTED_MAX)
            printf("  quarantined: %s\n", index->episodes[i].quarantine);
    }
    for (uint32_t i = 0; i < index->note_count && listed++ < LISTED_MAX; i++)
        printf("  %s\n", index->notes[i]);
    if (problems > LISTED_MAX)
        printf("  ... %u problems; --json lists all of them\n", problems);
}

void inspect_print(const char *path, const struct trajd_index *index)
{
    const uint32_t episodes = index->episode_count + index->refused_file_count;

    printf("%s\n  layout %s, %u file%s, %u of %u episode%s kept, fingerprint %016" PRIx64 "\n",
           path, index->layout->name, index->file_count, trajd_plural(index->file_count),
           index->kept_count, episodes, trajd_plural(episodes), index->fingerprint);
    if (index->trimmed_row_count)
        printf("  left out: %" PRIu64 " row%s after the last one of the clock (T+1)\n",
               index->trimmed_row_count, trajd_plural(index->trimmed_row_count));
    print_problems(index);
    printf(" clocks\n");
    for (uint32_t i = 0; i < index->clock_count; i++)
        print_clock(index, i);
    printf(" streams\n");
    for (uint32_t i = 0; i < index->stream_count; i++)
        print_stream(index, &index->streams[i]);
    for (uint32_t i = 0; i < index->layout->meta_count; i++)
        print_meta(index, i);
}
