/* Sizes and memory. Everything is allocated at open, so that no page is mapped later.
 *
 * A ring holds twice the rows of the longest window, of the history and of the latencies, counted
 * at the mean rate of the recordings: a sensor may be twice as fast. Frames it holds once. A row is
 * held for as long as no newer ones displace it, so max_age needs no rows of its own. */

#include "clients/live/live_reader.h"

#define MOST_ROWS (UINT64_C(1) << 24)
#define ALIGNMENT 64u

static uint32_t grid_of(const struct trajd_live_source *source)
{
    return 2 * source->output + (source->rule == TRAJD_LIVE_ROWS);
}

/* ---- steps ---- */

/* Returns whether a step lies within 2^61 ns, at the output's rate or at the anchors' mean interval. */
static bool is_near(const struct trajd_live *live, const struct trajd_live_target *output,
                    int64_t step)
{
    __int128 ns = 0;

    if (output->rate.num)
        ns = (__int128)step * 1000000000 * output->rate.den / output->rate.num;
    else if (live->anchor_clock >= 0)
        ns = (__int128)step * live->clocks[live->anchor_clock].interval_ns;
    return ns > -TRAJD_LIVE_FAR_NS && ns < TRAJD_LIVE_FAR_NS;
}

static void make_steps(struct trajd_live_reader *reader, struct trajd_live_target *output)
{
    const struct trajd_live *live = reader->live;
    const bool exact = output->rate.num && live->anchor_rate.num;

    output->step_ns = trajd_live_alloc(reader, output->step_count, sizeof *output->step_ns);
    output->step_fraction =
        trajd_live_alloc(reader, output->step_count, sizeof *output->step_fraction);
    output->row_offsets = trajd_live_alloc(reader, output->step_count, sizeof *output->row_offsets);
    output->offsets_ns = trajd_live_alloc(reader, output->step_count, sizeof *output->offsets_ns);
    if (!reader->status && !(is_near(live, output, output->from) &&
                             is_near(live, output, output->from + output->step_count)))
        reader->status = trajd_error_set(reader->error, TRAJD_ERR_ARGUMENT, 0,
                                         "output %s has steps beyond 2^61 ns", output->name);
    for (uint32_t t = 0; t < output->step_count && !reader->status; t++) {
        const int64_t step = output->from + t;
        output->row_offsets[t] = step;
        output->step_ns[t] = output->rate.num ? trajd_rate_row_ns(output->rate, step) : 0;
        output->step_fraction[t] =
            exact ? trajd_rate_fraction(output->rate, step) * (uint64_t)live->anchor_rate.num : 0;
    }
}

/* ---- rings ---- */

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Adds how far a source reads back. */
static void add_span(const struct trajd_live *live, uint32_t s)
{
    const struct trajd_live_source *source = &live->sources[s];
    const struct trajd_live_target *output = &live->outputs[source->output];
    const struct trajd_stream *stream = &live->request_streams[s];
    const int64_t back = output->from < 0 ? -output->from : 0;
    struct trajd_live_input *input = &live->inputs[source->input];
    __int128 span_ns = 0;

    if (source->rule == TRAJD_LIVE_ROWS)
        input->span_rows = largest(input->span_rows, back);
    else if (output->rate.num)
        span_ns = (__int128)back * 1000000000 * output->rate.den / output->rate.num + 1;
    else /* at the stamps of anchors, which may be twice as slow as on average */
        span_ns = 2 * (__int128)back * live->clocks[live->anchor_clock].interval_ns;
    if (stream->kind == TRAJD_KIND_MEAN && source->rule != TRAJD_LIVE_ROWS)
        span_ns += stream->mean_width;
    input->span_ns =
        largest(input->span_ns, span_ns < TRAJD_LIVE_FAR_NS ? (int64_t)span_ns : TRAJD_LIVE_FAR_NS);
}

/* All leads keep the rows of as many anchors as any output needs: live_anchor.c compares them. */
static void add_anchor_span(struct trajd_live *live)
{
    for (uint32_t s = 0; s < live->source_count && live->lead_count; s++) {
        const struct trajd_live_target *output = &live->outputs[live->sources[s].output];
        if (live->sources[s].rule == TRAJD_LIVE_ROWS || !output->rate.num)
            live->steps_back = largest(live->steps_back, -output->from);
    }
    for (uint32_t i = 0; i < live->input_count; i++)
        if (live->inputs[i].is_lead)
            live->inputs[i].span_rows = largest(live->inputs[i].span_rows, live->steps_back);
}

static int64_t latency_spread_ns(const struct trajd_live *live)
{
    int64_t low = INT64_MAX, high = INT64_MIN;

    for (uint32_t c = 0; c < live->clock_count; c++) {
        high = largest(high, live->clocks[c].latency_ns);
        low = -largest(-low, -live->clocks[c].latency_ns);
    }
    return high - low;
}

static void make_ring(struct trajd_live_reader *reader, struct trajd_live_input *input)
{
    const struct trajd_live *live = reader->live;
    const int64_t interval_ns = live->clocks[input->clock].interval_ns;
    const __int128 span_ns = (__int128)input->span_ns + latency_spread_ns(live) + live->history_ns;
    const __int128 rows = span_ns / interval_ns + input->span_rows + 2;
    struct trajd_live_ring *ring = &input->ring;

    if (rows > (__int128)MOST_ROWS) {
        reader->status = trajd_error_set(
            reader->error, TRAJD_ERR_MEMORY, 0,
            "stream %s: the window and the history hold more than 2^24 rows", input->name);
        return;
    }
    /* a quarter of it is left to the writer (live_ring.c); cameras keep to their rate */
    for (ring->capacity = input->has_pictures ? 8 : 64;
         ring->capacity * 3 / 4 < (input->has_pictures ? 1 : 2) * (uint64_t)rows;)
        ring->capacity *= 2;
    ring->row_bytes =
        input->has_rows ? (size_t)input->column_count * trajd_dtype_size(input->dtype) : 0;
    ring->row_words = (uint32_t)((ring->row_bytes + 7) / 8);
    ring->words = trajd_live_alloc(reader, ring->capacity, (1 + (uint64_t)ring->row_words) * 8);
    input->stamps_ns = trajd_live_alloc(reader, ring->capacity, sizeof *input->stamps_ns);
    input->rows = trajd_live_alloc(reader, ring->capacity, (uint64_t)ring->row_words * 8 + 8);
}

/* ---- the observation and the request ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_output(struct trajd_live_reader *reader, struct trajd_live_target *output)
{
    struct trajd_live *live = reader->live;
    const uint64_t steps = output->step_count;

    output->size_bytes = steps * output->column_count * trajd_dtype_size(output->dtype);
    if (output->transform || output->is_hidden)
        output->rows = trajd_live_alloc(reader, steps * output->row_column_count,
                                        trajd_dtype_size(output->row_dtype));
    if (output->is_hidden) {
        output->row_mask = trajd_live_alloc(reader, steps, 1);
        return;
    }
    output->offset_bytes = live->size_bytes;
    output->mask_offset_bytes = aligned(output->offset_bytes + output->size_bytes);
    live->size_bytes = aligned(output->mask_offset_bytes + steps);
}

static void make_source(struct trajd_live *live, uint32_t s, uint32_t column)
{
    struct trajd_live_source *source = &live->sources[s];
    const struct trajd_live_target *output = &live->outputs[source->output];
    struct trajd_stream *stream = &live->request_streams[s];
    const uint64_t element = trajd_dtype_size(output->row_dtype);

    live->request_brackets[s] = (struct trajd_bracket){
        .clock_index = source->input < 0 ? live->input_count : (uint32_t)source->input,
        .grid_index = grid_of(source),
        .row_begin = &source->row_begin,
        .row_count = &source->row_count,
        .anchor = &source->anchor};
    stream->bracket_index = s;
    stream->row_stride_bytes = source->input < 0
                                   ? (uint64_t)stream->feature_count * sizeof(float)
                                   : (uint64_t)live->inputs[source->input].ring.row_words * 8;
    stream->bases = &source->base;
    stream->mean_width = stream->kind == TRAJD_KIND_MEAN ? stream->mean_width : 1;
    stream->scale = output->scale && !output->transform ? output->scale + column : NULL;
    stream->offset = output->scale && !output->transform ? output->offset + column : NULL;
    stream->output_type = output->row_dtype;
    stream->step_stride_bytes = output->row_column_count * element;
    stream->window_stride_bytes = stream->step_stride_bytes * output->step_count;
    stream->mask_window_stride_bytes = output->step_count;
    stream->mask_joins_previous = column > 0;
}

static const int64_t no_stamps[1];

static void make_request(struct trajd_live_reader *reader)
{
    struct trajd_live *live = reader->live;

    live->request_clocks =
        trajd_live_alloc(reader, live->input_count + 1, sizeof *live->request_clocks);
    live->request_grids =
        trajd_live_alloc(reader, 2 * (uint64_t)live->output_count, sizeof *live->request_grids);
    live->request_brackets =
        trajd_live_alloc(reader, live->source_count, sizeof *live->request_brackets);
    if (reader->status)
        return;
    for (uint32_t i = 0; i <= live->input_count; i++)
        live->request_clocks[i].stamps_ns =
            i < live->input_count ? live->inputs[i].stamps_ns : no_stamps;
    for (uint32_t o = 0; o < live->output_count; o++) {
        const struct trajd_live_target *output = &live->outputs[o];
        uint32_t column = 0;
        live->request_grids[2 * o] = (struct trajd_grid){
            .unit = TRAJD_GRID_NS, .step_count = output->step_count, .offsets = output->offsets_ns};
        live->request_grids[2 * o + 1] = (struct trajd_grid){.unit = TRAJD_GRID_ROWS,
                                                             .step_count = output->step_count,
                                                             .offsets = output->row_offsets};
        for (uint32_t s = output->first_source; s < output->first_source + output->source_count;
             s++) {
            make_source(live, s, column);
            column += live->request_streams[s].feature_count;
        }
    }
    live->request = (struct trajd_resample_request){.window_count = 1,
                                                    .clock_count = live->input_count + 1,
                                                    .grid_count = 2 * live->output_count,
                                                    .bracket_count = live->source_count,
                                                    .stream_count = live->row_source_count,
                                                    .clocks = live->request_clocks,
                                                    .grids = live->request_grids,
                                                    .brackets = live->request_brackets,
                                                    .streams = live->request_streams};
    reader->status = trajd_resample_check_shape(&live->request, reader->error);
}

enum trajd_status trajd_live_allocate(struct trajd_live *live, struct trajd_error *error)
{
    struct trajd_live_reader reader = {.live = live, .yaml = live->yaml, .error = error};

    for (uint32_t s = 0; s < live->source_count; s++)
        if (live->sources[s].input >= 0)
            add_span(live, s);
    add_anchor_span(live);
    for (uint32_t i = 0; i < live->input_count && !reader.status; i++)
        make_ring(&reader, &live->inputs[i]);
    live->anchors_ns =
        trajd_live_alloc(&reader, (uint64_t)live->steps_back + 1, sizeof *live->anchors_ns);
    for (uint32_t o = 0; o < live->output_count && !reader.status; o++) {
        make_steps(&reader, &live->outputs[o]);
        if (!reader.status)
            place_output(&reader, &live->outputs[o]);
    }
    if (!reader.status)
        make_request(&reader);
    for (uint32_t p = 0; p < live->picture_count && !reader.status; p++)
        reader.status = trajd_live_picture_open(live, &live->pictures[p], error);
    return reader.status;
}
