/* trajctl recv: receives batches of a feed and prints their tensors, masks and values. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/json.h"
#include "daemon/window/window_report.h"
#include "kernels/element_convert.h"
#include "kernels/resample.h"

#define SHOWN_VALUES 4u
#define MASK_CODES (TRAJD_MASK_BAD_FRAME + 1u)
#define VALUE_SIZE 32u

static uint64_t count_values(const struct trajd_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

/* Writes one value as text. Returns false for NaN and infinities, which JSON lacks. */
static bool format_value(const struct trajd_tensor *tensor, uint64_t index, char text[VALUE_SIZE])
{
    const enum trajd_dtype dtype = tensor->dtype;
    const unsigned char *at = (const unsigned char *)tensor->data + index * trajd_dtype_size(dtype);
    const double value = trajd_element_load(dtype, at);
    uint64_t whole;

    if (trajd_dtype_is_float(dtype)) {
        snprintf(text, VALUE_SIZE, "%.6g", value);
    } else if (dtype == TRAJD_I64 || dtype == TRAJD_U64) { /* a double has only 53 bits */
        memcpy(&whole, at, sizeof whole);
        snprintf(text, VALUE_SIZE, dtype == TRAJD_I64 ? "%" PRId64 : "%" PRIu64, whole);
    } else {
        snprintf(text, VALUE_SIZE, "%.0f", value);
    }
    return isfinite(value);
}

/* Counts how often the mask has each code of kernels/resample.h; 0 is valid. */
static void count_codes(const struct trajd_tensor *tensor, uint64_t counts[MASK_CODES])
{
    const uint64_t count = tensor->dtype == TRAJD_U8 ? count_values(tensor) : 0;
    memset(counts, 0, MASK_CODES * sizeof *counts);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t code = ((const uint8_t *)tensor->data)[i];
        if (code < MASK_CODES)
            counts[code]++;
    }
}

static void print_counts(const uint64_t *counts, uint32_t count)
{
    printf("[");
    for (uint32_t i = 0; i < count; i++)
        printf("%s%" PRIu64, i > 0 ? ", " : "", counts[i]);
    printf("]");
}

/* Prints how many steps are valid, or have a reason why not: "60 valid, 4 after end". */
static void print_reasons(const struct trajd_tensor *tensor)
{
    uint64_t counts[MASK_CODES];
    const char *before = "";

    count_codes(tensor, counts);
    for (uint32_t code = 0; code < MASK_CODES; code++) {
        if (!counts[code])
            continue;
        printf("%s%" PRIu64 " %s", before, counts[code],
               trajd_window_mask_name((enum trajd_mask)code));
        before = ", ";
    }
}

static void print_values(const struct trajd_tensor *tensor)
{
    const uint64_t count = count_values(tensor);
    char text[VALUE_SIZE];
    printf("[");
    for (uint64_t i = 0; i < count && i < SHOWN_VALUES; i++) {
        format_value(tensor, i, text);
        printf("%s%s", i > 0 ? ", " : "", text);
    }
    printf(count > SHOWN_VALUES ? ", ...]" : "]");
}

static void print_tensor(const struct trajd_tensor *tensor)
{
    printf("  %-32s %-4s ", tensor->name, trajd_dtype_name(tensor->dtype));
    print_counts(tensor->shape, tensor->rank);
    printf("  ");
    if (strcmp(tensor->role, "mask") == 0)
        print_reasons(tensor);
    else
        print_values(tensor);
    printf("\n");
}

static void json_counts(struct trajd_json *json, const char *key, const uint64_t *counts,
                        uint32_t count)
{
    trajd_json_open_array(json, key);
    for (uint32_t i = 0; i < count; i++)
        trajd_json_u64(json, NULL, counts[i]);
    trajd_json_close_array(json);
}

static void json_values(struct trajd_json *json, const char *key, const struct trajd_tensor *tensor)
{
    const uint64_t count = count_values(tensor);
    char text[VALUE_SIZE];
    trajd_json_open_array(json, key);
    for (uint64_t i = 0; i < count && i < SHOWN_VALUES; i++)
        trajd_json_raw(json, NULL, format_value(tensor, i, text) ? text : "null");
    trajd_json_close_array(json);
}

static void json_tensor(struct trajd_json *json, const struct trajd_tensor *tensor)
{
    uint64_t counts[MASK_CODES];
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", tensor->name);
    trajd_json_string(json, "dtype", trajd_dtype_name(tensor->dtype));
    json_counts(json, "shape", tensor->shape, tensor->rank);
    if (strcmp(tensor->role, "mask") == 0) {
        count_codes(tensor, counts);
        json_counts(json, "mask_counts", counts, MASK_CODES);
    } else {
        json_values(json, "first", tensor);
    }
    trajd_json_close_object(json);
}

static void json_batch(const struct trajd_batch *batch, const struct trajd_batch_info *info)
{
    struct trajd_json json = {.out = stdout};
    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "epoch", info->epoch);
    trajd_json_u64(&json, "position", info->position);
    trajd_json_open_array(&json, "rows");
    trajd_json_u64(&json, NULL, info->row_begin);
    trajd_json_u64(&json, NULL, info->row_count);
    trajd_json_close_array(&json);
    trajd_json_open_array(&json, "tensors");
    for (uint32_t i = 0; i < trajd_batch_tensor_count(batch); i++)
        json_tensor(&json, trajd_batch_tensor(batch, i));
    trajd_json_close_array(&json);
    trajd_json_close_object(&json);
    putchar('\n');
}

static void print_batch(const struct trajd_batch *batch, bool json)
{
    struct trajd_batch_info info;
    trajd_batch_get_info(batch, &info);
    if (json) {
        json_batch(batch, &info);
        return;
    }
    printf("epoch %" PRIu64 " position %" PRIu64 " rows %u..%u\n", info.epoch, info.position,
           info.row_begin, info.row_begin + info.row_count);
    for (uint32_t i = 0; i < trajd_batch_tensor_count(batch); i++)
        print_tensor(trajd_batch_tensor(batch, i));
}

static void print_failure(const char *message, bool is_json)
{
    struct trajd_json json = {.out = stdout};
    if (!is_json) {
        printf("failed: %s\n", message);
        return;
    }
    trajd_json_open_object(&json, NULL);
    trajd_json_string(&json, "error", message);
    trajd_json_close_object(&json);
    putchar('\n');
}

struct recv {
    struct cli_connection connection;
    struct trajd_open_options open;
    uint64_t count;
    bool json;
};

const struct cli_option cli_recv_options[] = {
    {"--count", "N", "batches to read (all of the epoch)", CLI_U64, offsetof(struct recv, count)},
    {"--epoch", "N", "the epoch (0)", CLI_U64, offsetof(struct recv, open.epoch)},
    {"--next", "POSITION", "the position to begin at (0)", CLI_U64,
     offsetof(struct recv, open.next)},
    {"--rank", "R", "read as this rank of --world (0)", CLI_U32, offsetof(struct recv, open.rank)},
    {"--world", "W", "the number of ranks; without it, whole batches go to whoever asks", CLI_U32,
     offsetof(struct recv, open.world)},
    {"--job", "NAME", "the job whose batches are shared (trajctl)", CLI_TEXT,
     offsetof(struct recv, open.job)},
    {"--credit", "N", "batches that may be held (3/4 of the slots)", CLI_U32,
     offsetof(struct recv, open.credit)},
    {"--json", NULL, "print JSON documents, one a line", CLI_FLAG, offsetof(struct recv, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct recv, connection), .table = cli_daemon_options},
    {0}};

static int receive(struct trajd_client *client, const struct recv *recv)
{
    struct trajd_batch *batch;
    struct trajd_error error;
    if (cli_open(client, recv->open, &error))
        return cli_fail("%s", error.message);
    for (uint64_t i = 0; i < recv->count; i++) {
        enum trajd_status status = trajd_client_next(client, -1, &batch, &error);
        if (status == TRAJD_END_OF_EPOCH)
            return CLI_OK;
        if (status == TRAJD_ERR_DATA) {
            print_failure(error.message, recv->json);
            continue;
        }
        if (status)
            return cli_fail("%s", error.message);
        print_batch(batch, recv->json);
        trajd_batch_release(&batch);
    }
    return CLI_OK;
}

int cli_recv(int argc, char **argv)
{
    struct recv recv = {.open.job = "trajctl", .count = UINT64_MAX};

    cli_parse(argc, argv, &recv);
    recv.open.feed = argv[1];
    return receive(cli_connect(&recv.connection), &recv);
}
