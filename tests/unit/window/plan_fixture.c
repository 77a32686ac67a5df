/* Makes the index of a dataset by hand, and plans on it. */
#include "plan_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/window_batch.h"

static const char *const train_only[] = {"train", NULL}, *const no_keys[] = {NULL};

void make_array(struct fixture *f, int episode, int stream)
{
    const uint64_t rows = stream == 0 ? ROWS : stream == 1 ? 300 : ROWS + 1;

    f->arrays[episode][stream] = (struct trajd_array){.storage = TRAJD_STORAGE_CONTIGUOUS,
                                                      .dtype = f->streams[stream].dtype,
                                                      .rank = 1,
                                                      .shape = {rows},
                                                      .size_bytes = 8 * rows};
}

int make_fixture(void **state)
{
    static const char *const names[STREAMS] = {"cam", "arm", "wrench"};
    static const struct trajd_layout_clock clocks[] = {{.name = "camera"}, {.name = "arm"}};
    struct fixture *f = calloc(1, sizeof *f);

    f->layout.name = "test";
    f->layout.clock_count = 2;
    f->layout.clocks = clocks;
    f->file.relative_path = "file";
    f->clocks[0] = (struct trajd_index_clock){"camera", true};
    f->clocks[1] = (struct trajd_index_clock){"arm", false};
    f->rates[0] = (struct trajd_rate){30, 1};
    for (int i = 0; i < 300; i++)
        f->stamps[i] = i * INT64_C(10000000);
    for (int s = 0; s < STREAMS; s++)
        f->streams[s].dtype = TRAJD_I64;
    for (int e = 0; e < 2; e++) {
        f->episode_clocks[e][0] =
            (struct trajd_episode_clock){.row_count = ROWS, .start_ns = 5000000, .rate = {30, 1}};
        f->episode_clocks[e][1] =
            (struct trajd_episode_clock){.row_count = 300, .stamps_ns = f->stamps};
        for (int s = 0; s < STREAMS; s++)
            make_array(f, e, s);
        f->episodes[e] = (struct trajd_episode){.id = e ? "b" : "a",
                                                .extents = f->arrays[e],
                                                .clocks = f->episode_clocks[e],
                                                .filter_keys = e ? no_keys : train_only};
        memcpy(f->all_stamps + 300 * e, f->stamps, sizeof f->stamps);
        f->row_begin[e] = 300 * e;
    }
    for (int s = 0; s < STREAMS; s++) {
        f->streams[s] = (struct trajd_index_stream){.name = names[s],
                                                    .array_index = (uint32_t)s,
                                                    .clock_index = s == 1,
                                                    .kind = TRAJD_KIND_PREVIOUS,
                                                    .dtype = TRAJD_I64,
                                                    .feature_count = 1,
                                                    .max_gap_ns = -1};
        f->index_arrays[s].path = names[s];
        for (int i = 0; i < ROWS + 300; i++)
            f->rows[s][i] = i;
    }
    f->index = (struct trajd_index){.layout = &f->layout,
                                    .file_count = 1,
                                    .files = &f->file,
                                    .array_count = STREAMS,
                                    .arrays = f->index_arrays,
                                    .stream_count = STREAMS,
                                    .streams = f->streams,
                                    .clock_count = 2,
                                    .clocks = f->clocks,
                                    .episode_count = 2,
                                    .episodes = f->episodes,
                                    .kept_count = 2,
                                    .fingerprint = 42};
    f->clock_stamps[1] = f->all_stamps;
    f->clock_row_begin[1] = f->row_begin;
    f->dataset = (struct trajd_dataset){.name = "test",
                                        .index = &f->index,
                                        .clock_stamps_ns = f->clock_stamps,
                                        .clock_row_begin = f->clock_row_begin,
                                        .clock_rates = f->rates};
    *state = f;
    return 0;
}

int free_fixture(void **state)
{
    free(*state);
    return 0;
}

struct trajd_window_plan *make_plan(struct fixture *f, const char *text,
                                    struct trajd_window_spec **spec, struct trajd_error *error)
{
    struct trajd_window_plan *plan = NULL;
    struct trajd_yaml *yaml;

    assert_int_equal(trajd_yaml_parse("test", text, strlen(text), &yaml, error), TRAJD_OK);
    if (trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 1, spec, error))
        fail_msg("%s", error->message);
    trajd_yaml_destroy(&yaml);
    trajd_window_plan_create(*spec, &f->dataset, &plan, error);
    return plan;
}

static const void *const *rows_of(void *context, uint32_t episode)
{
    static const void *pointers[STREAMS];
    struct fixture *f = context;

    (void)episode;
    for (int s = 0; s < STREAMS; s++)
        pointers[s] = f->rows[s];
    return pointers;
}

void run(struct fixture *f, const struct trajd_window_plan *plan, uint32_t count, int64_t *values,
         uint8_t *mask)
{
    uint32_t steps = plan->rules.outputs[0].step_count;
    uint8_t *slot = calloc(1, 65536);
    struct trajd_binding *batch;
    struct trajd_error error;

    assert_int_equal(trajd_window_batch_create(plan, &batch, &error), TRAJD_OK);
    batch->outputs[0].offset_bytes = 64;
    batch->outputs[0].mask_offset_bytes = 32768;
    assert_true(steps * count * 8 <= 32704);
    trajd_window_batch_look_up(batch, 0, 0, count);
    trajd_bind_windows(batch, 0, count, slot, rows_of, f);
    if (trajd_resample_check(&batch->request, &error))
        fail_msg("%s", error.message);
    trajd_resample_reference(&batch->request, 0, count);
    memcpy(values, slot + 64, (size_t)steps * count * 8);
    memcpy(mask, slot + 32768, (size_t)steps * count);
    free(slot);
    trajd_binding_destroy(&batch);
}

void destroy(struct trajd_window_plan **plan, struct trajd_window_spec **spec)
{
    trajd_window_plan_destroy(plan);
    trajd_window_spec_destroy(spec);
}
