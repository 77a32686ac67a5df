/* Sessions over real sockets: how they attach, resume and end, and what a server needs to start and
 * survives. */
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server_fixture.h"
#include "tests/support/processes.h"

static void test_a_token_attaches_one_connection(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_welcome welcome = hello(peer);
    uint8_t wrong[16] = {1, 2, 3};
    int fd = connect_fd();
    send(fd, wrong, sizeof wrong, MSG_NOSIGNAL);
    assert_int_equal(read_fd(fd), 0);
    close(fd);
    fd = connect_fd();
    send(fd, welcome.token, 15, MSG_NOSIGNAL);
    assert_int_equal(read_fd(fd), 0);
    close(fd);
    int first = attach(&welcome);
    int second = connect_fd(); /* of another process: the session is attached already */
    send(second, welcome.token, sizeof welcome.token, MSG_NOSIGNAL);
    assert_int_equal(read_fd(second), 0);
    close(second);
    assert_int_equal(status_number(peer, "session_count"), 1);
    int silent = connect_fd();
    assert_int_equal(read_fd(silent), 0); /* after two seconds */
    close(silent);
    close(first);
    peer_close(peer);
}

static void test_a_session_is_resumed_by_its_token(void **state)
{
    (void)state;
    struct peer *peer = peer_open(), *later = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 3);
    await(peer, TRAJD_WIRE_BATCH, &message);
    const struct trajd_wire_lease held = lease_of(&message.batch);
    await(peer, TRAJD_WIRE_BATCH, &message);
    const uint64_t second = message.batch.position;
    peer_close(peer); /* as if the connection was cut; fd.sock stays */
    message = (struct trajd_wire_message){.op = TRAJD_WIRE_HELLO,
                                          .hello = {.client = trajd_wire_text("raw"),
                                                    .has_token = true,
                                                    .instance = welcome.instance,
                                                    .received = 1,
                                                    .held = {.count = 1, .list = {held}}}};
    memcpy(message.hello.token, welcome.token, sizeof welcome.token);
    send_message(later, &message);
    await(later, TRAJD_WIRE_WELCOME, &message);
    assert_true(message.welcome.resumed);
    assert_int_equal(message.welcome.session, welcome.session);
    await(later, TRAJD_WIRE_BATCH, &message); /* again, with its old seq */
    assert_int_equal(message.batch.seq, 2);
    assert_int_equal(message.batch.position, second);
    close(fd);
    peer_close(later);
}

static void test_a_session_ends_with_its_connection_on_fd_sock(void **state)
{
    (void)state;
    struct peer *peer = peer_open(), *survivor = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_BATCH, &message);
    assert_int_equal(message.batch.position, 0);
    struct trajd_wire_welcome other = hello(survivor);
    int other_fd = attach(&other);
    open_train(survivor, 16);
    await(survivor, TRAJD_WIRE_OPENED, &message);
    close(fd);
    bool seen[2] = {false};
    while (!seen[0] || !seen[1]) { /* the other session gets the batches of the dead one */
        await(survivor, TRAJD_WIRE_BATCH, &message);
        if (message.batch.position <= 8)
            seen[message.batch.position / 8] = true;
        send_message(survivor,
                     &(struct trajd_wire_message){
                         .op = TRAJD_WIRE_ACK,
                         .ack = {.released = {.count = 1, .list = {lease_of(&message.batch)}}}});
    }
    assert_int_equal(status_number(survivor, "dead_sessions"), 1);
    close(other_fd);
    peer_close(peer);
    peer_close(survivor);
}

static void test_goaway_waits_for_leases(void **state)
{
    (void)state;
    struct peer *peer = peer_open();
    struct trajd_wire_message message;
    struct trajd_wire_welcome welcome = hello(peer);
    int fd = attach(&welcome);
    open_train(peer, 2);
    await(peer, TRAJD_WIRE_BATCH, &message);
    await(peer, TRAJD_WIRE_BATCH, &message);
    trajd_server_drain(producer_server(producer), 50); /* times out, as both batches are held */
    await(peer, TRAJD_WIRE_GOAWAY, &message);
    close(fd);
    /* returns as soon as the server knows of the death */
    trajd_server_drain(producer_server(producer), 10000);
    peer_close(peer);
}

static void test_a_second_daemon_is_refused(void **state)
{
    (void)state;
    struct producer *second = NULL;
    struct trajd_error error;
    const struct producer_options options = {.directory = directory};
    char pid[32];
    assert_int_equal(producer_start(&options, &second, &error), TRAJD_ERR_BUSY);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_non_null(strstr(error.message, pid));
    struct peer *peer = peer_open(); /* the first daemon still has its sockets */
    hello(peer);
    peer_close(peer);
}

static void test_bad_directories_are_refused(void **state)
{
    (void)state;
    struct producer *none = NULL;
    struct trajd_error error;
    char path[256];
    snprintf(path, sizeof path, "%s/%0120d", directory, 0);
    assert_int_equal(mkdir(path, 0700), 0);
    const struct producer_options long_one = {.directory = path};
    assert_int_equal(producer_start(&long_one, &none, &error), TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "107"));
    strcat(path, "/lock");
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    const struct producer_options absent = {.directory = "/nonexistent/trajd"};
    assert_int_equal(producer_start(&absent, &none, &error), TRAJD_ERR_SYSTEM);
    const struct producer_options crowded = {.directory = directory, .sessions = 100000000};
    assert_int_not_equal(producer_start(&crowded, &none, &error), TRAJD_OK);
    assert_null(none);
}

static void test_sockets_are_private(void **state)
{
    (void)state;
    const char *const names[] = {"feed.sock", "fd.sock"};
    for (size_t i = 0; i < 2; i++) {
        struct stat file;
        char path[96];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_mode & 0777, 0700);
    }
}

/* ---- a flood, against a process with few descriptors ---- */

static void test_a_flood_of_connections_is_survived(void **state)
{
    enum { FLOOD = 3000 };
    (void)state;
    char path[64], line[256];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int *sockets = malloc(FLOOD * sizeof *sockets);
    snprintf(path, sizeof path, "/tmp/trajd-flood-XXXXXX");
    assert_non_null(mkdtemp(path));
    struct process daemon =
        process_start("fake_producer", path, "descriptors=256 sessions=16 length=400");
    assert_true(process_read(&daemon, line, sizeof line));
    assert_string_equal(line, "READY");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/feed.sock", path);
    for (uint32_t i = 0; i < FLOOD; i++) {
        sockets[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(sockets[i] >= 0);
        /* a refused connection is fine, too */
        connect(sockets[i], (struct sockaddr *)&address, sizeof address);
    }
    for (uint32_t i = 0; i < FLOOD; i++)
        close(sockets[i]);
    free(sockets);
    /* on a busy machine the daemon needs seconds to recover, and cuts other connections
     * meanwhile */
    struct process worker = process_start("fake_worker", path, "credit=4 timeout_ms=50000");
    uint32_t batches = 0;
    while (process_read(&worker, line, sizeof line) && line[0] == 'B')
        batches++;
    assert_string_equal(line, "E 0");
    assert_int_equal(batches, 50);
    assert_int_equal(process_wait(&worker), 0);
    assert_int_equal(waitpid(daemon.pid, NULL, WNOHANG), 0); /* the daemon still runs */
    process_signal(&daemon, SIGTERM);
    assert_int_equal(process_wait(&daemon), 0);
    snprintf(line, sizeof line, "%s/lock", path);
    assert_int_equal(unlink(line), 0);
    assert_int_equal(rmdir(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_token_attaches_one_connection, start, stop),
        cmocka_unit_test_setup_teardown(test_a_session_is_resumed_by_its_token, start, stop),
        cmocka_unit_test_setup_teardown(test_a_session_ends_with_its_connection_on_fd_sock, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_goaway_waits_for_leases, start, stop),
        cmocka_unit_test_setup_teardown(test_a_second_daemon_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_bad_directories_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_sockets_are_private, start, stop),
        cmocka_unit_test(test_a_flood_of_connections_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
