/* Endpoints and keys of a link, before anything is connected. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/c/link/link.h"
#include "proto/array_len.h"

#define PUBLIC "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define SECRET "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

static char directory[64], key_path[128];

static enum trajd_status create(const char *endpoint, const char *key_file, const char *server_key,
                                struct trajd_link *link, struct trajd_error *error)
{
    return trajd_link_create(link,
                             &(struct trajd_link_options){.endpoint = endpoint,
                                                          .key_file = key_file,
                                                          .server_key = server_key},
                             error);
}

static void assert_refused(const char *endpoint, const char *key_file, const char *server_key,
                           const char *message)
{
    struct trajd_link link;
    struct trajd_error error;
    assert_int_equal(create(endpoint, key_file, server_key, &link, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, message));
    assert_null(link.context); /* destroyed */
    assert_int_equal(link.fd, -1);
}

static void test_a_directory_is_a_local_endpoint(void **state)
{
    (void)state;
    struct trajd_link link;
    struct trajd_error error;
    assert_int_equal(create("/run/trajd/main", NULL, NULL, &link, &error), TRAJD_OK);
    assert_false(link.remote);
    assert_string_equal(link.feed_endpoint, "ipc:///run/trajd/main/feed.sock");
    assert_string_equal(link.fd_path, "/run/trajd/main/fd.sock");
    assert_int_equal(trajd_link_poll_fd(&link), -1); /* not dialled */
    assert_string_equal(trajd_link_handshake_error(&link), "");
    trajd_link_destroy(&link);
    trajd_link_destroy(&link); /* a destroyed one is fine */
}

static void test_a_long_path_is_refused(void **state)
{
    (void)state;
    char path[200];
    struct trajd_link link;
    struct trajd_error error;
    memset(path, 'd', sizeof path);
    path[0] = '/';
    path[107 - strlen("/feed.sock")] = '\0'; /* 107 bytes and a NUL: the most of sun_path */
    assert_int_equal(create(path, NULL, NULL, &link, &error), TRAJD_OK);
    trajd_link_destroy(&link);
    strcat(path, "d");
    assert_refused(path, NULL, NULL, "107");
}

static void test_addresses_of_this_machine_need_no_key(void **state)
{
    (void)state;
    const char *const good[] = {"tcp://127.0.0.1:1", "tcp://localhost:65535", "tcp://[::1]:7000"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct trajd_link link;
        struct trajd_error error;
        assert_true(trajd_link_is_remote_endpoint(good[i]));
        assert_int_equal(create(good[i], NULL, NULL, &link, &error), TRAJD_OK);
        assert_true(link.remote);
        assert_false(link.curve);
        assert_string_equal(link.feed_endpoint, good[i]);
        trajd_link_destroy(&link);
    }
}

static void test_malformed_addresses_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {"tcp://",
                               "tcp://localhost",
                               "tcp://:7000",
                               "tcp://localhost:",
                               "tcp://localhost:0",
                               "tcp://localhost:65536",
                               "tcp://localhost:99999999999999999999",
                               "tcp://localhost:70x",
                               "tcp://localhost:-1",
                               "tcp://localhost:+1",
                               "tcp://localhost: 1",
                               "tcp://*:7000",
                               "tcp://localhost;127.0.0.1:7000",
                               "tcp://localhost/main:7000"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_refused(bad[i], NULL, NULL, "tcp://HOST:PORT");
}

static void test_only_the_scheme_makes_an_endpoint_remote(void **state)
{
    (void)state;
    assert_true(trajd_link_is_remote_endpoint("tcp://anything"));
    assert_false(trajd_link_is_remote_endpoint("tcp:/run"));
    assert_false(trajd_link_is_remote_endpoint("TCP://host:1"));
    assert_false(trajd_link_is_remote_endpoint("localhost:7000"));
    assert_false(trajd_link_is_remote_endpoint(""));
}

static void test_other_machines_need_a_key(void **state)
{
    (void)state;
    assert_refused("tcp://node7:7000", NULL, NULL, "trajctl keygen");
    assert_refused("tcp://node7:7000", "", NULL, "trajctl keygen");
    assert_refused("tcp://127.0.0.2:7000", NULL, NULL, "trajctl keygen");
    assert_refused("tcp://localhost.evil.org:7000", NULL, NULL, "trajctl keygen");
}

static void write_key(const char *server_key)
{
    struct trajd_key_file keys = {.name = "worker", .public_key = PUBLIC, .secret_key = SECRET};
    snprintf(keys.server_key, sizeof keys.server_key, "%s", server_key);
    unlink(key_path);
    assert_int_equal(trajd_key_write(key_path, &keys, NULL), TRAJD_OK);
}

static void test_keys_are_read_and_wiped(void **state)
{
    (void)state;
    struct trajd_link link;
    struct trajd_error error;
    write_key(PUBLIC);
    assert_int_equal(create("tcp://node7:7000", key_path, NULL, &link, &error), TRAJD_OK);
    assert_true(link.curve);
    assert_string_equal(link.keys.secret_key, SECRET);
    assert_string_equal(link.keys.server_key, PUBLIC);
    trajd_link_destroy(&link);
    assert_string_equal(link.keys.secret_key, "");
    /* an explicit server key replaces the one in the file */
    assert_int_equal(create("tcp://node7:7000", key_path, SECRET, &link, &error), TRAJD_OK);
    assert_string_equal(link.keys.server_key, SECRET);
    trajd_link_destroy(&link);
}

static void test_bad_keys_are_refused(void **state)
{
    (void)state;
    struct trajd_link link;
    write_key("");
    assert_refused("tcp://node7:7000", key_path, NULL, "server-key");
    assert_refused("tcp://node7:7000", key_path, "short", "server_key");
    unlink(key_path);
    assert_true(create("tcp://node7:7000", key_path, NULL, &link, NULL) != TRAJD_OK);
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-link-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(key_path, sizeof key_path, "%s/worker.key", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(key_path);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_directory_is_a_local_endpoint),
        cmocka_unit_test(test_a_long_path_is_refused),
        cmocka_unit_test(test_addresses_of_this_machine_need_no_key),
        cmocka_unit_test(test_malformed_addresses_are_refused),
        cmocka_unit_test(test_only_the_scheme_makes_an_endpoint_remote),
        cmocka_unit_test(test_other_machines_need_a_key),
        cmocka_unit_test(test_keys_are_read_and_wiped),
        cmocka_unit_test(test_bad_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
