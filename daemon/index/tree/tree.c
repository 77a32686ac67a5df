#include "daemon/index/tree/tree.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 6, TREE_BYTES_MAX = 512 << 20 };

struct decoder {
    struct trajd_tree *tree;
    struct trajd_error *error;
    uint32_t line;
    uint32_t object_room, attribute_room;
};

static enum trajd_status broken(const struct decoder *d, const char *rule)
{
    return trajd_error_set(d->error, TRAJD_ERR_PROTOCOL, 0, "line %u of the helper program: %s",
                           d->line, rule);
}

/* Counts the lines that begin with an upper-case letter of `kinds`. */
static uint32_t count_lines(const char *text, const char *kinds)
{
    uint32_t count = 0;

    for (const char *at = text; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        count += *at && strchr(kinds, *at);
    }
    return count;
}

/* Splits the line in place at its tabs. Returns the number of fields; FIELDS_MAX + 1 for more. */
static uint32_t split(char *line, char *fields[FIELDS_MAX])
{
    uint32_t count = 0;

    for (char *next = line; next;) {
        char *field = next;
        next = strchr(next, '\t');
        if (next)
            *next++ = '\0';
        if (count == FIELDS_MAX)
            return FIELDS_MAX + 1;
        fields[count++] = field;
    }
    return count;
}

static bool read_form(const char *text, enum trajd_tree_form *form)
{
    static const char *const names[] = {"plain", "string", "text", "bytes", "foreign"};

    for (int i = 0; i <= TRAJD_TREE_FOREIGN; i++) {
        *form = (enum trajd_tree_form)i;
        if (!strcmp(names[i], text))
            return true;
    }
    return false;
}

/* Reads "12,480,640,3", or "-" for a scalar. */
static bool read_shape(const char *text, struct trajd_tree_object *object)
{
    if (!strcmp(text, "-"))
        return true;
    for (;;) {
        char *end;
        if (object->rank == TRAJD_ARRAY_MAX_RANK || *text < '0' || *text > '9')
            return false;
        object->shape[object->rank++] = strtoull(text, &end, 10);
        if (!*end)
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

static enum trajd_status add_object(struct decoder *d, char **fields, uint32_t count)
{
    struct trajd_tree *tree = d->tree;
    struct trajd_tree_object *object = &tree->objects[tree->object_count];
    const char kind = fields[0][0];

    if (tree->object_count == d->object_room)
        return broken(d, "too many objects");
    if (count != (kind == 'G' ? 2u : kind == 'L' ? 3u : 6u))
        return broken(d, "another number of fields");
    object->kind = kind == 'G'   ? TRAJD_TREE_GROUP
                   : kind == 'L' ? TRAJD_TREE_PROBLEM
                                 : TRAJD_TREE_DATASET;
    object->path = fields[1];
    object->storage = kind == 'L' ? fields[2] : kind == 'D' ? fields[5] : "";
    object->type = "";
    object->first_attribute = tree->attribute_count;
    if (kind == 'D') {
        object->type = fields[3];
        if (!read_form(fields[2], &object->form) || !read_shape(fields[4], object))
            return broken(d, "a dataset with an unknown form or shape");
        if (object->form == TRAJD_TREE_PLAIN)
            object->dtype = trajd_dtype_parse(object->type);
        if (object->form == TRAJD_TREE_PLAIN && !object->dtype)
            return broken(d, "a dataset with an unknown type");
    }
    tree->object_count++;
    return TRAJD_OK;
}

static enum trajd_status add_attribute(struct decoder *d, char **fields, uint32_t count)
{
    struct trajd_tree *tree = d->tree;

    if (count != 3 || !tree->object_count || tree->attribute_count == d->attribute_room)
        return broken(d, "an attribute without an object, or with another number of fields");
    tree->attributes[tree->attribute_count++] =
        (struct trajd_tree_attribute){.name = fields[1], .value = fields[2]};
    tree->objects[tree->object_count - 1].attribute_count++;
    return TRAJD_OK;
}

static enum trajd_status read_line(struct decoder *d, char *line)
{
    char *fields[FIELDS_MAX] = {NULL};
    const uint32_t count = split(line, fields);

    if (count > FIELDS_MAX || strlen(fields[0]) != 1)
        return broken(d, "not a line of a tree");
    switch (fields[0][0]) {
    case 'G':
    case 'D':
    case 'L':
        return add_object(d, fields, count);
    case 'A':
        return add_attribute(d, fields, count);
    case 'M':
        d->tree->is_cut = true;
        return TRAJD_OK;
    case 'X':
        if (count != 2)
            return broken(d, "a refusal without a reason");
        d->tree->refusal = fields[1];
        return TRAJD_OK;
    default:
        return broken(d, "not a line of a tree");
    }
}

/* Reads the lines of a copy of the text, which the tree's arena owns. */
static enum trajd_status read_lines(struct decoder *d, char *text)
{
    struct trajd_tree *tree = d->tree;
    enum trajd_status status = TRAJD_OK;

    d->object_room = count_lines(text, "GDL");
    d->attribute_room = count_lines(text, "A");
    tree->objects = trajd_arena_alloc(&tree->arena, (d->object_room + 1) * sizeof *tree->objects);
    tree->attributes =
        trajd_arena_alloc(&tree->arena, (d->attribute_room + 1) * sizeof *tree->attributes);
    if (!tree->objects || !tree->attributes)
        return trajd_error_set(d->error, TRAJD_ERR_MEMORY, 0, "no memory for the file's tree");
    while (!status && *text) {
        char *end = strchr(text, '\n');
        d->line++;
        if (!end)
            return broken(d, "it does not end");
        *end = '\0';
        for (const char *c = text; *c; c++) {
            if ((unsigned char)*c < 0x20 && *c != '\t')
                return broken(d, "a control character");
        }
        status = read_line(d, text);
        text = end + 1;
    }
    return status;
}

enum trajd_status trajd_tree_decode(const char *text, size_t length, struct trajd_tree *tree,
                                    struct trajd_error *error)
{
    struct decoder d = {.tree = tree, .error = error};
    enum trajd_status status;
    char *copy;

    *tree = (struct trajd_tree){.arena = {.limit_bytes = TREE_BYTES_MAX}};
    copy = trajd_arena_copy(&tree->arena, text, length);
    if (!copy)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the file's tree");
    status = strlen(copy) == length ? read_lines(&d, copy) : broken(&d, "a zero byte");
    if (status)
        trajd_tree_free(tree);
    return status;
}

void trajd_tree_free(struct trajd_tree *tree)
{
    trajd_arena_free(&tree->arena);
    *tree = (struct trajd_tree){0};
}
