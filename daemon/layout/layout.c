#include "daemon/layout/layout.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/layout/layout_internal.h"

static const size_t layout_bytes_max = 8u << 20;

/* Checks that the key rows names a stream of its clock. The stream may be a member of a family. */
static enum trajd_status check_rows(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *clocks)
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

static enum trajd_status read_episodes(struct trajd_layout_parser *p,
                                       const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"files", "groups", "split", NULL};
    struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *files, *groups, *split;
    enum trajd_status status = trajd_yaml_check_keys(p->yaml, node, keys, p->error);

    if (status)
        return status;
    files = trajd_yaml_get(node, "files");
    groups = trajd_yaml_get(node, "groups");
    if (!files || !groups)
        return trajd_yaml_error(p->yaml, node, p->error, "%s: missing", files ? "groups" : "files");
    status = trajd_layout_read_text(p, files, &layout->files);
    if (!status && (*layout->files == '/' || !trajd_layout_path_is_clean(layout->files)))
        status = trajd_yaml_error(
            p->yaml, files, p->error,
            "\"%s\": a glob below the dataset's folder, without empty, \".\" or \"..\" parts",
            layout->files);
    if (!status)
        status = trajd_layout_read_text(p, groups, &layout->groups);
    if (!status && (*layout->groups != '/' ||
                    (layout->groups[1] && !trajd_layout_path_is_clean(layout->groups))))
        status = trajd_yaml_error(p->yaml, groups, p->error,
                                  "\"%s\": begins with '/', like /data/demo_*", layout->groups);
    split = status ? NULL : trajd_yaml_get(node, "split");
    return split ? trajd_layout_read_split(p, split) : status;
}

static enum trajd_status read_filter(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node)
{
    static const char suffix[] = "/{key}";
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = trajd_layout_read_text(p, node, &layout->filter_path);
    size_t length;

    if (status)
        return status;
    length = strlen(layout->filter_path);
    if (layout->filter_path[0] != '/' || length < sizeof suffix - 1 ||
        strcmp(layout->filter_path + length - (sizeof suffix - 1), suffix) ||
        !trajd_layout_path_is_clean(layout->filter_path) ||
        trajd_layout_star_count(layout->filter_path))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": is written /GROUP/{key}, like /mask/{key}",
                                layout->filter_path);
    return TRAJD_OK;
}

static enum trajd_status read_tables(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = TRAJD_OK;
    const char **tables;

    if (node->kind != TRAJD_YAML_SEQUENCE)
        return trajd_yaml_error(p->yaml, node, p->error, "write a list, like [calibration/K]");
    tables = trajd_arena_alloc(&p->memory->arena, (node->child_count + 1) * sizeof *tables);
    if (!tables)
        return trajd_layout_no_memory(p);
    layout->tables = tables;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_layout_read_path(p, child, 1, &tables[layout->table_count++]);
    return status;
}

static enum trajd_status read_root(struct trajd_layout_parser *p)
{
    static const char *const keys[] = {"layout", "version", "episodes", "clocks", "streams",
                                       "filter", "meta",    "tables",   NULL};
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
        status = trajd_layout_read_text(p, trajd_yaml_get(root, "layout"), &layout->name);
    if (!status)
        status = read_episodes(p, trajd_yaml_get(root, "episodes"));
    if (!status)
        status = trajd_layout_read_clocks(p, trajd_yaml_get(root, "clocks"));
    if (!status)
        status = trajd_layout_read_streams(p, trajd_yaml_get(root, "streams"));
    if (!status)
        status = check_rows(p, trajd_yaml_get(root, "clocks"));
    node = status ? NULL : trajd_yaml_get(root, "filter");
    if (node)
        status = read_filter(p, node);
    node = status ? NULL : trajd_yaml_get(root, "tables");
    if (node)
        status = read_tables(p, node);
    if (!status && p->memory->layout.split.kind)
        status = trajd_layout_check_split(p, trajd_yaml_get(root, "episodes"));
    node = status ? NULL : trajd_yaml_get(root, "meta");
    return node ? trajd_layout_read_metas(p, node) : status;
}

enum trajd_status trajd_layout_parse(const char *name, const char *text, size_t length,
                                     struct trajd_layout **layout, struct trajd_error *error)
{
    struct trajd_layout_parser p = {.error = error};
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status = trajd_yaml_parse(name, text, length, &yaml, error);

    *layout = NULL;
    if (status)
        return status;
    p.yaml = yaml;
    p.memory = calloc(1, sizeof *p.memory);
    if (!p.memory) {
        trajd_yaml_destroy(&yaml);
        return trajd_layout_no_memory(&p);
    }
    p.memory->arena.limit_bytes = layout_bytes_max;
    status = read_root(&p);
    trajd_yaml_destroy(&yaml);
    p.memory->layout.text = trajd_arena_copy(&p.memory->arena, text, length);
    p.memory->layout.text_length = length;
    p.memory->layout.clocks = p.clocks;
    p.memory->layout.streams = p.streams;
    if (!status && !p.memory->layout.text)
        status = trajd_layout_no_memory(&p);
    *layout = &p.memory->layout;
    if (status)
        trajd_layout_destroy(layout);
    else
        trajd_layout_set_hash(*layout);
    return status;
}

void trajd_layout_destroy(struct trajd_layout **layout)
{
    struct trajd_layout_memory *memory = (struct trajd_layout_memory *)*layout;

    if (memory) {
        trajd_arena_free(&memory->arena);
        free(memory);
    }
    *layout = NULL;
}

bool trajd_layout_is_pattern(const struct trajd_layout *layout, const char *path)
{
    bool is_pattern = false;

    if (!strchr(path, '*'))
        return false;
    for (uint32_t i = 0; i < layout->clock_count && !is_pattern; i++)
        is_pattern = layout->clocks[i].stamps_path && !strcmp(layout->clocks[i].stamps_path, path);
    for (uint32_t i = 0; i < layout->stream_count && !is_pattern; i++)
        is_pattern =
            !trajd_layout_is_family(&layout->streams[i]) && !strcmp(layout->streams[i].path, path);
    return is_pattern;
}

const struct trajd_layout_image *trajd_layout_image_of(const struct trajd_layout *layout,
                                                       const char *path)
{
    const bool is_pattern = trajd_layout_is_pattern(layout, path);
    bool taken = false;

    for (uint32_t i = 0; i < layout->stream_count; i++) {
        const struct trajd_layout_stream *stream = &layout->streams[i];
        if (trajd_layout_is_family(stream)
                ? taken || is_pattern || !trajd_layout_match(stream->path, path, NULL, 0)
                : strcmp(stream->path, path) != 0)
            continue;
        if (stream->image.is_present)
            return &stream->image;
        taken = true;
    }
    return NULL;
}

bool trajd_layout_match(const char *pattern, const char *text, char *capture, size_t capture_size)
{
    const char *star = strchr(pattern, '*');
    size_t before = star ? (size_t)(star - pattern) : 0, after = star ? strlen(star + 1) : 0,
           length = strlen(text);
    size_t middle;

    if (!star)
        return !strcmp(pattern, text);
    if (length < before + after || strncmp(pattern, text, before) ||
        strcmp(star + 1, text + length - after))
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
