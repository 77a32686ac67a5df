/* config.c, config_keys.c and config_print.c: defaults, every kind of bad value with its line,
 * values of the command line, paths, and that what is printed can be read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/config/config_keys.h"
#include "proto/array_len.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND INT64_C(1000000000)
#define HEAD "version: 2\n"
#define DATASETS "datasets: {lab: {path: rows.h5, layout: small}}\n"
#define FEED                                                                                       \
    "feeds:\n  train: {dataset: lab, global_batch: 8, anchor: {clock: steps}, outputs: {pos: "     \
    "{at: "                                                                                        \
    "0}}}\n"

struct fixture {
    char folder[PATH_MAX], path[PATH_MAX + 16];
    struct trajd_config *config;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char made[] = "/tmp/trajd_config_XXXXXX";

    assert_non_null(mkdtemp(made));
    assert_non_null(realpath(made, f->folder));
    snprintf(f->path, sizeof f->path, "%s/trajd.yaml", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    trajd_config_destroy(&f->config);
    unlink(f->path);
    rmdir(f->folder);
    free(f);
    return 0;
}

static enum trajd_status load(struct fixture *f, const char *text,
                              const struct trajd_config_value *values, uint32_t value_count,
                              struct trajd_error *error)
{
    FILE *file = fopen(f->path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    trajd_config_destroy(&f->config);
    return trajd_config_load(f->path, values, value_count, &f->config, error);
}

static void load_good(struct fixture *f, const char *text)
{
    struct trajd_error error;

    if (load(f, text, NULL, 0, &error))
        fail_msg("%s", error.message);
}

static void what_the_file_lacks_has_its_default(void **state)
{
    struct fixture *f = *state;
    const struct trajd_config *config;

    load_good(f, HEAD DATASETS);
    config = f->config;
    assert_null(config->runtime);
    assert_null(config->cache);
    assert_null(config->listen_tcp);
    assert_null(config->gpu_devices);
    assert_false(config->group_access);
    assert_false(config->gpu_fall_back);
    assert_int_equal(config->feed_idle_ns, 60 * SECOND);
    assert_int_equal(config->exit_idle_ns, 0);
    assert_int_equal(config->journal_idle_ns, 90 * 86400 * SECOND);
    assert_int_equal(config->cache_bytes, 1024 * MIB);
    assert_int_equal(config->rings_bytes, 1024 * MIB);
    assert_int_equal(config->reserve_bytes, 256 * MIB);
    assert_int_equal(config->gpu_rows_bytes, 4096 * MIB);
    assert_int_equal(config->gpu_rings_bytes, 512 * MIB);
    assert_int_equal(config->threads.readers, 0);
    assert_int_equal(config->threads.resample, 0);
    assert_int_equal(config->index_file_timeout_ns, 60 * SECOND);
    assert_int_equal(config->worker_timeout_ns, 10 * SECOND);
    assert_int_equal(config->max_sessions, 256);
    assert_int_equal(config->max_feeds, 16);
    assert_int_equal(config->max_credit, 16);
    assert_int_equal(config->dataset_count, 1);
    assert_int_equal(config->feed_count, 0);
    for (size_t k = 0; k < trajd_config_key_count; k++)
        if (strcmp(trajd_config_keys[k].name, "version"))
            assert_null(config->texts[k]);
}

/* Each default of the table is in its key's range, and the keys of a section stand together. */
static void the_table_is_sound(void **state)
{
    (void)state;
    for (size_t k = 0; k < trajd_config_key_count; k++) {
        const struct trajd_config_key *key = &trajd_config_keys[k];
        char name[64];
        if (key->type == KEY_COUNT || key->type == KEY_SIZE || key->type == KEY_DURATION)
            assert_in_range(key->initial, key->low, key->high);
        snprintf(name, sizeof name, "%s%s%s", key->section ? key->section : "",
                 key->section ? "." : "", key->name);
        for (size_t j = 0; j < trajd_config_key_count; j++)
            assert_int_equal(trajd_config_key_is_named(&trajd_config_keys[j], name), j == k);
        for (size_t j = k + 2; j < trajd_config_key_count; j++)
            if (key->section && trajd_config_keys[j].section &&
                strcmp(trajd_config_keys[j].section, key->section) == 0)
                assert_string_equal(trajd_config_keys[j - 1].section, key->section);
    }
}

static void bad_values_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {DATASETS, "`version: 2` is missing"},
        {"version: 3\n" DATASETS, "trajd.yaml:1: version"},
        {HEAD, "`datasets:` must name 1 to 64 datasets"},
        {HEAD "datasets: {}\n", "trajd.yaml:2: datasets: `datasets:` must name"},
        {HEAD DATASETS "memry: {}\n", "trajd.yaml:3: memry: no such key (did you mean memory?)"},
        {HEAD DATASETS "memory: 5\n", "trajd.yaml:3: memory: must be a mapping of keys"},
        {HEAD DATASETS "memory:\n  stor: 1MiB\n",
         "trajd.yaml:4: memory.stor: no such key (did you mean store?)"},
        {HEAD DATASETS "memory: {store: 1KiB}\n", "trajd.yaml:3: memory.store: 1KiB: must be "
                                                  "between 65536 and"},
        {HEAD DATASETS "memory: {store: 0%}\n", "memory.store: 0%: must be between 1% and 100%"},
        {HEAD DATASETS "memory: {store: 101%}\n", "must be between 1% and 100% of the free memory"},
        {HEAD DATASETS "memory: {store: much}\n", "trajd.yaml:3: memory.store: "},
        {HEAD DATASETS "limits: {credit: 1}\n", "trajd.yaml:3: limits.credit: "},
        {HEAD DATASETS "limits: {credit: 2.5}\n", "trajd.yaml:3: limits.credit: "},
        {HEAD DATASETS "group_access: maybe\n", "trajd.yaml:3: group_access: "},
        {HEAD DATASETS "feed_idle: 5\n", "trajd.yaml:3: feed_idle: "},
        {HEAD DATASETS "feed_idle: 1ms\n", "feed_idle: 1ms: must be between 0.1 s and 86400 s"},
        {HEAD DATASETS "runtime: [a]\n", "trajd.yaml:3: runtime: "},
        {HEAD "datasets:\n  lab: rows.h5\n", "trajd.yaml:3: datasets.lab: must be {path: "},
        {HEAD "datasets:\n  lab: {path: a}\n", "trajd.yaml:3: datasets.lab: `layout:` is missing"},
        {HEAD "datasets:\n  lab: {layout: a}\n", "trajd.yaml:3: datasets.lab: `path:` is missing"},
        {HEAD "datasets:\n  lab: {path: a, layout: b, c: d}\n", "datasets.lab.c: no such key"},
        {HEAD "datasets:\n  lab: {path: a, layout: b, color: gray}\n",
         "trajd.yaml:3: datasets.lab.color: "},
        {HEAD "datasets:\n  lab: {path: a, layout: b, quarantine: 3}\n",
         "trajd.yaml:3: datasets.lab.quarantine: must be {at_most: N}, a number of episodes"},
        {HEAD "datasets:\n  lab: {path: a, layout: b, quarantine: {at_most: 5 %}}\n",
         "trajd.yaml:3: datasets.lab.quarantine.at_most: "},
        {HEAD "datasets:\n  lab: {path: a, layout: b, quarantine: {at_mots: 5}}\n",
         "datasets.lab.quarantine.at_mots: no such key (did you mean at_most?)"},
        {HEAD "datasets:\n  lab: {path: a, layout: b, rate: 0}\n",
         "trajd.yaml:3: datasets.lab.rate: 0 is not a rate in Hz"},
        {HEAD "datasets:\n  .lab: {path: a, layout: b}\n", "does not begin with '.'"},
        {HEAD "datasets:\n  'l b': {path: a, layout: b}\n", "a name is 1 to 64 letters"},
        {HEAD DATASETS "feeds: [train]\n", "must be a mapping of at most 16 feeds (limits.feeds)"},
        {HEAD DATASETS "limits: {feeds: 1}\nfeeds: {a: {}, b: {}}\n",
         "at most 1 feed (limits.feeds)"},
        {HEAD DATASETS "feeds:\n  train: {dataset: lap, global_batch: 8, anchor: {clock: steps}, "
                       "outputs: {pos: {at: 0}}}\n",
         "trajd.yaml:4: feeds.train.dataset: there is no dataset lap (did you mean lab?)"},
        {HEAD DATASETS "tuning: nowhere.tuning\n", "trajd.yaml: tuning: "},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_error error = {0};
        assert_int_not_equal(load(f, bad[i].text, NULL, 0, &error), TRAJD_OK);
        assert_null(f->config);
        if (!strstr(error.message, bad[i].message))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.message, bad[i].message);
    }
}

static void a_missing_file_is_named(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error;

    assert_int_equal(trajd_config_load("/nowhere/trajd.yaml", NULL, 0, &f->config, &error),
                     TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/trajd.yaml"));
}

static void an_hdf5_file_is_no_configuration(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error = {0};

    assert_int_equal(load(f, "\x89HDF\r\n\x1a\n and more", NULL, 0, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "trajd.yaml: an HDF5 file"));
    assert_non_null(strstr(error.message, "trajctl init"));
}

static void values_of_the_command_line_override_the_file(void **state)
{
    static const struct trajd_config_value values[] = {
        {"memory.store=2MiB", false}, /* in place of the file's */
        {"memory.rings=3MiB", true},  /* the file has it: ignored */
        {"exit_idle=5s", true},       /* the file lacks it */
        {"limits.credit=4", false},
    };
    struct fixture *f = *state;
    struct trajd_error error;

    if (load(f, HEAD DATASETS "memory: {store: 64MiB, rings: 64MiB}\n", values, 4, &error))
        fail_msg("%s", error.message);
    assert_int_equal(f->config->cache_bytes, 2 * MIB);
    assert_int_equal(f->config->rings_bytes, 64 * MIB);
    assert_int_equal(f->config->exit_idle_ns, 5 * SECOND);
    assert_int_equal(f->config->max_credit, 4);
}

static void bad_values_of_the_command_line(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"memory.store", "command line: memory.store: must have the form KEY=VALUE"},
        {"memory.stor=1MiB", "no such key (did you mean memory.store)"},
        {"xyzzy=1", "keys are SECTION.NAME as in the file"},
        {"memory.store=1", "command line:1: memory.store: 1: must be between"},
        {"exit_idle=5", "command line:1: exit_idle: "},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct trajd_config_value value = {bad[i].text, false};
        struct trajd_error error;
        assert_int_equal(load(f, HEAD DATASETS, &value, 1, &error), TRAJD_ERR_ARGUMENT);
        if (!strstr(error.message, bad[i].message))
            fail_msg("\"%s\" lacks \"%s\"", error.message, bad[i].message);
    }
}

static void a_share_of_the_memory_is_bytes(void **state)
{
    struct fixture *f = *state;
    uint64_t half;

    load_good(f, HEAD DATASETS "memory: {store: 50%}\n");
    half = f->config->cache_bytes;
    load_good(f, HEAD DATASETS "memory: {store: 100%}\n");
    /* other processes use memory meanwhile */
    assert_in_range(f->config->cache_bytes / 8, half / 8, half / 2);
}

static void paths_are_relative_to_the_file(void **state)
{
    struct fixture *f = *state;
    char wanted[PATH_MAX + 32];

    load_good(f, HEAD "runtime: run\ncache: /var/cache/trajd\nstate: ../state\n"
                      "datasets:\n  lab: {path: rows.h5, layout: small}\n"
                      "  other: {path: /data/x.h5, layout: ./mine.yaml, quarantine: {at_most: "
                      "2}}\n");
    assert_int_equal(f->config->datasets[0].quarantine_at_most, -1);
    assert_int_equal(f->config->datasets[0].color, TRAJD_COLOR_DEPTH);
    assert_int_equal(f->config->datasets[1].quarantine_at_most, 2);
    snprintf(wanted, sizeof wanted, "%s/run", f->folder);
    assert_string_equal(f->config->runtime, wanted);
    assert_string_equal(f->config->cache, "/var/cache/trajd");
    assert_string_equal(f->config->state, "/tmp/state");
    snprintf(wanted, sizeof wanted, "%s/rows.h5", f->folder);
    assert_string_equal(f->config->datasets[0].path, wanted);
    assert_string_equal(f->config->datasets[0].layout, "small"); /* a name stays a name */
    assert_string_equal(f->config->datasets[1].path, "/data/x.h5");
    snprintf(wanted, sizeof wanted, "%s/./mine.yaml", f->folder);
    assert_string_equal(f->config->datasets[1].layout, wanted);
}

static char *printed(const struct trajd_config *config,
                     void (*print)(const struct trajd_config *config, FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    print(config, out);
    fclose(out);
    return text;
}

static void what_is_printed_reads_the_same(void **state)
{
    struct fixture *f = *state;
    char *first, *second;

    load_good(
        f, HEAD
        "runtime: run\nfeed_idle: 1.5s\nexit_idle: 2s\nmemory: {store: 64MiB}\n"
        "gpu: {devices: \"0,2\", fall_back: true}\nlimits: {credit: 4}\n"
        "datasets: {lab: {path: 'a \"b\".h5', layout: small, rate: 29.97, color: bgr, quarantine: "
        "{at_most: 7}}}\n" FEED);
    first = printed(f->config, trajd_config_print);
    load_good(f, first);
    assert_int_equal(f->config->feed_idle_ns, 1500000000);
    assert_int_equal(f->config->cache_bytes, 64 * MIB);
    assert_string_equal(f->config->gpu_devices, "0,2");
    assert_true(f->config->gpu_fall_back);
    assert_int_equal(f->config->datasets[0].quarantine_at_most, 7);
    assert_int_equal(f->config->datasets[0].color, TRAJD_COLOR_BGR);
    assert_int_equal(f->config->datasets[0].rate.num, 30000);
    assert_int_equal(f->config->datasets[0].rate.den, 1001);
    assert_int_equal(f->config->feed_count, 1);
    assert_int_equal(f->config->feeds[0]->global_batch, 8);
    second = printed(f->config, trajd_config_print);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

/* JSON is YAML: the document can be read as a configuration, too. */
static void the_json_document_reads_the_same(void **state)
{
    struct fixture *f = *state;
    char *yaml, *json, *again;

    load_good(f, HEAD "exit_idle: 2s\nthreads: {readers: 3}\n"
                      "datasets: {lab: {path: rows.h5, layout: small, rate: 50, quarantine: "
                      "{at_most: 0}}}\n" FEED);
    yaml = printed(f->config, trajd_config_print);
    json = printed(f->config, trajd_config_print_json);
    assert_non_null(strstr(json, "\"threads\":{\"readers\":3,\"resample\":0,\"decoders\":0}"));
    assert_non_null(strstr(json, "\"exit_idle\":\"2000000000ns\""));
    assert_non_null(strstr(json, "\"global_batch\":8"));
    assert_non_null(strstr(json, "\"rate\":\"50/1\""));
    load_good(f, json);
    assert_int_equal(f->config->datasets[0].quarantine_at_most, 0);
    again = printed(f->config, trajd_config_print_json);
    assert_string_equal(json, again);
    assert_int_equal(f->config->threads.readers, 3);
    free(yaml);
    free(json);
    free(again);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_file_lacks_has_its_default),
        TEST(the_table_is_sound),
        TEST(bad_values_are_refused_with_their_line),
        TEST(a_missing_file_is_named),
        TEST(an_hdf5_file_is_no_configuration),
        TEST(values_of_the_command_line_override_the_file),
        TEST(bad_values_of_the_command_line),
        TEST(a_share_of_the_memory_is_bytes),
        TEST(paths_are_relative_to_the_file),
        TEST(what_is_printed_reads_the_same),
        TEST(the_json_document_reads_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
