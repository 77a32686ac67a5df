/* Builds the tree from libyaml's events. Any input becomes an error or a tree within the limits. */
#include "daemon/base/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "daemon/base/arena.h"
#include "daemon/base/files.h"

enum {
    MAX_TEXT_BYTES = 1 << 20,
    MAX_DEPTH = 16,
    MAX_NODES = 65536,
    MAX_KEY_BYTES = 255,
    PAIR_BYTES = 12,           /* of "\ud83e\udd16" */
    MAX_TREE_BYTES = 32 << 20, /* 65,536 nodes with long paths would be 256 MiB */
};

struct trajd_yaml {
    struct trajd_arena arena;
    const char *name;
    struct trajd_yaml_node *root;
};

/* An open sequence or mapping. */
struct level {
    struct trajd_yaml_node *node;
    struct trajd_yaml_node **tail; /* where the next child is linked */
    const char *key;               /* a key whose value comes next */
    uint32_t key_line;
};

struct builder {
    struct trajd_yaml *yaml;
    struct trajd_error *error;
    struct level levels[MAX_DEPTH];
    uint32_t depth;
    uint32_t node_count;
    uint32_t document_count;
    bool finished;
};

/* Replaces control characters of the document: an error message is one line. */
static void make_printable(struct trajd_error *error)
{
    for (char *c = error ? error->message : ""; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

static enum trajd_status refuse(struct builder *builder, size_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum trajd_status refuse(struct builder *builder, size_t line, const char *format, ...)
{
    char message[TRAJD_ERROR_MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    trajd_error_set(builder->error, TRAJD_ERR_ARGUMENT, 0, "%s:%zu: %s", builder->yaml->name, line,
                    message);
    make_printable(builder->error);
    return TRAJD_ERR_ARGUMENT;
}

static enum trajd_status no_memory(const char *name, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory to read it", name);
}

/* The arena returned no memory: the system has none, or the document is too large. */
static enum trajd_status refuse_size(struct builder *builder, size_t line)
{
    if (builder->yaml->arena.is_starved)
        return no_memory(builder->yaml->name, builder->error);
    return refuse(builder, line, "the document needs more memory than a document may (%d MiB)",
                  MAX_TREE_BYTES >> 20);
}

/* Returns "parent.key", or "parent[3]" in a sequence. */
static char *make_path(struct builder *builder, const struct trajd_yaml_node *parent,
                       const char *key)
{
    char index[16];
    size_t parent_length, length;
    char *path;

    if (!parent)
        return trajd_arena_copy(&builder->yaml->arena, "", 0);
    if (!key) {
        snprintf(index, sizeof index, "[%u]", parent->child_count);
        key = index;
    }
    parent_length = strlen(parent->path);
    length = parent_length + strlen(key) + 2;
    path = trajd_arena_alloc(&builder->yaml->arena, length);
    if (path)
        snprintf(path, length, "%s%s%s", parent->path, parent_length && key != index ? "." : "",
                 key);
    return path;
}

/* Adds a node at the open place: the root, an item, or the value of the last key. */
static enum trajd_status add_node(struct builder *builder, enum trajd_yaml_kind kind, size_t line,
                                  struct trajd_yaml_node **out)
{
    struct level *level = builder->depth ? &builder->levels[builder->depth - 1] : NULL;
    struct trajd_yaml_node *parent = level ? level->node : NULL;
    struct trajd_yaml_node *node;

    if (++builder->node_count > MAX_NODES)
        return refuse(builder, line, "more than %d values in one document", MAX_NODES);
    node = trajd_arena_alloc(&builder->yaml->arena, sizeof *node);
    if (!node)
        return refuse_size(builder, line);
    node->kind = kind;
    node->line = (uint32_t)line;
    if (parent && parent->kind == TRAJD_YAML_MAPPING) {
        node->key = level->key;
        node->line = level->key_line;
        level->key = NULL;
    }
    node->path = make_path(builder, parent, node->key);
    if (!node->path)
        return refuse_size(builder, line);
    if (parent) {
        parent->child_count++;
        *level->tail = node;
        level->tail = &node->next;
    } else {
        builder->yaml->root = node;
    }
    *out = node;
    return TRAJD_OK;
}

static bool key_expected(const struct builder *builder)
{
    const struct level *level = builder->depth ? &builder->levels[builder->depth - 1] : NULL;

    return level && level->node->kind == TRAJD_YAML_MAPPING && !level->key;
}

static enum trajd_status refuse_extras(struct builder *builder, size_t line,
                                       const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return refuse(builder, line, "anchors are not supported: &%s", (const char *)anchor);
    if (tag)
        return refuse(builder, line, "tags are not supported: %s", (const char *)tag);
    return TRAJD_OK;
}

static enum trajd_status take_key(struct builder *builder, size_t line, const char *text,
                                  size_t length)
{
    struct level *level = &builder->levels[builder->depth - 1];

    if (!length)
        return refuse(builder, line, "an empty key");
    if (length > MAX_KEY_BYTES)
        return refuse(builder, line, "a key of %zu bytes (at most %d)", length, MAX_KEY_BYTES);
    level->key = trajd_arena_copy(&builder->yaml->arena, text, length);
    level->key_line = (uint32_t)line;
    return level->key ? TRAJD_OK : refuse_size(builder, line);
}

static enum trajd_status take_scalar(struct builder *builder, size_t line,
                                     const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    struct trajd_yaml_node *node = NULL;
    enum trajd_status status;

    status = refuse_extras(builder, line, event->data.scalar.anchor, event->data.scalar.tag);
    if (status)
        return status;
    if (memchr(text, 0, length))
        return refuse(builder, line, "a text with a zero byte");
    if (key_expected(builder))
        return take_key(builder, line, text, length);
    status = add_node(builder, TRAJD_YAML_SCALAR, line, &node);
    if (status)
        return status;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->value = trajd_arena_copy(&builder->yaml->arena, text, length);
    return node->value ? TRAJD_OK : refuse_size(builder, line);
}

static enum trajd_status open_level(struct builder *builder, enum trajd_yaml_kind kind, size_t line)
{
    struct trajd_yaml_node *node = NULL;
    enum trajd_status status;

    if (key_expected(builder))
        return refuse(builder, line, "a key must be a word, not a list or a mapping");
    if (builder->depth == MAX_DEPTH)
        return refuse(builder, line, "nested more than %d deep", MAX_DEPTH);
    status = add_node(builder, kind, line, &node);
    if (status)
        return status;
    builder->levels[builder->depth++] = (struct level){.node = node, .tail = &node->children};
    return TRAJD_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct trajd_yaml_node *const *left = a, *const *right = b;
    int order = strcmp((*left)->key, (*right)->key);

    return order ? order : ((*left)->line > (*right)->line) - ((*left)->line < (*right)->line);
}

/* Refuses keys that appear twice. Sorts them first: comparing each pair of 65,536 keys would take
 * minutes. */
static enum trajd_status refuse_duplicates(struct builder *builder,
                                           const struct trajd_yaml_node *mapping)
{
    const struct trajd_yaml_node **sorted;
    enum trajd_status status = TRAJD_OK;
    size_t count = 0;

    if (mapping->child_count < 2)
        return TRAJD_OK;
    sorted = malloc(mapping->child_count * sizeof *sorted);
    if (!sorted)
        return no_memory(builder->yaml->name, builder->error);
    for (const struct trajd_yaml_node *child = mapping->children; child; child = child->next)
        sorted[count++] = child;
    qsort(sorted, count, sizeof *sorted, compare_keys);
    for (size_t i = 1; i < count && !status; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
            status = refuse(builder, sorted[i]->line, "%s: given twice (first in line %u)",
                            sorted[i]->path, sorted[i - 1]->line);
    free(sorted);
    return status;
}

static enum trajd_status close_level(struct builder *builder)
{
    const struct trajd_yaml_node *node = builder->levels[--builder->depth].node;

    return node->kind == TRAJD_YAML_MAPPING ? refuse_duplicates(builder, node) : TRAJD_OK;
}

static enum trajd_status take_event(struct builder *builder, const yaml_event_t *event)
{
    size_t line = event->start_mark.line + 1;
    enum trajd_status status;

    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return builder->document_count++
                   ? refuse(builder, line, "a second document begins (one is read)")
                   : TRAJD_OK;
    case YAML_ALIAS_EVENT:
        return refuse(builder, line, "aliases are not supported: *%s",
                      (const char *)event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        return take_scalar(builder, line, event);
    case YAML_SEQUENCE_START_EVENT:
        status = refuse_extras(builder, line, event->data.sequence_start.anchor,
                               event->data.sequence_start.tag);
        return status ? status : open_level(builder, TRAJD_YAML_SEQUENCE, line);
    case YAML_MAPPING_START_EVENT:
        status = refuse_extras(builder, line, event->data.mapping_start.anchor,
                               event->data.mapping_start.tag);
        return status ? status : open_level(builder, TRAJD_YAML_MAPPING, line);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_level(builder);
    case YAML_STREAM_END_EVENT:
        builder->finished = true;
        return builder->yaml->root ? TRAJD_OK : refuse(builder, line, "the document is empty");
    default: /* the stream's start, a document's end */
        return TRAJD_OK;
    }
}

static size_t line_of(const char *text, size_t offset)
{
    size_t line = 1;

    for (size_t i = 0; i < offset; i++)
        line += text[i] == '\n';
    return line;
}

static enum trajd_status refuse_syntax(struct builder *builder, const yaml_parser_t *parser,
                                       const char *text, size_t length)
{
    size_t line = parser->problem_mark.line + 1;
    const char *problem = parser->problem ? parser->problem : "not YAML";

    if (parser->error == YAML_MEMORY_ERROR)
        return no_memory(builder->yaml->name, builder->error);
    if (parser->error == YAML_READER_ERROR) /* below the scanner there are no marks */
        line = line_of(text, parser->problem_offset < length ? parser->problem_offset : length);
    if (!parser->context)
        return refuse(builder, line, "%s", problem);
    return refuse(builder, line, "%s %s (line %zu)", problem, parser->context,
                  parser->context_mark.line + 1);
}

/* Refuses %TAG anywhere in the text before libyaml sees it. libyaml compares each %TAG with all
 * before it, which takes seconds for 1 MiB of them. */
static enum trajd_status refuse_tag_directives(struct builder *builder, const char *text,
                                               size_t length)
{
    const char *found = memmem(text, length, "%TAG", 4);

    return found ? refuse(builder, line_of(text, (size_t)(found - text)), "%%TAG is not supported")
                 : TRAJD_OK;
}

static enum trajd_status build(struct builder *builder, const char *text, size_t length)
{
    enum trajd_status status = refuse_tag_directives(builder, text, length);
    yaml_parser_t parser;
    yaml_event_t event;

    if (status)
        return status;
    if (!yaml_parser_initialize(&parser))
        return no_memory(builder->yaml->name, builder->error);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    while (!status && !builder->finished) {
        if (!yaml_parser_parse(&parser, &event)) {
            status = refuse_syntax(builder, &parser, text, length);
            break;
        }
        status = take_event(builder, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

/* Reads the pair of escapes with which JSON writes a character above U+FFFF. Returns 0 for others. */
static uint32_t read_pair(const char *text, size_t length)
{
    char pair[PAIR_BYTES + 1] = "";
    unsigned high, low;
    int used = 0;

    memcpy(pair, text, length < PAIR_BYTES ? length : PAIR_BYTES);
    if (sscanf(pair, "\\ud%3x\\ud%3x%n", &high, &low, &used) != 2 || used != PAIR_BYTES ||
        high < 0x800 || high > 0xbff || low < 0xc00)
        return 0;
    return 0x10000 + ((high - 0x800) << 10) + (low - 0xc00);
}

/* Writes "\ud83e\udd16" of JSON as the "\U0001f916" of YAML, because libyaml refuses the former. */
static size_t write_as_yaml(char *text, size_t length)
{
    bool quoted = false;
    size_t used = 0;

    for (size_t i = 0; i < length;) {
        const uint32_t code = quoted && text[i] == '\\' ? read_pair(text + i, length - i) : 0;
        if (code) {
            char escape[16];
            used += (size_t)sprintf(escape, "\\U%08x", code);
            memcpy(text + used - strlen(escape), escape, strlen(escape));
            i += PAIR_BYTES;
            continue;
        }
        quoted ^= text[i] == '"';
        if (quoted && text[i] == '\\' && i + 1 < length)
            text[used++] = text[i++];
        text[used++] = text[i++];
    }
    return used;
}

/* Builds the tree. A text that is JSON may have pairs of escapes. */
static enum trajd_status build_of_any(struct builder *builder, const char *text, size_t length)
{
    const bool is_json = length && strchr("{[", *text) && memmem(text, length, "\\ud", 3);
    char *copy = is_json ? malloc(length) : NULL;
    enum trajd_status status;

    if (!is_json)
        return build(builder, text, length);
    if (!copy)
        return no_memory(builder->yaml->name, builder->error);
    memcpy(copy, text, length);
    status = build(builder, copy, write_as_yaml(copy, length));
    free(copy);
    return status;
}

enum trajd_status trajd_yaml_parse(const char *name, const char *text, size_t length,
                                   struct trajd_yaml **yaml, struct trajd_error *error)
{
    struct builder builder = {.error = error};
    enum trajd_status status;

    if (length > MAX_TEXT_BYTES)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: longer than %d bytes", name,
                               MAX_TEXT_BYTES);
    builder.yaml = calloc(1, sizeof *builder.yaml);
    if (!builder.yaml)
        return no_memory(name, error);
    builder.yaml->arena.limit_bytes = MAX_TREE_BYTES;
    builder.yaml->name = trajd_arena_copy(&builder.yaml->arena, name, strlen(name));
    status = builder.yaml->name ? build_of_any(&builder, text, length) : no_memory(name, error);
    if (status)
        trajd_yaml_destroy(&builder.yaml);
    else
        *yaml = builder.yaml;
    return status;
}

enum trajd_status trajd_yaml_load(const char *path, struct trajd_yaml **yaml,
                                  struct trajd_error *error)
{
    char *text;
    size_t length;
    enum trajd_status status = trajd_file_read(path, MAX_TEXT_BYTES, &text, &length, error);

    if (!status)
        status = trajd_yaml_parse(path, text, length, yaml, error);
    free(text);
    return status;
}

void trajd_yaml_destroy(struct trajd_yaml **yaml)
{
    if (!*yaml)
        return;
    trajd_arena_free(&(*yaml)->arena);
    free(*yaml);
    *yaml = NULL;
}

const struct trajd_yaml_node *trajd_yaml_root(const struct trajd_yaml *yaml)
{
    return yaml->root;
}

const struct trajd_yaml_node *trajd_yaml_get(const struct trajd_yaml_node *mapping, const char *key)
{
    if (mapping->kind != TRAJD_YAML_MAPPING)
        return NULL;
    for (const struct trajd_yaml_node *child = mapping->children; child; child = child->next)
        if (!strcmp(child->key, key))
            return child;
    return NULL;
}

enum trajd_status trajd_yaml_error(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node, struct trajd_error *error,
                                   const char *format, ...)
{
    char message[TRAJD_ERROR_MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %s%s%s", yaml->name, node->line,
                    node->path, *node->path ? ": " : "", message);
    make_printable(error);
    return TRAJD_ERR_ARGUMENT;
}

void trajd_yaml_place(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node, char *text,
                      size_t size)
{
    snprintf(text, size, "%s:%u: %s", yaml->name, node->line, node->path);
}
