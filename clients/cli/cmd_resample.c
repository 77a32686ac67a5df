/* trajctl resample: reads the options and runs a conversion (clients/cli/resample). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/resample/print/resample_print.h"
#include "daemon/base/progress/progress.h"

enum { ITEMS_MAX = 256 };

struct list {
    const char *items[ITEMS_MAX];
    uint32_t count;
};

struct resampling {
    struct trajd_convert_options options;
    struct trajd_convert_rule rules[ITEMS_MAX];
    struct list streams, episodes;
    const char *layout;       /* NULL: guess */
    const char *assumed_rate; /* the text of --assume-rate=HZ, or NULL */
    struct resample_printer printer;
    struct cli_files files;
    struct trajd_index *indexes[ITEMS_MAX];
    uint32_t index_count;
};

static bool is_interrupted; /* set only by the signal handler */

static void on_signal(int number)
{
    (void)number;
    __atomic_store_n(&is_interrupted, true, __ATOMIC_RELAXED);
}

/* ---- options ---- */

/* Splits "a,b,c" in place, into the list at the option's offset. */
static void set_list(void *place, const struct cli_option *option, char *value)
{
    struct list *list = (struct list *)((char *)place + option->offset);

    for (char *item = strtok(value, ","); item; item = strtok(NULL, ",")) {
        if (list->count == ITEMS_MAX)
            cli_refuse("%s: more than %d names", option->name, ITEMS_MAX);
        list->items[list->count++] = item;
    }
}

/* Adds an empty rule for "STREAM=VALUE", or for all streams for "VALUE" if the option's help shows
 * that. Moves *value to the value. */
static struct trajd_convert_rule *add_rule(struct resampling *resampling,
                                           const struct cli_option *option, char **value)
{
    struct trajd_convert_rule *rule = &resampling->rules[resampling->options.rule_count];
    char *equals = strrchr(*value, '=');

    if (!equals && *option->value != '[')
        cli_refuse("%s %s: write STREAM=VALUE", option->name, *value);
    if (resampling->options.rule_count++ == ITEMS_MAX)
        cli_refuse("more than %d rules", ITEMS_MAX);
    *rule = (struct trajd_convert_rule){.stream = equals ? *value : NULL,
                                        .kind = TRAJD_CONVERT_NO_KIND};
    if (equals) {
        *equals = '\0';
        *value = equals + 1;
    }
    return rule;
}

static void set_kind(void *place, const struct cli_option *option, char *value)
{
    struct trajd_convert_rule *rule = add_rule(place, option, &value);
    struct trajd_error error;

    rule->kind = trajd_convert_kind_parse(value, &error);
    rule->layout_order = !strcmp(value, "slerp");
    if (rule->kind == TRAJD_CONVERT_NO_KIND)
        cli_refuse("%s %s: %s", option->name, rule->stream, error.message);
}

/* Sets the member of the rule that has the option's offset. */
static void set_time(void *place, const struct cli_option *option, char *value)
{
    struct trajd_convert_rule *rule = add_rule(place, option, &value);

    cli_read(option, CLI_TIME, value, (char *)rule + option->offset);
}

static void set_dtype(void *place, const struct cli_option *option, char *value)
{
    struct trajd_convert_rule *rule = add_rule(place, option, &value);

    rule->dtype = trajd_dtype_parse(value);
    if (!rule->dtype)
        cli_refuse("%s: \"%s\" is not one of float16, float32 and float64", option->name, value);
}

static void set_compress(void *place, const struct cli_option *option, char *value)
{
    struct trajd_convert_options *options = &((struct resampling *)place)->options;

    if (!strcmp(value, "keep"))
        options->compress = TRAJD_CONVERT_KEEP;
    else if (!strcmp(value, "none"))
        options->compress = TRAJD_CONVERT_NONE;
    else
        options->compress = TRAJD_CONVERT_DEFLATE;
    if (options->compress != TRAJD_CONVERT_DEFLATE || !strcmp(value, "gzip"))
        return;
    if (strlen(value) == 6 && !strncmp(value, "gzip:", 5) && value[5] >= '1' && value[5] <= '9')
        options->compress_level = (uint32_t)(value[5] - '0');
    else
        cli_refuse("%s %s: choose keep, none, gzip or gzip:1 to gzip:9", option->name, value);
}

static void set_assumed_rate(void *place, const struct cli_option *option, char *value)
{
    struct resampling *resampling = place;

    resampling->options.accepts_assumed_rates = true;
    resampling->assumed_rate = value;
    if (value)
        cli_read(option, CLI_RATE, value, &resampling->files.assumed_rate);
}

/* Refuses an option that earlier versions had. */
static void refuse_resume(void *place, const struct cli_option *option, char *value)
{
    (void)place, (void)value;
    cli_refuse("%s is no longer there: run the command without it, and a killed conversion starts "
               "again. To go on with the next file, use `trajctl preprocess` with an inbox",
               option->name);
}

const struct cli_option cli_resample_options[] = {
    {"-o", "FILE", "the output, which must not exist", CLI_TEXT,
     offsetof(struct resampling, options.output)},
    {"--output", "FILE", "the same as -o", CLI_TEXT, offsetof(struct resampling, options.output)},
    {"--rate", "HZ", "the rate of the grid, such as 20, 29.97 or 30000/1001", CLI_RATE,
     offsetof(struct resampling, options.rate)},
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct resampling, layout)},
    {"--streams", "NAME,...", "the streams (all)", CLI_CALL, offsetof(struct resampling, streams),
     .set = set_list},
    {"--episodes", "ID,...|A..B", "the episodes (all)", CLI_CALL,
     offsetof(struct resampling, episodes), .set = set_list},
    {"--filter", "KEY", "a mask of the file that chooses episodes", CLI_TEXT,
     offsetof(struct resampling, options.filter)},
    {"--kind", "STREAM=KIND", "how a stream is resampled (as the layout says)", CLI_CALL,
     .set = set_kind},
    {"--window", "[STREAM=]TIME", "the span of kind mean (one step)", CLI_CALL,
     offsetof(struct trajd_convert_rule, window_ns), .least = 1, .set = set_time},
    {"--max-gap", "[STREAM=]TIME", "split episodes where rows are further apart", CLI_CALL,
     offsetof(struct trajd_convert_rule, max_gap_ns), .least = 1, .set = set_time},
    {"--dtype", "[STREAM=]TYPE", "float16, float32 or float64 (as recorded)", CLI_CALL,
     .set = set_dtype},
    {"--compress", "keep|none|gzip[:LEVEL]", "the compression of the output (keep)", CLI_CALL,
     .set = set_compress},
    {"--assume-rate", "[HZ]",
     "accept the layout's rate of a clock where no file states one, or use HZ", CLI_CALL,
     .set = set_assumed_rate},
    {"--threads", "N", "the number of threads (one per processor)", CLI_U32,
     offsetof(struct resampling, options.thread_count), .least = 1, .most = 64},
    {"--backend", "cpu|auto|cuda|daemon", "where it is computed (auto)", CLI_CHOICE,
     offsetof(struct resampling, options.backend)},
    {"--endpoint", "DIR", "the daemon of --backend daemon", CLI_TEXT,
     offsetof(struct resampling, options.endpoint)},
    {"--dry-run", NULL, "print the plan only", CLI_FLAG,
     offsetof(struct resampling, options.dry_run)},
    {"--force", NULL, "replace an existing file", CLI_FLAG,
     offsetof(struct resampling, options.force)},
    {"--resume", NULL, "refused: a killed conversion starts again without it", CLI_CALL,
     .set = refuse_resume},
    {"--json", NULL, "print JSON documents, one a line", CLI_FLAG,
     offsetof(struct resampling, printer.json)},
    {0}};

/* ---- the run ---- */

static int open_inputs(struct resampling *resampling, char **paths, int count)
{
    for (int i = 0; i < count; i++) {
        struct trajd_error error;
        const char *layout = resampling->layout;
        if (!layout && i > 0) /* all files have the layout of the first one */
            layout = resampling->indexes[0]->layout->name;
        if (cli_files_open(&resampling->files, layout, paths[i], &resampling->indexes[i], &error))
            return cli_fail_at(paths[i], &error);
        resampling->index_count++;
        for (uint32_t n = 0; n < resampling->indexes[i]->note_count; n++)
            resample_print_note(&resampling->printer, resampling->indexes[i]->notes[n]);
    }
    resampling->options.indexes = (const struct trajd_index *const *)resampling->indexes;
    resampling->options.index_count = resampling->index_count;
    return CLI_OK;
}

/* Notes a --assume-rate=HZ that changes nothing, because the inputs state all rates. */
static void note_unused_rate(struct resampling *resampling)
{
    const struct trajd_index *first = resampling->indexes[0];

    for (uint32_t c = 0; c < first->clock_count && resampling->assumed_rate; c++) {
        struct trajd_index_rates rates = {0};
        char text[TRAJD_RATES_TEXT_SIZE], note[512];
        for (uint32_t i = 0; i < resampling->index_count; i++)
            trajd_index_rates_add(resampling->indexes[i], c, &rates);
        if (rates.source == TRAJD_RATE_ASSUMED || !rates.highest_hz)
            continue;
        snprintf(note, sizeof note,
                 "--assume-rate=%.40s has no effect on clock %.80s: its rate is declared, %s",
                 resampling->assumed_rate, first->clocks[c].name,
                 trajd_index_rates_text(&rates, text));
        resample_print_note(&resampling->printer, note);
    }
}

static int run(struct resampling *resampling)
{
    struct trajd_convert_report report;
    struct trajd_error error;
    enum trajd_status status;

    if (!resampling->options.endpoint)
        resampling->options.endpoint = getenv("TRAJD_ENDPOINT");
    resampling->options.rules = resampling->rules;
    resampling->options.streams = resampling->streams.items;
    resampling->options.stream_count = resampling->streams.count;
    resampling->options.episodes = resampling->episodes.items;
    resampling->options.episode_count = resampling->episodes.count;
    resampling->options.helper_path = resampling->files.helper;
    resampling->options.cancel = &is_interrupted;
    resampling->options.on_note = resample_print_note;
    resampling->options.on_plan = resample_print_plan;
    resampling->options.on_progress = resample_print_progress;
    resampling->options.context = &resampling->printer;
    resampling->printer.rate = resampling->options.rate;
    resampling->printer.output = resampling->options.output;
    status = trajd_convert_file(&resampling->options, &report, &error);
    trajd_progress_clear();
    if (!status && !resampling->options.dry_run)
        resample_print_report(&resampling->printer, &report);
    trajd_convert_report_clear(&report);
    return status ? cli_fail("%s", error.message) : CLI_OK;
}

int cli_resample(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct resampling resampling = {.options.backend = TRAJD_CONVERT_AUTO};
    const int count = cli_parse(argc, argv, &resampling);
    struct trajd_error error;
    int result;

    if (count > ITEMS_MAX)
        cli_refuse("more than %d files: name their folder", ITEMS_MAX);
    if (!resampling.options.rate.num)
        cli_refuse("--rate is missing");
    if (!resampling.options.output && !resampling.options.dry_run)
        cli_refuse("-o is missing: name the output file");
    if (cli_files_find(&resampling.files, &error))
        return cli_fail("%s", error.message);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error of the write */
    result = open_inputs(&resampling, argv + 1, count);
    if (!result) {
        note_unused_rate(&resampling);
        result = run(&resampling);
    }
    for (uint32_t i = 0; i < resampling.index_count; i++)
        trajd_index_destroy(&resampling.indexes[i]);
    return result;
}
