/* Reads the texts and paths of a layout. */
#include <string.h>

#include "daemon/layout/layout_internal.h"

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
