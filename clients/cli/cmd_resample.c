/* trajctl resample: reads the options, runs a conversion (clients/cli/resample), and prints its plan,
 * progress and result, as text or as lines of JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/resample/convert.h"
#include "clients/cli/cli_shard.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

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
    bool json;                /* one JSON object a line on stdout, progress too */
    struct cli_files files;
    struct trajd_index *indexes[ITEMS_MAX];
    uint32_t index_count;
    struct shard shard;
};

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

    if (trajd_convert_rule_set_kind(rule, value, &error))
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
    {"--backend", "cpu|auto|cuda|daemon", "where it is computed (cpu; auto: the same)", CLI_CHOICE,
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
     offsetof(struct resampling, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct resampling, shard), .table = cli_shard_options},
    {0}};

/* ---- what is printed ---- */

/* One JSON object a line. */
static void begin_event(struct trajd_json *json, const char *event)
{
    *json = (struct trajd_json){.out = stdout};
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "event", event);
}

static void end_event(struct trajd_json *json)
{
    trajd_json_close_object(json);
    putchar('\n');
    fflush(stdout);
}

static void print_note(void *context, const char *text)
{
    const struct resampling *resampling = context;
    struct trajd_json json;

    if (!resampling->json) {
        cli_note(NULL, text);
        return;
    }
    trajd_progress_clear();
    begin_event(&json, "note");
    trajd_json_string(&json, "text", text);
    end_event(&json);
}

static void json_plan(const struct trajd_convert_report *plan)
{
    struct trajd_json json;

    begin_event(&json, "plan");
    trajd_json_u64(&json, "episodes", plan->episode_count);
    trajd_json_u64(&json, "left_out", plan->episodes_left_out);
    trajd_json_u64(&json, "cut", plan->episodes_cut);
    trajd_json_u64(&json, "steps", plan->steps);
    trajd_json_u64(&json, "bytes", plan->byte_count);
    trajd_json_number(&json, "seconds", "%.9g", (double)plan->duration_ns * 1e-9);
    trajd_json_string(&json, "backend", trajd_convert_backend_name(plan->backend));
    trajd_json_string(&json, "by", plan->backend_text);
    trajd_json_open_array(&json, "streams");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = plan->streams[s];
        trajd_json_open_object(&json, NULL);
        trajd_json_string(&json, "name", stream->source->name);
        trajd_json_string(&json, "clock", stream->clock);
        if (stream->rates.highest_hz)
            trajd_json_number(&json, "clock_hz", "%.9g", stream->rates.highest_hz);
        trajd_json_string(&json, "rate_source", trajd_rate_source_name(stream->rates.source));
        trajd_json_string(&json, "kind", trajd_convert_kind_name(stream));
        trajd_json_string(&json, "from", trajd_dtype_name(stream->source->dtype));
        trajd_json_string(&json, "to", trajd_dtype_name(stream->to));
        trajd_json_u64(&json, "features", stream->source->feature_count);
        trajd_json_bool(&json, "compressed", stream->is_compressed);
        trajd_json_close_object(&json);
    }
    trajd_json_close_array(&json);
    end_event(&json);
}

static void text_plan(const struct resampling *resampling, const struct trajd_convert_report *plan)
{
    const struct trajd_rate rate = resampling->options.rate;

    printf("%" PRIu64 " episode%s, %.1f s, %" PRIu64 " step%s at %.6g Hz, %.1f MB, by %s",
           plan->episode_count, trajd_plural(plan->episode_count), (double)plan->duration_ns * 1e-9,
           plan->steps, trajd_plural(plan->steps), (double)rate.num / (double)rate.den,
           (double)plan->byte_count * 1e-6, plan->backend_text);
    if (plan->episodes_cut)
        printf("; %" PRIu64 " split into parts", plan->episodes_cut);
    printf(plan->episodes_left_out ? "; %" PRIu64 " left out\n" : "\n", plan->episodes_left_out);
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = plan->streams[s];
        char rates[TRAJD_RATES_TEXT_SIZE], clock[2 * TRAJD_RATES_TEXT_SIZE];
        snprintf(clock, sizeof clock, "%.80s %s", stream->clock,
                 trajd_index_rates_text(&stream->rates, rates));
        printf("  %-28s %-20s %-10s %s%s%s x %" PRIu64, stream->source->name, clock,
               trajd_convert_kind_name(stream), trajd_dtype_name(stream->source->dtype),
               stream->to != stream->source->dtype ? " to " : "",
               stream->to != stream->source->dtype ? trajd_dtype_name(stream->to) : "",
               stream->source->feature_count);
        if (stream->window_ns)
            printf(", over %.6g ms", (double)stream->window_ns * 1e-6);
        printf(stream->is_compressed ? ", gzip\n" : "\n");
    }
    fflush(stdout);
}

static void print_plan(void *context, const struct trajd_convert_report *plan)
{
    const struct resampling *resampling = context;

    if (resampling->json)
        json_plan(plan);
    else
        text_plan(resampling, plan);
}

static void json_progress(const struct trajd_convert_progress *progress)
{
    static const char *const phases[] = {"planned", "running", "closing", "done"};
    struct trajd_json json;

    begin_event(&json, "progress");
    trajd_json_string(&json, "phase", phases[progress->phase]);
    trajd_json_u64(&json, "episodes_done", progress->episodes_done);
    trajd_json_u64(&json, "episodes_safe", 0); /* of the time when runs could be resumed */
    trajd_json_u64(&json, "episodes", progress->episode_count);
    trajd_json_u64(&json, "bytes_done", progress->bytes_done);
    trajd_json_u64(&json, "bytes", progress->byte_count);
    end_event(&json);
}

static void print_progress(void *context, const struct trajd_convert_progress *progress)
{
    const struct resampling *resampling = context;

    if (resampling->json) {
        json_progress(progress);
    } else if (progress->phase == TRAJD_CONVERT_RUNNING) {
        trajd_progress_report("resample", TRAJD_PROGRESS_BYTES, progress->bytes_done,
                              progress->byte_count);
    }
}

/* Returns the path of a file of the output. */
static const char *file_of(const char *output, const struct trajd_convert_report *report,
                           uint32_t part, char *path, size_t size)
{
    return report->part_count && trajd_convert_part_path(output, part, path, size) ? path : output;
}

static void json_report(const char *output, const struct trajd_convert_report *report)
{
    struct trajd_json json;
    char path[CLI_PATH_SIZE];

    begin_event(&json, "done");
    trajd_json_string(&json, "output", file_of(output, report, 0, path, sizeof path));
    trajd_json_open_array(&json, "outputs");
    for (uint32_t part = 0; part < report->part_count || part == 0; part++)
        trajd_json_string(&json, NULL, file_of(output, report, part, path, sizeof path));
    trajd_json_close_array(&json);
    trajd_json_u64(&json, "episodes_written", report->episodes_written);
    trajd_json_u64(&json, "episodes_resumed", 0); /* as above */
    trajd_json_u64(&json, "left_out", report->episodes_left_out);
    trajd_json_u64(&json, "bytes_read", report->bytes_read);
    trajd_json_u64(&json, "bytes_written", report->bytes_written);
    trajd_json_string(&json, "backend", trajd_convert_backend_name(report->backend));
    trajd_json_bool(&json, "fell_back",
                    false); /* of the time when a backend was chosen by a rule */
    trajd_json_u64(&json, "pieces", report->segments);
    trajd_json_u64(&json, "pieces_here", report->segments_here);
    end_event(&json);
}

static void print_report(const struct resampling *resampling,
                         const struct trajd_convert_report *report)
{
    const char *output = resampling->options.output;
    char path[CLI_PATH_SIZE];

    if (resampling->json) {
        json_report(output, report);
        return;
    }
    for (uint32_t s = 0; s < report->stream_count; s++)
        if (report->streams[s]->nan_steps)
            printf("%s: not finite in %" PRIu64
                   " step%s, because the source is NaN, infinite or too large\n",
                   report->streams[s]->source->name, report->streams[s]->nan_steps,
                   trajd_plural(report->streams[s]->nan_steps));
    if (report->segments_here)
        printf("%" PRIu64 " of %" PRIu64
               " pieces were too large for the backend: this CPU resampled them\n",
               report->segments_here, report->segments);
    printf("%s", file_of(output, report, 0, path, sizeof path));
    if (report->part_count)
        printf(" to %s", file_of(output, report, report->part_count - 1, path, sizeof path));
    printf(": %" PRIu64 " episode%s\n", report->episodes_written,
           trajd_plural(report->episodes_written));
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
        if (trajd_layout_check_guesses(resampling->indexes[i]->layout, &error))
            return cli_fail_at(paths[i], &error);
        for (uint32_t n = 0; n < resampling->indexes[i]->note_count; n++)
            print_note(resampling, resampling->indexes[i]->notes[n]);
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
        print_note(resampling, note);
    }
}

/* Converts the inputs that are open. `record` NULL: they are of no shard. */
static int run(struct resampling *resampling, struct prep_record *record, uint32_t *part_count)
{
    struct trajd_convert_report report;
    struct trajd_error error;
    enum trajd_status status;

    if (!resampling->options.endpoint)
        resampling->options.endpoint = getenv("TRAJD_ENDPOINT");
    resampling->options.streams = resampling->streams.items;
    resampling->options.stream_count = resampling->streams.count;
    resampling->options.episodes = resampling->episodes.items;
    resampling->options.episode_count = resampling->episodes.count;
    status = trajd_convert_file(&resampling->options, &report, &error);
    trajd_progress_clear();
    if (!status && !resampling->options.dry_run)
        print_report(resampling, &report);
    if (!status && record) {
        record->episodes = report.episodes_written;
        record->left_out = report.episodes_left_out;
        record->cut = report.episodes_cut;
        *part_count = report.part_count;
    }
    trajd_convert_report_clear(&report);
    return status ? cli_fail("%s", error.message) : CLI_OK;
}

static void close_inputs(struct resampling *resampling)
{
    for (uint32_t i = 0; i < resampling->index_count; i++)
        trajd_index_destroy(&resampling->indexes[i]);
    resampling->index_count = 0;
}

static int resample_of_shard(void *context, const char *input, const char *output, bool force,
                             struct prep_record *record, uint32_t *part_count)
{
    struct resampling *resampling = context;
    int result;

    resampling->options.output = output;
    resampling->options.force = force;
    result = open_inputs(resampling, (char **)&input, 1);
    if (!result) {
        const struct trajd_rate rate = resampling->options.rate;
        record->rate_hz = (double)rate.num / (double)rate.den;
        record->layout = trajd_memory_or_exit(
            strdup(resampling->layout ? resampling->layout : resampling->indexes[0]->layout->name));
        result = run(resampling, record, part_count);
    }
    close_inputs(resampling);
    return result;
}

static int run_shard(struct resampling *resampling, char **inputs, int count, const char *recipe)
{
    const struct shard_work work = {.shard = resampling->shard,
                                    .folder = resampling->options.output,
                                    .recipe = recipe,
                                    .inputs = inputs,
                                    .input_count = (uint32_t)count,
                                    .make = resample_of_shard,
                                    .context = resampling};

    return shard_do(&work);
}

int cli_resample(int argc, char **argv)
{
    struct resampling resampling = {.options = {.rules = resampling.rules,
                                                .helper_path = resampling.files.helper,
                                                .cancel = &cli_is_interrupted,
                                                .on_note = print_note,
                                                .on_plan = print_plan,
                                                .on_progress = print_progress,
                                                .context = &resampling}};
    const char *recipe = shard_recipe(argc, argv);
    const int count = cli_parse(argc, argv, &resampling);
    struct trajd_error error;
    int result;

    if (count > ITEMS_MAX && !resampling.shard.count)
        cli_refuse("more than %d files: name their folder", ITEMS_MAX);
    if (!resampling.options.rate.num)
        cli_refuse("--rate is missing");
    if (!resampling.options.output && !resampling.options.dry_run)
        cli_refuse("-o is missing: name the output file");
    if (resampling.shard.count && (resampling.options.force || resampling.options.dry_run))
        cli_refuse("--shard skips what it has finished, and replaces nothing else: leave out %s",
                   resampling.options.force ? "--force" : "--dry-run");
    if (cli_files_find(&resampling.files, &error))
        return cli_fail("%s", error.message);
    cli_catch_signals();
    if (resampling.shard.count)
        return run_shard(&resampling, argv + 1, count, recipe);
    result = open_inputs(&resampling, argv + 1, count);
    if (!result) {
        note_unused_rate(&resampling);
        result = run(&resampling, NULL, NULL);
    }
    close_inputs(&resampling);
    return result;
}
