#include "clients/c/link/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <zmq.h>

#include "proto/array_len.h"
#include "proto/wire.h"

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
