/* The index over files that h5py writes: what is kept, quarantined and refused, children that die,
 * and the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/digest.h"
#include "daemon/layout/glob.h"
#include "daemon/index/index.h"
#include "daemon/base/arena.h"
#include "daemon/index/helper.h"
#include "daemon/index/record.h"
#include "tests/support/array_list.h"

#define SKIPPED 77
#define LAYOUTS TRAJD_SOURCE_DIR "/configs/layouts"
#define RECORDINGS TRAJD_SOURCE_DIR "/../shared/data"
#define HELPER TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer"

static char folder[] = "/tmp/trajd_index_XXXXXX";

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char *format, ...)
{
    char command[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

static struct trajd_index_options options_for(const char *path, const char *layout)
{
    return (struct trajd_index_options){.path = path,
                                        .layout = layout,
                                        .layout_directory = LAYOUTS,
                                        .helper_path = HELPER,
                                        .child_count = 2,
                                        .file_timeout_ms = 600000};
}

static enum trajd_status try_open(const char *name, const char *layout, struct trajd_index **index,
                                  struct trajd_error *error)
{
    char path[512];
    struct trajd_index_options options = options_for(path, layout);

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return trajd_index_open(&options, index, error);
}

static struct trajd_index *must_open(const struct trajd_index_options *options)
{
    struct trajd_index *index;
    struct trajd_error error;

    if (trajd_index_open(options, &index, &error))
        fail_msg("%s: %s", options->path, error.message);
    return index;
}

static struct trajd_index *open_named(const char *name, const char *layout)
{
    struct trajd_index *index;
    struct trajd_error error;

    if (try_open(name, layout, &index, &error))
        fail_msg("%s: %s", name, error.message);
    return index;
}

static const struct trajd_index_stream *stream_of(const struct trajd_index *index, const char *name)
{
    int64_t number = trajd_index_find_stream(index, name);

    if (number < 0)
        fail_msg("no stream %s", name);
    return &index->streams[number];
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
    assert_int_equal(stream_of(index, "obs/camera_rgb")->kind,
                     TRAJD_KIND_PREVIOUS); /* a picture of a blending family */
    assert_int_equal(stream_of(index, "obs/grasped")->kind, TRAJD_KIND_PREVIOUS);
    assert_int_equal(stream_of(index, "obs/grasped")->dtype, TRAJD_BOOL);
    assert_true(stream_of(index, "obs/grasped")->optional);
    assert_int_equal(trajd_index_find_stream(index, "obs/none"), -1);
    assert_int_equal(trajd_index_find_clock(index, "actions"), 0);
    trajd_index_destroy(&index);
}

/* What h5py says of each storage form, and the rows as our reader reads them. */
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

static void unequal_lengths_stand_on_regular_clocks(void **state)
{
    struct trajd_index *index = open_named("unequal.hdf5", "robomimic");
    const struct trajd_episode *episode = &index->episodes[0];

    (void)state;
    assert_int_equal(episode->clocks[0].row_count, 40); /* as `rows: actions` says */
    assert_int_equal(episode->clocks[0].rate.num, 20);  /* the default */
    assert_int_equal(episode->extents[stream_of(index, "obs/longer")->array_index].shape[0], 41);
    assert_int_equal(episode->extents[stream_of(index, "obs/shorter")->array_index].shape[0], 35);
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

struct verdict {
    const char *file, *layout;
    uint32_t kept, episodes;
    const char *reason; /* in the first quarantine */
};

static void bad_episodes_are_quarantined_with_the_reason(void **state)
{
    static const struct verdict verdicts[] = {
        {"missing_dataset", "robomimic", 1, 2, "demo_0: actions: missing"},
        {"other_shape", "robomimic", 1, 3,
         "demo_1: obs/robot0_eef_pos: its rows have another shape"},
        {"odd_quat", "robomimic", 1, 2, "obs/bad_quat: slerp needs a multiple of 4"},
        {"type_big_endian", "robomimic", 1, 2, "actions: a big-endian type"},
        {"type_compound", "robomimic", 1, 2, "actions: a compound type"},
        {"type_complex", "robomimic", 1, 2, "actions: a compound type"},
        {"type_vlen", "robomimic", 1, 2, "actions: a variable-length type"},
        {"type_vlen_string", "robomimic", 1, 2, "actions: a variable-length string type"},
        {"type_string", "robomimic", 1, 2, "actions: a string type"},
        {"type_enum", "robomimic", 1, 2, "actions: an enum other than bool"},
        {"scalar", "robomimic", 1, 2, "actions: a scalar"},
        {"null", "robomimic", 1, 2, "actions: an empty (null) dataspace"},
        {"rank_seven", "robomimic", 1, 2, "actions: its rank is above 6"},
        {"filter_scaleoffset", "robomimic", 1, 2, "actions: filter 6 (scaleoffset)"},
        {"external_storage", "robomimic", 1, 2, "actions: external storage"},
        {"external_link", "robomimic", 1, 2, "actions: an external link"},
        {"virtual", "robomimic", 1, 2, "actions: a virtual dataset"},
        {"huge_row", "robomimic", 1, 2,
         "actions: 1600000000 bytes must be read to check it"},
        {"raw_many", "robosuite_raw", 1, 2,
         "states: has 268435456 stamps, and there is no room for them"},
        {"dangling_link", "robomimic", 1, 2, "actions: cannot be opened"},
        {"offset_beyond", "robomimic", 1, 2, "actions: 2240 bytes at offset 1099511627776"},
        {"bad_chunk", "robomimic", 1, 2, "demo_0: actions: "},
        {"raw_backward", "robosuite_raw", 1, 2, "states: row 7: the stamp goes back"},
        {"raw_nan", "robosuite_raw", 1, 2, "states: row 7: the stamp is NaN"},
        {"raw_infinite", "robosuite_raw", 1, 2, "states: row 7: the stamp is infinite"},
        {"raw_much_longer", "robosuite_raw", 1, 2,
         "actions: has 42 rows, its clock sim (states) has 40 stamps"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        char name[64];
        const char *first = NULL;
        struct trajd_index *index;
        snprintf(name, sizeof name, "%s.hdf5", verdicts[i].file);
        index = open_named(name, verdicts[i].layout);
        assert_int_equal(index->episode_count, verdicts[i].episodes);
        assert_int_equal(index->kept_count, verdicts[i].kept);
        for (uint32_t k = 0; k < index->episode_count && !first; k++)
            first = index->episodes[k].quarantine;
        if (!first || !strstr(first, verdicts[i].reason) || strncmp(first, name, strlen(name)))
            fail_msg("%s: %s", name, first ? first : "nothing is quarantined");
        trajd_index_destroy(&index);
    }
}

static void what_cannot_be_used_at_all_is_an_error(void **state)
{
    static const char *const files[][3] = {
        {"truncated.hdf5", "robomimic", "truncated file"},
        {"empty.hdf5", "robomimic", "empty"},
        {"text.hdf5", "robomimic", "not readable as HDF5"},
        {"no_demos.hdf5", "robomimic", "no group matches"},
        {"only_linked_groups.hdf5", "robomimic",
         "no group matches /data/demo_*; data/demo_0: left out: an external link"},
        {"bad_rate.hdf5", "robomimic", "\"fast\""},
        {"user_block_chunks.hdf5", "robomimic", "user block"},
        {"good.hdf5", "robosuite_raw", "states: missing"},
    };
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(try_open(files[i][0], files[i][1], &index, &error), TRAJD_ERR_DATA);
        assert_null(index);
        if (!strstr(error.message, files[i][0]) || !strstr(error.message, files[i][2]))
            fail_msg("%s: %s", files[i][0], error.message);
    }
    assert_int_equal(try_open("nowhere.hdf5", "robomimic", &index, &error), TRAJD_ERR_NOT_FOUND);
    assert_int_equal(try_open("nowhere/*.hdf5", "robomimic", &index, &error), TRAJD_ERR_IO);
    assert_int_equal(try_open("*.h6", "robomimic", &index, &error), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "*.h6"));
    assert_int_equal(try_open("good.hdf5", "robomimmic", &index, &error), TRAJD_ERR_NOT_FOUND);
}

static void left_out_datasets_are_noted(void **state)
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
    assert_non_null(strstr(index->notes[0], "demo_0/states: left out: it is no dataset"));
    trajd_index_destroy(&index);
    index = open_named("linked_groups.hdf5", "robomimic"); /* episodes that would be missed */
    assert_int_equal(index->episode_count, 1);
    assert_int_equal(index->note_count, 2);
    assert_non_null(strstr(index->notes[0], "data/demo_1: left out: an external link is refused"));
    assert_non_null(strstr(index->notes[1], "data/demo_2: left out: a link that leads nowhere"));
    trajd_index_destroy(&index);
    /* offsets below a user block are right */
    index = open_named("user_block_contiguous.hdf5", "robomimic");
    assert_int_equal(index->kept_count, 1);
    trajd_index_destroy(&index);
    index = open_named("soft_link.hdf5", "robomimic"); /* stays in the file */
    assert_int_equal(index->kept_count, 2);
    trajd_index_destroy(&index);
}

static void stamps_begin_at_the_origin(void **state)
{
    struct trajd_index *index = open_named("raw_even.hdf5", "robosuite_raw");
    const struct trajd_episode_clock *clock = &index->episodes[0].clocks[0];

    (void)state;
    assert_int_equal(clock->row_count, 40);
    assert_null(clock->kept_rows);
    for (int64_t i = 0; i < 40; i++)
        assert_int_equal(clock->stamps_ns[i], i * 50000000);
    trajd_index_destroy(&index);
    index = open_named("raw_repeats.hdf5", "robosuite_raw");
    clock = &index->episodes[0].clocks[0];
    assert_int_equal(clock->row_count, 39);
    assert_int_equal(clock->dropped_rows, 1);
    assert_int_equal(clock->kept_rows[6], 6);
    assert_int_equal(clock->kept_rows[7], 8);
    assert_int_equal(clock->stamps_ns[7], 400000000);
    trajd_index_destroy(&index);
    index = open_named("raw_longer.hdf5", "robosuite_raw"); /* T+1 actions: the first T */
    assert_int_equal(index->kept_count, 2);
    assert_int_equal(index->trimmed_row_count, 1);
    assert_int_equal(index->episodes[0].extents[stream_of(index, "actions")->array_index].shape[0],
                     40);
    trajd_index_destroy(&index);
}

/* Columns 0:6 and 7:8 of q; others may be there. */
static void write_lab_layout(char layout[512], const char *offset)
{
    static const char text[] =
        "layout: lab\nepisodes: {files: \"*.hdf5\", groups: /ep_*}\nclocks:\n"
        "  arm: {path: t/arm, unit: ns}\n"
        "  wrist: {path: t/wrist, unit: us, latency: 30us}\n"
        "  force: {rate: 1000, start: {path: t/force0, unit: ns}, offset: %s}\n"
        "streams:\n  q: {clock: arm, kind: linear, columns: \"0:6\"}\n"
        "  grip: {path: q, clock: arm, kind: previous, columns: \"7:8\"}\n"
        "  rgb: {clock: wrist, kind: previous, optional: true}\n"
        "  wrench: {clock: force, kind: mean, optional: true}\n";
    FILE *file;

    snprintf(layout, 512, "%s/lab.yaml", folder);
    file = fopen(layout, "w");
    assert_true(file && fprintf(file, text, offset) > 0 && !fclose(file));
}

/* Rows lie equally far apart in all episodes: where columns of a dataset are taken, its other
 * columns count, too. */
static void columns_of_datasets_of_other_widths(void **state)
{
    char layout[512];
    struct trajd_index *index;

    (void)state;
    write_lab_layout(layout, "1us");
    index = open_named("wide_columns.hdf5", layout);
    assert_int_equal(index->kept_count, 2);
    assert_non_null(
        strstr(index->episodes[2].quarantine, "ep_2: q: has 8 columns, in earlier episodes 9"));
    assert_non_null(
        strstr(index->episodes[3].quarantine, "ep_3: q: has 12 columns, in earlier episodes 9"));
    trajd_index_destroy(&index);
}

static void clocks_share_one_origin(void **state)
{
    char layout[512];
    struct trajd_index *index;
    const struct trajd_episode *episode;

    (void)state;
    write_lab_layout(layout, "1us");
    index = open_named("lab.hdf5", layout);
    episode = &index->episodes[0];
    assert_null(episode->quarantine);
    /* wrist: ...010 us - 30 us */
    assert_int_equal(episode->origin_ns, INT64_C(1699999999999980000));
    assert_int_equal(episode->clocks[0].stamps_ns[0], 20000);
    assert_int_equal(episode->clocks[0].stamps_ns[1], 2020000);
    assert_int_equal(episode->clocks[1].stamps_ns[0], 0);
    assert_int_equal(episode->clocks[1].stamps_ns[7], 7 * 33333000);
    assert_int_equal(episode->clocks[2].start_ns, 25000);
    assert_int_equal(episode->clocks[2].row_count, 100);
    assert_int_equal(stream_of(index, "grip")->first_column, 7);
    assert_int_equal(stream_of(index, "grip")->feature_count, 1);
    assert_int_equal(stream_of(index, "grip")->array_index, stream_of(index, "q")->array_index);
    assert_non_null(strstr(index->episodes[1].quarantine, "t/arm: all 40 stamps are equal"));
    trajd_index_destroy(&index);
}

/* Times of an episode can be added and doubled: a clock that stands far from the others is no clock
 * of that recording. */
static void clocks_that_lie_far_apart(void **state)
{
    char layout[512];
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    write_lab_layout(layout, "2300000000s");
    index = open_named("lab.hdf5", layout);
    assert_null(index->episodes[0].quarantine);
    trajd_index_destroy(&index);
    write_lab_layout(layout, "2310000000s");
    assert_int_not_equal(try_open("lab.hdf5", layout, &index, &error), TRAJD_OK);
    assert_non_null(strstr(error.message, "clock force: it reaches more than 73 years"));
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

    snprintf(layout, sizeof layout, "%s/texts.yaml", folder);
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
         "12", NULL, NULL, "\\u00e4", "a b", "lift", "-3", "0.1", NULL, NULL,
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
    assert_int_equal(index->note_count, 3);
    assert_string_equal(index->notes[0], "texts.hdf5: demo_0/list: left out: it is not one value");
    assert_string_equal(index->notes[1],
                        "texts.hdf5: demo_0/yes: left out: it is neither a text nor a number");
    assert_string_equal(index->notes[2],
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

/* Copies a file into a fresh folder below, its mtime in the past, so that the cache may keep it. */
static void make_folder(const char *name, const char *files)
{
    shell("mkdir %s/%s && cd %s && cp %s %s/ && touch -d '1 hour ago' %s/*", folder, name, folder,
          files, name, name);
}

static void the_fingerprint_is_of_the_content(void **state)
{
    struct trajd_index *one, *two;

    (void)state;
    make_folder("print_a", "good.hdf5 storage.hdf5");
    shell("cp -r %s/print_a %s/print_b", folder, folder);
    one = open_named("print_a", "robomimic");
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint == two->fingerprint);
    trajd_index_destroy(&two);
    shell("mv %s/print_b/storage.hdf5 %s/print_b/another.hdf5", folder, folder);
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint != two->fingerprint);
    trajd_index_destroy(&two);
    shell("mv %s/print_b/another.hdf5 %s/print_b/storage.hdf5", folder, folder);
    {
        const struct trajd_episode *episode = &one->episodes[0];
        uint64_t offset = episode->extents[stream_of(one, "actions")->array_index].offset;
        char path[512];
        int fd;
        snprintf(path, sizeof path, "%s/print_b/good.hdf5", folder);
        fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, "\1\2\3\4", 4, (off_t)offset),
                         4); /* the first action of the first episode */
        close(fd);
    }
    two = open_named("print_b", "robomimic");
    assert_true(one->fingerprint != two->fingerprint);
    assert_true(one->episodes[0].content_digest != two->episodes[0].content_digest);
    assert_true(one->episodes[1].content_digest == two->episodes[1].content_digest);
    trajd_index_destroy(&two);
    trajd_index_destroy(&one);
}

static void the_cache_gives_the_same_index(void **state)
{
    char path[512], cache[512];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    struct trajd_index *first, *second;

    (void)state;
    make_folder("cached", "raw_*.hdf5");
    shell("mkdir %s/cache", folder);
    snprintf(path, sizeof path, "%s/cached", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    options.cache_directory = cache;
    first = must_open(&options);
    assert_int_equal(first->cached_file_count, 0);
    options.helper_path = "/nonexistent"; /* nothing is left to be indexed */
    second = must_open(&options);
    assert_int_equal(second->cached_file_count, second->file_count);
    assert_true(first->fingerprint == second->fingerprint);
    assert_int_equal(first->kept_count, second->kept_count);
    for (uint32_t i = 0; i < first->episode_count; i++) {
        const struct trajd_episode *a = &first->episodes[i], *b = &second->episodes[i];
        assert_int_equal(!a->quarantine, !b->quarantine);
        if (a->quarantine) {
            assert_string_equal(a->quarantine, b->quarantine);
            continue;
        }
        assert_int_equal(a->clocks[0].row_count, b->clocks[0].row_count);
        assert_memory_equal(a->clocks[0].stamps_ns, b->clocks[0].stamps_ns,
                            (size_t)a->clocks[0].row_count * 8);
    }
    trajd_index_destroy(&first);
    trajd_index_destroy(&second);
}

/* By whatever kind of link, in whatever folder; the name that comes first counts, and equal files
 * that are two stay two. */
static void files_of_several_names_are_taken_once(void **state)
{
    char path[512];
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_file_changes file_changes;
    struct trajd_index *index, *plain;
    struct trajd_error error;

    (void)state;
    snprintf(path, sizeof path, "%s/twins/*/*.hdf5", folder);
    shell(
        "mkdir -p %s/twins/b && cd %s/twins && cp ../good.hdf5 b/2.hdf5 && cp -p b/2.hdf5 b/3.hdf5",
        folder, folder);
    plain = must_open(&options);
    assert_int_equal(plain->kept_count, 12);
    assert_int_equal(plain->link_count + plain->note_count, 0);
    shell("cd %s/twins/b && ln -s 2.hdf5 10.hdf5 && ln 3.hdf5 4.hdf5 && ln -s 10.hdf5 11.hdf5 && "
          "ln -s b ../c",
          folder);
    assert_int_equal(trajd_index_find_changes(&options, plain, &file_changes, &error), TRAJD_OK);
    /* but for the time that a hard link is made, which is not looked at */
    assert_false(trajd_file_changes_any(&file_changes));
    index = must_open(&options);
    assert_int_equal(index->file_count, 2);
    assert_true(index->fingerprint == plain->fingerprint);
    assert_int_equal(index->link_count, 8);
    assert_int_equal(index->note_count, 8);
    assert_string_equal(index->notes[0], "b/4.hdf5: left out: it is b/3.hdf5 by another name");
    assert_string_equal(index->notes[1], "b/10.hdf5: left out: it is b/2.hdf5 by another name");
    assert_string_equal(index->notes[2], "b/11.hdf5: left out: it is b/2.hdf5 by another name");
    assert_string_equal(index->notes[3], "c/2.hdf5: left out: it is b/2.hdf5 by another name");
    assert_int_equal(trajd_index_find_changes(&options, index, &file_changes, &error), TRAJD_OK);
    assert_false(trajd_file_changes_any(&file_changes));
    trajd_index_destroy(&index);
    shell("rm %s/twins/b/3.hdf5", folder); /* its other name counts from now on */
    index = must_open(&options);
    assert_int_equal(index->file_count, 2);
    assert_string_equal(index->files[1].relative_path, "b/4.hdf5");
    assert_int_equal(trajd_index_find_changes(&options, plain, &file_changes, &error), TRAJD_OK);
    assert_int_equal(file_changes.added, 1);
    assert_int_equal(file_changes.gone, 1);
    trajd_index_destroy(&index);
    trajd_index_destroy(&plain);
}

static void changed_files_and_damaged_caches_are_indexed_anew(void **state)
{
    char path[512], cache[512];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    struct trajd_index *index;

    (void)state;
    snprintf(path, sizeof path, "%s/cached", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    options.cache_directory = cache;
    shell("touch %s/cached/raw_even.hdf5", folder);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    index = must_open(&options); /* its mtime is too young to be kept */
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    shell("printf x | dd of=$(ls %s/*.index) bs=1 seek=3000 conv=notrunc status=none", cache);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, 0);
    trajd_index_destroy(&index);
    index = must_open(&options); /* written anew */
    assert_int_equal(index->cached_file_count, index->file_count - 1);
    trajd_index_destroy(&index);
    shell("truncate -s 100 %s/*.index", cache);
    index = must_open(&options);
    assert_int_equal(index->cached_file_count, 0);
    trajd_index_destroy(&index);
}

static struct trajd_file_changes look_again(const struct trajd_index_options *options,
                                            const struct trajd_index *index)
{
    struct trajd_file_changes file_changes;
    struct trajd_error error;

    if (trajd_index_find_changes(options, index, &file_changes, &error))
        fail_msg("%s", error.message);
    return file_changes;
}

static void what_has_become_of_the_files_is_counted(void **state)
{
    char path[512];
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_file_changes file_changes;
    struct trajd_error error;
    struct trajd_index *index;

    (void)state;
    make_folder("news", "good.hdf5 storage.hdf5 zero_width.hdf5");
    snprintf(path, sizeof path, "%s/news", folder);
    index = must_open(&options);
    file_changes = look_again(&options, index);
    assert_false(trajd_file_changes_any(&file_changes));
    shell("cp %s/good.hdf5 %s/news/a.hdf5; cp %s/good.hdf5 %s/news/z.hdf5", folder, folder, folder,
          folder);
    shell("touch -d @5 %s/news/storage.hdf5; rm %s/news/zero_width.hdf5", folder, folder);
    file_changes = look_again(&options, index);
    assert_true(file_changes.added == 2 && file_changes.gone == 1 && file_changes.changed == 1 &&
                !file_changes.layout_changed);
    options.layout = "demo";
    assert_true(look_again(&options, index).layout_changed);
    shell("rm %s/news/*.hdf5", folder);
    assert_int_equal(trajd_index_find_changes(&options, index, &file_changes, &error),
                     TRAJD_ERR_NOT_FOUND);
    trajd_index_destroy(&index);
}

/* A cache whose checksum is right and whose content is not: the record decoder's turn. */
static void forged_caches_are_indexed_anew(void **state)
{
    char path[512], cache[512], command[1200];
    struct trajd_index_options options = options_for(path, "robosuite_raw");
    FILE *found;
    char file[512];
    static uint8_t bytes[1 << 20];
    size_t length;

    (void)state;
    snprintf(path, sizeof path, "%s/cached", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    options.cache_directory = cache;
    snprintf(command, sizeof command, "ls %s/*.index", cache);
    for (int round = 0; round < 20; round++) {
        struct trajd_index *index = must_open(&options);
        uint64_t digest;
        FILE *handle;
        assert_true(index->kept_count >= 7);
        trajd_index_destroy(&index);
        found = popen(command, "r");
        assert_true(found && fgets(file, sizeof file, found));
        pclose(found);
        file[strcspn(file, "\n")] = '\0';
        handle = fopen(file, "r+");
        length = fread(bytes, 1, sizeof bytes, handle);
        assert_true(length > 1000);
        bytes[32 + (size_t)(round * 7919) % (length - 32)] ^= (uint8_t)(1 << round % 8);
        digest = trajd_digest_of(bytes + 32, length - 32);
        memcpy(bytes + 24, &digest, 8);
        rewind(handle);
        assert_int_equal(fwrite(bytes, 1, length, handle), length);
        fclose(handle);
    }
    shell("rm %s/*.index", cache);
}

/* Kills or stops the child that has `slow.hdf5` open. */
struct assassin {
    int signal;
    int times;         /* 0: as often as there is one */
    int oom_score_adj; /* of the one it hit last */
    atomic_bool done;
};

static bool has_file_open(const char *pid, const char *file)
{
    char name[300], target[512];
    DIR *fds;
    bool found = false;

    snprintf(name, sizeof name, "/proc/%s/fd", pid);
    fds = opendir(name);
    for (struct dirent *entry; fds && !found && (entry = readdir(fds));) {
        char link[600];
        ssize_t length;
        snprintf(link, sizeof link, "%s/%s", name, entry->d_name);
        length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strstr(target, file) != NULL;
    }
    if (fds)
        closedir(fds);
    return found;
}

static int read_number(const char *format, const char *pid)
{
    char name[300];
    int number = 0;
    FILE *file;

    snprintf(name, sizeof name, format, pid);
    file = fopen(name, "r");
    if (file && fscanf(file, "%d", &number) != 1)
        number = 0;
    if (file)
        fclose(file);
    return number;
}

static void *hunt(void *context)
{
    struct assassin *assassin = context;
    struct timespec pause = {0, 1000000};

    for (int hits = 0; (!assassin->times || hits < assassin->times) && !assassin->done;
         nanosleep(&pause, NULL)) {
        char list[128];
        FILE *children;
        bool hit = false;
        snprintf(list, sizeof list, "pgrep -x trajd-indexer -P %d", getpid());
        children = popen(list, "r");
        while (children && !hit && fgets(list, sizeof list, children)) {
            list[strcspn(list, "\n")] = '\0';
            if (has_file_open(list, "slow.hdf5")) {
                assassin->oom_score_adj = read_number("/proc/%s/oom_score_adj", list);
                kill(atoi(list), assassin->signal);
                hit = true;
                hits++;
            }
        }
        if (children)
            pclose(children);
    }
    return NULL;
}

static void a_lost_child_costs_its_file_only(int signal_number, uint32_t timeout_ms,
                                             const char *reason)
{
    char path[512];
    struct trajd_index_options options = options_for(path, "robomimic");
    struct assassin assassin = {.signal = signal_number, .times = 1};
    struct trajd_index *index;
    pthread_t thread;
    uint32_t refused = 0;

    snprintf(path, sizeof path, "%s/deadly", folder);
    options.file_timeout_ms = timeout_ms;
    if (signal_number)
        assert_int_equal(pthread_create(&thread, NULL, hunt, &assassin), 0);
    index = must_open(&options);
    assassin.done = true;
    if (signal_number)
        pthread_join(thread, NULL);
    assert_int_equal(index->file_count, 4);
    assert_int_equal(index->kept_count, 6 + 4 + 1);
    for (uint32_t i = 0; i < index->file_count; i++) {
        if (!index->files[i].refusal)
            continue;
        refused++;
        if (strncmp(index->files[i].refusal, "slow.hdf5: ", 11) ||
            !strstr(index->files[i].refusal, reason))
            fail_msg("%s", index->files[i].refusal);
    }
    assert_int_equal(refused, 1);
    trajd_index_destroy(&index);
}

static void crashed_stopped_and_slow_children_are_replaced(void **state)
{
    (void)state;
    make_folder("deadly", "good.hdf5 slow.hdf5 storage.hdf5 zero_width.hdf5");
    /* no sanitizer takes it for itself */
    a_lost_child_costs_its_file_only(SIGABRT, 60000, "killed by signal 6");
    a_lost_child_costs_its_file_only(SIGSTOP, 3000, "took longer than ");
}

static enum trajd_status open_hunted(struct assassin *assassin, struct trajd_index **index,
                                     struct trajd_error *error)
{
    char path[512];
    const struct trajd_index_options options = options_for(path, "robomimic");
    enum trajd_status status;
    pthread_t thread;

    snprintf(path, sizeof path, "%s/hunted", folder);
    assert_int_equal(pthread_create(&thread, NULL, hunt, assassin), 0);
    status = trajd_index_open(&options, index, error);
    assassin->done = true;
    pthread_join(thread, NULL);
    return status;
}

/* A kill by somebody else says nothing about the file: it is tried again, and if it is killed each
 * time nothing is known. */
static void killed_children_condemn_no_file(void **state)
{
    static const int signals[] = {SIGINT, SIGKILL};
    struct trajd_error error;
    struct trajd_index *index;

    (void)state;
    make_folder("hunted", "good.hdf5 slow.hdf5 storage.hdf5 zero_width.hdf5");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct assassin assassin = {.signal = signals[i]};
        assert_int_equal(open_hunted(&assassin, &index, &error), TRAJD_ERR_SYSTEM);
        assert_null(index);
        assert_non_null(
            strstr(error.message, "slow.hdf5: the indexing child was killed by signal "));
        assert_non_null(strstr(error.message, " from outside, 3 times: is memory full?"));
        assert_true(assassin.oom_score_adj >= 800); /* the kernel takes it before its parent */
    }
    shell("cp %s/less_slow.hdf5 %s/hunted/slow.hdf5", folder, folder);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct assassin twice = {.signal = signals[i], .times = 2};
        assert_int_equal(open_hunted(&twice, &index, &error), TRAJD_OK);
        assert_int_equal(index->file_count, 4);
        for (uint32_t f = 0; f < index->file_count; f++)
            if (index->files[f].refusal)
                fail_msg("%s", index->files[f].refusal);
        trajd_index_destroy(&index);
    }
}

/* A child that says READY, does `body`, and sends a record that refuses the file. What the index
 * says of it. */
static void be_indexed_by(const char *body, uint32_t timeout_ms, struct trajd_error *error)
{
    const struct trajd_record record = {.refusal = "seen at last"};
    struct trajd_helper_header ready = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_READY, 0},
                               header = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_RECORD, 0};
    struct trajd_bytes bytes = {0};
    char path[512];
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_index *index;
    char helper[512];
    FILE *file;

    assert_true(trajd_record_encode(&record, &bytes));
    header.length = bytes.length;
    snprintf(path, sizeof path, "%s/patience_frames", folder);
    file = fopen(path, "w");
    assert_int_equal(fwrite(&ready, sizeof ready, 1, file), 1);
    assert_int_equal(fwrite(&header, sizeof header, 1, file), 1);
    assert_int_equal(fwrite(bytes.data, 1, bytes.length, file), bytes.length);
    fclose(file);
    trajd_bytes_free(&bytes);
    snprintf(helper, sizeof helper, "%s/patience", folder);
    file = fopen(helper, "w");
    fprintf(file, "#!/bin/sh\nhead -c %zu %s >&3\n%s\ntail -c +%zu %s >&3\nexec sleep 60\n",
            sizeof ready, path, body, sizeof ready + 1, path);
    fclose(file);
    chmod(helper, 0755);
    snprintf(path, sizeof path, "%s/good.hdf5", folder);
    options.helper_path = helper;
    options.file_timeout_ms = timeout_ms;
    assert_int_equal(trajd_index_open(&options, &index, error), TRAJD_ERR_DATA);
}

/* Slow storage makes a child wait and read, wait and read: that may take longer, but not for ever;
 * nor may what only waits, or only works. */
static void a_child_that_goes_on_reading_may(void **state)
{
    char line[512], body[1024];
    struct trajd_error error;
    FILE *file;

    (void)state;
    snprintf(line, sizeof line, "%s/patience_line", folder);
    file = fopen(line, "w");
    fputs("a line\n", file);
    fclose(file);
    snprintf(body, sizeof body, "for i in $(seq 60); do read x <%s; sleep 0.1; done", line);
    be_indexed_by(body, 3000, &error);
    assert_non_null(strstr(error.message, "good.hdf5: seen at last"));
    snprintf(body, sizeof body, "while sleep 0.05; do read x <%s; done", line);
    be_indexed_by(body, 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
    snprintf(body, sizeof body, "while :; do read x <%s; done", line);
    be_indexed_by(body, 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
    be_indexed_by("exec sleep 60", 200, &error);
    assert_non_null(strstr(error.message, "good.hdf5: the indexing child took longer than "));
}

static void a_helper_that_is_none_is_an_error(void **state)
{
    static const char *const bodies[] = {"exit 3",
                                         "printf 'no frame at all, but some bytes' >&3; sleep 1"};
    char helper[512], path[512];
    struct trajd_index_options options = options_for(path, "robomimic");
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    snprintf(path, sizeof path, "%s/good.hdf5", folder);
    options.helper_path = "/nonexistent/trajd-indexer";
    assert_int_equal(trajd_index_open(&options, &index, &error), TRAJD_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "/nonexistent"));
    snprintf(helper, sizeof helper, "%s/fake", folder);
    options.helper_path = helper;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        FILE *file = fopen(helper, "w");
        fprintf(file, "#!/bin/sh\n%s\n", bodies[i]);
        fclose(file);
        chmod(helper, 0755);
        assert_int_equal(trajd_index_open(&options, &index, &error), TRAJD_ERR_SYSTEM);
        assert_non_null(strstr(error.message, "does not start"));
    }
}

static void storage_that_fails_is_fatal_and_odd_files_are_refused(void **state)
{
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    make_folder("odd", "good.hdf5");
    shell("mkfifo %s/odd/fifo.hdf5", folder);
    index = open_named("odd", "robomimic");
    assert_int_equal(index->file_count, 2);
    assert_non_null(strstr(index->files[0].refusal, "fifo.hdf5: not a regular file"));
    assert_int_equal(index->kept_count, 6);
    trajd_index_destroy(&index);
    /* as a file that vanishes after it was listed */
    shell("ln -s /nonexistent %s/odd/gone.hdf5", folder);
    assert_int_equal(try_open("odd", "robomimic", &index, &error), TRAJD_ERR_IO);
    assert_non_null(strstr(error.message, "odd/gone.hdf5: cannot be read after 3 attempts"));
    assert_int_equal(error.foreign_code, ENOENT);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natural_order_is_total),
        cmocka_unit_test(episodes_come_in_natural_order),
        cmocka_unit_test(filter_keys_name_their_episodes),
        cmocka_unit_test(families_become_streams),
        cmocka_unit_test(storage_forms_are_recorded),
        cmocka_unit_test(unequal_lengths_stand_on_regular_clocks),
        cmocka_unit_test(empty_and_single_rows),
        cmocka_unit_test(bad_episodes_are_quarantined_with_the_reason),
        cmocka_unit_test(what_cannot_be_used_at_all_is_an_error),
        cmocka_unit_test(left_out_datasets_are_noted),
        cmocka_unit_test(stamps_begin_at_the_origin),
        cmocka_unit_test(clocks_share_one_origin),
        cmocka_unit_test(clocks_that_lie_far_apart),
        cmocka_unit_test(columns_of_datasets_of_other_widths),
        cmocka_unit_test(one_file_can_be_one_episode),
        cmocka_unit_test(texts_of_episodes),
        cmocka_unit_test(published_recordings_are_kept),
        cmocka_unit_test(the_fingerprint_is_of_the_content),
        cmocka_unit_test(files_of_several_names_are_taken_once),
        cmocka_unit_test(the_cache_gives_the_same_index),
        cmocka_unit_test(changed_files_and_damaged_caches_are_indexed_anew),
        cmocka_unit_test(what_has_become_of_the_files_is_counted),
        cmocka_unit_test(forged_caches_are_indexed_anew),
        cmocka_unit_test(crashed_stopped_and_slow_children_are_replaced),
        cmocka_unit_test(killed_children_condemn_no_file),
        cmocka_unit_test(a_child_that_goes_on_reading_may),
        cmocka_unit_test(a_helper_that_is_none_is_an_error),
        cmocka_unit_test(storage_that_fails_is_fatal_and_odd_files_are_refused),
    };
    char arguments[512];
    int failed;

    if (run_python("-c 'import h5py, numpy'") != 0)
        return SKIPPED;
    if (!mkdtemp(folder))
        return 1;
    snprintf(arguments, sizeof arguments, TRAJD_SOURCE_DIR "/tests/tools/make_index_files.py %s",
             folder);
    if (run_python(arguments) != 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(arguments, sizeof arguments, "rm -r %s", folder);
    return system(arguments) || failed;
}
