/* libtrajd with a server in the same process (what each call does), and with processes that are
 * killed (which worker gets which window). */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/array_len.h"
#include "tests/support/client_facts.h"
#include "tests/support/processes.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

#define LENGTH 1000u
#define BATCH 8u
#define BATCHES (LENGTH / BATCH)

static char directory[64];
static struct producer *producer;

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-client-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

static int start(void **state)
{
    struct trajd_error error;
    const struct producer_options options = {
        .directory = directory, .length = LENGTH, .slots = 8, .fail_position = 800};
    if (make_directory(state) != 0)
        return -1;
    return !producer_start(&options, &producer, &error) ? 0 : -1;
}

static int stop(void **state)
{
    producer_stop(&producer);
    return remove_directory(state);
}

static struct trajd_client *connect_client(bool reconnect)
{
    struct trajd_client *client = NULL;
    struct trajd_error error;
    const struct trajd_connect_options options = {.endpoint = directory, .reconnect = reconnect};
    assert_int_equal(trajd_client_connect(&options, &client, &error), TRAJD_OK);
    return client;
}

static void open_train(struct trajd_client *client, uint32_t credit, uint64_t epoch, uint64_t next)
{
    struct trajd_error error;
    const struct trajd_open_options options = {
        .feed = "train", .credit = credit, .epoch = epoch, .next = next};
    assert_int_equal(trajd_client_open(client, &options, &error), TRAJD_OK);
}

/* ---- one worker, one process ---- */

static void test_a_batch_is_what_was_produced(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch;
    struct trajd_error error;
    open_train(client, 0, 3, 16);
    const struct trajd_feed_info *info = trajd_client_feed_info(client);
    assert_int_equal(info->global_batch, BATCH);
    assert_int_equal(info->credit, 6); /* 3/4 of the slots, as none was asked for */
    assert_int_equal(info->epoch_length, LENGTH);
    assert_int_equal(trajd_client_next(client, -1, &batch, &error), TRAJD_OK);
    assert_int_equal(position_of(batch), 16);
    assert_int_equal(trajd_batch_tensor_count(batch), 3);
    const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
    assert_int_equal(actions->rank, 2);
    assert_int_equal(actions->shape[1], PRODUCER_COLUMNS);
    assert_int_equal(actions->strides_bytes[0], PRODUCER_COLUMNS * sizeof(float));
    assert_true(((float *)actions->data)[1] ==
                producer_value(3, producer_window(3, 16, LENGTH), 1));
    ((float *)actions->data)[1] = 0; /* a worker may write to its batch */
    assert_string_equal(trajd_batch_find(batch, "actions.mask")->of, "actions");
    assert_null(trajd_batch_find(batch, "absent"));
    assert_null(trajd_batch_tensor(batch, 3));
    trajd_batch_release(&batch);
    assert_null(batch);
    trajd_batch_release(&batch);
    trajd_client_close(&client);
    trajd_client_close(&client);
}

static void test_the_last_batch_is_held_and_the_epoch_ends(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch, *last;
    struct trajd_error error;
    open_train(client, 2, 0, LENGTH - BATCH);
    assert_int_equal(trajd_client_next(client, -1, &last, &error), TRAJD_OK);
    assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_END_OF_EPOCH);
    assert_int_equal(trajd_client_next(client, 0, &batch, &error), TRAJD_END_OF_EPOCH);
    open_train(client, 2, 1, LENGTH - BATCH);
    assert_int_equal(trajd_client_next(client, -1, &batch, &error), TRAJD_OK);
    assert_true(((float *)trajd_batch_find(last, "actions")->data)[0] ==
                producer_value(0, producer_window(0, LENGTH - BATCH, LENGTH), 0));
    trajd_batch_release(&last);
    trajd_batch_release(&batch);
    trajd_client_close(&client);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    return poll(&item, 1, timeout_ms) == 1;
}

static void test_holding_all_credit_is_reported(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *held[3];
    struct trajd_error error;
    const int fd = trajd_client_poll_fd(client);
    open_train(client, 2, 0, 0);
    assert_int_equal(trajd_client_next(client, -1, &held[0], &error), TRAJD_OK);
    assert_int_equal(trajd_client_next(client, -1, &held[1], &error), TRAJD_OK);
    assert_int_equal(trajd_client_next(client, -1, &held[2], &error), TRAJD_ERR_BUSY);
    assert_non_null(strstr(error.message, "2 batches are held"));
    assert_int_equal(trajd_client_next(client, 0, &held[2], &error), TRAJD_ERR_BUSY);
    assert_true(is_readable(fd, 0)); /* BUSY is no reason to wait */
    trajd_batch_release(&held[0]);
    assert_int_equal(trajd_client_next(client, -1, &held[2], &error), TRAJD_OK);
    assert_int_equal(position_of(held[2]), 16);
    trajd_batch_release(&held[1]);
    trajd_client_close(&client);
    assert_true(((float *)trajd_batch_find(held[2], "actions")->data)[0] ==
                producer_value(0, 16, 0));
    trajd_batch_release(&held[2]); /* after the client is closed */
}

static void test_a_failed_batch_is_reported_and_skipped(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch;
    struct trajd_error error;
    open_train(client, 2, 0, 800);
    assert_int_equal(trajd_client_next(client, -1, &batch, &error), TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "demo.hdf5: row 800"));
    uint32_t count = 0;
    while (!trajd_client_next(client, -1, &batch, &error)) {
        count++;
        trajd_batch_release(&batch);
    }
    /* left from an earlier call: the end of the epoch sets no error */
    assert_int_equal(error.status, TRAJD_ERR_DATA);
    assert_int_equal(count, BATCHES - 101);
    trajd_client_close(&client);
}

static void test_an_epoch_can_be_left_early(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *first, *batch;
    struct trajd_error error;
    open_train(client, 4, 0, 0);
    assert_int_equal(trajd_client_next(client, -1, &first, &error), TRAJD_OK);
    open_train(client, 4, 5, 0);
    uint32_t count = 0;
    enum trajd_status status;
    while ((status = trajd_client_next(client, 60000, &batch, &error)) != TRAJD_END_OF_EPOCH) {
        if (!status)
            assert_int_equal(((int64_t *)trajd_batch_find(batch, "window_id")->data)[0],
                             producer_window(5, position_of(batch), LENGTH));
        else
            assert_int_equal(status, TRAJD_ERR_DATA);
        count++;
        trajd_batch_release(&batch);
    }
    assert_int_equal(count, BATCHES);
    assert_int_equal(((int64_t *)trajd_batch_find(first, "window_id")->data)[0], 0);
    trajd_batch_release(&first);
    trajd_client_close(&client);
}

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    struct trajd_client *client = NULL, *none = NULL;
    struct trajd_batch *batch;
    struct trajd_error error;
    const struct trajd_connect_options nowhere = {.endpoint = "/nonexistent/trajd",
                                                  .timeout_ms = 50};
    assert_int_equal(trajd_client_connect(&nowhere, &none, &error), TRAJD_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "/nonexistent/trajd/feed.sock"));
    assert_null(none);
    client = connect_client(false);
    assert_int_equal(trajd_client_next(client, 0, &batch, &error), TRAJD_ERR_ARGUMENT);
    assert_null(trajd_client_feed_info(client));
    char name[130];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    const struct trajd_open_options bad[] = {
        {.feed = name}, /* an OPEN that no message can carry is refused at once */
        {.feed = "train", .job = name},
        {.feed = "train", .job = "\xff"},
        {.feed = "train", .epoch = UINT64_MAX},
        {.feed = NULL},
        {.feed = "train", .spec = "dataset: x"},
        {.feed = "train", .credit = 1},
        {.feed = "train", .world = 2},
        {.feed = "train", .mode = TRAJD_MODE_SHARD, .world = 2, .rank = 2},
        {.feed = "train", .mode = (enum trajd_mode)7},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(trajd_client_open(client, &bad[i], &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(
        trajd_client_open(client, &(struct trajd_open_options){.feed = "trian"}, &error),
        TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "trian"));
    assert_int_not_equal(
        trajd_client_open(client, &(struct trajd_open_options){.feed = "train", .fingerprint = 78},
                          &error),
        TRAJD_OK);
    open_train(client, 2, 0, 0); /* the client still works */
    trajd_client_close(&client);
}

/* Batches of the feed before a refused OPEN are given back. Otherwise a few rounds would use up all
 * slots. */
static void test_a_refused_open_gives_back_earlier_batches(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch;
    struct trajd_error error;
    for (uint32_t i = 0; i < 8; i++) {
        open_train(client, 6, 0, 0);
        assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_OK);
        assert_int_equal(position_of(batch), 0);
        assert_int_equal(
            trajd_client_open(client, &(struct trajd_open_options){.feed = "trian"}, &error),
            TRAJD_ERR_NOT_FOUND);
        trajd_batch_done(batch); /* too late: the epoch has been left */
        trajd_batch_release(&batch);
        assert_int_equal(trajd_client_next(client, 0, &batch, &error), TRAJD_ERR_ARGUMENT);
    }
    assert_int_equal(number_in_status(client, "windows_done"), 0);
    trajd_client_close(&client);
}

/* Another worker reads the whole epoch through all slots but the held one. */
static void test_a_batch_is_readable_after_close(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false), *other = connect_client(false);
    struct trajd_batch *held, *batch;
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0;
    open_train(client, 2, 0, 0);
    assert_int_equal(trajd_client_next(client, 60000, &held, &error), TRAJD_OK);
    trajd_client_close(&client);
    open_train(other, 2, 0, 0);
    /* batches that the first worker had queued follow after its end */
    while (count < BATCHES - 2) {
        status = trajd_client_next(other, 60000, &batch, &error);
        assert_true(status == TRAJD_OK || status == TRAJD_ERR_DATA);
        count++;
        trajd_batch_release(&batch);
    }
    const struct trajd_tensor *ids = trajd_batch_find(held, "window_id");
    for (uint32_t row = 0; row < BATCH; row++)
        assert_int_equal(((int64_t *)ids->data)[row], row);
    trajd_batch_release(&held);
    while (!(status = trajd_client_next(other, 60000, &batch, &error))) {
        count++;
        trajd_batch_release(&batch);
    }
    assert_int_equal(status, TRAJD_END_OF_EPOCH);
    assert_int_equal(count, BATCHES - 1); /* the batch that was held and released is DONE */
    assert_int_equal(number_in_status(other, "session_count"), 1);
    trajd_client_close(&other);
}

static void test_a_busy_feed_is_waited_for(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false), *other = connect_client(false);
    struct trajd_error error;
    const struct trajd_open_options open = {.feed = "train", .job = "another", .timeout_ms = 100};
    open_train(client, 2, 0, 0);
    assert_int_equal(trajd_client_open(other, &open, &error), TRAJD_ERR_BUSY);
    assert_non_null(strstr(error.message, "job"));
    trajd_client_close(&client);
    assert_int_equal(trajd_client_open(other, &open, &error), TRAJD_OK);
    trajd_client_close(&other);
}

static void *interrupt_soon(void *context)
{
    usleep(20000);
    trajd_client_interrupt(context);
    return NULL;
}

static void test_interrupt_and_timeout(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *held[2], *batch;
    struct trajd_error error;
    pthread_t thread;
    open_train(client, 3, 0, LENGTH - 2 * BATCH);
    assert_int_equal(trajd_client_next(client, -1, &held[0], &error), TRAJD_OK);
    assert_int_equal(trajd_client_next(client, -1, &held[1], &error), TRAJD_OK);
    struct trajd_client *other = connect_client(false);
    /* joins when no batch is left; the end of the epoch waits for held[1] */
    open_train(other, 2, 0, 0);
    assert_int_equal(trajd_client_next(other, 30, &batch, &error), TRAJD_ERR_TIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, other), 0);
    assert_int_equal(trajd_client_next(other, -1, &batch, &error), TRAJD_ERR_TIMEOUT);
    pthread_join(thread, NULL);
    trajd_batch_done(held[1]);
    assert_int_equal(trajd_client_next(other, 60000, &batch, &error), TRAJD_END_OF_EPOCH);
    trajd_batch_release(&held[0]);
    trajd_batch_release(&held[1]);
    trajd_client_close(&other);
    trajd_client_close(&client);
}

static void test_the_poll_descriptor_becomes_readable(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch;
    struct trajd_error error;
    int fd = trajd_client_poll_fd(client);
    assert_false(is_readable(fd, 0));
    open_train(client, 2, 0, 0);
    uint32_t count = 0;
    for (enum trajd_status status = TRAJD_OK; status != TRAJD_END_OF_EPOCH;) {
        assert_true(is_readable(fd, 10000));
        status = trajd_client_next(client, 0, &batch, &error);
        if (!status)
            trajd_batch_release(&batch);
        if (!status || status == TRAJD_ERR_DATA)
            count++;
        else
            assert_int_equal(status, TRAJD_END_OF_EPOCH);
    }
    assert_int_equal(count, BATCHES);
    trajd_client_close(&client);
}

static void test_a_forked_child_is_refused(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch, *other;
    struct trajd_error error;
    int status;
    open_train(client, 2, 0, 0);
    assert_int_equal(trajd_client_next(client, -1, &batch, &error), TRAJD_OK);
    pid_t child = fork();
    if (child == 0) {
        bool refused = trajd_client_next(client, 0, &other, &error) == TRAJD_ERR_ARGUMENT;
        trajd_batch_release(&batch);
        trajd_client_close(&client);
        _exit(refused && !batch && !client ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(trajd_client_next(client, -1, &other, &error), TRAJD_OK);
    /* the release in the child did not count */
    assert_int_equal(number_in_status(client, "batches_done"), 1);
    trajd_batch_release(&batch);
    trajd_batch_release(&other);
    trajd_client_close(&client);
}

struct releaser {
    pthread_mutex_t mutex;
    struct trajd_batch *batches[BATCHES];
    uint32_t count;
    bool stop;
};

static void *release_all(void *context)
{
    struct releaser *releaser = context;
    for (bool stop = false; !stop;) {
        struct trajd_batch *batch = NULL;
        pthread_mutex_lock(&releaser->mutex);
        if (releaser->count > 0)
            batch = releaser->batches[--releaser->count];
        stop = releaser->stop && !batch;
        pthread_mutex_unlock(&releaser->mutex);
        trajd_batch_release(&batch);
    }
    return NULL;
}

static void test_batches_are_released_by_other_threads(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct releaser releaser = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct trajd_batch *batch;
    struct trajd_error error;
    pthread_t threads[2];
    enum trajd_status status;
    uint32_t count = 0;
    open_train(client, 4, 0, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, release_all, &releaser), 0);
    while ((status = trajd_client_next(client, 60000, &batch, &error)) != TRAJD_END_OF_EPOCH) {
        assert_true(status == TRAJD_OK || status == TRAJD_ERR_DATA);
        count++;
        pthread_mutex_lock(&releaser.mutex);
        if (!status)
            releaser.batches[releaser.count++] = batch;
        pthread_mutex_unlock(&releaser.mutex);
    }
    pthread_mutex_lock(&releaser.mutex);
    releaser.stop = true;
    pthread_mutex_unlock(&releaser.mutex);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count, BATCHES);
    assert_int_equal(number_in_status(client, "windows_done"), LENGTH);
    trajd_client_close(&client);
}

/* Epochs are left early while other threads release their batches. */
static void test_batches_are_released_beside_open(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct releaser releaser = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct trajd_batch_info info;
    struct trajd_batch *batch;
    struct trajd_error error;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_all, &releaser), 0);
    for (uint64_t epoch = 0; epoch < 400; epoch++) {
        open_train(client, 4, epoch, 0);
        assert_int_equal(trajd_client_next(client, 60000, &batch, &error), TRAJD_OK);
        trajd_batch_get_info(batch, &info);
        assert_int_equal(info.epoch, epoch);
        pthread_mutex_lock(&releaser.mutex);
        releaser.batches[releaser.count++] = batch;
        releaser.stop = epoch == 399;
        pthread_mutex_unlock(&releaser.mutex);
    }
    pthread_join(thread, NULL);
    trajd_client_close(&client);
}

static void test_the_daemons_end_is_reported(void **state)
{
    (void)state;
    struct trajd_client *client = connect_client(false);
    struct trajd_batch *batch, *next;
    struct trajd_error error;
    enum trajd_status status;
    open_train(client, 2, 0, 0);
    assert_int_equal(trajd_client_next(client, -1, &batch, &error), TRAJD_OK);
    assert_true(trajd_client_is_connected(client));
    producer_stop(&producer);
    while (!(status = trajd_client_next(client, 60000, &next, &error)))
        trajd_batch_release(&next); /* one batch may have been on its way */
    assert_int_equal(status, TRAJD_ERR_CLOSED);
    assert_false(trajd_client_is_connected(client));
    /* still readable */
    assert_int_equal(((int64_t *)trajd_batch_find(batch, "window_id")->data)[1], 1);
    trajd_batch_release(&batch);
    trajd_client_close(&client);
}

/* ---- processes ---- */

struct histogram {
    uint32_t seen[LENGTH]; /* how often each window was delivered */
    uint32_t lines;
    bool ended;
};

static bool count_line(struct histogram *histogram, const char *line)
{
    unsigned long long epoch, position;
    unsigned int begin, rows;
    if (line[0] == 'E')
        histogram->ended = true;
    if (sscanf(line, "B %llu %llu %u %u", &epoch, &position, &begin, &rows) != 4)
        return false;
    histogram->lines++;
    for (unsigned int row = begin; row < begin + rows; row++)
        histogram->seen[position + row]++;
    return true;
}

static void read_remaining(struct process *worker, struct histogram *histogram)
{
    char line[256];
    while (process_read(worker, line, sizeof line)) {
        count_line(histogram, line);
        if (line[0] == 'X')
            fail_msg("%s", line);
    }
}

static void read_batches(struct process *worker, struct histogram *histogram, uint32_t count)
{
    char line[256];
    for (uint32_t i = 0; i < count; i++) {
        assert_true(process_read(worker, line, sizeof line));
        assert_true(count_line(histogram, line));
    }
}

static void assert_each_once(const struct histogram *histogram)
{
    for (uint32_t i = 0; i < LENGTH; i++)
        assert_int_equal(histogram->seen[i], 1);
}

static struct process start_daemon(const char *arguments)
{
    char line[64];
    struct process daemon = process_start("fake_producer", directory, arguments);
    assert_true(process_read(&daemon, line, sizeof line));
    assert_string_equal(line, "READY");
    return daemon;
}

static void end_daemon(struct process *daemon)
{
    process_signal(daemon, SIGTERM);
    assert_int_equal(process_wait(daemon), 0);
}

/* Starts workers one after another. Each is stopped when it has read some batches, because a worker
 * that comes after the end would begin the epoch again. */
static void start_workers(struct process *workers, uint32_t count, const char *arguments,
                          uint32_t batches, struct histogram *histogram)
{
    for (uint32_t i = 0; i < count; i++) {
        workers[i] = process_start("fake_worker", directory, arguments);
        read_batches(&workers[i], histogram, batches);
        process_signal(&workers[i], SIGSTOP);
    }
}

static void run_workers(uint32_t count)
{
    struct process daemon = start_daemon("slots=12 delay_us=1000"), workers[4];
    struct histogram histogram = {0};
    start_workers(workers, count, "credit=2 delay_us=1000", 1, &histogram);
    for (uint32_t i = 0; i < count; i++)
        process_signal(&workers[i], SIGCONT);
    for (uint32_t i = 0; i < count; i++) {
        read_remaining(&workers[i], &histogram);
        assert_int_equal(process_wait(&workers[i]), 0);
    }
    assert_true(histogram.ended);
    assert_each_once(&histogram);
    end_daemon(&daemon);
}

static void test_workers_divide_an_epoch(void **state)
{
    (void)state;
    run_workers(1);
    run_workers(2);
    run_workers(4);
}

static void test_an_epoch_is_sharded(void **state)
{
    (void)state;
    struct process daemon = start_daemon("");
    struct process first =
        process_start("fake_worker", directory, "shard=1 rank=0 world=2 epochs=2");
    struct process second =
        process_start("fake_worker", directory, "shard=1 rank=1 world=2 epochs=2");
    struct histogram histogram = {0};
    read_remaining(&first, &histogram);
    read_remaining(&second, &histogram);
    assert_int_equal(histogram.lines, 4 * BATCHES); /* half of the windows in each of two epochs */
    for (uint32_t i = 0; i < LENGTH; i++)
        assert_int_equal(histogram.seen[i], 2);
    assert_int_equal(process_wait(&first), 0);
    assert_int_equal(process_wait(&second), 0);
    end_daemon(&daemon);
}

static void test_a_killed_workers_batches_go_to_others(void **state)
{
    (void)state;
    struct process daemon = start_daemon("slots=8");
    struct histogram victim = {0}, heir = {0};
    struct process killed = process_start("fake_worker", directory, "credit=4 hang=10");
    read_batches(&killed, &victim, 10);
    struct trajd_client *watcher = connect_client(false);
    while (number_in_status(watcher, "batches_done") <
           9) /* the tenth batch is held, and not DONE */
        usleep(1000);
    struct process worker = process_start("fake_worker", directory, "credit=4");
    read_batches(&worker, &heir, 1);
    process_signal(&killed, SIGKILL);
    assert_int_equal(process_wait(&killed), -SIGKILL);
    read_remaining(&worker, &heir);
    assert_int_equal(process_wait(&worker), 0);
    assert_true(heir.ended);
    /* windows that were DONE never come again; the other worker gets all others */
    for (uint32_t i = 0; i < LENGTH; i++)
        assert_int_equal(heir.seen[i], i < 9 * BATCH ? 0 : 1);
    assert_int_equal(number_in_status(watcher, "windows_done"), LENGTH);
    assert_int_equal(number_in_status(watcher, "dead_sessions"), 1);
    trajd_client_close(&watcher);
    end_daemon(&daemon);
}

static void test_a_stopped_worker_loses_nothing(void **state)
{
    (void)state;
    struct process daemon = start_daemon("slots=8");
    struct histogram histogram = {0};
    struct process stopped = process_start("fake_worker", directory, "credit=2 delay_us=1000");
    read_batches(&stopped, &histogram, 5);
    process_signal(&stopped, SIGSTOP);
    struct process worker = process_start("fake_worker", directory, "credit=2");
    read_batches(&worker, &histogram, BATCHES / 2);
    struct trajd_client *watcher = connect_client(false);
    /* a silent worker is not a dead worker */
    assert_int_equal(number_in_status(watcher, "handed_again"), 0);
    process_signal(&stopped, SIGCONT);
    read_remaining(&worker, &histogram);
    read_remaining(&stopped, &histogram);
    assert_int_equal(process_wait(&worker), 0);
    assert_int_equal(process_wait(&stopped), 0);
    assert_each_once(&histogram);
    trajd_client_close(&watcher);
    end_daemon(&daemon);
}

static void test_a_killed_daemon_comes_back_to_shared_workers(void **state)
{
    (void)state;
    struct process daemon = start_daemon("slots=8 journal=1");
    struct histogram histogram = {0};
    struct process workers[2];
    start_workers(workers, 2, "credit=2 reconnect=1 delay_us=500", 10, &histogram);
    process_signal(&daemon, SIGKILL);
    process_wait(&daemon);
    daemon = start_daemon("slots=8 journal=1");
    for (uint32_t i = 0; i < 2; i++)
        process_signal(&workers[i], SIGCONT);
    for (uint32_t i = 0; i < 2; i++) {
        read_remaining(&workers[i], &histogram);
        assert_int_equal(process_wait(&workers[i]), 0);
    }
    assert_true(histogram.ended);
    uint32_t again = 0;
    for (uint32_t i = 0; i < LENGTH; i++) {
        assert_true(histogram.seen[i] >= 1);
        again += histogram.seen[i] - 1;
    }
    assert_true(again <= 2 * 2 * BATCH); /* only windows that were leased and not DONE */
    end_daemon(&daemon);
}

static void test_a_killed_daemon_repeats_nothing_to_ranks(void **state)
{
    (void)state;
    struct process daemon = start_daemon("");
    struct histogram histogram = {0};
    struct process workers[2] = {
        process_start("fake_worker", directory, "shard=1 rank=0 world=2 reconnect=1 delay_us=500"),
        process_start("fake_worker", directory, "shard=1 rank=1 world=2 reconnect=1 delay_us=500"),
    };
    read_batches(&workers[0], &histogram, 10);
    read_batches(&workers[1], &histogram, 12);
    process_signal(&daemon, SIGKILL);
    process_wait(&daemon);
    daemon = start_daemon("");
    for (uint32_t i = 0; i < 2; i++) {
        read_remaining(&workers[i], &histogram);
        assert_int_equal(process_wait(&workers[i]), 0);
    }
    assert_each_once(&histogram);
    end_daemon(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_is_what_was_produced, start, stop),
        cmocka_unit_test_setup_teardown(test_the_last_batch_is_held_and_the_epoch_ends, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_holding_all_credit_is_reported, start, stop),
        cmocka_unit_test_setup_teardown(test_a_failed_batch_is_reported_and_skipped, start, stop),
        cmocka_unit_test_setup_teardown(test_an_epoch_can_be_left_early, start, stop),
        cmocka_unit_test_setup_teardown(test_bad_calls_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_a_refused_open_gives_back_earlier_batches, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_a_batch_is_readable_after_close, start, stop),
        cmocka_unit_test_setup_teardown(test_a_busy_feed_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(test_interrupt_and_timeout, start, stop),
        cmocka_unit_test_setup_teardown(test_the_poll_descriptor_becomes_readable, start, stop),
        cmocka_unit_test_setup_teardown(test_a_forked_child_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_batches_are_released_by_other_threads, start, stop),
        cmocka_unit_test_setup_teardown(test_batches_are_released_beside_open, start, stop),
        cmocka_unit_test_setup_teardown(test_the_daemons_end_is_reported, start, stop),
        cmocka_unit_test_setup_teardown(test_workers_divide_an_epoch, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_an_epoch_is_sharded, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(test_a_killed_workers_batches_go_to_others, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_a_stopped_worker_loses_nothing, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_a_killed_daemon_comes_back_to_shared_workers,
                                        make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(test_a_killed_daemon_repeats_nothing_to_ranks,
                                        make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
