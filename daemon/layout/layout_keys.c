/* Reads the mappings of a layout by tables of their keys, and the texts, paths and words in them. */
#include <string.h>

#include "daemon/layout/layout_internal.h"

enum { KEYS_MAX = 16 };

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

enum trajd_status trajd_layout_read_path(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node, bool may_have_star,
                                         const char **path)
{
    enum trajd_status status = trajd_layout_read_text(p, node, path);

    if (status)
        return status;
    if (**path == '/' || !trajd_layout_path_is_clean(*path))
        return trajd_yaml_error(p->yaml, node, p->error,
                                "\"%s\": a path is relative to the episode's group, without empty, "
                                "\".\" or \"..\" parts",
                                *path);
    if (trajd_layout_star_count(*path) > may_have_star)
        return trajd_yaml_error(p->yaml, node, p->error, "\"%s\": %s", *path,
                                may_have_star ? "only one '*' is allowed"
                                              : "no '*' is allowed here");
    return TRAJD_OK;
}

enum trajd_status trajd_layout_check_keys(struct trajd_layout_parser *p,
                                          const struct trajd_yaml_node *node,
                                          const struct trajd_layout_key *keys)
{
    const char *names[KEYS_MAX + 1] = {NULL};

    for (size_t i = 0; keys[i].name; i++)
        names[i] = keys[i].name;
    return trajd_yaml_check_keys(p->yaml, node, names, p->error);
}

static enum trajd_status read_value(struct trajd_layout_parser *p,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_layout_key *key, void *out)
{
    int choice = 0;
    enum trajd_status status =
        key->words ? trajd_yaml_choice(p->yaml, node, key->words, &choice, p->error) : TRAJD_OK;

    if (status || key->read)
        return status ? status : key->read(p, node, out);
    switch (key->type) {
    case LAYOUT_OTHER:
        break;
    case LAYOUT_TEXT:
        return trajd_layout_read_text(p, node, out);
    case LAYOUT_PATH:
    case LAYOUT_PATTERN:
        return trajd_layout_read_path(p, node, key->type == LAYOUT_PATTERN, out);
    case LAYOUT_WORD:
        *(unsigned *)out = (unsigned)choice + key->first;
        break;
    case LAYOUT_FLAG:
        *(bool *)out = choice == 1;
        break;
    case LAYOUT_BOOL:
        return trajd_yaml_bool(p->yaml, node, out, p->error);
    case LAYOUT_DURATION:
        return trajd_yaml_duration(p->yaml, node, out, p->error);
    case LAYOUT_RATE:
        return trajd_yaml_rate(p->yaml, node, out, p->error);
    }
    return TRAJD_OK;
}

enum trajd_status trajd_layout_read_keys(struct trajd_layout_parser *p,
                                         const struct trajd_yaml_node *node,
                                         const struct trajd_layout_key *keys, void *object)
{
    enum trajd_status status = trajd_layout_check_keys(p, node, keys);

    for (; keys->name && !status; keys++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, keys->name);
        if (child)
            status = read_value(p, child, keys, (char *)object + keys->offset);
    }
    return status;
}
