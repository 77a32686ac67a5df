/* Whole conversions of small files. What a conversion reports and what its output holds is
 * compared, as text, with tests/golden/convert/CASE.txt. To record these texts again, name that
 * folder as the argument, and read the differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proto/array_len.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

static const char *recorded_folder; /* NULL: the texts are compared */

struct conversion_case {
    const char *name;
    const char *inputs[2];
    const char *layout; /* NULL: robomimic; else a file in the folder */
    struct trajd_convert_options options;
    const char *outputs; /* NULL: NAME.hdf5 */
};

/* ---- what is run ---- */

static const struct trajd_convert_rule mixed_rules[] = {
    {.stream = NULL, .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F32},
    {.stream = "obs/eef_pos", .kind = TRAJD_KIND_MEAN, .window_ns = 100000000},
    {.stream = "actions", .kind = TRAJD_KIND_NEAREST},
};
static const struct trajd_convert_rule nearest_rules[] = {
    {.stream = "obs/front_image", .kind = TRAJD_KIND_NEAREST}};
static const struct trajd_convert_rule short_rules[] = {
    {.stream = "pos", .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 31000000}};
static const struct trajd_convert_rule shortest_rules[] = {
    {.stream = "pos", .kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = 29000000}};
static const struct trajd_convert_rule single_rules[] = {
    {.kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F32}};
static const struct trajd_convert_rule two_rules[] = {
    {.stream = "pos", .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F32},
    {.stream = "quat", .kind = TRAJD_CONVERT_NO_KIND, .dtype = TRAJD_F16}};
static const struct trajd_convert_rule nearest_q[] = {{.stream = "q", .kind = TRAJD_KIND_NEAREST}};
static const char *const eef_streams[] = {"obs/eef_*", "actions"}, *const pos_stream[] = {"pos"};
static const char *const wanted_episodes[] = {"demo_1", "2..3"};

static const struct conversion_case cases[] = {
    {"kept", {"first"}, NULL, {.rate = {25, 2}}, NULL},
    {"joined",
     {"first", "second"},
     NULL,
     {.rate = {40, 1},
      .rules = mixed_rules,
      .rule_count = ARRAY_LEN(mixed_rules),
      .compress = TRAJD_CONVERT_DEFLATE,
      .compress_level = 7},
     NULL},
    {"chosen",
     {"assumed"},
     NULL,
     {.rate = {10, 1},
      .streams = eef_streams,
      .stream_count = ARRAY_LEN(eef_streams),
      .accepts_assumed_rates = true,
      .filter = "valid",
      .compress = TRAJD_CONVERT_NONE},
     NULL},
    {"episodes",
     {"first"},
     NULL,
     {.rate = {20, 1}, .episodes = wanted_episodes, .episode_count = ARRAY_LEN(wanted_episodes)},
     NULL},
    {"beside", {"beside"}, NULL, {.rate = {10, 1}}, NULL},
    {"beside_nearest",
     {"beside"},
     NULL,
     {.rate = {15, 1}, .rules = nearest_rules, .rule_count = ARRAY_LEN(nearest_rules)},
     NULL},
    {"beside_same", {"beside"}, NULL, {.rate = {20, 1}}, NULL},
    {"nested", {"nested"}, NULL, {.rate = {10, 1}}, NULL},
    {"deep", {"deep"}, "deep", {.rate = {10, 1}, .accepts_assumed_rates = true}, NULL},
    {"lab", {"lab"}, "lab", {.rate = {20, 1}}, NULL},
    {"lab_ntsc", {"lab"}, "lab", {.rate = {30000, 1001}}, NULL},
    /* as decimal number it has 15 digits */
    {"lab_precise", {"lab"}, "lab", {.rate = {81921, 16384}}, NULL},
    {"lab_third", {"lab"}, "lab", {.rate = {100, 3}}, NULL},
    {"lab_gaps", {"lab"}, "lab", {.rate = {20, 1}, .rules = short_rules, .rule_count = 1}, NULL},
    {"lab_left_out",
     {"lab"},
     "lab",
     {.rate = {20, 1},
      .streams = pos_stream,
      .stream_count = 1,
      .rules = shortest_rules,
      .rule_count = 1},
     NULL},
    {"two_types", {"lab"}, "lab", {.rate = {20, 1}, .rules = two_rules, .rule_count = 2}, NULL},
    {"states", {"states"}, "states", {.rate = {25, 1}}, NULL},
    {"states_single",
     {"states"},
     "states",
     {.rate = {25, 1}, .rules = single_rules, .rule_count = 1},
     NULL},
    {"whole_states", {"whole_states"}, "states", {.rate = {25, 1}}, NULL},
    {"whole_states_nearest",
     {"whole_states"},
     "states",
     {.rate = {25, 1}, .rules = nearest_q, .rule_count = 1},
     NULL},
    {"lab_pos", {"lab"}, "lab", {.rate = {50, 1}, .streams = pos_stream, .stream_count = 1}, NULL},
    {"one", {"one"}, "one", {.rate = {25, 1}}, "one_part0.hdf5 one_part1.hdf5 one_part2.hdf5"},
    {"plain", {"plain"}, "one", {.rate = {25, 1}}, NULL},
    {"dry", {"first"}, NULL, {.rate = {25, 2}, .dry_run = true}, NULL},
    {"dry_parts", {"one"}, "one", {.rate = {25, 1}, .dry_run = true}, NULL},
    /* what is refused */
    {"is_assumed", {"assumed"}, NULL, {.rate = {10, 1}}, NULL},
    {"square", {"square"}, NULL, {.rate = {10, 1}}, NULL},
    {"sometimes", {"sometimes"}, NULL, {.rate = {10, 1}}, NULL},
    {"other_axis", {"other_axis"}, NULL, {.rate = {10, 1}}, NULL},
    {"is_too_fast", {"one"}, "one", {.rate = {2000000, 1}}, NULL},
};

/* ---- reports ---- */

static void on_note(void *context, const char *text)
{
    convert_put_line(context, text);
}

static void put_report(FILE *out, const char *title, const struct trajd_convert_report *report)
{
    fprintf(out,
            "%s: %llu episodes, %llu left out, %llu cut, %u parts, %llu bytes, %llu steps of %llu "
            "ns by %s\n",
            title, (unsigned long long)report->episode_count,
            (unsigned long long)report->episodes_left_out, (unsigned long long)report->episodes_cut,
            report->part_count, (unsigned long long)report->byte_count,
            (unsigned long long)report->steps, (unsigned long long)report->duration_ns,
            report->backend_text);
    fprintf(out, "  %llu written, rows %llu to %llu, bytes %llu to %llu, %llu segments\n",
            (unsigned long long)report->episodes_written, (unsigned long long)report->rows_read,
            (unsigned long long)report->rows_written, (unsigned long long)report->bytes_read,
            (unsigned long long)report->bytes_written, (unsigned long long)report->segments);
    for (uint32_t s = 0; s < report->stream_count; s++) {
        const struct trajd_convert_stream *stream = report->streams[s];
        const struct trajd_index_stream *source = stream->source;
        const bool is_plain = source->form == TRAJD_ROWS_PLAIN;
        fprintf(out,
                "  %s of %s, kind %d, type %d to %d, %llu features, %llu bytes, window %lld ns, "
                "%llu nan%s\n",
                source->name, stream->clock, stream->kind, source->dtype, stream->to,
                (unsigned long long)source->feature_count,
                (unsigned long long)(is_plain ? source->feature_count * trajd_dtype_size(stream->to)
                                              : 0),
                (long long)stream->window_ns, (unsigned long long)stream->nan_steps,
                stream->is_compressed ? ", compressed" : "");
    }
}

static void on_plan(void *context, const struct trajd_convert_report *plan)
{
    put_report(context, "plan", plan);
}

/* How often a running conversion reports depends on the machine's speed. */
static void on_progress(void *context, const struct trajd_convert_progress *progress)
{
    if (progress->phase != TRAJD_CONVERT_RUNNING)
        fprintf(context, "phase %d: %llu of %llu episodes, %llu of %llu bytes\n", progress->phase,
                (unsigned long long)progress->episodes_done,
                (unsigned long long)progress->episode_count,
                (unsigned long long)progress->bytes_done, (unsigned long long)progress->byte_count);
}

/* ---- cases ---- */

/* The case's options with the functions that write the text. */
static struct trajd_convert_options complete(const struct trajd_convert_options *given, FILE *out,
                                             const char *output)
{
    struct trajd_convert_options options = *given;

    options.output = output;
    options.helper_path = TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer";
    options.thread_count = 2;
    options.on_note = on_note;
    options.on_plan = on_plan;
    options.on_progress = on_progress;
    options.context = out;
    return options;
}

/* Runs a case, and writes all that it yields to FOLDER/NAME.txt. */
static void run_case(const struct conversion_case *one)
{
    struct trajd_index *indexes[2] = {NULL};
    struct trajd_convert_options options;
    struct trajd_convert_report report;
    struct trajd_error error;
    char output[256], text[256];
    enum trajd_status status;
    FILE *out;

    snprintf(text, sizeof text, "%s/%s.txt", index_folder, one->name);
    snprintf(output, sizeof output, "%s/out/%s.hdf5", index_folder, one->name);
    out = fopen(text, "w");
    assert_non_null(out);
    options = complete(&one->options, out, output);
    options.indexes = (const struct trajd_index *const *)indexes;
    for (uint32_t k = 0; k < 2 && one->inputs[k]; k++, options.index_count++)
        indexes[k] = convert_open_input(one->inputs[k], one->layout);
    status = trajd_convert_file(&options, &report, &error);
    if (status)
        convert_put_line(out, error.message);
    put_report(out, "report", &report);
    fclose(out);
    trajd_convert_report_clear(&report);
    for (uint32_t k = 0; k < options.index_count; k++)
        trajd_index_destroy(&indexes[k]);
    if (!status && !options.dry_run)
        convert_print_outputs(one->outputs ? one->outputs : strrchr(output, '/') + 1, text);
}

static void conversions_are_as_recorded(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        run_case(&cases[k]);
        if (recorded_folder)
            shell("cp %s/%s.txt %s", index_folder, cases[k].name, recorded_folder);
        shell("diff -u %s/tests/golden/convert/%s.txt %s/%s.txt", TRAJD_SOURCE_DIR, cases[k].name,
              index_folder, cases[k].name);
    }
    shell("test -z \"$(ls %s/out | grep partial)\"", index_folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_are_as_recorded),
    };

    recorded_folder = argc > 1 ? argv[1] : NULL;
    if (!index_files_choose("make_convert_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
