/* Frames over the DEALER socket: one frame a message, and after a remote daemon's BATCH the frames
 * of a payload. */
#include <zmq.h>

#include "clients/c/link/link.h"

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

bool trajd_link_can_send(const struct trajd_link *link)
{
    int events = 0;
    size_t size = sizeof events;
    return zmq_getsockopt(link->dealer, ZMQ_EVENTS, &events, &size) == 0 &&
           (events & ZMQ_POLLOUT) != 0;
}

int trajd_link_poll_fd(const struct trajd_link *link)
{
    int fd = -1;
    size_t size = sizeof fd;
    if (!link->dealer || zmq_getsockopt(link->dealer, ZMQ_FD, &fd, &size) != 0)
        return -1;
    return fd;
}
