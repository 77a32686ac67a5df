/* The keys of a document. */
#include "daemon/engine/document_tables.h"

#include <string.h>

#include "daemon/base/quantity.h"
#include "proto/array_len.h"

enum {
    MOST_CLOCKS = 257,
    MOST_STREAMS = 257,
    MOST_OUTPUTS = 64,
    MOST_SOURCES = 32,
    MOST_STEPS = 65536,
    MOST_COLUMNS = 1 << 24,
};

#define FAR_NS (INT64_C(1) << 61)
#define NAME .flags = TRAJD_CODEC_ANY_TEXT
#define MAYBE .flags = TRAJD_CODEC_OPTIONAL
#define MAYBE_NAME .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_ANY_TEXT
/* Several members of a struct that stand together, as one list. */
#define TOGETHER(type, first, number)                                                              \
    .shape = TRAJD_CODEC_INSIDE, .offset = (uint32_t)offsetof(type, first),                        \
    .size = (uint32_t)sizeof(((type *)0)->first), .most = (number)
#define SIDE .low = 1, .high = TRAJD_IMAGE_SIDE_MAX

static const char *const edges[] = {"edge", "zero", "nan", NULL};
static const char *const kinds[] = {"linear",     "previous", "nearest", "slerp_xyzw",
                                    "slerp_wxyz", "angle",    "mean",    NULL};
static const char *const rules[] = {"rows", "anchors", "times", NULL};
static const char *const missing[] = {"error", "zero", "skip", NULL};
static const char *const roles[] = {"obs", "action", "next", "goal", NULL};
static const char *const part_kinds[] = {"plain", "angle", "rotation", NULL};
static const char *const frames[] = {"anchor", "base", NULL};
static const char *const steps[] = {"anchor", "before", NULL};
static const char *const boxes[] = {"pixels", "tf", NULL};
static const char *const layouts[] = {"hwc", "chw", NULL};
/* trajd_image_filter_names */
static const char *const filters[TRAJD_IMAGE_FILTER_COUNT + 1] = {
    "pillow-bilinear", "pillow-box",  "pillow-bicubic",
    "pillow-lanczos",  "tf-lanczos3", "area",
    "linear",          "nearest",     NULL};
/* the steps of an augmentation that set a size */
static const char *const augments[] = {"crop", "", "", "resize", "resized_crop", NULL};

/* ---- rates ---- */

/* Returns a rule that the text of a rate breaks, or NULL. */
static const char *read_rate(const char *text, struct trajd_rate *rate)
{
    return !text || trajd_parse_rate(text, rate)
               ? NULL
               : "rate: a rate in Hz within 1e-6 to 1e9 is expected, such as 20/1";
}

/* ---- clocks and streams ---- */

static const char *check_clock(void *value, void *context)
{
    struct trajd_document_clock *clock = value;

    (void)context;
    return read_rate(clock->rate_text, &clock->rate);
}

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_clock, member)
static const struct trajd_codec_field clock_fields[] = {
    {"name", TRAJD_CODEC_TEXT, ONE(name), NAME},
    {"rate", TRAJD_CODEC_TEXT, ONE(rate_text), MAYBE},
    {"interval_ns", TRAJD_CODEC_INT, ONE(interval_ns), MAYBE, .low = 1, .high = FAR_NS},
    {"shift_ns", TRAJD_CODEC_INT, ONE(shift_ns), .low = -FAR_NS, .high = FAR_NS},
    {"latency_ns", TRAJD_CODEC_INT, ONE(latency_ns), MAYBE, .low = -FAR_NS, .high = FAR_NS,
     TRAJD_CODEC_HAS(struct trajd_document_clock, has_latency)},
};
static const struct trajd_codec_table clock_table =
    TRAJD_CODEC_TABLE(struct trajd_document_clock, clock_fields, TRAJD_CODEC_CLOSED, check_clock);
#undef ONE

/* trajd.Live in Python decodes encoded frames by these words. */
static const char *check_encoded(void *value, void *context)
{
    static const char *const encodings[] = {"auto", "jpeg", "png", NULL};
    static const char *const colors[] = {"rgb", "bgr", "gray", "depth", NULL};
    static const char *const flips[] = {"none", "v", "h", "180", NULL};
    const struct trajd_document_encoded *encoded = value;
    const struct {
        const char *word;
        const char *const *words;
    } members[] = {
        {encoded->encoding, encodings}, {encoded->color, colors}, {encoded->flip, flips}};

    (void)context;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        size_t w = 0;
        while (members[i].words[w] && strcmp(members[i].words[w], members[i].word) != 0)
            w++;
        if (!members[i].words[w])
            return "encoding, color or flip is none of the words of a layout";
    }
    return NULL;
}

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_encoded, member)
static const struct trajd_codec_field encoded_fields[] = {
    {"encoding", TRAJD_CODEC_TEXT, ONE(encoding)},
    {"color", TRAJD_CODEC_TEXT, ONE(color)},
    {"flip", TRAJD_CODEC_TEXT, ONE(flip)},
};
static const struct trajd_codec_table encoded_table = TRAJD_CODEC_TABLE(
    struct trajd_document_encoded, encoded_fields, TRAJD_CODEC_CLOSED, check_encoded);
#undef ONE

/* Multiplies extents. 0: the product is above 2^24, or an extent is 0. */
static uint64_t product_of(const uint64_t *shape, uint32_t first, uint32_t rank)
{
    uint64_t product = 1;

    for (uint32_t i = first; i < rank; i++) {
        product *= shape[i];
        if (!product || product > MOST_COLUMNS)
            return 0;
    }
    return product;
}

static const char *check_stream(void *value, void *context)
{
    const struct trajd_document_stream *stream = value;
    const bool is_empty = stream->rank == 1 && !stream->shape[0]; /* a clock alone */

    (void)context;
    if (!is_empty && !product_of(stream->shape, 0, stream->rank))
        return "shape: a row has 1 to 2^24 elements";
    return stream->encoded && stream->rank != 3 ? "encoded: a frame has height, width and channels"
                                                : NULL;
}

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_stream, member)
#define SHAPE(type) TRAJD_CODEC_ARRAY(type, shape, rank), .low = 0, .high = MOST_COLUMNS
static const struct trajd_codec_field stream_fields[] = {
    {"name", TRAJD_CODEC_TEXT, ONE(name), NAME},
    {"clock", TRAJD_CODEC_UINT, ONE(clock)},
    {"dtype", TRAJD_CODEC_WORD, ONE(dtype), .words = trajd_dtype_words},
    {"shape", TRAJD_CODEC_UINT, SHAPE(struct trajd_document_stream)},
    {"encoded", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(struct trajd_document_stream, encoded),
     MAYBE, .table = &encoded_table},
};
static const struct trajd_codec_table stream_table = TRAJD_CODEC_TABLE(
    struct trajd_document_stream, stream_fields, TRAJD_CODEC_CLOSED, check_stream);
#undef ONE

/* ---- sources ---- */

static const char *check_source(void *value, void *context)
{
    const struct trajd_document_source *source = value;

    (void)context;
    if (source->kind == TRAJD_KIND_MEAN && source->mean_width <= 0)
        return "mean_width: missing";
    if (source->kind == TRAJD_KIND_ANGLE && !(source->period >= 1e-300 && source->period <= 1e300))
        return "period: a number above 0 is expected";
    if (source->has_low && !(source->low >= -1e300 && source->low <= 1e300))
        return "low: a number is expected";
    return !(source->gamma >= 0 && source->gamma <= 1) ? "gamma: 0 to 1 is expected" : NULL;
}

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_source, member)
#define HAS(member) TRAJD_CODEC_HAS(struct trajd_document_source, member)
static const struct trajd_codec_field source_fields[] = {
    {"stream", TRAJD_CODEC_UINT, ONE(stream), MAYBE, HAS(has_stream)},
    {"columns", TRAJD_CODEC_UINT, ONE(columns), .low = 1, .high = MOST_COLUMNS},
    {"rule", TRAJD_CODEC_WORD, ONE(rule), .words = rules},
    {"lookahead_ns", TRAJD_CODEC_INT, ONE(lookahead_ns), .low = 0, .high = FAR_NS},
    {"kind", TRAJD_CODEC_WORD, ONE(kind), .words = kinds},
    {"max_gap_ns", TRAJD_CODEC_INT, ONE(max_gap_ns)},
    {"max_age_ns", TRAJD_CODEC_INT, ONE(max_age_ns)},
    {"too_old_intervals", TRAJD_CODEC_UINT, ONE(too_old_intervals), MAYBE, .low = 1, .high = 1000},
    {"mean_width", TRAJD_CODEC_INT, ONE(mean_width), MAYBE, .low = 1, .high = FAR_NS},
    {"sum_width_ns", TRAJD_CODEC_INT, ONE(sum_width_ns), MAYBE, .low = 1, .high = FAR_NS},
    {"gamma", TRAJD_CODEC_FLOAT, ONE(gamma), MAYBE, HAS(is_return)},
    {"in_chunk", TRAJD_CODEC_BOOL, ONE(in_chunk), MAYBE, HAS(is_return)},
    {"period", TRAJD_CODEC_FLOAT, ONE(period), MAYBE},
    {"low", TRAJD_CODEC_FLOAT, ONE(low), MAYBE, HAS(has_low)},
    {"missing", TRAJD_CODEC_WORD, ONE(missing), .words = missing},
    {"filled", TRAJD_CODEC_BOOL, ONE(is_filled), MAYBE},
};
static const struct trajd_codec_table source_table = TRAJD_CODEC_TABLE(
    struct trajd_document_source, source_fields, TRAJD_CODEC_CLOSED, check_source);
#undef ONE
#undef HAS

/* ---- chains ---- */

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_part, member)
#define COLUMN .high = TRAJD_TRANSFORM_MAX_COLUMNS
static const struct trajd_codec_field part_fields[] = {
    {"kind", TRAJD_CODEC_WORD, ONE(kind), .words = part_kinds},
    {"relative", TRAJD_CODEC_BOOL, ONE(is_relative)},
    {"first", TRAJD_CODEC_UINT, ONE(first), COLUMN},
    {"count", TRAJD_CODEC_UINT, ONE(count), .low = 1, COLUMN},
    {"output_first", TRAJD_CODEC_UINT, ONE(output_first), COLUMN},
    {"output_count", TRAJD_CODEC_UINT, ONE(output_count), .low = 1, COLUMN},
    {"reference_first", TRAJD_CODEC_UINT, ONE(reference_first), COLUMN, MAYBE,
     TRAJD_CODEC_HAS(struct trajd_document_part, is_relative)},
    {"period", TRAJD_CODEC_FLOAT, ONE(period), MAYBE},
    {"turned_by", TRAJD_CODEC_UINT, ONE(turned_by), MAYBE,
     TRAJD_CODEC_HAS(struct trajd_document_part, has_turned_by)},
    {"from", TRAJD_CODEC_TEXT, ONE(from), MAYBE},
    {"to", TRAJD_CODEC_TEXT, ONE(to), MAYBE},
    {"reference_form", TRAJD_CODEC_TEXT, ONE(reference_form), MAYBE},
};
static const struct trajd_codec_table part_table =
    TRAJD_CODEC_TABLE(struct trajd_document_part, part_fields, TRAJD_CODEC_CLOSED, NULL);
#undef ONE

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_document_chain, member)
static const struct trajd_codec_field chain_fields[] = {
    {"id", TRAJD_CODEC_TEXT, ONE(id), MAYBE},
    {"frame", TRAJD_CODEC_WORD, ONE(frame), .words = frames},
    {"step", TRAJD_CODEC_WORD, ONE(step), .words = steps},
    {"columns", TRAJD_CODEC_UINT, ONE(columns), COLUMN},
    {"output_columns", TRAJD_CODEC_UINT, ONE(output_columns), COLUMN},
    {"reference_columns", TRAJD_CODEC_UINT, ONE(reference_columns), COLUMN},
    {"parts", TRAJD_CODEC_STRUCT, TRAJD_CODEC_ARRAY(struct trajd_document_chain, parts, part_count),
     .table = &part_table},
};
static const struct trajd_codec_table chain_table =
    TRAJD_CODEC_TABLE(struct trajd_document_chain, chain_fields, TRAJD_CODEC_CLOSED, NULL);
#undef ONE

/* ---- images ---- */

#define STRUCT struct trajd_image_preparation
#define ONE(member) TRAJD_CODEC_ONE(STRUCT, member)
static const struct trajd_codec_field preparation_fields[] = {
    {"source", TRAJD_CODEC_UINT, TOGETHER(STRUCT, source_height, 2), SIDE},
    {"channels", TRAJD_CODEC_UINT, ONE(channels), .low = 1, .high = 3},
    {"type", TRAJD_CODEC_WORD, ONE(type), .words = trajd_dtype_words},
    {"crop", TRAJD_CODEC_UINT, TOGETHER(STRUCT, crop.top, 4), .high = TRAJD_IMAGE_SIDE_MAX},
    {"filter", TRAJD_CODEC_WORD, ONE(filter), .words = filters},
    {"inner", TRAJD_CODEC_UINT, TOGETHER(STRUCT, inner_height, 2), SIDE},
    {"corner", TRAJD_CODEC_INT, TOGETHER(STRUCT, top, 2), .low = -TRAJD_IMAGE_SIDE_MAX,
     .high = TRAJD_IMAGE_SIDE_MAX},
    {"output", TRAJD_CODEC_UINT, TOGETHER(STRUCT, height, 2), SIDE},
    {"is_bgr", TRAJD_CODEC_BOOL, ONE(is_bgr)}, /* 0 or 1, of which the first byte is a bool */
    {"pad_value", TRAJD_CODEC_FLOAT, ONE(pad_value), .low = 0, .high = 65535},
};
static const struct trajd_codec_table preparation_table =
    TRAJD_CODEC_TABLE(STRUCT, preparation_fields, TRAJD_CODEC_CLOSED, NULL);
#undef STRUCT

#define STRUCT struct trajd_augment_step
static const char *check_step(void *value, void *context)
{
    STRUCT *step = value;

    (void)context;
    step->probability = 1;
    step->scale = (struct trajd_augment_range){1, 1};
    return NULL;
}

static const struct trajd_codec_field step_fields[] = {
    {"kind", TRAJD_CODEC_WORD, ONE(kind), .words = augments},
    {"output", TRAJD_CODEC_UINT, TOGETHER(STRUCT, height, 2), SIDE},
    {"excludes_last", TRAJD_CODEC_BOOL, ONE(excludes_last)},
    {"filter", TRAJD_CODEC_WORD, ONE(filter), .words = filters},
    {"box", TRAJD_CODEC_WORD, ONE(box), .words = boxes},
    {"ratio", TRAJD_CODEC_FLOAT, TOGETHER(STRUCT, ratio.low, 2)},
};
static const struct trajd_codec_table step_table =
    TRAJD_CODEC_TABLE(STRUCT, step_fields, TRAJD_CODEC_CLOSED, check_step);
#undef STRUCT

#define STRUCT struct trajd_image_finish
static const struct trajd_codec_field finish_fields[] = {
    {"size", TRAJD_CODEC_UINT, TOGETHER(STRUCT, height, 2), SIDE},
    {"channels", TRAJD_CODEC_UINT, ONE(channels), .low = 1, .high = 3},
    {"source", TRAJD_CODEC_WORD, ONE(source), .words = trajd_dtype_words},
    {"type", TRAJD_CODEC_WORD, ONE(type), .words = trajd_dtype_words},
    {"layout", TRAJD_CODEC_WORD, ONE(layout), .words = layouts},
    {"scale", TRAJD_CODEC_FLOAT, TRAJD_CODEC_FIXED(STRUCT, scale)},
    {"offset", TRAJD_CODEC_FLOAT, TRAJD_CODEC_FIXED(STRUCT, offset)},
};
static const struct trajd_codec_table finish_table =
    TRAJD_CODEC_TABLE(STRUCT, finish_fields, TRAJD_CODEC_CLOSED, NULL);
#undef STRUCT

#define STRUCT struct trajd_document_image
static const struct trajd_codec_field image_fields[] = {
    {"preparation", TRAJD_CODEC_STRUCT, ONE(preparation), .table = &preparation_table},
    {"augment", TRAJD_CODEC_STRUCT, TRAJD_CODEC_ARRAY(STRUCT, augment.steps, augment.count),
     .table = &step_table},
    {"finish", TRAJD_CODEC_STRUCT, ONE(finish), .table = &finish_table},
};
static const struct trajd_codec_table image_table =
    TRAJD_CODEC_TABLE(STRUCT, image_fields, TRAJD_CODEC_CLOSED, NULL);
#undef STRUCT

/* ---- outputs ---- */

#define STRUCT struct trajd_document_output
static const char *check_output(void *value, void *context)
{
    STRUCT *output = value;

    (void)context;
    if (output->rank < 1 || !output->shape[0] || output->shape[0] > MOST_STEPS ||
        !product_of(output->shape, 1, output->rank))
        return "shape: 1 to 65536 steps of at least one column";
    if (!output->source_count)
        return "sources: one at least is expected";
    return read_rate(output->rate_text, &output->rate);
}

static const struct trajd_codec_field output_fields[] = {
    {"name", TRAJD_CODEC_TEXT, ONE(name), NAME},
    {"role", TRAJD_CODEC_WORD, ONE(role), .words = roles},
    {"hidden", TRAJD_CODEC_BOOL, ONE(is_hidden)},
    {"dtype", TRAJD_CODEC_WORD, ONE(dtype), .words = trajd_dtype_words},
    {"shape", TRAJD_CODEC_UINT, SHAPE(STRUCT)},
    {"goal", TRAJD_CODEC_TEXT, ONE(goal), MAYBE},
    {"from", TRAJD_CODEC_INT, ONE(from), .low = INT32_MIN, .high = INT64_C(1) << 31},
    {"rate", TRAJD_CODEC_TEXT, ONE(rate_text), MAYBE},
    {"sources", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(STRUCT, sources, source_count, MOST_SOURCES),
     .table = &source_table},
    {"row_dtype", TRAJD_CODEC_WORD, ONE(row_dtype), MAYBE, .words = trajd_dtype_words},
    {"chain", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(STRUCT, chain), MAYBE, .table = &chain_table},
    {"state", TRAJD_CODEC_UINT, ONE(state), MAYBE, TRAJD_CODEC_HAS(STRUCT, has_state)},
    {"scale", TRAJD_CODEC_FLOAT, TRAJD_CODEC_LIST(STRUCT, scale, norm_count, UINT32_MAX), MAYBE},
    {"offset", TRAJD_CODEC_FLOAT, TRAJD_CODEC_LIST(STRUCT, offset, norm_count, UINT32_MAX),
     .flags = TRAJD_CODEC_OPTIONAL | TRAJD_CODEC_AS_LONG},
    {"picture", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(STRUCT, image), MAYBE,
     .table = &image_table},
};
const struct trajd_codec_table trajd_document_output_table =
    TRAJD_CODEC_TABLE(STRUCT, output_fields, TRAJD_CODEC_CLOSED, check_output);
#undef STRUCT

#define STRUCT struct trajd_document_left_out
static const struct trajd_codec_field left_out_fields[] = {
    {"name", TRAJD_CODEC_TEXT, ONE(name), NAME},
    {"role", TRAJD_CODEC_WORD, ONE(role), .words = roles},
    {"dtype", TRAJD_CODEC_WORD, ONE(dtype), .words = trajd_dtype_words},
    {"shape", TRAJD_CODEC_UINT, SHAPE(STRUCT)},
    {"reason", TRAJD_CODEC_TEXT, ONE(reason), NAME},
};
static const struct trajd_codec_table left_out_table =
    TRAJD_CODEC_TABLE(STRUCT, left_out_fields, TRAJD_CODEC_CLOSED, NULL);
#undef STRUCT

/* ---- the document ---- */

#define STRUCT struct trajd_document
static const char *check_document(void *value, void *context)
{
    STRUCT *document = value;

    (void)context;
    if (!document->has_anchor_clock && !document->anchor_rate_text)
        return "anchor_clock: the anchors have neither a clock nor a rate";
    return read_rate(document->anchor_rate_text, &document->anchor_rate);
}

static const struct trajd_codec_field document_fields[] = {
    {"trajd_live", TRAJD_CODEC_UINT, ONE(version), .low = 1, .high = TRAJD_DOCUMENT_VERSION},
    {"digest", TRAJD_CODEC_TEXT, ONE(digest), MAYBE},
    {"feed", TRAJD_CODEC_TEXT, ONE(feed), MAYBE_NAME},
    {"dataset", TRAJD_CODEC_TEXT, ONE(dataset), MAYBE_NAME},
    {"fingerprint", TRAJD_CODEC_TEXT, ONE(fingerprint), MAYBE},
    {"norm_digest", TRAJD_CODEC_TEXT, ONE(norm_digest), MAYBE},
    {"pad", TRAJD_CODEC_WORD, ONE(edge), .words = edges},
    {"anchor_clock", TRAJD_CODEC_UINT, ONE(anchor_clock), MAYBE,
     TRAJD_CODEC_HAS(STRUCT, has_anchor_clock)},
    {"anchor_rate", TRAJD_CODEC_TEXT, ONE(anchor_rate_text), MAYBE},
    {"clocks", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(STRUCT, clocks, clock_count, MOST_CLOCKS),
     .table = &clock_table},
    {"streams", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(STRUCT, streams, stream_count, MOST_STREAMS),
     .table = &stream_table},
    {"left_out", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(STRUCT, left_out, left_out_count, MOST_OUTPUTS), MAYBE,
     .table = &left_out_table},
    {"outputs", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(STRUCT, outputs, output_count, MOST_OUTPUTS),
     MAYBE, .table = &trajd_document_output_table},
    {"next", TRAJD_CODEC_UINT, ONE(next), MAYBE},
};
const struct trajd_codec_table trajd_document_table =
    TRAJD_CODEC_TABLE(STRUCT, document_fields, TRAJD_CODEC_CLOSED, check_document);
#undef STRUCT
