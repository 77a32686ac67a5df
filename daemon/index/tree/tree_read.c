/* Reads the tree of a file with one child process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/index/index_child.h"
#include "daemon/index/tree/tree.h"

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

enum trajd_status trajd_tree_read(const char *helper_path, const char *path, uint32_t timeout_ms,
                                  struct trajd_tree *tree, struct trajd_error *error)
{
    const int64_t deadline_ns = trajd_now_ns() + timeout_ms * INT64_C(1000000);
    struct trajd_index_child child;
    struct stat about;
    enum trajd_status status;

    *tree = (struct trajd_tree){0};
    trajd_index_child_init(&child);
    child.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (child.fd < 0)
        return trajd_error_set(error, errno == ENOENT ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO, errno,
                               "%s: %s", path, strerror(errno));
    if (fstat(child.fd, &about) || !S_ISREG(about.st_mode)) {
        close(child.fd);
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: it is no regular file", path);
    }
    status = trajd_index_child_start(&child, helper_path, error);
    if (status) {
        close(child.fd);
        return status;
    }
    if (!receive(&child, TRAJD_HELPER_READY, deadline_ns) || !send_request(&child) ||
        !receive(&child, TRAJD_HELPER_TREE, deadline_ns))
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                 "%s: the helper program crashed on it, or took too long", path);
    else
        status = trajd_tree_decode(child.data, child.data_length, tree, error);
    trajd_index_child_end(&child);
    return status;
}
