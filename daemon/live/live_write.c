/* Writes a live description. */
#include <inttypes.h>
#include <math.h>

#include "daemon/live/live_internal.h"

static const char *const edges[TRAJD_EDGE_COUNT] = {"edge", "zero", "nan"};
static const char *const kinds[TRAJD_KIND_COUNT] = {
    "linear", "previous", "nearest", "slerp_xyzw", "slerp_wxyz", "angle", "mean"};
static const char *const rules[] = {"rows", "anchors", "times"};
static const char *const missing[] = {"error", "zero", "skip"};

static uint32_t number_of(const uint32_t *list, uint32_t value)
{
    uint32_t i = 0;

    while (list[i] != value)
        i++;
    return i;
}

static void write_rate(const char *key, struct trajd_rate rate, struct trajd_json *json)
{
    if (rate.num)
        trajd_json_format(json, key, "%" PRId64 "/%" PRId64, rate.num, rate.den);
    else
        trajd_json_null(json, key);
}

static void write_shape(const struct trajd_plan_output *output, struct trajd_json *json)
{
    trajd_json_open_array(json, "shape");
    trajd_json_u64(json, NULL, output->step_count);
    for (uint32_t i = 0; i < output->rank; i++)
        trajd_json_u64(json, NULL, output->shape[i]);
    trajd_json_close_array(json);
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

static void write_clock(const struct trajd_window_plan *plan, uint32_t clock,
                        struct trajd_json *json)
{
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_layout_clock *layout = &index->layout->clocks[clock];
    const int64_t row_ns = interval_ns(plan, clock);

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", index->clocks[clock].name);
    write_rate("rate", plan->dataset->clock_rates[clock], json);
    if (row_ns)
        trajd_json_i64(json, "interval_ns", row_ns);
    else
        trajd_json_null(json, "interval_ns");
    /* the index has checked that it fits 64 bits */
    trajd_json_i64(json, "shift_ns", layout->offset_ns - layout->latency_ns);
    trajd_json_i64(json, "latency_ns", layout->latency_ns);
    trajd_json_close_object(json);
}

/* Writes what turns an encoded frame upright, for streams whose files have encoded frames. */
static void write_encoded(const struct trajd_index_stream *source, struct trajd_json *json)
{
    const struct trajd_layout_image *image = &source->image;

    if (source->form == TRAJD_ROWS_PLAIN || image->encoding == TRAJD_PICTURE_RAW)
        return;
    trajd_json_open_object(json, "encoded");
    trajd_json_string(json, "encoding", trajd_picture_encoding_name(image->encoding));
    trajd_json_string(json, "color", trajd_picture_color_name(image->color));
    trajd_json_string(json, "flip", trajd_picture_flip_name(image->flip));
    trajd_json_close_object(json);
}

static void write_stream(const struct trajd_live_choice *choice, uint32_t stream,
                         struct trajd_json *json)
{
    const struct trajd_index_stream *source = &choice->plan->dataset->index->streams[stream];

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", source->name);
    trajd_json_u64(json, "clock", number_of(choice->clocks, source->clock_index));
    trajd_json_string(json, "dtype", trajd_dtype_name(source->dtype));
    trajd_json_open_array(json, "shape");
    for (uint32_t i = 0; i < source->rank; i++)
        trajd_json_u64(json, NULL, source->shape[i]);
    trajd_json_close_array(json);
    write_encoded(source, json);
    trajd_json_close_object(json);
}

/* Writes the clock of the anchors as a stream without columns: rows of it are stamps alone. */
static void write_ticks(const struct trajd_live_choice *choice, struct trajd_json *json)
{
    const uint32_t clock = (uint32_t)choice->plan->anchor_clock;

    trajd_json_open_object(json, NULL);
    trajd_json_format(json, "name", "clock:%s", choice->plan->dataset->index->clocks[clock].name);
    trajd_json_u64(json, "clock", number_of(choice->clocks, clock));
    trajd_json_string(json, "dtype", "u8");
    trajd_json_open_array(json, "shape");
    trajd_json_u64(json, NULL, 0);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}

static void write_left_out(const struct trajd_window_plan *plan, struct trajd_json *json)
{
    trajd_json_open_array(json, "left_out");
    for (uint32_t o = 0; o < plan->visible_count; o++) {
        const char *reason = trajd_live_left_out(plan, o);
        if (!reason)
            continue;
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "name", plan->outputs[o].name);
        trajd_json_string(json, "role", trajd_role_name(plan->outputs[o].role));
        trajd_json_string(json, "dtype", trajd_dtype_name(plan->outputs[o].dtype));
        write_shape(&plan->outputs[o], json);
        trajd_json_string(json, "reason", reason);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

void trajd_live_write_head(const struct trajd_live_choice *choice, struct trajd_json *json)
{
    const struct trajd_window_plan *plan = choice->plan;

    trajd_json_u64(json, "trajd_live", TRAJD_LIVE_VERSION);
    trajd_json_string(json, "feed", plan->spec->feed_name);
    trajd_json_string(json, "dataset", plan->dataset->name);
    trajd_json_format(json, "fingerprint", "%016" PRIx64, plan->fingerprint);
    trajd_json_format(json, "norm_digest", "%016" PRIx64, trajd_window_norm_digest(plan));
    trajd_json_string(json, "pad", edges[plan->spec->edge]);
    if (plan->anchor_clock >= 0)
        trajd_json_u64(json, "anchor_clock",
                       number_of(choice->clocks, (uint32_t)plan->anchor_clock));
    else
        trajd_json_null(json, "anchor_clock");
    write_rate("anchor_rate", plan->anchor_rate, json);
    trajd_json_open_array(json, "clocks");
    for (uint32_t c = 0; c < choice->clock_count; c++)
        write_clock(plan, choice->clocks[c], json);
    trajd_json_close_array(json);
    trajd_json_open_array(json, "streams");
    for (uint32_t s = 0; s < choice->stream_count; s++)
        write_stream(choice, choice->streams[s], json);
    if (choice->needs_ticks)
        write_ticks(choice, json);
    trajd_json_close_array(json);
    write_left_out(plan, json);
}

/* ---- outputs ---- */

static void write_source(const struct trajd_live_choice *choice, uint32_t t,
                         struct trajd_json *json)
{
    const struct trajd_plan_target *target = &choice->plan->targets[t];
    const struct trajd_stream *stream = &choice->plan->streams[t];
    const struct trajd_plan_bracket *bracket = &choice->plan->brackets[target->bracket_index];

    trajd_json_open_object(json, NULL);
    if (target->stream_index == TRAJD_PLAN_ABSENT)
        trajd_json_null(json, "stream");
    else
        trajd_json_u64(json, "stream", number_of(choice->streams, target->stream_index));
    trajd_json_u64(json, "columns", stream->feature_count);
    trajd_json_string(json, "rule", rules[choice->plan->grids[bracket->grid_index].rule]);
    trajd_json_i64(json, "lookahead_ns", bracket->lookahead_ns);
    trajd_json_string(json, "kind", kinds[stream->kind]);
    trajd_json_i64(json, "max_gap_ns", stream->max_gap_ns);
    trajd_json_i64(json, "max_age_ns", stream->max_age_ns);
    if (stream->kind == TRAJD_KIND_MEAN)
        trajd_json_i64(json, "mean_width", stream->mean_width);
    if (stream->total == TRAJD_TOTAL_STEP)
        trajd_json_i64(json, "sum_width_ns", stream->total_width);
    if (stream->kind == TRAJD_KIND_ANGLE)
        trajd_json_number(json, "period", "%.17g", stream->angle_period);
    if (stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low))
        trajd_json_number(json, "low", "%.17g", stream->angle_low);
    trajd_json_string(json, "missing", missing[target->missing]);
    trajd_json_close_object(json);
}

static void write_floats(const char *key, const float *values, uint64_t count,
                         struct trajd_json *json)
{
    trajd_json_open_array(json, key);
    for (uint64_t i = 0; i < count; i++)
        trajd_json_number(json, NULL, "%.9g", (double)values[i]);
    trajd_json_close_array(json);
}

void trajd_live_write_output(const struct trajd_live_choice *choice, uint32_t number,
                             struct trajd_json *json)
{
    const struct trajd_window_plan *plan = choice->plan;
    const uint32_t o = choice->outputs[number];
    const struct trajd_plan_output *output = &plan->outputs[o];
    const struct trajd_plan_grid *grid = trajd_live_grid(plan, o);
    const struct trajd_plan_picture *picture = trajd_live_picture(plan, o);

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", output->name);
    trajd_json_string(json, "role", trajd_role_name(output->role));
    trajd_json_bool(json, "hidden", output->is_hidden);
    if (picture) {
        trajd_live_write_picture_shape(output, &picture->finish, json);
    } else {
        trajd_json_string(json, "dtype", trajd_dtype_name(output->dtype));
        write_shape(output, json);
    }
    trajd_json_i64(json, "from", grid->from);
    write_rate("rate", grid->rate, json);
    trajd_json_open_array(json, "sources");
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (plan->targets[t].output_index == o)
            write_source(choice, t, json);
    trajd_json_close_array(json);
    if (picture)
        trajd_live_write_picture(picture, json);
    if (output->transform || output->is_hidden)
        trajd_json_string(json, "row_dtype", trajd_dtype_name(output->row_dtype));
    if (output->transform)
        trajd_chain_write(output->transform, json);
    if (output->transform && output->transform->reference_count)
        trajd_json_u64(json, "state", number_of(choice->outputs, output->reference_output));
    if (output->scale) {
        write_floats("scale", output->scale, trajd_plan_norm_count(output), json);
        write_floats("offset", output->offset, trajd_plan_norm_count(output), json);
    }
    trajd_json_close_object(json);
}
