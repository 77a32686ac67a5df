/* Writes a first configuration: datasets, and a feed for each. */
#include "clients/cli/draft/draft_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "clients/cli/draft/draft_layout_internal.h"
#include "daemon/base/json.h"
#include "daemon/cache/dataset.h"
#include "proto/array_len.h"
#include "daemon/window/picture/picture_prepared.h"

enum { PICTURE_RANK = 2, LARGEST_BATCH = 256, FEWEST_TO_SPLIT = 10 };

static const double slowest_anchor_hz = 2; /* slower ones only where all are */

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

/* Returns whether the stream may be the action of a dataset in which none has this name. */
static bool is_command(const struct trajd_index *index, const struct trajd_index_stream *stream)
{
    static const char *const words[] = {"target", "cmd", "command", "ctrl"};
    bool is_named = false;

    for (uint32_t s = 0; s < index->stream_count; s++)
        if (is_action(&index->streams[s]))
            return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        is_named = is_named || strcasestr(stream->name, words[i]);
    return is_named && stream->kind == TRAJD_KIND_PREVIOUS && stream->rank < PICTURE_RANK;
}

/* Returns whether a policy would read the stream. Other streams are printed as comments. */
static bool is_observation(const struct trajd_index_stream *stream)
{
    static const char *const others[] = {"next_obs/", "rewards",   "dones",   "states",
                                         "action",    "terminals", "timeouts"};

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(stream->name, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

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
        if (is_action(&index->streams[s]))
            return index->streams[s].clock_index;
    for (uint32_t c = 1; c < index->clock_count; c++)
        if (is_better_anchor(mean_rate_hz(index, c), mean_rate_hz(index, best)))
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

/* Windows as a trainer has them by default. */
static const struct config_preset presets[] = {
    {"act", "0", "0..99", "{before: 0, after: any, with: zero}", NULL,
     "one_per_episode  # one random row of each episode is ACT's epoch"},
    {"diffusion_policy", "-1..0", "-1..14", "{before: 1, after: 7, with: edge}", "min_max", NULL},
    {"lerobot", "0", "0..99", "{before: 0, after: any, with: edge}", "mean_std", NULL},
    {"openpi", "0", "0..49", "{before: 0, after: any, with: edge}", "q01_q99", NULL},
    {"robomimic", "0..9", "0..9", "{before: 0, after: any, with: edge}", NULL, NULL},
};
/* two observations and a horizon of 16 that begins with the first of them, as diffusion_policy */
static const struct config_preset no_preset = {
    "", "-1..0", "-1..14", "{before: 1, after: any, with: edge}", NULL, NULL};

const struct config_preset *config_preset_find(const char *name, struct trajd_error *error)
{
    if (!name)
        return &no_preset;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    }
    trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                    "--preset %s: choose act, diffusion_policy, lerobot, openpi or robomimic",
                    name);
    return NULL;
}

/* Writes the keys that ask for frames as they were prepared in the files. */
static void print_preparation(FILE *out, const struct trajd_index_stream *stream)
{
    char keys[TRAJD_PREPARATION_WORDS_SIZE];
    struct trajd_picture_prepared prepared;

    if (stream->preparation &&
        !trajd_picture_prepared_read(stream->preparation, (uint32_t)stream->shape[2], stream->dtype,
                                     &prepared, NULL))
        fprintf(out, ", image: %s", trajd_picture_write_keys(&prepared.preparation, keys));
}

static void print_output(FILE *out, const struct trajd_index *index,
                         const struct trajd_index_stream *stream, uint32_t anchor,
                         const struct config_preset *preset)
{
    const bool is_picture = stream->rank >= PICTURE_RANK;
    const bool is_guess = is_command(index, stream);
    const char *at = is_action(stream) || is_guess        ? preset->actions
                     : is_picture && preset == &no_preset ? "0"
                                                          : preset->observations;
    const bool has_norm = preset->norm && !is_picture && stream->kind != TRAJD_KIND_SLERP_XYZW &&
                          stream->kind != TRAJD_KIND_SLERP_WXYZ;
    const int width = 34 - (int)strlen(stream->name) - (int)strlen(at);

    fprintf(out, "      %s", is_observation(stream) || is_action(stream) ? "" : "# ");
    draft_write_text(out, stream->name);
    fprintf(out, ": {at: %s%s%s%s", at, is_guess ? ", role: action" : "",
            has_norm ? ", norm: " : "", has_norm ? preset->norm : "");
    print_preparation(out, stream);
    fprintf(out, "}%*s# %s", width > 1 ? width : 1, "", trajd_dtype_name(stream->dtype));
    for (uint32_t i = 0; i < stream->rank; i++)
        fprintf(out, "%s%" PRIu64, i ? "x" : " ", stream->shape[i]);
    if (stream->clock_index != anchor) {
        char rate[TRAJD_RATES_TEXT_SIZE];
        write_rate(index, stream->clock_index, rate);
        fprintf(out, ", clock %s: %s", index->clocks[stream->clock_index].name, rate);
    }
    if (stream->unit)
        fprintf(out, ", %s", stream->unit);
    if (is_guess)
        fprintf(out, ", GUESS: a command, so an action");
    if (stream->form != TRAJD_ROWS_PLAIN)
        fprintf(out, ", %s frames", trajd_picture_encoding_name(stream->encoding));
    fprintf(out, "\n");
}

static void print_feed(FILE *out, const struct config_dataset *dataset, const char *feed,
                       const struct config_preset *preset)
{
    const struct trajd_index *index = dataset->index;
    const uint32_t anchor = anchor_clock(index);
    const double rate = mean_rate_hz(index, anchor);
    const uint64_t windows = preset->windows ? index->kept_count : count_rows(index, anchor);
    char text[TRAJD_RATES_TEXT_SIZE];

    write_rate(index, anchor, text);
    fprintf(out, "  %s:\n    dataset: %s\n", feed, dataset->name);
    if (has_filter_key(index, "train"))
        fprintf(out, "    filter: train\n");
    else if (index->kept_count >= FEWEST_TO_SPLIT)
        fprintf(out, "    split: 0..0.9              # 0.9..1 remains for validation; new data "
                     "moves no episode\n");
    fprintf(out, "    global_batch: %u\n", guess_batch(windows));
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
    fprintf(out, "    outputs:\n");
    for (uint32_t s = 0; s < index->stream_count; s++)
        print_output(out, index, &index->streams[s], anchor, preset);
}

/* Says which rates nothing states, and where to state them. */
static void print_assumption(FILE *out, const struct config_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        struct trajd_index_rates rates = {0};
        char text[TRAJD_RATES_TEXT_SIZE];
        trajd_index_rates_add(index, c, &rates);
        if (rates.assumed_count)
            fprintf(out,
                    "  # Clock %s: %s. Not all files state their rate. If you know it, add it "
                    "above:\n  # %s: {..., rate: %.6g}\n",
                    index->clocks[c].name, trajd_index_rates_text(&rates, text), dataset->name,
                    rates.highest_hz);
    }
}

static void print_dataset(FILE *out, const struct config_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;
    const uint32_t found = index->episode_count + index->refused_file_count;

    if (found > index->kept_count)
        fprintf(out, "  # Of %u episodes %u are quarantined: `trajctl inspect` has the reasons.\n",
                found, found - index->kept_count);
    fprintf(out, "  %s: {path: ", dataset->name);
    trajd_json_text(out, dataset->path);
    fprintf(out, ", layout: ");
    draft_write_text(out, dataset->layout);
    fprintf(out, "}\n");
    print_assumption(out, dataset);
}

void config_write(FILE *out, const struct config_dataset *datasets, uint32_t count,
                  const struct config_preset *preset)
{
    uint32_t episodes = 0;

    for (uint32_t i = 0; i < count; i++)
        episodes += datasets[i].index->kept_count;
    fprintf(out,
            "# Made by `trajctl init` from %u episodes; `trajctl check THIS_FILE` shows its "
            "outputs.\nversion: 1\n\ndatasets:\n",
            episodes);
    for (uint32_t i = 0; i < count; i++)
        print_dataset(out, &datasets[i]);
    fprintf(out, "\nfeeds:\n");
    for (uint32_t i = 0; i < count; i++) {
        char feed[128];
        snprintf(feed, sizeof feed, count > 1 ? "train_%s" : "train", datasets[i].name);
        print_feed(out, &datasets[i], feed, preset);
    }
}
