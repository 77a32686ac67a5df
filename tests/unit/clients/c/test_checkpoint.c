/* Checkpoints without a daemon: the replies, and the calls that cannot get one. The user's callback
 * plays the daemon: it passes frames to the client during the wait, dies and returns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/session/session.h"
#include "tests/unit/clients/c/bare_client.h"

static struct trajd_client *client;
static int connection[2]; /* to fd.sock: the client's end and the daemon's */

struct script {
    const char *token, *second_token; /* NULL: not sent */
    size_t token_size;
    uint64_t request_offset;  /* added to the request's number */
    enum trajd_status status; /* of an ERROR; TRAJD_OK: none is sent */
    bool cancels;
    bool dies, returns; /* before it replies */
    uint32_t call_count;
};

static void pass(const struct trajd_wire_message *message)
{
    static unsigned char frame[TRAJD_WIRE_MAX_FRAME];
    size_t size;
    assert_int_equal(trajd_wire_encode(message, frame, sizeof frame, &size, NULL), TRAJD_OK);
    trajd_session_handle(client, frame, size);
}

static void pass_token(uint64_t request, const char *token, size_t size)
{
    pass(&(struct trajd_wire_message){
        .op = TRAJD_WIRE_CHECKPOINTED,
        .checkpointed = {.request = request, .token = {token, (uint32_t)size}}});
}

/* A session with an open feed, as a daemon has given it. */
static void attach(uint32_t feed_id)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, connection), 0);
    client->link.fd = connection[0];
    client->session.phase = TRAJD_PHASE_OPEN;
    client->feed.is_granted = true;
    client->feed.id = feed_id;
}

static void detach(void)
{
    close(connection[0]);
    close(connection[1]);
}

/* Plays the death of the daemon, and at the next call the return, with the feed under another
 * number. Returns true while there is no daemon that could reply. */
static bool is_gone(struct script *script)
{
    if (script->dies) {
        assert_int_equal(client->query.request, client->session.last_request);
        shutdown(connection[1], SHUT_RDWR);
        script->dies = false;
        return true;
    }
    if (client->session.phase != TRAJD_PHASE_DOWN && client->session.phase != TRAJD_PHASE_HELLO)
        return false;
    assert_int_equal(client->query.request, 0);
    if (script->returns) {
        detach();
        attach(2);
    }
    return true;
}

static bool play(void *context)
{
    struct script *script = context;
    script->call_count++;
    if (is_gone(script))
        return false;
    const uint64_t request = client->query.request + script->request_offset;
    if (script->status)
        pass(&(struct trajd_wire_message){.op = TRAJD_WIRE_ERROR,
                                          .error = {.request = request,
                                                    .status = script->status,
                                                    .message = trajd_wire_text("busy now")}});
    if (script->token)
        pass_token(request, script->token, script->token_size);
    if (script->second_token)
        pass_token(request, script->second_token, strlen(script->second_token));
    return script->cancels;
}

static enum trajd_status fetch(struct script *script, uint32_t timeout_ms, void **token,
                               size_t *size_bytes, struct trajd_error *error)
{
    client->cancel.callback = script ? play : NULL;
    client->cancel.context = script;
    return trajd_client_checkpoint(client, timeout_ms, token, size_bytes, error);
}

static int open_client(void **state)
{
    (void)state;
    client = bare_client_create();
    attach(1);
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    detach();
    trajd_link_destroy(&client->link);
    trajd_client_drop(client);
    return 0;
}

static void test_the_caller_owns_the_token(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    struct script script = {.token = "a\0b", .token_size = 3};
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, &error), TRAJD_OK);
    assert_int_equal(size_bytes, 3);
    assert_memory_equal(token, "a\0b", 3);
    free(token);
    assert_int_equal(client->query.request, 0);
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, &error), TRAJD_OK); /* again */
    free(token);
}

static void test_an_empty_token_is_not_null(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes = 7;
    struct script script = {.token = "", .token_size = 0};
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, NULL), TRAJD_OK);
    assert_int_equal(size_bytes, 0);
    assert_non_null(token);
    free(token);
}

static void test_only_the_first_reply_counts(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct script script = {.token = "first", .token_size = 5, .second_token = "second"};
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, NULL), TRAJD_OK);
    assert_int_equal(size_bytes, 5);
    assert_memory_equal(token, "first", 5);
    free(token);
}

static void test_an_error_is_passed_on(void **state)
{
    (void)state;
    void *token = &client;
    size_t size_bytes;
    struct trajd_error error;
    struct script script = {.status = TRAJD_ERR_BUSY, .second_token = "late"};
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, &error), TRAJD_ERR_BUSY);
    assert_string_equal(error.message, "busy now");
    assert_null(token);
    assert_int_equal(size_bytes, 0);
}

static void test_replies_to_other_requests_are_ignored(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    struct script script = {.token = "late", .token_size = 4, .request_offset = 1};
    assert_int_equal(fetch(&script, 150, &token, &size_bytes, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, client->endpoint));
    assert_true(script.call_count > 0);
    assert_null(token);
    pass_token(client->session.last_request, "late", 4); /* after the end of the call */
    assert_null(client->query.answer);
}

static void test_the_daemon_dies_and_returns(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct script script = {.token = "next", .token_size = 4, .dies = true, .returns = true};
    client->reconnect = true;
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, NULL), TRAJD_OK);
    assert_memory_equal(token, "next", 4);
    free(token);
    assert_int_equal(client->session.last_request, 2);
}

static void test_the_daemon_dies_for_good(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    struct script script = {.dies = true};
    client->reconnect = true;
    assert_int_equal(fetch(&script, 200, &token, &size_bytes, &error), TRAJD_ERR_TIMEOUT);
    assert_string_equal(error.message,
                        "checkpoint: the daemon at /nonexistent/trajd is gone and did "
                        "not return within 200 ms");
    client->reconnect = false;
    client->session.was_ready = true;
    detach();
    attach(1);
    script.dies = true;
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, &error), TRAJD_ERR_CLOSED);
    assert_string_equal(error.message, "the daemon at /nonexistent/trajd ended");
}

/* The daemon is back, and waits for something before it opens the feed: the message says so. */
static void test_the_feed_does_not_return(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    client->session.phase = TRAJD_PHASE_OPENING;
    client->feed.id = 0;
    assert_int_equal(fetch(NULL, 100, &token, &size_bytes, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "did not open the feed again within 100 ms"));
    assert_int_equal(client->session.last_request, 0);
}

static void test_the_user_ends_the_wait(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    struct script script = {.cancels = true};
    assert_int_equal(fetch(&script, 60000, &token, &size_bytes, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "interrupted"));
}

static void test_calls_that_are_refused_at_once(void **state)
{
    (void)state;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
    client->feed.is_granted = false;
    assert_int_equal(fetch(NULL, 60000, &token, &size_bytes, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "open a feed first"));
    client->feed.is_granted = true;
    client->pid = getpid() + 1;
    assert_int_equal(fetch(NULL, 60000, &token, &size_bytes, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "fork"));
    client->pid = getpid();
    trajd_error_set(&error, TRAJD_ERR_CLOSED, 0, "the daemon is gone");
    trajd_session_fail(client, &error);
    memset(&error, 0, sizeof error);
    assert_int_equal(fetch(NULL, 60000, &token, &size_bytes, &error), TRAJD_ERR_CLOSED);
    assert_string_equal(error.message, "the daemon is gone");
    assert_null(token);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_caller_owns_the_token),
        TEST(test_an_empty_token_is_not_null),
        TEST(test_only_the_first_reply_counts),
        TEST(test_an_error_is_passed_on),
        TEST(test_replies_to_other_requests_are_ignored),
        TEST(test_the_daemon_dies_and_returns),
        TEST(test_the_daemon_dies_for_good),
        TEST(test_the_feed_does_not_return),
        TEST(test_the_user_ends_the_wait),
        TEST(test_calls_that_are_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
