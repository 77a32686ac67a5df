/* The table of peers, by session and by connection. */
#include "daemon/server/peers.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"

bool trajd_peers_create(struct trajd_peers *peers, uint32_t capacity)
{
    *peers = (struct trajd_peers){.capacity = capacity};
    peers->list = calloc(capacity, sizeof *peers->list);
    peers->buckets = calloc(capacity, sizeof *peers->buckets);
    if (peers->list && peers->buckets)
        return true;
    trajd_peers_destroy(peers);
    return false;
}

void trajd_peers_destroy(struct trajd_peers *peers)
{
    free(peers->list);
    free(peers->buckets);
    *peers = (struct trajd_peers){0};
}

struct trajd_peer *trajd_peers_free_entry(struct trajd_peers *peers)
{
    return trajd_peers_by_session(peers, 0);
}

static uint32_t *bucket(struct trajd_peers *peers, const struct trajd_route *route)
{
    uint64_t hash = trajd_fnv(TRAJD_FNV_BEGIN, &route->listener, sizeof route->listener);
    hash = trajd_fnv(hash, route->bytes, route->size);
    return &peers->buckets[hash % peers->capacity];
}

static bool same_route(const struct trajd_route *a, const struct trajd_route *b)
{
    return a->listener == b->listener && a->size == b->size &&
           memcmp(a->bytes, b->bytes, a->size) == 0;
}

static void unlink_route(struct trajd_peers *peers, struct trajd_peer *peer)
{
    if (peer->route.size == 0)
        return;
    uint32_t self = (uint32_t)(peer - peers->list) + 1;
    uint32_t *link = bucket(peers, &peer->route);
    while (*link != self)
        link = &peers->list[*link - 1].next;
    *link = peer->next;
    peer->route.size = 0;
}

void trajd_peers_set_route(struct trajd_peers *peers, struct trajd_peer *peer,
                           const struct trajd_route *route)
{
    unlink_route(peers, peer);
    uint32_t *head = bucket(peers, route);
    peer->route = *route;
    peer->next = *head;
    *head = (uint32_t)(peer - peers->list) + 1;
}

struct trajd_peer *trajd_peers_by_route(struct trajd_peers *peers, const struct trajd_route *route)
{
    for (uint32_t index = *bucket(peers, route); index != 0; index = peers->list[index - 1].next)
        if (same_route(&peers->list[index - 1].route, route))
            return &peers->list[index - 1];
    return NULL;
}

struct trajd_peer *trajd_peers_by_session(struct trajd_peers *peers, uint64_t session)
{
    for (uint32_t i = 0; i < peers->capacity; i++)
        if (peers->list[i].session == session)
            return &peers->list[i];
    return NULL;
}

void trajd_peers_remove(struct trajd_peers *peers, struct trajd_peer *peer)
{
    unlink_route(peers, peer);
    *peer = (struct trajd_peer){0};
}

bool trajd_peer_note_ring(struct trajd_peer *peer, uint32_t ring_id)
{
    for (uint32_t i = 0; i < TRAJD_PEER_RINGS; i++)
        if (peer->rings[i] == (uint64_t)ring_id + 1)
            return false;
    peer->rings[peer->ring_count++ % TRAJD_PEER_RINGS] = (uint64_t)ring_id + 1;
    return true;
}
