/* Raw peers on tcp: slots that are still being sent, garbage, silence, and floods. */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
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
#include "proto/array_len.h"
#include "proto/key_file.h"
#include "proto/wire.h"
#include "remote_fixture.h"
#include "tests/support/processes.h"

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
    const int no_linger = 0, timeout_ms = 60000;
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
    const int64_t end_ns = trajd_now_ns() + INT64_C(60000000000);
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
    assert_true(trajd_now_ns() - begin_ns < INT64_C(20000000000));
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
    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
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
        zmq_send(peer->dealer, "nonsense", 8, 0);
    }
    wait_for_status("dropped_messages", dropped + 16);
    zmq_send(peer->dealer, "nonsense", 8, ZMQ_SNDMORE); /* ends this connection */
    zmq_send(peer->dealer, "nonsense", 8, 0);
    wait_for_status("cut_connections", 1);
    char *large = calloc(1, TRAJD_WIRE_MAX_FRAME + 4096); /* ends the next one */
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

/* What CURVE adds to each frame is taken for received, too. */
static void test_many_encrypted_messages(void **state)
{
    enum { ROUNDS = 300, BURST = 100 }; /* fewer than may wait to be sent */
    const int timeout_ms = 60000, no_linger = 0;
    const struct trajd_wire_message ping = {.op = TRAJD_WIRE_PING, .ping = {.time = 1}};
    struct trajd_key_file pair;
    struct peer *peer = calloc(1, sizeof *peer);
    const uint64_t cut = status_number("cut_connections");

    (void)state;
    peer->context = zmq_ctx_new();
    peer->dealer = zmq_socket(peer->context, ZMQ_DEALER);
    assert_int_equal(trajd_key_read(alice, &pair, NULL), TRAJD_OK);
    zmq_setsockopt(peer->dealer, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(peer->dealer, ZMQ_LINGER, &no_linger, sizeof no_linger);
    zmq_setsockopt(peer->dealer, ZMQ_CURVE_SERVERKEY, pair.server_key, TRAJD_KEY_SIZE);
    zmq_setsockopt(peer->dealer, ZMQ_CURVE_PUBLICKEY, pair.public_key, TRAJD_KEY_SIZE);
    zmq_setsockopt(peer->dealer, ZMQ_CURVE_SECRETKEY, pair.secret_key, TRAJD_KEY_SIZE);
    assert_int_equal(zmq_connect(peer->dealer, endpoint), 0);
    peer_hello(peer);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t k = 0; k < BURST; k++)
            peer_send(peer, &ping);
        for (uint32_t k = 0; k < BURST; k++)
            peer_receive(peer, TRAJD_WIRE_PONG);
    }
    assert_int_equal(status_number("cut_connections"), cut);
    /* CURVE hides that further frames follow: the server discards them, and cuts the peer */
    const uint64_t dropped = status_number("dropped_messages");
    for (uint32_t i = 0; i < 10 * BURST; i++)
        assert_int_equal(zmq_send(peer->dealer, "", 0, i < 10 * BURST - 1 ? ZMQ_SNDMORE : 0), 0);
    wait_for_status("cut_connections", cut + 1);
    assert_int_equal(status_number("dropped_messages"), dropped + 1);
    peer_close(peer);
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
    assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_OK);
    const int64_t end_ns = trajd_now_ns() + 2 * (int64_t)SILENCE_MS * INT64_C(1000000);
    while (trajd_now_ns() < end_ns)
        usleep(10000);
    check_values(batch);
    trajd_batch_release(&batch);
    assert_int_equal(status_number("silent_sessions"), 1);
    trajd_client_close(&client);
}

/* ---- a flood, against a process with few descriptors ---- */

/* The flood lasts until a local worker has read an epoch: only the tcp listener is closed. The ring
 * is read-only, so a remote worker can read it after the local one. */
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
                                          "descriptors=256 sessions=16 length=400 jobs=2 "
                                          "tcp=127.0.0.1:0");
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
    snprintf(line, sizeof line, "%s/lock", path);
    assert_int_equal(unlink(line), 0);
    assert_int_equal(rmdir(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test_setup_teardown(test_many_encrypted_messages, start, stop),
        cmocka_unit_test_setup_teardown(test_more_sessions_than_allowed, start_insecurely, stop),
        cmocka_unit_test_setup_teardown(test_a_silent_session_ends, start_insecurely, stop),
        cmocka_unit_test(test_a_flood_of_connections_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
