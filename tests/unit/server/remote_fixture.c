/* Makes keys, and starts a server with a tcp listener and its workers. */
#include "remote_fixture.h"

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
#include <zmq.h>

#include "daemon/base/clock.h"
#include "proto/key_file.h"
#include "tests/support/client_facts.h"

char directory[32], keys[64], alice[96], mallory[96];
struct producer *producer;
const char *endpoint;
uint64_t payload_bytes = PAYLOAD, length = LENGTH;

/* ---- a server ---- */

static void write_pair(const char *folder, const char *name, const char *secret_path,
                       const char *server_key, char public_key[TRAJD_KEY_SIZE])
{
    struct trajd_key_file pair = {.name = ""};
    struct trajd_error error;
    char path[160];
    snprintf(pair.name, sizeof pair.name, "%s", name);
    snprintf(pair.server_key, sizeof pair.server_key, "%s", server_key);
    assert_int_equal(zmq_curve_keypair(pair.public_key, pair.secret_key), 0);
    memcpy(public_key, pair.public_key, TRAJD_KEY_SIZE);
    assert_int_equal(trajd_key_write(secret_path, &pair, &error), TRAJD_OK);
    memset(pair.secret_key, 0, sizeof pair.secret_key);
    snprintf(path, sizeof path, "%s/%s.key", folder, name);
    if (folder[0] != '\0')
        assert_int_equal(trajd_key_write(path, &pair, &error), TRAJD_OK);
}

static void make_keys(void)
{
    char clients[96], path[96], server_key[TRAJD_KEY_SIZE], other[TRAJD_KEY_SIZE];
    snprintf(keys, sizeof keys, "%s/keys", directory);
    snprintf(clients, sizeof clients, "%s/clients", keys);
    assert_int_equal(mkdir(keys, 0700), 0);
    assert_int_equal(mkdir(clients, 0700), 0);
    snprintf(path, sizeof path, "%s/server.key_secret", keys);
    write_pair("", "server", path, "", server_key);
    snprintf(alice, sizeof alice, "%s/alice.key_secret", keys);
    write_pair(clients, "alice", alice, server_key, other);
    snprintf(mallory, sizeof mallory, "%s/mallory.key_secret", keys);
    write_pair("", "mallory", mallory, server_key, other);
}

int make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/trajd-remote-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    make_keys();
    return 0;
}

int start_with(struct producer_options options)
{
    struct trajd_error error;
    options.directory = directory;
    options.tcp = "127.0.0.1:0";
    options.length = length;
    options.payload_bytes = payload_bytes;
    options.silence_ms = options.silence_ms > 0 ? options.silence_ms : SILENCE_MS;
    if (producer_start(&options, &producer, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    endpoint = trajd_server_remote_endpoint(producer_server(producer));
    return 0;
}

int start(void **state)
{
    (void)state;
    return make_directory() != 0 ? -1 : start_with((struct producer_options){.keys = keys});
}

int start_insecurely(void **state)
{
    (void)state;
    return make_directory() != 0 ? -1 : start_with((struct producer_options){.sessions = 3});
}

int stop(void **state)
{
    char command[96];
    (void)state;
    producer_stop(&producer);
    payload_bytes = PAYLOAD;
    length = LENGTH;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

/* ---- workers ---- */

struct trajd_client *connect_to(const char *where, const char *key_file)
{
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = where, .key_file = key_file};
    if (trajd_client_connect(&options, &client, &error))
        fail_msg("%s", error.message);
    return client;
}

void open_feed(struct trajd_client *client, struct trajd_open_options options)
{
    struct trajd_error error;
    options.feed = "train";
    if (trajd_client_open(client, &options, &error))
        fail_msg("%s", error.message);
}

void check_values(const struct trajd_batch *batch)
{
    struct trajd_batch_info info;
    trajd_batch_get_info(batch, &info);
    const struct trajd_tensor *ids = trajd_batch_find(batch, "window_id");
    const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
    const struct trajd_tensor *payload = trajd_batch_find(batch, "obs/payload");
    assert_int_equal(ids->shape[0], info.row_count);
    assert_int_equal(payload->shape[0], info.row_count);
    assert_int_equal(payload->strides_bytes[0], payload_bytes);
    if (info.row_begin == 0)
        assert_int_equal((uintptr_t)payload->data % 64 + (uintptr_t)actions->data % 64, 0);
    for (uint32_t row = 0; row < info.row_count; row++) {
        const uint64_t window =
            producer_window(info.epoch, info.position + info.row_begin + row, length);
        assert_int_equal(((const int64_t *)ids->data)[row], window);
        for (uint32_t column = 0; column < PRODUCER_COLUMNS; column++)
            assert_true(((const float *)actions->data)[row * PRODUCER_COLUMNS + column] ==
                        producer_value(info.epoch, window, column));
    }
    /* the memory belongs to the worker, which may write to it */
    memset(payload->data, 1, info.row_count * payload_bytes);
}

uint32_t read_epoch(struct trajd_client *client)
{
    struct trajd_batch *batch;
    struct trajd_error error;
    enum trajd_status status;
    uint32_t rows = 0;
    while (!(status = trajd_client_next(client, 60000, &batch, &error))) {
        struct trajd_batch_info info;
        trajd_batch_get_info(batch, &info);
        check_values(batch);
        rows += info.row_count;
        trajd_batch_release(&batch);
    }
    if (status != TRAJD_END_OF_EPOCH)
        fail_msg("%s", error.message);
    return rows;
}

uint64_t status_number(const char *name)
{
    struct trajd_client *client = connect_to(directory, NULL);
    const uint64_t value = number_in_status(client, name);

    trajd_client_close(&client);
    return value;
}

void wait_for_status(const char *name, uint64_t least)
{
    const int64_t end_ns = trajd_now_ns() + INT64_C(60000000000);
    while (status_number(name) < least) {
        assert_true(trajd_now_ns() < end_ns);
        usleep(5000);
    }
}
