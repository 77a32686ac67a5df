/* libtrajd through a proxy that cuts its message connection. The session survives by fd.sock, and
 * no batch is lost or comes twice. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client_facts.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

#define LENGTH 1600u
#define BATCH 8u
#define MAX_PAIRS 4u

/* Forwards bytes between its own socket and the daemon's. */
struct proxy {
    char path[96], target[96];
    int listener, control;
    int pairs[MAX_PAIRS][2];
    uint32_t pair_count, cuts_done; /* cuts_done is atomic */
    uint32_t cuts_wanted;           /* atomic */
    bool stop;                      /* atomic */
    pthread_t thread;
};

static char daemon_directory[64], directory[64];
static struct producer *producer;
static struct proxy proxy;

static int unix_socket(const char *path, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = listens ? bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 8)
                         : connect(fd, (struct sockaddr *)&address, sizeof address);
    if (failed)
        abort();
    return fd;
}

static void cut(struct proxy *from)
{
    for (uint32_t i = 0; i < from->pair_count; i++) {
        close(from->pairs[i][0]);
        close(from->pairs[i][1]);
    }
    from->pair_count = 0;
}

/* Returns false if one side has closed. */
static bool forward(int from, int to)
{
    char bytes[4096];
    ssize_t size = read(from, bytes, sizeof bytes);
    for (ssize_t sent = 0, count; sent < size; sent += count)
        if ((count = send(to, bytes + sent, (size_t)(size - sent), MSG_NOSIGNAL)) <= 0)
            return false;
    return size > 0;
}

static void serve(struct proxy *from)
{
    struct pollfd items[2 + 2 * MAX_PAIRS] = {{.fd = from->listener, .events = POLLIN},
                                              {.fd = from->control, .events = POLLIN}};
    uint64_t count;
    for (uint32_t i = 0; i < 2 * from->pair_count; i++)
        items[2 + i] = (struct pollfd){.fd = from->pairs[i / 2][i % 2], .events = POLLIN};
    poll(items, 2 + 2 * from->pair_count, -1);
    for (uint32_t i = 0; i < 2 * from->pair_count; i++)
        if (items[2 + i].revents != 0 && !forward(items[2 + i].fd, from->pairs[i / 2][1 - i % 2])) {
            cut(from);
            break;
        }
    if (items[1].revents != 0 && read(from->control, &count, sizeof count) > 0 &&
        /* acquire and release: these two counters order the test and this thread */
        __atomic_load_n(&from->cuts_wanted, __ATOMIC_ACQUIRE) > from->cuts_done) {
        cut(from);
        __atomic_add_fetch(&from->cuts_done, 1, __ATOMIC_RELEASE);
    }
    if (items[0].revents != 0 && from->pair_count < MAX_PAIRS) {
        from->pairs[from->pair_count][0] = accept4(from->listener, NULL, NULL, SOCK_CLOEXEC);
        from->pairs[from->pair_count++][1] = unix_socket(from->target, false);
    }
}

static void *run_proxy(void *context)
{
    struct proxy *running = context;
    while (!__atomic_load_n(&running->stop, __ATOMIC_ACQUIRE))
        serve(running);
    cut(running);
    return NULL;
}

static void signal_proxy(void)
{
    const uint64_t one = 1;
    assert_int_equal(write(proxy.control, &one, sizeof one), sizeof one);
}

static void cut_now(void)
{
    const uint32_t wanted = __atomic_add_fetch(&proxy.cuts_wanted, 1, __ATOMIC_RELEASE);
    signal_proxy();
    while (__atomic_load_n(&proxy.cuts_done, __ATOMIC_ACQUIRE) < wanted)
        usleep(100);
}

static int start(void **state)
{
    struct trajd_error error;
    char from[96], to[96];
    (void)state;
    snprintf(daemon_directory, sizeof daemon_directory, "/tmp/trajd-resumed-XXXXXX");
    snprintf(directory, sizeof directory, "/tmp/trajd-proxy-XXXXXX");
    if (!mkdtemp(daemon_directory) || !mkdtemp(directory))
        return -1;
    const struct producer_options options = {
        .directory = daemon_directory, .length = LENGTH, .slots = 10};
    if (producer_start(&options, &producer, &error))
        return -1;
    snprintf(from, sizeof from, "%s/fd.sock", daemon_directory);
    snprintf(to, sizeof to, "%s/fd.sock", directory);
    proxy = (struct proxy){.control = eventfd(0, EFD_CLOEXEC)};
    snprintf(proxy.path, sizeof proxy.path, "%s/feed.sock", directory);
    snprintf(proxy.target, sizeof proxy.target, "%s/feed.sock", daemon_directory);
    proxy.listener = unix_socket(proxy.path, true);
    return symlink(from, to) != 0 || pthread_create(&proxy.thread, NULL, run_proxy, &proxy) != 0
               ? -1
               : 0;
}

static int stop(void **state)
{
    char command[192];
    (void)state;
    __atomic_store_n(&proxy.stop, true, __ATOMIC_RELEASE);
    signal_proxy();
    pthread_join(proxy.thread, NULL);
    close(proxy.listener);
    close(proxy.control);
    producer_stop(&producer);
    snprintf(command, sizeof command, "rm -r %s %s", daemon_directory, directory);
    return system(command);
}

static struct trajd_client *connect_client(void)
{
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = directory};
    if (trajd_client_connect(&options, &client, &error))
        fail_msg("%s", error.message);
    return client;
}

static void open_epoch(struct trajd_client *client, uint64_t epoch, uint32_t credit)
{
    struct trajd_error error;
    const struct trajd_open_options options = {.feed = "train", .credit = credit, .epoch = epoch};
    if (trajd_client_open(client, &options, &error))
        fail_msg("%s", error.message);
}

/* Cuts the connection while one batch is held, others are queued and releases are pending. */
static void test_an_epoch_survives_cuts(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client();
    struct trajd_batch *batch, *held = NULL;
    struct trajd_error error;
    enum trajd_status status;
    uint64_t expected = 0;
    open_epoch(client, 0, 6);
    while (!(status = trajd_client_next(client, 60000, &batch, &error))) {
        assert_int_equal(position_of(batch), expected); /* each batch once, in order */
        assert_int_equal(((int64_t *)trajd_batch_find(batch, "window_id")->data)[0], expected);
        expected += BATCH;
        if (expected % (25 * BATCH) == 0)
            cut_now();
        trajd_batch_release(&held);
        held = batch;
    }
    assert_int_equal(status, TRAJD_END_OF_EPOCH);
    trajd_batch_release(&held);
    assert_int_equal(expected, LENGTH);
    assert_true(number_in_status(client, "resumed_sessions") >= 1);
    assert_int_equal(number_in_status(client, "windows_done"), LENGTH);
    assert_int_equal(number_in_status(client, "handed_again"), 0);
    trajd_client_close(&client);
}

/* Cuts the connection before the OPEN, which may be lost or not. It is answered in any case, and
 * batches of the feed before do not count as DONE. */
static void test_an_open_survives_a_cut(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client();
    struct trajd_batch *batch, *held;
    struct trajd_error error;
    open_epoch(client, 0, 4);
    for (uint64_t epoch = 1; epoch < 6; epoch++) {
        const uint64_t done = number_in_status(client, "windows_done");
        assert_int_equal(trajd_client_next(client, 60000, &held, &error), TRAJD_OK);
        cut_now();
        open_epoch(client, epoch, 4);
        trajd_batch_done(held); /* too late: the epoch has been left */
        assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_OK);
        assert_int_equal(position_of(batch), 0);
        assert_int_equal(((int64_t *)trajd_batch_find(batch, "window_id")->data)[0],
                         producer_window(epoch, 0, LENGTH));
        trajd_batch_release(&held);
        trajd_batch_release(&batch);
        while (number_in_status(client, "windows_done") < done + BATCH)
            usleep(1000);
        assert_int_equal(number_in_status(client, "windows_done"), done + BATCH);
    }
    trajd_client_close(&client);
}

/* Returns how many windows are DONE in a token: see daemon/feed/checkpoint_token.h. */
static uint64_t windows_in_token(struct trajd_client *client)
{
    struct trajd_error error;
    uint64_t words[64];
    size_t size_bytes;
    void *token;
    if (trajd_client_checkpoint(client, 60000, &token, &size_bytes, &error))
        fail_msg("%s", error.message);
    assert_in_range(size_bytes, 11 * sizeof words[0], sizeof words);
    memcpy(words, token, size_bytes);
    free(token);
    return words[7] * (words[8] - words[9]);
}

/* Cuts the connection before a query, whose message or answer may be lost. It is asked again, and the
 * token knows of the DONEs that were lost, too. */
static void test_queries_survive_cuts(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client();
    struct trajd_batch *batch;
    struct trajd_error error;
    open_epoch(client, 0, 4);
    for (uint64_t done = BATCH; done <= 3 * BATCH; done += BATCH) {
        assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_OK);
        trajd_batch_done(batch);
        cut_now();
        assert_int_equal(windows_in_token(client), done);
        cut_now();
        assert_int_equal(number_in_status(client, "windows_done"), done);
        trajd_batch_release(&batch);
    }
    trajd_client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_epoch_survives_cuts, start, stop),
        cmocka_unit_test_setup_teardown(test_an_open_survives_a_cut, start, stop),
        cmocka_unit_test_setup_teardown(test_queries_survive_cuts, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
