/* The remote part of a link: tcp, CURVE keys, heartbeats and failed handshakes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "clients/c/client_clock.h"
#include "clients/c/link/link.h"
#include "proto/array_len.h"
#include "proto/wire.h"

#define SCHEME "tcp://"
#define HEARTBEAT_MS 1000
/* for heartbeats without a reply, and for data that the daemon does not take */
#define TIMEOUT_MS 10000
#define HANDSHAKE_MS 5000
#define CURVE_OVERHEAD_BYTES 64 /* ZeroMQ limits the size of the encrypted frame */

bool trajd_link_is_remote_endpoint(const char *endpoint)
{
    return strncmp(endpoint, SCHEME, strlen(SCHEME)) == 0;
}

/* ---- endpoint and keys ---- */

static enum trajd_status check_endpoint(const char *endpoint, bool *loopback,
                                        struct trajd_error *error)
{
    static const char *const loopbacks[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = endpoint + strlen(SCHEME), *colon = strrchr(host, ':');
    const size_t length = colon ? (size_t)(colon - host) : 0;
    char *end = NULL;
    const unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (length == 0 || colon[1] < '0' || colon[1] > '9' || *end != '\0' || port < 1 ||
        port > 65535 || strpbrk(host, ";/*"))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "endpoint %s: write it as tcp://HOST:PORT", endpoint);
    *loopback = false;
    for (size_t i = 0; i < ARRAY_LEN(loopbacks); i++)
        *loopback = *loopback ||
                    (strlen(loopbacks[i]) == length && memcmp(loopbacks[i], host, length) == 0);
    return TRAJD_OK;
}

static enum trajd_status read_keys(struct trajd_link *link,
                                   const struct trajd_link_options *options,
                                   struct trajd_error *error)
{
    if (zmq_has("curve") != 1)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "endpoint %s: this libzmq is built without CURVE (libsodium)",
                               options->endpoint);
    enum trajd_status status = trajd_key_read_secret(options->key_file, &link->keys, error);
    if (status)
        return status;
    if (options->server_key && options->server_key[0] != '\0') {
        if (!trajd_key_is_valid(options->server_key))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "server_key is not 40 characters of Z85: take the public-key of "
                                   "the daemon's key file");
        memcpy(link->keys.server_key, options->server_key, TRAJD_KEY_SIZE);
    }
    if (link->keys.server_key[0] == '\0')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s has no server-key, and no server_key was given",
                               options->key_file);
    link->curve = true;
    return TRAJD_OK;
}

enum trajd_status trajd_link_remote_prepare(struct trajd_link *link,
                                            const struct trajd_link_options *options,
                                            struct trajd_error *error)
{
    const bool has_keys = options->key_file && options->key_file[0] != '\0';
    bool loopback = false;
    enum trajd_status status = check_endpoint(options->endpoint, &loopback, error);
    if (!status && !has_keys && !loopback)
        status = trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "endpoint %s: a key file is needed (`trajctl keygen DIR --client NAME` makes it)",
            options->endpoint);
    if (!status && has_keys)
        status = read_keys(link, options, error);
    if (status)
        return status;
    link->feed_endpoint = strdup(options->endpoint);
    return link->feed_endpoint
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "endpoint: out of memory");
}

/* ---- the options of a new DEALER ---- */

/* Monitors failed handshakes: only they show that the daemon does not know the key. */
static int monitor_handshakes(struct trajd_link *link)
{
    /* no limit: libzmq's thread blocks on a full monitor socket */
    const int no_limit = 0, no_linger = 0;
    const int events = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    char endpoint[64];
    /* a new name each time, because the socket of the last dial may still exist */
    snprintf(endpoint, sizeof endpoint, "inproc://trajd.monitor.%u", ++link->dial_count);
    if (zmq_socket_monitor(link->dealer, endpoint, events) != 0)
        return -1;
    link->monitor = zmq_socket(link->context, ZMQ_PAIR);
    if (!link->monitor || zmq_setsockopt(link->monitor, ZMQ_RCVHWM, &no_limit, sizeof(int)) != 0 ||
        zmq_setsockopt(link->monitor, ZMQ_LINGER, &no_linger, sizeof(int)) != 0)
        return -1;
    return zmq_connect(link->monitor, endpoint);
}

static int set_keys(struct trajd_link *link)
{
    const struct trajd_key_file *keys = &link->keys;
    return zmq_setsockopt(link->dealer, ZMQ_CURVE_SERVERKEY, keys->server_key, TRAJD_KEY_SIZE) !=
                       0 ||
                   zmq_setsockopt(link->dealer, ZMQ_CURVE_PUBLICKEY, keys->public_key,
                                  TRAJD_KEY_SIZE) != 0 ||
                   zmq_setsockopt(link->dealer, ZMQ_CURVE_SECRETKEY, keys->secret_key,
                                  TRAJD_KEY_SIZE) != 0
               ? -1
               : 0;
}

int trajd_link_remote_set(struct trajd_link *link)
{
    const int options[][2] = {
        {ZMQ_RECONNECT_IVL_MAX, 1000},       {ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS},
        {ZMQ_CONNECT_TIMEOUT, HANDSHAKE_MS}, {ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS},
        {ZMQ_HEARTBEAT_TIMEOUT, TIMEOUT_MS}, {ZMQ_HEARTBEAT_TTL, TIMEOUT_MS},
        {ZMQ_TCP_MAXRT, TIMEOUT_MS},         {ZMQ_IPV6, strchr(link->feed_endpoint, '[') != NULL},
    };
    const int64_t max_frame_bytes = TRAJD_WIRE_MAX_PAYLOAD_FRAME + CURVE_OVERHEAD_BYTES;
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (zmq_setsockopt(link->dealer, options[i][0], &options[i][1], sizeof(int)) != 0)
            return -1;
    link->connected_ns = trajd_client_now_ns();
    link->has_payload = false;
    if (zmq_setsockopt(link->dealer, ZMQ_MAXMSGSIZE, &max_frame_bytes, sizeof max_frame_bytes) !=
            0 ||
        (link->curve && set_keys(link) != 0))
        return -1;
    return monitor_handshakes(link);
}

void trajd_link_remote_close(struct trajd_link *link)
{
    if (link->dealer && link->remote)
        zmq_socket_monitor(link->dealer, NULL, 0);
    if (link->monitor)
        zmq_close(link->monitor);
    link->monitor = NULL;
}

/* ---- events ---- */

bool trajd_link_can_send(const struct trajd_link *link)
{
    int events = 0;
    size_t size = sizeof events;
    return zmq_getsockopt(link->dealer, ZMQ_EVENTS, &events, &size) == 0 &&
           (events & ZMQ_POLLOUT) != 0;
}

static void read_monitor(struct trajd_link *link)
{
    uint8_t event[6], address[256];
    uint16_t number;
    while (link->monitor && zmq_recv(link->monitor, event, sizeof event, ZMQ_DONTWAIT) >= 0) {
        zmq_recv(link->monitor, address, sizeof address, ZMQ_DONTWAIT);
        memcpy(&number, event, sizeof number);
        if (number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            link->handshake_error = "the daemon does not know the key of this worker (its public "
                                    "key file is missing in clients/ there)";
        else if (link->curve)
            link->handshake_error = "the handshake failed: the daemon has another key or no CURVE, "
                                    "or the server is not a trajd daemon";
        else
            link->handshake_error = "the handshake failed: the daemon requires a key file (CURVE), "
                                    "or the server is not a trajd daemon";
    }
}

enum trajd_link_event trajd_link_remote_read(struct trajd_link *link)
{
    read_monitor(link);
    if (!link->attached)
        return TRAJD_LINK_NOTHING;
    const bool greeted = link->greeted;
    link->greeted = true;
    if (!greeted) {
        link->handshake_error = NULL;
        return TRAJD_LINK_GREETED;
    }
    const uint64_t at_ns = trajd_client_now_ns();
    if (trajd_link_can_send(link))
        link->connected_ns = at_ns;
    return at_ns >= link->connected_ns + link->silence_timeout_ns ? TRAJD_LINK_END
                                                                  : TRAJD_LINK_NOTHING;
}
