/* The table of peers: finding by route and by session, and the rings that a peer has received. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/server/peers.h"

static struct trajd_route route_of(enum trajd_listener listener, uint8_t byte)
{
    return (struct trajd_route){.listener = (uint8_t)listener, .size = 1, .bytes = {byte}};
}

static struct trajd_peer *add_peer(struct trajd_peers *peers, uint64_t session, uint8_t byte)
{
    const struct trajd_route route = route_of(TRAJD_LISTENER_LOCAL, byte);
    struct trajd_peer *peer = trajd_peers_free_entry(peers);
    assert_non_null(peer);
    peer->session = session;
    trajd_peers_set_route(peers, peer, &route);
    return peer;
}

static void test_peers_are_found_by_route_and_session(void **state)
{
    (void)state;
    struct trajd_peers peers;
    struct trajd_peer *peer[4]; /* as many as buckets, so that some share one */
    assert_true(trajd_peers_create(&peers, 4));
    for (uint8_t i = 0; i < 4; i++)
        peer[i] = add_peer(&peers, 10 + i, i);
    assert_null(trajd_peers_free_entry(&peers));
    for (uint8_t i = 0; i < 4; i++) {
        const struct trajd_route local = route_of(TRAJD_LISTENER_LOCAL, i),
                                 remote = route_of(TRAJD_LISTENER_REMOTE, i);
        assert_ptr_equal(trajd_peers_by_route(&peers, &local), peer[i]);
        assert_null(trajd_peers_by_route(&peers, &remote));
        assert_ptr_equal(trajd_peers_by_session(&peers, 10 + i), peer[i]);
    }
    for (uint8_t i = 0; i < 4; i++) {
        const struct trajd_route route = route_of(TRAJD_LISTENER_LOCAL, i);
        trajd_peers_remove(&peers, peer[i]);
        assert_null(trajd_peers_by_route(&peers, &route));
        assert_null(trajd_peers_by_session(&peers, 10 + i));
        assert_int_equal(i == 3, trajd_peers_by_session(&peers, 13) == NULL);
    }
    trajd_peers_destroy(&peers);
}

static void test_a_new_route_replaces_the_old_one(void **state)
{
    (void)state;
    struct trajd_peers peers;
    assert_true(trajd_peers_create(&peers, 2));
    struct trajd_peer *peer = add_peer(&peers, 1, 1);
    const struct trajd_route before = peer->route, after = route_of(TRAJD_LISTENER_REMOTE, 9);
    trajd_peers_set_route(&peers, peer, &after);
    assert_null(trajd_peers_by_route(&peers, &before));
    assert_ptr_equal(trajd_peers_by_route(&peers, &after), peer);
    trajd_peers_destroy(&peers);
}

static void test_a_ring_is_noted_once(void **state)
{
    (void)state;
    struct trajd_peer peer = {0};
    for (uint32_t ring = 0; ring < TRAJD_PEER_RINGS; ring++)
        assert_true(trajd_peer_note_ring(&peer, ring));
    assert_false(trajd_peer_note_ring(&peer, 0));
    assert_true(trajd_peer_note_ring(&peer, TRAJD_PEER_RINGS)); /* replaces ring 0 */
    assert_true(trajd_peer_note_ring(&peer, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_are_found_by_route_and_session),
        cmocka_unit_test(test_a_new_route_replaces_the_old_one),
        cmocka_unit_test(test_a_ring_is_noted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
