/* Decides who may connect. ZeroMQ's handshake sends a request to a socket of the daemon (ZAP, RFC
 * 27), with the domain of the listener. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/server/transport/transport_internal.h"
#include "proto/array_len.h"

#define REQUESTS_A_TURN 32u
#define UNKNOWN_KEY_PAUSE_NS INT64_C(60000000000)

enum { USER_ID_SIZE = TRAJD_KEY_NAME_SIZE + TRAJD_KEY_SIZE };

struct zap_request {
    char id[256];
    size_t id_size;
    char domain[32], address[256], mechanism[16];
    unsigned char credential[64];
    size_t credential_size;
};

enum trajd_status trajd_access_open(struct trajd_transport *transport, struct trajd_error *error)
{
    const int options[][2] = {{ZMQ_LINGER, 0}};
    transport->zap = zmq_socket(transport->context, ZMQ_REP);
    if (!transport->zap)
        return trajd_zmq_error(error, "zmq_socket");
    if (zmq_bind(transport->zap, "inproc://zeromq.zap.01") != 0)
        return trajd_zmq_error(error, "inproc://zeromq.zap.01");
    return trajd_zmq_set(transport->zap, options, 1, error);
}

bool trajd_access_parse_uid(const char *address, uid_t *uid)
{
    const char *colon = strchr(address, ':');
    char *end;
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return false;
    unsigned long value = strtoul(colon + 1, &end, 10);
    if (*end != ':' || value > UINT32_MAX)
        return false;
    *uid = (uid_t)value;
    return true;
}

/* Receives a request with the frames version, request id, domain, address, routing id, mechanism
 * and credentials. Returns false if no request waits. */
static bool receive_request(struct trajd_transport *transport, struct zap_request *request)
{
    struct {
        void *at;
        size_t room;
    } places[] = {{NULL, 0},
                  {request->id, sizeof request->id},
                  {request->domain, sizeof request->domain - 1},
                  {request->address, sizeof request->address - 1},
                  {NULL, 0},
                  {request->mechanism, sizeof request->mechanism - 1},
                  {request->credential, sizeof request->credential}};
    char other[256];
    int more = 1;
    size_t more_size = sizeof more;
    memset(request, 0, sizeof *request);
    for (size_t frame = 0; more; frame++) {
        const bool kept = frame < ARRAY_LEN(places) && places[frame].at != NULL;
        const size_t room = kept ? places[frame].room : sizeof other;
        int size = zmq_recv(transport->zap, kept ? places[frame].at : other, room,
                            frame == 0 ? ZMQ_DONTWAIT : 0);
        if (size < 0)
            return false;
        if (frame == 1)
            request->id_size = (size_t)size < room ? (size_t)size : room;
        if (frame == 6)
            request->credential_size = (size_t)size;
        zmq_getsockopt(transport->zap, ZMQ_RCVMORE, &more, &more_size);
    }
    return true;
}

static bool is_local_peer_allowed(struct trajd_transport *transport,
                                  const struct zap_request *request)
{
    uid_t uid;
    bool allowed = strcmp(request->mechanism, "NULL") == 0 &&
                   trajd_access_parse_uid(request->address, &uid) &&
                   (transport->group_access || uid == 0 || uid == geteuid());
    if (!allowed)
        transport->counters.refused++;
    return allowed;
}

static void log_line(struct trajd_transport *transport, const char *line)
{
    if (transport->remote.log_line)
        transport->remote.log_line(transport->remote.context, line);
}

/* Logs an unknown key once, and one key a minute, because a public port gets many connections with
 * unknown keys. */
static void report_unknown_key(struct trajd_transport *transport, const char *key,
                               const char *address)
{
    char line[512], others[64] = "";
    const int64_t now_ns = trajd_now_ns();
    transport->counters.refused_keys++;
    for (uint32_t i = 0; i < transport->unknown_key_count && i < TRAJD_MAX_UNKNOWN_KEYS; i++)
        if (strcmp(transport->unknown_keys[i], key) == 0)
            return;
    if (transport->unknown_key_count && now_ns < transport->unknown_key_ns + UNKNOWN_KEY_PAUSE_NS) {
        transport->unlogged_key_count++;
        return;
    }
    memcpy(transport->unknown_keys[transport->unknown_key_count++ % TRAJD_MAX_UNKNOWN_KEYS], key,
           TRAJD_KEY_SIZE);
    if (transport->unlogged_key_count)
        snprintf(others, sizeof others, " (and %llu others since the last such line)",
                 (unsigned long long)transport->unlogged_key_count);
    snprintf(line, sizeof line,
             "refused a worker from %s: no file of the clients directory has its public key %s%s",
             address, key, others);
    transport->unknown_key_ns = now_ns;
    transport->unlogged_key_count = 0;
    log_line(transport, line);
}

/* Writes the name and the public key of the worker, with a space between them. Returns false for an
 * unknown key. */
static bool find_user(struct trajd_transport *transport, const struct zap_request *request,
                      char id[USER_ID_SIZE])
{
    struct trajd_error key_error;
    char key[TRAJD_KEY_SIZE];
    if (strcmp(request->mechanism, "CURVE") != 0 || request->credential_size != 32 ||
        !zmq_z85_encode(key, request->credential, 32))
        return false;
    const char *user = trajd_keyring_find(transport->keyring, key, &key_error);
    if (key_error.status && strcmp(key_error.message, transport->key_error) != 0) {
        snprintf(transport->key_error, sizeof transport->key_error, "%s", key_error.message);
        log_line(transport, key_error.message);
    }
    if (user)
        snprintf(id, USER_ID_SIZE, "%s %s", user, key);
    else
        report_unknown_key(transport, key, request->address);
    return user != NULL;
}

/* Returns true for a loopback address. Without CURVE the listener is bound to one, so other peers
 * cannot connect anyway. */
static bool is_loopback(const char *address)
{
    return strcmp(address, "127.0.0.1") == 0 || strcmp(address, "::1") == 0;
}

/* Returns true if the peer may connect. Writes its id, "" for a peer without a key. */
static bool validate(struct trajd_transport *transport, const struct zap_request *request,
                     char id[USER_ID_SIZE])
{
    id[0] = '\0';
    if (strcmp(request->domain, TRAJD_LOCAL_DOMAIN) == 0)
        return is_local_peer_allowed(transport, request);
    if (strcmp(request->domain, TRAJD_REMOTE_DOMAIN) != 0)
        return false;
    if (transport->keyring)
        return find_user(transport, request, id);
    return is_loopback(request->address);
}

static void answer(struct trajd_transport *transport, const struct zap_request *request)
{
    char id[USER_ID_SIZE];
    const bool allowed = validate(transport, request, id);
    zmq_send(transport->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(transport->zap, request->id, request->id_size, ZMQ_SNDMORE);
    zmq_send(transport->zap, allowed ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(transport->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(transport->zap, id, strlen(id), ZMQ_SNDMORE);
    zmq_send(transport->zap, "", 0, 0);
}

bool trajd_access_answer(struct trajd_transport *transport)
{
    struct zap_request request;
    for (uint32_t i = 0; i < REQUESTS_A_TURN; i++) {
        if (!receive_request(transport, &request))
            return false;
        answer(transport, &request);
    }
    return true;
}
