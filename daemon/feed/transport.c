#include "daemon/feed/transport.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <zmq.h>

/* Against a flood of connections, twice:
 * Descriptors are counted while there are many left, each time that a quarter of the free ones may have gone,
 * and the listener is closed for a while when few are. That keeps descriptors for the rest of the daemon, but
 * it is a race against the I/O thread. libzmq's ipc listener aborts the process when accept fails with
 * EMFILE, ENOBUFS or ENOMEM, though not with ENFILE. So accept4 here stands before libc's (the linker lets an
 * executable's definition win) and says ENFILE for all of them. */
#define LISTENER_REST_NS (300 * UINT64_C(1000000))

__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address, socklen_t *size,
                                                   int flags)
{
    int fd = (int)syscall(SYS_accept4, listener, address, size, flags);
    if (fd < 0 && (errno == EMFILE || errno == ENOBUFS || errno == ENOMEM))
        errno = ENFILE;
    return fd;
}

struct trajd_transport {
    void *context, *router, *zap, *monitor;
    int descriptors[3]; /* of the three */
    bool aside;         /* zap or monitor may have something */
    char *endpoint;
    const char *path; /* within endpoint */
    bool group_access;
    bool bound;      /* at least once: the file is ours */
    zmq_msg_t frame; /* of the last receive */
    uint64_t descriptor_limit;
    uint64_t accepted;       /* since descriptors were counted */
    uint64_t count_again_at; /* this many accepted */
    uint64_t bind_at_ns;     /* not 0: the listener rests until then */
    struct trajd_transport_counters counters;
};

/* ---- making ---- */

static enum trajd_status zmq_error(struct trajd_error *error, const char *what)
{
    int code = zmq_errno();
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "%s: %s", what, zmq_strerror(code));
}

static enum trajd_status set_options(void *socket, const int (*options)[2], size_t count,
                                     struct trajd_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (zmq_setsockopt(socket, options[i][0], &options[i][1], sizeof(int)) != 0)
            return zmq_error(error, "zmq_setsockopt");
    return TRAJD_OK;
}

static enum trajd_status open_router(struct trajd_transport *transport,
                                     const struct trajd_transport_options *options, struct trajd_error *error)
{
    const int router_options[][2] = {
        {ZMQ_ROUTER_MANDATORY, 1}, /* an unreachable peer is an error, not silence */
        {ZMQ_ROUTER_HANDOVER, 0},  /* nobody takes over another's identity */
        {ZMQ_SNDHWM, (int)options->send_limit},
        {ZMQ_RCVHWM, 256},
        {ZMQ_HANDSHAKE_IVL, 2000},
        {ZMQ_LINGER, 0},
        {ZMQ_BACKLOG, 512},
    };
    const int64_t max_frame_bytes = (int64_t)options->max_frame_bytes;
    transport->router = zmq_socket(transport->context, ZMQ_ROUTER);
    if (transport->router == NULL)
        return zmq_error(error, "zmq_socket");
    enum trajd_status status = set_options(transport->router, router_options,
                                           sizeof(router_options) / sizeof(*router_options), error);
    if (status != TRAJD_OK)
        return status;
    /* without a domain libzmq does not ask who may connect */
    if (zmq_setsockopt(transport->router, ZMQ_MAXMSGSIZE, &max_frame_bytes, sizeof(max_frame_bytes)) != 0 ||
        zmq_setsockopt(transport->router, ZMQ_ZAP_DOMAIN, "trajd", 5) != 0)
        return zmq_error(error, "zmq_setsockopt");
    return TRAJD_OK;
}

static enum trajd_status open_zap(struct trajd_transport *transport, struct trajd_error *error)
{
    const int options[][2] = {{ZMQ_LINGER, 0}};
    transport->zap = zmq_socket(transport->context, ZMQ_REP);
    if (transport->zap == NULL)
        return zmq_error(error, "zmq_socket");
    if (zmq_bind(transport->zap, "inproc://zeromq.zap.01") != 0)
        return zmq_error(error, "inproc://zeromq.zap.01");
    return set_options(transport->zap, options, 1, error);
}

static enum trajd_status open_monitor(struct trajd_transport *transport, struct trajd_error *error)
{
    /* events are sent by a blocking call on the I/O thread: a limit here would stop all connections */
    const int options[][2] = {{ZMQ_LINGER, 0}, {ZMQ_RCVHWM, 0}};
    if (zmq_socket_monitor(transport->router, "inproc://trajd.monitor", ZMQ_EVENT_ACCEPTED) != 0)
        return zmq_error(error, "zmq_socket_monitor");
    transport->monitor = zmq_socket(transport->context, ZMQ_PAIR);
    if (transport->monitor == NULL)
        return zmq_error(error, "zmq_socket");
    enum trajd_status status = set_options(transport->monitor, options, 2, error);
    if (status == TRAJD_OK && zmq_connect(transport->monitor, "inproc://trajd.monitor") != 0)
        status = zmq_error(error, "inproc://trajd.monitor");
    return status;
}

static int bind_router(struct trajd_transport *transport)
{
    mode_t before = umask(transport->group_access ? 0007 : 0077);
    int result = zmq_bind(transport->router, transport->endpoint);
    umask(before);
    transport->bound = transport->bound || result == 0;
    return result;
}

static enum trajd_status set_endpoint(struct trajd_transport *transport, const char *path,
                                      struct trajd_error *error)
{
    const size_t limit = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    if (strlen(path) > limit)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
            "%s: a socket's path has at most %zu bytes: choose a shorter runtime directory", path, limit);
    if (asprintf(&transport->endpoint, "ipc://%s", path) < 0) {
        transport->endpoint = NULL;
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    }
    transport->path = transport->endpoint + strlen("ipc://");
    return TRAJD_OK;
}

static enum trajd_status raise_descriptor_limit(struct trajd_transport *transport, uint32_t max_sessions,
                                                struct trajd_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "RLIMIT_NOFILE: %s", strerror(errno));
    if (limit.rlim_cur < limit.rlim_max) {
        const rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = soft;
    }
    transport->descriptor_limit = limit.rlim_cur;
    const uint64_t wanted = 4 * (uint64_t)max_sessions + 128;
    if (limit.rlim_cur < wanted)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "RLIMIT_NOFILE is %llu: %u sessions need %llu (raise it, or allow fewer sessions)",
            (unsigned long long)limit.rlim_cur, max_sessions, (unsigned long long)wanted);
    return TRAJD_OK;
}

/* ---- descriptors ---- */

static uint64_t count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    if (directory ==
        NULL) /* no descriptor left for it, or no /proc: then nothing is known and nothing is watched */
        return errno == EMFILE || errno == ENFILE ? UINT64_MAX : 0;
    uint64_t count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* True if so few are left that the listener must rest. */
static bool descriptors_short(struct trajd_transport *transport)
{
    uint64_t used = count_descriptors();
    uint64_t left = used < transport->descriptor_limit ? transport->descriptor_limit - used : 0;
    transport->accepted = 0;
    transport->count_again_at = left / 4;
    return left < transport->descriptor_limit / 4;
}

static void drain_monitor(struct trajd_transport *transport)
{
    uint8_t event[6], address[256];
    while (zmq_recv(transport->monitor, event, sizeof(event), ZMQ_DONTWAIT) >= 0) {
        zmq_recv(transport->monitor, address, sizeof(address), ZMQ_DONTWAIT);
        transport->accepted++;
    }
}

static void watch_descriptors(struct trajd_transport *transport, uint64_t now_ns)
{
    drain_monitor(transport);
    if (transport->bind_at_ns != 0) {
        if (now_ns < transport->bind_at_ns)
            return;
        transport->bind_at_ns = 0;
        if (descriptors_short(transport) || bind_router(transport) != 0)
            transport->bind_at_ns = now_ns + LISTENER_REST_NS;
        return;
    }
    if (transport->accepted < transport->count_again_at || !descriptors_short(transport))
        return;
    /* cuts off every connection; sessions live on by fd.sock, and workers come back with their tokens */
    zmq_unbind(transport->router, transport->endpoint);
    transport->bind_at_ns = now_ns + LISTENER_REST_NS;
    transport->counters.floods++;
}

/* ---- who may connect ---- */

/* "localhost:UID:GID:PID", what libzmq makes of an ipc peer's credentials. */
static bool parse_uid(const char *address, uid_t *uid)
{
    const char *colon = strchr(address, ':');
    char *end;
    if (colon == NULL || colon[1] < '0' || colon[1] > '9')
        return false;
    unsigned long value = strtoul(colon + 1, &end, 10);
    if (*end != ':' || value > UINT32_MAX)
        return false;
    *uid = (uid_t)value;
    return true;
}

static bool may_connect(const struct trajd_transport *transport, const char *address)
{
    uid_t uid;
    if (!parse_uid(address, &uid))
        return false;
    return transport->group_access || uid == 0 || uid == geteuid();
}

/* A request's frames: version, request id, domain, address, routing id, mechanism. False: no request waits.
 */
static bool receive_zap(struct trajd_transport *transport, char *request_id, size_t *request_id_size,
                        char *address, size_t room)
{
    char other[256];
    int more = 1;
    size_t more_size = sizeof(more);
    for (int frame = 0; more; frame++) {
        char *buffer = frame == 1 ? request_id : frame == 3 ? address : other;
        int size = zmq_recv(transport->zap, buffer, room - 1, frame == 0 ? ZMQ_DONTWAIT : 0);
        if (size < 0)
            return false;
        size_t kept = (size_t)size < room - 1 ? (size_t)size : room - 1;
        buffer[kept] = '\0';
        if (frame == 1)
            *request_id_size = kept;
        zmq_getsockopt(transport->zap, ZMQ_RCVMORE, &more, &more_size);
    }
    return true;
}

static void answer_zap(struct trajd_transport *transport)
{
    char request_id[256], address[256] = "";
    size_t request_id_size = 0;
    while (receive_zap(transport, request_id, &request_id_size, address, sizeof(address))) {
        bool allowed = may_connect(transport, address);
        if (!allowed)
            transport->counters.refused++;
        zmq_send(transport->zap, "1.0", 3, ZMQ_SNDMORE);
        zmq_send(transport->zap, request_id, request_id_size, ZMQ_SNDMORE);
        zmq_send(transport->zap, allowed ? "200" : "400", 3, ZMQ_SNDMORE);
        zmq_send(transport->zap, "", 0, ZMQ_SNDMORE);
        zmq_send(transport->zap, "", 0, ZMQ_SNDMORE);
        zmq_send(transport->zap, "", 0, 0);
    }
}

/* ---- the rest ---- */

static int descriptor_of(void *socket)
{
    int fd = -1;
    size_t size = sizeof(fd);
    return zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

enum trajd_status trajd_transport_create(const struct trajd_transport_options *options,
                                         struct trajd_transport **out, struct trajd_error *error)
{
    struct trajd_transport *transport = calloc(1, sizeof(*transport));
    if (transport == NULL)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    transport->group_access = options->group_access;
    zmq_msg_init(&transport->frame);
    enum trajd_status status = set_endpoint(transport, options->path, error);
    if (status == TRAJD_OK)
        status = raise_descriptor_limit(transport, options->max_sessions, error);
    if (status != TRAJD_OK)
        goto fail;
    transport->context = zmq_ctx_new();
    if (transport->context == NULL) {
        status = zmq_error(error, "zmq_ctx_new");
        goto fail;
    }
    status = open_zap(transport, error); /* before the first connection asks */
    if (status == TRAJD_OK)
        status = open_router(transport, options, error);
    if (status == TRAJD_OK)
        status = open_monitor(transport, error);
    if (status == TRAJD_OK && bind_router(transport) != 0)
        status = zmq_error(error, transport->path);
    if (status != TRAJD_OK)
        goto fail;
    descriptors_short(transport);
    transport->descriptors[0] = descriptor_of(transport->router);
    transport->descriptors[1] = descriptor_of(transport->zap);
    transport->descriptors[2] = descriptor_of(transport->monitor);
    transport->aside = true;
    *out = transport;
    return TRAJD_OK;
fail:
    trajd_transport_destroy(&transport);
    return status;
}

void trajd_transport_destroy(struct trajd_transport **pointer)
{
    struct trajd_transport *transport = *pointer;
    if (transport == NULL)
        return;
    zmq_msg_close(&transport->frame);
    if (transport->router != NULL)
        zmq_socket_monitor(transport->router, NULL, 0);
    void *sockets[] = {transport->monitor, transport->router, transport->zap};
    for (size_t i = 0; i < sizeof(sockets) / sizeof(*sockets); i++)
        if (sockets[i] != NULL)
            zmq_close(sockets[i]);
    if (transport->context != NULL)
        zmq_ctx_term(transport->context);
    if (transport->bound)
        unlink(transport->path); /* libzmq leaves it; ours to remove while the lock is held */
    free(transport->endpoint);
    free(transport);
    *pointer = NULL;
}

/* zmq_poll asks every socket twice; these descriptors become readable once, when there is something after
 * there was nothing. */
uint32_t trajd_transport_wait(struct trajd_transport *transport, const int *descriptors, uint32_t count,
                              uint32_t timeout_ms)
{
    struct pollfd items[7] = {{.fd = transport->descriptors[0], .events = POLLIN},
                              {.fd = transport->descriptors[1], .events = POLLIN},
                              {.fd = transport->descriptors[2], .events = POLLIN}};
    uint32_t readable = 0;
    for (uint32_t i = 0; i < count; i++)
        items[3 + i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
    const int ready = poll(items, 3 + count, (int)timeout_ms);
    transport->aside = ready <= 0 || items[1].revents != 0 || items[2].revents != 0;
    for (uint32_t i = 0; ready > 0 && i < count; i++)
        readable |= (uint32_t)(items[3 + i].revents != 0) << i;
    return readable;
}

bool trajd_transport_has_message(struct trajd_transport *transport)
{
    int events = 0;
    size_t size = sizeof(events);
    return zmq_getsockopt(transport->router, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN) != 0;
}

static bool has_more(zmq_msg_t *message)
{
    return zmq_msg_more(message) != 0;
}

/* The rest of a message that is not one of ours. */
static void skip_frames(struct trajd_transport *transport)
{
    while (has_more(&transport->frame))
        if (zmq_msg_recv(&transport->frame, transport->router, 0) < 0)
            return;
}

bool trajd_transport_receive(struct trajd_transport *transport, struct trajd_incoming *incoming)
{
    while (zmq_msg_recv(&transport->frame, transport->router, ZMQ_DONTWAIT) >= 0) {
        size_t size = zmq_msg_size(&transport->frame);
        bool good = size > 0 && size <= TRAJD_ROUTE_SIZE && has_more(&transport->frame);
        if (good) {
            incoming->route = (struct trajd_route){.size = (uint8_t)size};
            memcpy(incoming->route.bytes, zmq_msg_data(&transport->frame), size);
            if (zmq_msg_recv(&transport->frame, transport->router, 0) < 0)
                return false;
        }
        const char *address =
            good && !has_more(&transport->frame) ? zmq_msg_gets(&transport->frame, "Peer-Address") : NULL;
        if (address != NULL && parse_uid(address, &incoming->uid)) {
            incoming->frame = zmq_msg_data(&transport->frame);
            incoming->size_bytes = zmq_msg_size(&transport->frame);
            return true;
        }
        transport->counters.malformed++;
        skip_frames(transport);
    }
    return false;
}

enum trajd_status trajd_transport_send(struct trajd_transport *transport, const struct trajd_route *route,
                                       const void *frame, size_t size_bytes)
{
    if (zmq_send(transport->router, route->bytes, route->size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return zmq_errno() == EAGAIN ? TRAJD_ERR_BUSY : TRAJD_ERR_CLOSED;
    return zmq_send(transport->router, frame, size_bytes, ZMQ_DONTWAIT) < 0 ? TRAJD_ERR_CLOSED : TRAJD_OK;
}

void trajd_transport_turn(struct trajd_transport *transport, uint64_t now_ns)
{
    if (!transport->aside && transport->bind_at_ns == 0)
        return;
    transport->aside = false;
    answer_zap(transport);
    watch_descriptors(transport, now_ns);
}

const struct trajd_transport_counters *trajd_transport_get_counters(const struct trajd_transport *transport)
{
    return &transport->counters;
}
