/* Opens and closes; describes what is pushed and observed. */
#include <stdlib.h>
#include <string.h>

#include "clients/live/live_state.h"

#define MEMORY_LIMIT ((size_t)256 << 20)
#define DEFAULT_HISTORY_NS INT64_C(1000000000)
#define DEFAULT_AGE_ROWS 3
#define DEFAULT_AGE_NS INT64_C(20000000)
#define DEFAULT_IDLE_NS INT64_C(200000000) /* so that other streams may stand in for the fastest */

/* Returns how old the newest row of a clock may be by default. */
static int64_t default_age_ns(const struct trajd_live_clock *clock, int64_t margin_ns)
{
    int64_t age_ns;

    if (__builtin_mul_overflow(clock->interval_ns, DEFAULT_AGE_ROWS, &age_ns) ||
        __builtin_add_overflow(age_ns, clock->latency_ns > 0 ? clock->latency_ns : 0, &age_ns) ||
        __builtin_add_overflow(age_ns, margin_ns, &age_ns))
        return INT64_MAX;
    return age_ns;
}

static void set_ages(struct trajd_live *live, int64_t wanted_ns)
{
    for (uint32_t c = 0; c < live->clock_count; c++)
        live->clocks[c].max_idle_ns = wanted_ns ? wanted_ns
                                      : live->clocks[c].has_interval
                                          ? default_age_ns(&live->clocks[c], DEFAULT_IDLE_NS)
                                          : INT64_MAX;
    live->max_anchor_age_ns =
        wanted_ns ? wanted_ns
        : live->anchor_clock < 0
            ? INT64_MAX
            : default_age_ns(&live->clocks[live->anchor_clock], DEFAULT_AGE_NS);
}

static enum trajd_status check_options(const struct trajd_live_options *options,
                                       struct trajd_error *error)
{
    if (options->history_ns >= 0 && options->max_anchor_age_ns >= 0)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "history_ns and max_anchor_age_ns are not negative");
}

/* Takes over `yaml`. */
static enum trajd_status open_document(struct trajd_yaml *yaml,
                                       const struct trajd_live_options *options,
                                       struct trajd_live **out, struct trajd_error *error)
{
    const struct trajd_live_options none = {0}, *wanted = options ? options : &none;
    struct trajd_live *live = calloc(1, sizeof *live);
    enum trajd_status status;

    *out = live;
    if (!live) {
        trajd_yaml_destroy(&yaml);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
    }
    live->yaml = yaml;
    live->arena.limit_bytes = MEMORY_LIMIT;
    status = check_options(wanted, error);
    if (!status)
        status = trajd_live_read(live, error);
    if (!status) {
        live->history_ns = wanted->history_ns ? wanted->history_ns : DEFAULT_HISTORY_NS;
        set_ages(live, wanted->max_anchor_age_ns);
        status = trajd_live_allocate(live, error);
    }
    if (status)
        trajd_live_close(out);
    return status;
}

enum trajd_status trajd_live_open(const char *path, const struct trajd_live_options *options,
                                  struct trajd_live **live, struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    const enum trajd_status status = trajd_yaml_load(path, &yaml, error);

    *live = NULL;
    return status ? status : open_document(yaml, options, live, error);
}

enum trajd_status trajd_live_open_text(const char *text, size_t size,
                                       const struct trajd_live_options *options,
                                       struct trajd_live **live, struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    const enum trajd_status status = trajd_yaml_parse("live description", text, size, &yaml, error);

    *live = NULL;
    return status ? status : open_document(yaml, options, live, error);
}

void trajd_live_close(struct trajd_live **out)
{
    struct trajd_live *live = *out;

    *out = NULL;
    if (!live)
        return;
    for (uint32_t p = 0; p < live->picture_count; p++)
        trajd_live_picture_close(&live->pictures[p]);
    trajd_arena_free(&live->arena);
    trajd_yaml_destroy(&live->yaml);
    free(live);
}

uint32_t trajd_live_stream_count(const struct trajd_live *live)
{
    return live->input_count;
}

int64_t trajd_live_find_stream(const struct trajd_live *live, const char *name)
{
    for (uint32_t i = 0; i < live->input_count; i++)
        if (strcmp(live->inputs[i].name, name) == 0)
            return i;
    return -1;
}

void trajd_live_get_stream(const struct trajd_live *live, uint32_t stream,
                           struct trajd_live_stream *info)
{
    const struct trajd_live_input *input = &live->inputs[stream];
    const struct trajd_live_clock *clock = &live->clocks[input->clock];

    *info = (struct trajd_live_stream){.name = input->name,
                                       .clock = clock->name,
                                       .dtype = input->dtype,
                                       .rank = input->rank,
                                       .row_bytes = (uint64_t)input->column_count *
                                                    trajd_dtype_size(input->dtype),
                                       .interval_ns = clock->has_interval ? clock->interval_ns : 0,
                                       .latency_ns = -clock->shift_ns,
                                       .capacity = (uint32_t)(input->ring.capacity * 3 / 4)};
    memcpy(info->shape, input->shape, sizeof info->shape);
}

uint32_t trajd_live_output_count(const struct trajd_live *live)
{
    return live->visible_count;
}

void trajd_live_get_output(const struct trajd_live *live, uint32_t number,
                           struct trajd_live_output *info)
{
    const struct trajd_live_target *output = &live->outputs[number];

    *info = (struct trajd_live_output){.name = output->name,
                                       .dtype = output->dtype,
                                       .rank = output->rank,
                                       .offset_bytes = output->offset_bytes,
                                       .size_bytes = output->size_bytes,
                                       .mask_offset_bytes = output->mask_offset_bytes};
    memcpy(info->shape, output->shape, sizeof info->shape);
}

uint64_t trajd_live_size_bytes(const struct trajd_live *live)
{
    return live->size_bytes;
}
