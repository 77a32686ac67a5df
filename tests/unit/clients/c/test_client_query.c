/* ASK, through libtrajd and by hand: answered in order, at most 64 at a time, and each at most
 * once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/trajd.h"
#include "tests/support/test_producer.h"

#define CALLERS 66u /* two more than the queue holds */

static char directory[64];
static struct producer *producer;

static int start_with(bool answers_queries)
{
    struct trajd_error error;
    const struct producer_options options = {
        .directory = directory, .sessions = CALLERS + 4, .answers_queries = answers_queries};

    snprintf(directory, sizeof directory, "/tmp/trajd-asks-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    return !producer_start(&options, &producer, &error) ? 0 : -1;
}

static int start(void **state)
{
    (void)state;
    return start_with(true);
}

static int start_without_queries(void **state)
{
    (void)state;
    return start_with(false);
}

static int stop(void **state)
{
    char path[96];

    (void)state;
    producer_stop(&producer);
    snprintf(path, sizeof path, "%s/lock", directory);
    unlink(path);
    return rmdir(directory);
}

struct caller {
    pthread_t thread;
    struct trajd_client *client;
    struct trajd_question question;
    uint32_t timeout_ms;
    enum trajd_status status;
    char *json;
    struct trajd_error error;
};

static void connect_caller(struct caller *caller)
{
    const struct trajd_connect_options options = {.endpoint = directory, .timeout_ms = 60000};

    assert_int_equal(trajd_client_connect(&options, &caller->client, &caller->error), TRAJD_OK);
}

static void *call(void *context)
{
    struct caller *caller = context;

    const enum trajd_status status = trajd_client_ask(
        caller->client, &caller->question, caller->timeout_ms, &caller->json, &caller->error);

    __atomic_store_n(&caller->status, status, __ATOMIC_RELEASE);
    return NULL;
}

static void begin(struct caller *caller)
{
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void end(struct caller *caller)
{
    pthread_join(caller->thread, NULL);
}

static void take(struct trajd_query *query)
{
    assert_int_equal(trajd_server_take_query(producer_server(producer), 60000, query), TRAJD_OK);
}

static void test_a_question_is_answered(void **state)
{
    struct caller caller = {.question = {.what = "explain",
                                         .name = "obs/x",
                                         .window = UINT64_MAX,
                                         .first = 7,
                                         .count = 9,
                                         .feed_id = 3},
                            .timeout_ms = 60000};
    struct trajd_query query;

    (void)state;
    connect_caller(&caller);
    begin(&caller);
    take(&query);
    assert_string_equal(query.what, "explain");
    assert_string_equal(query.name, "obs/x");
    assert_true(query.window == UINT64_MAX && query.first == 7 && query.count == 9 &&
                query.feed_id == 3);
    trajd_server_answer_query(producer_server(producer), query.id, "{\"a\":1}", 7, NULL);
    end(&caller);
    assert_int_equal(caller.status, TRAJD_OK);
    assert_string_equal(caller.json, "{\"a\":1}");
    free(caller.json);

    begin(&caller);
    take(&query);
    struct trajd_error refusal;
    trajd_error_set(&refusal, TRAJD_ERR_NOT_FOUND, 0, "no such window");
    trajd_server_answer_query(producer_server(producer), query.id, NULL, 0, &refusal);
    end(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_NOT_FOUND);
    assert_null(caller.json);
    assert_string_equal(caller.error.message, "no such window");
    trajd_client_close(&caller.client);
}

static void test_the_default_is_the_open_feed(void **state)
{
    struct caller caller = {.question = {.what = "episodes"}, .timeout_ms = 60000};
    const struct trajd_open_options open = {.feed = "train"};
    static char long_name[200];
    struct trajd_query query;

    (void)state;
    connect_caller(&caller);
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_ARGUMENT); /* no feed is open */
    assert_int_equal(trajd_client_open(caller.client, &open, &caller.error), TRAJD_OK);
    begin(&caller);
    take(&query);
    assert_int_equal(query.feed_id, 1);
    assert_string_equal(query.name, "");
    trajd_server_answer_query(producer_server(producer), query.id, "{}", 2, NULL);
    end(&caller);
    assert_int_equal(caller.status, TRAJD_OK);
    free(caller.json);
    memset(long_name, 'x', sizeof long_name - 1);
    caller.question.name = long_name;
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_ARGUMENT);
    caller.question = (struct trajd_question){.what = "", .feed_id = 1};
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_ARGUMENT);
    trajd_client_close(&caller.client);
}

/* The queue holds 64 questions. Two more callers get TRAJD_ERR_BUSY at once, and no question is
 * lost. */
static void test_too_many_are_refused(void **state)
{
    static struct caller callers[CALLERS];
    struct trajd_server *server = producer_server(producer);
    uint32_t busy = 0, answered = 0;
    struct trajd_query query;

    (void)state;
    for (uint32_t i = 0; i < CALLERS; i++) {
        callers[i].question = (struct trajd_question){.what = "explain", .window = i, .feed_id = 1};
        callers[i].timeout_ms = 60000;
        connect_caller(&callers[i]);
        begin(&callers[i]);
    }
    for (uint64_t last = 0; answered < CALLERS - 2; answered++) {
        char text[32];
        /* the refused callers have returned before the first answer makes room in the queue */
        if (!answered)
            for (uint32_t refused = 0; refused < 2; usleep(1000)) {
                refused = 0;
                for (uint32_t i = 0; i < CALLERS; i++)
                    refused +=
                        __atomic_load_n(&callers[i].status, __ATOMIC_ACQUIRE) == TRAJD_ERR_BUSY;
            }
        take(&query);
        assert_true(query.id > last); /* in order */
        last = query.id;
        snprintf(text, sizeof text, "%llu", (unsigned long long)query.window);
        trajd_server_answer_query(server, query.id, text, strlen(text), NULL);
    }
    assert_int_equal(trajd_server_take_query(server, 1, &query), TRAJD_ERR_TIMEOUT);
    for (uint32_t i = 0; i < CALLERS; i++) {
        end(&callers[i]);
        busy += callers[i].status == TRAJD_ERR_BUSY;
        if (!callers[i].status)
            /* each caller gets its own answer */
            assert_int_equal(strtoul(callers[i].json, NULL, 10), i);
        free(callers[i].json);
        trajd_client_close(&callers[i].client);
    }
    assert_int_equal(busy, 2);
}

static void test_the_query_service_may_be_gone(void **state)
{
    struct caller caller = {.question = {.what = "explain", .feed_id = 1}, .timeout_ms = 1};
    struct trajd_query query;

    (void)state;
    connect_caller(&caller);
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_TIMEOUT);
    take(&query);
    trajd_client_close(&caller.client);
    trajd_server_answer_query(producer_server(producer), query.id, "{}", 2, NULL);
    connect_caller(&caller); /* a late answer goes to no other caller */
    caller.timeout_ms = 60000;
    begin(&caller);
    take(&query);
    trajd_server_answer_query(producer_server(producer), query.id, "[]", 2, NULL);
    end(&caller);
    assert_string_equal(caller.json, "[]");
    free(caller.json);
    trajd_client_close(&caller.client);
}

static void test_the_end(void **state)
{
    struct caller caller = {.question = {.what = "explain", .feed_id = 1}, .timeout_ms = 60000};
    struct trajd_query query;

    (void)state;
    connect_caller(&caller);
    trajd_server_close_queries(producer_server(producer));
    assert_int_equal(trajd_server_take_query(producer_server(producer), 60000, &query),
                     TRAJD_ERR_CLOSED);
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_CLOSED);
    trajd_client_close(&caller.client);
}

static void test_a_server_without_a_query_service(void **state)
{
    struct caller caller = {.question = {.what = "explain", .feed_id = 1}, .timeout_ms = 60000};

    (void)state;
    connect_caller(&caller);
    call(&caller);
    assert_int_equal(caller.status, TRAJD_ERR_UNSUPPORTED);
    trajd_client_close(&caller.client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_question_is_answered, start, stop),
        cmocka_unit_test_setup_teardown(test_the_default_is_the_open_feed, start, stop),
        cmocka_unit_test_setup_teardown(test_too_many_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_the_query_service_may_be_gone, start, stop),
        cmocka_unit_test_setup_teardown(test_the_end, start, stop),
        cmocka_unit_test_setup_teardown(test_a_server_without_a_query_service,
                                        start_without_queries, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
