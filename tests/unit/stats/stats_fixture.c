/* Writes the file of two episodes, and makes its index. */
#include "unit/stats/stats_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define IMAGE_BYTES 12

static uint64_t write_episode(struct stats_fixture *f, int fd, uint32_t e, uint64_t offset)
{
    float q[FIXTURE_ROWS][2];
    uint8_t image[FIXTURE_ROWS][IMAGE_BYTES];

    for (int r = 0; r < FIXTURE_ROWS; r++) {
        q[r][0] = (float)(100 * (int)e + r);
        q[r][1] = e == 0 && r == 5 ? NAN : 0.5f * (float)r;
        for (int i = 0; i < IMAGE_BYTES; i++)
            image[r][i] = (uint8_t)(10 * (i % 3) + r);
    }
    f->extents[e][0] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                            .dtype = TRAJD_F32,
                                            .rank = 2,
                                            .shape = {FIXTURE_ROWS, 2},
                                            .offset = offset,
                                            .size_bytes = sizeof q};
    f->extents[e][1] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                            .dtype = TRAJD_U8,
                                            .rank = 4,
                                            .shape = {FIXTURE_ROWS, 2, 2, 3},
                                            .offset = offset + sizeof q,
                                            .size_bytes = sizeof image};
    assert_int_equal(pwrite(fd, q, sizeof q, (off_t)offset), sizeof q);
    assert_int_equal(pwrite(fd, image, sizeof image, (off_t)(offset + sizeof q)), sizeof image);
    return offset + sizeof q + sizeof image;
}

static void write_file(struct stats_fixture *f)
{
    const int fd = data_file_begin(&f->data);
    uint64_t offset = 512;

    for (uint32_t e = 0; e < FIXTURE_EPISODES; e++)
        offset = write_episode(f, fd, e, offset);
    data_file_end(&f->data, fd);
}

static void make_index(struct stats_fixture *f)
{
    static const char *const ids[FIXTURE_EPISODES] = {"demo_0", "demo_1"};
    static const char *const no_keys[] = {NULL};

    f->layout.name = "test";
    f->arrays[0].path = "q";
    f->arrays[1].path = "image";
    f->clock = (struct trajd_index_clock){"arm", true};
    f->rate = (struct trajd_rate){10, 1};
    f->streams[0] = (struct trajd_index_stream){.name = "q",
                                                .kind = TRAJD_KIND_LINEAR,
                                                .dtype = TRAJD_F32,
                                                .feature_count = 2,
                                                .rank = 1,
                                                .shape = {2},
                                                .max_gap_ns = -1};
    f->streams[1] = (struct trajd_index_stream){.name = "image",
                                                .array_index = 1,
                                                .kind = TRAJD_KIND_PREVIOUS,
                                                .dtype = TRAJD_U8,
                                                .feature_count = IMAGE_BYTES,
                                                .rank = 3,
                                                .shape = {2, 2, 3},
                                                .max_gap_ns = -1};
    for (uint32_t e = 0; e < FIXTURE_EPISODES; e++) {
        f->episode_clocks[e] =
            (struct trajd_episode_clock){.row_count = FIXTURE_ROWS, .rate = {10, 1}};
        f->episodes[e] = (struct trajd_episode){.id = ids[e],
                                                .extents = f->extents[e],
                                                .clocks = &f->episode_clocks[e],
                                                .filter_keys = no_keys};
    }
    f->index = (struct trajd_index){.layout = &f->layout,
                                    .file_count = 1,
                                    .files = &f->data.file,
                                    .array_count = 2,
                                    .arrays = f->arrays,
                                    .stream_count = 2,
                                    .streams = f->streams,
                                    .clock_count = 1,
                                    .clocks = &f->clock,
                                    .episode_count = FIXTURE_EPISODES,
                                    .episodes = f->episodes,
                                    .kept_count = FIXTURE_EPISODES,
                                    .fingerprint = 42};
}

int make_stats_fixture(void **state)
{
    struct stats_fixture *f = calloc(1, sizeof *f);
    struct trajd_cache_options options = {.budget_bytes = 1 << 20, .reader_count = 1};
    struct trajd_error error;

    write_file(f);
    make_index(f);
    f->dataset = (struct trajd_dataset){.name = "test",
                                        .index = &f->index,
                                        .clock_stamps_ns = f->no_stamps,
                                        .clock_row_begin = f->no_stamps,
                                        .clock_rates = &f->rate};
    options.index = &f->index;
    if (trajd_cache_create(&options, &f->dataset.cache, &error))
        fail_msg("%s", error.message);
    *state = f;
    return 0;
}

int free_stats_fixture(void **state)
{
    struct stats_fixture *f = *state;
    char command[128];

    trajd_cache_destroy(&f->dataset.cache);
    snprintf(command, sizeof command, "rm -r %s", f->data.folder);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

void break_file(const struct stats_fixture *f)
{
    assert_int_equal(truncate(f->data.path, 600), 0);
}

struct trajd_window_plan *make_feed(struct stats_fixture *f, const char *keys,
                                    struct trajd_window_spec **spec)
{
    struct trajd_window_plan *plan = NULL;
    struct trajd_yaml *yaml;
    struct trajd_error error;
    char text[512];

    snprintf(text, sizeof text, "{dataset: test, anchor: {clock: arm}, global_batch: 7, %s}", keys);
    if (trajd_yaml_parse("test", text, strlen(text), &yaml, &error) ||
        trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 2, spec, &error) ||
        trajd_window_plan_create(*spec, &f->dataset, &plan, &error))
        fail_msg("%s", error.message);
    trajd_yaml_destroy(&yaml);
    return plan;
}

void drop_feed(struct trajd_window_plan **plan, struct trajd_window_spec **spec)
{
    trajd_window_plan_destroy(plan);
    trajd_window_spec_destroy(spec);
}
