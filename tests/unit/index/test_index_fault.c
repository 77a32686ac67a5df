/* Episodes that are quarantined, files that are refused, and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"
#include "tests/support/index_files.h"

#define ALOHA_BYTES TRAJD_SOURCE_DIR "/tests/support/layouts/aloha_bytes.yaml"

struct quarantine_case {
    const char *file, *layout;
    uint32_t kept, episodes;
    const char *reason; /* in the first quarantined episode */
};

static void bad_episodes_are_quarantined_with_the_reason(void **state)
{
    static const struct quarantine_case cases[] = {
        {"missing_dataset", "robomimic", 1, 2, "demo_0: actions: missing"},
        {"other_shape", "robomimic", 2, 3,
         "demo_2: actions: its rows are f32 [7]; f64 [7], the shape of 2 of 3 episodes, is kept"},
        {"odd_quat", "robomimic", 1, 2, "obs/bad_quat: slerp needs a multiple of 4"},
        {"type_big_endian", "robomimic", 1, 2, "actions: a big-endian type"},
        {"type_compound", "robomimic", 1, 2, "actions: a compound type"},
        {"type_complex", "robomimic", 1, 2, "actions: a compound type"},
        {"type_vlen", "robomimic", 1, 2,
         "actions: a variable-length type is not supported, except"},
        {"type_vlen_string", "robomimic", 1, 2, "actions: a variable-length string type"},
        {"type_string", "robomimic", 1, 2, "actions: a string type is not supported, except"},
        {"scalar", "robomimic", 1, 2, "actions: a scalar"},
        {"null", "robomimic", 1, 2, "actions: an empty (null) dataspace"},
        {"rank_seven", "robomimic", 1, 2, "actions: its rank is above 6"},
        {"filter_scaleoffset", "robomimic", 1, 2, "actions: filter 6 (scaleoffset)"},
        {"external_storage", "robomimic", 1, 2, "actions: external storage"},
        {"external_link", "robomimic", 1, 2, "actions: an external link"},
        {"virtual", "robomimic", 1, 2, "actions: a virtual dataset"},
        {"huge_row", "robomimic", 1, 2, "actions: 1600000000 bytes must be read to check it"},
        {"raw_many", "robosuite_raw", 1, 2,
         "states: has 268435456 stamps, and there is no room for them"},
        {"dangling_link", "robomimic", 1, 2, "actions: a link that leads nowhere"},
        {"offset_beyond", "robomimic", 1, 2, "actions: 2240 bytes at offset 1099511627776"},
        {"bad_chunk", "robomimic", 1, 2, "demo_0: actions: "},
        {"many_chunks", "robomimic", 1, 2, "demo_0: actions: more than 4 million chunks"},
        {"bad_chunk_list", "robomimic", 1, 2, "demo_0: actions: libhdf5 failed"},
        {"raw_backward", "robosuite_raw", 1, 2, "states: row 7: the stamp goes back"},
        {"raw_nan", "robosuite_raw", 1, 2, "states: row 7: the stamp is NaN"},
        {"raw_infinite", "robosuite_raw", 1, 2, "states: row 7: the stamp is infinite"},
        {"raw_much_longer", "robosuite_raw", 1, 2,
         "actions: has 42 rows, its clock sim (states) has 40 stamps"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[64];
        const char *first = NULL;
        struct trajd_index *index;
        snprintf(name, sizeof name, "%s.hdf5", cases[i].file);
        index = open_named(name, cases[i].layout);
        assert_int_equal(index->episode_count, cases[i].episodes);
        assert_int_equal(index->kept_count, cases[i].kept);
        for (uint32_t k = 0; k < index->episode_count && !first; k++)
            first = index->episodes[k].quarantine;
        if (!first || !strstr(first, cases[i].reason) || strncmp(first, name, strlen(name)))
            fail_msg("%s: %s", name, first ? first : "nothing is quarantined");
        trajd_index_destroy(&index);
    }
}

static const struct trajd_array *array_of(const struct trajd_index *index, uint32_t episode,
                                          const char *stream)
{
    return &index->episodes[episode].extents[stream_of(index, stream)->array_index];
}

/* In an array that the layout requires, another shape condemns the episode; in others it takes only
 * the array. The shape that most episodes have wins, in a tie that of the first. */
static void the_most_frequent_shape_is_kept(void **state)
{
    static const char *const cams[2] = {"observations/images/cam_high",
                                        "observations/images/cam_low"};
    struct trajd_index *index = open_named("padded", ALOHA_BYTES);
    uint64_t fingerprint = index->fingerprint;
    uint32_t high = stream_of(index, cams[0])->array_index;

    (void)state;
    assert_int_equal(index->episode_count, 5);
    assert_int_equal(index->kept_count, 4);
    assert_string_equal(index->episodes[1].quarantine,
                        "episode_1.hdf5: action: its rows are f32 [13]; f32 [14], the shape of 4 "
                        "of 5 episodes, is kept");
    /* 7, 8 and twice 9: the quarantined episode has no vote */
    assert_int_equal(stream_of(index, cams[0])->feature_count, 9);
    assert_string_equal(index->episodes[0].other_shapes[high],
                        "episode_0.hdf5: observations/images/cam_high: its rows are u8 [7]; u8 "
                        "[9], the shape of 2 of 4 episodes, is kept");
    assert_int_equal(array_of(index, 0, cams[0])->storage, TRAJD_STORAGE_ABSENT);
    assert_int_equal(array_of(index, 3, cams[0])->storage, TRAJD_STORAGE_ABSENT);
    assert_int_equal(array_of(index, 2, cams[0])->shape[1], 9);
    assert_null(index->episodes[2].other_shapes[high]);
    /* twice 5 and twice 6 */
    assert_int_equal(stream_of(index, cams[1])->feature_count, 5);
    assert_int_equal(array_of(index, 0, cams[1])->shape[1], 5);
    assert_int_equal(array_of(index, 4, cams[1])->storage, TRAJD_STORAGE_ABSENT);
    assert_int_equal(index->note_count, 4);
    assert_non_null(strstr(index->notes[0], "episode_0.hdf5: observations/images/cam_high: "));
    assert_non_null(strstr(index->notes[0], "feeds that use it quarantine the episode"));
    trajd_index_destroy(&index);
    for (uint32_t children = 1; children < 5; children += 3) { /* any order of scanning */
        char path[512];
        struct trajd_index_options options;
        snprintf(path, sizeof path, "%s/padded", index_folder);
        options = options_for(path, ALOHA_BYTES);
        options.child_count = children;
        index = must_open(&options);
        assert_int_equal(index->fingerprint, fingerprint);
        trajd_index_destroy(&index);
    }
}

static void unusable_files_are_errors(void **state)
{
    static const char *const files[][3] = {
        {"truncated.hdf5", "robomimic", "truncated file"},
        {"empty.hdf5", "robomimic", "empty"},
        {"text.hdf5", "robomimic", "not readable as HDF5"},
        {"no_demos.hdf5", "robomimic", "no group matches"},
        {"only_linked_groups.hdf5", "robomimic",
         "demo_0: an external link is refused (it names another file)"},
        {"linked_data.hdf5", "robomimic",
         "no group matches /data/demo_*; /data: left out: an external link"},
        {"bad_rate.hdf5", "robomimic", "\"fast\""},
        {"user_block_chunks.hdf5", "robomimic", "user block"},
        {"good.hdf5", "robosuite_raw", "states: missing"},
    };
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const bool is_misfit =
            !strcmp(files[i][0], "no_demos.hdf5") || !strcmp(files[i][0], "good.hdf5");
        assert_int_equal(try_open(files[i][0], files[i][1], &index, &error),
                         is_misfit ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_DATA);
        assert_null(index);
        assert_int_equal(!!strstr(error.message, "layout robomimic fits"),
                         !strcmp(files[i][0], "only_linked_groups.hdf5") ||
                             !strcmp(files[i][0], "bad_rate.hdf5") ||
                             !strcmp(files[i][0], "user_block_chunks.hdf5"));
        if (!strstr(error.message, files[i][0]) || !strstr(error.message, files[i][2]))
            fail_msg("%s: %s", files[i][0], error.message);
    }
    assert_int_equal(try_open("nowhere.hdf5", "robomimic", &index, &error), TRAJD_ERR_NOT_FOUND);
    assert_int_equal(try_open("nowhere/*.hdf5", "robomimic", &index, &error), TRAJD_ERR_IO);
    assert_int_equal(try_open("*.h6", "robomimic", &index, &error), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "*.h6"));
    assert_int_equal(try_open("good.hdf5", "robomimmic", &index, &error), TRAJD_ERR_NOT_FOUND);
}

static void left_out_arrays_are_noted(void **state)
{
    struct trajd_index *index = open_named("family_vlen.hdf5", "robomimic");

    (void)state;
    assert_int_equal(index->kept_count, 1);
    assert_int_equal(index->note_count, 1);
    assert_non_null(
        strstr(index->notes[0], "demo_0/obs/language: left out: a variable-length string"));
    trajd_index_destroy(&index);
    index = open_named("states_group.hdf5", "robomimic");
    assert_int_equal(index->kept_count, 1);
    assert_non_null(strstr(index->notes[0], "demo_0/states: left out: it is not a dataset"));
    trajd_index_destroy(&index);
    /* offsets below a user block are right */
    index = open_named("user_block_contiguous.hdf5", "robomimic");
    assert_int_equal(index->kept_count, 1);
    trajd_index_destroy(&index);
    index = open_named("soft_link.hdf5", "robomimic"); /* a soft link stays in the file */
    assert_int_equal(index->kept_count, 2);
    trajd_index_destroy(&index);
}

/* An episode that cannot be reached is counted like any other that cannot be used. */
static void episodes_behind_links_are_quarantined(void **state)
{
    struct trajd_index *index = open_named("linked_groups.hdf5", "robomimic");

    (void)state;
    assert_int_equal(index->episode_count, 3);
    assert_int_equal(index->kept_count, 1);
    assert_int_equal(index->note_count, 0);
    assert_string_equal(index->episodes[1].quarantine,
                        "linked_groups.hdf5: demo_1: an external link is refused (it names another "
                        "file)");
    assert_string_equal(index->episodes[2].quarantine,
                        "linked_groups.hdf5: demo_2: a link that leads nowhere");
    trajd_index_destroy(&index);
}

static void storage_that_fails_is_fatal_and_odd_files_are_refused(void **state)
{
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    make_folder("odd", "good.hdf5");
    shell("mkfifo %s/odd/fifo.hdf5", index_folder);
    index = open_named("odd", "robomimic");
    assert_int_equal(index->file_count, 2);
    assert_non_null(strstr(index->files[0].refusal, "fifo.hdf5: not a regular file"));
    assert_int_equal(index->kept_count, 6);
    trajd_index_destroy(&index);
    /* like a file that was removed after it was listed */
    shell("ln -s /nonexistent %s/odd/gone.hdf5", index_folder);
    assert_int_equal(try_open("odd", "robomimic", &index, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "odd/gone.hdf5: cannot be read after 3 attempts"));
    assert_int_equal(error.foreign_code, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_episodes_are_quarantined_with_the_reason),
        cmocka_unit_test(the_most_frequent_shape_is_kept),
        cmocka_unit_test(unusable_files_are_errors),
        cmocka_unit_test(left_out_arrays_are_noted),
        cmocka_unit_test(episodes_behind_links_are_quarantined),
        cmocka_unit_test(storage_that_fails_is_fatal_and_odd_files_are_refused),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
