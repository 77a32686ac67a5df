/* Messages of programs that have rows resampled. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/clock.h"
#include "daemon/control/resample/resample_internal.h"
#include "proto/wire.h"

enum {
    FRAME_BYTES = 2048,
    MESSAGE_DESCRIPTORS = 253, /* SCM_MAX_FD of Linux: more are never in one message */
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* Sends a message. Returns false where the client does not read its answers. */
static bool answer(int connection, const struct trajd_wire_message *message)
{
    uint8_t frame[FRAME_BYTES];
    size_t size;

    return !trajd_wire_encode(message, frame, sizeof frame, &size, NULL) &&
           send(connection, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

bool trajd_resample_refuse(struct trajd_resample_service *resample_service, int connection,
                           uint64_t request, const struct trajd_error *error)
{
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR, .error = {request, error->status, trajd_wire_text(error->message)}};

    count(&resample_service->stats.refused, 1);
    return answer(connection, &message);
}

static bool handle_resample(struct trajd_resample_service *resample_service, int connection,
                            const struct trajd_wire_resample *request, int fd)
{
    struct trajd_device *device = NULL;
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED,
                                         .resampled = {.request = request->request}};
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;

    if (!request->size_bytes)
        device = trajd_resample_backend_device(&resample_service->backend);
    else if (fd < 0)
        status = trajd_error_set(&error, TRAJD_ERR_ARGUMENT, 0,
                                 "RESAMPLE: the message must carry exactly one descriptor");
    else
        status = trajd_resample_backend_run(&resample_service->backend, fd, request->size_bytes,
                                            &device, &error);
    if (status)
        return trajd_resample_refuse(resample_service, connection, request->request, &error);
    count(&resample_service->stats.segments, request->size_bytes != 0);
    count(&resample_service->stats.bytes, request->size_bytes);
    if (device)
        message.resampled.device = trajd_wire_text(trajd_device_info(device)->name);
    return answer(connection, &message);
}

/* Handles one message. Returns false where it is no message of the protocol. */
static bool handle(struct trajd_resample_service *resample_service, int connection,
                   const uint8_t *frame, size_t size, int fd)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    const enum trajd_status status =
        trajd_wire_decode(frame, size, NULL, &message, &request, &error);

    if (status == TRAJD_ERR_DATA)
        return false;
    if (status)
        return trajd_resample_refuse(resample_service, connection, request, &error);
    if (message.op == TRAJD_WIRE_RESAMPLE)
        return handle_resample(resample_service, connection, &message.resample, fd);
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s accepts only RESAMPLE",
                    (int)message.op, TRAJD_RESAMPLE_SERVICE_SOCKET);
    return trajd_resample_refuse(resample_service, connection, 0, &error);
}

/* Returns the descriptor of the message; -1: it has none, or several, which are closed here. */
static int take_descriptor(struct trajd_resample_service *resample_service, struct msghdr *message,
                           uid_t uid)
{
    int taken = -1;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        const size_t descriptors =
            part->cmsg_len >= CMSG_LEN(0) ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < descriptors; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (taken < 0 && descriptors == 1 && !(message->msg_flags & MSG_CTRUNC))
                taken = fd;
            else
                trajd_closer_close(resample_service->closer, fd, uid);
        }
    }
    return taken;
}

/* Returns true if the descriptors of one more message of this user can be closed. A message is not
 * received without that, since the system closes what is not received on the receiver's thread. */
static bool may_receive(struct trajd_resample_service *resample_service, uid_t uid,
                        struct trajd_error *error)
{
    const uint32_t clients = resample_service->stats.clients;

    if (!trajd_closer_is_over_share(resample_service->closer, uid) &&
        trajd_closer_has_room(resample_service->closer, clients + MESSAGE_DESCRIPTORS))
        return true;
    trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                    "RESAMPLE: the daemon cannot close files that user %u or other users have sent "
                    "before, because their filesystem does not answer: end the programs that sent "
                    "them, or use --backend cpu",
                    (unsigned)uid);
    return false;
}

bool trajd_resample_receive(struct trajd_resample_service *resample_service, uint32_t index)
{
    struct trajd_unix_place *place = &resample_service->places[index];
    uint8_t frame[FRAME_BYTES];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MESSAGE_DESCRIPTORS * sizeof(int)) +
                   CMSG_SPACE(sizeof(struct ucred))]; /* see has_message */
    } control = {0};
    struct iovec part = {frame, sizeof frame};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct trajd_error error;
    ssize_t size;
    bool is_good;
    int fd;

    if (!may_receive(resample_service, place->uid, &error)) {
        trajd_resample_refuse(resample_service, place->fd, 0, &error);
        return false;
    }
    size = recvmsg(place->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    /* an empty message may carry one, too */
    fd = take_descriptor(resample_service, &message, place->uid);
    is_good = size && !(message.msg_flags & MSG_TRUNC) &&
              handle(resample_service, place->fd, frame, (size_t)size, fd);
    if (fd >= 0)
        trajd_closer_close(resample_service->closer, fd, place->uid);
    place->used_ns = trajd_now_ns();
    resample_service->has_asked[index] = true;
    return is_good;
}
