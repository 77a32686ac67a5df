/* The peers of the sessions: which connection belongs to a session, and which rings it has
 * received. The caller holds the server's mutex. */
#ifndef TRAJD_SERVER_PEERS_H
#define TRAJD_SERVER_PEERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/server/transport/transport.h"
#include "proto/key_file.h"

#define TRAJD_PEER_RINGS 16u
#define TRAJD_PEER_REMOTE 128u

struct trajd_peer {
    uint64_t session; /* 0: the entry is free */
    struct trajd_route route;
    uint64_t owner; /* as in trajd_incoming; only the same owner may resume */
    /* the worker has connected to fd.sock; over tcp: has sent a message after HELLO */
    bool attached;
    bool has_lost_message;          /* there was no memory for one: it gets no others, and ends */
    uint64_t attach_by_ns;          /* the session ends if it has not attached by then */
    uint64_t last_message_ns;       /* its last message */
    uint64_t status_request;        /* of its STATUS that has no answer yet; 0: none */
    uint64_t status_asked_ns;       /* when it came */
    char remote[TRAJD_PEER_REMOTE]; /* "NAME@ADDRESS" of a remote one, else "" */
    char user[TRAJD_KEY_NAME_SIZE], key[TRAJD_KEY_SIZE]; /* of a remote one with CURVE, else "" */
    uint64_t rings[TRAJD_PEER_RINGS]; /* ids + 1 of the last rings sent to it; 0: none */
    uint32_t ring_count;
    uint32_t next; /* next in its bucket: index + 1, or 0 */
};

struct trajd_peers {
    struct trajd_peer *list;
    uint32_t *buckets; /* [capacity]: index + 1 of the first peer, or 0 */
    uint32_t capacity;
};

/* Allocates. Returns false if there is no memory. */
bool trajd_peers_create(struct trajd_peers *peers, uint32_t capacity);
void trajd_peers_destroy(struct trajd_peers *peers);

/* Returns a free entry, or NULL if all are in use. The entry stays free until the caller sets its
 * session and route. */
struct trajd_peer *trajd_peers_free_entry(struct trajd_peers *peers);
/* Sets the peer's route, replacing the one before. */
void trajd_peers_set_route(struct trajd_peers *peers, struct trajd_peer *peer,
                           const struct trajd_route *route);
/* Both return NULL if there is no such peer. */
struct trajd_peer *trajd_peers_by_route(struct trajd_peers *peers, const struct trajd_route *route);
struct trajd_peer *trajd_peers_by_session(struct trajd_peers *peers, uint64_t session);
/* Frees the entry. */
void trajd_peers_remove(struct trajd_peers *peers, struct trajd_peer *peer);

/* Records that the peer gets the ring. Returns false if the ring is among its last TRAJD_PEER_RINGS
 * already. Sending a ring twice does no harm. */
bool trajd_peer_note_ring(struct trajd_peer *peer, uint32_t ring_id);

#endif
