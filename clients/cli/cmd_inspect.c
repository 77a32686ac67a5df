/* trajctl inspect: shows how a layout reads files. Without --layout it tries the shipped ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/draft/draft.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/frames/frame_show.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/packed_video.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

enum { LISTED_MAX = 20, STORAGE_SIZE = 640 };

/* ---- what the kept episodes have in common ---- */

/* A clock over all kept episodes. */
struct clock_summary {
    uint64_t rows, dropped;
    double sum_s; /* sum of the intervals */
    uint64_t intervals;
    int64_t shortest_ns, longest_ns;
};

static const char *filter_name(uint16_t filter)
{
    switch (filter) {
    case TRAJD_FILTER_DEFLATE:
        return "gzip";
    case TRAJD_FILTER_SHUFFLE:
        return "shuffle";
    case TRAJD_FILTER_FLETCHER32:
        return "fletcher32";
    case TRAJD_FILTER_LZF:
        return "lzf";
    default:
        return "?";
    }
}

static void add_stamps(struct clock_summary *summary, const struct trajd_episode_clock *clock)
{
    for (int64_t i = 1; i < clock->row_count; i++) {
        int64_t interval = clock->stamps_ns[i] - clock->stamps_ns[i - 1];
        if (!summary->intervals || interval < summary->shortest_ns)
            summary->shortest_ns = interval;
        if (interval > summary->longest_ns)
            summary->longest_ns = interval;
        summary->sum_s += (double)interval / 1e9;
        summary->intervals++;
    }
}

static struct clock_summary summarize_clock(const struct trajd_index *index, uint32_t which)
{
    struct clock_summary summary = {0};

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode_clock *clock;
        if (index->episodes[i].quarantine)
            continue;
        clock = &index->episodes[i].clocks[which];
        summary.rows += (uint64_t)clock->row_count;
        summary.dropped += clock->dropped_rows;
        if (clock->stamps_ns)
            add_stamps(&summary, clock);
    }
    return summary;
}

/* Returns the dataset's array in the first kept episode that has it, or NULL. */
static const struct trajd_array *example_array(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[i];
        if (!episode->quarantine && episode->extents[dataset].storage != TRAJD_STORAGE_ABSENT)
            return &episode->extents[dataset];
    }
    return NULL;
}

/* Writes "contiguous", or "jpeg 480x640 rgb (layout), padded, chunked gzip", with who says it is rgb;
 * of prepared frames also how they were made, as in the file. */
static void describe_storage(const struct trajd_array *array,
                             const struct trajd_index_stream *stream, char text[STORAGE_SIZE])
{
    static const char *const names[] = {"absent", "never written", "contiguous", "chunked",
                                        "compact"};
    FILE *out = fmemopen(text, STORAGE_SIZE - 1, "w");

    trajd_memory_or_exit(out);
    text[STORAGE_SIZE - 1] = '\0';
    if (array && array->form == TRAJD_ROWS_VIDEO) {
        const struct trajd_video *video = array->video;
        fprintf(out, "%s %ux%u rgb (file), %s, %.1f frames per unit, packets in %s, ",
                trajd_video_codec_name(video->format.codec), array->header.height,
                array->header.width, video->pixel_format,
                (double)video->packet_count / (double)video->unit_count,
                video->media ? "MP4" : "the file");
    } else if (array && trajd_array_is_encoded(array)) {
        char image[TRAJD_IMAGE_TEXT_SIZE];
        fprintf(out, "%s", trajd_image_text(&array->header, &stream->image, image));
        if (trajd_image_channels(stream->image.color) == 3)
            fprintf(out, " (%s)",
                    stream->image.color == TRAJD_COLOR_UNDECIDED
                        ? "rgb or bgr"
                        : trajd_index_color_source(stream));
        fprintf(out, ", %s, ", trajd_row_form_name(array->form));
    }
    fprintf(out, "%s", array ? names[array->storage] : "absent");
    for (uint32_t i = 0; array && i < array->filter_count; i++)
        fprintf(out, " %s", filter_name(array->filters[i]));
    if (stream->image.masks_zero_frames)
        fprintf(out, ", frames of zeros masked");
    if (stream->preparation)
        fprintf(out, ", prepared: %s", stream->preparation);
    fclose(out);
}

static void describe_shape(const struct trajd_index_stream *stream, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(T");

    for (uint32_t i = 0; i < stream->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ",%" PRIu64, stream->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, ")");
}

/* Counts the kept episodes that have the dataset, and its fewest and most rows. */
static void count_rows(const struct trajd_index *index, uint32_t dataset, uint64_t *least,
                       uint64_t *most, uint32_t *episodes)
{
    *least = UINT64_MAX;
    *most = *episodes = 0;
    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[i];
        const struct trajd_array *array = episode->quarantine ? NULL : &episode->extents[dataset];
        if (!array || array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes)
            continue;
        (*episodes)++;
        *least = array->shape[0] < *least ? array->shape[0] : *least;
        *most = array->shape[0] > *most ? array->shape[0] : *most;
    }
    if (!*episodes)
        *least = 0;
}

/* ---- as text ---- */

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
    struct clock_summary summary = summarize_clock(index, which);
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
    char shape[128], storage[STORAGE_SIZE], rows[64];
    uint64_t least, most;
    uint32_t episodes;

    describe_shape(stream, shape, sizeof shape);
    describe_storage(example_array(index, stream->array_index), stream, storage);
    count_rows(index, stream->array_index, &least, &most, &episodes);
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

/* Prints the clocks that stop before their episodes, as far as the list has room. Returns their
 * number. */
static uint32_t print_early_ends(const struct trajd_index *index, uint32_t *listed)
{
    char text[TRAJD_EARLY_END_TEXT_SIZE];
    uint32_t count = 0;

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[i];
        for (uint32_t c = 0; c < index->clock_count && !episode->quarantine; c++) {
            if (!trajd_episode_ends_early(episode, c, text))
                continue;
            count++;
            if ((*listed)++ < LISTED_MAX)
                printf("  ends early: %s: %s: clock %s %s\n",
                       index->files[episode->file_index].relative_path, episode->id,
                       index->clocks[c].name, text);
        }
    }
    return count;
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
    problems += print_early_ends(index, &listed);
    for (uint32_t i = 0; i < index->note_count && listed++ < LISTED_MAX; i++)
        printf("  %s\n", index->notes[i]);
    if (problems > LISTED_MAX)
        printf("  ... %u problems; --json lists all of them\n", problems);
}

/* Prints the index of the files at `path`. */
static void print_index(const char *path, const struct trajd_index *index)
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

/* ---- as JSON ---- */

static void json_clock(struct trajd_json *json, const struct trajd_index *index, uint32_t which)
{
    const struct clock_summary summary = summarize_clock(index, which);
    struct trajd_index_rates rates = {0};

    trajd_index_rates_add(index, which, &rates);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", index->clocks[which].name);
    trajd_json_bool(json, "regular", index->clocks[which].regular);
    trajd_json_u64(json, "rows", summary.rows);
    trajd_json_u64(json, "dropped_rows", summary.dropped);
    if (index->clocks[which].regular) {
        trajd_json_number(json, "lowest_rate_hz", "%.9g", rates.lowest_hz);
        trajd_json_number(json, "highest_rate_hz", "%.9g", rates.highest_hz);
    } else if (summary.intervals) {
        trajd_json_number(json, "mean_rate_hz", "%.9g", (double)summary.intervals / summary.sum_s);
        trajd_json_i64(json, "shortest_interval_ns", summary.shortest_ns);
        trajd_json_i64(json, "longest_interval_ns", summary.longest_ns);
    }
    trajd_json_string(json, "rate_source", trajd_rate_source_name(rates.source));
    trajd_json_u64(json, "assumed_episodes", rates.assumed_count);
    trajd_json_close_object(json);
}

static void json_stream(struct trajd_json *json, const struct trajd_index *index,
                        const struct trajd_index_stream *stream)
{
    const struct trajd_array *array = example_array(index, stream->array_index);
    uint64_t least, most;
    uint32_t episodes;
    char storage[STORAGE_SIZE];

    describe_storage(array, stream, storage);
    count_rows(index, stream->array_index, &least, &most, &episodes);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", stream->name);
    trajd_json_string(json, "dataset", index->arrays[stream->array_index].path);
    trajd_json_string(json, "dtype", trajd_dtype_name(stream->dtype));
    trajd_json_open_array(json, "row_shape");
    for (uint32_t i = 0; i < stream->rank; i++)
        trajd_json_u64(json, NULL, stream->shape[i]);
    trajd_json_close_array(json);
    trajd_json_string(json, "kind", trajd_window_kind_name(stream->kind));
    trajd_json_string(json, "clock", index->clocks[stream->clock_index].name);
    trajd_json_string(json, "storage", storage);
    trajd_json_string(json, "unit", stream->unit);
    trajd_json_bool(json, "image", stream->image.is_present);
    if (trajd_image_channels(stream->image.color) == 3) {
        trajd_json_string(json, "color", trajd_image_color_name(stream->image.color));
        trajd_json_string(json, "color_from", trajd_index_color_source(stream));
    }
    trajd_json_u64(json, "fewest_rows", least);
    trajd_json_u64(json, "most_rows", most);
    trajd_json_u64(json, "episodes", episodes);
    trajd_json_close_object(json);
}

/* `number` is that of `episodes:` of a feed. */
static void json_episode(struct trajd_json *json, const struct trajd_index *index,
                         const struct trajd_episode *episode, uint32_t number)
{
    char text[TRAJD_EARLY_END_TEXT_SIZE];

    trajd_json_open_object(json, NULL);
    trajd_json_u64(json, "number", number);
    trajd_json_string(json, "file", index->files[episode->file_index].relative_path);
    trajd_json_string(json, "id", episode->id);
    trajd_json_string(json, "quarantine", episode->quarantine);
    trajd_json_open_array(json, "filter_keys");
    for (uint32_t i = 0; episode->filter_keys[i]; i++)
        trajd_json_string(json, NULL, episode->filter_keys[i]);
    trajd_json_close_array(json);
    trajd_json_open_object(json, "rows");
    for (uint32_t i = 0; !episode->quarantine && i < index->clock_count; i++)
        trajd_json_i64(json, index->clocks[i].name, episode->clocks[i].row_count);
    trajd_json_close_object(json);
    trajd_json_open_object(json, "ends_early");
    for (uint32_t i = 0; !episode->quarantine && i < index->clock_count; i++)
        if (trajd_episode_ends_early(episode, i, text))
            trajd_json_string(json, index->clocks[i].name, text);
    trajd_json_close_object(json);
    trajd_json_open_object(json, "matches");
    for (uint32_t i = 0; !episode->quarantine && episode->matches && i < index->array_count; i++)
        if (episode->matches[i])
            trajd_json_string(json, index->arrays[i].path, episode->matches[i]);
    trajd_json_close_object(json);
    trajd_json_open_object(json, "meta");
    for (uint32_t i = 0; i < index->layout->meta_count; i++)
        trajd_json_string(json, index->layout->metas[i].name, episode->metas[i]);
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

static void json_episodes(struct trajd_json *json, const struct trajd_index *index)
{
    uint32_t refused_before = 0, file = 0;

    for (uint32_t i = 0; i < index->episode_count; i++) {
        for (; file < index->episodes[i].file_index; file++)
            refused_before += index->files[file].refusal != NULL;
        json_episode(json, index, &index->episodes[i], i + refused_before);
    }
}

static void json_files(struct trajd_json *json, const struct trajd_index *index)
{
    trajd_json_open_array(json, "files");
    for (uint32_t i = 0; i < index->file_count; i++) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "path", index->files[i].relative_path);
        trajd_json_u64(json, "size_bytes", index->files[i].stat.size_bytes);
        trajd_json_string(json, "refusal", index->files[i].refusal);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

/* Writes it as an object, with all episodes, files and problems. */
static void write_index(struct trajd_json *json, const char *path, const struct trajd_index *index)
{
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "path", path);
    trajd_json_string(json, "layout", index->layout->name);
    trajd_json_format(json, "fingerprint", "%016" PRIx64, index->fingerprint);
    trajd_json_u64(json, "episode_count", index->episode_count);
    trajd_json_u64(json, "found_count", index->episode_count + index->refused_file_count);
    trajd_json_u64(json, "kept_count", index->kept_count);
    trajd_json_u64(json, "quarantined_count",
                   index->episode_count + index->refused_file_count - index->kept_count);
    trajd_json_u64(json, "refused_file_count", index->refused_file_count);
    trajd_json_u64(json, "trimmed_rows", index->trimmed_row_count);
    json_files(json, index);
    trajd_json_open_array(json, "clocks");
    for (uint32_t i = 0; i < index->clock_count; i++)
        json_clock(json, index, i);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "streams");
    for (uint32_t i = 0; i < index->stream_count; i++)
        json_stream(json, index, &index->streams[i]);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "notes");
    for (uint32_t i = 0; i < index->note_count; i++)
        trajd_json_string(json, NULL, index->notes[i]);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "episodes");
    json_episodes(json, index);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

/* ---- the command ---- */

struct inspection {
    const char *layout; /* NULL: guess */
    bool json;
    struct frame_request request; /* with `frame`: only that */
    struct trajd_json document;   /* on stdout, with `json` */
    struct cli_files files;
};

static int inspect_path(struct inspection *inspection, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;
    enum trajd_status status =
        cli_files_open(&inspection->files, inspection->layout, path, &index, &error);

    if (status == TRAJD_ERR_NOT_FOUND && !inspection->layout && !access(path, R_OK))
        return draft_explain(&inspection->files, path, error.message,
                             inspection->json ? &inspection->document : NULL);
    if (status) {
        if (inspection->json) {
            trajd_json_open_object(&inspection->document, NULL);
            trajd_json_string(&inspection->document, "path", path);
            trajd_json_string(&inspection->document, "error", error.message);
            trajd_json_close_object(&inspection->document);
        }
        return cli_fail_at(path, &error);
    }
    if (inspection->json)
        write_index(&inspection->document, path, index);
    else
        print_index(path, index);
    trajd_index_destroy(&index);
    return CLI_OK;
}

static int show_frame(const struct inspection *inspection, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;

    if (!inspection->request.output)
        return cli_fail("--frame needs -o FILE.png");
    if (cli_files_open(&inspection->files, inspection->layout, path, &index, &error) ||
        frame_show(index, &inspection->request, stdout, &error)) {
        trajd_index_destroy(&index);
        return cli_fail("%s", error.message);
    }
    trajd_index_destroy(&index);
    return CLI_OK;
}

const struct cli_option cli_resize_options[] = {
    {"--resize", "HEIGHTxWIDTH", "resize the image", CLI_TEXT, offsetof(struct frame_resize, size)},
    {"--filter", "NAME",
     "how it is resized: pillow-bilinear (the default), pillow-box, "
     "pillow-bicubic, pillow-lanczos, tf-lanczos3, area, linear or nearest",
     CLI_TEXT, offsetof(struct frame_resize, filter)},
    {"--fit", "stretch|pad|pad_topleft|cover", "how it fits (stretch)", CLI_TEXT,
     offsetof(struct frame_resize, fit)},
    {0}};

const struct cli_option cli_inspect_options[] = {
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct inspection, layout)},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct inspection, json)},
    {"--frame", "STREAM:ROW", "write one frame as an image, stored and as described by the layout",
     CLI_TEXT, offsetof(struct inspection, request.frame)},
    {"-o", "FILE.png", "the file of --frame", CLI_TEXT,
     offsetof(struct inspection, request.output)},
    {"--episode", "ID", "the episode of --frame (the first one)", CLI_TEXT,
     offsetof(struct inspection, request.episode)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct inspection, request.resize),
     .table = cli_resize_options},
    {0}};

int cli_inspect(int argc, char **argv)
{
    struct inspection inspection = {.document.out = stdout};
    const int count = cli_parse(argc, argv, &inspection);
    struct trajd_error error;
    int result = CLI_OK;

    if (inspection.request.frame && count > 1)
        cli_refuse("--frame takes one file");
    if (cli_files_find(&inspection.files, &error))
        return cli_fail("%s", error.message);
    if (inspection.request.frame)
        return show_frame(&inspection, argv[1]);
    if (inspection.json)
        trajd_json_open_array(&inspection.document, NULL);
    for (int i = 1; i <= count; i++)
        if (inspect_path(&inspection, argv[i]))
            result = CLI_FAILED;
    if (inspection.json) {
        trajd_json_close_array(&inspection.document);
        putchar('\n');
    }
    return result;
}
