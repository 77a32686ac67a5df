/* The connection to a daemon: one message a block, and the blocks in a sealed memfd. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/memory.h"
#include "daemon/base/unix_socket.h"
#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/convert_writer.h"
#include "proto/wire.h"

enum { SLICE_MS = 100, FRAME_ROOM = 2048 };

/* The daemon does the segments of other clients first, which take a second or two at most. */
static const int64_t reply_timeout_ns = INT64_C(300000000000);
static const uint64_t room_unit_bytes = UINT64_C(4) << 20;

struct convert_remote {
    char path[512];
    const bool *cancel;
    int connection, memory_fd;
    uint8_t *room;
    uint64_t room_bytes, request;
};

static enum trajd_status gone(const struct convert_remote *remote, const char *why,
                              struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon at %s %s", remote->path, why);
}

static enum trajd_status connect_to(struct convert_remote *remote, struct trajd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(remote->path) >= sizeof address.sun_path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
                               "%s: a socket's path has at most %zu bytes", remote->path,
                               sizeof address.sun_path - 1);
    strcpy(address.sun_path, remote->path);
    remote->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (remote->connection < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socket: %s", strerror(errno));
    if (connect(remote->connection, (struct sockaddr *)&address, sizeof address))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, errno, "no daemon resamples at %s: %s",
                               remote->path, strerror(errno));
    return TRAJD_OK;
}

static enum trajd_status send_request(struct convert_remote *remote, uint64_t size_bytes,
                                      struct trajd_error *error)
{
    const struct trajd_wire_message question = {.op = TRAJD_WIRE_RESAMPLE,
                                                .resample = {++remote->request, size_bytes}};
    uint8_t frame[FRAME_ROOM];
    size_t length;
    enum trajd_status status = trajd_wire_encode(&question, frame, sizeof frame, &length, error);

    if (status)
        return status;
    return trajd_send_fd(remote->connection, frame, length, size_bytes ? remote->memory_fd : -1,
                         0) == (ssize_t)length
               ? TRAJD_OK
               : gone(remote, "has ended", error);
}

/* Receives the next frame, and its size in *size. */
static enum trajd_status receive_reply(struct convert_remote *remote, uint8_t frame[FRAME_ROOM],
                                       size_t *size, struct trajd_error *error)
{
    const int64_t end_ns = trajd_now_ns() + reply_timeout_ns;

    for (;;) {
        struct pollfd ready = {.fd = remote->connection, .events = POLLIN};
        ssize_t got;
        if (remote->cancel && __atomic_load_n(remote->cancel, __ATOMIC_RELAXED))
            return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "interrupted");
        if (trajd_now_ns() > end_ns)
            return gone(remote, "does not reply", error);
        if (poll(&ready, 1, SLICE_MS) <= 0)
            continue;
        got = recv(remote->connection, frame, FRAME_ROOM, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        *size = got > 0 ? (size_t)got : 0;
        return got > 0 ? TRAJD_OK : gone(remote, "has ended", error);
    }
}

/* Sends a request and receives the reply. Copies the GPU's name to `device`, which may be NULL. */
static enum trajd_status query(struct convert_remote *remote, uint64_t size_bytes, char *device,
                               struct trajd_error *error)
{
    struct trajd_wire_message message;
    uint8_t frame[FRAME_ROOM];
    uint64_t request;
    size_t size = 0;
    enum trajd_status status = send_request(remote, size_bytes, error);

    if (!status)
        status = receive_reply(remote, frame, &size, error);
    if (!status)
        status = trajd_wire_decode(frame, size, NULL, &message, &request, error);
    if (status)
        return status;
    if (message.op == TRAJD_WIRE_ERROR) {
        char text[TRAJD_WIRE_MAX_REASON + 1];
        trajd_wire_text_copy(message.error.message, text, sizeof text);
        return trajd_error_set(error,
                               message.error.status ? message.error.status : TRAJD_ERR_PROTOCOL, 0,
                               "the daemon at %s: %s", remote->path, text);
    }
    if (message.op != TRAJD_WIRE_RESAMPLED || message.resampled.request != remote->request)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "the daemon at %s sent an unexpected reply", remote->path);
    if (device)
        trajd_wire_text_copy(message.resampled.device, device, TRAJD_DEVICE_NAME_SIZE);
    return TRAJD_OK;
}

enum trajd_status convert_remote_create(const char *directory, const bool *cancel,
                                        char device[TRAJD_DEVICE_NAME_SIZE],
                                        struct convert_remote **out, struct trajd_error *error)
{
    struct convert_remote *remote = *out = trajd_memory_or_exit(calloc(1, sizeof *remote));
    bool is_cancelled;
    enum trajd_status status;

    *remote = (struct convert_remote){.cancel = cancel, .connection = -1, .memory_fd = -1};
    snprintf(remote->path, sizeof remote->path, "%.400s/resample.sock", directory);
    status = connect_to(remote, error);
    if (!status)
        status = query(remote, 0, device, error);
    is_cancelled = cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
    if (status == TRAJD_ERR_CLOSED && !is_cancelled)
        status = gone(remote, "has ended, does not reply, or accepts no more clients", error);
    if (status)
        convert_remote_destroy(out);
    return status;
}

static void drop_room(struct convert_remote *remote)
{
    if (remote->room)
        munmap(remote->room, remote->room_bytes);
    if (remote->memory_fd >= 0)
        close(remote->memory_fd);
    remote->room = NULL;
    remote->room_bytes = 0;
    remote->memory_fd = -1;
}

void convert_remote_destroy(struct convert_remote **out)
{
    struct convert_remote *remote = *out;

    *out = NULL;
    if (!remote)
        return;
    drop_room(remote);
    if (remote->connection >= 0)
        close(remote->connection);
    free(remote);
}

enum trajd_status convert_remote_room(struct convert_remote *remote, uint64_t size_bytes,
                                      void **room, struct trajd_error *error)
{
    const uint64_t bytes = (size_bytes + room_unit_bytes - 1) / room_unit_bytes * room_unit_bytes;

    if (size_bytes > remote->room_bytes) {
        drop_room(remote);
        remote->room = convert_memory_map(bytes, true, &remote->memory_fd);
        if (!remote->room)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, errno,
                                   "no memory to share with the daemon (%llu bytes): %s",
                                   (unsigned long long)bytes, strerror(errno));
        remote->room_bytes = bytes;
    }
    *room = remote->room;
    return TRAJD_OK;
}

enum trajd_status convert_remote_run(struct convert_remote *remote, uint64_t size_bytes,
                                     struct trajd_error *error)
{
    return query(remote, size_bytes, NULL, error);
}
