/* Conversions that are cut short, places where no output may go, and storage that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

static char output[400];

/* The notes of a run, the last progress, and an input that seems to change once the plan is
 * made. */
struct watch {
    char notes[4096];
    struct trajd_convert_progress last;
    struct trajd_index *indexes[2];
    int changing; /* which input; negative: none */
    bool *cancel; /* set with the plan; NULL: none */
};

static void on_note(void *context, const char *text)
{
    struct watch *watch = context;
    const size_t used = strlen(watch->notes);

    snprintf(watch->notes + used, sizeof watch->notes - used, "%s\n", text);
}

static void on_plan(void *context, const struct trajd_convert_report *plan)
{
    struct watch *watch = context;

    (void)plan;
    if (watch->cancel)
        __atomic_store_n(watch->cancel, true, __ATOMIC_RELAXED);
}

static void on_progress(void *context, const struct trajd_convert_progress *progress)
{
    struct watch *watch = context;

    watch->last = *progress;
    if (progress->phase == TRAJD_CONVERT_PLANNED && watch->changing >= 0)
        ((struct trajd_index_file *)watch->indexes[watch->changing]->files)->stat.mtime_ns++;
}

/* Converts inputs to `output` with one thread, so that episodes are made in order. */
static enum trajd_status convert(const char *const inputs[2], const char *layout,
                                 struct trajd_convert_options options, struct watch *watch,
                                 struct trajd_convert_report *report, struct trajd_error *error)
{
    enum trajd_status status;

    options.indexes = (const struct trajd_index *const *)watch->indexes;
    options.output = output;
    if (!options.helper_path)
        options.helper_path = TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer";
    options.thread_count = 1;
    options.on_note = on_note;
    options.on_plan = on_plan;
    options.on_progress = on_progress;
    options.context = watch;
    for (uint32_t k = 0; k < 2 && inputs[k]; k++, options.index_count++)
        watch->indexes[k] = convert_open_input(inputs[k], layout);
    status = trajd_convert_file(&options, report, error);
    for (uint32_t k = 0; k < options.index_count; k++)
        trajd_index_destroy(&watch->indexes[k]);
    trajd_arena_free(&report->arena);
    report->streams = NULL;
    return status;
}

static bool has_file(const char *ending)
{
    char path[500];

    snprintf(path, sizeof path, "%s%s", output, ending);
    return !access(path, F_OK);
}

static void name_output(const char *name)
{
    snprintf(output, sizeof output, "%s/out/%s", index_folder, name);
}

static const char *const two[] = {"first", "second"};

/* ---- cut ---- */

/* An input that changes meanwhile is found, and nothing is left. */
static void a_cut_run_leaves_nothing(void **state)
{
    static const enum trajd_convert_compress kinds[] = {TRAJD_CONVERT_NONE, TRAJD_CONVERT_KEEP,
                                                        TRAJD_CONVERT_DEFLATE};

    (void)state;
    name_output("cut.hdf5");
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const struct trajd_convert_options options = {.rate = {25, 1}, .compress = kinds[k]};
        struct watch watch = {.changing = 1};
        struct trajd_convert_report report;
        struct trajd_error error;
        assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_DATA);
        assert_non_null(strstr(error.message, "second.hdf5: changed since it was indexed"));
        assert_false(has_file("") || has_file(".partial"));
    }
}

/* A killed run leaves a partial file, of any size and content. */
static void the_next_run_replaces_what_a_killed_one_left(void **state)
{
    const struct trajd_convert_options options = {.rate = {25, 1}};
    struct trajd_convert_report report;
    struct watch watch = {.changing = -1};
    struct trajd_error error;

    (void)state;
    name_output("whole.hdf5");
    assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_OK);
    assert_null(strstr(watch.notes, "partial"));
    shell("head -c 3000000 /dev/urandom > %s/out/again.hdf5.partial", index_folder);
    name_output("again.hdf5");
    assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_OK);
    assert_non_null(strstr(watch.notes, "again.hdf5.partial of an earlier run is replaced"));
    assert_int_equal(report.episodes_written, 5);
    assert_int_equal(watch.last.phase, TRAJD_CONVERT_DONE);
    assert_int_equal(watch.last.bytes_done, watch.last.byte_count);
    assert_false(has_file(".partial"));
    shell("cd %s/out && test $(stat -c %%s again.hdf5) -eq $(stat -c %%s whole.hdf5)",
          index_folder);
}

/* Each part is a file. All get their names when the last one is finished. */
static void parts_are_named_together(void **state)
{
    static const char *const inputs[2] = {"one"};
    struct trajd_convert_options options = {.rate = {25, 1}, .force = true};
    struct watch watch = {.changing = -1};
    struct trajd_convert_report report;
    struct trajd_error error;

    (void)state;
    name_output("all.hdf5");
    assert_int_equal(convert(inputs, "one", options, &watch, &report, &error), TRAJD_OK);
    assert_int_equal(report.part_count, 3);
    assert_int_equal(watch.last.episodes_done, 3);
    assert_int_equal(watch.last.episode_count, 3);
    assert_int_equal(watch.last.bytes_done, watch.last.byte_count);
    shell("mkfifo %s/out/some_part2.hdf5.partial", index_folder);
    name_output("some.hdf5");
    assert_int_equal(convert(inputs, "one", options, &watch, &report, &error), TRAJD_ERR_ARGUMENT);
    for (int part = 0; part < 2; part++) {
        char name[64];
        snprintf(name, sizeof name, "some_part%d.hdf5", part);
        name_output(name);
        assert_false(has_file("") || has_file(".partial"));
    }
    options.force = false;
    /* a part that another run left would be taken for one of this run */
    shell("cp %s/out/all_part0.hdf5 %s/out/more_part3.hdf5", index_folder, index_folder);
    name_output("more.hdf5");
    assert_int_equal(convert(inputs, "one", options, &watch, &report, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "more_part3.hdf5 exists, but this run writes 3 parts"));
    shell("mv %s/out/more_part3.hdf5 %s/out/more.hdf5", index_folder, index_folder);
    assert_int_equal(convert(inputs, "one", options, &watch, &report, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "more.hdf5 exists, but this run writes the 3 parts"));
}

static void a_cancelled_run_leaves_nothing(void **state)
{
    bool cancel = false;
    struct trajd_convert_options options = {.rate = {25, 1}, .cancel = &cancel};
    struct watch watch = {.changing = -1, .cancel = &cancel};
    struct trajd_convert_report report;
    struct trajd_error error;

    (void)state;
    name_output("cancelled.hdf5");
    assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_CLOSED);
    assert_string_equal(error.message, "interrupted");
    assert_false(has_file("") || has_file(".partial"));
}

/* ---- places ---- */

/* A place, made by a command in the folder of outputs. */
static void places_are_checked(void **state)
{
    static const struct {
        const char *make, *name;
        bool force;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {"true", "", false, TRAJD_ERR_ARGUMENT, "is a folder: name a file"},
        {"true", "../first.hdf5", true, TRAJD_ERR_ARGUMENT, "is also an input"},
        {"ln -s ../first.hdf5 soft.hdf5", "soft.hdf5", true, TRAJD_ERR_ARGUMENT,
         "is also an input"},
        {"ln ../second.hdf5 p.hdf5.partial", "p.hdf5", true, TRAJD_ERR_ARGUMENT,
         "is an input, so it cannot be the partial file"},
        {"touch there.hdf5", "there.hdf5", false, TRAJD_ERR_ARGUMENT, "exists: --force replaces"},
        {"ln -s nowhere n.hdf5", "n.hdf5", false, TRAJD_ERR_ARGUMENT, "exists: --force replaces"},
        {"true", "no/such.hdf5", false, TRAJD_ERR_NOT_FOUND, "No such file or directory"},
        {"touch file", "file/x.hdf5", false, TRAJD_ERR_NOT_FOUND, "Not a directory"},
        {"ln -s e.hdf5 l.hdf5.partial", "l.hdf5", false, TRAJD_ERR_IO, "symbolic links"},
        {"touch h.hdf5.partial; ln h.hdf5.partial h2", "h.hdf5", false, TRAJD_ERR_ARGUMENT,
         "is not a regular file of this user with a single name"},
        {"mkfifo f.hdf5.partial", "f.hdf5", false, TRAJD_ERR_ARGUMENT, "is not a regular file"},
        {"touch there.hdf5", "there.hdf5", true, TRAJD_OK, NULL},
    };
    const struct trajd_convert_options options = {.rate = {25, 1}};
    char *last;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct trajd_convert_options changed = options;
        struct trajd_convert_report report;
        struct watch watch = {.changing = -1};
        struct trajd_error error;
        shell("cd %s/out; %s", index_folder, cases[k].make);
        name_output(cases[k].name);
        changed.force = cases[k].force;
        if (convert(two, NULL, changed, &watch, &report, &error) != cases[k].status)
            fail_msg("case %zu", k);
        if (cases[k].word && !strstr(error.message, cases[k].word))
            fail_msg("%s", error.message);
        if (cases[k].status && *cases[k].name)
            shell("cd %s/out; test -z \"$(find . -name '%s.partial' -type f -size 0 -links 1)\"",
                  index_folder, cases[k].name);
    }
    name_output("");
    last = output + strlen(output);
    memset(last, 'x', sizeof output - 1 - strlen(output));
    {
        struct trajd_convert_report report;
        struct watch watch = {.changing = -1};
        struct trajd_error error;
        assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_IO);
        assert_int_equal(error.foreign_code, ENAMETOOLONG);
        *output = '\0';
        assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_ARGUMENT);
        assert_string_equal(error.message, "name an output");
    }
}

static void two_runs_do_not_write_one_file(void **state)
{
    const struct trajd_convert_options options = {.rate = {25, 1}};
    struct watch watch = {.changing = -1};
    struct trajd_convert_report report;
    struct trajd_error error;
    char path[500];
    int fd;

    (void)state;
    name_output("held.hdf5");
    snprintf(path, sizeof path, "%s.partial", output);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_return_code(flock(fd, LOCK_EX | LOCK_NB), errno);
    assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_BUSY);
    assert_non_null(strstr(error.message, "another run is writing it"));
    assert_true(has_file(".partial"));
    close(fd);
    assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_OK);
}

/* ---- failures ---- */

static void a_file_that_is_too_large_is_removed(void **state)
{
    static const rlim_t limits[] = {1 << 10, 300 << 10, 1200 << 10};
    static const char *const inputs[2] = {"long"};
    struct rlimit before;

    (void)state;
    assert_return_code(getrlimit(RLIMIT_FSIZE, &before), errno);
    signal(SIGXFSZ, SIG_IGN);
    name_output("large.hdf5");
    for (size_t k = 0; k < 2 * ARRAY_LEN(limits); k++) {
        const struct trajd_convert_options options = {
            .rate = {20, 1},
            .compress = k < ARRAY_LEN(limits) ? TRAJD_CONVERT_NONE : TRAJD_CONVERT_DEFLATE};
        struct rlimit limit = before;
        struct trajd_convert_report report;
        struct watch watch = {.changing = -1};
        struct trajd_error error;
        enum trajd_status status;
        limit.rlim_cur = limits[k % ARRAY_LEN(limits)];
        assert_return_code(setrlimit(RLIMIT_FSIZE, &limit), errno);
        status = convert(inputs, NULL, options, &watch, &report, &error);
        assert_return_code(setrlimit(RLIMIT_FSIZE, &before), errno);
        if (k == 5) { /* compressed it fits */
            assert_int_equal(status, TRAJD_OK);
            break;
        }
        assert_int_equal(status, TRAJD_ERR_IO);
        assert_int_equal(error.foreign_code, EFBIG);
        assert_false(has_file("") || has_file(".partial"));
    }
}

/* Writes types, shapes and values of all datasets, without how they are stored. */
static void print_values(const char *output_name, const char *text)
{
    char path[300];

    snprintf(path, sizeof path, "%s/all.txt", index_folder);
    convert_print_outputs(output_name, path);
    shell("cd %s && sed -n 's/^\\(.data.*\\) max .* sum/\\1/p' all.txt >%s && rm all.txt",
          index_folder, text);
}

/* More rows and episodes than one segment and one message to the child hold. At the rate of the
 * input the values stay as they are. */
static void long_files_are_whole(void **state)
{
    static const char *const inputs[2] = {"long"};
    struct trajd_convert_options options = {.rate = {20, 1}, .force = true};
    struct watch watch = {.changing = -1};
    struct trajd_convert_report report;
    struct trajd_error error;

    (void)state;
    for (int k = 0; k < 2; k++) {
        options.compress = k ? TRAJD_CONVERT_DEFLATE : TRAJD_CONVERT_NONE;
        name_output("whole_long.hdf5");
        assert_int_equal(convert(inputs, NULL, options, &watch, &report, &error), TRAJD_OK);
        assert_int_equal(report.episodes_written, 70);
        assert_int_equal(report.rows_written, 2 * (90000 + 69 * 300));
        assert_int_equal(report.bytes_written, 20 * (90000 + 69 * 300));
        assert_int_equal(report.segments, k ? 142 : 71);
        print_values("../long.hdf5", "expected");
        print_values("whole_long.hdf5", "found");
        shell("cd %s && diff expected found && test $(wc -l <found) -eq 140", index_folder);
    }
}

static void a_helper_that_does_not_start_is_an_error(void **state)
{
    static const struct {
        const char *path;
        const char *word;
    } cases[] = {{"/nowhere/trajd-indexer", "/nowhere/trajd-indexer: cannot be started: No such"},
                 {"/bin/true", "ended with status 0: it does not start"},
                 {"/bin/false", "ended with status 1: it does not start"}};

    (void)state;
    name_output("helpless.hdf5");
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const struct trajd_convert_options options = {.rate = {25, 1},
                                                      .helper_path = cases[k].path};
        struct watch watch = {.changing = -1};
        struct trajd_convert_report report;
        struct trajd_error error;
        assert_int_equal(convert(two, NULL, options, &watch, &report, &error), TRAJD_ERR_SYSTEM);
        assert_non_null(strstr(error.message, cases[k].word));
        assert_false(has_file("") || has_file(".partial"));
    }
}

static void backends_that_do_not_exist_are_refused(void **state)
{
    static char far[5000];
    static const struct {
        enum trajd_convert_backend backend;
        const char *endpoint;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {TRAJD_CONVERT_DAEMON, "tcp://there:1", TRAJD_ERR_UNSUPPORTED, "only a daemon on this"},
        {TRAJD_CONVERT_DAEMON, "/nowhere", TRAJD_ERR_NOT_FOUND, "/nowhere"},
        {TRAJD_CONVERT_DAEMON, far, TRAJD_ERR_ARGUMENT, "directory is too long"},
        {TRAJD_CONVERT_AUTO, "/nowhere", TRAJD_OK, "the CPU"},
        {TRAJD_CONVERT_AUTO, NULL, TRAJD_OK, "the CPU"},
    };

    (void)state;
    memset(far, 'x', sizeof far - 1);
    name_output("backend.hdf5");
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const struct trajd_convert_options options = {.rate = {25, 1},
                                                      .backend = cases[k].backend,
                                                      .endpoint = cases[k].endpoint,
                                                      .force = true};
        struct watch watch = {.changing = -1};
        struct trajd_convert_report report;
        struct trajd_error error;
        assert_int_equal(convert(two, NULL, options, &watch, &report, &error), cases[k].status);
        assert_non_null(
            strstr(cases[k].status ? error.message : report.backend_text, cases[k].word));
        assert_int_equal(report.backend, TRAJD_CONVERT_CPU);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_run_leaves_nothing),
        cmocka_unit_test(the_next_run_replaces_what_a_killed_one_left),
        cmocka_unit_test(parts_are_named_together),
        cmocka_unit_test(a_cancelled_run_leaves_nothing),
        cmocka_unit_test(places_are_checked),
        cmocka_unit_test(two_runs_do_not_write_one_file),
        cmocka_unit_test(a_file_that_is_too_large_is_removed),
        cmocka_unit_test(long_files_are_whole),
        cmocka_unit_test(a_helper_that_does_not_start_is_an_error),
        cmocka_unit_test(backends_that_do_not_exist_are_refused),
    };

    if (!index_files_choose("make_convert_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
