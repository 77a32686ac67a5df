/* Writes a first configuration: datasets, and a feed for each. */
#include "clients/cli/draft/draft_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/memory.h"
#include "daemon/base/json.h"
#include "daemon/cache/dataset.h"
#include "daemon/base/defaults.h"
#include "proto/plural.h"

enum { LARGEST_BATCH = 256, FEWEST_TO_SPLIT = 10, RINGS_BYTES = 512 << 20 };

static const double slowest_anchor_hz = 2; /* slower ones only where all are */

/* Returns whether anchors of the rate are better than those of the other one: slow, though not as slow
 * as a battery's voltage. */
static bool is_better_anchor(double rate_hz, double other_hz)
{
    const bool is_enough = rate_hz >= slowest_anchor_hz;

    return rate_hz > 0 &&
           (is_enough == (other_hz >= slowest_anchor_hz) ? rate_hz < other_hz : is_enough);
}

/* Chooses the clock for the anchors: that of the actions, else the slowest one. */
static uint32_t anchor_clock(const struct trajd_index *index)
{
    uint32_t best = 0;

    for (uint32_t s = 0; s < index->stream_count; s++)
        if (config_is_action(&index->streams[s]))
            return index->streams[s].clock_index;
    for (uint32_t c = 1; c < index->clock_count; c++)
        if (is_better_anchor(config_mean_rate_hz(index, c), config_mean_rate_hz(index, best)))
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

/* Returns a power of two that gives an epoch at least 8 batches. All feeds together then take half of
 * the default of memory.rings with their slots, so that a feed for validation fits beside them. With
 * images this is about the batch of the trainers' own scripts. */
static uint32_t guess_batch(uint64_t rows, uint64_t window_bytes, uint32_t feeds)
{
    uint32_t batch = LARGEST_BATCH;

    while (batch > 1 &&
           (rows / batch < 8 || batch * window_bytes > RINGS_BYTES / TRAJD_SLOTS_LEAST / feeds))
        batch /= 2;
    return batch;
}

/* Writes the outputs into a text, which the caller frees. Returns the bytes of a window. */
static uint64_t make_outputs(const struct config_dataset *dataset,
                             const struct config_preset *preset, char **text)
{
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(text, &size));
    const uint64_t bytes =
        config_write_outputs(out, dataset->index, anchor_clock(dataset->index), preset);

    trajd_memory_close_or_exit(out, text);
    return bytes;
}

static void print_feed(FILE *out, const struct config_dataset *dataset, const char *feed,
                       uint32_t feeds, const struct config_preset *preset)
{
    const struct trajd_index *index = dataset->index;
    const uint32_t anchor = anchor_clock(index);
    const double rate = config_mean_rate_hz(index, anchor);
    const uint64_t windows = preset->windows ? index->kept_count : count_rows(index, anchor);
    char text[TRAJD_RATES_TEXT_SIZE], *outputs;
    const uint64_t window_bytes = make_outputs(dataset, preset, &outputs);

    config_write_rate(index, anchor, text);
    fprintf(out, "  %s:\n    dataset: %s\n", feed, dataset->name);
    if (has_filter_key(index, "train"))
        fprintf(out, "    filter: train\n");
    else if (index->kept_count >= FEWEST_TO_SPLIT)
        fprintf(out, "    split: 0..0.9              # 0.9..1 remains for validation; new data "
                     "moves no episode\n");
    fprintf(out, "    global_batch: %u\n", guess_batch(windows, window_bytes, feeds));
    if (index->clock_count > 1 && rate > 0)
        fprintf(out, "    rate: %.0f                   # of all steps; the anchors' clock has %s\n",
                fmax(1, round(rate)), text);
    fprintf(out, "    anchor: {clock: %s}%*s# one window per row", index->clocks[anchor].name, 4,
            "");
    if (*text)
        fprintf(out, ", %s", text);
    fprintf(out, "\n    pad: %s\n", preset->pad);
    if (preset->windows)
        fprintf(out, "    windows: %s\n", preset->windows);
    if (*preset->name)
        fprintf(out, "    # In Python: trajd.open(THIS_FILE, feed=\"train\", style=\"%s\")\n",
                preset->name);
    if (preset->note)
        fprintf(out, "    # %s\n", preset->note);
    fprintf(out, "    outputs:\n%s", outputs);
    free(outputs);
}

/* Says which rates nothing states, and where to state them. */
static void print_assumption(FILE *out, const struct config_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        struct trajd_index_rates rates = {0};
        char text[TRAJD_RATES_TEXT_SIZE];
        trajd_index_rates_add(index, c, &rates);
        if (!rates.assumed_count)
            continue;
        fprintf(out,
                "  # Clock %s: %s. Not all files state their rate. If you know it, add it "
                "above:\n  # %s: {..., rate: ",
                index->clocks[c].name, trajd_index_rates_text(&rates, text), dataset->name);
        if (index->clock_count > 1)
            fprintf(out, "{%s: %.6g}}\n", index->clocks[c].name, rates.highest_hz);
        else
            fprintf(out, "%.6g}\n", rates.highest_hz);
    }
}

/* Writes the key `color`, or both of its values as comments: no feed of the frames opens before one
 * of them is chosen. */
static void print_color(FILE *out, const struct config_dataset *dataset)
{
    const char *source = dataset->color_source;

    if (dataset->color != TRAJD_COLOR_UNDECIDED) {
        fprintf(out, "    color: %s                 # as in the raw frames of %s\n",
                trajd_image_color_name(dataset->color), source);
        return;
    }
    fprintf(out, "    # The files do not say which of these is right. ");
    if (source)
        fprintf(out, "%s shows both. ", source);
    fprintf(out, "Remove the # of one:\n"
                 "    # color: rgb               # left: a standard decoder gives RGB\n"
                 "    # color: bgr               # right: red and blue are exchanged, as by "
                 "act-plus-plus' compress_data.py,\n"
                 "    #                            mobile-aloha's recorder and most of RoboMIND\n");
}

static void print_dataset(FILE *out, const struct config_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;
    const uint32_t found = index->episode_count + index->refused_file_count;

    if (found > index->kept_count)
        fprintf(out, "  # Quarantined: %u of %u episode%s: `trajctl inspect` has the reasons.\n",
                found - index->kept_count, found, trajd_plural(found));
    fprintf(out, dataset->color ? "  %s:\n    path: " : "  %s: {path: ", dataset->name);
    trajd_json_text(out, dataset->path);
    fprintf(out, dataset->color ? "\n    layout: " : ", layout: ");
    draft_write_text(out, dataset->layout);
    fprintf(out, dataset->color ? "\n" : "}\n");
    if (dataset->color)
        print_color(out, dataset);
    print_assumption(out, dataset);
}

void config_write(FILE *out, const struct config_dataset *datasets, uint32_t count,
                  const struct config_preset *preset)
{
    uint32_t episodes = 0;

    for (uint32_t i = 0; i < count; i++)
        episodes += datasets[i].index->kept_count;
    fprintf(out,
            "# Made by `trajctl init` from %u episode%s; `trajctl check THIS_FILE` shows its "
            "outputs.\nversion: 2\n\ndatasets:\n",
            episodes, trajd_plural(episodes));
    for (uint32_t i = 0; i < count; i++)
        print_dataset(out, &datasets[i]);
    fprintf(out, "\nfeeds:\n");
    for (uint32_t i = 0; i < count; i++) {
        char feed[128];
        snprintf(feed, sizeof feed, count > 1 ? "train_%s" : "train", datasets[i].name);
        print_feed(out, &datasets[i], feed, count, preset);
    }
}
