/* Finds the episodes in the tree of a file, and prints the tree. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_facts.h"
#include "daemon/base/digest.h"
#include "daemon/base/memory.h"
#include "daemon/layout/glob.h"

#define DIGITS "0123456789"

enum { PREFIXES_MAX = 64, LEVELS_MAX = 4, MANY_EPISODES = 30 };
enum { ALIKE_MIN = 3, LISTED_MAX = 40, VALUE_MAX = 60 };

const char *draft_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool draft_matches(const char *text, const char *expression, int flags)
{
    regex_t compiled;
    bool matches;

    if (regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB | flags))
        trajd_memory_or_exit(NULL); /* the expressions are ours */
    matches = !regexec(&compiled, text, 0, NULL, 0);
    regfree(&compiled);
    return matches;
}

bool draft_is_table(const struct trajd_tree_object *object)
{
    return object->form == TRAJD_TREE_FOREIGN && !strncmp(object->type, "compound", 8);
}

uint32_t draft_end_of(const struct trajd_tree *tree, uint32_t group)
{
    const char *path = tree->objects[group].path;
    const size_t length = strlen(path);
    uint32_t end = group + 1;

    if (!length)
        return tree->object_count;
    while (end < tree->object_count && !strncmp(tree->objects[end].path, path, length) &&
           tree->objects[end].path[length] == '/')
        end++;
    return end;
}

/* Returns the next object in the same group, or what comes after that group. */
static uint32_t next_of(const struct trajd_tree *tree, uint32_t object)
{
    return tree->objects[object].kind == TRAJD_TREE_GROUP ? draft_end_of(tree, object) : object + 1;
}

/* Returns the rows that most datasets of a group have, if more than half of them agree. */
static uint64_t most_rows(const struct trajd_tree *tree, uint32_t group, uint32_t end)
{
    uint64_t rows = 0;
    uint32_t votes = 0;

    for (uint32_t i = group + 1; i < end; i++) {
        const struct trajd_tree_object *object = &tree->objects[i];
        if (!object->rank)
            continue;
        if (!votes)
            rows = object->shape[0];
        if (object->shape[0] == rows)
            votes++;
        else
            votes--;
    }
    return rows;
}

/* Tables with the time on axis 1, such as `compress_len` (cameras, T) of ALOHA, and frames that are
 * padded to the longest one have another shape in each file: only their rank counts. */
uint64_t draft_signature(const struct trajd_tree *tree, uint32_t group)
{
    const size_t length = strlen(tree->objects[group].path);
    const uint32_t end = draft_end_of(tree, group);
    const uint64_t rows = most_rows(tree, group, end);
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t i = group + 1; i < end; i++) {
        const struct trajd_tree_object *object = &tree->objects[i];
        const bool is_padded = object->rank == 2 && object->dtype == TRAJD_U8;
        const bool is_table =
            object->rank > 1 && object->shape[0] != rows && object->shape[1] == rows;
        const uint32_t facts[] = {object->kind, object->form, object->dtype, object->rank};
        trajd_digest_add_text(&digest, object->path + length);
        trajd_digest_add(&digest, facts, sizeof facts);
        if (object->rank > 1 && !is_padded && !is_table)
            trajd_digest_add(&digest, object->shape + 1,
                             (object->rank - 1) * sizeof object->shape[0]);
    }
    return trajd_digest_end(&digest);
}

/* ---- episodes ---- */

/* Groups in one group whose names begin alike: demo_0, demo_1, ... */
struct set {
    uint32_t parent;
    const char *prefix; /* of the names: `length` characters */
    int length;
    bool is_numbered; /* a digit follows the prefix */
    uint32_t count, dataset_count;
    uint32_t first; /* a member */
};

/* Returns the number of rows of a dataset that may have one for each time step, or 0. */
static uint64_t rows_of(const struct trajd_tree_object *object)
{
    const bool has_rows = object->kind == TRAJD_TREE_DATASET && object->rank &&
                          object->shape[0] > 1 && object->form != TRAJD_TREE_TEXT &&
                          object->form != TRAJD_TREE_FOREIGN;

    return has_rows ? object->shape[0] : 0;
}

static uint32_t count_datasets(const struct trajd_tree *tree, uint32_t group)
{
    const uint32_t end = draft_end_of(tree, group);
    uint32_t count = 0;

    for (uint32_t i = group + 1; i < end; i++)
        count += rows_of(&tree->objects[i]) > 0;
    return count;
}

static bool is_member(const struct trajd_tree *tree, uint32_t object, const struct set *set)
{
    const char *path = tree->objects[object].path, *name = draft_last_name(path);
    const char *parent = tree->objects[set->parent].path;
    const size_t length = strlen(parent);

    return tree->objects[object].kind == TRAJD_TREE_GROUP && !strncmp(path, parent, length) &&
           name == path + length + (length > 0) && !strncmp(name, set->prefix, set->length) &&
           (!set->is_numbered || strspn(name + set->length, DIGITS)) &&
           count_datasets(tree, object);
}

/* Returns whether a dataset outside the set, in the region, has as many rows as one inside it: the
 * members are then parts of one recording, such as its cameras. */
static bool has_rows_in_common(const struct trajd_tree *tree, const struct set *set,
                               uint32_t region)
{
    const uint32_t end = draft_end_of(tree, region);
    uint64_t rows = 0;

    for (uint32_t i = set->first + 1; !rows; i++)
        rows = rows_of(&tree->objects[i]);
    for (uint32_t i = region + 1; i < end; i++) {
        const uint64_t other = rows_of(&tree->objects[i]);
        if (is_member(tree, i, set))
            i = draft_end_of(tree, i) - 1;
        else if (other && tree->objects[i].form == TRAJD_TREE_PLAIN &&
                 (other == rows || other == rows + 1 || other + 1 == rows))
            return true;
    }
    return false;
}

/* Counts the members of the set. Takes it if it has at least half of the region's datasets, and more
 * than the best one. */
static void consider(const struct trajd_tree *tree, uint32_t region, struct set set,
                     struct set *best)
{
    const uint32_t end = draft_end_of(tree, set.parent);

    for (uint32_t i = set.parent + 1; i < end; i = next_of(tree, i)) {
        if (!is_member(tree, i, &set))
            continue;
        if (!set.count++)
            set.first = i;
        set.dataset_count += count_datasets(tree, i);
    }
    if (set.count >= (set.is_numbered ? 1 : 2) && set.dataset_count > best->dataset_count &&
        2 * set.dataset_count >= count_datasets(tree, region) &&
        !has_rows_in_common(tree, &set, region))
        *best = set;
}

/* Considers groups directly in `parent` whose names begin alike and go on with a number. */
static void consider_numbered(const struct trajd_tree *tree, uint32_t region, uint32_t parent,
                              struct set *best)
{
    struct set sets[PREFIXES_MAX];
    const uint32_t end = draft_end_of(tree, parent);
    uint32_t count = 0;

    for (uint32_t i = parent + 1; i < end && count < PREFIXES_MAX; i = next_of(tree, i)) {
        const char *name = draft_last_name(tree->objects[i].path);
        const int length = (int)strcspn(name, DIGITS);
        uint32_t same = 0;
        while (same < count &&
               (sets[same].length != length || strncmp(sets[same].prefix, name, (size_t)length)))
            same++;
        if (tree->objects[i].kind == TRAJD_TREE_GROUP && name[length] && same == count)
            sets[count++] = (struct set){
                .parent = parent, .prefix = name, .length = length, .is_numbered = true};
    }
    for (uint32_t i = 0; i < count; i++)
        consider(tree, region, sets[i], best);
}

/* Considers all groups directly in `parent`, if nothing else is there and all have one signature. */
static void consider_alike(const struct trajd_tree *tree, uint32_t region, uint32_t parent,
                           struct set *best)
{
    const uint32_t end = draft_end_of(tree, parent);
    uint64_t signature = 0;

    for (uint32_t i = parent + 1; i < end; i = next_of(tree, i)) {
        if (tree->objects[i].kind != TRAJD_TREE_GROUP ||
            (i > parent + 1 && draft_signature(tree, i) != signature))
            return;
        signature = draft_signature(tree, i);
    }
    consider(tree, region, (struct set){.parent = parent, .prefix = ""}, best);
}

/* Finds the set of groups in the region that has most of its datasets. The outermost one wins. */
static struct set find_set(const struct trajd_tree *tree, uint32_t region)
{
    const uint32_t end = draft_end_of(tree, region);
    struct set best = {0};

    for (uint32_t i = region; i < end; i++)
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            consider_numbered(tree, region, i, &best);
    for (uint32_t i = region; i < end && !best.count; i++)
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            consider_alike(tree, region, i, &best);
    return best;
}

/* Writes one component of a path, as a pattern that matches it. Only a component with wildcards is
 * one: there a backslash makes a character plain. */
static void write_component(FILE *out, const char *name, size_t length, const char *end)
{
    const bool is_wild = *end || strcspn(name, "*?[") < length;

    fputc('/', out);
    for (size_t i = 0; i < length; i++)
        fprintf(out, "%s%c", is_wild && strchr("*?[]\\", name[i]) ? "\\" : "", name[i]);
    fputs(end, out);
}

/* Writes the pattern of the episodes: groups in groups, as far as they repeat. */
static void write_pattern(FILE *out, const struct trajd_tree *tree)
{
    struct set set;

    for (uint32_t region = 0, level = 0; level < LEVELS_MAX; region = set.first, level++) {
        const char *parent;
        size_t length;
        set = find_set(tree, region);
        if (!set.count)
            break;
        parent = tree->objects[set.parent].path + strlen(tree->objects[region].path);
        for (; parent += *parent == '/', (length = strcspn(parent, "/")); parent += length)
            write_component(out, parent, length, "");
        write_component(out, set.prefix, (size_t)set.length, "*");
    }
    if (!ftell(out))
        fputc('/', out);
}

static int compare_groups(const void *a, const void *b, void *tree)
{
    const struct trajd_tree_object *objects = ((const struct trajd_tree *)tree)->objects;

    return trajd_natural_compare(objects[*(const uint32_t *)a].path,
                                 objects[*(const uint32_t *)b].path);
}

void draft_find_episodes(struct draft_facts *facts)
{
    const struct trajd_tree *tree = facts->tree;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&facts->pattern, &size));

    if (tree->object_count)
        write_pattern(out, tree);
    trajd_memory_close_or_exit(out, &facts->pattern);
    facts->groups = trajd_memory_or_exit(calloc(tree->object_count + 1, sizeof *facts->groups));
    for (uint32_t i = 0; i < tree->object_count; i++) {
        const char *path = tree->objects[i].path;
        const bool is_one = !strcmp(facts->pattern, "/");
        if (tree->objects[i].kind == TRAJD_TREE_GROUP &&
            (*path ? !is_one && !fnmatch(facts->pattern + 1, path, FNM_PATHNAME) : is_one))
            facts->groups[facts->episode_count++] = i;
    }
    qsort_r(facts->groups, facts->episode_count, sizeof *facts->groups, compare_groups,
            (void *)tree);
}

char *draft_few_episodes(const struct draft_facts *facts)
{
    const uint32_t count = facts->episode_count;
    const char *path = count ? facts->tree->objects[facts->groups[count / 2]].path : "";
    char *pattern;

    if (count < MANY_EPISODES || !draft_matches(path, "^[^]*?[\\]*[0-9]$", 0))
        return NULL;
    return asprintf(&pattern, "/%.*s[0-9]", (int)strlen(path) - 1, path) < 0
               ? trajd_memory_or_exit(NULL)
               : pattern;
}

/* Returns whether the datasets of both groups, which are of one kind, have as many rows. */
static bool have_same_rows(const struct trajd_tree *tree, uint32_t a, uint32_t b)
{
    const uint32_t end = draft_end_of(tree, a);

    for (uint32_t i = a + 1; i < end; i++)
        if (rows_of(&tree->objects[i]) != rows_of(&tree->objects[b + i - a]))
            return false;
    return true;
}

/* Returns whether the group may be a recording that `other`, beside it, is not a part of. */
static bool are_apart(const struct draft_facts *facts, uint32_t group, uint32_t other)
{
    const struct trajd_tree *tree = facts->tree;

    return tree->objects[other].kind == TRAJD_TREE_GROUP && count_datasets(tree, group) &&
           draft_signature(tree, group) == draft_signature(tree, other) &&
           (facts->episode_count == 1 || !have_same_rows(tree, group, other));
}

const char *draft_find_alike(const struct draft_facts *facts)
{
    const struct trajd_tree *tree = facts->tree;
    const uint32_t end = facts->episode_count ? draft_end_of(tree, facts->groups[0]) : 0;

    for (uint32_t i = end ? facts->groups[0] + 1 : 0; i < end; i++) {
        const char *path = tree->objects[i].path;
        const size_t parent = (size_t)(draft_last_name(path) - path);
        for (uint32_t other = draft_end_of(tree, i);
             tree->objects[i].kind == TRAJD_TREE_GROUP && other < end &&
             !strncmp(tree->objects[other].path, path, parent);
             other = next_of(tree, other))
            if (are_apart(facts, i, other))
                return path;
    }
    return NULL;
}

void draft_facts_free(struct draft_facts *facts)
{
    for (uint32_t s = 0; s < facts->stream_count; s++)
        free(facts->streams[s].rows);
    free(facts->groups);
    free(facts->pattern);
}

/* ---- the tree for people and for programs ---- */

/* Returns the object's name as it is printed. */
static const char *name_of(const struct trajd_tree_object *object)
{
    return *object->path ? draft_last_name(object->path) : "/";
}

/* Returns whether the names differ in numbers only. */
static bool are_named_alike(const char *a, const char *b)
{
    while (*a && *b) {
        const size_t digits = strspn(a, DIGITS), others = strspn(b, DIGITS);
        if (!digits != !others || (!digits && *a != *b))
            return false;
        a += digits ? digits : 1;
        b += others ? others : 1;
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

static void print_object(FILE *out, const struct trajd_tree *tree, uint32_t which, int depth)
{
    const struct trajd_tree_object *object = &tree->objects[which];
    const struct trajd_tree_attribute *attributes = &tree->attributes[object->first_attribute];

    fprintf(out, "%*s%s%s", 2 * depth, "", name_of(object),
            object->kind == TRAJD_TREE_GROUP && *object->path ? "/" : "");
    if (object->kind == TRAJD_TREE_DATASET) {
        const int length = (int)strlen(name_of(object));
        fprintf(out, "%*s %s (", length < 24 ? 24 - length : 0, "", object->type);
        for (uint32_t i = 0; i < object->rank; i++)
            fprintf(out, "%s%" PRIu64, i ? "," : "", object->shape[i]);
        fprintf(out, ") %s", object->storage);
    } else if (object->kind == TRAJD_TREE_PROBLEM) {
        fprintf(out, "  ! %s", object->storage);
    }
    for (uint32_t a = 0; a < object->attribute_count; a++)
        fprintf(out, "%s@%s=%.*s%s", a ? ", " : "  ", attributes[a].name, VALUE_MAX,
                attributes[a].value, strlen(attributes[a].value) > VALUE_MAX ? "..." : "");
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
        for (uint32_t next = next_of(tree, i); next < end && are_alike(tree, i, next);
             next = next_of(tree, next)) {
            last = next;
            count++;
        }
        print_object(out, tree, i, depth);
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            print_children(out, tree, i, depth + 1);
        if (count >= ALIKE_MIN)
            fprintf(out, "%*s... %u more like it, up to %s\n", 2 * depth, "", count - 1,
                    name_of(&tree->objects[last]));
        i = next_of(tree, count >= ALIKE_MIN ? last : i);
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
    const struct trajd_tree_attribute *attributes = &tree->attributes[object->first_attribute];

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
        trajd_json_string(json, attributes[a].name, attributes[a].value);
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
