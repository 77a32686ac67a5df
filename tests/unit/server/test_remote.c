/* Remote workers and a real server: the same batches as for local workers, keys, and peers that
 * break the protocol. */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "daemon/base/clock.h"
#include "daemon/server/slot_sends.h"
#include "proto/key_file.h"
#include "proto/wire.h"
#include "tests/support/processes.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

#define LENGTH 400u
#define BATCH 8u
#define PAYLOAD 70000u /* bytes of a row, so that a batch has several frames */
#define LARGE 1000000u /* bytes of a row, more than the buffers of sockets */
#define WIDE 1024u
#define SILENCE_MS 1500u

static char directory[32], keys[64], alice[96], mallory[96];
static struct producer *producer;
static const char *endpoint;
/* of the feed: bytes of a row, and positions of an epoch */
static uint64_t payload_bytes = PAYLOAD, length = LENGTH;

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

static int make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/trajd-remote-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    make_keys();
    return 0;
}

static int start_with(struct producer_options options)
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

static int start(void **state)
{
    (void)state;
    return make_directory() != 0 ? -1 : start_with((struct producer_options){.keys = keys});
}

static int start_insecurely(void **state)
{
    (void)state;
    return make_directory() != 0 ? -1 : start_with((struct producer_options){.sessions = 3});
}

static int stop(void **state)
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

static struct trajd_client *connect_to(const char *where, const char *key_file)
{
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = where, .key_file = key_file};
    if (trajd_client_connect(&options, &client, &error))
        fail_msg("%s", error.message);
    return client;
}

static void open_feed(struct trajd_client *client, struct trajd_open_options options)
{
    struct trajd_error error;
    options.feed = "train";
    if (trajd_client_open(client, &options, &error))
        fail_msg("%s", error.message);
}

static void check_values(const struct trajd_batch *batch)
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

static uint32_t read_epoch(struct trajd_client *client)
{
    struct trajd_batch *batch;
    struct trajd_error error;
    enum trajd_status status;
    uint32_t rows = 0;
    while (!(status = trajd_client_next(client, 20000, &batch, &error))) {
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

static uint64_t status_number(const char *name)
{
    struct trajd_client *client = connect_to(directory, NULL);
    char *json, pattern[64];
    struct trajd_error error;
    if (trajd_client_status(client, 10000, &json, &error))
        fail_msg("%s", error.message);
    snprintf(pattern, sizeof pattern, "\"%s\":", name);
    const char *found = strstr(json, pattern);
    assert_non_null(found);
    uint64_t value = strtoull(found + strlen(pattern), NULL, 10);
    free(json);
    trajd_client_close(&client);
    return value;
}

static void wait_for_status(const char *name, uint64_t least)
{
    const int64_t end_ns = trajd_now_ns() + INT64_C(20000000000);
    while (status_number(name) < least) {
        assert_true(trajd_now_ns() < end_ns);
        usleep(5000);
    }
}

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
            assert_int_equal(trajd_client_next(ranks[r], 20000, &batch, &error), TRAJD_OK);
            trajd_batch_get_info(batch, &info);
            assert_int_equal(info.position, position);
            assert_int_equal(info.row_begin, BATCH * r / 3);
            check_values(batch);
            rows += info.row_count;
            trajd_batch_release(&batch);
        }
    assert_int_equal(rows, LENGTH);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(trajd_client_next(ranks[r], 20000, &batch, &error), TRAJD_END_OF_EPOCH);
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
    assert_non_null(strstr(error.message, "a daemon with CURVE"));
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
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
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

/* ---- raw peers ---- */

struct peer {
    void *context, *dealer;
    unsigned char frame[TRAJD_WIRE_MAX_FRAME];
    struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    struct trajd_wire_message received;
    size_t payload_size; /* behind the message */
    unsigned char payload[BATCH * LARGE + 65536];
};

static struct peer *peer_connect(void)
{
    const int no_linger = 0, timeout_ms = 20000;
    struct peer *peer = calloc(1, sizeof *peer);
    peer->context = zmq_ctx_new();
    peer->dealer = zmq_socket(peer->context, ZMQ_DEALER);
    zmq_setsockopt(peer->dealer, ZMQ_LINGER, &no_linger, sizeof no_linger);
    zmq_setsockopt(peer->dealer, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    assert_int_equal(zmq_connect(peer->dealer, endpoint), 0);
    return peer;
}

/* Connects with small buffers, so that ZeroMQ reads only a message or two ahead. */
static struct peer *peer_connect_slowly(void)
{
    const int one = 1, small = 65536;
    struct peer *peer = peer_connect();
    zmq_disconnect(peer->dealer, endpoint);
    zmq_setsockopt(peer->dealer, ZMQ_RCVHWM, &one, sizeof one);
    zmq_setsockopt(peer->dealer, ZMQ_RCVBUF, &small, sizeof small);
    assert_int_equal(zmq_connect(peer->dealer, endpoint), 0);
    return peer;
}

static void peer_close(struct peer *peer)
{
    zmq_close(peer->dealer);
    zmq_ctx_term(peer->context);
    free(peer);
}

static void peer_send(struct peer *peer, const struct trajd_wire_message *message)
{
    size_t size;
    assert_int_equal(trajd_wire_encode(message, peer->frame, sizeof peer->frame, &size, NULL),
                     TRAJD_OK);
    assert_int_equal(zmq_send(peer->dealer, peer->frame, size, 0), size);
}

/* Decodes the message in `frame`, and receives the payload behind it. */
static void peer_take(struct peer *peer, size_t frame_size)
{
    uint64_t request;
    int more = 1, size;
    size_t more_size = sizeof more;
    assert_int_equal(
        trajd_wire_decode(peer->frame, frame_size, peer->tensors, &peer->received, &request, NULL),
        TRAJD_OK);
    peer->payload_size = 0;
    while (zmq_getsockopt(peer->dealer, ZMQ_RCVMORE, &more, &more_size) == 0 && more) {
        size = zmq_recv(peer->dealer, peer->payload + peer->payload_size,
                        sizeof peer->payload - peer->payload_size, 0);
        assert_in_range(size, 1, TRAJD_WIRE_MAX_PAYLOAD_FRAME);
        peer->payload_size += (size_t)size;
        assert_in_range(peer->payload_size, 1, sizeof peer->payload);
    }
}

static void peer_receive(struct peer *peer, enum trajd_wire_op op)
{
    int size = zmq_recv(peer->dealer, peer->frame, sizeof peer->frame, 0);
    assert_true(size > 0);
    peer_take(peer, (size_t)size);
    assert_int_equal(peer->received.op, op);
}

static void peer_hello(struct peer *peer)
{
    peer_send(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_HELLO, .hello = {.minor = 2}});
    peer_receive(peer, TRAJD_WIRE_WELCOME);
}

static void peer_open(struct peer *peer, uint32_t credit)
{
    peer_send(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_OPEN,
                                                 .open = {.request = 1,
                                                          .feed = trajd_wire_text("train"),
                                                          .world = 1,
                                                          .credit = credit,
                                                          .fresh = true}});
    peer_receive(peer, TRAJD_WIRE_OPENED);
}

/* Checks the payload of a BATCH, which begins with the dense tensor window_id. */
static void check_payload(const struct peer *peer)
{
    const struct trajd_wire_batch *batch = &peer->received.batch;
    int64_t id;
    assert_true(peer->payload_size > batch->row_count * payload_bytes);
    assert_int_equal(peer->payload_size % 64, 0);
    for (uint32_t row = 0; row < batch->row_count; row++) {
        memcpy(&id, peer->payload + row * sizeof id, sizeof id);
        assert_int_equal(id, producer_window(batch->epoch, batch->position + row, length));
    }
}

static void test_a_remote_token_is_refused_on_fd_sock(void **state)
{
    (void)state;
    struct peer *peer = peer_connect();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    char byte;
    peer_hello(peer);
    assert_int_equal(peer->received.welcome.silence_ms, SILENCE_MS);
    memcpy(token, peer->received.welcome.token, sizeof token);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, token, sizeof token, 0), sizeof token);
    assert_int_equal(recv(fd, &byte, 1, 0), 0); /* end of file */
    close(fd);
    peer_open(peer, 2); /* the session is unchanged */
    peer_receive(peer, TRAJD_WIRE_BATCH);
    check_payload(peer);
    /* a repeated HELLO, as if the answer was lost; then one with an unknown token */
    struct peer *other = peer_connect();
    peer_hello(other);
    const uint64_t session = other->received.welcome.session;
    peer_hello(other);
    assert_int_equal(other->received.welcome.session, session);
    struct trajd_wire_message hello = {
        .op = TRAJD_WIRE_HELLO,
        .hello = {.minor = 2, .has_token = true, .instance = 1, .token = {1, 2, 3}, .received = 9}};
    peer_send(other, &hello);
    peer_receive(other, TRAJD_WIRE_WELCOME);
    assert_false(other->received.welcome.resumed);
    peer_close(other);
    peer_close(peer);
}

static int start_large(void **state)
{
    (void)state;
    payload_bytes = LARGE;
    return make_directory() != 0 ? -1 : start_with((struct producer_options){.sessions = 3});
}

/* Starts a feed with so many rows that the ids are sent in place, not copied. */
static int start_wide(void **state)
{
    (void)state;
    payload_bytes = LARGE * BATCH / WIDE;
    length = 20 * WIDE;
    return make_directory() != 0
               ? -1
               : start_with((struct producer_options){.batch = WIDE, .silence_ms = 20000});
}

/* A peer releases slots whose bytes it has not received yet. They are FREE, but must not be filled
 * before they were sent. */
static void test_released_slots_are_not_filled_while_they_are_sent(void **state)
{
    (void)state;
    struct peer *slow = peer_connect_slowly();
    struct trajd_wire_message ack = {.op = TRAJD_WIRE_ACK};
    peer_hello(slow);
    peer_open(slow, 16);
    for (uint32_t slot = 0; slot < 6; slot++)
        ack.ack.released.list[ack.ack.released.count++] =
            (struct trajd_wire_lease){.ring = 1, .slot = slot, .generation = 1};
    wait_for_status("batches_sent", 6);
    peer_send(slow, &ack);
    wait_for_status("batches_done", 6);
    for (int i = 0; i < 10; i++) /* time for the producer to fill them by mistake */
        assert_true(status_number("lent") > 0);
    for (uint64_t position = 0; position < 6 * WIDE; position += WIDE) {
        peer_receive(slow, TRAJD_WIRE_BATCH);
        assert_int_equal(slow->received.batch.position, position);
        check_payload(slow);
    }
    peer_close(slow);
}

/* A peer gets all batches of its credit and stops reading. Its session ends, and another session
 * gets its batches. But the slots that ZeroMQ still sends are not filled again before the
 * connection was closed, too. */
static void test_slots_of_a_dead_session_are_not_filled_while_they_are_sent(void **state)
{
    (void)state;
    struct peer *slow = peer_connect_slowly();
    peer_hello(slow);
    peer_open(slow, 16);
    wait_for_status("batches_sent", 6);
    assert_in_range(status_number("lent"), 1, 6);
    wait_for_status("silent_sessions", 1);
    struct trajd_client *client = connect_to(directory, NULL);
    open_feed(client, (struct trajd_open_options){.credit = 4});
    assert_int_equal(read_epoch(client), LENGTH);
    trajd_client_close(&client);
    assert_int_equal(status_number("handed_again"), 6);
    const int64_t end_ns = trajd_now_ns() + INT64_C(20000000000);
    while (status_number("lent") > 0) {
        assert_true(trajd_now_ns() < end_ns);
        usleep(5000);
    }
    const int timeout_ms = 300;
    zmq_setsockopt(slow->dealer, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    int size;
    /* the payloads that arrived are complete */
    while ((size = zmq_recv(slow->dealer, slow->frame, sizeof slow->frame, 0)) > 0) {
        peer_take(slow, (size_t)size);
        check_payload(slow);
    }
    peer_close(slow);
}

/* The feed and the server end while ZeroMQ still sends their bytes. */
static void test_the_server_ends_while_bytes_are_in_flight(void **state)
{
    (void)state;
    struct peer *slow[2];
    for (size_t i = 0; i < 2; i++) {
        slow[i] = peer_connect();
        peer_hello(slow[i]);
        peer_open(slow[i], 8);
    }
    peer_receive(slow[0], TRAJD_WIRE_BATCH);
    check_payload(slow[0]);
    const int64_t begin_ns = trajd_now_ns();
    producer_stop(&producer);
    assert_true(trajd_now_ns() - begin_ns < INT64_C(5000000000));
    for (size_t i = 0; i < 2; i++)
        peer_close(slow[i]);
}

static int raw_socket(int flags, int *result)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    assert_true(fd >= 0);
    *result = connect(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}

static int raw_connect(void)
{
    int result, fd = raw_socket(0, &result);
    assert_int_equal(result, 0);
    return fd;
}

/* Does not wait for the connection. */
static int raw_connect_at_once(void)
{
    int result;
    return raw_socket(SOCK_NONBLOCK, &result);
}

static void test_garbage_and_silence_harm_no_worker(void **state)
{
    (void)state;
    enum { SILENT = 40 };
    static const char *const openings[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "\x16\x03\x01\x02\x00\x01", "SSH-2.0-OpenSSH_9.2\r\n",
                                           "\x01\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    int silent[SILENT];
    for (int i = 0; i < SILENT; i++) /* connections that never begin a handshake */
        silent[i] = raw_connect();
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        int fd = raw_connect();
        assert_true(send(fd, openings[i], strlen(openings[i]) + 1, MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        struct pollfd item = {.fd = fd, .events = POLLIN};
        char bytes[256];
        while (poll(&item, 1, 10000) == 1 && recv(fd, bytes, sizeof bytes, 0) > 0)
            continue;
        close(fd);
    }
    struct peer *peer = peer_connect(); /* a ZeroMQ peer that sends wrong frames */
    peer_hello(peer);
    const uint64_t dropped = status_number("dropped_messages");
    for (size_t i = 0; i < 16; i++) {
        zmq_send(peer->dealer, "TRJD\x02\x01\0\0\x80", 9, 0);
        zmq_send(peer->dealer, "nonsense", 8, ZMQ_SNDMORE);
        zmq_send(peer->dealer, "nonsense", 8, 0);
        zmq_send(peer->dealer, "nonsense", 8, 0);
    }
    wait_for_status("dropped_messages", dropped + 32);
    char *large = calloc(1, TRAJD_WIRE_MAX_FRAME + 4096); /* ends this connection only */
    zmq_send(peer->dealer, large, TRAJD_WIRE_MAX_FRAME + 4096, 0);
    free(large);
    struct trajd_client *client = connect_to(endpoint, NULL);
    open_feed(client, (struct trajd_open_options){0});
    assert_int_equal(read_epoch(client), LENGTH);
    trajd_client_close(&client);
    peer_close(peer);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
}

static void test_more_sessions_than_allowed(void **state)
{
    (void)state;
    struct peer *peers[4];
    for (size_t i = 0; i < 4; i++) {
        peers[i] = peer_connect();
        peer_send(peers[i],
                  &(struct trajd_wire_message){.op = TRAJD_WIRE_HELLO, .hello = {.minor = 2}});
        peer_receive(peers[i], i < 3 ? TRAJD_WIRE_WELCOME : TRAJD_WIRE_ERROR);
    }
    assert_int_equal(peers[3]->received.error.status, TRAJD_ERR_BUSY);
    peer_send(peers[0], &(struct trajd_wire_message){.op = TRAJD_WIRE_BYE});
    for (int i = 0; i < 100; i++) { /* until the server has received BYE */
        peer_send(peers[3],
                  &(struct trajd_wire_message){.op = TRAJD_WIRE_HELLO, .hello = {.minor = 2}});
        int size = zmq_recv(peers[3]->dealer, peers[3]->frame, sizeof(peers[3]->frame), 0);
        assert_true(size > 5);
        if (peers[3]->frame[5] == TRAJD_WIRE_WELCOME)
            break;
        assert_true(i < 99);
        usleep(1000);
    }
    for (size_t i = 0; i < 4; i++)
        peer_close(peers[i]);
}

static void test_a_silent_session_ends(void **state)
{
    (void)state;
    struct peer *peer = peer_connect();
    peer_hello(peer);
    peer_open(peer, 2);
    peer_receive(peer, TRAJD_WIRE_BATCH);
    peer_receive(peer, TRAJD_WIRE_BATCH);
    wait_for_status("silent_sessions", 1);
    assert_int_equal(status_number("handed_again"), 2);
    peer_send(peer, &(struct trajd_wire_message){.op = TRAJD_WIRE_PING, .ping = {1}});
    peer_receive(peer, TRAJD_WIRE_ERROR);
    assert_int_equal(peer->received.error.status, TRAJD_ERR_NOT_FOUND);
    peer_close(peer);
    /* libtrajd sends PING while its caller computes */
    struct trajd_client *client = connect_to(endpoint, NULL);
    struct trajd_batch *batch;
    struct trajd_error error;
    open_feed(client, (struct trajd_open_options){.credit = 2});
    assert_int_equal(trajd_client_next(client, 20000, &batch, &error), TRAJD_OK);
    const int64_t end_ns = trajd_now_ns() + 2 * (int64_t)SILENCE_MS * INT64_C(1000000);
    while (trajd_now_ns() < end_ns)
        usleep(10000);
    check_values(batch);
    trajd_batch_release(&batch);
    assert_int_equal(status_number("silent_sessions"), 1);
    trajd_client_close(&client);
}

/* ---- a flood, against a process with few descriptors ---- */

/* The flood lasts until a local worker has read an epoch: only the tcp listener is closed. */
static void test_a_flood_of_connections_is_survived(void **state)
{
    enum { FLOOD = 400 };
    (void)state;
    char path[64], line[256], where[256];
    int sockets[FLOOD];
    uint32_t batches = 0;
    snprintf(path, sizeof path, "/tmp/trajd-flood-XXXXXX");
    assert_non_null(mkdtemp(path));
    struct process daemon = process_start("fake_producer", path,
                                          "descriptors=256 sessions=16 length=400 tcp=127.0.0.1:0");
    assert_true(process_read(&daemon, line, sizeof line));
    snprintf(where, sizeof where, "%s", line + strlen("REMOTE "));
    endpoint = where;
    assert_true(process_read(&daemon, line, sizeof line));
    assert_string_equal(line, "READY");
    for (uint32_t i = 0; i < FLOOD; i++)
        sockets[i] = raw_connect_at_once();
    struct process worker = process_start("fake_worker", path, "credit=4 timeout_ms=50000");
    while (process_read(&worker, line, sizeof line) && line[0] == 'B')
        batches++;
    assert_string_equal(line, "E 0");
    assert_int_equal(batches, 50);
    assert_int_equal(process_wait(&worker), 0);
    for (uint32_t i = 0; i < FLOOD; i++)
        close(sockets[i]);
    worker = process_start("fake_worker", where, "credit=4 timeout_ms=50000 epoch=1");
    while (process_read(&worker, line, sizeof line) && line[0] == 'B')
        batches++;
    assert_string_equal(line, "E 1");
    assert_int_equal(batches, 100);
    assert_int_equal(process_wait(&worker), 0);
    process_signal(&daemon, SIGTERM);
    assert_int_equal(process_wait(&daemon), 0);
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
        cmocka_unit_test_setup_teardown(test_a_remote_token_is_refused_on_fd_sock, start_insecurely,
                                        stop),
        cmocka_unit_test_setup_teardown(
            test_slots_of_a_dead_session_are_not_filled_while_they_are_sent, start_large, stop),
        cmocka_unit_test_setup_teardown(test_released_slots_are_not_filled_while_they_are_sent,
                                        start_wide, stop),
        cmocka_unit_test_setup_teardown(test_the_server_ends_while_bytes_are_in_flight,
                                        start_insecurely, stop),
        cmocka_unit_test_setup_teardown(test_garbage_and_silence_harm_no_worker, start_insecurely,
                                        stop),
        cmocka_unit_test_setup_teardown(test_more_sessions_than_allowed, start_insecurely, stop),
        cmocka_unit_test_setup_teardown(test_a_silent_session_ends, start_insecurely, stop),
        cmocka_unit_test(test_a_flood_of_connections_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
