/* trajctl resample: files onto a regular grid. The work is daemon/rewrite; here are options,
 * progress and words. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "daemon/base/json.h"
#include "daemon/base/quantity.h"
#include "daemon/window/window_report.h"
#include "clients/cli/resample/convert.h"

enum { ITEMS_MAX = 256, BAR_WIDTH = 30, LEVEL_MAX = 9 };

struct resampling {
    struct trajd_convert_options options;
    struct trajd_convert_rule rules[ITEMS_MAX];
    const char *streams[ITEMS_MAX], *episodes[ITEMS_MAX];
    const char *layout; /* NULL: guess */
    bool json, has_bar, bar_is_drawn;
    struct cli_files files;
    struct trajd_index *indexes[ITEMS_MAX];
    uint32_t index_count;
};

static bool is_interrupted; /* set by the signal handler alone */

static void on_signal(int number)
{
    (void)number;
    __atomic_store_n(&is_interrupted, true, __ATOMIC_RELAXED);
}

/* ---- what is told while it goes on ---- */

static void clear_bar(struct resampling *resampling)
{
    if (resampling->bar_is_drawn)
        fprintf(stderr, "\r\033[K");
    resampling->bar_is_drawn = false;
}

static void on_note(void *context, const char *text)
{
    struct resampling *resampling = context;

    clear_bar(resampling);
    if (resampling->json) {
        printf("{\"event\": \"note\", \"text\": ");
        trajd_json_text(stdout, text);
        printf("}\n");
        fflush(stdout);
    } else {
        fprintf(stderr, "note: %s\n", text);
    }
}

static void json_plan(const struct trajd_convert_report *plan)
{
    printf("{\"event\": \"plan\", \"episodes\": %" PRIu64 ", \"left_out\": %" PRIu64
           ", \"cut\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.9g, \"backend\": \"%s\", \"by\": ",
           plan->episode_count, plan->episodes_left_out, plan->episodes_cut, plan->steps,
           plan->byte_count, (double)plan->duration_ns * 1e-9,
           trajd_convert_backend_name(plan->backend));
    trajd_json_text(stdout, plan->backend_text);
    printf(", \"streams\": [");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        printf("%s{\"name\": ", s ? ", " : "");
        trajd_json_text(stdout, stream->name);
        printf(", \"clock\": ");
        trajd_json_text(stdout, stream->clock);
        printf(", \"kind\": \"%s\", \"from\": \"%s\", \"to\": \"%s\", \"features\": %" PRIu64
               ", \"compressed\": %s}",
               trajd_window_kind_name(stream->kind), trajd_dtype_name(stream->from),
               trajd_dtype_name(stream->to), stream->feature_count,
               stream->is_compressed ? "true" : "false");
    }
    printf("]}\n");
    fflush(stdout);
}

static void print_plan(const struct resampling *resampling, const struct trajd_convert_report *plan)
{
    printf("%" PRIu64 " episodes, %.1f s, %" PRIu64 " steps at %.6g Hz, %.1f MB, by %s",
           plan->episode_count, (double)plan->duration_ns * 1e-9, plan->steps,
           (double)resampling->options.rate.num / (double)resampling->options.rate.den,
           (double)plan->byte_count * 1e-6, plan->backend_text);
    if (plan->episodes_cut)
        printf("; %" PRIu64 " were cut into parts", plan->episodes_cut);
    printf(plan->episodes_left_out ? "; %" PRIu64 " left out\n" : "\n", plan->episodes_left_out);
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        printf("  %-28s %-12s %-10s %s%s%s x %" PRIu64, stream->name, stream->clock,
               trajd_window_kind_name(stream->kind), trajd_dtype_name(stream->from),
               stream->to != stream->from ? " to " : "",
               stream->to != stream->from ? trajd_dtype_name(stream->to) : "",
               stream->feature_count);
        if (stream->window_ns)
            printf(", over %.6g ms", (double)stream->window_ns * 1e-6);
        printf(stream->is_compressed ? ", gzip\n" : "\n");
    }
    fflush(stdout);
}

static void on_plan(void *context, const struct trajd_convert_report *plan)
{
    struct resampling *resampling = context;

    if (resampling->json)
        json_plan(plan);
    else
        print_plan(resampling, plan);
}

static void draw_bar(struct resampling *resampling, const struct trajd_convert_progress *progress)
{
    const double share =
        progress->byte_count ? (double)progress->bytes_done / (double)progress->byte_count : 1;
    char bar[BAR_WIDTH + 1];

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3.0f%%  %" PRIu64 " of %" PRIu64 " episodes\033[K", bar, share * 100,
            progress->episodes_done, progress->episode_count);
    resampling->bar_is_drawn = true;
}

static void on_progress(void *context, const struct trajd_convert_progress *progress)
{
    static const char *const phases[] = {"planned", "running", "closing", "done"};
    struct resampling *resampling = context;

    if (resampling->json) {
        printf("{\"event\": \"progress\", \"phase\": \"%s\", \"episodes_done\": %" PRIu64
               ", \"episodes_safe\": %" PRIu64 ", \"episodes\": %" PRIu64
               ", \"bytes_done\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n",
               phases[progress->phase], progress->episodes_done, progress->episodes_safe,
               progress->episode_count, progress->bytes_done, progress->byte_count);
        fflush(stdout);
    } else if (resampling->has_bar && progress->phase == TRAJD_CONVERT_RUNNING) {
        draw_bar(resampling, progress);
    }
}

/* ---- options ---- */

static int fail_usage(void)
{
    return cli_usage("resample");
}

/* "a,b,c" into the list, in place. */
static bool split(char *text, const char **items, uint32_t *count)
{
    for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
        if (*count == ITEMS_MAX)
            return cli_fail("more than %d names", ITEMS_MAX), false;
        items[(*count)++] = item;
    }
    return true;
}

/* "STREAM=VALUE", or where `may_be_all` VALUE for all streams: a rule without wishes yet. NULL
 * after telling. */
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
        return cli_fail("%s: \"%s\" is no time above 0 (50ms, 1.5s, 200us)", option, value), false;
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
           (cli_fail("--dtype: \"%s\" is no type; there are float16, float32, float64", value),
            false);
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
    return cli_fail("--compress %s: keep, none, gzip or gzip:1 to gzip:%d", text, LEVEL_MAX), false;
}

static bool parse_backend(struct resampling *resampling, const char *text)
{
    static const enum trajd_convert_backend kinds[] = {TRAJD_CONVERT_AUTO, TRAJD_CONVERT_CPU,
                                                       TRAJD_CONVERT_CUDA, TRAJD_CONVERT_DAEMON};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(text, trajd_convert_backend_name(kinds[i])))
            return resampling->options.backend = kinds[i], true;
    return cli_fail("--backend %s: auto, cpu, cuda or daemon", text), false;
}

static bool parse_rate(struct resampling *resampling, const char *text)
{
    return trajd_parse_rate(text, &resampling->options.rate) ||
           (cli_fail("--rate: \"%s\" is no rate above 0 (20, 29.97, 30000/1001)", text), false);
}

static bool parse_threads(struct resampling *resampling, const char *text)
{
    char *end;
    const unsigned long count = strtoul(text, &end, 10);

    resampling->options.thread_count = (uint32_t)count;
    return (!*end && count >= 1 && count <= 64) || (cli_fail("--threads %s: 1 to 64", text), false);
}

/* An option with a value. */
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
        options->resume = true;
    else if (!strcmp(option, "--json"))
        resampling->json = true;
    else
        return cli_fail("no option is called %s", option), false;
    return true;
}

static bool takes_value(const char *option)
{
    static const char *const options[] = {"-o",        "--output",  "--layout",   "--filter",
                                          "--rate",    "--streams", "--episodes", "--kind",
                                          "--window",  "--dtype",   "--max-gap",  "--compress",
                                          "--threads", "--backend", "--endpoint"};

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(options[i], option))
            return true;
    return false;
}

/* Files go to the front of argv, after the name. Their number; -1: something is wrong. */
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
            ok = (cli_fail("%s: a value is missing", argv[i]), false);
        else
            ok = parse_value(resampling, argv[i], argv[i + 1]), i++;
        if (!ok)
            return -1;
    }
    if (!count)
        return cli_fail("which files?"), -1;
    if (count > ITEMS_MAX)
        return cli_fail("more than %d files: name their folder", ITEMS_MAX), -1;
    if (!resampling->options.rate.num)
        return cli_fail("--rate is missing"), -1;
    if (!resampling->options.output && !resampling->options.dry_run)
        return cli_fail("-o is missing: which file is to be written?"), -1;
    return count;
}

/* ---- the run ---- */

static int open_inputs(struct resampling *resampling, char **paths, int count)
{
    for (int i = 0; i < count; i++) {
        struct trajd_error error;
        const char *layout = resampling->layout;
        if (!layout && i > 0) /* what the first one is, the others are */
            layout = resampling->indexes[0]->layout->name;
        if (cli_files_open(&resampling->files, layout, paths[i], &resampling->indexes[i], &error))
            return cli_fail("%s: %s", paths[i], error.message);
        resampling->index_count++;
        for (uint32_t n = 0; n < resampling->indexes[i]->note_count; n++)
            on_note(resampling, resampling->indexes[i]->notes[n]);
    }
    resampling->options.indexes = (const struct trajd_index *const *)resampling->indexes;
    resampling->options.index_count = resampling->index_count;
    return CLI_OK;
}

static void print_report(const struct resampling *resampling,
                         const struct trajd_convert_report *report)
{
    if (resampling->json) {
        printf("{\"event\": \"done\", \"output\": ");
        trajd_json_text(stdout, resampling->options.output);
        printf(
            ", \"episodes_written\": %" PRIu64 ", \"episodes_resumed\": %" PRIu64
            ", \"left_out\": %" PRIu64 ", \"bytes_read\": %" PRIu64 ", \"bytes_written\": %" PRIu64
            ", \"backend\": \"%s\", \"fell_back\": %s, \"pieces\": %" PRIu64
            ", \"pieces_here\": %" PRIu64 "}\n",
            report->episodes_written, report->episodes_resumed, report->episodes_left_out,
            report->bytes_read, report->bytes_written, trajd_convert_backend_name(report->backend),
            report->fell_back ? "true" : "false", report->segments, report->segments_here);
        return;
    }
    for (uint32_t s = 0; s < report->stream_count; s++)
        if (report->streams[s].nan_steps)
            printf("%s: %" PRIu64 " steps are NaN, as their source is\n", report->streams[s].name,
                   report->streams[s].nan_steps);
    if (report->segments_here)
        printf("%" PRIu64 " of %" PRIu64
               " pieces were too large to be handed over: this CPU has made them\n",
               report->segments_here, report->segments);
    printf("%s: %" PRIu64 " episodes", resampling->options.output,
           report->episodes_written + report->episodes_resumed);
    if (report->episodes_resumed)
        printf(", %" PRIu64 " of them from before", report->episodes_resumed);
    printf("\n");
}

static int run(struct resampling *resampling)
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
    resampling->options.on_note = on_note;
    resampling->options.on_plan = on_plan;
    resampling->options.on_progress = on_progress;
    resampling->options.context = resampling;
    resampling->has_bar = isatty(STDERR_FILENO) && !resampling->json;
    status = trajd_convert_file(&resampling->options, &report, &error);
    clear_bar(resampling);
    if (!status && !resampling->options.dry_run)
        print_report(resampling, &report);
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
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of its write */
    result = open_inputs(&resampling, argv + 1, count);
    if (!result)
        result = run(&resampling);
    for (uint32_t i = 0; i < resampling.index_count; i++)
        trajd_index_destroy(&resampling.indexes[i]);
    return result;
}
