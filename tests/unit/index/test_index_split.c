/* index_split.c: several children that share a large file give the same index as one child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/index/index.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"

#define SKIPPED 77
#define LARGE_MIB 9 /* larger than the limit below which a file is not cut */

static char folder[] = "/tmp/trajd_split_XXXXXX";

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
    char command[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command);
}

static enum trajd_status try_open(const char *size, const char *name, uint32_t child_count,
                                  struct trajd_index **index, struct trajd_error *error)
{
    char path[512];
    const struct trajd_index_options options = {
        .path = path,
        .layout = "robomimic",
        .layout_directory = TRAJD_SOURCE_DIR "/configs/layouts",
        .helper_path = TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer",
        .child_count = child_count,
        .file_timeout_ms = 60000};

    snprintf(path, sizeof path, "%s/%s/%s.hdf5", folder, size, name);
    return trajd_index_open(&options, index, error);
}

static struct trajd_index *must_open(const char *size, const char *name, uint32_t child_count)
{
    struct trajd_index *index;
    struct trajd_error error;

    if (try_open(size, name, child_count, &index, &error))
        fail_msg("%s/%s: %s", size, name, error.message);
    return index;
}

static void compare_keys(const struct trajd_episode *a, const struct trajd_episode *b)
{
    uint32_t i = 0;

    for (; a->filter_keys && a->filter_keys[i]; i++) {
        assert_non_null(b->filter_keys[i]);
        assert_string_equal(a->filter_keys[i], b->filter_keys[i]);
    }
    assert_true(!b->filter_keys || !b->filter_keys[i]);
}

static void compare(const struct trajd_index *a, const struct trajd_index *b)
{
    assert_true(a->fingerprint == b->fingerprint);
    assert_int_equal(a->episode_count, b->episode_count);
    assert_int_equal(a->kept_count, b->kept_count);
    assert_int_equal(a->note_count, b->note_count);
    for (uint32_t i = 0; i < a->note_count; i++)
        assert_string_equal(a->notes[i], b->notes[i]);
    for (uint32_t i = 0; i < a->episode_count; i++) {
        const struct trajd_episode *one = &a->episodes[i], *two = &b->episodes[i];
        assert_string_equal(one->id, two->id);
        assert_int_equal(!one->quarantine, !two->quarantine);
        if (one->quarantine)
            assert_string_equal(one->quarantine, two->quarantine);
        compare_keys(one, two);
    }
}

/* Both files have the same name, so that fingerprints and messages can be compared. */
static void slices_make_the_same_index(void **state)
{
    static const char *const names[] = {"good", "storage", "linked_groups", "family_vlen",
                                        "missing_dataset"};
    /* the last one makes more slices than episodes */
    static const uint32_t child_counts[] = {2, 3, 64};

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        struct trajd_index *whole, *shared;
        struct trajd_error error;
        const enum trajd_status status = try_open("plain", names[n], 1, &whole, &error);
        for (size_t c = 0; c < ARRAY_LEN(child_counts); c++) {
            struct trajd_error other;
            assert_int_equal(try_open("large", names[n], child_counts[c], &shared, &other), status);
            if (status)
                assert_string_equal(error.message, other.message);
            else
                compare(whole, shared);
            trajd_index_destroy(&shared);
        }
        trajd_index_destroy(&whole);
    }
}

static void a_refused_slice_refuses_the_file(void **state)
{
    static const char *const names[] = {"no_demos", "only_linked_groups", "text", "bad_rate"};
    struct trajd_error whole, shared;
    struct trajd_index *index;

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(names); n++) {
        const enum trajd_status status = n ? TRAJD_ERR_DATA : TRAJD_ERR_NOT_FOUND;
        assert_int_equal(try_open("plain", names[n], 1, &index, &whole), status);
        assert_int_equal(try_open("large", names[n], 4, &index, &shared), status);
        assert_string_equal(whole.message, shared.message);
    }
}

/* A large file lies beside small ones, which one child each indexes. */
static void a_folder_keeps_its_order(void **state)
{
    struct trajd_index *few, *many;

    (void)state;
    assert_int_equal(shell("cd %s && mkdir plain/all large/all && cp plain/storage.hdf5 "
                           "plain/good.hdf5 plain/all && "
                           "cp large/storage.hdf5 plain/good.hdf5 large/all",
                           folder),
                     0);
    few = must_open("plain/all", "*", 1);
    many = must_open("large/all", "*", 6);
    compare(few, many);
    assert_int_equal(many->file_count, 2);
    trajd_index_destroy(&few);
    trajd_index_destroy(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_make_the_same_index),
        cmocka_unit_test(a_refused_slice_refuses_the_file),
        cmocka_unit_test(a_folder_keeps_its_order),
    };
    char arguments[512];
    int failed;

    if (run_python("-c 'import h5py, numpy'") != 0)
        return SKIPPED;
    if (!mkdtemp(folder) || shell("mkdir %s/plain", folder))
        return 1;
    snprintf(arguments, sizeof arguments,
             TRAJD_SOURCE_DIR "/tests/tools/make_index_files.py %s/plain", folder);
    if (run_python(arguments) != 0 ||
        shell("cp -r %s/plain %s/large && truncate -s %dM %s/large/*.hdf5", folder, folder,
              LARGE_MIB, folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return shell("rm -r %s", folder) || failed;
}
