/* Finds a layout by its name or path, and parses its document. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "daemon/layout/glob.h"
#include "daemon/layout/layout_internal.h"

enum { TEXT_SIZE_MAX = 1 << 20 };
static const size_t layout_bytes_max = 8u << 20;

/* Checks that the key rows names a stream of its clock. The stream may be a member of a family. */
static enum trajd_status check_rows(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *clocks)
{
    const struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *node = clocks->children;

    for (uint32_t i = 0; node; i++, node = node->next) {
        const char *rows = p->clocks[i].rows;
        bool found = !rows;
        for (uint32_t k = 0; k < layout->stream_count && !found; k++)
            found = !strcmp(p->streams[k].clock, p->clocks[i].name) &&
                    trajd_layout_match(p->streams[k].name, rows, NULL, 0);
        if (!found)
            return trajd_yaml_error(p->r.yaml, trajd_yaml_get(node, "rows"), p->r.error,
                                    "no stream of this clock is called \"%s\"", rows);
    }
    return TRAJD_OK;
}

/* ---- several episodes in one array ---- */

enum { SPLIT_KINDS = 4 };
static const char *const split_keys[] = {"flags", "lengths", "ends", "starts", "next", NULL};

/* Reads one path, or a list of paths. */
static enum trajd_status read_paths(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_layout_split *split)
{
    const bool is_list = node->kind == TRAJD_YAML_SEQUENCE && split->kind == TRAJD_SPLIT_FLAGS;
    enum trajd_status status = TRAJD_OK;

    if (is_list && (!node->child_count || node->child_count > TRAJD_LAYOUT_SPLIT_PATHS_MAX))
        return trajd_yaml_error(r->yaml, node, r->error, "must be a list of 1 to %d datasets",
                                TRAJD_LAYOUT_SPLIT_PATHS_MAX);
    for (const struct trajd_yaml_node *child = is_list ? node->children : node; child && !status;
         child = is_list ? child->next : NULL)
        status = trajd_layout_read_path(r, child, &split->paths[split->path_count++]);
    return status;
}

/* Reads [observations, next_observations]. */
static enum trajd_status read_next(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_layout_split *split)
{
    enum trajd_status status;

    if (split->kind != TRAJD_SPLIT_FLAGS)
        return trajd_yaml_error(r->yaml, node, r->error, "only goes with flags");
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "must be two datasets: the rows, and the next row of each, like "
                                "[observations, next_observations]");
    status = trajd_layout_read_path(r, node->children, &split->rows_path);
    return status ? status : trajd_layout_read_path(r, node->children->next, &split->next_path);
}

static enum trajd_status read_split(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node)
{
    struct trajd_layout_split *split = &p->memory->layout.split;
    const struct trajd_yaml_node *found = NULL;
    enum trajd_status status = trajd_yaml_check_keys(p->r.yaml, node, split_keys, p->r.error);

    for (int i = 0; i < SPLIT_KINDS && !status; i++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, split_keys[i]);
        if (!child)
            continue;
        if (found)
            return trajd_yaml_error(p->r.yaml, child, p->r.error,
                                    "only one of flags, lengths, ends and starts");
        found = child;
        split->kind = (enum trajd_split_kind)(i + 1);
    }
    if (!status && !found)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "needs one of flags, lengths, ends and starts");
    if (!status)
        status = read_paths(&p->r, found, split);
    found = status ? NULL : trajd_yaml_get(node, "next");
    return found ? read_next(&p->r, found, split) : status;
}

/* Checks that no clock or stream contradicts the split. */
static enum trajd_status check_split(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node)
{
    const struct trajd_layout *layout = &p->memory->layout;

    for (uint32_t i = 0; i < layout->clock_count; i++)
        if (p->clocks[i].start_path)
            return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                    "split: does not go with start: of clock %s",
                                    p->clocks[i].name);
    for (uint32_t i = 0; i < layout->stream_count; i++)
        if (p->streams[i].drops_last_row)
            return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                    "split: does not go with rows: first of stream %s",
                                    p->streams[i].name);
    return TRAJD_OK;
}

/* ---- the document ---- */

static enum trajd_status read_episodes(struct trajd_layout_parser *p,
                                       const struct trajd_yaml_node *node)
{
    static const char *const keys[] = {"files", "groups", "split", NULL};
    struct trajd_layout *layout = &p->memory->layout;
    const struct trajd_yaml_node *files, *groups, *split;
    enum trajd_status status = trajd_yaml_check_keys(p->r.yaml, node, keys, p->r.error);

    if (status)
        return status;
    files = trajd_yaml_get(node, "files");
    groups = trajd_yaml_get(node, "groups");
    if (!files || !groups)
        return trajd_yaml_error(p->r.yaml, node, p->r.error, "%s: missing",
                                files ? "groups" : "files");
    status = trajd_layout_read_text(&p->r, files, &layout->files);
    if (!status && (*layout->files == '/' || !trajd_layout_path_is_clean(layout->files)))
        status = trajd_yaml_error(
            p->r.yaml, files, p->r.error,
            "\"%s\": a glob below the dataset's folder, without empty, \".\" or \"..\" parts",
            layout->files);
    if (!status)
        status = trajd_layout_read_text(&p->r, groups, &layout->groups);
    if (!status && (*layout->groups != '/' ||
                    (layout->groups[1] && !trajd_layout_path_is_clean(layout->groups))))
        status = trajd_yaml_error(p->r.yaml, groups, p->r.error,
                                  "\"%s\": begins with '/', like /data/demo_*", layout->groups);
    split = status ? NULL : trajd_yaml_get(node, "split");
    return split ? read_split(p, split) : status;
}

static enum trajd_status read_filter(struct trajd_layout_parser *p,
                                     const struct trajd_yaml_node *node)
{
    static const char suffix[] = "/{key}";
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = trajd_layout_read_text(&p->r, node, &layout->filter_path);
    size_t length;

    if (status)
        return status;
    length = strlen(layout->filter_path);
    if (layout->filter_path[0] != '/' || length < sizeof suffix - 1 ||
        strcmp(layout->filter_path + length - (sizeof suffix - 1), suffix) ||
        !trajd_layout_path_is_clean(layout->filter_path) ||
        trajd_layout_star_count(layout->filter_path))
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
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
        return trajd_yaml_error(p->r.yaml, node, p->r.error, "write a list, like [calibration/K]");
    tables = trajd_yaml_alloc(&p->r, (node->child_count + 1) * sizeof *tables);
    if (!tables)
        return TRAJD_ERR_MEMORY;
    layout->tables = tables;
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_layout_read_pattern(&p->r, child, &tables[layout->table_count++]);
    return status;
}

/* Returns the key that an entry of `guessed:` begins with, like "episodes: ..." or
 * "streams.NAME: ...". The entry itself, where the layout has no such key. */
static const struct trajd_yaml_node *find_guessed(const struct trajd_yaml_node *root,
                                                  const struct trajd_yaml_node *entry)
{
    for (const struct trajd_yaml_node *key = root->children; key; key = key->next) {
        const char *name = entry->value + strlen(key->key) + 1;
        if (strncmp(entry->value, key->key, strlen(key->key)) || !strchr(".:", name[-1]))
            continue;
        if (name[-1] == ':')
            return key;
        for (const struct trajd_yaml_node *child = key->children; child; child = child->next)
            if (child->key && !strncmp(name, child->key, strlen(child->key)) &&
                name[strlen(child->key)] == ':')
                return child;
    }
    return entry;
}

/* Reads `guessed:`, and writes down what to say of its first entry. A list without entries may be
 * empty. */
static enum trajd_status read_guesses(struct trajd_layout_parser *p,
                                      const struct trajd_yaml_node *node)
{
    struct trajd_layout *layout = &p->memory->layout;
    const bool is_empty = node->kind == TRAJD_YAML_SCALAR && !node->quoted && !*node->value;
    enum trajd_status status = TRAJD_OK;
    struct trajd_error guess;
    char more[64] = "";
    const char *text, *why;

    if (node->kind != TRAJD_YAML_SEQUENCE && !is_empty)
        return trajd_yaml_error(p->r.yaml, node, p->r.error,
                                "must be a list of texts, like [\"clocks.steps: no file states "
                                "its rate\"]");
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_layout_read_text(&p->r, child, &text);
    layout->guess_count = node->child_count;
    if (status || !node->child_count)
        return status;
    if (node->child_count > 1)
        snprintf(more, sizeof more, ". %u more follow it", node->child_count - 1);
    why = strstr(node->children->value, ": ");
    trajd_yaml_error(p->r.yaml, find_guessed(trajd_yaml_root(p->r.yaml), node->children), &guess,
                     "this line is a guess (%.200s). Look at it, correct it if it is wrong, and "
                     "delete its entry of guessed: in line %u%s",
                     why ? why + 2 : node->children->value, node->children->line, more);
    return trajd_yaml_keep(&p->r, guess.message, &layout->guess);
}

static enum trajd_status read_root(struct trajd_layout_parser *p)
{
    static const char *const keys[] = {"layout", "version", "episodes", "clocks",  "streams",
                                       "filter", "meta",    "tables",   "guessed", NULL};
    static const char *const required[] = {"layout", "episodes", "clocks", "streams", NULL};
    const struct trajd_yaml_node *root = trajd_yaml_root(p->r.yaml), *node;
    struct trajd_layout *layout = &p->memory->layout;
    enum trajd_status status = trajd_yaml_check_keys(p->r.yaml, root, keys, p->r.error);
    int64_t version;

    for (size_t i = 0; required[i] && !status; i++) {
        if (!trajd_yaml_get(root, required[i]))
            status = trajd_yaml_error(p->r.yaml, root, p->r.error, "%s: missing", required[i]);
    }
    node = status ? NULL : trajd_yaml_get(root, "version");
    if (node)
        status = trajd_yaml_int(p->r.yaml, node, 1, 1, &version, p->r.error);
    if (!status)
        status = trajd_layout_read_text(&p->r, trajd_yaml_get(root, "layout"), &layout->name);
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
    node = status ? NULL : trajd_yaml_get(root, "guessed");
    if (node)
        status = read_guesses(p, node);
    if (!status && p->memory->layout.split.kind)
        status = check_split(p, trajd_yaml_get(root, "episodes"));
    node = status ? NULL : trajd_yaml_get(root, "meta");
    return node ? trajd_layout_read_metas(p, node) : status;
}

enum trajd_status trajd_layout_parse(const char *name, const char *text, size_t length,
                                     struct trajd_layout **layout, struct trajd_error *error)
{
    struct trajd_layout_parser p = {.memory = calloc(1, sizeof *p.memory)};
    struct trajd_yaml *yaml = NULL;
    enum trajd_status status;

    *layout = NULL;
    if (!p.memory)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the layout");
    status = trajd_yaml_parse(name, text, length, &yaml, error);
    if (status) {
        free(p.memory);
        return status;
    }
    p.r = (struct trajd_yaml_reader){yaml, error, &p.memory->arena};
    p.memory->arena.limit_bytes = layout_bytes_max;
    status = read_root(&p);
    trajd_yaml_destroy(&yaml);
    p.memory->layout.text = trajd_arena_copy(&p.memory->arena, text, length);
    p.memory->layout.text_length = length;
    p.memory->layout.clocks = p.clocks;
    p.memory->layout.streams = p.streams;
    if (!status && !p.memory->layout.text)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the layout");
    *layout = &p.memory->layout;
    if (status)
        trajd_layout_destroy(layout);
    else
        trajd_layout_set_hash(*layout);
    return status;
}

/* Writes the names of the layouts in the folder to `list`, as many as fit, or "none". */
static void list_names(const char *directory, char *list, size_t size)
{
    struct trajd_file_list files;
    size_t used = 0;

    snprintf(list, size, "none");
    if (trajd_file_list_find(directory, "*.yaml", &files, NULL))
        return;
    for (uint32_t i = 0; i < files.count; i++) {
        const char *name = files.relative_paths[i];
        int length = (int)(strlen(name) - strlen(".yaml"));
        if (used + (size_t)length + 3 > size)
            break;
        used +=
            (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ", " : "", length, name);
    }
    trajd_file_list_free(&files);
}

static enum trajd_status load_file(const char *path, struct trajd_layout **layout,
                                   struct trajd_error *error)
{
    char *text = NULL;
    size_t length = 0;
    enum trajd_status status = trajd_file_read(path, TEXT_SIZE_MAX, &text, &length, error);

    if (!status)
        status = trajd_layout_parse(path, text, length, layout, error);
    free(text);
    return status;
}

bool trajd_layout_is_path(const char *name)
{
    const size_t length = strlen(name);

    return strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".yaml"));
}

enum trajd_status trajd_layout_load(const char *name, const char *directory, uint32_t version,
                                    struct trajd_layout **layout, struct trajd_error *error)
{
    const bool is_path = trajd_layout_is_path(name);
    char path[4096], names[300];
    enum trajd_status status;

    *layout = NULL;
    if (!is_path && !directory)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "layout %s: no folder of layouts is known", name);
    if (!is_path && version == 1 &&
        (size_t)snprintf(path, sizeof path, "%s/%s@1.yaml", directory, name) < sizeof path &&
        !access(path, F_OK)) {
        status = load_file(path, layout, error);
        if (!status)
            (*layout)->is_version_1 = true;
        return status;
    }
    if ((size_t)(is_path
                     ? snprintf(path, sizeof path, "%s", name)
                     : snprintf(path, sizeof path, "%s/%s.yaml", directory, name)) >= sizeof path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "layout %.64s...: the name is too long", name);
    if (!is_path && access(path, F_OK)) {
        list_names(directory, names, sizeof names);
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "layout %s: not in %s (there are: %s)", name, directory, names);
    }
    return load_file(path, layout, error);
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

enum trajd_status trajd_layout_check_guesses(const struct trajd_layout *layout,
                                             struct trajd_error *error)
{
    return layout->guess ? trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s", layout->guess)
                         : TRAJD_OK;
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

bool trajd_layout_requires(const struct trajd_layout *layout, const char *path)
{
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        if ((clock->stamps_path && !strcmp(clock->stamps_path, path)) ||
            (clock->start_path && !strcmp(clock->start_path, path)))
            return true;
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        if (!layout->streams[i].optional && !strcmp(layout->streams[i].path, path))
            return true;
    }
    return false;
}
