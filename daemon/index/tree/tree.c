/* The tables of a tree, the rules that concern several members, and the child process that reads a
 * file's tree. */
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/index/index_child.h"
#include "daemon/index/tree/tree.h"
#include "proto/regular_file.h"

/* a group that is damaged has a problem beside it */
enum { OBJECT_COUNT_MAX = 2 * TRAJD_TREE_OBJECTS_MAX + 2 };
static const size_t tree_bytes_max = (size_t)512 << 20;

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_tree_attribute, member)
static const struct trajd_codec_field attribute_fields[] = {
    {"name", TRAJD_CODEC_TEXT, ONE(name)},
    {"value", TRAJD_CODEC_TEXT, ONE(value), .high = TRAJD_TREE_VALUE_MAX},
};
static const struct trajd_codec_table attribute_table =
    TRAJD_CODEC_TABLE(struct trajd_tree_attribute, attribute_fields, TRAJD_CODEC_ROW, NULL);
#undef ONE

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_tree_object, member)
static const struct trajd_codec_field object_fields[] = {
    {"kind", TRAJD_CODEC_UINT, ONE(kind), .high = TRAJD_TREE_PROBLEM},
    {"path", TRAJD_CODEC_TEXT, ONE(path)},
    {"form", TRAJD_CODEC_UINT, ONE(form), .high = TRAJD_TREE_FOREIGN},
    {"dtype", TRAJD_CODEC_UINT, ONE(dtype), .high = TRAJD_DTYPE_COUNT - 1},
    {"type", TRAJD_CODEC_TEXT, ONE(type)},
    {"shape", TRAJD_CODEC_UINT, TRAJD_CODEC_ARRAY(struct trajd_tree_object, shape, rank)},
    {"storage", TRAJD_CODEC_TEXT, ONE(storage)},
    {"attributes", TRAJD_CODEC_UINT, ONE(attribute_count)},
};
#undef ONE

static const char *check_object(void *value, void *context)
{
    const struct trajd_tree_object *object = value;
    const bool is_plain = object->kind == TRAJD_TREE_DATASET && object->form == TRAJD_TREE_PLAIN;

    (void)context;
    return is_plain == (object->dtype != TRAJD_DTYPE_NONE)
               ? NULL
               : "only a dataset of plain numbers has a type, and it must have one";
}

static const struct trajd_codec_table object_table =
    TRAJD_CODEC_TABLE(struct trajd_tree_object, object_fields, TRAJD_CODEC_ROW, check_object);

static const struct trajd_codec_field tree_fields[] = {
    {"refusal", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(struct trajd_tree, refusal),
     .flags = TRAJD_CODEC_OPTIONAL},
    {"is_cut", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(struct trajd_tree, is_cut)},
    {"objects", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(struct trajd_tree, objects, object_count, OBJECT_COUNT_MAX),
     .table = &object_table},
    {"attributes", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(struct trajd_tree, attributes, attribute_count, UINT32_MAX),
     .table = &attribute_table},
};

/* Finds where the attributes of each object begin. */
static const char *check_tree(void *value, void *context)
{
    struct trajd_tree *tree = value;
    uint64_t next = 0;

    (void)context;
    for (uint32_t i = 0; i < tree->object_count; i++) {
        tree->objects[i].first_attribute = (uint32_t)next;
        next += tree->objects[i].attribute_count;
        if (next > tree->attribute_count)
            break;
    }
    return next == tree->attribute_count ? NULL : "attributes without an object, or too few";
}

static const struct trajd_codec_table tree_table =
    TRAJD_CODEC_TABLE(struct trajd_tree, tree_fields, TRAJD_CODEC_ROW, check_tree);

enum trajd_status trajd_tree_encode(const struct trajd_tree *tree, struct trajd_bytes *bytes,
                                    struct trajd_error *error)
{
    return trajd_codec_encode(&tree_table, tree, bytes, error);
}

enum trajd_status trajd_tree_decode(const void *data, size_t length, struct trajd_tree *tree,
                                    struct trajd_error *error)
{
    enum trajd_status status;

    *tree = (struct trajd_tree){.arena = {.limit_bytes = tree_bytes_max}};
    status = trajd_arena_decode(&tree->arena, &tree_table, data, length, tree, NULL, error);
    if (status) {
        trajd_tree_free(tree);
        trajd_error_prefix(error, "the tree of the file");
    }
    return status;
}

void trajd_tree_free(struct trajd_tree *tree)
{
    trajd_arena_free(&tree->arena);
    *tree = (struct trajd_tree){0};
}

/* ---- reading ---- */

/* Waits for a frame of that kind. */
static bool receive(struct trajd_index_child *child, uint32_t kind, int64_t deadline_ns)
{
    enum trajd_index_child_event event = TRAJD_CHILD_WAITS;

    child->header_length = child->data_length = 0;
    while (event == TRAJD_CHILD_WAITS) {
        struct pollfd wait = {.fd = child->socket, .events = POLLIN};
        const int64_t remaining_ns = deadline_ns - trajd_now_ns();
        if (remaining_ns <= 0)
            return false;
        poll(&wait, 1, (int)(remaining_ns / 1000000) + 1);
        event = trajd_index_child_receive(child);
    }
    return event == TRAJD_CHILD_FRAME && child->header.kind == kind;
}

static bool send_request(const struct trajd_index_child *child)
{
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_TREE, 0};

    return trajd_send_fd(child->socket, &header, sizeof header, child->fd, 0) == sizeof header;
}

/* Ends a child that sent no tree, and says why. */
static enum trajd_status explain_death(struct trajd_index_child *child, const char *path,
                                       bool is_late, struct trajd_error *error)
{
    const bool has_ended = !is_late && trajd_helper_has_ended(child->pid);
    const int status = trajd_index_child_end(child);

    if (is_late)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: the helper program took too long",
                               path);
    if (has_ended && WIFSIGNALED(status))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "%s: the helper program was killed by signal %d (%s)", path,
                               WTERMSIG(status), strsignal(WTERMSIG(status)));
    return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: the helper program crashed on it", path);
}

enum trajd_status trajd_tree_read(const char *helper_path, const char *path, uint32_t timeout_ms,
                                  struct trajd_tree *tree, struct trajd_error *error)
{
    const int64_t deadline_ns = trajd_now_ns() + timeout_ms * INT64_C(1000000);
    struct trajd_index_child child;
    enum trajd_status status;

    *tree = (struct trajd_tree){0};
    trajd_index_child_init(&child);
    status = trajd_open_regular(path, &child.fd, error);
    if (status)
        return status;
    status = trajd_index_child_start(&child, helper_path, error);
    if (status) {
        close(child.fd);
        return status;
    }
    if (receive(&child, TRAJD_HELPER_READY, deadline_ns) && send_request(&child) &&
        receive(&child, TRAJD_HELPER_TREE, deadline_ns)) {
        status = trajd_tree_decode(child.data, child.data_length, tree, error);
        trajd_index_child_end(&child);
    } else {
        status = explain_death(&child, path, trajd_now_ns() >= deadline_ns, error);
    }
    return status;
}
