/* The thread of the service: accepts and closes connections, and divides them among users. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/control/resample/resample_internal.h"

/* in epoll's data, instead of a connection's index */
#define LISTENER UINT32_MAX
#define STOP (UINT32_MAX - 1)

enum { NICENESS = 10, EVENTS = 16, TURN_MS = 1000 };

/* A connection without a message for this time is closed if it has not sent any, and may be closed
 * for another one of its user if it has. */
static const int64_t silence_ns = INT64_C(5000000000);

static bool watch(struct trajd_resample_service *service, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    return !epoll_ctl(service->epoll, EPOLL_CTL_ADD, fd, &event);
}

static bool may_enter(const struct trajd_resample_service *service, uid_t uid)
{
    return uid != (uid_t)-1 && (service->options.group_access || uid == 0 || uid == geteuid());
}

/* Returns true if a message waits on the connection. SO_PASSCRED makes each message carry
 * something, which a look without room for it reports: an empty message is thus not taken for the
 * end of the connection. */
static bool has_message(int connection)
{
    struct msghdr message = {0};
    ssize_t size = -1;

    setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
    /* the first call may return an error of the past */
    for (int i = 0; size < 0 && i < 2; i++)
        size = recvmsg(connection, &message, MSG_PEEK | MSG_DONTWAIT);
    return message.msg_flags & MSG_CTRUNC || (size < 0 && errno != EAGAIN);
}

static void drop(struct trajd_resample_service *service, int connection, uid_t uid)
{
    shutdown(connection, SHUT_RDWR); /* the peer notices, and no message comes any more */
    if (has_message(connection))
        trajd_closer_close(service->closer, connection, uid);
    else
        close(connection);
}

/* Closes a connection. After the last one, frees buffers, GPU memory and the pool's threads. */
static void close_place(struct trajd_resample_service *service, uint32_t index)
{
    struct trajd_unix_place *place = &service->places[index];

    drop(service, place->fd, place->uid);
    place->fd = -1;
    if (__atomic_sub_fetch(&service->stats.clients, 1, __ATOMIC_RELAXED))
        return;
    trajd_heartbeat_wait(); /* for the driver */
    trajd_resample_backend_release(&service->backend);
    trajd_heartbeat_resume();
}

/* Returns a free place, for which another connection may be closed. */
static bool make_place(struct trajd_resample_service *service, uid_t uid, uint32_t *index,
                       struct trajd_error *error)
{
    const struct trajd_unix_place *places = service->places;

    *index = trajd_unix_choose_place(places, TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS, uid);
    if (*index == UINT32_MAX || (places[*index].fd >= 0 && places[*index].uid == uid &&
                                 trajd_now_ns() - places[*index].used_ns < silence_ns)) {
        trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                        "%s has %d clients, and user %u its share of them: end some, or use "
                        "--backend cpu",
                        TRAJD_RESAMPLE_SERVICE_SOCKET, TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS,
                        (unsigned)uid);
        return false;
    }
    if (places[*index].fd >= 0)
        close_place(service, *index);
    return true;
}

static void accept_connection(struct trajd_resample_service *service)
{
    const int connection = accept4(service->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const uid_t uid = connection >= 0 ? trajd_unix_peer_uid(connection) : (uid_t)-1;
    struct trajd_error error;
    uint32_t index;

    if (connection < 0 && trajd_unix_lacks_descriptors(errno))
        service->accepts_again_ns = trajd_now_ns() + TURN_MS * INT64_C(1000000);
    if (connection < 0)
        return;
    if (!may_enter(service, uid)) {
        drop(service, connection, uid);
        return;
    }
    if (!make_place(service, uid, &index, &error)) {
        trajd_resample_refuse(service, connection, 0, &error);
        drop(service, connection, uid);
        return;
    }
    if (!watch(service, connection, index)) {
        drop(service, connection, uid);
        return;
    }
    service->places[index] = (struct trajd_unix_place){connection, uid, trajd_now_ns()};
    service->has_asked[index] = false;
    __atomic_add_fetch(&service->stats.clients, 1, __ATOMIC_RELAXED);
}

static void serve(struct trajd_resample_service *service, uint32_t index)
{
    if (service->places[index].fd >= 0 && !trajd_resample_receive(service, index))
        close_place(service, index);
}

static void close_silent(struct trajd_resample_service *service)
{
    const int64_t now_ns = trajd_now_ns();

    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        if (service->places[i].fd >= 0 && !service->has_asked[i] &&
            now_ns - service->places[i].used_ns >= silence_ns &&
            !has_message(service->places[i].fd))
            close_place(service, i);
}

static void set_accepting(struct trajd_resample_service *service)
{
    const bool is_accepting =
        trajd_closer_has_room(service->closer, service->stats.clients + 1) &&
        (!service->accepts_again_ns || trajd_now_ns() >= service->accepts_again_ns);
    struct epoll_event event = {.events = is_accepting ? EPOLLIN : 0, .data.u32 = LISTENER};

    if (is_accepting != service->is_accepting)
        epoll_ctl(service->epoll, EPOLL_CTL_MOD, service->listener, &event);
    service->is_accepting = is_accepting;
}

/* ---- the thread ---- */

/* Handles one message of each ready connection, so that a busy client delays the others by one
 * segment at most. Returns false where the service stops. */
static bool turn(struct trajd_resample_service *service)
{
    struct epoll_event events[EVENTS];
    const int ready = epoll_wait(service->epoll, events, EVENTS, TURN_MS);

    trajd_heartbeat_turn();
    for (int i = 0; i < ready; i++) {
        const uint32_t index = events[i].data.u32;
        trajd_heartbeat_turn();
        if (index == STOP || eventfd_read(service->stop, &(eventfd_t){0}) == 0)
            return false;
        if (index == LISTENER && service->is_accepting)
            accept_connection(service);
        else if (index != LISTENER)
            serve(service, index);
        set_accepting(service);
    }
    close_silent(service);
    set_accepting(service);
    return true;
}

static void *run_resample_service(void *context)
{
    struct trajd_resample_service *service = context;

    trajd_heartbeat_begin(&service->heartbeat);
    /* on Linux this applies to the calling thread only; without permission all threads stay alike
     * */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (turn(service))
        ;
    return NULL;
}

/* ---- start and stop ---- */

static enum trajd_status start(struct trajd_resample_service *service, struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&service->thread, "trajd-for-cli", run_resample_service, service);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resample service thread: %s",
                               strerror(failed));
    service->is_running = true;
    return TRAJD_OK;
}

enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **out, struct trajd_error *error)
{
    struct trajd_resample_service *service = calloc(1, sizeof *service);
    enum trajd_status status;

    *out = NULL;
    if (!service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resample service");
    *service = (struct trajd_resample_service){.options = *options,
                                               .listener = -1,
                                               .is_accepting = true,
                                               .backend = {.options = *options}};
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        service->places[i].fd = -1;
    snprintf(service->path, sizeof service->path, "%s/%s", options->directory,
             TRAJD_RESAMPLE_SERVICE_SOCKET);
    service->epoll = epoll_create1(EPOLL_CLOEXEC);
    service->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = service->epoll < 0 || service->stop < 0
                 ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "resample service: %s",
                                   strerror(errno))
                 : trajd_unix_listen(service->path, SOCK_SEQPACKET, service->options.group_access,
                                     TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS, &service->listener, error);
    if (!status &&
        (!watch(service, service->listener, LISTENER) || !watch(service, service->stop, STOP)))
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "epoll_ctl: %s", strerror(errno));
    if (!status)
        status = trajd_closer_create(&service->closer, error);
    if (!status)
        status = start(service, error);
    if (status)
        trajd_resample_service_destroy(&service);
    *out = service;
    return status;
}

void trajd_resample_service_destroy(struct trajd_resample_service **out)
{
    struct trajd_resample_service *service = *out;

    *out = NULL;
    if (!service)
        return;
    if (service->is_running) {
        eventfd_write(service->stop, 1);
        pthread_join(service->thread, NULL);
    }
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        if (service->places[i].fd >= 0)
            drop(service, service->places[i].fd, service->places[i].uid);
    trajd_closer_destroy(&service->closer);
    if (service->listener >= 0) {
        close(service->listener);
        unlink(service->path);
    }
    if (service->epoll >= 0)
        close(service->epoll);
    if (service->stop >= 0)
        close(service->stop);
    trajd_resample_backend_release(&service->backend);
    free(service);
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
