/* The index over files that h5py writes: episodes, streams and storage forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/layout/glob.h"
#include "tests/support/index_files.h"

#define RECORDINGS TRAJD_SOURCE_DIR "/../shared/data"

static void natural_order_is_total(void **state)
{
    (void)state;
    assert_true(trajd_natural_compare("demo_9", "demo_10") < 0);
    assert_true(trajd_natural_compare("demo_10", "demo_9") > 0);
    assert_true(trajd_natural_compare("a/b", "a.b") < 0);
    assert_true(trajd_natural_compare("x01", "x1") != 0);
    assert_true(trajd_natural_compare("x01", "x2") < 0);
    assert_true(trajd_natural_compare("x", "x1") < 0);
    assert_int_equal(trajd_natural_compare("a10b", "a10b"), 0);
    assert_true(trajd_natural_compare("18446744073709551617", "18446744073709551616") > 0);
}

static void episodes_come_in_natural_order(void **state)
{
    static const char *const ids[] = {"demo_0", "demo_1", "demo_2", "demo_9", "demo_10", "demo_14"};
    struct trajd_index *index = open_named("good.hdf5", "robomimic");

    (void)state;
    assert_int_equal(index->episode_count, 6);
    assert_int_equal(index->kept_count, 6);
    for (int i = 0; i < 6; i++) {
        const struct trajd_episode_clock *clock = &index->episodes[i].clocks[0];
        assert_string_equal(index->episodes[i].id, ids[i]);
        assert_int_equal(clock->row_count, 40 + atoi(ids[i] + 5));
        assert_int_equal(clock->rate.num, 25);
        assert_int_equal(clock->rate.den, 1);
        assert_null(clock->stamps_ns);
        assert_int_equal(index->episodes[i].origin_ns, 0);
    }
    trajd_index_destroy(&index);
}

static void filter_keys_name_their_episodes(void **state)
{
    struct trajd_index *index = open_named("good.hdf5", "robomimic");

    (void)state;
    assert_string_equal(index->episodes[0].filter_keys[0], "train");
    assert_null(index->episodes[0].filter_keys[1]);
    assert_null(index->episodes[1].filter_keys[0]);
    assert_string_equal(index->episodes[3].filter_keys[0], "valid"); /* variable-length strings */
    assert_string_equal(index->episodes[4].filter_keys[0], "train");
    trajd_index_destroy(&index);
}

static void families_become_streams(void **state)
{
    struct trajd_index *index = open_named("good.hdf5", "robomimic");

    (void)state;
    assert_int_equal(stream_of(index, "obs/robot0_eef_quat")->kind, TRAJD_KIND_SLERP_XYZW);
    assert_int_equal(stream_of(index, "obs/robot0_eef_quat")->feature_count, 4);
    assert_int_equal(stream_of(index, "obs/robot0_eef_pos")->kind, TRAJD_KIND_LINEAR);
    assert_int_equal(stream_of(index, "obs/agentview_image")->kind, TRAJD_KIND_PREVIOUS);
    assert_int_equal(stream_of(index, "obs/agentview_image")->rank, 3);
    assert_int_equal(stream_of(index, "obs/agentview_image")->feature_count, 192);
    /* an image in a family of kind linear */
    assert_int_equal(stream_of(index, "obs/camera_rgb")->kind, TRAJD_KIND_PREVIOUS);
    assert_int_equal(stream_of(index, "obs/grasped")->kind, TRAJD_KIND_PREVIOUS);
    assert_int_equal(stream_of(index, "obs/grasped")->dtype, TRAJD_BOOL);
    assert_true(stream_of(index, "obs/grasped")->optional);
    assert_int_equal(trajd_index_find_stream(index, "obs/none"), -1);
    assert_int_equal(trajd_index_find_clock(index, "actions"), 0);
    trajd_index_destroy(&index);
}

/* Compares the recorded storage forms with those that h5py wrote, and reads rows of each. */
static void storage_forms_are_recorded(void **state)
{
    struct trajd_index *index = open_named("storage.hdf5", "robomimic");
    const struct trajd_episode *episodes = index->episodes;
    uint32_t actions = stream_of(index, "actions")->array_index;
    const struct trajd_array *array = &episodes[0].extents[actions];
    struct trajd_array_reader *reader;
    float rows[40 * 4], pairs[80];
    double rewards[40];
    int fd = open(index->files[0].path, O_RDONLY);

    (void)state;
    assert_int_equal(index->kept_count, 4);
    assert_int_equal(array->storage, TRAJD_STORAGE_CHUNKED);
    assert_int_equal(array->filter_count, 3);
    assert_int_equal(array->filters[0], TRAJD_FILTER_SHUFFLE);
    assert_int_equal(array->filters[1], TRAJD_FILTER_DEFLATE);
    assert_int_equal(array->filters[2], TRAJD_FILTER_FLETCHER32);
    assert_int_equal(episodes[2].extents[actions].filters[0], TRAJD_FILTER_LZF);
    assert_int_equal(episodes[3].extents[actions].storage, TRAJD_STORAGE_CONTIGUOUS);
    assert_int_equal(stream_of(index, "obs/half")->dtype, TRAJD_F16);
    assert_int_equal(stream_of(index, "obs/flat")->rank, 0);
    assert_int_equal(trajd_array_reader_create(&reader, NULL), TRAJD_OK);
    array = &episodes[3].extents[stream_of(index, "obs/holes")->array_index];
    assert_int_equal(trajd_array_read(reader, fd, array, 0, 40, rows, NULL), TRAJD_OK);
    for (int i = 0; i < 160; i++)
        assert_true(rows[i] == (i >= 32 && i < 64 ? 1.0f : 2.5f));
    array = &episodes[3].extents[stream_of(index, "obs/compact")->array_index];
    assert_int_equal(array->storage, TRAJD_STORAGE_INLINE);
    assert_int_equal(trajd_array_read(reader, fd, array, 0, 40, pairs, NULL), TRAJD_OK);
    assert_true(pairs[79] == 79.0f);
    array = &episodes[3].extents[stream_of(index, "rewards")->array_index];
    assert_int_equal(array->storage, TRAJD_STORAGE_EMPTY);
    assert_int_equal(trajd_array_read(reader, fd, array, 0, 40, rewards, NULL), TRAJD_OK);
    assert_true(rewards[39] == 0.0);
    trajd_array_reader_destroy(&reader);
    close(fd);
    trajd_index_destroy(&index);
}

static void empty_and_single_rows(void **state)
{
    struct trajd_index *index = open_named("no_rows.hdf5", "robomimic");

    (void)state;
    assert_non_null(strstr(index->episodes[0].quarantine, "0 rows"));
    assert_null(index->episodes[1].quarantine);
    assert_int_equal(index->episodes[1].clocks[0].row_count, 1);
    trajd_index_destroy(&index);
    index = open_named("zero_width.hdf5", "robomimic");
    assert_int_equal(index->kept_count, 1);
    assert_int_equal(trajd_index_find_stream(index, "obs/left_dpos"), -1);
    trajd_index_destroy(&index);
}

static void one_file_can_be_one_episode(void **state)
{
    struct trajd_index *index = open_named("episode_*.hdf5", "aloha");

    (void)state;
    assert_int_equal(index->kept_count, 1);
    assert_string_equal(index->episodes[0].id, "episode_0.hdf5");
    assert_int_equal(index->episodes[0].clocks[0].rate.num, 50);
    assert_int_equal(stream_of(index, "observations/images/cam_high")->feature_count, 12 * 16 * 3);
    assert_int_equal(index->episodes[0]
                         .extents[stream_of(index, "observations/images/cam_high")->array_index]
                         .chunk_count,
                     40);
    trajd_index_destroy(&index);
}

static void published_recordings_are_kept(void **state)
{
    glob_t files;

    (void)state;
    if (glob(RECORDINGS "/*.hdf5", 0, NULL, &files)) {
        print_message("skipped: no recordings at " RECORDINGS "\n");
        skip();
    }
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct trajd_index_options options = options_for(files.gl_pathv[i], "robosuite_raw");
        struct trajd_index *index = must_open(&options);
        assert_int_equal(index->kept_count, index->episode_count);
        assert_true(index->episode_count >= 1);
        for (uint32_t k = 0; k < index->episode_count; k++) {
            const struct trajd_episode_clock *clock = &index->episodes[k].clocks[0];
            bool panda = strstr(files.gl_pathv[i], "panda") != NULL;
            for (int64_t row = 1; row < clock->row_count; row++) {
                int64_t interval = clock->stamps_ns[row] - clock->stamps_ns[row - 1];
                assert_true(panda ? llabs(interval - 50000000) <= 1
                                  : interval >= 9999999 && interval <= 24000001);
            }
        }
        assert_int_equal(trajd_index_find_stream(index, "left_dpos"), -1);
        trajd_index_destroy(&index);
    }
    globfree(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natural_order_is_total),
        cmocka_unit_test(episodes_come_in_natural_order),
        cmocka_unit_test(filter_keys_name_their_episodes),
        cmocka_unit_test(families_become_streams),
        cmocka_unit_test(storage_forms_are_recorded),
        cmocka_unit_test(empty_and_single_rows),
        cmocka_unit_test(one_file_can_be_one_episode),
        cmocka_unit_test(published_recordings_are_kept),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
