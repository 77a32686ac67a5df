/* Fills a document from a plan. */
#include <inttypes.h>
#include <stdarg.h>
#include <math.h>
#include <string.h>

#include "daemon/live/live_description.h"

struct making {
    const struct trajd_live_choice *choice;
    const struct trajd_window_plan *plan;
    struct trajd_arena *arena;
    struct trajd_document *document;
    bool is_starved;
};

static void *alloc(struct making *m, size_t count, size_t size)
{
    void *memory = trajd_arena_alloc(m->arena, count * size);

    m->is_starved = m->is_starved || !memory;
    return memory;
}

static const char *print(struct making *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *print(struct making *m, const char *format, ...)
{
    char text[512];
    va_list arguments;
    const char *copy;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    copy = trajd_arena_copy(m->arena, text, strlen(text));
    m->is_starved = m->is_starved || !copy;
    return copy;
}

static uint32_t number_of(const uint32_t *list, uint32_t value)
{
    uint32_t i = 0;

    while (list[i] != value)
        i++;
    return i;
}

/* ---- clocks and streams ---- */

/* Returns the mean time from row to row, over all episodes. 0: no episode has two rows. */
static int64_t interval_ns(const struct trajd_window_plan *plan, uint32_t clock_index)
{
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_rate rate = plan->dataset->clock_rates[clock_index];
    __int128 span_ns = 0, rows = 0;

    if (rate.num)
        return trajd_rate_row_ns(rate, 1);
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *clock = &index->episodes[e].clocks[clock_index];
        if (index->episodes[e].quarantine || clock->row_count < 2)
            continue;
        span_ns += trajd_clock_row_ns(clock, clock->row_count - 1) - trajd_clock_row_ns(clock, 0);
        rows += clock->row_count - 1;
    }
    return rows ? (int64_t)(span_ns / rows) : 0; /* 1 at least: stamps ascend */
}

static void make_clock(struct making *m, uint32_t number)
{
    const uint32_t clock = m->choice->clocks[number];
    const struct trajd_index *index = m->plan->dataset->index;
    const struct trajd_layout_clock *layout = &index->layout->clocks[clock];

    m->document->clocks[number] = (struct trajd_document_clock){
        .name = index->clocks[clock].name,
        .rate_text = trajd_document_rate_text(m->arena, m->plan->dataset->clock_rates[clock]),
        .interval_ns = interval_ns(m->plan, clock),
        /* the index has checked that it fits 64 bits */
        .shift_ns = layout->offset_ns - layout->latency_ns,
        .has_latency = true,
        .latency_ns = layout->latency_ns};
}

static void make_stream(struct making *m, uint32_t number)
{
    const struct trajd_index_stream *source =
        &m->plan->dataset->index->streams[m->choice->streams[number]];
    const struct trajd_layout_image *image = &source->image;
    struct trajd_document_stream *stream = &m->document->streams[number];

    *stream =
        (struct trajd_document_stream){.name = source->name,
                                       .clock = number_of(m->choice->clocks, source->clock_index),
                                       .dtype = source->dtype,
                                       .rank = source->rank};
    memcpy(stream->shape, source->shape, sizeof source->shape);
    if (source->form == TRAJD_ROWS_PLAIN || source->form == TRAJD_ROWS_VIDEO ||
        image->encoding == TRAJD_ENCODING_RAW)
        return;
    stream->encoded = alloc(m, 1, sizeof *stream->encoded);
    if (stream->encoded)
        *stream->encoded = (struct trajd_document_encoded){
            trajd_image_encoding_name(image->encoding), trajd_image_color_name(image->color),
            trajd_image_flip_name(image->flip)};
}

/* Adds the clock of the anchors as a stream without columns: rows of it are stamps alone. */
static void make_ticks(struct making *m)
{
    const uint32_t clock = (uint32_t)m->plan->rules.anchor_clock;

    m->document->streams[m->document->stream_count++] = (struct trajd_document_stream){
        .name = print(m, "clock:%s", m->plan->dataset->index->clocks[clock].name),
        .clock = number_of(m->choice->clocks, clock),
        .dtype = TRAJD_U8,
        .rank = 1};
}

/* ---- outputs ---- */

static void set_shape(const struct trajd_plan_output *output, uint32_t *rank,
                      uint64_t shape[TRAJD_RULES_MAX_RANK])
{
    *rank = 1 + output->rank;
    shape[0] = output->step_count;
    memcpy(shape + 1, output->shape, output->rank * sizeof *shape);
}

/* The shape and type of finished frames: those of the plan differ where workers finish them. */
static void set_image_shape(const struct trajd_plan_output *output,
                            const struct trajd_image_finish *finish,
                            struct trajd_document_output *made)
{
    const bool is_chw = finish->layout == TRAJD_IMAGE_CHW;

    made->dtype = finish->type;
    made->rank = 0;
    made->shape[made->rank++] = output->step_count;
    if (is_chw)
        made->shape[made->rank++] = finish->channels;
    made->shape[made->rank++] = finish->height;
    made->shape[made->rank++] = finish->width;
    if (!is_chw && output->rank == 3)
        made->shape[made->rank++] = finish->channels;
}

static void make_left_out(struct making *m)
{
    const struct trajd_plan_rules *rules = &m->plan->rules;

    m->document->left_out = alloc(m, rules->visible_count, sizeof *m->document->left_out);
    for (uint32_t o = 0; o < rules->visible_count && !m->choice->is_whole && !m->is_starved; o++) {
        const char *reason = trajd_live_left_out(m->plan, o);
        struct trajd_document_left_out *one = &m->document->left_out[m->document->left_out_count];
        if (!reason)
            continue;
        m->document->left_out_count++;
        one->name = rules->outputs[o].name;
        one->role = rules->outputs[o].role;
        one->dtype = rules->outputs[o].dtype;
        one->reason = reason;
        set_shape(&rules->outputs[o], &one->rank, one->shape);
    }
}

static void make_source(struct making *m, uint32_t t, struct trajd_document_source *source)
{
    const struct trajd_plan_target *target = &m->plan->rules.targets[t];
    const struct trajd_stream *stream = &target->stream;
    const struct trajd_plan_bracket *bracket = &m->plan->rules.brackets[target->bracket_index];
    const bool is_angle = stream->kind == TRAJD_KIND_ANGLE,
               is_absent = target->stream_index == TRAJD_PLAN_ABSENT;

    *source = (struct trajd_document_source){
        .has_stream = !is_absent,
        .stream = is_absent ? 0 : number_of(m->choice->streams, target->stream_index),
        .columns = stream->feature_count,
        .rule = m->plan->rules.grids[bracket->grid_index].rule,
        .kind = stream->kind,
        .missing = target->missing,
        .is_filled = target->is_filled,
        .lookahead_ns = bracket->lookahead_ns,
        .max_gap_ns = stream->max_gap_ns,
        .max_age_ns = stream->max_age_ns,
        .too_old_intervals = bracket->too_old_intervals,
        .mean_width = stream->kind == TRAJD_KIND_MEAN ? stream->mean_width : 0,
        .sum_width_ns = stream->total == TRAJD_TOTAL_STEP ? stream->total_width : 0,
        .is_return = stream->total == TRAJD_TOTAL_REST,
        .in_chunk = bracket->in_chunk,
        .gamma = stream->total == TRAJD_TOTAL_REST ? stream->total_gamma : 0,
        .period = is_angle ? stream->angle_period : 0,
        .has_low = is_angle && !isnan(stream->angle_low),
        .low = is_angle && !isnan(stream->angle_low) ? stream->angle_low : 0};
}

static bool sets_size(const struct trajd_augment_step *step)
{
    return step->kind == TRAJD_AUGMENT_CROP || step->kind == TRAJD_AUGMENT_RESIZE ||
           step->kind == TRAJD_AUGMENT_RESIZED_CROP;
}

static void make_image(struct making *m, const struct trajd_plan_image *image,
                       struct trajd_document_output *made)
{
    struct trajd_document_image *into = made->image = alloc(m, 1, sizeof *into);

    if (!into)
        return;
    into->preparation = image->preparation;
    into->finish = image->finish;
    into->augment.rounding = image->augment.rounding;
    for (uint32_t i = 0; i < image->augment.count; i++)
        if (sets_size(&image->augment.steps[i]))
            into->augment.steps[into->augment.count++] = image->augment.steps[i];
}

static void make_output(struct making *m, uint32_t number)
{
    const struct trajd_plan_rules *rules = &m->plan->rules;
    const uint32_t o = m->choice->outputs[number];
    const struct trajd_plan_output *output = &rules->outputs[o];
    const uint32_t first = trajd_rules_first_target(rules, o);
    const struct trajd_plan_grid *grid = trajd_rules_grid(rules, first);
    struct trajd_document_output *made = &m->document->outputs[number];

    made->name = output->name;
    made->role = output->role;
    made->is_hidden = output->is_hidden;
    made->dtype = output->dtype;
    set_shape(output, &made->rank, made->shape);
    if (grid->goal) {
        char text[64];
        trajd_goal_text(&m->plan->goals[grid->goal - 1], text, sizeof text);
        made->goal = print(m, "%s", text);
    }
    made->from = grid->from;
    made->rate_text = trajd_document_rate_text(m->arena, grid->rate);
    made->source_count = trajd_rules_end_target(rules, first) - first;
    made->sources = alloc(m, made->source_count, sizeof *made->sources);
    for (uint32_t s = 0; made->sources && s < made->source_count; s++)
        make_source(m, first + s, &made->sources[s]);
    if (first >= rules->row_target_count) {
        const struct trajd_plan_image *image = &rules->images[first - rules->row_target_count];
        set_image_shape(output, &image->finish, made);
        make_image(m, image, made);
    }
    if (output->transform || output->is_hidden)
        made->row_dtype = output->row_dtype;
    if (output->transform && (made->chain = alloc(m, 1, sizeof *made->chain))) {
        trajd_document_set_chain(output->transform, made->chain);
        made->chain->id = print(m, "%016" PRIx64, trajd_chain_id(output->transform));
        made->has_state = output->transform->reference_count > 0;
        if (made->has_state)
            made->state = number_of(m->choice->outputs, output->reference_output);
    }
    if (output->scale) {
        made->norm_count = (uint32_t)trajd_plan_norm_count(output);
        made->scale = output->scale;
        made->offset = output->offset;
    }
}

enum trajd_status trajd_live_describe(const struct trajd_window_plan *plan, bool is_whole,
                                      struct trajd_arena *arena, struct trajd_document *document,
                                      struct trajd_error *error)
{
    struct trajd_live_choice choice;
    struct making m = {&choice, plan, arena, document, false};
    enum trajd_status status = trajd_live_choose(plan, is_whole, &choice, error);

    if (status)
        return status;
    *document = (struct trajd_document){
        .feed = plan->spec->feed_name,
        .dataset = plan->dataset->name,
        .fingerprint = print(&m, "%016" PRIx64, plan->fingerprint),
        .norm_digest = print(&m, "%016" PRIx64, trajd_window_norm_digest(plan)),
        .edge = plan->rules.edge,
        .has_anchor_clock = plan->rules.anchor_clock >= 0,
        .anchor_clock = plan->rules.anchor_clock >= 0
                            ? number_of(choice.clocks, (uint32_t)plan->rules.anchor_clock)
                            : 0,
        .anchor_rate_text = trajd_document_rate_text(arena, plan->rules.anchor_rate),
        .clock_count = choice.clock_count,
        .stream_count = choice.stream_count,
        .output_count = choice.output_count,
        .clocks = alloc(&m, choice.clock_count, sizeof *document->clocks),
        .streams = alloc(&m, choice.stream_count + 1, sizeof *document->streams),
        .outputs = alloc(&m, choice.output_count, sizeof *document->outputs)};
    make_left_out(&m);
    for (uint32_t c = 0; c < choice.clock_count && !m.is_starved; c++)
        make_clock(&m, c);
    for (uint32_t s = 0; s < choice.stream_count && !m.is_starved; s++)
        make_stream(&m, s);
    if (choice.needs_ticks && !m.is_starved)
        make_ticks(&m);
    for (uint32_t o = 0; o < choice.output_count && !m.is_starved; o++)
        make_output(&m, o);
    if (m.is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the document of a plan");
    return trajd_document_seal(document, arena, error);
}
