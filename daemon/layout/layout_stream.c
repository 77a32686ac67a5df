/* The streams of a layout: array or columns, clock, kind; the frames of cameras, and the words of
 * images. */
#include <stdio.h>
#include <string.h>

#include "daemon/layout/layout_internal.h"
#include "proto/array_len.h"

static const double degrees_period = 360.0;
static const double radians_period = 6.283185307179586476925;
enum { ROWS_PER_ROW_MAX = 1000 };
static const char *const kind_words[] = {"linear", "previous", "nearest", "slerp",
                                         "angle",  "mean",     NULL};
static const char *const order_words[] = {"xyzw", "wxyz", NULL};
static const char *const semantics_words[] = {"absolute", "delta", NULL};

/* ---- images ---- */

static const char *const encoding_words[] = {"auto", "raw", "jpeg", "png", "video", NULL};
static const char *const color_words[] = {"rgb", "bgr", "gray", "undecided", NULL};
static const char *const flip_words[] = {"none", "v", "h", "180", NULL};
static const char *const zero_words[] = {"keep", "mask", NULL};
static const char *const depth_words[] = {"mm", "m", NULL};

const char *trajd_image_encoding_name(enum trajd_image_encoding encoding)
{
    return encoding <= TRAJD_ENCODING_VIDEO ? encoding_words[encoding] : "?";
}

const char *trajd_image_color_name(enum trajd_image_color color)
{
    if (color == TRAJD_COLOR_DEPTH)
        return "depth";
    return color <= TRAJD_COLOR_UNDECIDED ? color_words[color - 1] : "?";
}

const char *trajd_image_flip_name(enum trajd_image_flip flip)
{
    return flip <= TRAJD_FLIP_180 ? flip_words[flip] : "?";
}

const char *trajd_depth_unit_name(enum trajd_depth_unit unit)
{
    if (unit == TRAJD_DEPTH_NONE)
        return "none";
    return unit <= TRAJD_DEPTH_M ? depth_words[unit - 1] : "?";
}

struct trajd_layout_image trajd_layout_image_prepared(const struct trajd_layout_image *image,
                                                      enum trajd_image_encoding encoding)
{
    struct trajd_layout_image words = *image;

    words.encoding = encoding;
    if (trajd_image_channels(image->color) == 3)
        words.color = TRAJD_COLOR_RGB;
    words.flip = TRAJD_FLIP_NONE;
    words.height = words.width = 0;
    return words;
}

/* Reads [HEIGHT, WIDTH]. */
static enum trajd_status read_size(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_image *image = out;
    int64_t sides[2] = {0, 0};
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "is written [HEIGHT, WIDTH], like [480, 640]");
    for (const struct trajd_yaml_node *side = node->children; side && !status; side = side->next)
        status = trajd_yaml_int(r->yaml, side, 1, TRAJD_FRAME_SIDE_MAX, &sides[i++], r->error);
    image->height = (uint32_t)sides[0];
    image->width = (uint32_t)sides[1];
    if (!status && sides[0] * sides[1] > TRAJD_FRAME_PIXELS_MAX)
        status = trajd_yaml_error(r->yaml, node, r->error, "an image has at most %u pixels",
                                  TRAJD_FRAME_PIXELS_MAX);
    return status;
}

/* Checks that the keys make sense together. */
static enum trajd_status check_image(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node,
                                     const struct trajd_layout_stream *stream)
{
    const struct trajd_layout_image *image = &stream->image;

    if (!image->color && !image->unit)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "color: missing (rgb, bgr or gray, as a standard decoder gives it, or "
            "undecided: no file says it; for depth write unit: mm or m)");
    if (image->color && image->unit)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "color is for images and unit for depth: write one of them");
    if (image->unit && image->encoding == TRAJD_ENCODING_JPEG)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "encoding: JPEG cannot hold depth: write raw, png or auto");
    if (stream->kind != TRAJD_KIND_PREVIOUS && stream->kind != TRAJD_KIND_NEAREST)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "images are never blended: the kind must be previous or nearest");
    if (stream->column_end)
        return trajd_yaml_error(r->yaml, node, r->error, "images have no columns");
    return TRAJD_OK;
}

#define MEMBER(member) .offset = offsetof(struct trajd_layout_image, member)
static const struct trajd_yaml_key image_keys[] = {
    {"encoding", TRAJD_YAML_CHOICE, MEMBER(encoding), .words = encoding_words,
     .low = TRAJD_ENCODING_AUTO},
    {"color", TRAJD_YAML_CHOICE, MEMBER(color), .words = color_words, .low = TRAJD_COLOR_RGB},
    {"flip", TRAJD_YAML_CHOICE, MEMBER(flip), .words = flip_words, .low = TRAJD_FLIP_NONE},
    {"size", .read = read_size},
    {"unit", TRAJD_YAML_CHOICE, MEMBER(unit), .words = depth_words, .low = TRAJD_DEPTH_MM},
    {"zero_frames", TRAJD_YAML_FLAG, MEMBER(masks_zero_frames), .words = zero_words},
};
#undef MEMBER

static enum trajd_status read_image(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_stream *stream = out;

    stream->image.is_present = true;
    return trajd_yaml_read_keys(r, node, NULL, image_keys, ARRAY_LEN(image_keys), &stream->image);
}

/* ---- streams ---- */

static enum trajd_status read_kind(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_stream *stream)
{
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR,  TRAJD_KIND_PREVIOUS,
                                            TRAJD_KIND_NEAREST, TRAJD_KIND_SLERP_XYZW,
                                            TRAJD_KIND_ANGLE,   TRAJD_KIND_MEAN};
    const struct trajd_yaml_node *kind = trajd_yaml_get(node, "kind"),
                                 *order = trajd_yaml_get(node, "order");
    enum trajd_status status;
    int choice;

    if (!kind)
        return trajd_yaml_error(
            p->r.yaml, node, p->r.error,
            "kind: missing (one of linear, previous, nearest, slerp, angle, mean)");
    status = trajd_yaml_choice(p->r.yaml, kind, kind_words, &choice, p->r.error);
    if (status)
        return status;
    stream->kind = kinds[choice];
    if (stream->kind != TRAJD_KIND_SLERP_XYZW)
        return order ? trajd_yaml_error(p->r.yaml, order, p->r.error, "belongs to kind slerp only")
                     : TRAJD_OK;
    if (!order)
        return trajd_yaml_error(
            p->r.yaml, node, p->r.error,
            "order: missing (slerp needs xyzw or wxyz; no file says which it has)");
    status = trajd_yaml_choice(p->r.yaml, order, order_words, &choice, p->r.error);
    if (!status && choice == 1)
        stream->kind = TRAJD_KIND_SLERP_WXYZ;
    return status;
}

/* Reads columns as "0:6". */
static enum trajd_status read_columns(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_stream *stream = out;
    const char *text;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);
    unsigned int begin, end;
    int used = 0;

    if (status)
        return status;
    if (strlen(text) > 15 || sscanf(text, "%u:%u%n", &begin, &end, &used) != 2 || text[used] ||
        begin >= end || end > 1000000)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "\"%s\": columns are written BEGIN:END, the end not included, like 0:6", text);
    stream->column_begin = begin;
    stream->column_end = end;
    return TRAJD_OK;
}

static enum trajd_status read_stream_clock(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node,
                                           struct trajd_layout_stream *stream)
{
    const struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *clock = trajd_yaml_get(node, "clock");
    const char *names[TRAJD_LAYOUT_CLOCKS_MAX], *text;
    enum trajd_status status;

    if (!clock && layout->clock_count != 1)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "clock: missing (the layout has %u clocks)", layout->clock_count);
    if (!clock) {
        stream->clock = p->clocks[0].name;
        return TRAJD_OK;
    }
    status = trajd_yaml_string(p->r.yaml, clock, &text, p->r.error);
    if (status)
        return status;
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        names[i] = p->clocks[i].name;
        if (!strcmp(names[i], text)) {
            stream->clock = names[i];
            return TRAJD_OK;
        }
    }
    return trajd_yaml_error(p->r.yaml, clock, p->r.error, "no clock is called \"%s\"%s", text,
                            trajd_yaml_suggest(" (", text, names, layout->clock_count, ")").text);
}

static enum trajd_status read_max_gap(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *out)
{
    enum trajd_status status = trajd_yaml_duration(r->yaml, node, out, r->error);

    if (!status && *(int64_t *)out <= 0)
        status = trajd_yaml_error(r->yaml, node, r->error, "must be above 0");
    return status;
}

/* Reads "all", "first" or "every 4". */
static enum trajd_status read_rows(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *out)
{
    struct trajd_layout_stream *stream = out;
    const char *text;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);
    unsigned int number = 0;
    int used = 0;

    if (status)
        return status;
    stream->drops_last_row = !strcmp(text, "first");
    if (stream->drops_last_row || !strcmp(text, "all"))
        return TRAJD_OK;
    if (strlen(text) > 15 || sscanf(text, "every %u%n", &number, &used) != 1 || text[used] ||
        number < 2 || number > ROWS_PER_ROW_MAX)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "\"%s\": is written all, first or every N, like every 4 (2 to %d)",
                                text, ROWS_PER_ROW_MAX);
    stream->rows_per_row = number;
    return TRAJD_OK;
}

#define MEMBER(member) .offset = offsetof(struct trajd_layout_stream, member)
/* The path, the clock and the kind have rules of their own, and are read after the others. */
static const struct trajd_yaml_key stream_keys[] = {
    {.name = "path", .type = TRAJD_YAML_LATER},
    {.name = "clock", .type = TRAJD_YAML_LATER},
    {.name = "kind", .type = TRAJD_YAML_LATER},
    {.name = "order", .type = TRAJD_YAML_LATER},
    {"columns", .read = read_columns},
    {"unit", .read = trajd_layout_read_text, MEMBER(unit)},
    {"max_gap", .read = read_max_gap, MEMBER(max_gap_ns)},
    {"optional", TRAJD_YAML_BOOL, MEMBER(optional)},
    {"events", TRAJD_YAML_BOOL, MEMBER(is_event)},
    {"rows", .read = read_rows},
    {"semantics", TRAJD_YAML_FLAG, MEMBER(is_delta), .words = semantics_words},
    {"image", .read = read_image},
};

/* Returns whether the stream's rows have stamps. */
static bool has_stamps(const struct trajd_layout_parser *p,
                       const struct trajd_layout_stream *stream)
{
    const struct trajd_layout_clock *clock = p->clocks;

    while (strcmp(clock->name, stream->clock) != 0)
        clock++;
    return clock->stamps_path != NULL;
}

/* Checks the values together, and sets what follows from them. */
static enum trajd_status finish_stream(struct trajd_layout_parser *p,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_layout_stream *stream)
{
    const struct trajd_yaml_node *optional = trajd_yaml_get(node, "optional");

    if (stream->is_event && !has_stamps(p, stream))
        return trajd_yaml_error(p->r.yaml, trajd_yaml_get(node, "events"), p->r.error,
                                "events have stamps: clock %s has a rate", stream->clock);
    if (stream->rows_per_row && has_stamps(p, stream))
        return trajd_yaml_error(p->r.yaml, trajd_yaml_get(node, "rows"), p->r.error,
                                "every N is for a clock with a rate: clock %s has stamps",
                                stream->clock);
    if (optional && trajd_layout_is_family(stream) && !stream->optional)
        return trajd_yaml_error(p->r.yaml, optional, p->r.error,
                                "a family of streams ('*') is always optional");
    stream->optional = stream->optional || trajd_layout_is_family(stream);
    if (stream->is_delta && stream->kind != TRAJD_KIND_PREVIOUS)
        return trajd_yaml_error(p->r.yaml, trajd_yaml_get(node, "semantics"), p->r.error,
                                "differences are added and never blended: use kind: previous");
    if (stream->kind == TRAJD_KIND_ANGLE)
        stream->angle_period =
            stream->unit && !strcmp(stream->unit, "deg") ? degrees_period : radians_period;
    return stream->image.is_present ? check_image(&p->r, trajd_yaml_get(node, "image"), stream)
                                    : TRAJD_OK;
}

/* Reads the name, and the path, which is the name where it has no key. */
static enum trajd_status read_name(struct trajd_layout_parser *p,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_stream *stream)
{
    const struct trajd_yaml_node *path = trajd_yaml_get(node, "path");
    enum trajd_status status;

    if (!*node->key || strlen(node->key) > TRAJD_LAYOUT_PATH_MAX ||
        trajd_layout_star_count(node->key) > 1)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "a stream's name has 1 to %d characters and at most one '*'",
                                TRAJD_LAYOUT_PATH_MAX);
    status = trajd_yaml_keep(&p->r, node->key, &stream->name);
    if (status)
        return status;
    if (!path && !trajd_layout_path_is_clean(stream->name))
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "path: missing (the name is not a path)");
    stream->path = stream->name;
    if (path)
        status = trajd_layout_read_pattern(&p->r, path, &stream->path);
    if (!status && trajd_layout_is_family(stream) && !trajd_layout_star_count(stream->path))
        status = trajd_yaml_error(p->r.yaml, node, p->r.error,
                                  "the name has a '*', so the path needs one, too");
    return status;
}

static enum trajd_status read_stream(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node,
                                     struct trajd_layout_stream *stream)
{
    enum trajd_status status;

    stream->max_gap_ns = -1;
    status = trajd_yaml_read_keys(&p->r, node, NULL, stream_keys, ARRAY_LEN(stream_keys), stream);
    if (!status)
        status = read_name(p, node, stream);
    if (!status)
        status = read_stream_clock(p, node, stream);
    if (!status)
        status = read_kind(p, node, stream);
    return status ? status : finish_stream(p, node, stream);
}

/* Checks that streams of one array agree on its rows. */
static enum trajd_status check_shared_rows(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node)
{
    const struct trajd_yaml_node *child = node->children;

    for (uint32_t i = 0; i < p->memory->layout.stream_count; i++, child = child->next)
        for (uint32_t k = 0; k < i; k++)
            if ((p->streams[k].drops_last_row != p->streams[i].drops_last_row ||
                 p->streams[k].rows_per_row != p->streams[i].rows_per_row) &&
                !strcmp(p->streams[k].path, p->streams[i].path))
                return trajd_yaml_error(p->r.yaml, child, p->r.error,
                                        "stream %s has the same path and another value of rows",
                                        p->streams[k].name);
    return TRAJD_OK;
}

enum trajd_status trajd_layout_read_streams(struct trajd_layout_parser *p,
                                            const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count ||
        node->child_count > TRAJD_LAYOUT_STREAMS_MAX)
        return trajd_yaml_error(p->r.yaml, node, p->r.error, "must be a mapping of 1 to %d streams",
                                TRAJD_LAYOUT_STREAMS_MAX);
    p->streams = trajd_yaml_alloc(&p->r, node->child_count * sizeof *p->streams);
    if (!p->streams)
        return TRAJD_ERR_MEMORY;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_stream(p, child, &p->streams[layout->stream_count++]);
    if (!status)
        status = check_shared_rows(p, node);
    for (uint32_t i = 0; i < layout->stream_count && !status; i++)
        if (p->streams[i].rows_per_row)
            status =
                trajd_layout_find_multiple(p, p->streams[i].rows_per_row, &p->streams[i].clock);
    return status;
}
