/* libtrajd and a daemon with faults: each fault is an error, and never a crash or a read outside
 * the ring. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "daemon/server/ring.h"
#include "proto/wire.h"
#include "trajd.h"

#define SLOTS 4u
#define ROWS 8u
#define INSTANCE 99u
#define RING 1u

enum step { STEP_CONNECT, STEP_OPEN, STEP_NEXT, STEP_NONE };

/* One fault of the daemon. */
struct fault {
    const char *name;
    enum step step;           /* the last step at which the client may detect it */
    enum trajd_status status; /* of the client's error */
    enum trajd_wire_op op;    /* of the message with the fault; 0: none */
    void (*alter)(struct trajd_wire_message *message);
    /* the key whose one-byte value is replaced by `value`, which the encoder would refuse */
    const char *key;
    uint8_t value;
    uint32_t copies;       /* how often the message is sent; 0: once */
    void (*greet)(int fd); /* replaces the answer of one byte, 0 */
    void (*send_fds)(int fd,
                     const struct trajd_server_ring *); /* replaces the message with the ring */
};

struct daemon {
    const struct fault *fault;
    bool noisy;                   /* sends invalid frames before each message */
    uint8_t major;                /* version of the protocol; 0: the right one */
    enum trajd_status late_error; /* about the feed before, sent when OPEN arrives; OK: none */
    void *context, *router;
    int listener, connection;
    struct trajd_server_ring ring;
    uint64_t sequence;
    bool stop; /* atomic */
    pthread_t thread;
    char route[64];
    int route_size;
    unsigned char frame[TRAJD_WIRE_MAX_FRAME + 64];
};

static char directory[64];

/* ---- the daemon ---- */

static void send_frame(struct daemon *daemon, const void *frame, size_t size)
{
    zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
    zmq_send(daemon->router, frame, size, 0);
}

/* Sends every prefix of the frame, an unknown op, an invalid body, and a message of two frames. */
static void make_noise(struct daemon *daemon, size_t size)
{
    unsigned char other[64] = {0};
    for (size_t cut = 0; cut < size; cut++)
        send_frame(daemon, daemon->frame, cut);
    memcpy(other, "TRJD\x01\x6f\0\0\x80", 9);
    send_frame(daemon, other, 9);
    memset(other + 8, 0xdf, sizeof other - 8);
    send_frame(daemon, other, sizeof other);
    zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
    zmq_send(daemon->router, daemon->frame, size, ZMQ_SNDMORE);
    zmq_send(daemon->router, daemon->frame, size, 0);
}

static void send_message(struct daemon *daemon, struct trajd_wire_message *message)
{
    const struct fault *fault = daemon->fault;
    const bool altered = fault && fault->op == message->op;
    size_t size = 0;
    if (altered && fault->alter)
        fault->alter(message);
    if (trajd_wire_encode(message, daemon->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL))
        abort();
    unsigned char *key =
        altered && fault->key ? memmem(daemon->frame, size, fault->key, strlen(fault->key)) : NULL;
    if (key)
        key[strlen(fault->key)] = fault->value;
    if (daemon->major != 0)
        daemon->frame[4] = daemon->major;
    if (daemon->noisy)
        make_noise(daemon, size);
    for (uint32_t i = 0; i < (altered && fault->copies > 0 ? fault->copies : 1); i++) {
        if (i > 0) {
            message->batch.seq = ++daemon->sequence;
            trajd_wire_encode(message, daemon->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL);
        }
        send_frame(daemon, daemon->frame, size);
    }
}

static void send_fds(int fd, const void *words, size_t size, const int *fds, uint32_t fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)words, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void answer_open(struct daemon *daemon, uint64_t request)
{
    const struct fault *fault = daemon->fault;
    struct trajd_wire_tensor tensor = {.name = trajd_wire_text("window_id"),
                                       .role = trajd_wire_text("ids"),
                                       .dtype = TRAJD_I64,
                                       .rank = 1,
                                       .shape = {ROWS},
                                       .offset_bytes = 64};
    struct trajd_wire_message opened = {.op = TRAJD_WIRE_OPENED,
                                        .opened = {.request = request,
                                                   .feed_id = RING,
                                                   .ring = RING,
                                                   .ring_size_bytes = daemon->ring.size_bytes,
                                                   .slot_count = SLOTS,
                                                   .slot_size_bytes = daemon->ring.slot_size_bytes,
                                                   .writable = true,
                                                   .batch = ROWS,
                                                   .row_count = ROWS,
                                                   .credit = 4,
                                                   .length = 800,
                                                   .windows = 800,
                                                   .tensor_count = 1,
                                                   .tensors = &tensor}};
    send_message(daemon, &opened);
    const uint64_t words[2] = {RING, daemon->ring.size_bytes};
    if (fault && fault->send_fds)
        fault->send_fds(daemon->connection, &daemon->ring);
    else
        send_fds(daemon->connection, words, sizeof words, &daemon->ring.fd, 1);
    struct trajd_wire_message batch = {.op = TRAJD_WIRE_BATCH,
                                       .batch = {.seq = ++daemon->sequence,
                                                 .feed_id = RING,
                                                 .ring = RING,
                                                 .slot = 1,
                                                 .generation = 1,
                                                 .row_count = ROWS}};
    send_message(daemon, &batch);
}

static void receive_message(struct daemon *daemon)
{
    struct trajd_wire_message message,
        welcome = {.op = TRAJD_WIRE_WELCOME, .welcome = {.instance = INSTANCE, .session = 1}},
        late_error = {
            .op = TRAJD_WIRE_ERROR,
            .error = {.status = daemon->late_error, .message = trajd_wire_text("it is closed")}};
    uint64_t request;
    int size = zmq_recv(daemon->router, daemon->route, sizeof daemon->route, ZMQ_DONTWAIT);
    if (size < 0)
        return;
    daemon->route_size = size;
    size = zmq_recv(daemon->router, daemon->frame, sizeof daemon->frame, 0);
    if (trajd_wire_decode(daemon->frame, (size_t)size, NULL, &message, &request, NULL))
        abort();
    if (message.op == TRAJD_WIRE_HELLO)
        send_message(daemon, &welcome);
    if (message.op == TRAJD_WIRE_OPEN && daemon->late_error)
        send_message(daemon, &late_error);
    if (message.op == TRAJD_WIRE_OPEN)
        answer_open(daemon, message.open.request);
    if (message.op == TRAJD_WIRE_BYE && daemon->connection >= 0)
        shutdown(daemon->connection, SHUT_RDWR);
}

static void accept_worker(struct daemon *daemon)
{
    char token[64];
    if (daemon->connection >= 0)
        close(daemon->connection);
    daemon->connection = accept(daemon->listener, NULL, NULL);
    if (recv(daemon->connection, token, sizeof token, 0) < 0)
        return;
    if (daemon->fault && daemon->fault->greet)
        daemon->fault->greet(daemon->connection);
    else
        send(daemon->connection, "", 1, MSG_NOSIGNAL);
}

static void *run(void *context)
{
    struct daemon *daemon = context;
    /* acquire: sees all that the test wrote before it stopped the thread */
    while (!__atomic_load_n(&daemon->stop, __ATOMIC_ACQUIRE)) {
        zmq_pollitem_t items[] = {{.socket = daemon->router, .events = ZMQ_POLLIN},
                                  {.fd = daemon->listener, .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, 5);
        if (items[1].revents != 0)
            accept_worker(daemon);
        receive_message(daemon);
    }
    return NULL;
}

static void daemon_start(struct daemon *daemon)
{
    struct trajd_error error;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char endpoint[96];
    const int no_linger = 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fd.sock", directory);
    unlink(address.sun_path);
    daemon->connection = -1;
    daemon->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(daemon->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(daemon->listener, 8), 0);
    daemon->context = zmq_ctx_new();
    daemon->router = zmq_socket(daemon->context, ZMQ_ROUTER);
    zmq_setsockopt(daemon->router, ZMQ_LINGER, &no_linger, sizeof no_linger);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/feed.sock", directory);
    assert_int_equal(zmq_bind(daemon->router, endpoint), 0);
    assert_int_equal(
        trajd_server_ring_create(&daemon->ring, SLOTS, TRAJD_RING_ALIGNMENT, true, &error),
        TRAJD_OK);
    trajd_server_ring_name(&daemon->ring, RING, INSTANCE);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        trajd_server_ring_stamp(&daemon->ring, slot,
                                &(struct trajd_slot_header){.generation = 1, .row_count = ROWS});
    assert_int_equal(pthread_create(&daemon->thread, NULL, run, daemon), 0);
}

static void daemon_stop(struct daemon *daemon)
{
    __atomic_store_n(&daemon->stop, true, __ATOMIC_RELEASE);
    pthread_join(daemon->thread, NULL);
    zmq_close(daemon->router);
    zmq_ctx_term(daemon->context);
    close(daemon->listener);
    if (daemon->connection >= 0)
        close(daemon->connection);
    trajd_server_ring_destroy(&daemon->ring);
}

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
    send_fds(fd, words, sizeof words, &file, 1);
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
    send_fds(fd, words, sizeof words, NULL, 0);
}
static void hand_cut(int fd, const struct trajd_server_ring *ring)
{
    send_fds(fd, "short", 5, &ring->fd, 1);
}
static void hand_many(int fd, const struct trajd_server_ring *ring)
{
    const int fds[8] = {ring->fd, ring->fd, ring->fd, ring->fd,
                        ring->fd, ring->fd, ring->fd, ring->fd};
    send_fds(fd, "short", 5, fds, 8);
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
    daemon_start(daemon);
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
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
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
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_fault(&faults[i], false);
}

static void test_another_version_is_an_error(void **state)
{
    (void)state;
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct trajd_client *client;
    struct trajd_error error;
    daemon->major = TRAJD_WIRE_MAJOR + 1;
    daemon_start(daemon);
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
    for (size_t i = 0; i < sizeof late_errors / sizeof *late_errors; i++) {
        struct daemon *daemon = calloc(1, sizeof *daemon);
        enum trajd_status status;
        daemon->late_error = late_errors[i];
        daemon_start(daemon);
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
    daemon_start(daemon);
    assert_int_equal(trajd_client_connect(&(struct trajd_connect_options){.endpoint = directory},
                                          &client, &error),
                     TRAJD_OK);
    status = trajd_client_open(client, &(struct trajd_open_options){.feed = "train", .credit = 4},
                               &error);
    while (!status && count < 256)
        if (!(status = trajd_client_next(client, 10000, &held[count], &error)))
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
