#include "daemon/dataset/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/arena.h"
#include "daemon/base/yaml.h"
#include "daemon/dataset/digest.h"

enum { CLOCK_COUNT_MAX = 256, STREAM_COUNT_MAX = 1024, PATH_LENGTH_MAX = 1024 };
static const size_t layout_bytes_max = 8u << 20;
static const double degrees_period = 360.0;
static const double radians_period = 6.283185307179586476925;

/* The layout and what it is built in. The arena lies beside it, so that one pointer frees both. */
struct layout_memory {
    struct trajd_layout layout; /* first: a pointer to it is one to the whole */
    struct trajd_arena arena;
};

struct parse {
    const struct trajd_yaml *yaml;
    struct layout_memory *memory;
    struct trajd_layout_clock *clocks;
    struct trajd_layout_stream *streams;
    struct trajd_error *error;
};

static const char *const unit_words[] = {"ns", "us", "ms", "s", NULL};
static const char *const policy_words[] = {"error", "drop", "keep_last", NULL};
static const char *const kind_words[] = {"linear", "previous", "nearest", "slerp", "angle", "mean", NULL};
static const char *const order_words[] = {"xyzw", "wxyz", NULL};

static enum trajd_status no_memory(struct parse *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for the layout");
}

static enum trajd_status copy_text(struct parse *p, const char *text, const char **out)
{
    *out = trajd_arena_copy(&p->memory->arena, text, strlen(text));
    return *out ? TRAJD_OK : no_memory(p);
}

static uint32_t star_count(const char *text)
{
    uint32_t count = 0;

    for (; *text; text++)
        count += *text == '*';
    return count;
}

/* A path inside an HDF5 file: no empty, "." or ".." component. */
static bool path_is_clean(const char *path)
{
    if (*path == '/')
        path++;
    while (true) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        if (!path[length])
            return true;
        path += length + 1;
    }
}

static enum trajd_status read_text(struct parse *p, const struct trajd_yaml_node *node, const char **out)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(p->yaml, node, &text, p->error);

    if (status)
        return status;
    if (!*text || strlen(text) > PATH_LENGTH_MAX)
        return trajd_yaml_error(p->yaml, node, p->error, "must have 1 to %d characters", PATH_LENGTH_MAX);
    return copy_text(p, text, out);
}

/* The path of a dataset relative to the episode. */
static enum trajd_status read_path(struct parse *p, const struct trajd_yaml_node *node, uint32_t stars_max,
                                   const char **out)
{
    enum trajd_status status = read_text(p, node, out);

    if (status)
        return status;
    if (**out == '/' || !path_is_clean(*out))
        return trajd_yaml_error(
            p->yaml, node, p->error,
            "\"%s\": a path is relative to the episode's group, without empty, \".\" or \"..\" parts", *out);
    if (star_count(*out) > stars_max)
        return trajd_yaml_error(p->yaml, node, p->error, "\"%s\": %s", *out,
                                stars_max ? "only one '*' is allowed" : "no '*' is allowed here");
    return TRAJD_OK;
}

static enum trajd_status read_unit(struct parse *p, const struct trajd_yaml_node *mapping,
                                   enum trajd_stamp_unit *unit)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, "unit");
    enum trajd_status status;
    int choice;

    if (!node)
        return trajd_yaml_error(p->yaml, mapping, p->error, "unit: missing (one of ns, us, ms, s)");
    status = trajd_yaml_choice(p->yaml, node, unit_words, &choice, p->error);
    if (!status)
        *unit = (enum trajd_stamp_unit)choice;
    return status;
}

static enum trajd_status read_policy(struct parse *p, const struct trajd_yaml_node *mapping, const char *key,
                                     enum trajd_stamp_policy *policy)
{
    const struct trajd_yaml_node *node = trajd_yaml_get(mapping, key);
    enum trajd_status status;
    int choice;

    if (!node)
        return TRAJD_OK;
    status = trajd_yaml_choice(p->yaml, node, policy_words, &choice, p->error);
    if (!status)
        *policy = (enum trajd_stamp_policy)choice;
    return status;
}

/* "OBJECT@NAME" with an optional object. */
static enum trajd_status read_attribute(struct parse *p, const struct trajd_yaml_node *node, const char **out)
{
    enum trajd_status status = read_text(p, node, out);
    const char *at;

    if (status)
        return status;
    at = strchr(*out, '@');
    if (!at || !at[1] || (at != *out && strncmp(*out, "/@", 2) && !path_is_clean(*out)))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": an attribute is written OBJECT@NAME, like /data@env_args", *out);
    return TRAJD_OK;
}

/* rate: 20, or {attribute: /data@env_args, json: env_kwargs.control_freq, default: 20}. */
static enum trajd_status read_rate(struct parse *p, const struct trajd_yaml_node *node,
                                   struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"attribute", "json", "default", NULL};
    const struct trajd_yaml_node *attribute, *json, *fallback;
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR)
        return trajd_yaml_rate(p->yaml, node, &clock->rate, p->error);
    status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    if (status)
        return status;
    attribute = trajd_yaml_get(node, "attribute");
    json = trajd_yaml_get(node, "json");
    fallback = trajd_yaml_get(node, "default");
    if (!attribute)
        return trajd_yaml_error(p->yaml, node, p->error, "attribute: missing");
    status = read_attribute(p, attribute, &clock->rate_attribute);
    if (!status && json)
        status = read_text(p, json, &clock->rate_json);
    if (!status && fallback)
        status = trajd_yaml_rate(p->yaml, fallback, &clock->rate_default, p->error);
    return status;
}

static enum trajd_status read_start(struct parse *p, const struct trajd_yaml_node *node,
                                    struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"path", "unit", NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *path;

    if (status)
        return status;
    path = trajd_yaml_get(node, "path");
    if (!path)
        return trajd_yaml_error(p->yaml, node, p->error, "path: missing");
    status = read_path(p, path, 0, &clock->start_path);
    return status ? status : read_unit(p, node, &clock->start_unit);
}

/* Keys that only one sort of clock has. */
static enum trajd_status refuse_keys(struct parse *p, const struct trajd_yaml_node *node,
                                     const char *const *keys, const char *sort)
{
    for (; *keys; keys++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, *keys);
        if (child)
            return trajd_yaml_error(p->yaml, child, p->error, "does not belong to a %s clock", sort);
    }
    return TRAJD_OK;
}

static enum trajd_status read_stamped(struct parse *p, const struct trajd_yaml_node *node,
                                      struct trajd_layout_clock *clock)
{
    static const char *const others[] = {"rate", "rows", "start", NULL};
    const struct trajd_yaml_node *column = trajd_yaml_get(node, "column");
    enum trajd_status status = refuse_keys(p, node, others, "stamped (path:)");
    int64_t number = 0;

    if (!status)
        status = read_path(p, trajd_yaml_get(node, "path"), 0, &clock->stamps_path);
    if (!status)
        status = read_unit(p, node, &clock->unit);
    if (!status && column)
        status = trajd_yaml_int(p->yaml, column, 0, 65535, &number, p->error);
    clock->stamps_column = (uint32_t)number;
    if (!status)
        status = read_policy(p, node, "repeated", &clock->repeated);
    return status ? status : read_policy(p, node, "backward", &clock->backward);
}

static enum trajd_status read_regular(struct parse *p, const struct trajd_yaml_node *node,
                                      struct trajd_layout_clock *clock)
{
    static const char *const others[] = {"column", "unit", "repeated", "backward", NULL};
    const struct trajd_yaml_node *rate = trajd_yaml_get(node, "rate");
    const struct trajd_yaml_node *rows = trajd_yaml_get(node, "rows");
    const struct trajd_yaml_node *start = trajd_yaml_get(node, "start");
    enum trajd_status status;

    if (!rate)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "needs path: (recorded stamps) or rate: (a regular clock)");
    status = refuse_keys(p, node, others, "regular (rate:)");
    if (!status)
        status = read_rate(p, rate, clock);
    if (!status && rows)
        status = read_text(p, rows, &clock->rows);
    if (!status && start)
        status = read_start(p, start, clock);
    return status;
}

static enum trajd_status read_clock(struct parse *p, const struct trajd_yaml_node *node,
                                    struct trajd_layout_clock *clock)
{
    static const char *const keys[] = {"path",   "column", "unit",     "rate",     "start", "latency",
                                       "offset", "rows",   "repeated", "backward", NULL};
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);
    const struct trajd_yaml_node *child;

    if (!status)
        status = copy_text(p, node->key, &clock->name);
    if (!status)
        status = trajd_yaml_get(node, "path") ? read_stamped(p, node, clock) : read_regular(p, node, clock);
    child = status ? NULL : trajd_yaml_get(node, "latency");
    if (child)
        status = trajd_yaml_duration(p->yaml, child, &clock->latency_ns, p->error);
    child = status ? NULL : trajd_yaml_get(node, "offset");
    if (child)
        status = trajd_yaml_duration(p->yaml, child, &clock->offset_ns, p->error);
    return status;
}

static enum trajd_status read_clocks(struct parse *p, const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    bool stamped = false;
    enum trajd_status status = TRAJD_OK;
    const struct trajd_yaml_node *child;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count || node->child_count > CLOCK_COUNT_MAX)
        return trajd_yaml_error(p->yaml, node, p->error, "must be a mapping of 1 to %d clocks",
                                CLOCK_COUNT_MAX);
    p->clocks = trajd_arena_alloc(&p->memory->arena, node->child_count * sizeof *p->clocks);
    if (!p->clocks)
        return no_memory(p);
    for (child = node->children; child && !status; child = child->next) {
        status = read_clock(p, child, &p->clocks[layout->clock_count]);
        stamped = stamped || p->clocks[layout->clock_count].stamps_path;
        layout->clock_count++;
    }
    child = node->children;
    for (uint32_t i = 0; i < layout->clock_count && !status; i++, child = child->next) {
        if (stamped && !p->clocks[i].stamps_path && !p->clocks[i].start_path)
            status = trajd_yaml_error(
                p->yaml, child, p->error,
                "start: missing (a regular clock beside stamped ones must say when its first row was)");
    }
    return status;
}

static enum trajd_status read_kind(struct parse *p, const struct trajd_yaml_node *node,
                                   struct trajd_layout_stream *stream)
{
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR,     TRAJD_KIND_PREVIOUS, TRAJD_KIND_NEAREST,
                                            TRAJD_KIND_SLERP_XYZW, TRAJD_KIND_ANGLE,    TRAJD_KIND_MEAN};
    const struct trajd_yaml_node *kind = trajd_yaml_get(node, "kind"), *order = trajd_yaml_get(node, "order");
    enum trajd_status status;
    int choice;

    if (!kind)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "kind: missing (one of linear, previous, nearest, slerp, angle, mean)");
    status = trajd_yaml_choice(p->yaml, kind, kind_words, &choice, p->error);
    if (status)
        return status;
    stream->kind = kinds[choice];
    if (stream->kind != TRAJD_KIND_SLERP_XYZW)
        return order ? trajd_yaml_error(p->yaml, order, p->error, "belongs to kind slerp only") : TRAJD_OK;
    if (!order)
        return trajd_yaml_error(p->yaml, node, p->error,
                                "order: missing (slerp needs xyzw or wxyz; no file says which it has)");
    status = trajd_yaml_choice(p->yaml, order, order_words, &choice, p->error);
    if (!status && choice == 1)
        stream->kind = TRAJD_KIND_SLERP_WXYZ;
    return status;
}

/* columns: "0:6" */
static enum trajd_status read_columns(struct parse *p, const struct trajd_yaml_node *node,
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
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": columns are written BEGIN:END, the end not included, like 0:6",
                                text);
    stream->column_begin = begin;
    stream->column_end = end;
    return TRAJD_OK;
}

static enum trajd_status read_stream_clock(struct parse *p, const struct trajd_yaml_node *node,
                                           struct trajd_layout_stream *stream)
{
    const struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *clock = trajd_yaml_get(node, "clock");
    const char *names[CLOCK_COUNT_MAX], *text, *near;
    enum trajd_status status;

    if (!clock && layout->clock_count != 1)
        return trajd_yaml_error(p->yaml, node, p->error, "clock: missing (the layout has %u clocks)",
                                layout->clock_count);
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

static enum trajd_status read_stream_rest(struct parse *p, const struct trajd_yaml_node *node,
                                          struct trajd_layout_stream *stream)
{
    const struct trajd_yaml_node *columns = trajd_yaml_get(node, "columns"),
                                 *unit = trajd_yaml_get(node, "unit");
    const struct trajd_yaml_node *gap = trajd_yaml_get(node, "max_gap"),
                                 *optional = trajd_yaml_get(node, "optional");
    bool family = star_count(stream->name) > 0;
    enum trajd_status status = TRAJD_OK;

    stream->max_gap_ns = -1;
    if (columns)
        status = read_columns(p, columns, stream);
    if (!status && unit)
        status = read_text(p, unit, &stream->unit);
    if (!status && gap)
        status = trajd_yaml_duration(p->yaml, gap, &stream->max_gap_ns, p->error);
    if (!status && gap && stream->max_gap_ns <= 0)
        status = trajd_yaml_error(p->yaml, gap, p->error, "must be above 0");
    if (!status && optional)
        status = trajd_yaml_bool(p->yaml, optional, &stream->optional, p->error);
    if (!status && optional && family && !stream->optional)
        status =
            trajd_yaml_error(p->yaml, optional, p->error, "a family of streams ('*') is always optional");
    stream->optional = stream->optional || family;
    if (stream->kind == TRAJD_KIND_ANGLE)
        stream->angle_period = stream->unit && !strcmp(stream->unit, "deg") ? degrees_period : radians_period;
    return status;
}

static enum trajd_status read_stream(struct parse *p, const struct trajd_yaml_node *node,
                                     struct trajd_layout_stream *stream)
{
    static const char *const keys[] = {"path", "clock",   "kind",     "order", "columns",
                                       "unit", "max_gap", "optional", NULL};
    const struct trajd_yaml_node *path = trajd_yaml_get(node, "path");
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);

    if (!status && (!*node->key || strlen(node->key) > PATH_LENGTH_MAX || star_count(node->key) > 1))
        status =
            trajd_yaml_error(p->yaml, node, p->error,
                             "a stream's name has 1 to %d characters and at most one '*'", PATH_LENGTH_MAX);
    if (!status)
        status = copy_text(p, node->key, &stream->name);
    if (!status && path)
        status = read_path(p, path, 1, &stream->path);
    else if (!status && !path_is_clean(stream->name))
        status = trajd_yaml_error(p->yaml, node, p->error, "path: missing (the name is no path)");
    else if (!status)
        stream->path = stream->name;
    if (!status && star_count(stream->name) != star_count(stream->path))
        status = trajd_yaml_error(p->yaml, node, p->error, "name and path must both have a '*', or neither");
    if (!status)
        status = read_stream_clock(p, node, stream);
    if (!status)
        status = read_kind(p, node, stream);
    return status ? status : read_stream_rest(p, node, stream);
}

static enum trajd_status read_streams(struct parse *p, const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_MAPPING || !node->child_count || node->child_count > STREAM_COUNT_MAX)
        return trajd_yaml_error(p->yaml, node, p->error, "must be a mapping of 1 to %d streams",
                                STREAM_COUNT_MAX);
    p->streams = trajd_arena_alloc(&p->memory->arena, node->child_count * sizeof *p->streams);
    if (!p->streams)
        return no_memory(p);
    for (const struct trajd_yaml_node *child = node->children; child && !status; child = child->next)
        status = read_stream(p, child, &p->streams[layout->stream_count++]);
    return status;
}

/* rows: names a stream of the clock, of this layout or of one of its families. */
static enum trajd_status check_rows(struct parse *p, const struct trajd_yaml_node *clocks)
{
    const struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *node = clocks->children;

    for (uint32_t i = 0; i < layout->clock_count; i++, node = node->next) {
        const char *rows = p->clocks[i].rows;
        bool found = !rows;
        for (uint32_t k = 0; k < layout->stream_count && !found; k++)
            found = !strcmp(p->streams[k].clock, p->clocks[i].name) &&
                    trajd_layout_match(p->streams[k].name, rows, NULL, 0);
        if (!found)
            return trajd_yaml_error(p->yaml, trajd_yaml_get(node, "rows"), p->error,
                                    "no stream of this clock is called \"%s\"", rows);
    }
    return TRAJD_OK;
}

static enum trajd_status read_episodes(struct parse *p, const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"files", "groups", NULL};
    struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *files, *groups;
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);

    if (status)
        return status;
    files = trajd_yaml_get(node, "files");
    groups = trajd_yaml_get(node, "groups");
    if (!files || !groups)
        return trajd_yaml_error(p->yaml, node, p->error, "%s: missing", files ? "groups" : "files");
    status = read_text(p, files, &layout->files);
    if (!status && (*layout->files == '/' || !path_is_clean(layout->files)))
        status = trajd_yaml_error(
            p->yaml, files, p->error,
            "\"%s\": a glob below the dataset's folder, without empty, \".\" or \"..\" parts", layout->files);
    if (!status)
        status = read_text(p, groups, &layout->groups);
    if (!status && (*layout->groups != '/' || (layout->groups[1] && !path_is_clean(layout->groups))))
        status = trajd_yaml_error(p->yaml, groups, p->error, "\"%s\": begins with '/', like /data/demo_*",
                                  layout->groups);
    return status;
}

static enum trajd_status read_filter(struct parse *p, const struct trajd_yaml_node *node)
{
    static const char suffix[] = "/{key}";
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = read_text(p, node, &layout->filter_path);
    size_t length;

    if (status)
        return status;
    length = strlen(layout->filter_path);
    if (layout->filter_path[0] != '/' || length < sizeof suffix - 1 ||
        strcmp(layout->filter_path + length - (sizeof suffix - 1), suffix) ||
        !path_is_clean(layout->filter_path) || star_count(layout->filter_path))
        return trajd_yaml_error(p->yaml, node, p->error, "\"%s\": is written /GROUP/{key}, like /mask/{key}",
                                layout->filter_path);
    return TRAJD_OK;
}

static void digest_layout(struct trajd_layout *layout)
{
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    trajd_digest_add_text(&digest, layout->files);
    trajd_digest_add_text(&digest, layout->groups);
    trajd_digest_add_text(&digest, layout->filter_path);
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        const char *texts[] = {clock->name, clock->rate_attribute, clock->rate_json,
                               clock->rows, clock->stamps_path,    clock->start_path};
        int64_t numbers[] = {clock->rate.num,         clock->rate.den,      clock->rate_default.num,
                             clock->rate_default.den, clock->stamps_column, clock->unit,
                             clock->repeated,         clock->backward,      clock->start_unit,
                             clock->offset_ns,        clock->latency_ns};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            trajd_digest_add_text(&digest, texts[k]);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            trajd_digest_add_u64(&digest, (uint64_t)numbers[k]);
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        const struct trajd_layout_stream *stream = &layout->streams[i];
        const char *texts[] = {stream->name, stream->path, stream->clock, stream->unit};
        int64_t numbers[] = {stream->kind, stream->column_begin, stream->column_end, stream->max_gap_ns,
                             stream->optional};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            trajd_digest_add_text(&digest, texts[k]);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            trajd_digest_add_u64(&digest, (uint64_t)numbers[k]);
    }
    layout->hash = trajd_digest_end(&digest);
}

static enum trajd_status read_root(struct parse *p)
{
    static const char *const keys[] = {"layout", "version", "episodes", "clocks", "streams", "filter", NULL};
    static const char *const required[] = {"layout", "episodes", "clocks", "streams", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(p->yaml), *node;
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, root, keys, p->error);
    int64_t version;

    for (size_t i = 0; required[i] && !status; i++) {
        if (!trajd_yaml_get(root, required[i]))
            status = trajd_yaml_error(p->yaml, root, p->error, "%s: missing", required[i]);
    }
    node = status ? NULL : trajd_yaml_get(root, "version");
    if (node)
        status = trajd_yaml_int(p->yaml, node, 1, 1, &version, p->error);
    if (!status)
        status = read_text(p, trajd_yaml_get(root, "layout"), &layout->name);
    if (!status)
        status = read_episodes(p, trajd_yaml_get(root, "episodes"));
    if (!status)
        status = read_clocks(p, trajd_yaml_get(root, "clocks"));
    if (!status)
        status = read_streams(p, trajd_yaml_get(root, "streams"));
    if (!status)
        status = check_rows(p, trajd_yaml_get(root, "clocks"));
    node = status ? NULL : trajd_yaml_get(root, "filter");
    return node ? read_filter(p, node) : status;
}

enum trajd_status trajd_layout_parse(const char *name, const char *text, size_t length,
                                     struct trajd_layout **layout, struct trajd_error *error)
{
    struct parse p = {.error = error};
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse(name, text, length, &yaml, error);

    if (status)
        return status;
    p.yaml = yaml;
    p.memory = calloc(1, sizeof *p.memory);
    if (!p.memory) {
        trajd_yaml_destroy(&yaml);
        return no_memory(&p);
    }
    p.memory->arena.limit_bytes = layout_bytes_max;
    status = read_root(&p);
    trajd_yaml_destroy(&yaml);
    p.memory->layout.text = trajd_arena_copy(&p.memory->arena, text, length);
    p.memory->layout.text_length = length;
    p.memory->layout.clocks = p.clocks;
    p.memory->layout.streams = p.streams;
    if (!status && !p.memory->layout.text)
        status = no_memory(&p);
    *layout = &p.memory->layout;
    if (status)
        trajd_layout_destroy(layout);
    else
        digest_layout(*layout);
    return status;
}

void trajd_layout_destroy(struct trajd_layout **layout)
{
    struct layout_memory *memory = (struct layout_memory *)*layout;

    if (memory) {
        trajd_arena_free(&memory->arena);
        free(memory);
    }
    *layout = NULL;
}

bool trajd_layout_match(const char *pattern, const char *text, char *capture, size_t capture_size)
{
    const char *star = strchr(pattern, '*');
    size_t before = star ? (size_t)(star - pattern) : 0, after = star ? strlen(star + 1) : 0,
           length = strlen(text);
    size_t middle;

    if (!star)
        return !strcmp(pattern, text);
    if (length < before + after || strncmp(pattern, text, before) || strcmp(star + 1, text + length - after))
        return false;
    middle = length - before - after;
    if (!middle || memchr(text + before, '/', middle))
        return false;
    if (capture) {
        if (middle >= capture_size)
            return false;
        memcpy(capture, text + before, middle);
        capture[middle] = '\0';
    }
    return true;
}
