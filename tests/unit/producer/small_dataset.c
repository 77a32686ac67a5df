/* Writes the file of two short episodes, and makes its index and row cache. */
#include "unit/producer/small_dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/window/feed_spec/window_spec.h"

static const char *const no_keys[] = {NULL};

float small_pos(uint32_t episode, int64_t row, uint32_t column)
{
    return 100 * (float)episode + (float)row + 0.25f * (float)column;
}

float small_cmd(uint32_t episode, int64_t row)
{
    return -small_pos(episode, row, 0);
}

static void write_episode(struct small_dataset *small, uint32_t e, int fd)
{
    const uint64_t pos_at = e * 4096, cmd_at = pos_at + 2048;
    float pos[SMALL_ROWS][SMALL_COLUMNS], cmd[SMALL_ROWS];

    for (uint32_t row = 0; row < SMALL_ROWS; row++) {
        for (uint32_t c = 0; c < SMALL_COLUMNS; c++)
            pos[row][c] = small_pos(e, row, c);
        cmd[row] = small_cmd(e, row);
    }
    assert_int_equal(pwrite(fd, pos, sizeof pos, (off_t)pos_at), sizeof pos);
    assert_int_equal(pwrite(fd, cmd, sizeof cmd, (off_t)cmd_at), sizeof cmd);
    small->extents[e][0] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                                .dtype = TRAJD_F32,
                                                .rank = 2,
                                                .shape = {SMALL_ROWS, SMALL_COLUMNS},
                                                .offset = pos_at,
                                                .size_bytes = sizeof pos};
    small->extents[e][1] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                                .dtype = TRAJD_F32,
                                                .rank = 1,
                                                .shape = {SMALL_ROWS},
                                                .offset = cmd_at,
                                                .size_bytes = sizeof cmd};
    small->episode_clocks[e] =
        (struct trajd_episode_clock){.row_count = SMALL_ROWS, .rate = {10, 1}};
    small->episodes[e] = (struct trajd_episode){.id = e ? "demo_1" : "demo_0",
                                                .extents = small->extents[e],
                                                .clocks = &small->episode_clocks[e],
                                                .digest = 7 + e,
                                                .filter_keys = no_keys};
}

static void make_file(struct small_dataset *small)
{
    const int fd = data_file_begin(&small->data);

    for (uint32_t e = 0; e < SMALL_EPISODES; e++)
        write_episode(small, e, fd);
    data_file_end(&small->data, fd);
}

static void make_index(struct small_dataset *small)
{
    small->layout.name = "small";
    small->arrays[0].path = "obs/pos";
    small->arrays[1].path = "cmd";
    small->clock = (struct trajd_index_clock){"steps", true};
    small->streams[0] = (struct trajd_index_stream){.name = "pos",
                                                    .kind = TRAJD_KIND_LINEAR,
                                                    .dtype = TRAJD_F32,
                                                    .feature_count = SMALL_COLUMNS,
                                                    .rank = 1,
                                                    .shape = {SMALL_COLUMNS},
                                                    .max_gap_ns = -1};
    small->streams[1] = (struct trajd_index_stream){.name = "cmd",
                                                    .array_index = 1,
                                                    .kind = TRAJD_KIND_PREVIOUS,
                                                    .dtype = TRAJD_F32,
                                                    .feature_count = 1,
                                                    .max_gap_ns = -1};
    small->index = (struct trajd_index){.layout = &small->layout,
                                        .file_count = 1,
                                        .files = &small->data.file,
                                        .array_count = 2,
                                        .arrays = small->arrays,
                                        .stream_count = 2,
                                        .streams = small->streams,
                                        .clock_count = 1,
                                        .clocks = &small->clock,
                                        .episode_count = SMALL_EPISODES,
                                        .episodes = small->episodes,
                                        .kept_count = SMALL_EPISODES,
                                        .fingerprint = 42};
}

struct small_dataset *small_dataset_create(const char *name, uint64_t cache_bytes)
{
    struct small_dataset *small = calloc(1, sizeof *small);
    const struct trajd_cache_options options = {&small->index, cache_bytes, 1};
    struct trajd_error error;

    make_file(small);
    make_index(small);
    small->rate = (struct trajd_rate){10, 1};
    small->dataset = (struct trajd_dataset){.name = strdup(name),
                                            .index = &small->index,
                                            .clock_stamps_ns = &small->no_stamps,
                                            .clock_row_begin = &small->no_begin,
                                            .clock_stamp_count = &small->stamp_count,
                                            .clock_rates = &small->rate};
    if (trajd_cache_create(&options, &small->dataset.cache, &error))
        fail_msg("%s", error.message);
    return small;
}

void small_dataset_destroy(struct small_dataset **out)
{
    struct small_dataset *small = *out;

    *out = NULL;
    trajd_cache_destroy(&small->dataset.cache);
    unlink(small->data.path);
    rmdir(small->data.folder);
    free(small->dataset.name);
    free(small);
}

struct trajd_window_spec *small_spec(const char *name, const char *text)
{
    struct trajd_window_spec *spec = NULL;
    struct trajd_yaml *yaml = NULL;
    struct trajd_error error;

    if (trajd_yaml_parse("test", text, strlen(text), &yaml, &error) ||
        trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), name, 2, &spec, &error))
        fail_msg("%s", error.message);
    trajd_yaml_destroy(&yaml);
    return spec;
}
