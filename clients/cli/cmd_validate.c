/* trajctl validate: prints every fault in files that can be found, with row numbers. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/files/examine.h"
#include "clients/cli/frames/frame_check.h"
#include "daemon/base/json.h"
#include "daemon/base/progress/progress.h"
#include "proto/plural.h"

struct validation {
    const char *layout; /* NULL: guess */
    bool json;
    struct trajd_json document; /* on stdout, with `json` */
    bool is_ignored[EXAMINE_RULE_COUNT];
    struct cli_files files;
    bool decodes;     /* all encoded frames */
    const char *path; /* the path that is being examined */
    struct examiner examiner;
    uint64_t findings;
    struct examine_finding flips; /* the first of a stream; count: over all episodes */
    uint32_t flipped_episodes;    /* 0: flips is empty */
    struct frame_check_counts frames;
    const char *idle_output; /* the file of `--idle`; NULL: none */
    struct examine_idle_rule idle;
    struct examine_limits limits;
};

static void print_finding(struct validation *validation, const struct examine_finding *finding)
{
    const char *const parts[] = {finding->file, finding->episode, finding->stream};
    const char *separator = "";

    printf("%-12s ", examine_rule_names[finding->rule]);
    /* the messages of the others name the file themselves */
    if (finding->rule > EXAMINE_LEFT_OUT) {
        for (int i = 0; i < 3; i++)
            if (parts[i]) {
                printf("%s%s", separator, parts[i]);
                separator = i ? "/" : ": ";
            }
        printf(": ");
        if (!finding->file)
            printf("in %s: ", validation->path);
    }
    printf("%s\n", finding->text);
}

static void json_finding(struct validation *validation, const struct examine_finding *finding)
{
    struct trajd_json *json = &validation->document;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "rule", examine_rule_names[finding->rule]);
    trajd_json_string(json, "path", validation->path);
    trajd_json_string(json, "file", finding->file);
    trajd_json_string(json, "episode", finding->episode);
    trajd_json_string(json, "stream", finding->stream);
    if (finding->row >= 0)
        trajd_json_i64(json, "row", finding->row);
    else
        trajd_json_null(json, "row");
    trajd_json_u64(json, "count", finding->count);
    trajd_json_string(json, "message", finding->text);
    trajd_json_close_object(json);
}

/* Prints the collected sign flips of a stream as one finding. */
static void flush_flips(struct validation *validation)
{
    struct examine_finding finding = validation->flips;
    char text[1024];

    if (!validation->flipped_episodes)
        return;
    snprintf(
        text, sizeof text,
        "%" PRIu64 " time%s a quaternion changes its sign, in %u episode%s, first in %s: %s at "
        "row %" PRId64 " (slerp takes the shorter arc)",
        finding.count, trajd_plural(finding.count), validation->flipped_episodes,
        trajd_plural(validation->flipped_episodes), finding.file, finding.episode, finding.row);
    finding.file = finding.episode = NULL;
    finding.text = text;
    validation->flipped_episodes = 0;
    validation->findings++;
    print_finding(validation, &finding);
}

/* Collects the sign flips of a stream, which may be in all episodes. */
static void add_flips(struct validation *validation, const struct examine_finding *finding)
{
    const uint64_t before = validation->flipped_episodes ? validation->flips.count : 0;

    if (!validation->flipped_episodes++)
        validation->flips = *finding;
    validation->flips.count = before + finding->count;
}

static void on_finding(void *context, const struct examine_finding *finding)
{
    struct validation *validation = context;

    if (validation->is_ignored[finding->rule])
        return;
    if (validation->flipped_episodes &&
        (!finding->stream || strcmp(finding->stream, validation->flips.stream)))
        flush_flips(validation);
    if (finding->rule == EXAMINE_SIGN_FLIPS && !validation->json) {
        add_flips(validation, finding);
        return;
    }
    validation->findings++;
    (validation->json ? json_finding : print_finding)(validation, finding);
}

static void on_frames(void *context, const struct frame_check_result *result)
{
    struct validation *validation = context;
    struct examine_finding finding =
        examine_at(validation->examiner.index, EXAMINE_FRAMES, result->episode,
                   result->stream->name, result->count);
    struct trajd_error error;
    char text[512];

    snprintf(text, sizeof text,
             "%" PRIu64 " frame%s cannot be decoded, the first is row %" PRIu64
             ": %s (`bad_rows: keep` of a feed masks such frames)",
             result->count, trajd_plural(result->count), result->first, result->reason);
    finding.row = (int64_t)result->first;
    finding.text = text;
    trajd_progress_clear();
    if (result->count)
        on_finding(validation, &finding);
    if (result->changes && examine_motion(&validation->examiner, result->episode, result->stream,
                                          result->changes, &error))
        on_finding(validation, &(struct examine_finding){EXAMINE_UNREADABLE, validation->path, NULL,
                                                         NULL, -1, 1, error.message});
}

/* Counts the frames, and decodes them if asked to. */
static int check_frames(struct validation *validation, const struct trajd_index *index)
{
    const struct frame_check_counts counts = frame_check_count(index);
    struct trajd_error error;

    validation->frames.encoded += counts.encoded;
    validation->frames.prepared += counts.prepared;
    if (validation->decodes &&
        !(validation->is_ignored[EXAMINE_FRAMES] && validation->is_ignored[EXAMINE_STUCK] &&
          validation->is_ignored[EXAMINE_LAG]) &&
        frame_check(index, on_frames, validation, &error))
        return cli_fail("%s", error.message);
    return CLI_OK;
}

/* Says which frames were examined without being decoded. */
static void print_not_decoded(const struct validation *validation)
{
    FILE *out = validation->json ? stderr : stdout;

    if (validation->is_ignored[EXAMINE_FRAMES])
        return;
    if (validation->frames.prepared)
        fprintf(out,
                "%" PRIu64 " frame%s prepared by trajctl pack --prepare: only sizes were checked\n",
                validation->frames.prepared, trajd_plural(validation->frames.prepared));
    if (validation->frames.encoded && !validation->decodes)
        fprintf(out, "%" PRIu64 " frame%s not decoded, only headers read: --decode decodes all\n",
                validation->frames.encoded, trajd_plural(validation->frames.encoded));
}

/* Writes the rows that are not idle into a new file. */
static int write_idle(const struct validation *validation, const struct trajd_index *index)
{
    const char *path = validation->idle_output;
    struct examine_idle_counts counts;
    FILE *out = fopen(path, "wx");
    struct trajd_error error;
    bool failed;

    if (!out)
        return cli_fail("%s: %s", path, strerror(errno));
    failed = examine_idle_write(index, &validation->idle, out, &counts, &error);
    if (failed)
        cli_fail("%s", error.message);
    else if ((failed = fflush(out) || ferror(out)))
        cli_fail("%s: %s", path, strerror(errno));
    if (fclose(out) && !failed)
        failed = cli_fail("%s: %s", path, strerror(errno)) != CLI_OK;
    if (failed) {
        unlink(path);
        return CLI_FAILED;
    }
    fprintf(validation->json ? stderr : stdout,
            "idle: %" PRIu64 " of %" PRIu64 " row%s, in %u of %u episode%s; %s has the others\n",
            counts.idle_rows, counts.rows, trajd_plural(counts.rows), counts.idle_episodes,
            counts.episodes, trajd_plural(counts.episodes), path);
    return CLI_OK;
}

/* Examines one path. A path that cannot be indexed is a finding, too. */
static int validate_path(struct validation *validation, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;
    int result = CLI_OK;

    validation->path = path;
    if (!cli_files_open(&validation->files, validation->layout, path, &index, &error)) {
        if (!validation->json)
            printf("%s: layout %s, %u of %u episode%s\n", path, index->layout->name,
                   index->kept_count, index->episode_count + index->refused_file_count,
                   trajd_plural(index->episode_count + index->refused_file_count));
        validation->examiner = (struct examiner){.index = index,
                                                 .limits = &validation->limits,
                                                 .report = on_finding,
                                                 .context = validation};
        if (examine_index(&validation->examiner, &error) ||
            examine_pairs(&validation->examiner, &error))
            on_finding(validation, &(struct examine_finding){EXAMINE_UNREADABLE, path, NULL, NULL,
                                                             -1, 1, error.message});
        flush_flips(validation);
        result = check_frames(validation, index);
        if (validation->idle_output)
            result |= write_idle(validation, index);
        trajd_index_destroy(&index);
        return result;
    }
    on_finding(validation,
               &(struct examine_finding){EXAMINE_REFUSED, path, NULL, NULL, -1, 1, error.message});
    return CLI_OK;
}

static void set_ignored(void *place, const struct cli_option *option, char *value)
{
    struct validation *validation = place;
    char list[512] = "";

    for (int r = 0; r < EXAMINE_RULE_COUNT; r++) {
        if (!strcmp(examine_rule_names[r], value)) {
            validation->is_ignored[r] = true;
            return;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), " %s", examine_rule_names[r]);
    }
    cli_refuse("%s %s: unknown rule; the rules are:\n%s", option->name, value, list);
}

static void set_masks(void *place, const struct cli_option *option, char *value)
{
    struct examine_limits *limits = &((struct validation *)place)->limits;
    char *comma = strchr(value, ',');

    if (!comma || comma == value || !comma[1] || strchr(comma + 1, ','))
        cli_refuse("%s %s: expected two words, like train,valid", option->name, value);
    *comma = 0;
    limits->train = value;
    limits->valid = comma + 1;
}

/* Reads a number into the double at the option's offset. */
static void set_number(void *place, const struct cli_option *option, char *value)
{
    double *number = (double *)((char *)place + option->offset);
    char *end;

    *number = strtod(value, &end);
    if (*end || end == value || !(*number >= 0))
        cli_refuse("%s %s: expected a number of at least 0", option->name, value);
}

const struct cli_option cli_validate_options[] = {
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct validation, layout)},
    {"--ignore", "RULE", "switch a rule off; may be given several times", CLI_CALL,
     .set = set_ignored},
    {"--decode", NULL, "decode all frames, and compare them with the motion of the joints",
     CLI_FLAG, offsetof(struct validation, decodes)},
    {"--idle", "FILE.json", "write the rows in which something moves into a new file", CLI_TEXT,
     offsetof(struct validation, idle_output)},
    {"--idle-streams", "NAME,...", "the streams that tell it (all that are not commands)", CLI_TEXT,
     offsetof(struct validation, idle.streams)},
    {"--idle-tolerance", "X", "the largest change of a still row (0)", CLI_CALL,
     offsetof(struct validation, idle.tolerance), .set = set_number},
    {"--idle-length", "TIME", "shorter pauses are not idle (1s)", CLI_TIME,
     offsetof(struct validation, idle.length_ns), .least = 1},
    {"--masks", "TRAIN,VALID", "how names of masks end that must not share episodes (train,valid)",
     CLI_CALL, .set = set_masks},
    {"--drift-ppm", "X", "the most by which the times of two clocks may run apart (20)", CLI_CALL,
     offsetof(struct validation, limits.drift_ppm), .set = set_number},
    {"--drift-time", "TIME", "shorter episodes are not examined for it (60s)", CLI_TIME,
     offsetof(struct validation, limits.drift_time_ns), .least = 1},
    {"--duplicate-rows", "PERCENT", "the part of near rows that makes episodes duplicates (95)",
     CLI_CALL, offsetof(struct validation, limits.duplicate_rows), .set = set_number},
    {"--duplicate-changes", "X", "how many median changes from row to row are near (3)", CLI_CALL,
     offsetof(struct validation, limits.duplicate_changes), .set = set_number},
    {"--stuck-time", "TIME", "the longest time for which frames may be equal (500ms)", CLI_TIME,
     offsetof(struct validation, limits.stuck_time_ns)},
    {"--stuck-motion", "PERCENT", "while a stream moves at that part of its mean speed (50)",
     CLI_CALL, offsetof(struct validation, limits.stuck_motion), .set = set_number},
    {"--lag-frames", "X", "the most by which a camera may lag, in intervals of frames (0.5)",
     CLI_CALL, offsetof(struct validation, limits.lag_frames), .set = set_number},
    {"--lag-correlation", "X", "the least correlation of its motion with that of a stream (0.5)",
     CLI_CALL, offsetof(struct validation, limits.lag_correlation), .set = set_number},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct validation, json)},
    {0}};

int cli_validate(int argc, char **argv)
{
    struct validation validation = {.document.out = stdout,
                                    .idle.tolerance = -1,
                                    .limits = {"train", "valid", 20, 60000000000,
                                               .duplicate_rows = 95, .duplicate_changes = 3,
                                               .stuck_time_ns = 500000000, .stuck_motion = 50,
                                               .lag_frames = 0.5, .lag_correlation = 0.5}};
    const int count = cli_parse(argc, argv, &validation);
    struct trajd_error error;
    int result = CLI_OK;

    if (!validation.idle_output &&
        (validation.idle.streams || validation.idle.length_ns || validation.idle.tolerance >= 0))
        cli_refuse("options that begin with --idle- need --idle FILE");
    if (validation.idle.tolerance < 0)
        validation.idle.tolerance = 0;
    if (!validation.idle.length_ns)
        validation.idle.length_ns = 1000000000;
    if (validation.idle_output && count > 1)
        cli_refuse("--idle describes one dataset: name one file or folder");
    if (cli_files_find(&validation.files, &error))
        return cli_fail("%s", error.message);
    if (validation.json)
        trajd_json_open_array(&validation.document, NULL);
    for (int i = 1; i <= count; i++)
        result |= validate_path(&validation, argv[i]);
    if (validation.json) {
        trajd_json_close_array(&validation.document);
        putchar('\n');
    } else {
        printf(validation.findings ? "%" PRIu64 " finding%s\n" : "no findings\n",
               validation.findings, trajd_plural(validation.findings));
    }
    print_not_decoded(&validation);
    return validation.findings || result ? CLI_FAILED : CLI_OK;
}
