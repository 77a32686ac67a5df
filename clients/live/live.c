/* Opens and closes; describes what is pushed and observed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/live/live_state.h"
#include "daemon/base/files.h"

#define DOCUMENT_BYTES_MAX ((size_t)64 << 20)
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
    for (uint32_t c = 0; c < live->document.clock_count; c++)
        live->clocks[c].max_idle_ns = wanted_ns ? wanted_ns
                                      : live->clocks[c].has_interval
                                          ? default_age_ns(&live->clocks[c], DEFAULT_IDLE_NS)
                                          : INT64_MAX;
    live->max_anchor_age_ns =
        wanted_ns ? wanted_ns
        : !live->document.has_anchor_clock
            ? INT64_MAX
            : default_age_ns(&live->clocks[live->document.anchor_clock], DEFAULT_AGE_NS);
}

static enum trajd_status check_options(const struct trajd_live_options *options,
                                       struct trajd_error *error)
{
    if (options->history_ns >= 0 && options->max_anchor_age_ns >= 0)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "history_ns and max_anchor_age_ns are not negative");
}

#define ASSUMED_INTERVAL_NS INT64_C(1000000000)

static enum trajd_status set_clocks(struct trajd_live *live, struct trajd_error *error)
{
    live->clocks = trajd_live_alloc(live, live->document.clock_count, sizeof *live->clocks, error);
    for (uint32_t c = 0; live->clocks && c < live->document.clock_count; c++) {
        const struct trajd_document_clock *clock = &live->document.clocks[c];
        live->clocks[c] = (struct trajd_live_clock){
            .name = clock->name,
            .rate = clock->rate,
            .interval_ns = clock->interval_ns ? clock->interval_ns : ASSUMED_INTERVAL_NS,
            .has_interval = clock->interval_ns,
            .shift_ns = clock->shift_ns,
            .latency_ns = clock->has_latency ? clock->latency_ns : -clock->shift_ns};
    }
    return live->clocks ? TRAJD_OK : TRAJD_ERR_MEMORY;
}

static enum trajd_status set_inputs(struct trajd_live *live, struct trajd_error *error)
{
    const struct trajd_document *document = &live->document;

    live->inputs = trajd_live_alloc(live, document->stream_count, sizeof *live->inputs, error);
    if (!live->inputs)
        return TRAJD_ERR_MEMORY;
    live->input_count = document->stream_count;
    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_document_stream *stream = &document->streams[i];
        struct trajd_live_input *input = &live->inputs[i];
        input->stream = stream;
        input->name = stream->name;
        input->clock = stream->clock;
        input->column_count = 1;
        for (uint32_t d = 0; d < stream->rank; d++)
            input->column_count *= (uint32_t)stream->shape[d];
        input->is_lead = document->has_anchor_clock && stream->clock == document->anchor_clock;
        input->may_lack = true;
        live->lead_count += input->is_lead;
    }
    for (uint32_t t = 0; t < live->rules.target_count; t++) {
        const struct trajd_plan_target *target = &live->rules.targets[t];
        struct trajd_live_input *input = &live->inputs[target->stream_index];
        if (target->stream_index == TRAJD_PLAN_ABSENT)
            continue;
        input->may_lack &= target->missing == TRAJD_MISSING_ZERO;
        input->has_rows |= t < live->rules.row_target_count;
        input->has_images |= t >= live->rules.row_target_count;
    }
    return TRAJD_OK;
}

/* Refuses outputs that are not part of an observation: their rows are not known when it is
 * built. */
static enum trajd_status check_outputs(const struct trajd_live *live, struct trajd_error *error)
{
    for (uint32_t t = 0; t < live->rules.target_count; t++) {
        const struct trajd_plan_output *output =
            &live->rules.outputs[live->rules.targets[t].output_index];
        const struct trajd_plan_grid *grid = trajd_rules_grid(&live->rules, t);
        if (grid->from + grid->step_count > 1)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "output %s: its steps reach beyond the anchor, to rows that a robot does not have "
                "yet: end them at 0 in the feed, and save the description again",
                output->name);
        if (output->role != TRAJD_ROLE_OBS ||
            live->rules.targets[t].stream.total == TRAJD_TOTAL_REST)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "output %s: an observation has outputs of role obs, and no "
                                   "returns",
                                   output->name);
        if (grid->rule == TRAJD_TARGET_ANCHOR_STEPS && grid->from < 0 && !live->lead_count)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "output %s: rule: the stamps of these anchors are not known",
                                   output->name);
    }
    return TRAJD_OK;
}

static enum trajd_status open_document(struct trajd_live *live, const char *name, const char *text,
                                       size_t size, const struct trajd_live_options *options,
                                       struct trajd_error *error)
{
    enum trajd_status status;

    live->arena.limit_bytes = MEMORY_LIMIT;
    if ((status = check_options(options, error)) ||
        (status = trajd_document_read(name, text, size, &live->arena, &live->document, error)))
        return status;
    if ((status = trajd_document_make_rules(&live->document, &live->arena, &live->rules, error)) ||
        (status = set_clocks(live, error)) || (status = set_inputs(live, error)) ||
        (status = check_outputs(live, error))) {
        trajd_error_prefix(error, "%s", name);
        return status;
    }
    live->history_ns = options->history_ns ? options->history_ns : DEFAULT_HISTORY_NS;
    set_ages(live, options->max_anchor_age_ns);
    return trajd_live_allocate(live, error);
}

/* Opens a text. Where that succeeds, the message of `error` is empty, or a warning. */
static enum trajd_status open_text(const char *name, const char *text, size_t size,
                                   const struct trajd_live_options *options,
                                   struct trajd_live **out, struct trajd_error *error)
{
    static const struct trajd_live_options none;
    struct trajd_live *live = *out = calloc(1, sizeof *live);
    enum trajd_status status;

    if (!live)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
    status = open_document(live, name, text, size, options ? options : &none, error);
    if (status) {
        trajd_live_close(out);
        return status;
    }
    if (error)
        error->message[0] = '\0';
    if (error && !live->document.digest)
        snprintf(error->message, sizeof error->message,
                 "%s: it has no digest, which tells whether it is as the daemon wrote it: save it "
                 "again",
                 name);
    return TRAJD_OK;
}

enum trajd_status trajd_live_open(const char *path, const struct trajd_live_options *options,
                                  struct trajd_live **live, struct trajd_error *error)
{
    enum trajd_status status;
    char *text;
    size_t size;

    *live = NULL;
    status = trajd_file_read(path, DOCUMENT_BYTES_MAX, &text, &size, error);
    if (status)
        return status;
    status = open_text(path, text, size, options, live, error);
    free(text);
    return status;
}

enum trajd_status trajd_live_open_text(const char *text, size_t size,
                                       const struct trajd_live_options *options,
                                       struct trajd_live **live, struct trajd_error *error)
{
    return open_text("live description", text, size, options, live, error);
}

void trajd_live_close(struct trajd_live **out)
{
    struct trajd_live *live = *out;

    *out = NULL;
    if (!live)
        return;
    for (uint32_t p = 0; live->images && p < live->rules.image_count; p++)
        trajd_live_image_close(&live->images[p]);
    trajd_binding_destroy(&live->batch);
    trajd_rules_clear_grids(&live->rules);
    trajd_arena_free(&live->arena);
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
                                       .dtype = input->stream->dtype,
                                       .rank = input->stream->rank,
                                       .row_bytes = (uint64_t)input->column_count *
                                                    trajd_dtype_size(input->stream->dtype),
                                       .interval_ns = clock->has_interval ? clock->interval_ns : 0,
                                       .latency_ns = -clock->shift_ns,
                                       .capacity = (uint32_t)(input->ring.capacity * 3 / 4)};
    memcpy(info->shape, input->stream->shape, sizeof info->shape);
}

uint32_t trajd_live_output_count(const struct trajd_live *live)
{
    return live->rules.visible_count;
}

void trajd_live_get_output(const struct trajd_live *live, uint32_t number,
                           struct trajd_live_output *info)
{
    const struct trajd_document_output *output = &live->document.outputs[number];

    *info = (struct trajd_live_output){.name = output->name,
                                       .dtype = output->dtype,
                                       .rank = output->rank,
                                       .offset_bytes = live->batch->outputs[number].offset_bytes,
                                       .size_bytes = live->size_bytes[number],
                                       .mask_offset_bytes =
                                           live->batch->outputs[number].mask_offset_bytes};
    memcpy(info->shape, output->shape, sizeof info->shape);
}

uint64_t trajd_live_size_bytes(const struct trajd_live *live)
{
    return live->total_bytes;
}
