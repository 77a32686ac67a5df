/* Connections of programs that have rows resampled. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/control/resample/resample_internal.h"

/* A connection without a message for this time is closed if it has not sent any, and may be closed
 * for another one of its user if it has. */
static const int64_t silence_ns = INT64_C(5000000000);

int trajd_resample_open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool trajd_resample_watch(struct trajd_resample_service *resample_service, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    return !epoll_ctl(resample_service->epoll, EPOLL_CTL_ADD, fd, &event);
}

static bool may_enter(const struct trajd_resample_service *resample_service, uid_t uid)
{
    return uid != (uid_t)-1 &&
           (resample_service->options.group_access || uid == 0 || uid == geteuid());
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

void trajd_resample_drop(struct trajd_resample_service *resample_service, int connection, uid_t uid)
{
    shutdown(connection, SHUT_RDWR); /* the peer notices, and no message comes any more */
    if (has_message(connection))
        trajd_closer_close(resample_service->closer, connection, uid);
    else
        close(connection);
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
        trajd_resample_drop(resample_service, connection, trajd_unix_peer_uid(connection));
    resample_service->reserve = trajd_resample_open_reserve();
}

/* Closes a connection. After the last one, frees buffers, GPU memory and the pool's threads. */
static void close_place(struct trajd_resample_service *resample_service, uint32_t index)
{
    struct trajd_unix_place *place = &resample_service->places[index];

    trajd_resample_drop(resample_service, place->fd, place->uid);
    place->fd = -1;
    if (__atomic_sub_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED))
        return;
    trajd_heartbeat_wait(); /* for the driver */
    trajd_resample_backend_release(&resample_service->backend);
    trajd_heartbeat_resume();
}

/* Returns a free place, for which another connection may be closed. */
static bool make_place(struct trajd_resample_service *resample_service, uid_t uid, uint32_t *index,
                       struct trajd_error *error)
{
    const struct trajd_unix_place *places = resample_service->places;

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
        close_place(resample_service, *index);
    return true;
}

void trajd_resample_accept(struct trajd_resample_service *resample_service)
{
    const int connection =
        accept4(resample_service->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const uid_t uid = connection >= 0 ? trajd_unix_peer_uid(connection) : (uid_t)-1;
    struct trajd_error error;
    uint32_t index;

    if (connection < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_without_descriptors(resample_service);
    if (connection < 0)
        return;
    if (!may_enter(resample_service, uid)) {
        trajd_resample_drop(resample_service, connection, uid);
        return;
    }
    if (!make_place(resample_service, uid, &index, &error)) {
        trajd_resample_refuse(resample_service, connection, 0, &error);
        trajd_resample_drop(resample_service, connection, uid);
        return;
    }
    if (!trajd_resample_watch(resample_service, connection, index)) {
        trajd_resample_drop(resample_service, connection, uid);
        return;
    }
    resample_service->places[index] = (struct trajd_unix_place){connection, uid, trajd_now_ns()};
    resample_service->has_asked[index] = false;
    __atomic_add_fetch(&resample_service->stats.clients, 1, __ATOMIC_RELAXED);
}

void trajd_resample_serve(struct trajd_resample_service *resample_service, uint32_t index)
{
    if (resample_service->places[index].fd >= 0 && !trajd_resample_receive(resample_service, index))
        close_place(resample_service, index);
}

void trajd_resample_close_silent(struct trajd_resample_service *resample_service)
{
    const int64_t now_ns = trajd_now_ns();

    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        if (resample_service->places[i].fd >= 0 && !resample_service->has_asked[i] &&
            now_ns - resample_service->places[i].used_ns >= silence_ns &&
            !has_message(resample_service->places[i].fd))
            close_place(resample_service, i);
}

void trajd_resample_set_accepting(struct trajd_resample_service *resample_service)
{
    const bool is_accepting =
        trajd_closer_has_room(resample_service->closer, resample_service->stats.clients + 1);
    struct epoll_event event = {.events = is_accepting ? EPOLLIN : 0,
                                .data.u32 = TRAJD_RESAMPLE_LISTENER};

    if (is_accepting != resample_service->is_accepting)
        epoll_ctl(resample_service->epoll, EPOLL_CTL_MOD, resample_service->listener, &event);
    resample_service->is_accepting = is_accepting;
}
