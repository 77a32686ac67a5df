/* Writes `meta:` of a draft: texts and numbers of the episodes. Finds attributes for other keys, too. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/draft/draft_layout_internal.h"
#include "daemon/base/json.h"
#include "proto/array_len.h"

enum { META_MAX = 8, OUTCOMES_MAX = 4 };

static bool is_above(const struct draft_facts *facts, const struct trajd_tree_object *group)
{
    const char *episode = facts->tree->objects[facts->episodes->groups[0]].path;
    const size_t length = strlen(group->path);

    return !length ||
           (!strncmp(episode, group->path, length) && (episode[length] == '/' || !episode[length]));
}

void draft_write_attribute(FILE *out, const struct draft_facts *facts,
                           const struct trajd_tree_object *group, const char *name)
{
    const bool is_episode =
        !strcmp(group->path, facts->tree->objects[facts->episodes->groups[0]].path);
    char text[DRAFT_NAME_MAX];

    snprintf(text, sizeof text, "%s%s@%s", is_episode ? "" : "/", is_episode ? "" : group->path,
             name);
    trajd_json_text(out, text);
}

const struct trajd_tree_attribute *draft_find_attribute(const struct draft_facts *facts,
                                                        const char *const *words, size_t count,
                                                        bool (*fits)(const char *),
                                                        const struct trajd_tree_object **group)
{
    const uint32_t last = facts->episodes->groups[0];

    for (uint32_t i = last + 1; i-- > 0;) {
        const struct trajd_tree_object *object = &facts->tree->objects[i];
        if (object->kind != TRAJD_TREE_GROUP || !is_above(facts, object))
            continue;
        for (uint32_t a = 0; a < object->attribute_count; a++) {
            const struct trajd_tree_attribute *attribute =
                &facts->tree->attributes[object->first_attribute + a];
            if (draft_contains(attribute->name, words, count) && fits(attribute->value)) {
                *group = object;
                return attribute;
            }
        }
    }
    return NULL;
}

static bool is_text(const char *value)
{
    char *end;

    return *value && *value != '(' && *value != '{' && strcmp(value, "?") &&
           strcmp(value, "true") && strcmp(value, "false") &&
           strlen(value) < TRAJD_TREE_VALUE_MAX && (strtod(value, &end), *end);
}

/* Where the task is described in words. */
struct meta {
    const struct trajd_tree_attribute *attribute; /* or NULL */
    const struct trajd_tree_object *group;        /* of the attribute */
    const struct draft_stream *stream;            /* without an attribute: a dataset, or NULL */
};

static struct meta find_words(const struct draft_facts *facts, const char *const *words,
                              size_t count)
{
    struct meta meta = {0};

    meta.attribute = draft_find_attribute(facts, words, count, is_text, &meta.group);
    for (uint32_t s = 0; s < facts->streams->count && !meta.attribute && !meta.stream; s++) {
        const struct draft_stream *stream = &facts->streams->list[s];
        if (!stream->example->rank &&
            (stream->example->form == TRAJD_TREE_TEXT ||
             stream->example->form == TRAJD_TREE_STRING) &&
            draft_contains(stream->path, words, count))
            meta.stream = stream;
    }
    return meta;
}

/* Prefers what must be words to a task, which may be a number or the name of an environment. */
static struct meta find_meta(const struct draft_facts *facts)
{
    static const char *const words[] = {"language", "instruction", "prompt", "task"};
    const struct meta meta = find_words(facts, words, ARRAY_LEN(words) - 1);

    return meta.attribute || meta.stream ? meta
                                         : find_words(facts, words + ARRAY_LEN(words) - 1, 1);
}

static bool is_plain_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    return strcmp(name, "language") && isalpha((unsigned char)*name) &&
           strlen(name) <= TRAJD_LAYOUT_META_NAME_MAX && strspn(name, letters) == strlen(name);
}

/* Returns whether the dataset is one value that says how the episode went. */
static bool is_outcome(const struct draft_stream *stream)
{
    static const char *const words[] = {"success", "outcome", "result", "fail", "abort"};

    return !stream->example->rank && stream->example->form != TRAJD_TREE_FOREIGN &&
           draft_contains(stream->path, words, ARRAY_LEN(words)) && is_plain_name(stream->path);
}

/* Returns whether one of the first OUTCOMES_MAX datasets that are outcomes has the path. */
static bool is_taken(const struct draft_facts *facts, const char *path)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < facts->streams->count && count < OUTCOMES_MAX; s++) {
        if (!is_outcome(&facts->streams->list[s]))
            continue;
        if (!strcmp(facts->streams->list[s].path, path))
            return true;
        count++;
    }
    return false;
}

/* Returns whether all episodes have the attribute, as one value, and the values differ. */
static bool differs(const struct draft_facts *facts, const struct trajd_tree_attribute *attribute)
{
    bool found = false;

    for (uint32_t e = 0; e < facts->episodes->count; e++) {
        const struct trajd_tree_object *group = &facts->tree->objects[facts->episodes->groups[e]];
        const struct trajd_tree_attribute *list = &facts->tree->attributes[group->first_attribute];
        uint32_t a = 0;
        while (a < group->attribute_count && strcmp(list[a].name, attribute->name))
            a++;
        if (a == group->attribute_count || *list[a].value == '(' || !strcmp(list[a].value, "?"))
            return false;
        found = found || strcmp(list[a].value, attribute->value);
    }
    return found;
}

void draft_write_meta(FILE *out, const struct draft_facts *facts)
{
    const struct meta meta = find_meta(facts);
    const struct trajd_tree_object *first = &facts->tree->objects[facts->episodes->groups[0]];
    uint32_t count = meta.attribute || meta.stream;

    if (count) {
        fprintf(out, "meta:\n  language: {%s: ", meta.attribute ? "attribute" : "path");
        if (meta.attribute)
            draft_write_attribute(out, facts, meta.group, meta.attribute->name);
        else
            draft_write_text(out, meta.stream->path);
        fprintf(out, "}   # GUESS: the task in words\n");
    }
    for (uint32_t s = 0; s < facts->streams->count; s++) {
        const char *path = facts->streams->list[s].path;
        if (is_taken(facts, path))
            fprintf(out, "%s  %s: {path: %s}   # to select by, with `where:` of a feed\n",
                    count++ ? "" : "meta:\n", path, path);
    }
    for (uint32_t a = 0; a < first->attribute_count && count < META_MAX; a++) {
        const struct trajd_tree_attribute *attribute =
            &facts->tree->attributes[first->first_attribute + a];
        if (attribute == meta.attribute || !is_plain_name(attribute->name) ||
            is_taken(facts, attribute->name) || !differs(facts, attribute))
            continue;
        fprintf(out, "%s  %s: {attribute: \"@%s\"}   # to select by, with `where:` of a feed\n",
                count++ ? "" : "meta:\n", attribute->name, attribute->name);
    }
}

bool draft_is_meta(const struct draft_facts *facts, uint32_t which)
{
    const struct draft_stream *stream = &facts->streams->list[which];

    return find_meta(facts).stream == stream || is_taken(facts, stream->path);
}
