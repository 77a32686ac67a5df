/* Accepts connections and divides their places among users; receives, handles and answers the
 * messages of each connection on a thread of its own.
 *
 * Only the thread of a connection closes what the program has sent: close(2) waits as long as it
 * likes for a filesystem in user space that does not answer, or for a socket that lingers. A program
 * that sends such a descriptor thus delays nobody but itself. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/control/resample/resample_block.h"
#include "proto/wire.h"

enum {
    CLIENTS_MAX = TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS,
    THREADS_MAX = 2 * CLIENTS_MAX, /* with those that close a connection without a place */
    FRAME_BYTES = 2048,
    /* one more than a message may have. The system closes the others on the thread that reads it: a
     * close that hangs thus keeps no other descriptor of its message open */
    MESSAGE_DESCRIPTORS = 2,
    NICENESS = 10,
    PAUSE_MS = 1000,
    SILENCE_MS = 5000,
};

struct trajd_resample_service {
    struct trajd_resample_service_options options;
    char path[PATH_MAX];
    int listener;
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;      /* of the thread */
    struct trajd_resample_backend backend; /* of the connection whose turn it is */
    /* atomic and relaxed: counters that order nothing */
    struct trajd_resample_service_stats stats;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool stop;
    struct trajd_unix_place places[CLIENTS_MAX];
    uint64_t turn,
        next_turn;         /* the one that is running; the one of the connection that asks next */
    uint32_t thread_count; /* of connections, which keep the service in memory */
};

struct connection {
    struct trajd_resample_service *service;
    int fd;
    uid_t uid;
    uint32_t index; /* of its place, which it loses to another connection; UINT32_MAX: none */
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* ---- turns: one connection at a time, in the order in which they ask ---- */

static void begin_turn(struct trajd_resample_service *service)
{
    uint64_t mine;

    pthread_mutex_lock(&service->mutex);
    mine = service->next_turn++;
    while (service->turn != mine)
        pthread_cond_wait(&service->changed, &service->mutex);
    pthread_mutex_unlock(&service->mutex);
}

static void end_turn(struct trajd_resample_service *service)
{
    pthread_mutex_lock(&service->mutex);
    service->turn++;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->mutex);
}

/* ---- places: the caller holds the mutex ---- */

static bool has_place(const struct connection *connection)
{
    return connection->index != UINT32_MAX &&
           connection->service->places[connection->index].fd == connection->fd;
}

/* Ends a connection. Its thread finds that it has lost its place, and closes it. */
static void drop(struct trajd_resample_service *service, uint32_t index)
{
    shutdown(service->places[index].fd, SHUT_RDWR);
    service->places[index].fd = -1;
    __atomic_sub_fetch(&service->stats.clients, 1, __ATOMIC_RELAXED);
}

/* Gives the connection a place, for which another one may be dropped. Returns whether there is one. */
static bool take_place(struct connection *connection)
{
    struct trajd_resample_service *service = connection->service;
    struct trajd_unix_place *places = service->places;
    const uint32_t index = trajd_unix_choose_place(places, CLIENTS_MAX, connection->uid);
    const int64_t now_ns = trajd_now_ns();

    if (index == UINT32_MAX || (places[index].fd >= 0 && places[index].uid == connection->uid &&
                                now_ns - places[index].used_ns < SILENCE_MS * INT64_C(1000000)))
        return false;
    if (places[index].fd >= 0)
        drop(service, index);
    places[index] = (struct trajd_unix_place){connection->fd, connection->uid, now_ns};
    connection->index = index;
    __atomic_add_fetch(&service->stats.clients, 1, __ATOMIC_RELAXED);
    return true;
}

/* Returns whether the connection goes on. Called without the mutex. */
static bool use_place(const struct connection *connection)
{
    struct trajd_resample_service *service = connection->service;
    bool goes_on;

    pthread_mutex_lock(&service->mutex);
    goes_on = has_place(connection);
    if (goes_on)
        service->places[connection->index].used_ns = trajd_now_ns();
    pthread_mutex_unlock(&service->mutex);
    return goes_on;
}

/* ---- messages ---- */

/* Sends a message. Returns false where the client does not read its answers. */
static bool answer(int fd, const struct trajd_wire_message *message)
{
    uint8_t frame[FRAME_BYTES];
    size_t size;

    return !trajd_wire_encode(message, frame, sizeof frame, &size, NULL) &&
           send(fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

static bool refuse(const struct connection *connection, uint64_t request,
                   const struct trajd_error *error)
{
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR, .error = {request, error->status, trajd_wire_text(error->message)}};

    count(&connection->service->stats.refused, 1);
    return answer(connection->fd, &message);
}

static bool resample(const struct connection *connection, const struct trajd_wire_resample *request,
                     int fd)
{
    struct trajd_resample_service *service = connection->service;
    struct trajd_device *device = NULL;
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED,
                                         .resampled = {.request = request->request}};
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;

    if (!request->size_bytes)
        device = trajd_resample_backend_device(&service->backend);
    else if (fd < 0)
        status = trajd_error_set(&error, TRAJD_ERR_ARGUMENT, 0,
                                 "RESAMPLE: the message must carry exactly one descriptor");
    else
        status =
            trajd_resample_backend_run(&service->backend, fd, request->size_bytes, &device, &error);
    if (status)
        return refuse(connection, request->request, &error);
    count(&service->stats.segments, request->size_bytes != 0);
    count(&service->stats.bytes, request->size_bytes);
    if (device)
        message.resampled.device = trajd_wire_text(trajd_device_info(device)->name);
    return answer(connection->fd, &message);
}

/* Handles one message. Returns false where it is not a message of the protocol. */
static bool handle(const struct connection *connection, const uint8_t *frame, size_t size, int fd)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    const enum trajd_status status =
        trajd_wire_decode(frame, size, NULL, &message, &request, &error);

    if (status == TRAJD_ERR_DATA)
        return false;
    if (!status && message.op == TRAJD_WIRE_RESAMPLE)
        return resample(connection, &message.resample, fd);
    if (!status)
        trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s accepts only RESAMPLE",
                        (int)message.op, TRAJD_RESAMPLE_SERVICE_SOCKET);
    return refuse(connection, status ? request : 0, &error);
}

/* Copies the descriptors of a message to `fds`, and returns their number. */
static size_t take_descriptors(struct msghdr *message, int fds[MESSAGE_DESCRIPTORS])
{
    size_t taken = 0;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(fds, CMSG_DATA(part), part->cmsg_len - CMSG_LEN(0));
        taken = (part->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    }
    return taken;
}

/* Receives a message, and handles it when it is the connection's turn. Returns false where the
 * connection has ended. */
static bool serve_one(const struct connection *connection)
{
    uint8_t frame[FRAME_BYTES];
    int fds[MESSAGE_DESCRIPTORS];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec part = {frame, sizeof frame};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t size = recvmsg(connection->fd, &message, MSG_CMSG_CLOEXEC);
    const size_t taken = size < 0 ? 0 : take_descriptors(&message, fds);
    bool is_good = size > 0 && !(message.msg_flags & MSG_TRUNC);

    begin_turn(connection->service);
    is_good = is_good && use_place(connection) &&
              handle(connection, frame, (size_t)size, taken == 1 ? fds[0] : -1) &&
              use_place(connection); /* it is idle from now on */
    end_turn(connection->service);
    for (size_t i = 0; i < taken; i++) { /* an empty message may carry some, too */
        /* a socket whose peer does not read would wait for its linger time; fails for other files */
        setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &(struct linger){0}, sizeof(struct linger));
        close(fds[i]);
    }
    return is_good;
}

/* ---- threads ---- */

/* One user of the service less: the last one frees it. */
static void let_go(struct trajd_resample_service *service)
{
    bool is_last;

    pthread_mutex_lock(&service->mutex);
    is_last = service->thread_count-- == 0;
    pthread_mutex_unlock(&service->mutex);
    if (!is_last)
        return;
    pthread_cond_destroy(&service->changed);
    pthread_mutex_destroy(&service->mutex);
    free(service);
}

/* Ends a connection. After the last one, frees buffers, GPU memory and the pool's threads. */
static void end_connection(struct connection *connection)
{
    struct trajd_resample_service *service = connection->service;
    bool is_last;

    begin_turn(service);
    pthread_mutex_lock(&service->mutex);
    if (has_place(connection))
        drop(service, connection->index);
    is_last = !service->stats.clients;
    pthread_mutex_unlock(&service->mutex);
    if (is_last)
        trajd_resample_backend_release(&service->backend);
    end_turn(service);
    close(connection->fd);
    free(connection);
    let_go(service);
}

/* The thread of a connection. */
static void *serve(void *context)
{
    struct connection *connection = context;
    struct pollfd first = {.fd = connection->fd, .events = POLLIN};

    if (use_place(connection) && poll(&first, 1, SILENCE_MS) == 1)
        while (serve_one(connection))
            ;
    end_connection(connection);
    return NULL;
}

static bool may_enter(const struct trajd_resample_service *service, uid_t uid)
{
    return uid != (uid_t)-1 && (service->options.group_access || uid == 0 || uid == geteuid());
}

/* Gives the connection a place, or ends it: then its thread only closes it. */
static void admit(struct connection *connection)
{
    struct trajd_resample_service *service = connection->service;
    const bool is_known = may_enter(service, connection->uid);
    bool is_in;
    struct trajd_error error;

    pthread_mutex_lock(&service->mutex);
    service->thread_count++;
    is_in = is_known && take_place(connection);
    pthread_mutex_unlock(&service->mutex);
    if (is_in)
        return;
    trajd_error_set(&error, TRAJD_ERR_BUSY, 0,
                    "%s has %d clients, and user %u its share of them: end some, or use "
                    "--backend cpu",
                    TRAJD_RESAMPLE_SERVICE_SOCKET, CLIENTS_MAX, (unsigned)connection->uid);
    if (is_known)
        refuse(connection, 0, &error);
    shutdown(connection->fd, SHUT_RDWR);
}

static void accept_connection(struct trajd_resample_service *service)
{
    const int fd = accept4(service->listener, NULL, NULL, SOCK_CLOEXEC);
    struct connection *connection;
    pthread_t thread;

    if (fd < 0 && trajd_unix_lacks_descriptors(errno))
        poll(NULL, 0, PAUSE_MS); /* it waits, and keeps the listener readable */
    if (fd < 0)
        return;
    connection = calloc(1, sizeof *connection);
    if (!connection) {
        close(fd);
        return;
    }
    *connection = (struct connection){service, fd, trajd_unix_peer_uid(fd), UINT32_MAX};
    admit(connection);
    if (trajd_thread_start(&thread, "trajd-program", serve, connection))
        end_connection(connection);
    else
        pthread_detach(thread);
}

/* Returns whether the service goes on. *has_room: there may be one more connection. */
static bool goes_on(struct trajd_resample_service *service, bool *has_room)
{
    bool is_stopped;

    pthread_mutex_lock(&service->mutex);
    is_stopped = service->stop;
    *has_room = service->thread_count < THREADS_MAX;
    pthread_mutex_unlock(&service->mutex);
    return !is_stopped;
}

static void *accept_connections(void *context)
{
    struct trajd_resample_service *service = context;
    struct pollfd listener = {.fd = service->listener, .events = POLLIN};
    bool has_room;

    trajd_heartbeat_begin(&service->heartbeat);
    /* On Linux this applies to the calling thread, and to those that it starts. Without permission
     * all threads stay alike. */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (goes_on(service, &has_room)) {
        trajd_heartbeat_turn();
        if (poll(&listener, has_room, PAUSE_MS) == 1)
            accept_connection(service);
    }
    return NULL;
}

/* ---- start and stop ---- */

enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **out, struct trajd_error *error)
{
    struct trajd_resample_service *service = *out = calloc(1, sizeof *service);
    enum trajd_status status;
    int failed;

    if (!service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resample service");
    service->options = *options;
    service->backend.options = &service->options;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        service->places[i].fd = -1;
    pthread_mutex_init(&service->mutex, NULL);
    pthread_cond_init(&service->changed, NULL);
    snprintf(service->path, sizeof service->path, "%s/%s", options->directory,
             TRAJD_RESAMPLE_SERVICE_SOCKET);
    status = trajd_unix_listen(service->path, SOCK_SEQPACKET, options->group_access, CLIENTS_MAX,
                               &service->listener, error);
    if (!status) {
        failed = trajd_thread_start(&service->thread, "trajd-for-cli", accept_connections, service);
        service->is_running = !failed;
        if (failed)
            status = trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resample service thread: %s",
                                     strerror(failed));
    }
    if (status)
        trajd_resample_service_destroy(out);
    return status;
}

void trajd_resample_service_destroy(struct trajd_resample_service **out)
{
    struct trajd_resample_service *service = *out;

    *out = NULL;
    if (!service)
        return;
    if (service->is_running) {
        pthread_mutex_lock(&service->mutex);
        service->stop = true;
        pthread_mutex_unlock(&service->mutex);
        shutdown(service->listener, SHUT_RDWR); /* wakes the thread */
        pthread_join(service->thread, NULL);
    }
    pthread_mutex_lock(&service->mutex);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        if (service->places[i].fd >= 0)
            drop(service, i);
    pthread_mutex_unlock(&service->mutex);
    begin_turn(service); /* nobody without a place uses the backend from here on */
    trajd_resample_backend_release(&service->backend);
    end_turn(service);
    if (service->listener >= 0) {
        close(service->listener);
        unlink(service->path);
    }
    let_go(service);
}

void trajd_resample_service_get_stats(const struct trajd_resample_service *service,
                                      struct trajd_resample_service_stats *stats)
{
    stats->clients = __atomic_load_n(&service->stats.clients, __ATOMIC_RELAXED);
    stats->segments = __atomic_load_n(&service->stats.segments, __ATOMIC_RELAXED);
    stats->bytes = __atomic_load_n(&service->stats.bytes, __ATOMIC_RELAXED);
    stats->refused = __atomic_load_n(&service->stats.refused, __ATOMIC_RELAXED);
}

const struct trajd_heartbeat *
trajd_resample_service_heartbeat(const struct trajd_resample_service *service)
{
    return &service->heartbeat;
}
