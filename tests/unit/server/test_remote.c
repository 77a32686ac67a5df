/* Remote workers of libtrajd and a real server: the same batches as for local workers, keys, and
 * listeners that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/array_len.h"
#include "proto/key_file.h"
#include "remote_fixture.h"

static void test_a_remote_worker_gets_the_same_batches(void **state)
{
    (void)state;
    struct trajd_client *client = connect_to(endpoint, alice);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        open_feed(client, (struct trajd_open_options){.epoch = epoch});
        assert_int_equal(read_epoch(client), LENGTH);
    }
    trajd_client_close(&client);
    /* the server has received BYE and all messages before it */
    assert_int_equal(status_number("windows_done"), 2 * LENGTH);
    assert_int_equal(status_number("dead_sessions"), 0);
}

static void test_local_and_remote_ranks(void **state)
{
    (void)state;
    struct trajd_client *ranks[3];
    struct trajd_batch *batch;
    struct trajd_error error;
    uint32_t rows = 0;
    for (uint32_t r = 0; r < 3; r++) {
        ranks[r] = r == 1 ? connect_to(directory, NULL) : connect_to(endpoint, alice);
        open_feed(ranks[r],
                  (struct trajd_open_options){.mode = TRAJD_MODE_SHARD, .rank = r, .world = 3});
    }
    for (uint64_t position = 0; position < LENGTH; position += BATCH)
        for (uint32_t r = 0; r < 3; r++) {
            struct trajd_batch_info info;
            assert_int_equal(trajd_client_next(ranks[r], 60000, &batch, &error), TRAJD_OK);
            trajd_batch_get_info(batch, &info);
            assert_int_equal(info.position, position);
            assert_int_equal(info.row_begin, BATCH * r / 3);
            check_values(batch);
            rows += info.row_count;
            trajd_batch_release(&batch);
        }
    assert_int_equal(rows, LENGTH);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(trajd_client_next(ranks[r], 60000, &batch, &error), TRAJD_END_OF_EPOCH);
        trajd_client_close(&ranks[r]);
    }
}

static enum trajd_status try_connect(const char *key_file, const char *server_key,
                                     struct trajd_error *error)
{
    struct trajd_client *client = NULL;
    const struct trajd_connect_options options = {
        .endpoint = endpoint, .key_file = key_file, .server_key = server_key, .timeout_ms = 700};
    enum trajd_status status = trajd_client_connect(&options, &client, error);
    trajd_client_close(&client);
    return status;
}

static void test_only_known_keys_may_connect(void **state)
{
    (void)state;
    struct trajd_error error;
    char from[160], to[160];
    struct trajd_key_file pair;
    assert_int_equal(try_connect(NULL, NULL, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "requires a key file (CURVE)"));
    assert_int_equal(try_connect(mallory, NULL, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "does not know the key"));
    assert_true(status_number("refused_keys") >= 1);
    assert_int_equal(trajd_key_read(mallory, &pair, &error), TRAJD_OK);
    /* the key of another server */
    assert_int_equal(try_connect(alice, pair.public_key, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "handshake"));
    /* a worker is admitted and shut out again without a restart */
    memset(pair.secret_key, 0, sizeof pair.secret_key);
    snprintf(to, sizeof to, "%s/clients/mallory.key", keys);
    snprintf(from, sizeof from, "%s/clients/broken.key", keys);
    FILE *broken = fopen(from, "w");
    assert_non_null(broken);
    fclose(broken);
    assert_int_equal(trajd_key_write(to, &pair, &error), TRAJD_OK);
    assert_int_equal(try_connect(mallory, NULL, &error), TRAJD_OK);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(try_connect(mallory, NULL, &error), TRAJD_ERR_TIMEOUT);
    assert_int_equal(try_connect(alice, NULL, &error), TRAJD_OK);
}

static void test_bad_endpoints_and_keys_are_refused(void **state)
{
    (void)state;
    static const char *const endpoints[] = {"tcp://",
                                            "tcp://localhost",
                                            "tcp://:7878",
                                            "tcp://localhost:0",
                                            "tcp://localhost:70000",
                                            "tcp://localhost:http",
                                            "tcp://127.0.0.1;10.0.0.1:7878",
                                            "tcp://*:7878"};
    struct trajd_client *client = NULL;
    struct trajd_error error;
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++)
        assert_int_equal(
            trajd_client_connect(&(struct trajd_connect_options){.endpoint = endpoints[i]}, &client,
                                 &error),
            TRAJD_ERR_ARGUMENT);
    assert_int_equal(
        trajd_client_connect(&(struct trajd_connect_options){.endpoint = "tcp://10.0.0.1:7878"},
                             &client, &error),
        TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "keygen"));
    assert_int_equal(try_connect("/nonexistent", NULL, &error), TRAJD_ERR_NOT_FOUND);
    assert_int_equal(try_connect(alice, "short", &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(chmod(alice, 0644), 0);
    assert_int_equal(try_connect(alice, NULL, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "chmod 600"));
}

static void refuse_server(const char *address, const char *from, bool insecure, const char *quoted)
{
    struct trajd_server *server = NULL;
    struct trajd_error error;
    const struct trajd_server_options options = {
        .runtime_directory = directory,
        .max_sessions = 4,
        .instance_id = 1,
        .remote = {
            .address = address, .keys = from, .insecure_loopback = insecure, .silence_ms = 1000}};
    assert_int_not_equal(trajd_server_create(&options, &server, &error), TRAJD_OK);
    if (!strstr(error.message, quoted))
        fail_msg("%s", error.message);
}

static int make_directory_only(void **state)
{
    (void)state;
    return make_directory();
}

static int remove_directory_only(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

static void test_invalid_listeners_are_refused(void **state)
{
    (void)state;
    char path[128];
    refuse_server("127.0.0.1:0", NULL, false, "keygen");
    refuse_server("0.0.0.0:0", NULL, true, "insecure_loopback");
    refuse_server("0.0.0.0:0", keys, true, "insecure_loopback");
    refuse_server("localhost:7878", keys, false, "ADDRESS:PORT");
    refuse_server("127.0.0.1", keys, false, "ADDRESS:PORT");
    refuse_server("[127.0.0.1]:7878", keys, false, "ADDRESS:PORT");
    refuse_server("127.0.0.1:66666", keys, false, "ADDRESS:PORT");
    refuse_server("::1:7878", keys, false, "ADDRESS:PORT");
    refuse_server("127.0.0.1:0", "/nonexistent", false, "/nonexistent/server.key_secret");
    snprintf(path, sizeof path, "%s/clients/bob.key", keys);
    FILE *file = fopen(path, "w");
    fputs("nonsense\n", file);
    fclose(file);
    refuse_server("127.0.0.1:0", keys, false, "clients/bob.key");
    unlink(path);
    snprintf(path, sizeof path, "%s/server.key_secret", keys);
    chmod(path, 0640);
    refuse_server("127.0.0.1:0", keys, false, "chmod 600");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_remote_worker_gets_the_same_batches, start, stop),
        cmocka_unit_test_setup_teardown(test_local_and_remote_ranks, start, stop),
        cmocka_unit_test_setup_teardown(test_only_known_keys_may_connect, start, stop),
        cmocka_unit_test_setup_teardown(test_bad_endpoints_and_keys_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_invalid_listeners_are_refused, make_directory_only,
                                        remove_directory_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
