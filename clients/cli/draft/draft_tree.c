/* Prints the tree of a file, in which groups of one kind are printed once. */
#include <inttypes.h>
#include <string.h>

#include "clients/cli/draft/draft.h"

enum { ALIKE_MIN = 3, LISTED_MAX = 40, VALUE_MAX = 60 };

/* Returns the object's name as it is printed. */
static const char *name_of(const struct trajd_tree_object *object)
{
    return *object->path ? draft_name_of(object) : "/";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns whether the names differ in numbers only. */
static bool are_named_alike(const char *a, const char *b)
{
    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return !*a && !*b;
}

/* Returns whether both objects can be printed as one. */
static bool are_alike(const struct trajd_tree *tree, uint32_t a, uint32_t b)
{
    const struct trajd_tree_object *left = &tree->objects[a], *right = &tree->objects[b];

    if (left->kind != right->kind || left->kind == TRAJD_TREE_PROBLEM ||
        !are_named_alike(name_of(left), name_of(right)))
        return false;
    if (left->kind == TRAJD_TREE_GROUP)
        return draft_signature(tree, a) == draft_signature(tree, b);
    return left->form == right->form && left->dtype == right->dtype && left->rank == right->rank;
}

static void print_shape(FILE *out, const struct trajd_tree_object *object)
{
    fprintf(out, "(");
    for (uint32_t i = 0; i < object->rank; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", object->shape[i]);
    fprintf(out, ")");
}

static void print_object(FILE *out, const struct trajd_tree *tree, uint32_t which, int depth)
{
    const struct trajd_tree_object *object = &tree->objects[which];

    fprintf(out, "%*s%s%s", 2 * depth, "", name_of(object),
            object->kind == TRAJD_TREE_GROUP && *object->path ? "/" : "");
    if (object->kind == TRAJD_TREE_DATASET) {
        fprintf(out, "%*s %s ",
                (int)(strlen(name_of(object)) < 24 ? 24 - strlen(name_of(object)) : 0), "",
                object->type);
        print_shape(out, object);
        fprintf(out, " %s", object->storage);
    } else if (object->kind == TRAJD_TREE_PROBLEM) {
        fprintf(out, "  ! %s", object->storage);
    }
    for (uint32_t a = 0; a < object->attribute_count; a++) {
        const struct trajd_tree_attribute *attribute =
            &tree->attributes[object->first_attribute + a];
        fprintf(out, "%s@%s=%.*s%s", a ? ", " : "  ", attribute->name, VALUE_MAX, attribute->value,
                strlen(attribute->value) > VALUE_MAX ? "..." : "");
    }
    fprintf(out, "\n");
}

static void print_children(FILE *out, const struct trajd_tree *tree, uint32_t group, int depth)
{
    const uint32_t end = draft_end_of(tree, group);
    uint32_t listed = 0;

    for (uint32_t i = group + 1; i < end;) {
        uint32_t last = i, count = 1;
        if (listed++ == LISTED_MAX) {
            fprintf(out, "%*s... more; --json lists all\n", 2 * depth, "");
            return;
        }
        for (uint32_t next = draft_next_of(tree, i); next < end && are_alike(tree, i, next);
             next = draft_next_of(tree, next)) {
            last = next;
            count++;
        }
        print_object(out, tree, i, depth);
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            print_children(out, tree, i, depth + 1);
        if (count >= ALIKE_MIN)
            fprintf(out, "%*s... %u more like it, up to %s\n", 2 * depth, "", count - 1,
                    name_of(&tree->objects[last]));
        else
            last = i;
        i = draft_next_of(tree, last);
    }
}

void draft_print_tree(FILE *out, const struct trajd_tree *tree)
{
    if (!tree->object_count)
        return;
    print_object(out, tree, 0, 1);
    print_children(out, tree, 0, 2);
    if (tree->is_cut)
        fprintf(out, "  ... the file has more than %d objects\n", TRAJD_TREE_OBJECTS_MAX);
}

static void json_object(struct trajd_json *json, const struct trajd_tree *tree,
                        const struct trajd_tree_object *object)
{
    static const char *const kinds[] = {"group", "dataset", "problem"};

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "path", object->path);
    trajd_json_string(json, "kind", kinds[object->kind]);
    if (object->kind == TRAJD_TREE_DATASET) {
        trajd_json_string(json, "type", object->type);
        trajd_json_open_array(json, "shape");
        for (uint32_t i = 0; i < object->rank; i++)
            trajd_json_u64(json, NULL, object->shape[i]);
        trajd_json_close_array(json);
    }
    if (object->kind != TRAJD_TREE_GROUP)
        trajd_json_string(json, object->kind == TRAJD_TREE_DATASET ? "storage" : "problem",
                          object->storage);
    trajd_json_open_object(json, "attributes");
    for (uint32_t a = 0; a < object->attribute_count; a++)
        trajd_json_string(json, tree->attributes[object->first_attribute + a].name,
                          tree->attributes[object->first_attribute + a].value);
    trajd_json_close_object(json);
    trajd_json_close_object(json);
}

void draft_json_tree(struct trajd_json *json, const char *key, const struct trajd_tree *tree)
{
    trajd_json_open_array(json, key);
    for (uint32_t i = 0; i < tree->object_count; i++)
        json_object(json, tree, &tree->objects[i]);
    trajd_json_close_array(json);
}
