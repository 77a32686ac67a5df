/* Reads the texts and paths of a layout. */
#include <string.h>

#include "daemon/layout/layout_internal.h"

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

enum trajd_status trajd_layout_read_text(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *out)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(r->yaml, node, &text, r->error);

    if (status)
        return status;
    if (!*text || strlen(text) > TRAJD_LAYOUT_PATH_MAX)
        return trajd_yaml_error(r->yaml, node, r->error, "must have 1 to %d characters",
                                TRAJD_LAYOUT_PATH_MAX);
    return trajd_yaml_keep(r, text, out);
}

static enum trajd_status read_path(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, bool may_have_star,
                                   void *out)
{
    enum trajd_status status = trajd_layout_read_text(r, node, out);
    const char *path = status ? NULL : *(const char **)out;

    if (status)
        return status;
    if (*path == '/' || !trajd_layout_path_is_clean(path))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "\"%s\": a path is relative to the episode's group, without empty, "
                                "\".\" or \"..\" parts",
                                path);
    if (trajd_layout_star_count(path) > may_have_star)
        return trajd_yaml_error(r->yaml, node, r->error, "\"%s\": %s", path,
                                may_have_star ? "only one '*' is allowed"
                                              : "no '*' is allowed here");
    return TRAJD_OK;
}

enum trajd_status trajd_layout_read_path(const struct trajd_yaml_reader *r,
                                         const struct trajd_yaml_node *node, void *out)
{
    return read_path(r, node, false, out);
}

enum trajd_status trajd_layout_read_pattern(const struct trajd_yaml_reader *r,
                                            const struct trajd_yaml_node *node, void *out)
{
    return read_path(r, node, true, out);
}
