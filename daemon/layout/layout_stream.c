/* Reads the streams of a layout: array or columns, clock, kind. */
#include <stdio.h>
#include <string.h>

#include "daemon/layout/layout_internal.h"

static const double degrees_period = 360.0;
static const double radians_period = 6.283185307179586476925;
static const char *const kind_words[] = {"linear", "previous", "nearest", "slerp",
                                         "angle",  "mean",     NULL};
static const char *const rows_words[] = {"all", "first", NULL};
static const char *const order_words[] = {"xyzw", "wxyz", NULL};
static const char *const semantics_words[] = {"absolute", "delta", NULL};

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
            p->yaml, node, p->error,
            "kind: missing (one of linear, previous, nearest, slerp, angle, mean)");
    status = trajd_yaml_choice(p->yaml, kind, kind_words, &choice, p->error);
    if (status)
        return status;
    stream->kind = kinds[choice];
    if (stream->kind != TRAJD_KIND_SLERP_XYZW)
        return order ? trajd_yaml_error(p->yaml, order, p->error, "belongs to kind slerp only")
                     : TRAJD_OK;
    if (!order)
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "order: missing (slerp needs xyzw or wxyz; no file says which it has)");
    status = trajd_yaml_choice(p->yaml, order, order_words, &choice, p->error);
    if (!status && choice == 1)
        stream->kind = TRAJD_KIND_SLERP_WXYZ;
    return status;
}

/* Reads columns as "0:6". */
static enum trajd_status read_columns(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node,
                                      struct trajd_layout_stream *stream)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(p->yaml, node, &text, p->error);
    unsigned int begin, end;
    int used = 0;

    if (status)
        return status;
    if (strlen(text) > 15 || sscanf(text, "%u:%u%n", &begin, &end, &used) != 2 || text[used] ||
        begin >= end || end > 1000000)
        return trajd_yaml_error(
            p->yaml, node, p->error,
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
    const char *names[TRAJD_LAYOUT_CLOCKS_MAX], *text, *near;
    enum trajd_status status;

    if (!clock && layout->clock_count != 1)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "clock: missing (the layout has %u clocks)", layout->clock_count);
    if (!clock) {
        stream->clock = p->clocks[0].name;
        return TRAJD_OK;
    }
    status = trajd_yaml_string(p->yaml, clock, &text, p->error);
    if (status)
        return status;
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        names[i] = p->clocks[i].name;
        if (!strcmp(names[i], text)) {
            stream->clock = names[i];
            return TRAJD_OK;
        }
    }
    near = trajd_yaml_nearest(text, names, layout->clock_count);
    return trajd_yaml_error(p->yaml, clock, p->error, "no clock is called \"%s\"%s%s%s", text,
                            near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static enum trajd_status read_stream_options(struct trajd_layout_parser *p,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_layout_stream *stream)
{
    const struct trajd_yaml_node *columns = trajd_yaml_get(node, "columns"),
                                 *unit = trajd_yaml_get(node, "unit");
    const struct trajd_yaml_node *gap = trajd_yaml_get(node, "max_gap"),
                                 *optional = trajd_yaml_get(node, "optional"),
                                 *rows = trajd_yaml_get(node, "rows");
    bool family = trajd_layout_star_count(stream->name) > 0;
    enum trajd_status status = TRAJD_OK;
    int choice = 0;

    stream->max_gap_ns = -1;
    if (columns)
        status = read_columns(p, columns, stream);
    if (!status && unit)
        status = trajd_layout_read_text(p, unit, &stream->unit);
    if (!status && gap)
        status = trajd_yaml_duration(p->yaml, gap, &stream->max_gap_ns, p->error);
    if (!status && gap && stream->max_gap_ns <= 0)
        status = trajd_yaml_error(p->yaml, gap, p->error, "must be above 0");
    if (!status && optional)
        status = trajd_yaml_bool(p->yaml, optional, &stream->optional, p->error);
    if (!status && optional && family && !stream->optional)
        status = trajd_yaml_error(p->yaml, optional, p->error,
                                  "a family of streams ('*') is always optional");
    stream->optional = stream->optional || family;
    if (!status && rows)
        status = trajd_yaml_choice(p->yaml, rows, rows_words, &choice, p->error);
    stream->drops_last_row = choice == 1;
    if (stream->kind == TRAJD_KIND_ANGLE)
        stream->angle_period =
            stream->unit && !strcmp(stream->unit, "deg") ? degrees_period : radians_period;
    return status;
}

static enum trajd_status read_semantics(struct trajd_layout_parser *p,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_layout_stream *stream)
{
    const struct trajd_yaml_node *semantics = trajd_yaml_get(node, "semantics");
    enum trajd_status status = TRAJD_OK;
    int choice = 0;

    if (semantics)
        status = trajd_yaml_choice(p->yaml, semantics, semantics_words, &choice, p->error);
    stream->is_delta = choice == 1;
    if (!status && stream->is_delta && stream->kind != TRAJD_KIND_PREVIOUS)
        status = trajd_yaml_error(p->yaml, semantics, p->error,
                                  "differences are added and never blended: use kind: previous");
    return status;
}

static enum trajd_status read_stream(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node,
                                     struct trajd_layout_stream *stream)
{
    static const char *const keys[] = {"path",    "clock",    "kind", "order", "columns",   "unit",
                                       "max_gap", "optional", "rows", "image", "semantics", NULL};
    const struct trajd_yaml_node *path = trajd_yaml_get(node, "path"),
                                 *image = trajd_yaml_get(node, "image");
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);

    if (!status && (!*node->key || strlen(node->key) > TRAJD_LAYOUT_PATH_MAX ||
                    trajd_layout_star_count(node->key) > 1))
        status = trajd_yaml_error(p->yaml, node, p->error,
                                  "a stream's name has 1 to %d characters and at most one '*'",
                                  TRAJD_LAYOUT_PATH_MAX);
    if (!status)
        status = trajd_layout_copy_text(p, node->key, &stream->name);
    if (!status && path)
        status = trajd_layout_read_path(p, path, 1, &stream->path);
    else if (!status && !trajd_layout_path_is_clean(stream->name))
        status = trajd_yaml_error(p->yaml, node, p->error, "path: missing (the name is no path)");
    else if (!status)
        stream->path = stream->name;
    if (!status && trajd_layout_is_family(stream) && !trajd_layout_star_count(stream->path))
        status = trajd_yaml_error(p->yaml, node, p->error,
                                  "the name has a '*', so the path needs one, too");
    if (!status)
        status = read_stream_clock(p, node, stream);
    if (!status)
        status = read_kind(p, node, stream);
    if (!status)
        status = read_stream_options(p, node, stream);
    if (!status)
        status = read_semantics(p, node, stream);
    return status || !image ? status : trajd_layout_read_image(p, image, stream);
}

/* Checks that streams of one array agree on its rows. */
static enum trajd_status check_shared_rows(struct trajd_layout_parser *p,
                                           const struct trajd_yaml_node *node)
{
    const struct trajd_yaml_node *child = node->children;

    for (uint32_t i = 0; i < p->memory->layout.stream_count; i++, child = child->next)
        for (uint32_t k = 0; k < i; k++)
            if (p->streams[k].drops_last_row != p->streams[i].drops_last_row &&
                !strcmp(p->streams[k].path, p->streams[i].path))
                return trajd_yaml_error(p->yaml, child, p->error,
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
        return trajd_yaml_error(p->yaml, node, p->error, "must be a mapping of 1 to %d streams",
                                TRAJD_LAYOUT_STREAMS_MAX);
    p->streams = trajd_arena_alloc(&p->memory->arena, node->child_count * sizeof *p->streams);
    if (!p->streams)
        return trajd_layout_no_memory(p);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = read_stream(p, child, &p->streams[layout->stream_count++]);
    return status ? status : check_shared_rows(p, node);
}
