/* libtrajd and a daemon with faults: each fault is an error, and never a crash or a read outside
 * the ring. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "faulty_daemon.h"
#include "proto/array_len.h"
#include "trajd.h"

static char directory[64];

/* ---- faults ---- */

static void alter_ring_size(struct trajd_wire_message *m)
{
    m->opened.ring_size_bytes += 4096;
}
static void alter_ring_huge(struct trajd_wire_message *m)
{
    m->opened.ring_size_bytes = UINT64_MAX;
}
static void alter_slot_size(struct trajd_wire_message *m)
{
    m->opened.slot_size_bytes = 100;
}
static void alter_slot_none(struct trajd_wire_message *m)
{
    m->opened.slot_size_bytes = 0;
}
static void alter_slot_count(struct trajd_wire_message *m)
{
    m->opened.slot_count = UINT32_MAX;
}
static void alter_ring_id(struct trajd_wire_message *m)
{
    m->opened.ring = 7;
}
static void alter_batch_size(struct trajd_wire_message *m)
{
    m->opened.batch = ROWS - 1;
}
static void alter_row_begin(struct trajd_wire_message *m)
{
    m->opened.row_begin = UINT32_MAX;
}
static void alter_row_count(struct trajd_wire_message *m)
{
    m->opened.row_count = ROWS + 1;
}
static void alter_request(struct trajd_wire_message *m)
{
    m->opened.request += 1000;
}
static struct trajd_wire_tensor *tensor_of(struct trajd_wire_message *m)
{
    return (struct trajd_wire_tensor *)m->opened.tensors;
}
static void alter_offset(struct trajd_wire_message *m)
{
    tensor_of(m)->offset_bytes = 4096 - 8;
}
static void alter_offset_huge(struct trajd_wire_message *m)
{
    tensor_of(m)->offset_bytes = UINT64_MAX - 7;
}
static void alter_offset_low(struct trajd_wire_message *m)
{
    tensor_of(m)->offset_bytes = 0;
}
static void alter_offset_odd(struct trajd_wire_message *m)
{
    tensor_of(m)->offset_bytes = 65;
}
static void alter_shape(struct trajd_wire_message *m)
{
    tensor_of(m)->rank = 3;
    tensor_of(m)->shape[1] = tensor_of(m)->shape[2] = UINT64_C(1) << 40;
}
static void alter_gpu(struct trajd_wire_message *m)
{
    m->opened.gpu = trajd_wire_text("GPU-00112233-4455-6677-8899-aabbccddeeff");
}
static void alter_slot(struct trajd_wire_message *m)
{
    m->batch.slot = SLOTS;
}
static void alter_slot_far(struct trajd_wire_message *m)
{
    m->batch.slot = UINT32_MAX;
}
static void alter_generation(struct trajd_wire_message *m)
{
    m->batch.generation = 2;
}
static void alter_feed(struct trajd_wire_message *m)
{
    m->batch.feed_id = 2;
}
static void alter_batch_ring(struct trajd_wire_message *m)
{
    m->batch.ring = 2;
}
static void alter_epoch(struct trajd_wire_message *m)
{
    m->batch.epoch = 1;
}
static void alter_batch_begin(struct trajd_wire_message *m)
{
    m->batch.row_begin = ROWS + 1;
}
static void alter_batch_rows(struct trajd_wire_message *m)
{
    m->batch.row_begin = 1;
}
static void alter_rows_huge(struct trajd_wire_message *m)
{
    m->batch.row_begin = m->batch.row_count = UINT32_MAX;
}
static void greet_wrong(int fd)
{
    send(fd, "\x01", 1, MSG_NOSIGNAL);
}
static void greet_long(int fd)
{
    send(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, MSG_NOSIGNAL);
}
static void greet_never(int fd)
{
    (void)fd;
}

static int make_memfd(uint64_t size, int seals)
{
    int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
        abort();
    return fd;
}

static void hand_file(int fd, int file, uint64_t size)
{
    const uint64_t words[2] = {RING, size};
    daemon_send_fds(fd, words, sizeof words, &file, 1);
    close(file);
}

static void hand_unsealed(int fd, const struct trajd_server_ring *ring)
{
    hand_file(fd, make_memfd(ring->size_bytes, 0), ring->size_bytes);
}
static void hand_short(int fd, const struct trajd_server_ring *ring)
{
    hand_file(fd, make_memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW), ring->size_bytes);
}
static void hand_blank(int fd, const struct trajd_server_ring *ring)
{
    hand_file(fd, make_memfd(ring->size_bytes, F_SEAL_SHRINK | F_SEAL_GROW), ring->size_bytes);
}
static void hand_device(int fd, const struct trajd_server_ring *ring)
{
    hand_file(fd, open("/dev/null", O_RDWR | O_CLOEXEC), ring->size_bytes);
}
static void hand_nothing(int fd, const struct trajd_server_ring *ring)
{
    const uint64_t words[2] = {RING, ring->size_bytes};
    daemon_send_fds(fd, words, sizeof words, NULL, 0);
}
static void hand_cut(int fd, const struct trajd_server_ring *ring)
{
    daemon_send_fds(fd, "short", 5, &ring->fd, 1);
}
static void hand_many(int fd, const struct trajd_server_ring *ring)
{
    const int fds[8] = {ring->fd, ring->fd, ring->fd, ring->fd,
                        ring->fd, ring->fd, ring->fd, ring->fd};
    daemon_send_fds(fd, "short", 5, fds, 8);
}

static struct fault patched(const char *name, const char *key, uint8_t value)
{
    return (struct fault){name,       STEP_OPEN,     TRAJD_ERR_TIMEOUT, TRAJD_WIRE_OPENED,
                          .key = key, .value = value};
}

/* The next functions return a fault in OPENED, in BATCH, and on fd.sock. */
static struct fault opened(const char *name, void (*alter)(struct trajd_wire_message *))
{
    return (struct fault){name, STEP_OPEN, TRAJD_ERR_PROTOCOL, TRAJD_WIRE_OPENED, .alter = alter};
}

static struct fault batch(const char *name, void (*alter)(struct trajd_wire_message *))
{
    return (struct fault){name, STEP_NEXT, TRAJD_ERR_PROTOCOL, TRAJD_WIRE_BATCH, .alter = alter};
}

static struct fault ring(const char *name, enum trajd_status status,
                         void (*hand)(int fd, const struct trajd_server_ring *ring))
{
    return (struct fault){name, STEP_OPEN, status, (enum trajd_wire_op)0, .send_fds = hand};
}

static struct fault greeting(const char *name, void (*greet)(int fd))
{
    return (struct fault){name, STEP_CONNECT, TRAJD_ERR_TIMEOUT, (enum trajd_wire_op)0,
                          .greet = greet};
}

/* ---- tests ---- */

/* Runs a worker. Returns the step that fails, and its status. */
static enum step work(const struct fault *fault, enum trajd_status *status)
{
    struct trajd_client *client;
    struct trajd_batch *batch = NULL;
    struct trajd_error error;
    enum step step = STEP_CONNECT;
    const uint32_t wait_ms = fault && fault->status == TRAJD_ERR_TIMEOUT ? 200 : 10000;
    const struct trajd_connect_options connect = {
        .endpoint = directory,
        .timeout_ms = fault && fault->step == STEP_CONNECT ? wait_ms : 10000};
    *status = trajd_client_connect(&connect, &client, &error);
    if (*status)
        return step;
    const struct trajd_open_options open = {.feed = "train", .credit = 4, .timeout_ms = wait_ms};
    *status = trajd_client_open(client, &open, &error);
    step = STEP_OPEN;
    if (!*status) {
        *status = trajd_client_next(client, (int)wait_ms, &batch, &error);
        step = STEP_NEXT;
    }
    if (!*status) {
        volatile int64_t sum = 0;
        for (uint32_t i = 0; i < ROWS; i++)
            sum += ((const int64_t *)trajd_batch_tensor(batch, 0)->data)[i];
        step = STEP_NONE;
    }
    trajd_batch_release(&batch);
    trajd_client_close(&client);
    return step;
}

static void check_fault(const struct fault *fault, bool noisy)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    enum trajd_status status;
    daemon->fault = fault;
    daemon->noisy = noisy;
    daemon_start(daemon, directory);
    enum step step = work(fault, &status);
    daemon_stop(daemon);
    free(daemon);
    const enum step expected_step = fault ? fault->step : STEP_NONE;
    const enum trajd_status expected = fault ? fault->status : TRAJD_OK;
    if (step > expected_step || status != expected)
        fail_msg("%s: step %d, %s; expected step %d, %s", fault ? fault->name : "no lie", (int)step,
                 trajd_status_name(status), (int)expected_step, trajd_status_name(expected));
}

static void test_a_correct_daemon_is_accepted(void **state)
{
    (void)state;
    check_fault(NULL, false);
}

static void test_invalid_frames_are_ignored(void **state)
{
    (void)state;
    check_fault(NULL, true);
}

static void test_faults_in_messages_are_errors(void **state)
{
    (void)state;
    const struct fault faults[] = {
        opened("ring size", alter_ring_size),
        opened("largest ring size", alter_ring_huge),
        opened("odd slot size", alter_slot_size),
        opened("no slot size", alter_slot_none),
        opened("slot count", alter_slot_count),
        opened("a GPU that was not requested", alter_gpu),
        opened("batch other than the tensors'", alter_batch_size),
        opened("rows behind the batch", alter_row_begin),
        opened("too many rows", alter_row_count),
        patched("no batch",
                "\xa5"
                "batch",
                0),
        patched("no credit",
                "\xa6"
                "credit",
                0),
        patched("too much credit",
                "\xa6"
                "credit",
                65),
        patched("nil instead of a number",
                "\xa6"
                "credit",
                0xc0),
        opened("tensor over the slot's end", alter_offset),
        opened("tensor that wraps around", alter_offset_huge),
        opened("tensor in the slot's header", alter_offset_low),
        opened("tensor out of line", alter_offset_odd),
        opened("tensor larger than numbers", alter_shape),
        batch("slot behind the last", alter_slot),
        batch("slot far away", alter_slot_far),
        batch("generation", alter_generation),
        batch("feed", alter_feed),
        batch("ring", alter_batch_ring),
        batch("epoch", alter_epoch),
        batch("rows behind the batch", alter_batch_begin),
        batch("one row too many", alter_batch_rows),
        batch("rows that wrap around", alter_rows_huge),
        {"an answer to another OPEN", STEP_OPEN, TRAJD_ERR_TIMEOUT, TRAJD_WIRE_OPENED,
         .alter = alter_request},
        opened("a ring that never comes", alter_ring_id),
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        check_fault(&faults[i], false);
}

static void test_faults_on_fd_sock_are_errors(void **state)
{
    (void)state;
    const struct fault faults[] = {
        greeting("a greeting of nothing", greet_never),
        greeting("a greeting of 1", greet_wrong),
        greeting("a long greeting", greet_long),
        ring("a ring that can be cut", TRAJD_ERR_PROTOCOL, hand_unsealed),
        ring("a short ring", TRAJD_ERR_PROTOCOL, hand_short),
        ring("a blank ring", TRAJD_ERR_PROTOCOL, hand_blank),
        ring("a device", TRAJD_ERR_PROTOCOL, hand_device),
        ring("a ring without descriptor", TRAJD_ERR_CLOSED, hand_nothing),
        ring("a cut message", TRAJD_ERR_CLOSED, hand_cut),
        ring("many descriptors", TRAJD_ERR_CLOSED, hand_many),
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        check_fault(&faults[i], false);
}

static void test_another_version_is_an_error(void **state)
{
    (void)state;
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct trajd_client *client;
    struct trajd_error error;
    daemon->major = TRAJD_WIRE_MAJOR + 1;
    daemon_start(daemon, directory);
    assert_int_equal(trajd_client_connect(&(struct trajd_connect_options){.endpoint = directory},
                                          &client, &error),
                     TRAJD_ERR_UNSUPPORTED);
    assert_string_equal(
        error.message,
        "protocol version 2: this side has version 1: use the same release for daemon and workers");
    daemon_stop(daemon);
    free(daemon);
}

/* A feed is closed, or its GPU fails, while its worker opens another feed. */
static void test_errors_of_the_feed_before_are_ignored(void **state)
{
    const enum trajd_status late_errors[] = {TRAJD_ERR_DEVICE, TRAJD_ERR_CLOSED, TRAJD_ERR_TIMEOUT};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(late_errors); i++) {
        struct daemon *daemon = calloc(1, sizeof *daemon);
        enum trajd_status status;
        daemon->late_error = late_errors[i];
        daemon_start(daemon, directory);
        assert_int_equal(work(NULL, &status), STEP_NONE);
        assert_int_equal(status, TRAJD_OK);
        daemon_stop(daemon);
        free(daemon);
    }
}

/* The daemon sends more batches than the credit: the first ones are valid, then comes an error. */
static void test_too_many_batches_are_an_error(void **state)
{
    (void)state;
    const struct fault fault = {"flood", STEP_NEXT, TRAJD_ERR_PROTOCOL, TRAJD_WIRE_BATCH,
                                .copies = 200};
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct trajd_client *client;
    struct trajd_batch *held[256];
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0;
    daemon->fault = &fault;
    daemon_start(daemon, directory);
    assert_int_equal(trajd_client_connect(&(struct trajd_connect_options){.endpoint = directory},
                                          &client, &error),
                     TRAJD_OK);
    status = trajd_client_open(client, &(struct trajd_open_options){.feed = "train", .credit = 4},
                               &error);
    while (!status && count < 256)
        if (!(status = trajd_client_next(client, 60000, &held[count], &error)))
            count++;
    assert_int_equal(status, TRAJD_ERR_PROTOCOL);
    assert_true(count <= TRAJD_WIRE_MAX_LEASES);
    while (count > 0)
        trajd_batch_release(&held[--count]);
    trajd_client_close(&client);
    daemon_stop(daemon);
    free(daemon);
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/trajd-hostile-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_correct_daemon_is_accepted),
        cmocka_unit_test(test_invalid_frames_are_ignored),
        cmocka_unit_test(test_faults_in_messages_are_errors),
        cmocka_unit_test(test_faults_on_fd_sock_are_errors),
        cmocka_unit_test(test_another_version_is_an_error),
        cmocka_unit_test(test_errors_of_the_feed_before_are_ignored),
        cmocka_unit_test(test_too_many_batches_are_an_error),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
