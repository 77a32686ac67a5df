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

struct trajd_resampler {
    struct trajd_resampler_options options;
    char path[PATH_MAX];
    int listener, epoll, stop;
    /* given up for a moment to accept and close a connection when descriptors have run out */
    int reserve;
    int connections[TRAJD_RESAMPLER_MAX_CLIENTS]; /* -1: free */
    pthread_t thread;
    bool is_running;
    struct trajd_watch watch;             /* of the thread */
    struct trajd_runner *on_cpu, *on_gpu; /* made when they are needed, gone with the last client */
    struct trajd_pool *pool;              /* of on_cpu */
    struct trajd_device *device;          /* of on_gpu */
    int64_t gpu_again_ns;                 /* before that it is not asked for room again */
    /* its members atomic: counters, nothing is ordered by them */
    struct trajd_resampler_stats stats;
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* ---- a piece ---- */

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

/* The GPU that pieces go to now, or NULL. */
static struct trajd_device *gpu_now(const struct trajd_resampler *resampler)
{
    return trajd_now_ns() < resampler->gpu_again_ns
               ? NULL
               : resampler->options.device(resampler->options.context);
}

static void leave_gpu(struct trajd_resampler *resampler, const struct trajd_error *why)
{
    LOG(resampler->options.log, WARNING, "RESAMPLE goes to the CPU: %s", why->message);
    trajd_runner_destroy(&resampler->on_gpu); /* and with it what it has of the GPU's memory */
    resampler->gpu_again_ns = trajd_now_ns() + gpu_pause_ns;
}

/* The GPU's runner; NULL: there is none now, or no room on it. */
static struct trajd_runner *find_gpu(struct trajd_resampler *resampler)
{
    struct trajd_device *device = gpu_now(resampler);
    struct trajd_error error;

    if (resampler->on_gpu && device != resampler->device)
        trajd_runner_destroy(&resampler->on_gpu);
    resampler->device = device;
    if (device && !resampler->on_gpu &&
        trajd_runner_create(device, NULL, &resampler->on_gpu, &error))
        leave_gpu(resampler, &error);
    return resampler->on_gpu;
}

/* Threads that are as nice as the one that makes them. Without them it is slower, no more. */
static enum trajd_status make_cpu(struct trajd_resampler *resampler, struct trajd_error *error)
{
    if (trajd_pool_create(resampler->options.thread_count, "trajd-for-cli", &resampler->pool,
                          error))
        LOG(resampler->options.log, WARNING, "RESAMPLE has one thread: %s", error->message);
    return trajd_runner_create(NULL, resampler->pool, &resampler->on_cpu, error);
}

static enum trajd_status run_on_cpu(struct trajd_resampler *resampler, int fd, uint64_t size_bytes,
                                    struct trajd_error *error)
{
    enum trajd_status status = resampler->on_cpu ? TRAJD_OK : make_cpu(resampler, error);

    return status ? status : run_by(resampler->on_cpu, fd, size_bytes, error);
}

/* *device is NULL where the CPU has done it. */
static enum trajd_status run_somewhere(struct trajd_resampler *resampler, int fd,
                                       uint64_t size_bytes, struct trajd_device **device,
                                       struct trajd_error *error)
{
    struct trajd_runner *gpu = find_gpu(resampler);
    enum trajd_status status;

    *device = gpu ? resampler->device : NULL;
    if (gpu) {
        status = run_by(gpu, fd, size_bytes, error);
        if (status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_DEVICE)
            return status;
        leave_gpu(resampler, error);
        if (status == TRAJD_ERR_DEVICE)
            resampler->options.device_lost(resampler->options.context);
    }
    *device = NULL;
    return run_on_cpu(resampler, fd, size_bytes, error);
}

/* A piece is bounded, but not the time that a driver takes, or who is nice beside threads that are
 * not: that is no mistake of ours. */
static enum trajd_status run_block(struct trajd_resampler *resampler, int fd, uint64_t size_bytes,
                                   struct trajd_device **device, struct trajd_error *error)
{
    int64_t blocks = 0;
    enum trajd_status status = check_file(fd, size_bytes, &blocks, error);

    if (status)
        return status;
    trajd_watch_wait();
    status = run_somewhere(resampler, fd, size_bytes, device, error);
    trajd_watch_resume();
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

static bool refuse(struct trajd_resampler *resampler, int connection, uint64_t request,
                   const struct trajd_error *error)
{
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR, .error = {request, error->status, trajd_wire_text(error->message)}};

    count(&resampler->stats.refused, 1);
    return answer(connection, &message);
}

static bool handle_resample(struct trajd_resampler *resampler, int connection,
                            const struct trajd_wire_resample *asked, int fd)
{
    struct trajd_device *device = NULL;
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED,
                                         .resampled = {.request = asked->request}};
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;

    if (!asked->size_bytes)
        device = gpu_now(resampler);
    else if (fd < 0)
        status = trajd_error_set(&error, TRAJD_ERR_ARGUMENT, 0,
                                 "RESAMPLE: no descriptor came along, or more than one");
    else
        status = run_block(resampler, fd, asked->size_bytes, &device, &error);
    if (status)
        return refuse(resampler, connection, asked->request, &error);
    count(&resampler->stats.pieces, asked->size_bytes != 0);
    count(&resampler->stats.bytes, asked->size_bytes);
    if (device)
        message.resampled.device = trajd_wire_text(trajd_device_info(device)->name);
    return answer(connection, &message);
}

/* False: no peer of ours. */
static bool handle(struct trajd_resampler *resampler, int connection, const uint8_t *frame,
                   size_t size, int fd)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    const enum trajd_status status =
        trajd_wire_decode(frame, size, NULL, &message, &request, &error);

    if (status == TRAJD_ERR_DATA)
        return false;
    if (status)
        return refuse(resampler, connection, request, &error);
    if (message.op == TRAJD_WIRE_RESAMPLE)
        return handle_resample(resampler, connection, &message.resample, fd);
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s takes RESAMPLE alone",
                    (int)message.op, TRAJD_RESAMPLER_SOCKET);
    return refuse(resampler, connection, 0, &error);
}

/* Whatever it is of: a socket whose peer does not read would keep its last owner for as long as its
 * maker says. */
static void drop_descriptor(int fd)
{
    const struct linger none = {0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* refused by all else */
    trajd_watch_wait();                                        /* a filesystem that is a program */
    close(fd);
    trajd_watch_resume();
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
static bool receive(struct trajd_resampler *resampler, int connection)
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
              handle(resampler, connection, frame, (size_t)size, fd);
    if (fd >= 0)
        drop_descriptor(fd);
    return is_good;
}

/* ---- connections ---- */

static bool may_enter(const struct trajd_resampler *resampler, int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (resampler->options.group_access || peer.uid == 0 || peer.uid == geteuid());
}

static bool watch(struct trajd_resampler *resampler, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    return !epoll_ctl(resampler->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Without descriptors the pending connection would make the listener readable for ever. */
static void refuse_without_descriptors(struct trajd_resampler *resampler)
{
    int connection;

    if (resampler->reserve >= 0)
        close(resampler->reserve);
    connection = accept4(resampler->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0)
        close(connection);
    resampler->reserve = open_reserve();
}

static void accept_one(struct trajd_resampler *resampler)
{
    const int connection = accept4(resampler->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t index = 0;

    if (connection < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_without_descriptors(resampler);
    if (connection < 0)
        return;
    while (index < TRAJD_RESAMPLER_MAX_CLIENTS && resampler->connections[index] >= 0)
        index++;
    if (index == TRAJD_RESAMPLER_MAX_CLIENTS || !may_enter(resampler, connection) ||
        !watch(resampler, connection, index)) {
        close(connection);
        return;
    }
    resampler->connections[index] = connection;
    __atomic_add_fetch(&resampler->stats.clients, 1, __ATOMIC_RELAXED); /* a counter */
}

static void drop_cpu(struct trajd_resampler *resampler)
{
    trajd_runner_destroy(&resampler->on_cpu);
    trajd_pool_destroy(&resampler->pool);
}

/* With the last client go the memory of its blocks and the threads. */
static void close_connection(struct trajd_resampler *resampler, uint32_t index)
{
    close(resampler->connections[index]);
    resampler->connections[index] = -1;
    if (__atomic_sub_fetch(&resampler->stats.clients, 1, __ATOMIC_RELAXED)) /* a counter */
        return;
    drop_cpu(resampler);
    trajd_watch_wait(); /* a driver */
    trajd_runner_destroy(&resampler->on_gpu);
    trajd_watch_resume();
}

/* A message of each connection that has one, so that who asks much does not keep others waiting for
 * more than a piece each. False: to end. */
static bool turn(struct trajd_resampler *resampler)
{
    struct epoll_event events[EVENTS];
    const int ready = epoll_wait(resampler->epoll, events, EVENTS, TURN_MS);

    trajd_watch_turn();
    for (int i = 0; i < ready; i++) {
        const uint32_t index = events[i].data.u32;
        trajd_watch_turn();
        if (index == STOP || eventfd_read(resampler->stop, &(eventfd_t){0}) == 0)
            return false;
        if (index == LISTENER)
            accept_one(resampler);
        else if (resampler->connections[index] >= 0 &&
                 !receive(resampler, resampler->connections[index]))
            close_connection(resampler, index);
    }
    return true;
}

static void *run_resampler(void *context)
{
    struct trajd_resampler *resampler = context;

    trajd_watch_begin(&resampler->watch);
    /* of this thread, on Linux; where it is refused, all are alike */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (turn(resampler))
        ;
    return NULL;
}

/* ---- life ---- */

static enum trajd_status listen_at(struct trajd_resampler *resampler, struct trajd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(resampler->path) >= sizeof address.sun_path)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
            "%s: a socket's path has at most %zu bytes: choose a shorter runtime directory",
            resampler->path, sizeof address.sun_path - 1);
    strcpy(address.sun_path, resampler->path);
    resampler->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (resampler->listener < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "socket: %s", strerror(errno));
    unlink(resampler->path);
    /* nobody can connect before listen; a umask would be that of all threads, which make files by
     * now */
    if (bind(resampler->listener, (struct sockaddr *)&address, sizeof address) ||
        chmod(resampler->path, resampler->options.group_access ? 0770 : 0700) ||
        listen(resampler->listener, TRAJD_RESAMPLER_MAX_CLIENTS))
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", resampler->path,
                               strerror(errno));
    return TRAJD_OK;
}

static enum trajd_status start(struct trajd_resampler *resampler, struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&resampler->thread, "trajd-for-cli", run_resampler, resampler);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resampler thread: %s",
                               strerror(failed));
    resampler->is_running = true;
    return TRAJD_OK;
}

enum trajd_status trajd_resampler_create(const struct trajd_resampler_options *options,
                                         struct trajd_resampler **out, struct trajd_error *error)
{
    struct trajd_resampler *resampler = calloc(1, sizeof *resampler);
    enum trajd_status status;

    *out = NULL;
    if (!resampler)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resampler");
    *resampler = (struct trajd_resampler){.options = *options, .listener = -1};
    for (uint32_t i = 0; i < TRAJD_RESAMPLER_MAX_CLIENTS; i++)
        resampler->connections[i] = -1;
    snprintf(resampler->path, sizeof resampler->path, "%s/%s", options->directory,
             TRAJD_RESAMPLER_SOCKET);
    resampler->epoll = epoll_create1(EPOLL_CLOEXEC);
    resampler->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resampler->reserve = open_reserve();
    status = resampler->epoll < 0 || resampler->stop < 0 || resampler->reserve < 0
                 ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "resampler: %s", strerror(errno))
                 : listen_at(resampler, error);
    if (!status && (!watch(resampler, resampler->listener, LISTENER) ||
                    !watch(resampler, resampler->stop, STOP)))
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "epoll_ctl: %s", strerror(errno));
    if (!status)
        status = start(resampler, error);
    if (status)
        trajd_resampler_destroy(&resampler);
    *out = resampler;
    return status;
}

void trajd_resampler_destroy(struct trajd_resampler **out)
{
    struct trajd_resampler *resampler = *out;

    *out = NULL;
    if (!resampler)
        return;
    if (resampler->is_running) {
        eventfd_write(resampler->stop, 1);
        pthread_join(resampler->thread, NULL);
    }
    for (uint32_t i = 0; i < TRAJD_RESAMPLER_MAX_CLIENTS; i++)
        if (resampler->connections[i] >= 0)
            close(resampler->connections[i]);
    if (resampler->listener >= 0) {
        close(resampler->listener);
        unlink(resampler->path);
    }
    if (resampler->epoll >= 0)
        close(resampler->epoll);
    if (resampler->stop >= 0)
        close(resampler->stop);
    if (resampler->reserve >= 0)
        close(resampler->reserve);
    drop_cpu(resampler);
    trajd_runner_destroy(&resampler->on_gpu);
    free(resampler);
}

void trajd_resampler_get_stats(const struct trajd_resampler *resampler,
                               struct trajd_resampler_stats *stats)
{
    stats->clients = __atomic_load_n(&resampler->stats.clients, __ATOMIC_RELAXED);
    stats->pieces = __atomic_load_n(&resampler->stats.pieces, __ATOMIC_RELAXED);
    stats->bytes = __atomic_load_n(&resampler->stats.bytes, __ATOMIC_RELAXED);
    stats->refused = __atomic_load_n(&resampler->stats.refused, __ATOMIC_RELAXED);
}

const struct trajd_watch *trajd_resampler_watch(const struct trajd_resampler *resampler)
{
    return &resampler->watch;
}
