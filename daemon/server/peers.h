/* The sessions' other ends: which connection a session speaks on, and what it has been given. Used
 * from the server's thread. */
#ifndef TRAJD_SERVER_PEERS_H
#define TRAJD_SERVER_PEERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/server/transport.h"

#define TRAJD_PEER_RINGS 16u
#define TRAJD_PEER_REMOTE 128u

struct trajd_peer {
    uint64_t session; /* 0: the entry is free */
    struct trajd_route route;
    uint64_t owner; /* of trajd_incoming: who may resume it */
    /* has its connection on fd.sock; over tcp: has said something after HELLO */
    bool attached;
    uint64_t attach_by_ns;            /* forgotten if not attached by then */
    uint64_t last_message_ns;         /* its last message */
    char remote[TRAJD_PEER_REMOTE];   /* "NAME@ADDRESS" of a remote one, else "" */
    uint64_t rings[TRAJD_PEER_RINGS]; /* ids + 1 of those handed over lately, 0: none */
    uint32_t ring_count;
    uint32_t next; /* in its bucket, index + 1 */
};

struct trajd_peers {
    struct trajd_peer *list;
    uint32_t *buckets; /* index + 1, 0: empty; as many as list */
    uint32_t capacity;
};

/* False: out of memory. */
bool trajd_peers_create(struct trajd_peers *peers, uint32_t capacity);
void trajd_peers_destroy(struct trajd_peers *peers);

/* A free entry, not yet found by anything; NULL: all are in use. It is taken by giving it a session
 * and a route. */
struct trajd_peer *trajd_peers_free_entry(struct trajd_peers *peers);
/* Makes the peer found by this route, and by no other. */
void trajd_peers_set_route(struct trajd_peers *peers, struct trajd_peer *peer,
                           const struct trajd_route *route);
struct trajd_peer *trajd_peers_by_route(struct trajd_peers *peers, const struct trajd_route *route);
struct trajd_peer *trajd_peers_by_session(struct trajd_peers *peers, uint64_t session);
void trajd_peers_remove(struct trajd_peers *peers, struct trajd_peer *peer);

/* True the first time it is asked for that ring (of the last TRAJD_PEER_RINGS; a ring given twice
 * does no harm). */
bool trajd_peer_note_ring(struct trajd_peer *peer, uint32_t ring_id);

#endif
