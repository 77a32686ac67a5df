/* Opens and closes the listeners' sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/server/transport/connections.h"
#include "daemon/server/transport/transport_internal.h"
#include "proto/array_len.h"

#define REMOTE_HANDSHAKE_MS 5000
#define EVENTS_A_TURN 256u
#define BACKLOG 512             /* connections that wait to be accepted */
#define CURVE_OVERHEAD_BYTES 64 /* of a frame, as ZeroMQ limits the encrypted size */

enum trajd_status trajd_zmq_error(struct trajd_error *error, const char *what)
{
    int code = zmq_errno();
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "%s: %s", what, zmq_strerror(code));
}

enum trajd_status trajd_zmq_set(void *socket, const int (*options)[2], size_t count,
                                struct trajd_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (zmq_setsockopt(socket, options[i][0], &options[i][1], sizeof(int)) != 0)
            return trajd_zmq_error(error, "zmq_setsockopt");
    return TRAJD_OK;
}

int trajd_listeners_remote_threads(void)
{
    const long wanted = sysconf(_SC_NPROCESSORS_ONLN) / 4;
    return wanted < 1 ? 1 : wanted > 8 ? 8 : (int)wanted;
}

/* Returns the I/O threads of a listener as a bit mask. The first thread is the local listener's, so
 * that encryption does not delay local workers. */
static uint64_t threads_of(enum trajd_listener index)
{
    return index == TRAJD_LISTENER_LOCAL
               ? 1
               : ((UINT64_C(1) << trajd_listeners_remote_threads()) - 1) << 1;
}

static enum trajd_status open_router(struct trajd_transport *transport,
                                     const struct trajd_transport_options *options,
                                     enum trajd_listener index, struct trajd_error *error)
{
    struct trajd_transport_listener *listener = &transport->listeners[index];
    const int router_options[][2] = {
        {ZMQ_ROUTER_MANDATORY, 1}, /* a send to an unreachable peer fails */
        {ZMQ_ROUTER_HANDOVER, 0},  /* no connection takes over another's routing id */
        {ZMQ_SNDHWM, (int)options->send_limit},
        /* connections.c limits what waits. At a limit of its own libzmq would stop reading, and a
         * heartbeat after the peer's end would end this process (README.md) */
        {ZMQ_RCVHWM, 0},
        {ZMQ_HANDSHAKE_IVL, 2000},
        {ZMQ_LINGER, 0},
        {ZMQ_BACKLOG, BACKLOG},
    };
    const char *domain = index == TRAJD_LISTENER_REMOTE ? TRAJD_REMOTE_DOMAIN : TRAJD_LOCAL_DOMAIN;
    const uint64_t threads = threads_of(index);
    const int64_t max_frame_bytes = (int64_t)options->max_frame_bytes +
                                    (index == TRAJD_LISTENER_REMOTE ? CURVE_OVERHEAD_BYTES : 0);
    listener->router = zmq_socket(transport->context, ZMQ_ROUTER);
    if (!listener->router)
        return trajd_zmq_error(error, "zmq_socket");
    enum trajd_status status =
        trajd_zmq_set(listener->router, router_options, ARRAY_LEN(router_options), error);
    if (status)
        return status;
    /* libzmq does not request a decision for a listener without a domain */
    if (zmq_setsockopt(listener->router, ZMQ_AFFINITY, &threads, sizeof threads) != 0 ||
        zmq_setsockopt(listener->router, ZMQ_MAXMSGSIZE, &max_frame_bytes,
                       sizeof max_frame_bytes) != 0 ||
        zmq_setsockopt(listener->router, ZMQ_ZAP_DOMAIN, domain, strlen(domain)) != 0)
        return trajd_zmq_error(error, "zmq_setsockopt");
    return TRAJD_OK;
}

static enum trajd_status open_monitor(struct trajd_transport *transport, enum trajd_listener index,
                                      struct trajd_error *error)
{
    static const char *const endpoints[] = {"inproc://trajd.monitor",
                                            "inproc://trajd.monitor.remote"};
    struct trajd_transport_listener *listener = &transport->listeners[index];
    /* No limit, because the I/O thread sends events by a blocking call: a full queue would stop all
     * connections. */
    const int options[][2] = {{ZMQ_LINGER, 0}, {ZMQ_RCVHWM, 0}};
    const int events = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    if (zmq_socket_monitor(listener->router, endpoints[index], events) != 0)
        return trajd_zmq_error(error, "zmq_socket_monitor");
    listener->monitor = zmq_socket(transport->context, ZMQ_PAIR);
    if (!listener->monitor)
        return trajd_zmq_error(error, "zmq_socket");
    enum trajd_status status = trajd_zmq_set(listener->monitor, options, 2, error);
    if (!status && zmq_connect(listener->monitor, endpoints[index]) != 0)
        status = trajd_zmq_error(error, endpoints[index]);
    return status;
}

/* Binds the local listener to a socket of our own, because libzmq would create its file with the
 * umask of the process. libzmq closes the descriptor. */
static enum trajd_status bind_local(const struct trajd_transport *transport,
                                    struct trajd_transport_listener *listener,
                                    struct trajd_error *error)
{
    int fd;
    enum trajd_status status = trajd_unix_listen(listener->endpoint + strlen("ipc://"), SOCK_STREAM,
                                                 transport->group_access, BACKLOG, &fd, error);
    if (!status)
        trajd_unix_refuse_descriptors(fd);
    if (!status && (zmq_setsockopt(listener->router, ZMQ_USE_FD, &fd, sizeof fd) != 0 ||
                    zmq_bind(listener->router, listener->endpoint) != 0)) {
        status = trajd_zmq_error(error, listener->endpoint);
        close(fd);
    }
    return status;
}

static enum trajd_status bind_listener(struct trajd_transport *transport,
                                       struct trajd_transport_listener *listener,
                                       struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    if (listener == &transport->listeners[TRAJD_LISTENER_LOCAL])
        status = bind_local(transport, listener, error);
    else if (zmq_bind(listener->router, listener->endpoint) != 0)
        status = trajd_zmq_error(error, listener->endpoint);
    listener->bound = listener->bound || !status;
    return status;
}

static int descriptor_of(void *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    return zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

static enum trajd_status finish_listener(struct trajd_transport *transport,
                                         enum trajd_listener index, struct trajd_error *error)
{
    struct trajd_transport_listener *listener = &transport->listeners[index];
    enum trajd_status status = open_monitor(transport, index, error);
    if (!status)
        status = bind_listener(transport, listener, error);
    listener->router_fd = descriptor_of(listener->router);
    if (listener->monitor)
        listener->monitor_fd = descriptor_of(listener->monitor);
    return status;
}

/* ---- the local listener ---- */

static enum trajd_status open_local(struct trajd_transport *transport,
                                    const struct trajd_transport_options *options,
                                    struct trajd_error *error)
{
    struct trajd_transport_listener *listener = &transport->listeners[TRAJD_LISTENER_LOCAL];
    if (asprintf(&listener->endpoint, "ipc://%s", options->path) < 0) {
        listener->endpoint = NULL;
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    }
    enum trajd_status status = open_router(transport, options, TRAJD_LISTENER_LOCAL, error);
    return !status ? finish_listener(transport, TRAJD_LISTENER_LOCAL, error) : status;
}

/* ---- the remote listener ---- */

struct listen_address {
    char host[INET6_ADDRSTRLEN];
    unsigned port;
    bool is_v6, is_loopback;
};

/* Parses an address in numbers. Returns false for a host name, because a name may resolve to
 * another address later, which is not a loopback address. */
static bool parse_address(const char *text, struct listen_address *address)
{
    unsigned char binary[sizeof(struct in6_addr)];
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon)
        return false;
    address->is_v6 = text[0] == '[';
    const char *begin = text + address->is_v6;
    const size_t length = (size_t)(colon - begin) - address->is_v6;
    if (colon < begin + address->is_v6 || length >= sizeof address->host ||
        (address->is_v6 && colon[-1] != ']'))
        return false;
    memcpy(address->host, begin, length);
    address->host[length] = '\0';
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > 65535)
        return false;
    address->port = (unsigned)port;
    address->is_loopback =
        strcmp(address->host, "127.0.0.1") == 0 || strcmp(address->host, "::1") == 0;
    return inet_pton(address->is_v6 ? AF_INET6 : AF_INET, address->host, binary) == 1;
}

static enum trajd_status check_remote(const struct trajd_transport_remote *remote,
                                      struct listen_address *address, struct trajd_error *error)
{
    if (!parse_address(remote->address, address))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "listen.tcp: %s: must be ADDRESS:PORT in numbers, like 0.0.0.0:7878 or [::]:7878",
            remote->address);
    if (remote->insecure_loopback && !address->is_loopback)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "listen.insecure_loopback: without CURVE the address must be "
                               "127.0.0.1 or ::1, not %s",
                               address->host);
    if (!remote->insecure_loopback && !remote->keys)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "listen.keys: listen.tcp needs CURVE keys: `trajctl keygen DIR` makes them");
    if (!remote->insecure_loopback && zmq_has("curve") != 1)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "listen.tcp: this libzmq was built without CURVE (libsodium)");
    return TRAJD_OK;
}

static enum trajd_status set_remote_options(struct trajd_transport *transport, bool is_v6,
                                            struct trajd_error *error)
{
    void *router = transport->listeners[TRAJD_LISTENER_REMOTE].router;
    const int silence_ms = (int)transport->remote.silence_ms;
    const int probe_s = silence_ms / 4000 > 0 ? silence_ms / 4000 : 1;
    /* TCP's own probes find hosts that are gone. No heartbeats, for the same reason. */
    const int options[][2] = {
        {ZMQ_HANDSHAKE_IVL, REMOTE_HANDSHAKE_MS},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, probe_s},
        {ZMQ_TCP_KEEPALIVE_INTVL, probe_s},
        {ZMQ_TCP_KEEPALIVE_CNT, 3},
        {ZMQ_TCP_MAXRT, silence_ms}, /* a peer that does not read */
        {ZMQ_IPV6, is_v6},
    };
    const int curve[][2] = {{ZMQ_CURVE_SERVER, 1}};
    enum trajd_status status = trajd_zmq_set(router, options, ARRAY_LEN(options), error);
    if (!status && transport->keyring)
        status = trajd_zmq_set(router, curve, 1, error);
    if (!status && transport->keyring &&
        zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY,
                       trajd_keyring_server(transport->keyring)->secret_key, TRAJD_KEY_SIZE) != 0)
        status = trajd_zmq_error(error, "server.key_secret");
    return status;
}

/* Keeps the bound endpoint, as port 0 has become a real port. A listener that was closed for a
 * while binds the same port again. */
static enum trajd_status note_endpoint(struct trajd_transport_listener *listener,
                                       struct trajd_error *error)
{
    char bound[256];
    size_t size = sizeof bound;
    if (zmq_getsockopt(listener->router, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
        return trajd_zmq_error(error, listener->endpoint);
    free(listener->endpoint);
    listener->endpoint = strdup(bound);
    return listener->endpoint
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
}

static enum trajd_status open_remote(struct trajd_transport *transport,
                                     const struct trajd_transport_options *options,
                                     struct trajd_error *error)
{
    struct trajd_transport_listener *listener = &transport->listeners[TRAJD_LISTENER_REMOTE];
    struct listen_address address;
    char port[16];
    enum trajd_status status = check_remote(&options->remote, &address, error);
    if (!status && !options->remote.insecure_loopback)
        status = trajd_keyring_create(options->remote.keys, &transport->keyring, error);
    if (status)
        return status;
    snprintf(port, sizeof port, address.port > 0 ? "%u" : "*", address.port);
    if (asprintf(&listener->endpoint, address.is_v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", address.host,
                 port) < 0) {
        listener->endpoint = NULL;
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    }
    status = open_router(transport, options, TRAJD_LISTENER_REMOTE, error);
    if (!status)
        status = set_remote_options(transport, address.is_v6, error);
    if (!status)
        status = finish_listener(transport, TRAJD_LISTENER_REMOTE, error);
    return !status ? note_endpoint(listener, error) : status;
}

/* ---- descriptors ---- */

static enum trajd_status raise_descriptor_limit(uint32_t max_sessions, struct trajd_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "RLIMIT_NOFILE: %s",
                               strerror(errno));
    if (limit.rlim_cur < limit.rlim_max) {
        const rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = soft;
    }
    const uint64_t wanted = trajd_connections_descriptors(max_sessions);
    if (limit.rlim_cur < wanted)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "RLIMIT_NOFILE is %llu: %u sessions need %llu: raise it, or lower limits.sessions",
            (unsigned long long)limit.rlim_cur, max_sessions, (unsigned long long)wanted);
    return TRAJD_OK;
}

static bool read_monitor(struct trajd_transport *transport, enum trajd_listener index)
{
    void *monitor = transport->listeners[index].monitor;
    uint8_t event[6], address[256];
    uint16_t number;
    if (!monitor || zmq_recv(monitor, event, sizeof event, ZMQ_DONTWAIT) < 0)
        return false;
    zmq_recv(monitor, address, sizeof address, ZMQ_DONTWAIT);
    memcpy(&number, event, sizeof number);
    if (number == ZMQ_EVENT_DISCONNECTED)
        transport->has_garbage = true;
    else if (index == TRAJD_LISTENER_REMOTE)
        transport->counters.failed_handshakes++;
    return true;
}

bool trajd_listeners_read_monitors(struct trajd_transport *transport)
{
    bool more = true;
    for (uint32_t i = 0; i < EVENTS_A_TURN && more; i++) {
        const bool local = read_monitor(transport, TRAJD_LISTENER_LOCAL);
        more = read_monitor(transport, TRAJD_LISTENER_REMOTE) || local;
    }
    return more;
}

/* ---- opening and closing ---- */

enum trajd_status trajd_listeners_open(struct trajd_transport *transport,
                                       const struct trajd_transport_options *options,
                                       struct trajd_error *error)
{
    const struct trajd_connections_options connections = {
        .max_sessions = options->max_sessions,
        .max_frame_bytes = options->max_frame_bytes + CURVE_OVERHEAD_BYTES,
    };
    enum trajd_status status = raise_descriptor_limit(options->max_sessions, error);
    if (!status && !trajd_connections_start(&connections))
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "transport: out of memory");
    if (!status)
        status = open_local(transport, options, error);
    if (!status && options->remote.address)
        status = open_remote(transport, options, error);
    return status;
}

void trajd_listeners_close(struct trajd_transport *transport)
{
    for (uint32_t i = 0; i < TRAJD_LISTENERS; i++) {
        struct trajd_transport_listener *listener = &transport->listeners[i];
        if (listener->router)
            zmq_socket_monitor(listener->router, NULL, 0);
        if (listener->monitor)
            zmq_close(listener->monitor);
        if (listener->router)
            zmq_close(listener->router);
        /* libzmq leaves the file. It is this daemon's, because the caller holds the lock. */
        if (listener->bound && i == TRAJD_LISTENER_LOCAL)
            unlink(listener->endpoint + strlen("ipc://"));
        free(listener->endpoint);
    }
    trajd_keyring_destroy(&transport->keyring);
}
