/* The connection of a worker to its daemon: sockets, frames and descriptors. */
#include "clients/c/link/link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <zmq.h>

#include "proto/array_len.h"
#include "proto/wire.h"

/* ---- fork ---- */

/* Closes the connections to fd.sock in children made by fork. The end of a connection tells the
 * daemon that the worker has died, and it comes only when the last process with the descriptor has
 * closed it. exec closes them (SOCK_CLOEXEC), but the processes of multiprocessing and of
 * DataLoaders do not exec, and may outlive their parent. */

/* protects the list, and the opening and closing of its descriptors; fork waits for it */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct trajd_link *open_links;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

/* Runs in the child, which has only the thread that called fork. */
static void in_child(void)
{
    for (struct trajd_link *link = open_links; link; link = link->next_open) {
        close(link->fd);
        link->fd = -1;
    }
    open_links = NULL;
    pthread_mutex_unlock(&mutex);
}

static void register_handlers(void)
{
    /* Fails only without memory. A child then keeps the descriptors. */
    pthread_atfork(before_fork, in_parent, in_child);
}

void trajd_link_open_socket(struct trajd_link *link)
{
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&mutex);
    link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd >= 0) {
        link->next_open = open_links;
        open_links = link;
    }
    pthread_mutex_unlock(&mutex);
}

void trajd_link_close_socket(struct trajd_link *link)
{
    struct trajd_link **place = &open_links;
    pthread_mutex_lock(&mutex);
    while (*place && *place != link)
        place = &(*place)->next_open;
    if (*place) {
        *place = link->next_open;
        close(link->fd);
    }
    link->fd = -1;
    pthread_mutex_unlock(&mutex);
}

/* ---- making and ending it ---- */

static enum trajd_status prepare_local(struct trajd_link *link, const char *directory,
                                       struct trajd_error *error)
{
    const size_t limit = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    if (strlen(directory) + strlen("/feed.sock") > limit)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
            "endpoint %s: the path is too long: a socket's path has at most %zu bytes", directory,
            limit);
    if (asprintf(&link->feed_endpoint, "ipc://%s/feed.sock", directory) < 0)
        link->feed_endpoint = NULL;
    if (asprintf(&link->fd_path, "%s/fd.sock", directory) < 0)
        link->fd_path = NULL;
    if (!link->feed_endpoint || !link->fd_path)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "endpoint %s: out of memory", directory);
    return TRAJD_OK;
}

enum trajd_status trajd_link_create(struct trajd_link *link,
                                    const struct trajd_link_options *options,
                                    struct trajd_error *error)
{
    *link =
        (struct trajd_link){.fd = -1, .remote = trajd_link_is_remote_endpoint(options->endpoint)};
    enum trajd_status status = link->remote ? trajd_link_remote_prepare(link, options, error)
                                            : prepare_local(link, options->endpoint, error);
    if (!status && !(link->context = zmq_ctx_new()))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "endpoint %s: out of memory",
                                 options->endpoint);
    if (status)
        trajd_link_destroy(link);
    return status;
}

static void close_dealer(struct trajd_link *link)
{
    trajd_link_remote_close(link);
    if (link->dealer)
        zmq_close(link->dealer);
    link->dealer = NULL;
    link->dealer_fd = -1;
    link->received_count = 0;
    link->is_flooded = false;
}

void trajd_link_hang_up(struct trajd_link *link)
{
    trajd_link_detach(link);
    close_dealer(link);
}

void trajd_link_destroy(struct trajd_link *link)
{
    trajd_link_hang_up(link);
    if (link->context)
        zmq_ctx_term(link->context);
    free(link->feed_endpoint);
    free(link->fd_path);
    explicit_bzero(&link->keys, sizeof link->keys);
    *link = (struct trajd_link){.fd = -1};
}

static int set_options(void *dealer)
{
    const int options[][2] = {
        {ZMQ_IMMEDIATE, 1}, /* no message is queued for a daemon that is not connected */
        {ZMQ_RECONNECT_IVL, 20},
        {ZMQ_RECONNECT_IVL_MAX, 500},
        {ZMQ_LINGER, 0},
        /* trajd_link_receive notices floods. At a limit of its own libzmq would stop reading, and a
         * heartbeat after the daemon's end would end this process by an assertion */
        {ZMQ_RCVHWM, 0},
    };
    const int64_t max_frame_bytes = TRAJD_WIRE_MAX_FRAME;
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (zmq_setsockopt(dealer, options[i][0], &options[i][1], sizeof(int)) != 0)
            return -1;
    return zmq_setsockopt(dealer, ZMQ_MAXMSGSIZE, &max_frame_bytes, sizeof max_frame_bytes);
}

enum trajd_status trajd_link_dial(struct trajd_link *link, struct trajd_error *error)
{
    close_dealer(link);
    link->dealer = zmq_socket(link->context, ZMQ_DEALER);
    if (!link->dealer || set_options(link->dealer) != 0 ||
        (link->remote && trajd_link_remote_set(link) != 0) ||
        zmq_connect(link->dealer, link->feed_endpoint) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, zmq_errno(), "%s: %s", link->feed_endpoint,
                               zmq_strerror(zmq_errno()));
    link->dealer_fd = trajd_link_poll_fd(link);
    return TRAJD_OK;
}

/* ---- frames: one a message, and after a remote daemon's BATCH those of a payload ---- */

enum trajd_status trajd_link_send(struct trajd_link *link, const void *frame, size_t size_bytes)
{
    return zmq_send(link->dealer, frame, size_bytes, ZMQ_DONTWAIT) >= 0 ? TRAJD_OK
                                                                        : TRAJD_ERR_TIMEOUT;
}

static bool has_more(const struct trajd_link *link)
{
    int more = 0;
    size_t more_size = sizeof more;
    return zmq_getsockopt(link->dealer, ZMQ_RCVMORE, &more, &more_size) == 0 && more != 0;
}

static void skip_frames(struct trajd_link *link)
{
    char byte;
    while (has_more(link))
        if (zmq_recv(link->dealer, &byte, 1, 0) < 0)
            return;
}

/* Receives the first frame of a message. Returns -1 if there is none, or the daemon floods. */
static int receive_first(struct trajd_link *link, void *frame, size_t room)
{
    const int size = zmq_recv(link->dealer, frame, room, ZMQ_DONTWAIT);
    link->received_count = size < 0 ? 0 : link->received_count + 1;
    link->is_flooded = link->is_flooded || link->received_count > TRAJD_LINK_MAX_WAITING;
    return link->is_flooded ? -1 : size;
}

size_t trajd_link_receive(struct trajd_link *link, void *frame, size_t room)
{
    if (link->has_payload) /* a payload that was not received */
        skip_frames(link);
    link->has_payload = false;
    for (;;) {
        const int size = receive_first(link, frame, room);
        if (size < 0)
            return 0;
        const bool whole = size > 0 && (size_t)size <= room;
        link->has_payload = link->remote && whole && has_more(link);
        if (whole && (link->has_payload || !has_more(link)))
            return (size_t)size;
        skip_frames(link);
    }
}

bool trajd_link_receive_payload(struct trajd_link *link, void *payload, size_t size_bytes)
{
    size_t at = 0;
    bool good = true;
    while (good && link->has_payload) { /* a message arrives with all its frames */
        int size = zmq_recv(link->dealer, (char *)payload + at, size_bytes - at, 0);
        good = size > 0 && (size_t)size <= size_bytes - at;
        at += good ? (size_t)size : 0;
        link->has_payload = size >= 0 && has_more(link);
    }
    if (link->has_payload)
        skip_frames(link);
    link->has_payload = false;
    return good && at == size_bytes;
}

int trajd_link_poll_fd(const struct trajd_link *link)
{
    int fd = -1;
    size_t size = sizeof fd;
    if (!link->dealer || zmq_getsockopt(link->dealer, ZMQ_FD, &fd, &size) != 0)
        return -1;
    return fd;
}

/* ---- fd.sock ---- */

bool trajd_link_is_attached(const struct trajd_link *link)
{
    return link->remote ? link->attached : link->fd >= 0;
}

enum trajd_status trajd_link_attach(struct trajd_link *link, const void *token, size_t token_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    trajd_link_detach(link);
    link->attached = link->remote;
    if (link->remote)
        return TRAJD_OK;
    memcpy(address.sun_path, link->fd_path, strlen(link->fd_path) + 1);
    trajd_link_open_socket(link);
    if (link->fd >= 0 && connect(link->fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(link->fd, token, token_size, MSG_NOSIGNAL) == (ssize_t)token_size)
        return TRAJD_OK;
    trajd_link_detach(link);
    return TRAJD_ERR_TIMEOUT;
}

void trajd_link_detach(struct trajd_link *link)
{
    if (link->fd >= 0)
        trajd_link_close_socket(link);
    link->attached = link->greeted = false;
}

/* Returns the first descriptor of a message, or -1. Closes all others. */
static int take_descriptor(struct msghdr *message)
{
    int kept = -1;
    for (struct cmsghdr *payload = CMSG_FIRSTHDR(message); payload;
         payload = CMSG_NXTHDR(message, payload)) {
        if (payload->cmsg_level != SOL_SOCKET || payload->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (payload->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(payload) + i * sizeof(int), sizeof fd);
            if (kept < 0)
                kept = fd;
            else
                close(fd);
        }
    }
    return kept;
}

enum trajd_link_event trajd_link_read(struct trajd_link *link, struct trajd_link_ring *ring)
{
    uint64_t words[2] = {0};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec payload = {.iov_base = words, .iov_len = sizeof words};
    struct msghdr message = {.msg_iov = &payload,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (link->remote)
        return trajd_link_remote_read(link);
    if (link->fd < 0)
        return TRAJD_LINK_NOTHING;
    ssize_t size = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? TRAJD_LINK_NOTHING : TRAJD_LINK_END;
    int fd = take_descriptor(&message);
    if (size == sizeof words && fd >= 0) {
        *ring = (struct trajd_link_ring){.ring_id = words[0], .size_bytes = words[1], .fd = fd};
        return TRAJD_LINK_RING;
    }
    if (fd >= 0)
        close(fd);
    if (size == 1 && words[0] == 0)
        return TRAJD_LINK_GREETED;
    return TRAJD_LINK_END; /* the daemon closed the connection, or breaks the protocol */
}

/* Uses poll and not zmq_poll, which reads the socket's events twice: the descriptor is
 * edge-triggered, so each look could consume the edge. */
struct trajd_link_readable trajd_link_wait(struct trajd_link *link, int wake_fd, int timeout_ms)
{
    struct pollfd items[] = {{.fd = link->dealer_fd, .events = POLLIN},
                             {.fd = wake_fd, .events = POLLIN},
                             {.fd = link->fd, .events = POLLIN}};
    /* the GREETED of a remote link is ready at once */
    const bool greeting = link->attached && !link->greeted;
    const int count = poll(items, 3, greeting ? 0 : timeout_ms);
    if (count <= 0)
        return (struct trajd_link_readable){.connection = link->remote,
                                            .signalled = count < 0 && errno == EINTR};
    return (struct trajd_link_readable){.wake = items[1].revents != 0,
                                        .connection = link->remote || items[2].revents != 0};
}

const char *trajd_link_handshake_error(const struct trajd_link *link)
{
    return link->handshake_error ? link->handshake_error : "";
}
