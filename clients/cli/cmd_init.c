/* trajctl init: prints a first configuration for a file, with the rates of its clocks. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "daemon/base/json.h"
#include "daemon/cache/dataset.h"
#include "proto/array_len.h"

#define CHUNK_STEPS "0..15"

enum { PICTURE_RANK = 2, LARGEST_BATCH = 256, FEWEST_TO_SPLIT = 10 };

/* Returns the mean rate of a clock over the first kept episode with at least two rows, or 0. */
static double mean_rate_hz(const struct trajd_index *index, uint32_t which)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *clock =
            index->episodes[e].quarantine ? NULL : &index->episodes[e].clocks[which];
        int64_t span_ns;
        if (!clock || clock->row_count < 2)
            continue;
        span_ns = trajd_clock_row_ns(clock, clock->row_count - 1) - trajd_clock_row_ns(clock, 0);
        if (span_ns > 0)
            return (double)(clock->row_count - 1) * 1e9 / (double)span_ns;
    }
    return 0;
}

/* Writes "20 Hz", "20 Hz (assumed)", "100 Hz (measured)", or "" where the clock has no rate. */
static void write_rate(const struct trajd_index *index, uint32_t clock,
                       char text[TRAJD_RATES_TEXT_SIZE])
{
    const double hz = mean_rate_hz(index, clock);
    struct trajd_index_rates rates = {0};

    trajd_index_rates_add(index, clock, &rates);
    if (!*trajd_index_rates_text(&rates, text) && hz > 0)
        snprintf(text, TRAJD_RATES_TEXT_SIZE, "%.4g Hz (measured)", hz);
}

static bool is_action(const struct trajd_index_stream *stream)
{
    return strncmp(stream->name, "action", 6) == 0;
}

/* Returns whether a policy would read the stream. Other streams are printed as comments. */
static bool is_observation(const struct trajd_index_stream *stream)
{
    static const char *const others[] = {"next_obs/", "rewards", "dones", "states", "action"};

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(stream->name, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

/* Chooses the clock for the anchors: that of the actions, else the slowest one. */
static uint32_t anchor_clock(const struct trajd_index *index)
{
    uint32_t best = 0;

    for (uint32_t s = 0; s < index->stream_count; s++)
        if (is_action(&index->streams[s]))
            return index->streams[s].clock_index;
    for (uint32_t c = 1; c < index->clock_count; c++)
        if (mean_rate_hz(index, c) > 0 && mean_rate_hz(index, c) < mean_rate_hz(index, best))
            best = c;
    return best;
}

static bool has_filter_key(const struct trajd_index *index, const char *key)
{
    for (uint32_t e = 0; e < index->episode_count; e++)
        for (uint32_t k = 0; !index->episodes[e].quarantine && index->episodes[e].filter_keys[k];
             k++)
            if (strcmp(index->episodes[e].filter_keys[k], key) == 0)
                return true;
    return false;
}

static uint64_t count_rows(const struct trajd_index *index, uint32_t clock)
{
    uint64_t rows = 0;

    for (uint32_t e = 0; e < index->episode_count; e++)
        rows += index->episodes[e].quarantine
                    ? 0
                    : (uint64_t)index->episodes[e].clocks[clock].row_count;
    return rows;
}

/* Returns a power of two that gives an epoch at least 8 batches. */
static uint32_t guess_batch(uint64_t rows)
{
    uint32_t batch = LARGEST_BATCH;

    while (batch > 1 && rows / batch < 8)
        batch /= 2;
    return batch;
}

static bool is_plain(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";

    return strspn(name, letters) == strlen(name) && strspn(name, "0123456789.") == 0;
}

static void print_output(const struct trajd_index *index, const struct trajd_index_stream *stream,
                         uint32_t anchor)
{
    const char *at = is_action(stream) ? CHUNK_STEPS : stream->rank >= PICTURE_RANK ? "0" : "-1..0";
    const int width = 34 - (int)strlen(stream->name) - (int)strlen(at);

    printf("      %s", is_observation(stream) || is_action(stream) ? "" : "# ");
    if (is_plain(stream->name))
        fputs(stream->name, stdout);
    else
        trajd_json_text(stdout, stream->name);
    printf(": {at: %s}%*s# %s", at, width > 1 ? width : 1, "", trajd_dtype_name(stream->dtype));
    for (uint32_t i = 0; i < stream->rank; i++)
        printf("%s%" PRIu64, i ? "x" : " ", stream->shape[i]);
    if (stream->clock_index != anchor) {
        char rate[TRAJD_RATES_TEXT_SIZE];
        write_rate(index, stream->clock_index, rate);
        printf(", clock %s: %s", index->clocks[stream->clock_index].name, rate);
    }
    if (stream->unit)
        printf(", %s", stream->unit);
    printf("\n");
}

static void print_feed(const struct trajd_index *index)
{
    const uint32_t anchor = anchor_clock(index);
    const double rate = mean_rate_hz(index, anchor);
    char text[TRAJD_RATES_TEXT_SIZE];

    write_rate(index, anchor, text);
    printf("\nfeeds:\n  train:\n    dataset: data\n");
    if (has_filter_key(index, "train"))
        printf("    filter: train\n");
    else if (index->kept_count >= FEWEST_TO_SPLIT)
        printf("    split: 0..0.9              # 0.9..1 remains for validation; new data moves no "
               "episode\n");
    printf("    global_batch: %u\n", guess_batch(count_rows(index, anchor)));
    if (index->clock_count > 1 && rate > 0)
        printf("    rate: %.0f                   # of all steps; the anchors' clock has %s\n",
               fmax(1, round(rate)), text);
    printf("    anchor: {clock: %s}%*s# one window per row", index->clocks[anchor].name, 4, "");
    if (*text)
        printf(", %s", text);
    printf("\n    pad: {before: 1, after: any, with: edge}\n    outputs:\n");
    for (uint32_t s = 0; s < index->stream_count; s++)
        print_output(index, &index->streams[s], anchor);
}

/* Says which rates nothing states, and where to state them. */
static void print_assumption(const struct trajd_index *index)
{
    for (uint32_t c = 0; c < index->clock_count; c++) {
        struct trajd_index_rates rates = {0};
        char text[TRAJD_RATES_TEXT_SIZE];
        trajd_index_rates_add(index, c, &rates);
        if (rates.assumed_count)
            printf(
                "  # Clock %s: %s. Not all files state their rate. If you know it, add it above:\n"
                "  # data: {..., rate: %.6g}\n",
                index->clocks[c].name, trajd_index_rates_text(&rates, text), rates.highest_hz);
    }
}

static int print_config(const char *path, const struct trajd_index *index)
{
    const uint32_t found = index->episode_count + index->refused_file_count;
    char real[PATH_MAX];

    if (!realpath(path, real))
        return cli_fail("%s: the path cannot be resolved", path);
    printf(
        "# Made by `trajctl init` from %u episodes; `trajctl check THIS_FILE` shows its outputs.\n",
        index->kept_count);
    if (found > index->kept_count)
        printf("# Of %u episodes %u are quarantined: `trajctl inspect` has the reasons.\n", found,
               found - index->kept_count);
    printf("version: 1\n\ndatasets:\n  data: {path: ");
    trajd_json_text(stdout, real);
    printf(", layout: %s}\n", index->layout->name);
    print_assumption(index);
    print_feed(index);
    if (fflush(stdout) || ferror(stdout))
        return cli_fail("the configuration could not be written");
    return CLI_OK;
}

int cli_init(int argc, char **argv)
{
    const char *layout = NULL, *path = NULL;
    struct trajd_index *index = NULL;
    struct trajd_error error;
    struct cli_files files = {0};
    int result;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--layout") && i + 1 < argc)
            layout = argv[++i];
        else if (argv[i][0] == '-' || path)
            return cli_fail(path && argv[i][0] != '-' ? "name one file or folder, not also %s"
                                                      : "unknown option: %s",
                            argv[i]),
                   cli_usage("init");
        else
            path = argv[i];
    }
    if (!path)
        return cli_fail("name a file or folder"), cli_usage("init");
    if (cli_files_find(&files, &error))
        return cli_fail("%s", error.message);
    if (cli_files_open(&files, layout, path, &index, &error))
        return cli_fail("%s", error.message);
    result = print_config(path, index);
    trajd_index_destroy(&index);
    return result;
}
