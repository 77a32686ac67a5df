/* A document as JSON, and the rules that follow from it. */
#include "daemon/engine/document.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/engine/document_tables.h"
#include "kernels/element_convert.h"

/* ---- writing ---- */

const char *trajd_document_rate_text(struct trajd_arena *arena, struct trajd_rate rate)
{
    char text[TRAJD_DOCUMENT_RATE_SIZE];

    if (!rate.num)
        return NULL;
    snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, (int64_t)rate.num, (int64_t)rate.den);
    return trajd_arena_copy(arena, text, strlen(text));
}

void trajd_document_set_chain(const struct trajd_transform *transform,
                              struct trajd_document_chain *chain)
{
    *chain = (struct trajd_document_chain){.frame = transform->frame,
                                           .step = transform->from_step_before,
                                           .columns = transform->column_count,
                                           .output_columns = transform->output_count,
                                           .reference_columns = transform->reference_count,
                                           .part_count = transform->part_count};
    for (uint32_t p = 0; p < transform->part_count; p++) {
        const struct trajd_transform_part *part = &transform->parts[p];
        const bool is_rotation = part->kind == TRAJD_PART_ROTATION;
        chain->parts[p] = (struct trajd_document_part){
            .kind = part->kind,
            .is_relative = part->is_relative,
            .has_turned_by = part->turned_by >= 0,
            .first = part->first,
            .count = part->count,
            .output_first = part->output_first,
            .output_count = part->output_count,
            .reference_first = part->reference_first,
            .turned_by = part->turned_by >= 0 ? (uint32_t)part->turned_by : 0,
            .period = part->kind == TRAJD_PART_ANGLE ? part->period : 0,
            .from = is_rotation ? trajd_rotation_name(part->from) : NULL,
            .to = is_rotation ? trajd_rotation_name(part->to) : NULL,
            .reference_form = is_rotation && part->is_relative
                                  ? trajd_rotation_name(part->reference_form)
                                  : NULL};
    }
}

enum { DIGEST_SIZE = 17 };

/* Writes the digest of a document, without its own text and the mark of a page. */
static enum trajd_status find_digest(const struct trajd_document *document, char text[DIGEST_SIZE],
                                     struct trajd_error *error)
{
    struct trajd_document plain = *document;
    struct trajd_bytes bytes = {0};
    enum trajd_status status;

    plain.digest = NULL;
    plain.next = 0;
    status = trajd_codec_encode(&trajd_document_table, &plain, &bytes, error);
    if (!status)
        snprintf(text, DIGEST_SIZE, "%016" PRIx64, trajd_digest_of(bytes.data, bytes.length));
    trajd_bytes_free(&bytes);
    return status;
}

enum trajd_status trajd_document_seal(struct trajd_document *document, struct trajd_arena *arena,
                                      struct trajd_error *error)
{
    char text[DIGEST_SIZE];
    enum trajd_status status;

    document->version = TRAJD_DOCUMENT_VERSION;
    status = find_digest(document, text, error);
    if (status)
        return status;
    document->digest = trajd_arena_copy(arena, text, sizeof text - 1);
    return document->digest ? TRAJD_OK : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory");
}

bool trajd_document_write_head(const struct trajd_document *document, struct trajd_json *json)
{
    struct trajd_document head = *document;
    struct trajd_bytes bytes = {0};
    bool is_written;

    head.outputs = NULL;
    is_written = !trajd_codec_encode(&trajd_document_table, &head, &bytes, NULL) &&
                 trajd_json_unpack_members(json, bytes.data, bytes.length);
    trajd_bytes_free(&bytes);
    return is_written;
}

bool trajd_document_write_output(const struct trajd_document_output *output,
                                 struct trajd_json *json)
{
    struct trajd_bytes bytes = {0};
    const bool is_written =
        !trajd_codec_encode(&trajd_document_output_table, output, &bytes, NULL) &&
        trajd_json_unpack(json, NULL, bytes.data, bytes.length);

    trajd_bytes_free(&bytes);
    return is_written;
}

/* ---- reading ---- */

struct reading {
    const struct trajd_document *document;
    struct trajd_arena *arena;
    struct trajd_plan_rules *rules;
    struct trajd_error *error;
};

static enum trajd_status wrong(const struct reading *r, const struct trajd_document_output *output,
                               const char *rule)
{
    return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "output %s: %s", output->name, rule);
}

static const char *check_streams(const struct trajd_document *document)
{
    for (uint32_t s = 0; s < document->stream_count; s++) {
        if (document->streams[s].clock >= document->clock_count)
            return "streams: a clock is not in the list";
        for (uint32_t other = 0; other < s; other++)
            if (strcmp(document->streams[other].name, document->streams[s].name) == 0)
                return "streams: two have the same name";
    }
    return NULL;
}

static enum trajd_status check_document(const char *name, const struct trajd_document *document,
                                        struct trajd_error *error)
{
    char digest[DIGEST_SIZE];
    const char *rule = NULL;

    if (!document->clock_count || !document->stream_count)
        rule = "clocks and streams: lists of 1 to 257 are expected";
    else if (!document->output_count)
        rule = "outputs: one at least is expected";
    else if (document->has_anchor_clock && document->anchor_clock >= document->clock_count)
        rule = "anchor_clock: it is not in the list";
    else if (document->version > 1 && !document->digest)
        rule = "digest: missing";
    else
        rule = check_streams(document);
    if (!rule && document->digest) {
        const enum trajd_status status = find_digest(document, digest, error);
        if (status)
            return status;
        if (strcmp(digest, document->digest) != 0)
            rule = "digest: the description was changed after it was written: fetch it again";
    }
    return rule ? trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: %s", name, rule) : TRAJD_OK;
}

enum trajd_status trajd_document_read(const char *name, const char *text, size_t size,
                                      struct trajd_arena *arena, struct trajd_document *document,
                                      struct trajd_error *error)
{
    struct trajd_bytes bytes = {0};
    enum trajd_status status = trajd_json_pack(name, text, size, &bytes, error);

    memset(document, 0, sizeof *document);
    if (!status) {
        status = trajd_arena_decode(arena, &trajd_document_table, bytes.data, bytes.length,
                                    document, NULL, error);
        if (status == TRAJD_ERR_PROTOCOL)
            status = TRAJD_ERR_ARGUMENT;
        if (status) {
            if (error)
                error->status = status;
            trajd_error_prefix(error, "%s", name);
        }
    }
    trajd_bytes_free(&bytes);
    return status ? status : check_document(name, document, error);
}

/* ---- rules ---- */

static void *alloc(const struct reading *r, uint64_t count, uint64_t size)
{
    void *memory = trajd_arena_alloc(r->arena, (size_t)(count * size));

    if (!memory)
        trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for the rules of an observation");
    return memory;
}

static enum trajd_rotation_form form_of(const char *name)
{
    return name ? trajd_rotation_parse(name) : TRAJD_ROTATION_NONE;
}

/* Makes the next part. Parts follow one another. */
static enum trajd_status make_part(const struct reading *r,
                                   const struct trajd_document_output *output,
                                   const struct trajd_document_part *made,
                                   struct trajd_transform *transform)
{
    struct trajd_transform_part *part = &transform->parts[transform->part_count++];
    const bool is_rotation = made->kind == TRAJD_PART_ROTATION;
    uint32_t origin = made->count;

    *part = (struct trajd_transform_part){
        .kind = made->kind,
        .is_relative = made->is_relative,
        .first = made->first,
        .count = made->count,
        .output_first = made->output_first,
        .output_count = made->output_count,
        .reference_first = made->reference_first,
        .origin_first = made->is_relative ? transform->origin_count : 0,
        .period = made->period,
        .from = form_of(made->from),
        .to = form_of(made->to),
        .reference_form = form_of(made->reference_form),
        .turned_by = made->has_turned_by ? (int32_t)made->turned_by : -1};
    if (part->first != transform->column_count || part->output_first != transform->output_count ||
        part->first + part->count > TRAJD_TRANSFORM_MAX_COLUMNS ||
        part->output_first + part->output_count > TRAJD_TRANSFORM_MAX_COLUMNS)
        return wrong(r, output, "chain: parts follow one another, up to 1024 columns");
    if (is_rotation && (!part->from || !part->to || (part->is_relative && !part->reference_form)))
        return wrong(r, output, "chain: there is no such form of a rotation");
    if (is_rotation && (part->count != trajd_rotation_width(part->from) ||
                        part->output_count != trajd_rotation_width(part->to)))
        return wrong(r, output, "chain: a rotation has another number of columns");
    if (!is_rotation && part->output_count != part->count)
        return wrong(r, output, "chain: a part without a rotation keeps its columns");
    if (part->kind == TRAJD_PART_ANGLE && !(part->period >= 1e-300 && part->period <= 1e300))
        return wrong(r, output, "chain: period: a number above 0 is expected");
    if (is_rotation && part->is_relative)
        origin = trajd_rotation_width(part->reference_form);
    if (part->is_relative && part->reference_first + origin > transform->reference_count)
        return wrong(r, output, "chain: the state has fewer columns");
    if (part->is_relative)
        transform->origin_count += is_rotation ? 4 : part->count;
    transform->column_count += part->count;
    transform->output_count += part->output_count;
    return TRAJD_OK;
}

/* Checks a position that is turned by the rotation of any other part. */
static enum trajd_status check_turn(const struct reading *r,
                                    const struct trajd_document_output *output, uint32_t p)
{
    const struct trajd_document_part *parts = output->chain->parts, *part = &parts[p];

    if (!part->has_turned_by)
        return TRAJD_OK;
    if (part->turned_by >= output->chain->part_count || part->kind != TRAJD_PART_PLAIN ||
        part->count != 3 || !part->is_relative ||
        parts[part->turned_by].kind != TRAJD_PART_ROTATION || !parts[part->turned_by].is_relative)
        return wrong(r, output, "chain: turned_by: a relative position and a relative rotation");
    return TRAJD_OK;
}

static enum trajd_status make_transform(const struct reading *r,
                                        const struct trajd_document_output *output,
                                        struct trajd_plan_output *out)
{
    const struct trajd_document_chain *chain = output->chain;
    struct trajd_transform *transform = alloc(r, 1, sizeof *transform);
    enum trajd_status status = TRAJD_OK;

    if (!transform)
        return TRAJD_ERR_MEMORY;
    out->transform = transform;
    transform->frame = chain->frame;
    transform->from_step_before = chain->step;
    transform->reference_count = chain->reference_columns;
    for (uint32_t p = 0; p < chain->part_count && !status; p++)
        status = make_part(r, output, &chain->parts[p], transform);
    for (uint32_t p = 0; p < chain->part_count && !status; p++)
        status = check_turn(r, output, p);
    if (status)
        return status;
    if (!chain->part_count || transform->column_count != out->row_feature_count ||
        chain->columns != transform->column_count ||
        chain->output_columns != transform->output_count)
        return wrong(r, output, "chain: columns: the sources or the parts have another number");
    if (transform->origin_count && !transform->reference_count)
        return wrong(r, output, "chain: reference_columns: a relative part needs a state");
    if (!trajd_dtype_is_float(out->dtype))
        return wrong(r, output, "dtype: transformed values are floating-point numbers");
    return TRAJD_OK;
}

static enum trajd_status make_image(const struct reading *r,
                                    const struct trajd_document_output *output,
                                    struct trajd_plan_output *out)
{
    struct trajd_plan_image *image = &r->rules->images[r->rules->image_count++];
    const struct trajd_image_preparation *made = &output->image->preparation;
    const struct trajd_image_finish *finish = &output->image->finish;
    const struct trajd_document_stream *stream = &r->document->streams[output->sources->stream];
    const struct trajd_augment_frame frame = {made->height, made->width, made->channels,
                                              made->type};
    uint32_t height = made->height, width = made->width;
    enum trajd_status status = trajd_image_check(made, r->error);

    if (!status)
        status = trajd_image_finish_check(finish, r->error);
    if (!status && output->image->augment.count)
        status = trajd_augment_check(&output->image->augment, &frame, &height, &width, r->error);
    if (status)
        return trajd_error_prefix(r->error, "output %s: image", output->name);
    *image = (struct trajd_plan_image){*made, output->image->augment, *finish, *finish};
    if (made->is_bgr && (made->channels != 3 || made->type != TRAJD_U8))
        return wrong(r, output, "image: is_bgr: three channels of u8 are expected");
    if (height != finish->height || width != finish->width || made->channels != finish->channels ||
        made->type != finish->source)
        return wrong(r, output, "image: finish: prepared frames have another size or type");
    if (output->is_hidden || output->chain || output->scale)
        return wrong(r, output, "image: hidden, chain and scale are for rows");
    if (output->source_count != 1 || !output->sources->has_stream)
        return wrong(r, output, "sources: an image has one stream");
    if (trajd_image_source_bytes(made) !=
            (uint64_t)output->sources->columns * trajd_dtype_size(made->type) ||
        stream->dtype != made->type)
        return wrong(r, output, "image: the stream has frames of another size or type");
    if ((uint64_t)finish->height * finish->width * finish->channels != out->feature_count ||
        finish->type != out->dtype)
        return wrong(r, output, "shape: another size or type than the finished frames have");
    return TRAJD_OK;
}

static uint64_t columns_of(const struct trajd_document_stream *stream)
{
    uint64_t columns = 1;

    for (uint32_t i = 0; i < stream->rank; i++)
        columns *= stream->shape[i];
    return columns;
}

/* Finds the grid of a source. At the anchors' own rate, and at another one, steps lie at the same
 * offsets by either rule. */
static enum trajd_status find_grid(const struct reading *r,
                                   const struct trajd_document_output *output,
                                   const struct trajd_document_source *source, uint32_t *grid_index)
{
    const struct trajd_document *document = r->document;
    const struct trajd_plan_grid grid = {
        .rule = source->rule == TRAJD_TARGET_ANCHOR_STEPS && output->rate.num ? TRAJD_TARGET_OFFSETS
                                                                              : source->rule,
        .from = output->from,
        .step_count = (uint32_t)output->shape[0],
        .rate = output->rate};

    if (source->rule == TRAJD_TARGET_OFFSETS && !output->rate.num)
        return wrong(r, output, "rule: times need a rate");
    if (source->rule == TRAJD_TARGET_ANCHOR_STEPS && !output->rate.num &&
        (document->anchor_rate.num || !document->has_anchor_clock))
        return wrong(r, output, "rate: missing, although the anchors have one");
    if (!trajd_rules_find_grid(r->rules, &grid, 1, grid_index))
        return TRAJD_OK;
    return trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for the steps of output %s",
                           output->name);
}

static enum trajd_status make_target(const struct reading *r, uint32_t o,
                                     const struct trajd_document_source *source)
{
    const struct trajd_document *document = r->document;
    const struct trajd_document_output *output = &document->outputs[o];
    const struct trajd_document_stream *stream =
        source->has_stream ? &document->streams[source->stream] : NULL;
    struct trajd_plan_target *target = &r->rules->targets[r->rules->target_count++];
    struct trajd_plan_bracket bracket = {
        .clock_index = source->has_stream ? source->stream : document->stream_count + 1,
        .clipped = output->role == TRAJD_ROLE_OBS || output->role == TRAJD_ROLE_GOAL,
        .too_old_intervals = source->too_old_intervals,
        .in_chunk = source->in_chunk,
        .lookahead_ns = source->lookahead_ns,
        .array_index = -1};
    enum trajd_status status;

    if (source->has_stream && source->stream >= document->stream_count)
        return wrong(r, output, "stream: it is not in the list");
    if (stream && columns_of(stream) != source->columns)
        return wrong(r, output, "columns: the stream has another number");
    if (stream && source->rule == TRAJD_TARGET_ROWS &&
        !(document->has_anchor_clock && stream->clock == document->anchor_clock))
        return wrong(r, output, "rule: rows are those of the anchor's clock");
    if (source->too_old_intervals && !document->has_anchor_clock)
        return wrong(r, output, "too_old_intervals: the anchors have no clock");
    status = find_grid(r, output, source, &bracket.grid_index);
    if (status)
        return status;
    *target = (struct trajd_plan_target){
        .output_index = o,
        .stream_index = source->has_stream ? source->stream : TRAJD_PLAN_ABSENT,
        .bracket_index = trajd_rules_find_bracket(r->rules, &bracket, false),
        .entry = TRAJD_PLAN_ABSENT,
        .missing = source->missing,
        .is_filled = source->is_filled,
        .stream = {.kind = source->kind,
                   .source_type = stream ? stream->dtype : TRAJD_F32,
                   .feature_count = source->columns,
                   .row_stride_bytes = (uint64_t)source->columns * sizeof(float),
                   .max_gap_ns = source->max_gap_ns,
                   .max_age_ns = source->max_age_ns,
                   .mean_width = source->kind == TRAJD_KIND_MEAN ? source->mean_width : 1,
                   .total = source->sum_width_ns ? TRAJD_TOTAL_STEP
                            : source->is_return  ? TRAJD_TOTAL_REST
                                                 : TRAJD_TOTAL_NONE,
                   .total_width = source->sum_width_ns,
                   .total_gamma = source->gamma,
                   .angle_period = source->period,
                   .angle_low = source->has_low ? source->low : NAN}};
    return TRAJD_OK;
}

static enum trajd_status make_norm(const struct reading *r,
                                   const struct trajd_document_output *output,
                                   struct trajd_plan_output *out)
{
    const uint64_t all = out->feature_count * out->step_count;

    out->norm_step_count = 1;
    if (!output->scale)
        return TRAJD_OK;
    if (!output->offset || (output->norm_count != out->feature_count &&
                            (output->norm_count != all || !out->transform)))
        return wrong(r, output, "scale: one number for each column is expected");
    for (uint32_t i = 0; i < output->norm_count; i++)
        if (!isfinite(output->scale[i]) || !isfinite(output->offset[i]))
            return wrong(r, output, "scale: a number is not finite");
    out->norm_step_count = output->norm_count == out->feature_count ? 1 : out->step_count;
    out->scale = output->scale;
    out->offset = output->offset;
    return TRAJD_OK;
}

static enum trajd_status make_output(const struct reading *r, uint32_t o)
{
    const struct trajd_document_output *output = &r->document->outputs[o];
    struct trajd_plan_output *out = &r->rules->outputs[o];
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < output->source_count && !status; s++) {
        status = make_target(r, o, &output->sources[s]);
        out->row_feature_count += output->sources[s].columns;
    }
    if (status || output->image)
        return status ? status : make_image(r, output, out);
    if (output->chain || output->is_hidden)
        out->row_dtype = output->row_dtype;
    if ((output->chain || output->is_hidden) && out->row_dtype != TRAJD_F32 &&
        out->row_dtype != TRAJD_F64)
        return wrong(r, output, "row_dtype: f32 or f64 is expected");
    if (output->chain && output->is_hidden)
        return wrong(r, output, "a hidden output has no chain");
    if (output->chain && (status = make_transform(r, output, out)))
        return status;
    if (out->feature_count !=
        (out->transform ? out->transform->output_count : out->row_feature_count))
        return wrong(r, output, "shape: another number of columns than the values have");
    return make_norm(r, output, out);
}

/* Connects an output to its state, which may come after it. */
static enum trajd_status find_state(const struct reading *r, uint32_t o)
{
    const struct trajd_document_output *output = &r->document->outputs[o];
    struct trajd_plan_output *out = &r->rules->outputs[o];
    const struct trajd_plan_output *state;

    if (output->is_hidden != (o >= r->rules->visible_count))
        return wrong(r, output, "hidden outputs come last");
    if (!out->transform || !out->transform->reference_count)
        return TRAJD_OK;
    if (!output->has_state || output->state >= r->rules->output_count)
        return wrong(r, output, "state: missing");
    state = &r->rules->outputs[output->state];
    out->reference_output = output->state;
    return !state->is_hidden || state->step_count != 1 ||
                   state->row_feature_count < out->transform->reference_count
               ? wrong(r, output, "state: a hidden output of one step is expected")
               : TRAJD_OK;
}

/* Fills what an output has without its sources. */
static void begin_output(const struct trajd_document_output *output, struct trajd_plan_output *out)
{
    out->name = output->name;
    out->role = output->role;
    out->dtype = out->row_dtype = output->dtype;
    out->is_hidden = output->is_hidden;
    out->step_count = (uint32_t)output->shape[0];
    out->rank = output->rank - 1;
    out->feature_count = 1;
    for (uint32_t i = 1; i < output->rank; i++) {
        out->shape[i - 1] = output->shape[i];
        out->feature_count *= output->shape[i];
    }
    if (output->image && output->image->augment.count)
        out->augment = &output->image->augment;
}

enum trajd_status trajd_document_make_rules(const struct trajd_document *document,
                                            struct trajd_arena *arena,
                                            struct trajd_plan_rules *rules,
                                            struct trajd_error *error)
{
    const struct reading r = {.document = document, .arena = arena, .rules = rules, .error = error};
    enum trajd_status status = TRAJD_OK;
    uint64_t targets = 0;

    *rules = (struct trajd_plan_rules){
        .edge = document->edge,
        .anchor_clock = document->has_anchor_clock ? (int64_t)document->stream_count : -1,
        .anchor_rate = document->anchor_rate,
        .clock_count = document->stream_count + 2,
        .output_count = document->output_count};
    for (uint32_t o = 0; o < document->output_count; o++)
        targets += document->outputs[o].source_count;
    rules->outputs = alloc(&r, rules->output_count, sizeof *rules->outputs);
    rules->targets = alloc(&r, targets, sizeof *rules->targets);
    rules->grids = alloc(&r, targets, sizeof *rules->grids);
    rules->brackets = alloc(&r, targets, sizeof *rules->brackets);
    rules->images = alloc(&r, rules->output_count, sizeof *rules->images);
    if (!rules->outputs || !rules->targets || !rules->grids || !rules->brackets || !rules->images)
        return TRAJD_ERR_MEMORY;
    for (uint32_t o = 0; o < rules->output_count; o++) {
        begin_output(&document->outputs[o], &rules->outputs[o]);
        rules->visible_count += !document->outputs[o].is_hidden;
    }
    for (uint32_t o = 0; o < rules->output_count && !status; o++)
        if (!document->outputs[o].image)
            status = make_output(&r, o);
    rules->row_target_count = rules->target_count;
    for (uint32_t o = 0; o < rules->output_count && !status; o++)
        if (document->outputs[o].image)
            status = make_output(&r, o);
    for (uint32_t o = 0; o < rules->output_count && !status; o++)
        status = find_state(&r, o);
    if (!status && !rules->visible_count)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "outputs: all are hidden");
    if (!status)
        trajd_rules_complete(rules);
    return status;
}
