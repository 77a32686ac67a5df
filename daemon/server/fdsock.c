/* Accepts connections on fd.sock, and sends the descriptors of rings. */
#include "daemon/server/fdsock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"

#define LISTENER UINT32_MAX          /* in epoll's data; a connection has its index there */
#define PAUSE_NS UINT64_C(100000000) /* when no descriptor is free */

struct connection {
    int fd; /* -1: free */
    uid_t uid;
    uint64_t session; /* 0: has sent no token yet */
    uint64_t since_ns;
};

struct trajd_fdsock {
    struct trajd_fdsock_options options;
    char *path;
    int listener, epoll;
    /* connections wait until then, because no descriptor was free; 0: they are accepted */
    uint64_t accepts_again_ns;
    struct connection *connections;
    uint32_t silent_count;
    struct trajd_unix_place *places; /* used to choose among silent connections */
};

static enum trajd_status add_to_epoll(struct trajd_fdsock *fdsock, int fd, uint32_t index,
                                      struct trajd_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (epoll_ctl(fdsock->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "epoll_ctl: %s", strerror(errno));
    return TRAJD_OK;
}

enum trajd_status trajd_fdsock_create(const struct trajd_fdsock_options *options,
                                      struct trajd_fdsock **out, struct trajd_error *error)
{
    struct trajd_fdsock *fdsock = calloc(1, sizeof *fdsock);
    if (!fdsock)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "fd socket: out of memory");
    *fdsock = (struct trajd_fdsock){.options = *options, .listener = -1, .epoll = -1};
    enum trajd_status status = TRAJD_ERR_MEMORY;
    fdsock->path = strdup(options->path);
    fdsock->connections = calloc(options->max_connections, sizeof *fdsock->connections);
    fdsock->places = calloc(options->max_connections, sizeof *fdsock->places);
    if (!fdsock->path || !fdsock->connections || !fdsock->places) {
        trajd_error_set(error, status, 0, "fd socket: out of memory");
        goto fail;
    }
    for (uint32_t i = 0; i < options->max_connections; i++)
        fdsock->connections[i].fd = -1;
    fdsock->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (fdsock->epoll < 0) {
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "fd socket: %s", strerror(errno));
        goto fail;
    }
    status = trajd_unix_listen(fdsock->path, SOCK_SEQPACKET, fdsock->options.group_access, 512,
                               &fdsock->listener, error);
    if (!status)
        trajd_unix_refuse_descriptors(fdsock->listener);
    if (!status)
        status = add_to_epoll(fdsock, fdsock->listener, LISTENER, error);
    if (status)
        goto fail;
    *out = fdsock;
    return TRAJD_OK;
fail:
    trajd_fdsock_destroy(&fdsock);
    return status;
}

static void close_connection(struct trajd_fdsock *fdsock, struct connection *connection)
{
    if (connection->fd < 0)
        return;
    if (connection->session == 0)
        fdsock->silent_count--;
    close(connection->fd);
    *connection = (struct connection){.fd = -1};
}

void trajd_fdsock_destroy(struct trajd_fdsock **pointer)
{
    struct trajd_fdsock *fdsock = *pointer;
    if (!fdsock)
        return;
    for (uint32_t i = 0; fdsock->connections && i < fdsock->options.max_connections; i++)
        close_connection(fdsock, &fdsock->connections[i]);
    if (fdsock->listener >= 0) {
        close(fdsock->listener);
        unlink(fdsock->path);
    }
    if (fdsock->epoll >= 0)
        close(fdsock->epoll);
    free(fdsock->places);
    free(fdsock->connections);
    free(fdsock->path);
    free(fdsock);
    *pointer = NULL;
}

int trajd_fdsock_poll_fd(const struct trajd_fdsock *fdsock)
{
    return fdsock->epoll;
}

static struct connection *find_session(struct trajd_fdsock *fdsock, uint64_t session)
{
    for (uint32_t i = 0; i < fdsock->options.max_connections; i++)
        if (fdsock->connections[i].fd >= 0 && fdsock->connections[i].session == session)
            return &fdsock->connections[i];
    return NULL;
}

/* Returns a free entry. Where there is none, closes a connection that has sent no token, of the
 * user who has the most of them (see trajd_unix_choose_place). */
static struct connection *make_free(struct trajd_fdsock *fdsock, uid_t uid)
{
    uint32_t silent = 0, chosen;

    for (uint32_t i = 0; i < fdsock->options.max_connections; i++) {
        const struct connection *connection = &fdsock->connections[i];
        if (connection->fd < 0)
            return &fdsock->connections[i];
        if (connection->session == 0)
            fdsock->places[silent++] =
                (struct trajd_unix_place){(int)i, connection->uid, (int64_t)connection->since_ns};
    }
    chosen = trajd_unix_choose_place(fdsock->places, silent, uid);
    if (chosen == UINT32_MAX)
        return NULL;
    struct connection *connection = &fdsock->connections[fdsock->places[chosen].fd];
    close_connection(fdsock, connection);
    return connection;
}

static void set_accepting(struct trajd_fdsock *fdsock, bool accepts)
{
    struct epoll_event event = {.events = accepts ? EPOLLIN : 0, .data.u32 = LISTENER};
    epoll_ctl(fdsock->epoll, EPOLL_CTL_MOD, fdsock->listener, &event);
}

static void accept_one(struct trajd_fdsock *fdsock, uint64_t now_ns)
{
    int fd = accept4(fdsock->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (trajd_unix_lacks_descriptors(errno)) {
            fdsock->accepts_again_ns = now_ns + PAUSE_NS;
            set_accepting(fdsock, false);
        }
        return;
    }
    const uid_t uid = trajd_unix_peer_uid(fd);
    struct connection *connection = make_free(fdsock, uid);
    if (!connection ||
        add_to_epoll(fdsock, fd, (uint32_t)(connection - fdsock->connections), NULL)) {
        close(fd);
        return;
    }
    *connection = (struct connection){.fd = fd, .uid = uid, .since_ns = now_ns};
    fdsock->silent_count++;
}

static uint64_t token_session(struct trajd_fdsock *fdsock, uid_t uid, const uint8_t *token)
{
    uint64_t session = fdsock->options.identify(fdsock->options.context, token, uid);
    return session != 0 && !find_session(fdsock, session) ? session : 0;
}

static void receive_token(struct trajd_fdsock *fdsock, struct connection *connection)
{
    const uint8_t welcome = 0;
    uint8_t token[TRAJD_TOKEN_SIZE + 1]; /* one more byte, to detect a longer message */
    ssize_t length = recv(connection->fd, token, sizeof token, MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN) /* the event was for an earlier connection at this index */
        return;
    uint64_t session =
        length == TRAJD_TOKEN_SIZE ? token_session(fdsock, connection->uid, token) : 0;
    if (session == 0) {
        close_connection(fdsock, connection);
        return;
    }
    connection->session = session;
    fdsock->silent_count--;
    if (send(connection->fd, &welcome, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        close_connection(fdsock, connection);
        fdsock->options.session_lost(fdsock->options.context, session);
    }
}

/* Ends the session of a connection that has become readable. A worker sends nothing after its
 * token, so either the connection has ended, or the peer breaks the protocol. */
static void end_session(struct trajd_fdsock *fdsock, struct connection *connection)
{
    uint64_t session = connection->session;
    close_connection(fdsock, connection);
    fdsock->options.session_lost(fdsock->options.context, session);
}

static void close_silent(struct trajd_fdsock *fdsock, uint64_t now_ns)
{
    const uint64_t silence_ns = fdsock->options.silence_ms * UINT64_C(1000000);
    for (uint32_t i = 0; fdsock->silent_count > 0 && i < fdsock->options.max_connections; i++) {
        struct connection *connection = &fdsock->connections[i];
        if (connection->fd >= 0 && connection->session == 0 &&
            now_ns >= connection->since_ns + silence_ns)
            close_connection(fdsock, connection);
    }
}

void trajd_fdsock_turn(struct trajd_fdsock *fdsock, uint64_t now_ns)
{
    struct epoll_event events[32];
    int count = epoll_wait(fdsock->epoll, events, 32, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == LISTENER) {
            accept_one(fdsock, now_ns);
            continue;
        }
        struct connection *connection = &fdsock->connections[events[i].data.u32];
        if (connection->fd < 0) /* closed by a callback of this turn */
            continue;
        if (connection->session == 0)
            receive_token(fdsock, connection);
        else
            end_session(fdsock, connection);
    }
    close_silent(fdsock, now_ns);
    if (fdsock->accepts_again_ns && now_ns >= fdsock->accepts_again_ns) {
        fdsock->accepts_again_ns = 0;
        set_accepting(fdsock, true);
    }
}

enum trajd_status trajd_fdsock_send_ring(struct trajd_fdsock *fdsock, uint64_t session,
                                         const struct trajd_server_ring *ring,
                                         struct trajd_error *error)
{
    struct connection *connection = session != 0 ? find_session(fdsock, session) : NULL;
    if (!connection)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0,
                               "the session has no connection on fd.sock");
    uint64_t words[2] = {ring->ring_id, ring->size_bytes};
    if (trajd_send_fd(connection->fd, words, sizeof words, ring->share_fd, MSG_DONTWAIT) !=
        (ssize_t)sizeof words)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, errno, "sending a ring's descriptor: %s",
                               strerror(errno));
    return TRAJD_OK;
}

void trajd_fdsock_drop(struct trajd_fdsock *fdsock, uint64_t session)
{
    struct connection *connection = session != 0 ? find_session(fdsock, session) : NULL;
    if (connection)
        close_connection(fdsock, connection);
}
