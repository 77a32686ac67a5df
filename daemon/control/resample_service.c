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
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "kernels/pool.h"
#include "kernels/dispatch/runner.h"
#include "proto/wire.h"

#define LISTENER UINT32_MAX /* in epoll's data, where connections have their index */
#define STOP (UINT32_MAX - 1)

enum {
    NICENESS = 10,
    EVENTS = 16,
    TURN_MS = 1000,
    FRAME_ROOM = 2048,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    BLOCK_UNIT = 512
};

/* a GPU without room is asked again behind it: asking costs, and is logged */
static const int64_t gpu_pause_ns = INT64_C(10000000000);

struct trajd_resample_service {
    struct trajd_resample_service_options options;
    char path[PATH_MAX];
    int listener, epoll, stop;
    /* given up for a moment to accept and close a connection when descriptors have run out */
    int reserve;
    int connections[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS]; /* -1: free */
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;     /* of the thread */
    struct trajd_runner *on_cpu, *on_gpu; /* made when they are needed, gone with the last client */
    struct trajd_pool *pool;              /* of on_cpu */
    struct trajd_device *device;          /* of on_gpu */
    int64_t gpu_again_ns;                 /* before that it is not asked for room again */
    /* its members atomic: counters, nothing is ordered by them */
    struct trajd_resample_service_stats stats;
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* ---- a segment ---- */

/* Until the size, or an error: the file is memory, so nothing here waits for anybody. */
static enum trajd_status copy(int fd, bool is_read, void *memory, uint64_t size_bytes, uint64_t at,
                              struct trajd_error *error)
{
    uint8_t *next = memory;

    while (size_bytes) {
        const ssize_t done = is_read ? pread(fd, next, size_bytes, (off_t)at)
                                     : pwrite(fd, next, size_bytes, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, done < 0 ? errno : 0,
                                   "RESAMPLE: the descriptor cannot be %s: %s",
                                   is_read ? "read" : "written to",
                                   done < 0 ? strerror(errno) : "it ends");
        next += done;
        at += (uint64_t)done;
        size_bytes -= (uint64_t)done;
    }
    return TRAJD_OK;
}

static enum trajd_status refuse_holes(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "RESAMPLE: the file has holes: its maker must have allocated it");
}

/* Only memory files have seals, so reading it cannot block; and its pages are its maker's, not
 * taken by us when the answer is written. */
static enum trajd_status check_file(int fd, uint64_t size_bytes, int64_t *blocks,
                                    struct trajd_error *error)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat status = {0};

    if (seals < 0 || (seals & SEALS) != SEALS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: the descriptor must be a memfd that is sealed "
                               "(F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL)");
    if (fstat(fd, &status) || status.st_size < 0 || (uint64_t)status.st_size < size_bytes ||
        size_bytes > TRAJD_BLOCK_MAX_BYTES)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: a block of %llu bytes in a file of %lld; at most %llu",
                               (unsigned long long)size_bytes, (long long)status.st_size,
                               (unsigned long long)TRAJD_BLOCK_MAX_BYTES);
    *blocks = status.st_blocks;
    return status.st_blocks < status.st_size / BLOCK_UNIT ? refuse_holes(error) : TRAJD_OK;
}

/* Pages beyond the end make up for holes, and holes can be made at any time: what the answer has
 * taken is given back. */
static enum trajd_status check_pages(int fd, uint64_t size_bytes, int64_t blocks,
                                     struct trajd_error *error)
{
    struct stat status;

    if (!fstat(fd, &status) && status.st_blocks <= blocks)
        return TRAJD_OK;
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes);
    return refuse_holes(error);
}

static enum trajd_status run_by(struct trajd_runner *runner, int fd, uint64_t size_bytes,
                                struct trajd_error *error)
{
    uint64_t answer_at, answer_bytes;
    void *room;
    enum trajd_status status = trajd_runner_room(runner, size_bytes, &room, error);

    if (!status)
        status = copy(fd, true, room, size_bytes, 0, error);
    if (!status)
        status = trajd_runner_run(runner, size_bytes, &answer_at, &answer_bytes, error);
    if (!status)
        status = copy(fd, false, (uint8_t *)room + answer_at, answer_bytes, answer_at, error);
    return status;
}

/* The GPU that segments go to now, or NULL. */
static struct trajd_device *gpu_now(const struct trajd_resample_service *resample_service)
{
    return trajd_now_ns() < resample_service->gpu_again_ns
               ? NULL
               : resample_service->options.device(resample_service->options.context);
}

static void leave_gpu(struct trajd_resample_service *resample_service,
                      const struct trajd_error *why)
{
    LOG(resample_service->options.log, WARNING, "RESAMPLE goes to the CPU: %s", why->message);
    /* and with it what it has of the GPU's memory */
    trajd_runner_destroy(&resample_service->on_gpu);
    resample_service->gpu_again_ns = trajd_now_ns() + gpu_pause_ns;
}

/* The GPU's runner; NULL: there is none now, or no room on it. */
static struct trajd_runner *find_gpu(struct trajd_resample_service *resample_service)
{
    struct trajd_device *device = gpu_now(resample_service);
    struct trajd_error error;

    if (resample_service->on_gpu && device != resample_service->device)
        trajd_runner_destroy(&resample_service->on_gpu);
    resample_service->device = device;
    if (device && !resample_service->on_gpu &&
        trajd_runner_create(device, NULL, &resample_service->on_gpu, &error))
        leave_gpu(resample_service, &error);
    return resample_service->on_gpu;
}

/* Threads that are as nice as the one that makes them. Without them it is slower, no more. */
static enum trajd_status make_cpu(struct trajd_resample_service *resample_service,
                                  struct trajd_error *error)
{
    if (trajd_pool_create(resample_service->options.thread_count, "trajd-for-cli",
                          &resample_service->pool, error))
        LOG(resample_service->options.log, WARNING, "RESAMPLE has one thread: %s", error->message);
    return trajd_runner_create(NULL, resample_service->pool, &resample_service->on_cpu, error);
}

static enum trajd_status run_on_cpu(struct trajd_resample_service *resample_service, int fd,
                                    uint64_t size_bytes, struct trajd_error *error)
{
    enum trajd_status status =
        resample_service->on_cpu ? TRAJD_OK : make_cpu(resample_service, error);

    return status ? status : run_by(resample_service->on_cpu, fd, size_bytes, error);
}

/* *device is NULL where the CPU has done it. */
static enum trajd_status run_somewhere(struct trajd_resample_service *resample_service, int fd,
                                       uint64_t size_bytes, struct trajd_device **device,
                                       struct trajd_error *error)
{
    struct trajd_runner *gpu = find_gpu(resample_service);
    enum trajd_status status;

    *device = gpu ? resample_service->device : NULL;
    if (gpu) {
        status = run_by(gpu, fd, size_bytes, error);
        if (status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_DEVICE)
            return status;
        leave_gpu(resample_service, error);
        if (status == TRAJD_ERR_DEVICE)
            resample_service->options.device_lost(resample_service->options.context);
    }
    *device = NULL;
    return run_on_cpu(resample_service, fd, size_bytes, error);
}

/* A segment is bounded, but not the time that a driver takes, or who is nice beside threads that
 * are not: that is no mistake of ours. */
static enum trajd_status run_block(struct trajd_resample_service *resample_service, int fd,
                                   uint64_t size_bytes, struct trajd_device **device,
                                   struct trajd_error *error)
{
    int64_t blocks = 0;
    enum trajd_status status = check_file(fd, size_bytes, &blocks, error);

    if (status)
        return status;
    trajd_heartbeat_wait();
    status = run_somewhere(resample_service, fd, size_bytes, device, error);
    trajd_heartbeat_resume();
    return status ? status : check_pages(fd, size_bytes, blocks, error);
}

/* ---- messages ---- */

/* False: the peer does not read. */
static bool answer(int connection, const struct trajd_wire_message *message)
{
    uint8_t frame[FRAME_ROOM];
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
                            const struct trajd_wire_resample *asked, int fd)
{
    struct trajd_device *device = NULL;
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED,
                                         .resampled = {.request = asked->request}};
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;

    if (!asked->size_bytes)
        device = gpu_now(resample_service);
    else if (fd < 0)
        status = trajd_error_set(&error, TRAJD_ERR_ARGUMENT, 0,
                                 "RESAMPLE: no descriptor came along, or more than one");
    else
        status = run_block(resample_service, fd, asked->size_bytes, &device, &error);
    if (status)
        return refuse(resample_service, connection, asked->request, &error);
    count(&resample_service->stats.segments, asked->size_bytes != 0);
    count(&resample_service->stats.bytes, asked->size_bytes);
    if (device)
        message.resampled.device = trajd_wire_text(trajd_device_info(device)->name);
    return answer(connection, &message);
}

/* False: no peer of ours. */
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
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s takes RESAMPLE alone",
                    (int)message.op, TRAJD_RESAMPLE_SERVICE_SOCKET);
    return refuse(resample_service, connection, 0, &error);
}

/* Whatever it is of: a socket whose peer does not read would keep its last owner for as long as its
 * maker says. */
static void drop_descriptor(int fd)
{
    const struct linger none = {0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* refused by all else */
    /* a filesystem that is a program */
    trajd_heartbeat_wait();
    close(fd);
    trajd_heartbeat_resume();
}

/* The one descriptor that came along; -1: none, or several, which are closed. */
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

/* One message of a connection. False: it is over. */
static bool receive(struct trajd_resample_service *resample_service, int connection)
{
    uint8_t frame[FRAME_ROOM];
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
    fd = take_descriptor(&message); /* one may come with a message of no bytes, too */
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

static bool heartbeat(struct trajd_resample_service *resample_service, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    return !epoll_ctl(resample_service->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Without descriptors the pending connection would make the listener readable for ever. */
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
        !heartbeat(resample_service, connection, index)) {
        close(connection);
        return;
    }
    resample_service->connections[index] = connection;
    __atomic_add_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED); /* a counter */
}

static void drop_cpu(struct trajd_resample_service *resample_service)
{
    trajd_runner_destroy(&resample_service->on_cpu);
    trajd_pool_destroy(&resample_service->pool);
}

/* With the last client go the memory of its blocks and the threads. */
static void close_connection(struct trajd_resample_service *resample_service, uint32_t index)
{
    close(resample_service->connections[index]);
    resample_service->connections[index] = -1;
    if (__atomic_sub_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED)) /* a counter */
        return;
    drop_cpu(resample_service);
    trajd_heartbeat_wait(); /* a driver */
    trajd_runner_destroy(&resample_service->on_gpu);
    trajd_heartbeat_resume();
}

/* A message of each connection that has one, so that who asks much does not keep others waiting for
 * more than a segment each. False: to end. */
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
    /* of this thread, on Linux; where it is refused, all are alike */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (turn(resample_service))
        ;
    return NULL;
}

/* ---- life ---- */

static enum trajd_status listen_at(struct trajd_resample_service *resample_service,
                                   struct trajd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(resample_service->path) >= sizeof address.sun_path)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
            "%s: a socket's path has at most %zu bytes: choose a shorter runtime directory",
            resample_service->path, sizeof address.sun_path - 1);
    strcpy(address.sun_path, resample_service->path);
    resample_service->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (resample_service->listener < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socket: %s", strerror(errno));
    unlink(resample_service->path);
    /* nobody can connect before listen; a umask would be that of all threads, which make files by
     * now */
    if (bind(resample_service->listener, (struct sockaddr *)&address, sizeof address) ||
        chmod(resample_service->path, resample_service->options.group_access ? 0770 : 0700) ||
        listen(resample_service->listener, TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", resample_service->path,
                               strerror(errno));
    return TRAJD_OK;
}

static enum trajd_status start(struct trajd_resample_service *resample_service,
                               struct trajd_error *error)
{
    const int failed = trajd_thread_start(&resample_service->thread, "trajd-for-cli",
                                          run_resample_service, resample_service);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resampler thread: %s",
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
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resampler");
    *resample_service = (struct trajd_resample_service){.options = *options, .listener = -1};
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        resample_service->connections[i] = -1;
    snprintf(resample_service->path, sizeof resample_service->path, "%s/%s", options->directory,
             TRAJD_RESAMPLE_SERVICE_SOCKET);
    resample_service->epoll = epoll_create1(EPOLL_CLOEXEC);
    resample_service->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resample_service->reserve = open_reserve();
    status =
        resample_service->epoll < 0 || resample_service->stop < 0 || resample_service->reserve < 0
            ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "resampler: %s", strerror(errno))
            : listen_at(resample_service, error);
    if (!status && (!heartbeat(resample_service, resample_service->listener, LISTENER) ||
                    !heartbeat(resample_service, resample_service->stop, STOP)))
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
    drop_cpu(resample_service);
    trajd_runner_destroy(&resample_service->on_gpu);
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
