/* libtrajd with a remote daemon that sends wrong payloads: the call fails, and no byte is written
 * outside the buffer of the feed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

#include "proto/array_len.h"
#include "proto/wire.h"
#include "trajd.h"

#define ROWS 8u
#define WORLD 2u
#define PAYLOAD_BYTES 128u /* 4 rows of an int64 and of 5 bytes, each padded to 64 bytes */

/* The frames that follow BATCH, and the result. */
struct fault {
    const char *name;
    enum trajd_status status; /* of next() */
    size_t frames[6];         /* their sizes in bytes, ended by 0 */
    /* NULL: no change; the same for bend_batch */
    void (*bend_opened)(struct trajd_wire_opened *opened);
    void (*bend_batch)(struct trajd_wire_batch *batch);
    bool empty_frame; /* an empty frame at the end */
    /* other messages have further frames too, and libtrajd drops these messages */
    bool noisy;
};

struct daemon {
    const struct fault *fault;
    void *context, *router;
    bool stop; /* atomic */
    pthread_t thread;
    char route[64];
    int route_size;
    unsigned char frame[TRAJD_WIRE_MAX_FRAME];
    unsigned char bytes[2 * TRAJD_WIRE_MAX_PAYLOAD_FRAME];
};

static char endpoint[64];

static void send_message(struct daemon *daemon, const struct trajd_wire_message *message)
{
    const bool is_batch = message->op == TRAJD_WIRE_BATCH;
    const size_t *frames = daemon->fault->frames;
    size_t size = 0;
    if (trajd_wire_encode(message, daemon->frame, TRAJD_WIRE_MAX_FRAME, &size, NULL))
        abort();
    /* the same message with further frames comes first, and must be dropped */
    if (!is_batch && daemon->fault->noisy) {
        zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
        zmq_send(daemon->router, daemon->frame, size, ZMQ_SNDMORE);
        zmq_send(daemon->router, daemon->bytes, 1000, 0);
    }
    zmq_send(daemon->router, daemon->route, (size_t)daemon->route_size, ZMQ_SNDMORE);
    const bool alone = !is_batch || (frames[0] == 0 && !daemon->fault->empty_frame);
    zmq_send(daemon->router, daemon->frame, size, alone ? 0 : ZMQ_SNDMORE);
    for (size_t i = 0; is_batch && frames[i] > 0; i++)
        zmq_send(daemon->router, daemon->bytes, frames[i],
                 frames[i + 1] > 0 || daemon->fault->empty_frame ? ZMQ_SNDMORE : 0);
    if (is_batch && daemon->fault->empty_frame)
        zmq_send(daemon->router, "", 0, 0);
}

static void answer_open(struct daemon *daemon, uint64_t request)
{
    const struct trajd_wire_tensor tensors[] = {{.name = trajd_wire_text("window_id"),
                                                 .role = trajd_wire_text("ids"),
                                                 .dtype = TRAJD_I64,
                                                 .rank = 1,
                                                 .shape = {ROWS},
                                                 .offset_bytes = 64},
                                                {.name = trajd_wire_text("actions"),
                                                 .role = trajd_wire_text("action"),
                                                 .dtype = TRAJD_U8,
                                                 .rank = 2,
                                                 .shape = {ROWS, 5},
                                                 .offset_bytes = 128}};
    struct trajd_wire_message opened = {.op = TRAJD_WIRE_OPENED,
                                        .opened = {.request = request,
                                                   .feed_id = 1,
                                                   .ring = 1,
                                                   .ring_size_bytes = 20480,
                                                   .slot_count = 4,
                                                   .slot_size_bytes = 4096,
                                                   .batch = ROWS,
                                                   .row_begin = 4,
                                                   .row_count = 4,
                                                   .credit = 4,
                                                   .length = 800,
                                                   .windows = 800,
                                                   .tensor_count = 2,
                                                   .tensors = tensors}};
    struct trajd_wire_message batch = {.op = TRAJD_WIRE_BATCH,
                                       .batch = {.seq = 1,
                                                 .feed_id = 1,
                                                 .ring = 1,
                                                 .slot = 1,
                                                 .generation = 1,
                                                 .row_begin = 4,
                                                 .row_count = 4}};
    if (daemon->fault->bend_opened)
        daemon->fault->bend_opened(&opened.opened);
    if (daemon->fault->bend_batch)
        daemon->fault->bend_batch(&batch.batch);
    send_message(daemon, &opened);
    send_message(daemon, &batch);
}

static void receive_message(struct daemon *daemon)
{
    struct trajd_wire_message message,
        welcome = {.op = TRAJD_WIRE_WELCOME,
                   .welcome = {.instance = 9, .session = 1, .silence_ms = 60000}},
        gone = {.op = TRAJD_WIRE_ERROR, .error = {.status = TRAJD_ERR_NOT_FOUND}};
    uint64_t request;
    int size = zmq_recv(daemon->router, daemon->route, sizeof daemon->route, 0);
    if (size < 0)
        return;
    daemon->route_size = size;
    size = zmq_recv(daemon->router, daemon->frame, sizeof daemon->frame, 0);
    if (trajd_wire_decode(daemon->frame, (size_t)size, NULL, &message, &request, NULL))
        abort();
    if (message.op == TRAJD_WIRE_HELLO)
        send_message(daemon, &welcome);
    else if (message.op == TRAJD_WIRE_OPEN)
        answer_open(daemon, message.open.request);
    else if (message.op == TRAJD_WIRE_BYE)
        send_message(daemon, &gone);
}

static void *run(void *context)
{
    struct daemon *daemon = context;
    /* acquire: pairs with the store in daemon_stop */
    while (!__atomic_load_n(&daemon->stop, __ATOMIC_ACQUIRE))
        receive_message(daemon);
    return NULL;
}

static void daemon_start(struct daemon *daemon)
{
    const int no_linger = 0, timeout_ms = 5;
    size_t size = sizeof endpoint;
    memset(daemon->bytes, 7, sizeof daemon->bytes);
    daemon->context = zmq_ctx_new();
    daemon->router = zmq_socket(daemon->context, ZMQ_ROUTER);
    zmq_setsockopt(daemon->router, ZMQ_LINGER, &no_linger, sizeof no_linger);
    zmq_setsockopt(daemon->router, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    assert_int_equal(zmq_bind(daemon->router, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(daemon->router, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
    assert_int_equal(pthread_create(&daemon->thread, NULL, run, daemon), 0);
}

static void daemon_stop(struct daemon *daemon)
{
    __atomic_store_n(&daemon->stop, true, __ATOMIC_RELEASE);
    pthread_join(daemon->thread, NULL);
    zmq_close(daemon->router);
    zmq_ctx_term(daemon->context);
}

static void check_batch(const struct trajd_batch *batch, uint64_t rows)
{
    const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
    assert_int_equal(actions->shape[0], rows);
    for (uint64_t i = 0; i < 5 * rows; i++)
        assert_int_equal(((const unsigned char *)actions->data)[i], 7);
}

static void try_fault(const struct fault *fault)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct trajd_client *client = NULL;
    struct trajd_batch *batch = NULL;
    struct trajd_error error;
    daemon->fault = fault;
    daemon_start(daemon);
    enum trajd_status status = trajd_client_connect(
        &(struct trajd_connect_options){.endpoint = endpoint}, &client, &error);
    if (!status)
        status = trajd_client_open(client,
                                   &(struct trajd_open_options){.feed = "train",
                                                                .mode = TRAJD_MODE_SHARD,
                                                                .rank = 1,
                                                                .world = WORLD,
                                                                .timeout_ms = 60000},
                                   &error);
    if (!status) {
        const struct trajd_feed_info *info = trajd_client_feed_info(client);
        status = trajd_client_next(client, fault->status == TRAJD_ERR_TIMEOUT ? 300 : 10000, &batch,
                                   &error);
        if (!status)
            check_batch(batch, fault->bend_batch ? 0 : info->row_count);
    }
    if (status != fault->status)
        fail_msg("%s: %s (%s)", fault->name, trajd_status_name(status), error.message);
    trajd_batch_release(&batch);
    trajd_client_close(&client);
    daemon_stop(daemon);
    free(daemon);
}

static void no_rows(struct trajd_wire_batch *batch)
{
    batch->row_count = 0;
}
static void all_rows(struct trajd_wire_batch *batch) /* more rows than a rank of two can have */
{
    batch->row_begin = 0;
    batch->row_count = ROWS;
}
static void failed(struct trajd_wire_batch *batch)
{
    batch->error = trajd_wire_text("made to fail");
}
static struct trajd_wire_tensor *tensor_of(struct trajd_wire_opened *opened)
{
    return (struct trajd_wire_tensor *)&opened->tensors[1];
}
static void huge_tensor(struct trajd_wire_opened *opened)
{
    tensor_of(opened)->rank = 3;
    tensor_of(opened)->shape[1] = tensor_of(opened)->shape[2] = UINT64_C(1) << 40;
}
/* more than there is memory, with consistent numbers */
static void huge_slot(struct trajd_wire_opened *opened)
{
    tensor_of(opened)->shape[1] = UINT64_C(1) << 52;
    opened->slot_size_bytes = UINT64_C(1) << 56;
}
static void many_rows(struct trajd_wire_opened *opened)
{
    opened->row_count = ROWS;
}

static void test_right_payloads_are_accepted(void **state)
{
    (void)state;
    const struct fault faults[] = {
        {"in one frame", TRAJD_OK, .frames = {PAYLOAD_BYTES}},
        {"in many", TRAJD_OK, .frames = {1, 63, 40, 23, 1}},
        {"no rows, no frames", TRAJD_OK, .frames = {0}, .bend_batch = no_rows},
        {"a batch that failed", TRAJD_ERR_DATA, .frames = {0}, .bend_batch = failed},
        {"noise", TRAJD_OK, .frames = {PAYLOAD_BYTES}, .noisy = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        try_fault(&faults[i]);
}

static void test_wrong_payloads_are_refused(void **state)
{
    (void)state;
    const struct fault faults[] = {
        {"no payload", TRAJD_ERR_PROTOCOL, .frames = {0}},
        {"a short one", TRAJD_ERR_PROTOCOL, .frames = {PAYLOAD_BYTES - 1}},
        {"a long one", TRAJD_ERR_PROTOCOL, .frames = {PAYLOAD_BYTES + 1}},
        {"a long one in pieces", TRAJD_ERR_PROTOCOL, .frames = {64, 64, 1}},
        {"a much longer one", TRAJD_ERR_PROTOCOL,
         .frames = {64, TRAJD_WIRE_MAX_PAYLOAD_FRAME, TRAJD_WIRE_MAX_PAYLOAD_FRAME, 64}},
        {"an empty frame", TRAJD_ERR_PROTOCOL, .frames = {64, 64}, .empty_frame = true},
        {"rows of others", TRAJD_ERR_PROTOCOL, .frames = {2 * PAYLOAD_BYTES - 64},
         .bend_batch = all_rows},
        {"a payload of no rows", TRAJD_ERR_PROTOCOL, .frames = {64}, .bend_batch = no_rows},
        {"a tensor that overflows", TRAJD_ERR_PROTOCOL, .frames = {PAYLOAD_BYTES},
         .bend_opened = huge_tensor},
        {"more than there is memory", TRAJD_ERR_MEMORY, .frames = {PAYLOAD_BYTES},
         .bend_opened = huge_slot},
        {"rows beyond the batch", TRAJD_ERR_PROTOCOL, .frames = {PAYLOAD_BYTES},
         .bend_opened = many_rows},
        /* closes the connection */
        {"a frame that is too long", TRAJD_ERR_TIMEOUT,
         .frames = {2 * TRAJD_WIRE_MAX_PAYLOAD_FRAME}},
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        try_fault(&faults[i]);
}

/* The sanitizers' allocators abort where malloc would return NULL. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_payloads_are_accepted),
        cmocka_unit_test(test_wrong_payloads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
