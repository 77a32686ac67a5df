/* Reads the outputs of a description: steps, sources, transform and scale. */
#include <float.h>
#include <math.h>

#include "clients/live/live_reader.h"
#include "kernels/element_convert.h"

static const char *const output_keys[] = {"name",  "role",  "hidden",  "dtype",     "shape",
                                          "from",  "rate",  "sources", "row_dtype", "chain",
                                          "state", "scale", "offset",  "picture",   NULL};
static const char *const source_keys[] = {
    "stream",     "columns",      "rule",   "lookahead_ns", "kind",    "max_gap_ns", "max_age_ns",
    "mean_width", "sum_width_ns", "period", "low",          "missing", NULL};
static const char *const kinds[] = {"linear",     "previous", "nearest", "slerp_xyzw",
                                    "slerp_wxyz", "angle",    "mean",    NULL};
static const char *const rules[] = {"rows", "anchors", "times", NULL};
static const char *const missing[] = {"error", "zero", "skip", NULL};

/* ---- sources ---- */

static void read_kind(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      struct trajd_stream *stream)
{
    stream->kind = (enum trajd_kind)trajd_live_read_word(reader, node, "kind", kinds);
    stream->max_gap_ns = trajd_live_read_int(reader, node, "max_gap_ns", INT64_MIN, INT64_MAX);
    stream->max_age_ns = trajd_live_read_int(reader, node, "max_age_ns", INT64_MIN, INT64_MAX);
    if (stream->kind == TRAJD_KIND_MEAN)
        stream->mean_width = trajd_live_read_int(reader, node, "mean_width", 1, TRAJD_LIVE_FAR_NS);
    if (stream->kind == TRAJD_KIND_ANGLE)
        stream->angle_period = trajd_live_read_number(reader, node, "period", 1e-300, 1e300);
    stream->angle_low = NAN;
    if (stream->kind == TRAJD_KIND_ANGLE && trajd_yaml_get(node, "low"))
        stream->angle_low = trajd_live_read_number(reader, node, "low", -1e300, 1e300);
    if (reader->status || !trajd_yaml_get(node, "sum_width_ns"))
        return;
    stream->total = TRAJD_TOTAL_STEP;
    stream->total_width = trajd_live_read_int(reader, node, "sum_width_ns", 1, TRAJD_LIVE_FAR_NS);
}

/* Connects a source to its stream. */
static void read_stream(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_live_source *source, struct trajd_stream *stream)
{
    struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *member = trajd_live_member(reader, node, "stream");

    source->input = -1;
    stream->source_type = TRAJD_F32;
    if (!member || trajd_live_is_null(member))
        return;
    source->input =
        (int32_t)trajd_live_read_int(reader, node, "stream", 0, (int64_t)live->input_count - 1);
    stream->source_type = live->inputs[source->input].dtype;
    live->inputs[source->input].may_lack &= source->may_lack;
    live->inputs[source->input].has_rows |= !live->outputs[source->output].is_picture;
    live->inputs[source->input].has_pictures |= live->outputs[source->output].is_picture;
    if (!reader->status && live->inputs[source->input].column_count != stream->feature_count)
        trajd_live_wrong(reader, node, "columns: the stream has another number");
    if (!reader->status && source->rule == TRAJD_LIVE_ROWS && !live->inputs[source->input].is_lead)
        trajd_live_wrong(reader, node, "rule: rows are those of the anchor's clock");
}

static void read_source(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_live_source *source, struct trajd_stream *stream)
{
    trajd_live_check_keys(reader, node, source_keys);
    stream->feature_count =
        (uint32_t)trajd_live_read_int(reader, node, "columns", 1, INT64_C(1) << 24);
    source->rule = (enum trajd_live_rule)trajd_live_read_word(reader, node, "rule", rules);
    source->lookahead_ns = trajd_live_read_int(reader, node, "lookahead_ns", 0, TRAJD_LIVE_FAR_NS);
    source->may_lack = trajd_live_read_word(reader, node, "missing", missing) == 1;
    stream->edge = reader->live->edge;
    read_kind(reader, node, stream);
    if (!reader->status)
        read_stream(reader, node, source, stream);
}

static void read_sources(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                         struct trajd_live_target *output)
{
    struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, node, "sources", 1, TRAJD_LIVE_MAX_SOURCES);

    output->first_source = live->source_count;
    for (const struct trajd_yaml_node *child = list ? list->children : NULL;
         child && !reader->status; child = child->next) {
        const uint32_t s = live->source_count++;
        live->sources[s].output = (uint32_t)(output - live->outputs);
        read_source(reader, child, &live->sources[s], &live->request_streams[s]);
        output->row_column_count += live->request_streams[s].feature_count;
        output->source_count++;
    }
}

/* ---- steps and scale ---- */

/* Refuses steps at stamps of anchors that are not known when the observation is built. */
static void check_steps(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        const struct trajd_live_target *output)
{
    const struct trajd_live *live = reader->live;
    const int64_t last = output->from + output->step_count - 1;

    if (last > 0 && !reader->status)
        reader->status = trajd_yaml_error(
            reader->yaml, node, reader->error,
            "output %s: its steps reach beyond the anchor, to rows that a robot does not have yet: "
            "end them at 0 in the feed, and save the description again",
            output->name);
    for (uint32_t s = output->first_source; s < live->source_count && !reader->status; s++) {
        if (live->sources[s].rule == TRAJD_LIVE_TIMES && !output->rate.num)
            trajd_live_wrong(reader, node, "rule: times need a rate");
        else if (live->sources[s].rule == TRAJD_LIVE_ANCHORS &&
                 !(output->rate.num && live->anchor_rate.num) && output->from < 0 &&
                 !live->lead_count)
            trajd_live_wrong(reader, node, "rule: the stamps of these anchors are not known");
    }
}

static float *read_floats(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                          const char *key, const struct trajd_live_target *output, uint32_t *steps)
{
    const uint64_t most = (uint64_t)output->step_count * output->column_count;
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, node, key, 1, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX);
    float *values = list ? trajd_live_alloc(reader, list->child_count, sizeof *values) : NULL;
    uint32_t i = 0;

    if (!values)
        return NULL;
    if (list->child_count != output->column_count &&
        (list->child_count != most || !output->transform))
        trajd_live_wrong(reader, list, "one number for each column is expected");
    *steps = list->child_count / output->column_count;
    for (const struct trajd_yaml_node *child = list->children; child && !reader->status;
         child = child->next) {
        double value = 0;
        reader->status = trajd_yaml_double(reader->yaml, child, -(double)FLT_MAX, (double)FLT_MAX,
                                           &value, reader->error);
        values[i++] = (float)value;
    }
    return values;
}

static void read_scale(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                       struct trajd_live_target *output)
{
    uint32_t steps = 1;

    output->norm_steps = 1;
    if (reader->status || !trajd_yaml_get(node, "scale"))
        return;
    output->scale = read_floats(reader, node, "scale", output, &output->norm_steps);
    output->offset = read_floats(reader, node, "offset", output, &steps);
    if (!reader->status && steps != output->norm_steps)
        trajd_live_wrong(reader, node, "scale and offset have different lengths");
}

/* Reads what an output is made of: rows as they are, or transformed ones. */
static void read_values(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_live_target *output)
{
    const struct trajd_yaml_node *chain = reader->status ? NULL : trajd_yaml_get(node, "chain");

    if (!reader->status && (chain || output->is_hidden))
        output->row_dtype = trajd_live_read_dtype(reader, node, "row_dtype");
    if (!reader->status && (chain || output->is_hidden) && output->row_dtype != TRAJD_F32 &&
        output->row_dtype != TRAJD_F64)
        trajd_live_wrong(reader, node, "row_dtype: f32 or f64 is expected");
    if (chain)
        output->transform = trajd_live_read_chain(reader, chain, output->row_column_count);
    if (!reader->status && output->is_hidden && chain)
        trajd_live_wrong(reader, node, "a hidden output has no chain");
    if (!reader->status &&
        output->column_count !=
            (output->transform ? output->transform->output_count : output->row_column_count))
        trajd_live_wrong(reader, node, "shape: another number of columns than the values have");
    if (!reader->status && output->transform && !trajd_dtype_is_float(output->dtype))
        trajd_live_wrong(reader, node, "dtype: transformed values are floating-point numbers");
    if (output->transform && output->transform->reference_count)
        output->state = (uint32_t)trajd_live_read_int(reader, node, "state",
                                                      (int64_t)(output - reader->live->outputs) + 1,
                                                      (int64_t)reader->live->output_count - 1);
}

/* Reads what all outputs have, without the sources. */
static void read_head(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      struct trajd_live_target *output)
{
    trajd_live_check_keys(reader, node, output_keys);
    output->name = trajd_live_read_text(reader, node, "name");
    output->is_hidden = trajd_live_read_bool(reader, node, "hidden");
    output->dtype = output->row_dtype = trajd_live_read_dtype(reader, node, "dtype");
    output->column_count =
        (uint32_t)trajd_live_read_shape(reader, node, 1, &output->rank, output->shape);
    if (!reader->status &&
        (!output->shape[0] || output->shape[0] > TRAJD_LIVE_MAX_STEPS || !output->column_count))
        trajd_live_wrong(reader, node, "shape: 1 to 65536 steps of at least one column");
    output->step_count = (uint32_t)output->shape[0];
    output->from = trajd_live_read_int(reader, node, "from", -(INT64_C(1) << 31), INT64_C(1) << 31);
    output->rate = trajd_live_read_rate(reader, node, "rate");
    output->is_picture = !reader->status && trajd_yaml_get(node, "picture");
    if (output->is_picture && output->is_hidden)
        trajd_live_wrong(reader, node, "a hidden output has no pictures");
}

static void read_rows(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      struct trajd_live_target *output)
{
    read_sources(reader, node, output);
    check_steps(reader, node, output);
    read_values(reader, node, output);
    if (!reader->status)
        read_scale(reader, node, output);
}

static void read_picture(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                         struct trajd_live_target *output)
{
    struct trajd_live *live = reader->live;
    struct trajd_live_picture *picture = &live->pictures[live->picture_count++];
    const struct trajd_live_source *source = &live->sources[live->source_count];
    const struct trajd_image_finish *finish = &picture->finish;

    picture->output = (uint32_t)(output - live->outputs);
    read_sources(reader, node, output);
    check_steps(reader, node, output);
    trajd_live_read_picture(reader, trajd_yaml_get(node, "picture"), picture);
    if (reader->status)
        return;
    picture->input = (uint32_t)source->input;
    if (output->source_count != 1 || source->input < 0)
        trajd_live_wrong(reader, node, "sources: a picture has one stream");
    else if (trajd_image_source_bytes(&picture->preparation) !=
                 (uint64_t)live->inputs[source->input].column_count *
                     trajd_dtype_size(picture->preparation.type) ||
             live->inputs[source->input].dtype != picture->preparation.type)
        trajd_live_wrong(reader, node, "picture: the stream has frames of another size or type");
    else if ((uint64_t)finish->height * finish->width * finish->channels != output->column_count ||
             finish->type != output->dtype)
        trajd_live_wrong(reader, node, "shape: another size or type than the finished frames have");
}

/* Checks the states, which come after the outputs that need them. */
static void check_states(struct trajd_live_reader *reader, const struct trajd_yaml_node *outputs)
{
    const struct trajd_live *live = reader->live;
    const struct trajd_yaml_node *node = outputs->children;

    for (uint32_t o = 0; o < live->output_count && !reader->status; o++, node = node->next) {
        const struct trajd_live_target *output = &live->outputs[o],
                                       *state = &live->outputs[output->state];
        if (output->is_hidden != (o >= live->visible_count))
            trajd_live_wrong(reader, node, "hidden outputs come last");
        else if (output->transform && output->transform->reference_count &&
                 (!state->is_hidden || state->step_count != 1 ||
                  state->row_column_count < output->transform->reference_count))
            trajd_live_wrong(reader, node, "state: a hidden output of one step is expected");
    }
}

void trajd_live_read_outputs(struct trajd_live_reader *reader,
                             const struct trajd_yaml_node *outputs)
{
    struct trajd_live *live = reader->live;
    const uint64_t most = (uint64_t)outputs->child_count * TRAJD_LIVE_MAX_SOURCES;
    const struct trajd_yaml_node *node;
    uint32_t o = 0;

    live->output_count = outputs->child_count;
    live->outputs = trajd_live_alloc(reader, live->output_count, sizeof *live->outputs);
    live->sources = trajd_live_alloc(reader, most, sizeof *live->sources);
    live->request_streams = trajd_live_alloc(reader, most, sizeof *live->request_streams);
    live->pictures = trajd_live_alloc(reader, live->output_count, sizeof *live->pictures);
    for (node = outputs->children; node && !reader->status; node = node->next, o++) {
        read_head(reader, node, &live->outputs[o]);
        live->visible_count += !live->outputs[o].is_hidden;
    }
    for (node = outputs->children, o = 0; node && !reader->status; node = node->next, o++)
        if (!live->outputs[o].is_picture)
            read_rows(reader, node, &live->outputs[o]);
    live->row_source_count = live->source_count;
    for (node = outputs->children, o = 0; node && !reader->status; node = node->next, o++)
        if (live->outputs[o].is_picture)
            read_picture(reader, node, &live->outputs[o]);
    if (!reader->status)
        check_states(reader, outputs);
    if (!reader->status && !live->visible_count)
        trajd_live_wrong(reader, outputs, "an observation has at least one output");
}
