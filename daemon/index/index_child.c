/* Starts trajd-indexer, exchanges frames with it, and waits for its end. */
#include "daemon/index/index_child.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/unix_socket.h"
#include "daemon/index/helper.h"

enum { LOOKS_MAX = 2 * 10 };

void trajd_index_child_init(struct trajd_index_child *child)
{
    *child = (struct trajd_index_child){.socket = -1, .fd = -1};
}

enum trajd_status trajd_index_child_start(struct trajd_index_child *child, const char *path,
                                          struct trajd_error *error)
{
    return trajd_helper_start(path, NULL, SOCK_STREAM, &child->socket, &child->pid, error);
}

bool trajd_index_child_send_layout(const struct trajd_index_child *child,
                                   const struct trajd_layout *layout)
{
    struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_LAYOUT,
                                         layout->text_length};

    return trajd_send_all(child->socket, &header, sizeof header) &&
           trajd_send_all(child->socket, layout->text, layout->text_length);
}

bool trajd_index_child_send_file(const struct trajd_index_child *child)
{
    const struct trajd_index_entry *entry = child->entry;
    const uint32_t slice[] = {entry->slice, entry->slice_count ? entry->slice_count : 1};
    struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, TRAJD_HELPER_FILE, sizeof slice};

    return trajd_send_fd(child->socket, &header, sizeof header, child->fd, 0) == sizeof header &&
           trajd_send_all(child->socket, slice, sizeof slice);
}

static bool grow_data(struct trajd_index_child *child)
{
    size_t capacity = child->data_capacity ? child->data_capacity * 2 : 65536;
    uint8_t *grown;

    if (child->data_length < child->data_capacity)
        return true;
    grown = realloc(child->data, capacity);
    if (!grown)
        return false;
    child->data = grown;
    child->data_capacity = capacity;
    return true;
}

enum trajd_index_child_event trajd_index_child_receive(struct trajd_index_child *child)
{
    bool in_header = child->header_length < sizeof child->header;
    size_t remaining = in_header ? sizeof child->header - child->header_length
                                 : child->header.length - child->data_length;
    ssize_t received;

    if (!in_header && !grow_data(child))
        return TRAJD_CHILD_NO_MEMORY;
    if (!in_header && remaining > child->data_capacity - child->data_length)
        remaining = child->data_capacity - child->data_length;
    received = recv(child->socket,
                    in_header ? (uint8_t *)&child->header + child->header_length
                              : child->data + child->data_length,
                    remaining, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        return TRAJD_CHILD_WAITS;
    if (received <= 0)
        return TRAJD_CHILD_CLOSED;
    *(in_header ? &child->header_length : &child->data_length) += (size_t)received;
    if (child->header_length < sizeof child->header)
        return TRAJD_CHILD_WAITS;
    if (child->header.magic != TRAJD_HELPER_MAGIC || child->header.length > TRAJD_RECORD_SIZE_MAX)
        return TRAJD_CHILD_BROKEN;
    return child->data_length == child->header.length ? TRAJD_CHILD_FRAME : TRAJD_CHILD_WAITS;
}

/* Returns the bytes that the process has read so far; 0 where the kernel does not tell. */
static uint64_t read_bytes_of(pid_t pid)
{
    char path[64];
    uint64_t bytes = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    file = fopen(path, "re");
    if (file && fscanf(file, "rchar: %" SCNu64, &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

/* Returns the processor time of the process; INT64_MAX where the kernel does not tell. */
static int64_t cpu_ns_of(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
        return INT64_MAX;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

bool trajd_index_child_may_go_on(struct trajd_index_child *child, int64_t now_ns)
{
    const struct trajd_index_progress before = child->progress;
    struct trajd_index_progress *progress = &child->progress;
    bool reads, waits;

    *progress = (struct trajd_index_progress){now_ns, cpu_ns_of(child->pid),
                                              read_bytes_of(child->pid), before.looks + 1};
    reads = progress->read_bytes > before.read_bytes;
    waits = progress->cpu_ns != INT64_MAX &&
            progress->cpu_ns - before.cpu_ns < (now_ns - before.at_ns) / 2;
    return before.looks == 0 || (reads && waits && progress->looks < LOOKS_MAX);
}

void trajd_index_child_release(struct trajd_index_child *child)
{
    if (child->fd >= 0)
        close(child->fd);
    child->fd = -1;
    child->entry = NULL;
    child->header_length = child->data_length = 0;
}

int trajd_index_child_end(struct trajd_index_child *child)
{
    int status = 0;

    if (!child->pid)
        return 0;
    close(child->socket);
    kill(child->pid, SIGKILL);
    trajd_heartbeat_wait_on(child->waited_ns); /* the child may be in a read that does not end */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    trajd_heartbeat_resume();
    free(child->data);
    trajd_index_child_release(child);
    trajd_index_child_init(child);
    return status;
}
