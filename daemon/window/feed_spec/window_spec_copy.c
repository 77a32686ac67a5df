/* Copies of strings and arrays that live as long as a feed's specification. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/window_spec_internal.h"

void *trajd_spec_copy(struct trajd_spec_parser *p, const void *bytes, size_t size)
{
    struct trajd_owned_spec *owned = p->owned;
    void *copy;

    if (owned->block_count == owned->block_room) {
        size_t room = owned->block_room ? 2 * owned->block_room : 32;
        void **blocks = realloc(owned->blocks, room * sizeof *blocks);
        if (!blocks)
            return NULL;
        owned->blocks = blocks;
        owned->block_room = room;
    }
    copy = malloc(size ? size : 1);
    if (!copy)
        return NULL;
    if (bytes)
        memcpy(copy, bytes, size);
    owned->blocks[owned->block_count++] = copy;
    return copy;
}

enum trajd_status trajd_spec_copy_string(struct trajd_spec_parser *p, const char *text,
                                         const char **out)
{
    *out = trajd_spec_copy(p, text, strlen(text) + 1);
    return *out ? TRAJD_OK : trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory for a feed");
}

enum trajd_status trajd_spec_read_string(struct trajd_spec_parser *p,
                                         const struct trajd_yaml_node *node, const char **out)
{
    const char *text;
    enum trajd_status status = trajd_yaml_string(p->yaml, node, &text, p->error);
    return status ? status : trajd_spec_copy_string(p, text, out);
}
