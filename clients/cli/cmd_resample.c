/* trajctl resample: reads the options and runs a conversion (clients/cli/resample). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/resample/print/resample_print.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/quantity.h"
#include "proto/array_len.h"

enum { ITEMS_MAX = 256, LEVEL_MAX = 9 };

struct resampling {
    struct trajd_convert_options options;
    struct trajd_convert_rule rules[ITEMS_MAX];
    const char *streams[ITEMS_MAX], *episodes[ITEMS_MAX];
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

static int fail_usage(void)
{
    return CLI_USAGE;
}

/* Splits "a,b,c" in place. */
static bool split(char *text, const char **items, uint32_t *count)
{
    for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
        if (*count == ITEMS_MAX)
            return cli_fail("more than %d names", ITEMS_MAX), false;
        items[(*count)++] = item;
    }
    return true;
}

/* Adds an empty rule for "STREAM=VALUE", or for all streams for "VALUE" if `may_be_all`. *value
 * becomes the value. Returns NULL after it printed an error. */
static struct trajd_convert_rule *add_rule(struct resampling *resampling, const char *option,
                                           char *text, bool may_be_all, char **value)
{
    struct trajd_convert_rule *rule = &resampling->rules[resampling->options.rule_count];
    char *equals = strrchr(text, '=');

    if (!equals && !may_be_all)
        return cli_fail("%s %s: write STREAM=VALUE", option, text), NULL;
    if (resampling->options.rule_count == ITEMS_MAX)
        return cli_fail("more than %d rules", ITEMS_MAX), NULL;
    resampling->options.rule_count++;
    *rule =
        (struct trajd_convert_rule){.stream = equals ? text : NULL, .kind = TRAJD_CONVERT_NO_KIND};
    *value = equals ? equals + 1 : text;
    if (equals)
        *equals = '\0';
    return rule;
}

static bool parse_kind(struct resampling *resampling, char *text)
{
    struct trajd_error error;
    char *value;
    struct trajd_convert_rule *rule = add_rule(resampling, "--kind", text, false, &value);

    if (!rule)
        return false;
    rule->kind = trajd_convert_kind_parse(value, &error);
    rule->layout_order = !strcmp(value, "slerp");
    return rule->kind != TRAJD_CONVERT_NO_KIND ||
           (cli_fail("--kind %s: %s", rule->stream, error.message), false);
}

static bool parse_time(struct resampling *resampling, const char *option, char *text)
{
    char *value;
    struct trajd_convert_rule *rule = add_rule(resampling, option, text, true, &value);
    int64_t ns;

    if (!rule)
        return false;
    if (!trajd_parse_duration(value, &ns) || ns <= 0)
        return cli_fail("%s: \"%s\" is not a time above 0 (such as 50ms, 1.5s or 200us)", option,
                        value),
               false;
    *(strcmp(option, "--window") ? &rule->max_gap_ns : &rule->window_ns) = ns;
    return true;
}

static bool parse_dtype(struct resampling *resampling, char *text)
{
    char *value;
    struct trajd_convert_rule *rule = add_rule(resampling, "--dtype", text, true, &value);

    if (!rule)
        return false;
    rule->dtype = trajd_dtype_parse(value);
    return rule->dtype ||
           (cli_fail("--dtype: \"%s\" is not one of float16, float32 and float64", value), false);
}

static bool parse_compress(struct resampling *resampling, const char *text)
{
    char *end;

    if (!strcmp(text, "keep") || !strcmp(text, "none")) {
        resampling->options.compress =
            strcmp(text, "none") ? TRAJD_CONVERT_KEEP : TRAJD_CONVERT_NONE;
        return true;
    }
    resampling->options.compress = TRAJD_CONVERT_DEFLATE;
    if (!strcmp(text, "gzip"))
        return true;
    if (!strncmp(text, "gzip:", 5)) {
        const unsigned long level = strtoul(text + 5, &end, 10);
        resampling->options.compress_level = (uint32_t)level;
        if (!*end && level >= 1 && level <= LEVEL_MAX)
            return true;
    }
    return cli_fail("--compress %s: choose keep, none, gzip or gzip:1 to gzip:%d", text, LEVEL_MAX),
           false;
}

static bool parse_backend(struct resampling *resampling, const char *text)
{
    static const enum trajd_convert_backend kinds[] = {TRAJD_CONVERT_AUTO, TRAJD_CONVERT_CPU,
                                                       TRAJD_CONVERT_CUDA, TRAJD_CONVERT_DAEMON};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (!strcmp(text, trajd_convert_backend_name(kinds[i])))
            return resampling->options.backend = kinds[i], true;
    return cli_fail("--backend %s: choose auto, cpu, cuda or daemon", text), false;
}

static bool parse_rate(struct resampling *resampling, const char *text)
{
    return trajd_parse_rate(text, &resampling->options.rate) ||
           (cli_fail("--rate: \"%s\" is not a rate above 0 (such as 20, 29.97 or 30000/1001)",
                     text),
            false);
}

/* Reads --assume-rate or --assume-rate=HZ. */
static bool parse_assumed_rate(struct resampling *resampling, const char *option)
{
    resampling->options.accepts_assumed_rates = true;
    resampling->assumed_rate = strchr(option, '=');
    if (!resampling->assumed_rate)
        return true;
    return trajd_parse_rate(++resampling->assumed_rate, &resampling->files.assumed_rate) ||
           (cli_fail("%s: HZ is a rate above 0 (such as 20, 29.97 or 30000/1001)", option), false);
}

static bool parse_threads(struct resampling *resampling, const char *text)
{
    char *end;
    const unsigned long count = strtoul(text, &end, 10);

    resampling->options.thread_count = (uint32_t)count;
    return (!*end && count >= 1 && count <= 64) ||
           (cli_fail("--threads %s: choose 1 to 64", text), false);
}

/* Reads an option with a value. */
static bool parse_value(struct resampling *resampling, const char *option, char *value)
{
    struct trajd_convert_options *options = &resampling->options;

    if (!strcmp(option, "-o") || !strcmp(option, "--output"))
        return options->output = value, true;
    if (!strcmp(option, "--layout"))
        return resampling->layout = value, true;
    if (!strcmp(option, "--filter"))
        return options->filter = value, true;
    if (!strcmp(option, "--endpoint"))
        return options->endpoint = value, true;
    if (!strcmp(option, "--backend"))
        return parse_backend(resampling, value);
    if (!strcmp(option, "--rate"))
        return parse_rate(resampling, value);
    if (!strcmp(option, "--streams"))
        return split(value, resampling->streams, &options->stream_count);
    if (!strcmp(option, "--episodes"))
        return split(value, resampling->episodes, &options->episode_count);
    if (!strcmp(option, "--kind"))
        return parse_kind(resampling, value);
    if (!strcmp(option, "--window") || !strcmp(option, "--max-gap"))
        return parse_time(resampling, option, value);
    if (!strcmp(option, "--dtype"))
        return parse_dtype(resampling, value);
    if (!strcmp(option, "--compress"))
        return parse_compress(resampling, value);
    return parse_threads(resampling, value);
}

static bool parse_switch(struct resampling *resampling, const char *option)
{
    struct trajd_convert_options *options = &resampling->options;

    if (!strcmp(option, "--dry-run"))
        options->dry_run = true;
    else if (!strcmp(option, "--force"))
        options->force = true;
    else if (!strcmp(option, "--resume"))
        return cli_fail("--resume is no longer there: run the command without it, and a killed "
                        "conversion starts again. To go on with the next file, use `trajctl "
                        "preprocess` with an inbox"),
               false;
    else if (!strcmp(option, "--json"))
        resampling->printer.json = true;
    else if (!strcmp(option, "--assume-rate") || !strncmp(option, "--assume-rate=", 14))
        return parse_assumed_rate(resampling, option);
    else
        return cli_fail("unknown option: %s", option), false;
    return true;
}

static bool takes_value(const char *option)
{
    static const char *const options[] = {"-o",        "--output",  "--layout",   "--filter",
                                          "--rate",    "--streams", "--episodes", "--kind",
                                          "--window",  "--dtype",   "--max-gap",  "--compress",
                                          "--threads", "--backend", "--endpoint"};

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (!strcmp(options[i], option))
            return true;
    return false;
}

/* Moves the files to the front of argv, after the name. Returns their number, or -1 after it
 * printed an error. */
static int parse(int argc, char **argv, struct resampling *resampling)
{
    int count = 0;

    for (int i = 1; i < argc; i++) {
        bool ok = true;
        if (argv[i][0] != '-')
            argv[1 + count++] = argv[i];
        else if (!takes_value(argv[i]))
            ok = parse_switch(resampling, argv[i]);
        else if (i + 1 == argc)
            ok = (cli_fail("%s needs a value", argv[i]), false);
        else
            ok = parse_value(resampling, argv[i], argv[i + 1]), i++;
        if (!ok)
            return -1;
    }
    if (!count)
        return cli_fail("name one or more files"), -1;
    if (count > ITEMS_MAX)
        return cli_fail("more than %d files: name their folder", ITEMS_MAX), -1;
    if (!resampling->options.rate.num)
        return cli_fail("--rate is missing"), -1;
    if (!resampling->options.output && !resampling->options.dry_run)
        return cli_fail("-o is missing: name the output file"), -1;
    return count;
}

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

static int convert(struct resampling *resampling)
{
    struct trajd_convert_report report;
    struct trajd_error error;
    enum trajd_status status;

    if (!resampling->options.endpoint)
        resampling->options.endpoint = getenv("TRAJD_ENDPOINT");
    resampling->options.rules = resampling->rules;
    resampling->options.streams = resampling->streams;
    resampling->options.episodes = resampling->episodes;
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
    const int count = parse(argc, argv, &resampling);
    struct trajd_error error;
    int result;

    if (count < 0)
        return fail_usage();
    if (cli_files_find(&resampling.files, &error))
        return cli_fail("%s", error.message);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error of the write */
    result = open_inputs(&resampling, argv + 1, count);
    if (!result) {
        note_unused_rate(&resampling);
        result = convert(&resampling);
    }
    for (uint32_t i = 0; i < resampling.index_count; i++)
        trajd_index_destroy(&resampling.indexes[i]);
    return result;
}
