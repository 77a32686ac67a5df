/* fake_worker DIRECTORY [NAME=VALUE...]: reads epochs of "train", checks every value and reports
 * each event in one line:
 *   B EPOCH POSITION ROW_BEGIN ROW_COUNT   a batch, before it is DONE
 *   F EPOCH MESSAGE                        a batch that failed
 *   E EPOCH                                the end of the epoch
 *   X STATUS MESSAGE                       an error; the exit status is 1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "tests/support/test_producer.h"
#include "trajd.h"

struct worker {
    struct trajd_open_options open;
    uint64_t epochs;
    /* after this number of batches it keeps its batches and waits to be killed; 0: never */
    uint64_t hang_after;
    uint32_t delay_us, timeout_ms; /* timeout_ms: the wait for a daemon; 0: the library's default */
    bool reconnect;
};

static int fail(const char *status, const char *message)
{
    printf("X %s %s\n", status, message);
    fflush(stdout);
    return 1;
}

static bool parse(struct worker *worker, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return false;
    const uint64_t value = strtoull(equals + 1, NULL, 10);
    const size_t length = (size_t)(equals - text);
    const struct {
        const char *name;
        uint32_t *small;
        uint64_t *large;
    } table[] = {
        {"rank", &worker->open.rank, NULL},        {"world", &worker->open.world, NULL},
        {"credit", &worker->open.credit, NULL},    {"epoch", NULL, &worker->open.epoch},
        {"next", NULL, &worker->open.next},        {"epochs", NULL, &worker->epochs},
        {"hang", NULL, &worker->hang_after},       {"delay_us", &worker->delay_us, NULL},
        {"timeout_ms", &worker->timeout_ms, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) != length || memcmp(table[i].name, text, length) != 0)
            continue;
        if (table[i].small)
            *table[i].small = (uint32_t)value;
        else
            *table[i].large = value;
        return true;
    }
    if (strncmp(text, "reconnect=", 10) == 0)
        worker->reconnect = value != 0;
    else if (strncmp(text, "shard=", 6) == 0)
        worker->open.mode = value != 0 ? TRAJD_MODE_SHARD : TRAJD_MODE_QUEUE;
    else
        return false;
    return true;
}

static bool is_right(const struct trajd_batch *batch, uint64_t length)
{
    const struct trajd_tensor *ids = trajd_batch_find(batch, "window_id");
    const struct trajd_tensor *actions = trajd_batch_find(batch, "actions");
    struct trajd_batch_info info;
    trajd_batch_get_info(batch, &info);
    if (!ids || !actions || ids->shape[0] != info.row_count)
        return false;
    for (uint32_t row = 0; row < info.row_count; row++) {
        const uint64_t window =
            producer_window(info.epoch, info.position + info.row_begin + row, length);
        const float *values =
            (const float *)((const char *)actions->data + row * actions->strides_bytes[0]);
        if (((const int64_t *)ids->data)[row] != (int64_t)window)
            return false;
        for (uint32_t column = 0; column < PRODUCER_COLUMNS; column++)
            if (values[column] != producer_value(info.epoch, window, column))
                return false;
    }
    return true;
}

static void tell(const struct trajd_batch *batch)
{
    struct trajd_batch_info info;
    trajd_batch_get_info(batch, &info);
    printf("B %llu %llu %u %u\n", (unsigned long long)info.epoch, (unsigned long long)info.position,
           info.row_begin, info.row_count);
    fflush(stdout);
}

/* Holds each batch until it has the next one, as a `for` loop over batches does. */
static int read_epoch(const struct worker *worker, struct trajd_client *client, uint64_t *count)
{
    struct trajd_batch *batch, *before = NULL;
    struct trajd_error error;
    for (;;) {
        enum trajd_status status = trajd_client_next(client, -1, &batch, &error);
        if (status == TRAJD_ERR_DATA) {
            printf("F %llu %s\n", (unsigned long long)worker->open.epoch, error.message);
            continue;
        }
        if (!status && !is_right(batch, trajd_client_feed_info(client)->epoch_length))
            return fail("data", "a value is wrong");
        if (!status)
            tell(batch);
        trajd_batch_release(&before);
        if (status == TRAJD_END_OF_EPOCH)
            return 0;
        if (status)
            return fail(trajd_status_name(status), error.message);
        before = batch;
        if (worker->delay_us > 0)
            usleep(worker->delay_us);
        if (++*count == worker->hang_after)
            for (;;)
                pause();
    }
}

int main(int argc, char **argv)
{
    struct worker worker = {.open = {.feed = "train", .world = 1}, .epochs = 1};
    struct trajd_client *client;
    struct trajd_error error;
    uint64_t count = 0;
    for (int i = 2; i < argc; i++)
        if (!parse(&worker, argv[i]))
            return fail("argument", argv[i]);
    const struct trajd_connect_options connect = {
        .endpoint = argv[1], .timeout_ms = worker.timeout_ms, .reconnect = worker.reconnect};
    enum trajd_status status = trajd_client_connect(&connect, &client, &error);
    if (status)
        return fail(trajd_status_name(status), error.message);
    for (uint64_t i = 0; i < worker.epochs; i++, worker.open.epoch++, worker.open.next = 0) {
        status = trajd_client_open(client, &worker.open, &error);
        if (status)
            return fail(trajd_status_name(status), error.message);
        if (read_epoch(&worker, client, &count) != 0)
            return 1;
        printf("E %llu\n", (unsigned long long)worker.open.epoch);
        fflush(stdout);
    }
    trajd_client_close(&client);
    return 0;
}
