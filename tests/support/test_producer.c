/* Fills slots with bytes that follow from epoch and position. */
#include "tests/support/test_producer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"

enum { TENSOR_IDS, TENSOR_ACTIONS, TENSOR_MASK, TENSOR_PAYLOAD, TENSOR_COUNT };
enum { EARLY_MAX = 64 };

struct asked {
    uint64_t request;
    char name[64];
    bool is_train;
};

struct producer {
    struct producer_options options;
    struct trajd_server *server;
    struct trajd_feed *feed;
    struct trajd_wire_tensor tensors[TENSOR_COUNT];
    struct trajd_feed_schema schema;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the members below */
    bool has_feed;
    struct asked early[EARLY_MAX];
    uint32_t early_count;
};

uint64_t producer_window(uint64_t epoch, uint64_t position, uint64_t length)
{
    return (position + epoch * 31) % length;
}

float producer_value(uint64_t epoch, uint64_t window, uint32_t column)
{
    return (float)(epoch * 100000 + window) + 0.25f * (float)column;
}

static void fill_range(const struct producer *producer, const struct trajd_fill *fill,
                       struct trajd_rows rows)
{
    unsigned char *slot = fill->memory;
    int64_t *ids = (int64_t *)(slot + producer->tensors[TENSOR_IDS].offset_bytes);
    float *actions = (float *)(slot + producer->tensors[TENSOR_ACTIONS].offset_bytes);
    for (uint32_t row = rows.begin; row < rows.begin + rows.count; row++) {
        const uint64_t window =
            producer_window(fill->epoch, fill->position + row, producer->options.length);
        ids[row] = (int64_t)window;
        for (uint32_t column = 0; column < PRODUCER_COLUMNS; column++)
            actions[row * PRODUCER_COLUMNS + column] = producer_value(fill->epoch, window, column);
    }
    memset(slot + producer->tensors[TENSOR_MASK].offset_bytes + rows.begin, 0, rows.count);
}

static void fill_rows(const struct producer *producer, const struct trajd_fill *fill)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        fill_range(producer, fill, fill->ranges[r]);
}

static void *produce(void *context)
{
    struct producer *producer = context;
    for (;;) {
        struct trajd_fill fill;
        enum trajd_status status = trajd_feed_take(producer->feed, 1000, &fill);
        if (status == TRAJD_ERR_CLOSED)
            return NULL;
        if (status)
            continue;
        struct trajd_error failure;
        const bool fails = producer->options.fail_position != 0 &&
                           fill.position == producer->options.fail_position;
        if (fails)
            trajd_error_set(&failure, TRAJD_ERR_DATA, 0, "demo.hdf5: row %llu: made to fail",
                            (unsigned long long)fill.position);
        else
            fill_rows(producer, &fill);
        if (producer->options.delay_us > 0)
            usleep(producer->options.delay_us);
        trajd_feed_publish(producer->feed, &fill, fails ? &failure : NULL);
    }
}

static void answer_open(struct producer *producer, const struct asked *asked)
{
    struct trajd_error error;
    trajd_error_set(&error, TRAJD_ERR_NOT_FOUND, 0, "no feed %s (there is: train)", asked->name);
    trajd_server_answer(producer->server, asked->request, asked->is_train ? producer->feed : NULL,
                        &error);
}

/* A worker that waited for the daemon may open before the feed exists. */
static void open_feed(void *context, const struct trajd_server_wanted *wanted)
{
    struct producer *producer = context;
    struct asked asked = {.request = wanted->request,
                          .is_train = wanted->spec != NULL ||
                                      (wanted->name != NULL && strcmp(wanted->name, "train") == 0)};
    snprintf(asked.name, sizeof asked.name, "%s", wanted->name ? wanted->name : "");
    pthread_mutex_lock(&producer->mutex);
    const bool early = !producer->has_feed;
    if (early && producer->early_count < EARLY_MAX)
        producer->early[producer->early_count++] = asked;
    pthread_mutex_unlock(&producer->mutex);
    if (!early)
        answer_open(producer, &asked);
}

static void answer_early(struct producer *producer)
{
    pthread_mutex_lock(&producer->mutex);
    producer->has_feed = true;
    pthread_mutex_unlock(&producer->mutex);
    for (uint32_t i = 0; i < producer->early_count; i++)
        answer_open(producer, &producer->early[i]);
}

static void describe(void *context, struct trajd_json *json, size_t room)
{
    (void)context, (void)room;
    trajd_json_string(json, "producer", "fake");
}

static void describe_tensors(struct producer *producer)
{
    const uint64_t rows = producer->options.batch;
    producer->tensors[TENSOR_IDS] = (struct trajd_wire_tensor){.name = trajd_wire_text("window_id"),
                                                               .role = trajd_wire_text("ids"),
                                                               .dtype = TRAJD_I64,
                                                               .rank = 1,
                                                               .shape = {rows}};
    producer->tensors[TENSOR_ACTIONS] =
        (struct trajd_wire_tensor){.name = trajd_wire_text("actions"),
                                   .role = trajd_wire_text("action"),
                                   .dtype = TRAJD_F32,
                                   .rank = 2,
                                   .shape = {rows, PRODUCER_COLUMNS}};
    producer->tensors[TENSOR_MASK] =
        (struct trajd_wire_tensor){.name = trajd_wire_text("actions.mask"),
                                   .role = trajd_wire_text("mask"),
                                   .of = trajd_wire_text("actions"),
                                   .dtype = TRAJD_U8,
                                   .rank = 2,
                                   .shape = {rows, 1}};
    producer->tensors[TENSOR_PAYLOAD] =
        (struct trajd_wire_tensor){.name = trajd_wire_text("obs/payload"),
                                   .role = trajd_wire_text("obs"),
                                   .dtype = TRAJD_U8,
                                   .rank = 2,
                                   .shape = {rows, producer->options.payload_bytes}};
    producer->schema =
        (struct trajd_feed_schema){.global_batch = producer->options.batch,
                                   .tensor_count = producer->options.payload_bytes > 0 ? 4 : 3,
                                   .tensors = producer->tensors};
}

static void set_defaults(struct producer_options *options)
{
    options->slots = options->slots > 0 ? options->slots : 6;
    options->batch = options->batch > 0 ? options->batch : 8;
    options->credit = options->credit > 0 ? options->credit : 16;
    options->sessions = options->sessions > 0 ? options->sessions : 16;
    options->silence_ms = options->silence_ms > 0 ? options->silence_ms : 10000;
    options->length = options->length > 0 ? options->length : 1000;
    options->instance = options->instance > 0 ? options->instance
                                              : (uint64_t)trajd_now_ns() ^ (uint64_t)getpid() << 40;
}

static enum trajd_status add_feed(struct producer *producer, struct trajd_error *error)
{
    const struct producer_options *options = &producer->options;
    const struct trajd_core_feed_options feed = {.name = "train",
                                                 .slot_count = options->slots,
                                                 .job_count = options->jobs,
                                                 .max_credit = options->credit,
                                                 .fingerprint = 77,
                                                 .seed = 5,
                                                 .window_count = options->length,
                                                 .epoch_length = options->length,
                                                 .tail_short = true,
                                                 .journal_directory =
                                                     options->journal ? options->directory : NULL};
    enum trajd_status status = trajd_feed_schema_layout(&producer->schema, error);
    return !status ? trajd_server_add_feed(producer->server, &feed, &producer->schema, NULL,
                                           &producer->feed, error)
                   : status;
}

enum trajd_status producer_start(const struct producer_options *options, struct producer **out,
                                 struct trajd_error *error)
{
    static const char *const names[] = {"train", NULL};
    struct producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "producer: out of memory");
    producer->options = *options;
    pthread_mutex_init(&producer->mutex, NULL);
    set_defaults(&producer->options);
    describe_tensors(producer);
    const struct trajd_server_options server = {
        .runtime_directory = options->directory,
        .max_sessions = producer->options.sessions,
        .instance_id = producer->options.instance,
        .version = "test",
        .open_feed = open_feed,
        .describe = describe,
        .context = producer,
        .feed_idle_ms = 1000,
        .answers_queries = producer->options.answers_queries,
        .feed_names = names,
        .remote = {.address = options->tcp,
                   .keys = options->keys,
                   .insecure_loopback = !options->keys,
                   .silence_ms = producer->options.silence_ms}};
    enum trajd_status status = trajd_server_create(&server, &producer->server, error);
    if (!status)
        status = add_feed(producer, error);
    if (!status && pthread_create(&producer->thread, NULL, produce, producer) != 0)
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, 0, "producer: no thread");
    if (!status)
        answer_early(producer);
    if (status) {
        trajd_server_destroy(&producer->server);
        pthread_mutex_destroy(&producer->mutex);
        free(producer);
        return status;
    }
    *out = producer;
    return TRAJD_OK;
}

struct trajd_server *producer_server(struct producer *producer)
{
    return producer->server;
}

void producer_stop(struct producer **pointer)
{
    struct producer *producer = *pointer;
    if (!producer)
        return;
    trajd_feed_close(producer->feed);
    pthread_join(producer->thread, NULL);
    trajd_server_remove_feed(producer->server, &producer->feed);
    trajd_server_destroy(&producer->server);
    pthread_mutex_destroy(&producer->mutex);
    free(producer);
    *pointer = NULL;
}
