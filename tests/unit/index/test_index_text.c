/* Texts of episodes, from attributes, datasets and JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"
#include "tests/support/index_files.h"

static const char *const text_layout =
    "layout: texts\nepisodes: {files: \"*.hdf5\", groups: /data/demo_*}\nclocks: {a: {rate: "
    "20}}\nstreams: {actions: {kind: previous}}\n"
    "meta:\n"
    "  language: {attribute: /data@problem_info, json: language_instruction}\n"
    "  above:    {attribute: ../@problem_info, json: count}\n"
    "  no:       {attribute: /data@problem_info, json: no}\n"
    "  object:   {attribute: /data@problem_info, json: deep}\n"
    "  deep:     {attribute: /data@problem_info, json: deep.y}\n"
    "  bell:     {attribute: /data@problem_info, json: bell}\n"
    "  task:     {attribute: \"@task\"}\n"
    "  whole:    {attribute: \"@whole\"}\n"
    "  fraction: {attribute: \"@fraction\"}\n"
    "  list:     {attribute: \"@list\"}\n"
    "  yes:      {attribute: \"@yes\"}\n"
    "  words:    {path: words}\n"
    "  title:    {path: ../title}\n"
    "  by:       {attribute: /@by}\n"
    "  root:     {attribute: ../../../../@by}\n"
    "  broken:   {attribute: \"@json\", json: broken}\n";

static struct trajd_index *open_texts(const char *text, struct trajd_error *error)
{
    struct trajd_index *index = NULL;
    char layout[512];
    FILE *file;

    snprintf(layout, sizeof layout, "%s/texts.yaml", index_folder);
    file = fopen(layout, "w");
    fputs(text, file);
    fclose(file);
    return try_open("texts.hdf5", layout, &index, error) ? NULL : index;
}

static void texts_of_episodes(void **state)
{
    static const char *const wanted[2][TRAJD_LAYOUT_METAS_MAX] = {
        {"put \"the\" bl\xc3\xa4"
         "ck\tbowl\n\xf0\x9f\x98\x80 there\\/",
         "12", NULL, NULL, "\\u00e4", "a b", "lift", "-3", "0.1", NULL, "true",
         "a dataset of one text", "kitchen", "a robot", "a robot",
         "?12, \xf0\x9f\x98\x80 \xef\xbf\xbd \xef\xbf\xbd q ?"},
        {"put \"the\" bl\xc3\xa4"
         "ck\tbowl\n\xf0\x9f\x98\x80 there\\/",
         "12", NULL, NULL, "\\u00e4", "a b", NULL, "", NULL, "one", NULL, NULL, "kitchen",
         "a robot", "a robot", NULL},
    };
    struct trajd_index *index;
    struct trajd_error error;
    uint64_t fingerprint;

    (void)state;
    index = open_texts(text_layout, &error);
    if (!index)
        fail_msg("%s", error.message);
    assert_int_equal(index->kept_count, 2);
    assert_int_equal(index->layout->meta_count, TRAJD_LAYOUT_METAS_MAX);
    for (int e = 0; e < 2; e++)
        for (int m = 0; m < TRAJD_LAYOUT_METAS_MAX; m++) {
            const char *text = index->episodes[e].metas[m];
            if (!text != !wanted[e][m] || (text && strcmp(text, wanted[e][m])))
                fail_msg("%s of demo_%d is %s", index->layout->metas[m].name, e,
                         text ? text : "absent");
        }
    assert_int_equal(index->note_count, 2);
    assert_string_equal(index->notes[0], "texts.hdf5: demo_0/list: left out: it is not one value");
    assert_string_equal(index->notes[1],
                        "texts.hdf5: demo_1/task: left out: it is longer than 4096 bytes");
    fingerprint = index->fingerprint;
    trajd_index_destroy(&index);
    index = open_texts("layout: texts\nepisodes: {files: \"*.hdf5\", groups: "
                       "/data/demo_*}\nclocks: {a: {rate: 20}}\n"
                       "streams: {actions: {kind: previous}}\nmeta: {fraction: {attribute: "
                       "\"@fraction\", required: true}}\n",
                       &error);
    if (!index)
        fail_msg("%s", error.message);
    assert_int_equal(index->kept_count, 1);
    assert_string_equal(index->episodes[1].quarantine,
                        "texts.hdf5: demo_1: meta fraction: missing (@fraction)");
    assert_true(index->fingerprint != fingerprint);
    trajd_index_destroy(&index);
}

/* The message quotes the text without control characters. */
static void a_rate_of_control_characters(void **state)
{
    struct trajd_error error;

    (void)state;
    assert_null(open_texts("layout: texts\nepisodes: {files: \"*.hdf5\", groups: /data/demo_*}\n"
                           "clocks: {a: {rate: {attribute: /@speed}}}\n"
                           "streams: {actions: {kind: previous}}\n",
                           &error));
    if (!strstr(error.message, "\"?fast?? or? ~\""))
        fail_msg("%s", error.message);
}

static void write_words(const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/texts.words.json", index_folder);
    remove(path);
    if (!text)
        return;
    file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

/* A JSON file with texts that comes, changes or goes is a change of the dataset. */
static void json_files_are_watched(void **state)
{
    static const char *const layout =
        "layout: texts\nepisodes: {files: \"*.hdf5\", groups: /data/demo_*}\n"
        "meta: {task: {file: \"{stem}.words.json\"}}\nclocks: {a: {rate: 20}}\n"
        "streams: {actions: {kind: previous}}\n";
    static const char *const words[] = {NULL, "\"a\"", "\"bc\"", NULL};
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i + 1 < ARRAY_LEN(words); i++) {
        struct trajd_file_changes changes;
        struct trajd_index_options options;
        struct trajd_index *index;
        char path[512], place[512];
        write_words(words[i]);
        index = open_texts(layout, &error);
        if (!index)
            fail_msg("%s", error.message);
        snprintf(path, sizeof path, "%s/texts.hdf5", index_folder);
        snprintf(place, sizeof place, "%s/texts.yaml", index_folder);
        options = options_for(path, place);
        assert_int_equal(trajd_index_find_changes(&options, index, &changes, &error), TRAJD_OK);
        assert_false(trajd_file_changes_any(&changes));
        write_words(words[i + 1]);
        assert_int_equal(trajd_index_find_changes(&options, index, &changes, &error), TRAJD_OK);
        assert_int_equal(changes.added, i == 0);
        assert_int_equal(changes.changed, i == 1);
        assert_int_equal(changes.gone, i == 2);
        trajd_index_destroy(&index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_episodes),
        cmocka_unit_test(a_rate_of_control_characters),
        cmocka_unit_test(json_files_are_watched),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
