/* The queue of queries without a socket: order, limits, and its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/base/heartbeat.h"
#include "daemon/server/server_internal.h"

static int make_server(void **state)
{
    struct trajd_server *server = calloc(1, sizeof *server);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_mutex_init(&server->send_lock, NULL);
    trajd_heartbeat_init_condition(&server->query_added);
    assert_true(trajd_peers_create(&server->peers, 2));
    server->options.answers_queries = true;
    *state = server;
    return 0;
}

static int free_server(void **state)
{
    struct trajd_server *server = *state;
    trajd_peers_destroy(&server->peers);
    free(server);
    return 0;
}

static enum trajd_status add_query(struct trajd_server *server, uint64_t request,
                                   struct trajd_error *error)
{
    const struct trajd_peer peer = {.session = 7 + request / 4};
    const struct trajd_wire_ask ask = {.request = request,
                                       .feed_id = 3,
                                       .what = trajd_wire_text("explain"),
                                       .name = trajd_wire_text("obs/joints"),
                                       .window = request};
    return trajd_server_add_query(server, &peer, &ask, error);
}

static void test_queries_are_taken_in_order_and_once(void **state)
{
    struct trajd_server *server = *state;
    struct trajd_error error;
    struct trajd_query query;
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(add_query(server, i, &error), TRAJD_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_OK);
        assert_int_equal(query.window, i);
        assert_int_equal(query.feed_id, 3);
        assert_string_equal(query.what, "explain");
        assert_string_equal(query.name, "obs/joints");
    }
    assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_ERR_TIMEOUT);
}

static void test_a_full_queue_has_room_after_an_answer(void **state)
{
    struct trajd_server *server = *state;
    struct trajd_error error;
    struct trajd_query query;
    for (uint64_t i = 1; i <= TRAJD_SERVER_MAX_QUERIES; i++)
        assert_int_equal(add_query(server, i, &error), TRAJD_OK);
    assert_int_equal(add_query(server, 100, &error), TRAJD_ERR_BUSY);
    assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_OK);
    assert_int_equal(add_query(server, 100, &error), TRAJD_ERR_BUSY); /* taken, not answered */
    trajd_server_answer_query(server, query.id, "{}", 2, NULL);       /* its session has ended */
    assert_true(trajd_server_outbox_is_empty(server));
    assert_int_equal(add_query(server, 100, &error), TRAJD_OK);
}

/* A session leaves room for others, and its queries go with it. */
static void test_a_session_has_a_few_queries(void **state)
{
    struct trajd_server *server = *state;
    struct trajd_error error;
    struct trajd_query query;
    for (uint64_t i = 4; i < 8; i++)
        assert_int_equal(add_query(server, i, &error), TRAJD_OK);
    assert_int_equal(add_query(server, 4, &error), TRAJD_ERR_BUSY);
    assert_string_equal(error.message, "ASK: 4 queries wait for an answer: try again");
    assert_int_equal(add_query(server, 8, &error), TRAJD_OK);
    assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_OK);
    trajd_server_drop_queries(server, 8);
    trajd_server_answer_query(server, query.id, "{}", 2, NULL);
    assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_OK);
    assert_int_equal(query.window, 8);
    assert_int_equal(trajd_server_take_query(server, 0, &query), TRAJD_ERR_TIMEOUT);
}

static void test_a_closed_queue_refuses(void **state)
{
    struct trajd_server *server = *state;
    struct trajd_error error;
    struct trajd_query query;
    assert_int_equal(add_query(server, 1, &error), TRAJD_OK);
    trajd_server_close_queries(server);
    assert_int_equal(add_query(server, 2, &error), TRAJD_ERR_CLOSED);
    assert_int_equal(trajd_server_take_query(server, 1000, &query), TRAJD_ERR_CLOSED);
}

static void test_a_server_without_answers_refuses(void **state)
{
    struct trajd_server *server = *state;
    struct trajd_error error;
    server->options.answers_queries = false;
    assert_int_equal(add_query(server, 1, &error), TRAJD_ERR_UNSUPPORTED);
}

#define SERVER(test) cmocka_unit_test_setup_teardown(test, make_server, free_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER(test_queries_are_taken_in_order_and_once),
        SERVER(test_a_full_queue_has_room_after_an_answer),
        SERVER(test_a_session_has_a_few_queries),
        SERVER(test_a_closed_queue_refuses),
        SERVER(test_a_server_without_answers_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
