#include "clients/cli/draft/draft_episodes.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/layout/glob.h"

enum { PREFIXES_MAX = 64, NAME_SIZE = 256, LEVELS_MAX = 4, MANY_EPISODES = 30 };

/* Groups in one group whose names begin alike: demo_0, demo_1, ... */
struct set {
    uint32_t parent;
    char prefix[NAME_SIZE]; /* of the names */
    bool is_numbered;       /* a digit follows the prefix */
    uint32_t count, dataset_count;
    uint32_t first; /* a member */
};

const char *draft_name_of(const struct trajd_tree_object *object)
{
    const char *slash = strrchr(object->path, '/');

    return slash ? slash + 1 : object->path;
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

bool draft_has_rows(const struct trajd_tree_object *object)
{
    return object->kind == TRAJD_TREE_DATASET && object->rank && object->shape[0] > 1 &&
           object->form != TRAJD_TREE_TEXT && object->form != TRAJD_TREE_FOREIGN;
}

uint64_t draft_signature(const struct trajd_tree *tree, uint32_t group)
{
    const size_t length = strlen(tree->objects[group].path);
    const uint32_t end = draft_end_of(tree, group);
    struct trajd_digest digest;

    trajd_digest_init(&digest);
    for (uint32_t i = group + 1; i < end; i++) {
        const struct trajd_tree_object *object = &tree->objects[i];
        const bool is_padded = object->rank == 2 && object->dtype == TRAJD_U8;
        const uint32_t facts[] = {object->kind, object->form, object->dtype, object->rank};
        trajd_digest_add_text(&digest, object->path + length);
        trajd_digest_add(&digest, facts, sizeof facts);
        if (object->rank > 1 && !is_padded)
            trajd_digest_add(&digest, object->shape + 1,
                             (object->rank - 1) * sizeof object->shape[0]);
    }
    return trajd_digest_end(&digest);
}

uint32_t draft_next_of(const struct trajd_tree *tree, uint32_t object)
{
    return tree->objects[object].kind == TRAJD_TREE_GROUP ? draft_end_of(tree, object) : object + 1;
}

static uint32_t count_datasets(const struct trajd_tree *tree, uint32_t begin, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t i = begin; i < end; i++)
        count += draft_has_rows(&tree->objects[i]);
    return count;
}

static bool is_member(const struct trajd_tree *tree, uint32_t object, const struct set *set)
{
    const char *name = draft_name_of(&tree->objects[object]);
    const size_t length = strlen(set->prefix);

    return tree->objects[object].kind == TRAJD_TREE_GROUP && !strncmp(name, set->prefix, length) &&
           (!set->is_numbered || (name[length] >= '0' && name[length] <= '9')) &&
           count_datasets(tree, object + 1, draft_end_of(tree, object));
}

static struct set make_set(const struct trajd_tree *tree, uint32_t parent, const char *prefix,
                           bool is_numbered)
{
    const uint32_t end = draft_end_of(tree, parent);
    struct set set = {.parent = parent, .is_numbered = is_numbered};

    snprintf(set.prefix, sizeof set.prefix, "%s", prefix);
    for (uint32_t i = parent + 1; i < end; i = draft_next_of(tree, i)) {
        if (!is_member(tree, i, &set))
            continue;
        if (!set.count++)
            set.first = i;
        set.dataset_count += count_datasets(tree, i + 1, draft_end_of(tree, i));
    }
    return set;
}

/* Returns whether a dataset outside the set, in the region [begin, end), has as many rows as one
 * inside it: the members are then parts of one recording, such as its cameras. */
static bool has_rows_in_common(const struct trajd_tree *tree, const struct set *set, uint32_t begin,
                               uint32_t end)
{
    const uint32_t first_end = draft_end_of(tree, set->first);
    const uint32_t parent_end = draft_end_of(tree, set->parent);
    const size_t length = strlen(tree->objects[set->parent].path);
    uint64_t rows = 0;

    for (uint32_t i = set->first + 1; i < first_end && !rows; i++)
        rows = draft_has_rows(&tree->objects[i]) ? tree->objects[i].shape[0] : 0;
    for (uint32_t i = begin; i < end;) {
        const struct trajd_tree_object *object = &tree->objects[i];
        const bool is_child =
            i > set->parent && i < parent_end && !strchr(object->path + length + (length > 0), '/');
        if (is_child && is_member(tree, i, set)) {
            i = draft_end_of(tree, i);
            continue;
        }
        if (draft_has_rows(object) && object->form == TRAJD_TREE_PLAIN &&
            (object->shape[0] == rows || object->shape[0] == rows + 1 ||
             object->shape[0] + 1 == rows))
            return true;
        i++;
    }
    return false;
}

/* A part of the tree in which episodes are looked for. */
struct region {
    uint32_t group, end, dataset_count;
};

static struct region region_of(const struct trajd_tree *tree, uint32_t group)
{
    const uint32_t end = draft_end_of(tree, group);

    return (struct region){group, end, count_datasets(tree, group + 1, end)};
}

/* Takes the set if it has at least half of the region's datasets, and more than the best one. */
static void consider(const struct trajd_tree *tree, const struct region *region,
                     const struct set *set, struct set *best)
{
    if (set->count && 2 * set->dataset_count >= region->dataset_count &&
        set->dataset_count > best->dataset_count &&
        !has_rows_in_common(tree, set, region->group + 1, region->end))
        *best = *set;
}

static bool has_prefix(char prefixes[PREFIXES_MAX][NAME_SIZE], uint32_t count, const char *name,
                       size_t length)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!strncmp(prefixes[i], name, length) && !prefixes[i][length])
            return true;
    }
    return false;
}

/* Considers groups directly in `parent` whose names begin alike and go on with a number. */
static void consider_numbered(const struct trajd_tree *tree, const struct region *region,
                              uint32_t parent, struct set *best)
{
    char prefixes[PREFIXES_MAX][NAME_SIZE];
    const uint32_t end = draft_end_of(tree, parent);
    uint32_t count = 0;

    for (uint32_t i = parent + 1; i < end; i = draft_next_of(tree, i)) {
        const char *name = draft_name_of(&tree->objects[i]);
        const size_t length = strcspn(name, "0123456789");
        if (tree->objects[i].kind != TRAJD_TREE_GROUP || !name[length] || length >= NAME_SIZE ||
            count == PREFIXES_MAX || has_prefix(prefixes, count, name, length))
            continue;
        snprintf(prefixes[count++], NAME_SIZE, "%.*s", (int)length, name);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct set set = make_set(tree, parent, prefixes[i], true);
        consider(tree, region, &set, best);
    }
}

/* Considers all groups directly in `parent`, if nothing else is there and all have one signature. */
static void consider_alike(const struct trajd_tree *tree, const struct region *region,
                           uint32_t parent, struct set *best)
{
    const uint32_t end = draft_end_of(tree, parent);
    uint64_t signature = 0;
    struct set set;

    for (uint32_t i = parent + 1; i < end; i = draft_next_of(tree, i)) {
        if (tree->objects[i].kind != TRAJD_TREE_GROUP ||
            (i > parent + 1 && draft_signature(tree, i) != signature))
            return;
        signature = draft_signature(tree, i);
    }
    set = make_set(tree, parent, "", false);
    if (set.count > 1)
        consider(tree, region, &set, best);
}

/* Finds the set of groups in the region that has most of its datasets. The outermost one wins. */
static struct set find_set(const struct trajd_tree *tree, uint32_t group)
{
    const struct region region = region_of(tree, group);
    struct set best = {0};

    for (uint32_t i = group; i < region.end; i++) {
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            consider_numbered(tree, &region, i, &best);
    }
    for (uint32_t i = group; i < region.end && !best.count; i++) {
        if (tree->objects[i].kind == TRAJD_TREE_GROUP)
            consider_alike(tree, &region, i, &best);
    }
    return best;
}

/* Appends one component of a path, as a pattern that matches it. Only a component with wildcards is
 * one: there a backslash makes a character plain. */
static void add_component(char pattern[DRAFT_PATTERN_SIZE], const char *name, size_t length,
                          const char *end)
{
    const bool is_wild = *end || strcspn(name, "*?[") < length;
    size_t used = strlen(pattern);

    used += (size_t)snprintf(pattern + used, DRAFT_PATTERN_SIZE - used, "/");
    for (size_t i = 0; i < length && used < DRAFT_PATTERN_SIZE; i++)
        used += (size_t)snprintf(pattern + used, DRAFT_PATTERN_SIZE - used, "%s%c",
                                 is_wild && strchr("*?[]\\", name[i]) ? "\\" : "", name[i]);
    if (used < DRAFT_PATTERN_SIZE)
        snprintf(pattern + used, DRAFT_PATTERN_SIZE - used, "%s", end);
}

/* Writes the pattern of the episodes: groups in groups, as far as they repeat. */
static void write_pattern(const struct trajd_tree *tree, char pattern[DRAFT_PATTERN_SIZE])
{
    uint32_t region = 0;

    *pattern = '\0';
    for (int level = 0; level < LEVELS_MAX; level++) {
        const struct set set = find_set(tree, region);
        const char *parent = tree->objects[set.parent].path;
        if (!set.count)
            break;
        parent += strlen(tree->objects[region].path);
        for (size_t length; parent += *parent == '/', (length = strcspn(parent, "/"));
             parent += length)
            add_component(pattern, parent, length, "");
        add_component(pattern, set.prefix, strlen(set.prefix), "*");
        region = set.first;
    }
    if (!*pattern)
        strcpy(pattern, "/");
}

static const struct trajd_tree *sorted_tree; /* for the comparison */

static int compare_groups(const void *a, const void *b)
{
    return trajd_natural_compare(sorted_tree->objects[*(const uint32_t *)a].path,
                                 sorted_tree->objects[*(const uint32_t *)b].path);
}

bool draft_find_episodes(const struct trajd_tree *tree, struct draft_episodes *episodes)
{
    *episodes = (struct draft_episodes){0};
    episodes->groups = calloc(tree->object_count + 1, sizeof *episodes->groups);
    if (!episodes->groups)
        return false;
    if (!tree->object_count)
        return true;
    write_pattern(tree, episodes->pattern);
    for (uint32_t i = 0; i < tree->object_count; i++) {
        const struct trajd_tree_object *object = &tree->objects[i];
        const bool is_root = !strcmp(episodes->pattern, "/") && !*object->path;
        if (object->kind == TRAJD_TREE_GROUP &&
            (is_root ||
             (*object->path && !fnmatch(episodes->pattern + 1, object->path, FNM_PATHNAME))))
            episodes->groups[episodes->count++] = i;
    }
    sorted_tree = tree;
    qsort(episodes->groups, episodes->count, sizeof *episodes->groups, compare_groups);
    return true;
}

bool draft_few_episodes(const struct trajd_tree *tree, const struct draft_episodes *episodes,
                        char pattern[DRAFT_PATTERN_SIZE])
{
    const char *path =
        episodes->count ? tree->objects[episodes->groups[episodes->count / 2]].path : "";
    const size_t length = strlen(path);

    if (episodes->count < MANY_EPISODES || length + 8 > DRAFT_PATTERN_SIZE ||
        strpbrk(path, "*?[]\\") || path[length - 1] < '0' || path[length - 1] > '9')
        return false;
    snprintf(pattern, DRAFT_PATTERN_SIZE, "/%.*s[0-9]", (int)length - 1, path);
    return true;
}
