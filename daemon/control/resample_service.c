#include "daemon/control/resample_service.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/thread.h"
#include "daemon/base/unix_socket.h"
#include "daemon/control/resample_backend.h"
#include "proto/wire.h"

#define LISTENER UINT32_MAX /* in epoll's data, instead of a connection's index */
#define STOP (UINT32_MAX - 1)

enum {
    NICENESS = 10,
    EVENTS = 16,
    TURN_MS = 1000,
    FRAME_BYTES = 2048,
};

struct trajd_resample_service {
    struct trajd_resample_service_options options;
    char path[PATH_MAX];
    int listener, epoll, stop;
    /* closed for a moment to accept and close a connection when descriptors have run out */
    int reserve;
    int connections[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS]; /* -1: free */
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;      /* of the thread */
    struct trajd_resample_backend backend; /* released with the last client */
    /* atomic and relaxed: counters that order nothing */
    struct trajd_resample_service_stats stats;
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* ---- messages ---- */

/* Sends a message. Returns false where the client does not read its answers. */
static bool answer(int connection, const struct trajd_wire_message *message)
{
    uint8_t frame[FRAME_BYTES];
    size_t size;

    return !trajd_wire_encode(message, frame, sizeof frame, &size, NULL) &&
           send(connection, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

static bool refuse(struct trajd_resample_service *resample_service, int connection,
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
        return refuse(resample_service, connection, request->request, &error);
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
        return refuse(resample_service, connection, request, &error);
    if (message.op == TRAJD_WIRE_RESAMPLE)
        return handle_resample(resample_service, connection, &message.resample, fd);
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s accepts only RESAMPLE",
                    (int)message.op, TRAJD_RESAMPLE_SERVICE_SOCKET);
    return refuse(resample_service, connection, 0, &error);
}

/* Closes a descriptor of any kind without blocking: a socket whose peer does not read would block
 * the last owner for its linger time. */
static void drop_descriptor(int fd)
{
    const struct linger none = {0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* fails for other files */
    /* close may wait for a filesystem in user space */
    trajd_heartbeat_wait();
    close(fd);
    trajd_heartbeat_resume();
}

/* Returns the descriptor of the message; -1: it has none, or several, which are closed here. */
static int take_descriptor(struct msghdr *message)
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
                drop_descriptor(fd);
        }
    }
    return taken;
}

/* Receives and handles one message. Returns false where the connection has ended. */
static bool receive(struct trajd_resample_service *resample_service, int connection)
{
    uint8_t frame[FRAME_BYTES];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {frame, sizeof frame};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t size = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool is_good;
    int fd;

    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    fd = take_descriptor(&message); /* an empty message may carry one, too */
    is_good = size && !(message.msg_flags & MSG_TRUNC) &&
              handle(resample_service, connection, frame, (size_t)size, fd);
    if (fd >= 0)
        drop_descriptor(fd);
    return is_good;
}

/* ---- connections ---- */

static bool may_enter(const struct trajd_resample_service *resample_service, int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (resample_service->options.group_access || peer.uid == 0 || peer.uid == geteuid());
}

static bool add_to_epoll(struct trajd_resample_service *resample_service, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    return !epoll_ctl(resample_service->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Accepts and closes a connection when descriptors have run out: a pending connection would keep
 * the listener readable forever. */
static void refuse_without_descriptors(struct trajd_resample_service *resample_service)
{
    int connection;

    if (resample_service->reserve >= 0)
        close(resample_service->reserve);
    connection = accept4(resample_service->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0)
        close(connection);
    resample_service->reserve = open_reserve();
}

static void accept_one(struct trajd_resample_service *resample_service)
{
    const int connection =
        accept4(resample_service->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t index = 0;

    if (connection < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_without_descriptors(resample_service);
    if (connection < 0)
        return;
    while (index < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS && resample_service->connections[index] >= 0)
        index++;
    if (index == TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS || !may_enter(resample_service, connection) ||
        !add_to_epoll(resample_service, connection, index)) {
        close(connection);
        return;
    }
    resample_service->connections[index] = connection;
    __atomic_add_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED);
}

/* Closes a connection. After the last one, frees buffers, GPU memory and the pool's threads. */
static void close_connection(struct trajd_resample_service *resample_service, uint32_t index)
{
    close(resample_service->connections[index]);
    resample_service->connections[index] = -1;
    if (__atomic_sub_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED))
        return;
    trajd_heartbeat_wait(); /* for the driver */
    trajd_resample_backend_release(&resample_service->backend);
    trajd_heartbeat_resume();
}

/* Handles one message of each ready connection, so that a busy client delays the others by one
 * segment at most. Returns false where the service stops. */
static bool turn(struct trajd_resample_service *resample_service)
{
    struct epoll_event events[EVENTS];
    const int ready = epoll_wait(resample_service->epoll, events, EVENTS, TURN_MS);

    trajd_heartbeat_turn();
    for (int i = 0; i < ready; i++) {
        const uint32_t index = events[i].data.u32;
        trajd_heartbeat_turn();
        if (index == STOP || eventfd_read(resample_service->stop, &(eventfd_t){0}) == 0)
            return false;
        if (index == LISTENER)
            accept_one(resample_service);
        else if (resample_service->connections[index] >= 0 &&
                 !receive(resample_service, resample_service->connections[index]))
            close_connection(resample_service, index);
    }
    return true;
}

static void *run_resample_service(void *context)
{
    struct trajd_resample_service *resample_service = context;

    trajd_heartbeat_begin(&resample_service->heartbeat);
    /* on Linux this applies to the calling thread only; without permission all threads stay alike
     * */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (turn(resample_service))
        ;
    return NULL;
}

/* ---- start and stop ---- */

static enum trajd_status start(struct trajd_resample_service *resample_service,
                               struct trajd_error *error)
{
    const int failed = trajd_thread_start(&resample_service->thread, "trajd-for-cli",
                                          run_resample_service, resample_service);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resample service thread: %s",
                               strerror(failed));
    resample_service->is_running = true;
    return TRAJD_OK;
}

enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **out, struct trajd_error *error)
{
    struct trajd_resample_service *resample_service = calloc(1, sizeof *resample_service);
    enum trajd_status status;

    *out = NULL;
    if (!resample_service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resample service");
    *resample_service = (struct trajd_resample_service){
        .options = *options, .listener = -1, .backend = {.options = *options}};
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        resample_service->connections[i] = -1;
    snprintf(resample_service->path, sizeof resample_service->path, "%s/%s", options->directory,
             TRAJD_RESAMPLE_SERVICE_SOCKET);
    resample_service->epoll = epoll_create1(EPOLL_CLOEXEC);
    resample_service->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resample_service->reserve = open_reserve();
    status =
        resample_service->epoll < 0 || resample_service->stop < 0 || resample_service->reserve < 0
            ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "resample service: %s",
                              strerror(errno))
            : trajd_unix_listen(
                  resample_service->path, SOCK_SEQPACKET, resample_service->options.group_access,
                  TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS, &resample_service->listener, error);
    if (!status && (!add_to_epoll(resample_service, resample_service->listener, LISTENER) ||
                    !add_to_epoll(resample_service, resample_service->stop, STOP)))
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "epoll_ctl: %s", strerror(errno));
    if (!status)
        status = start(resample_service, error);
    if (status)
        trajd_resample_service_destroy(&resample_service);
    *out = resample_service;
    return status;
}

void trajd_resample_service_destroy(struct trajd_resample_service **out)
{
    struct trajd_resample_service *resample_service = *out;

    *out = NULL;
    if (!resample_service)
        return;
    if (resample_service->is_running) {
        eventfd_write(resample_service->stop, 1);
        pthread_join(resample_service->thread, NULL);
    }
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        if (resample_service->connections[i] >= 0)
            close(resample_service->connections[i]);
    if (resample_service->listener >= 0) {
        close(resample_service->listener);
        unlink(resample_service->path);
    }
    if (resample_service->epoll >= 0)
        close(resample_service->epoll);
    if (resample_service->stop >= 0)
        close(resample_service->stop);
    if (resample_service->reserve >= 0)
        close(resample_service->reserve);
    trajd_resample_backend_release(&resample_service->backend);
    free(resample_service);
}

void trajd_resample_service_get_stats(const struct trajd_resample_service *resample_service,
                                      struct trajd_resample_service_stats *stats)
{
    stats->clients = __atomic_load_n(&resample_service->stats.clients, __ATOMIC_RELAXED);
    stats->segments = __atomic_load_n(&resample_service->stats.segments, __ATOMIC_RELAXED);
    stats->bytes = __atomic_load_n(&resample_service->stats.bytes, __ATOMIC_RELAXED);
    stats->refused = __atomic_load_n(&resample_service->stats.refused, __ATOMIC_RELAXED);
}

const struct trajd_heartbeat *
trajd_resample_service_heartbeat(const struct trajd_resample_service *resample_service)
{
    return &resample_service->heartbeat;
}
