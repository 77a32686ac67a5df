#include "daemon/layout/layout.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/layout/layout_internal.h"

static const size_t layout_bytes_max = 8u << 20;

enum trajd_status trajd_layout_no_memory(struct trajd_layout_parser *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for the layout");
}

enum trajd_status trajd_layout_copy_text(struct trajd_layout_parser *p, const char *text,
                                         const char **out)
{
    *out = trajd_arena_copy(&p->memory->arena, text, strlen(text));
    return *out ? TRAJD_OK : trajd_layout_no_memory(p);
}

uint32_t trajd_layout_star_count(const char *text)
{
    uint32_t count = 0;

    for (; *text; text++)
        count += *text == '*';
    return count;
}

/* A path inside an HDF5 file: no empty, "." or ".." component. */
bool trajd_layout_path_is_clean(const char *path)
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

enum trajd_status trajd_layout_read_text(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, const char **out)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(p->yaml, node, &text, p->error);

    if (status)
        return status;
    if (!*text || strlen(text) > TRAJD_LAYOUT_PATH_MAX)
        return trajd_yaml_error(p->yaml, node, p->error, "must have 1 to %d characters",
                                TRAJD_LAYOUT_PATH_MAX);
    return trajd_layout_copy_text(p, text, out);
}

/* The path of a dataset relative to the episode. */
enum trajd_status trajd_layout_read_path(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, uint32_t stars_max,
                                         const char **out)
{
    enum trajd_status status = trajd_layout_read_text(p, node, out);

    if (status)
        return status;
    if (**out == '/' || !trajd_layout_path_is_clean(*out))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": a path is relative to the episode's group, without empty, "
                                "\".\" or \"..\" parts",
                                *out);
    if (trajd_layout_star_count(*out) > stars_max)
        return trajd_yaml_error(p->yaml, node, p->error, "\"%s\": %s", *out,
                                stars_max ? "only one '*' is allowed" : "no '*' is allowed here");
    return TRAJD_OK;
}

/* rows: names a stream of the clock, of this layout or of one of its families. */
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
    return status;
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
        int64_t numbers[] = {stream->kind, stream->column_begin, stream->column_end,
                             stream->max_gap_ns, stream->optional};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            trajd_digest_add_text(&digest, texts[k]);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            trajd_digest_add_u64(&digest, (uint64_t)numbers[k]);
    }
    for (uint32_t i = 0; i < layout->meta_count; i++) {
        const struct trajd_layout_meta *meta = &layout->metas[i];
        const char *texts[] = {meta->name, meta->attribute, meta->path, meta->json};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            trajd_digest_add_text(&digest, texts[k]);
        trajd_digest_add_u64(&digest, meta->required);
    }
    layout->hash = trajd_digest_end(&digest);
}

static enum trajd_status read_root(struct trajd_layout_parser *p)
{
    static const char *const keys[] = {"layout",  "version", "episodes", "clocks",
                                       "streams", "filter",  "meta",     NULL};
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
        digest_layout(*layout);
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
