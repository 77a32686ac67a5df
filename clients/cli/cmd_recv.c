#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_feed.h"
#include "daemon/base/json.h"

#define SHOWN_VALUES 4u
#define MASK_CODES 8u

static uint64_t count_values(const struct trajd_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

static int64_t read_integer(enum trajd_dtype dtype, const unsigned char *at)
{
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint32_t u32;
    } value;
    memcpy(&value, at, trajd_dtype_size(dtype));
    switch (dtype) {
    case TRAJD_I8:
        return value.i8;
    case TRAJD_I16:
        return value.i16;
    case TRAJD_I32:
        return value.i32;
    case TRAJD_U16:
        return value.u16;
    case TRAJD_U32:
        return value.u32;
    case TRAJD_U8:
    case TRAJD_BOOL:
        return *at;
    default:
        return value.i64;
    }
}

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31)
        value = fraction != 0 ? NAN : INFINITY;
    return bits >> 15 ? -value : value;
}

/* JSON has neither NaN nor infinity. */
static void print_real(double value, bool json)
{
    if (json && !isfinite(value))
        printf("null");
    else
        printf("%.6g", value);
}

static void print_value(const struct trajd_tensor *tensor, uint64_t index, bool json)
{
    const unsigned char *at =
        (const unsigned char *)tensor->data + index * trajd_dtype_size(tensor->dtype);
    uint16_t bits;
    uint32_t wide;
    float single;
    double real;
    switch (tensor->dtype) {
    case TRAJD_F16:
        memcpy(&bits, at, sizeof bits);
        print_real(half_value(bits), json);
        return;
    case TRAJD_BF16:
        memcpy(&bits, at, sizeof bits);
        wide = (uint32_t)bits << 16;
        memcpy(&single, &wide, sizeof single);
        print_real(single, json);
        return;
    case TRAJD_F32:
        memcpy(&single, at, sizeof single);
        print_real(single, json);
        return;
    case TRAJD_F64:
        memcpy(&real, at, sizeof real);
        print_real(real, json);
        return;
    case TRAJD_U64:
        printf("%" PRIu64, (uint64_t)read_integer(tensor->dtype, at));
        return;
    default:
        printf("%" PRId64, read_integer(tensor->dtype, at));
    }
}

static void print_values(const struct trajd_tensor *tensor, bool json)
{
    const uint64_t count = count_values(tensor);
    printf("[");
    for (uint64_t i = 0; i < count && i < SHOWN_VALUES; i++) {
        printf(i > 0 ? ", " : "");
        print_value(tensor, i, json);
    }
    printf(!json && count > SHOWN_VALUES ? ", ...]" : "]");
}

/* Prints how often the mask has each code of kernels/resample.h; 0 is valid. */
static void print_mask(const struct trajd_tensor *tensor)
{
    uint64_t counts[MASK_CODES] = {0};
    const uint64_t count = tensor->dtype == TRAJD_U8 ? count_values(tensor) : 0;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t code = ((const uint8_t *)tensor->data)[i];
        counts[code < MASK_CODES ? code : MASK_CODES - 1]++;
    }
    printf("[");
    for (uint32_t code = 0; code < MASK_CODES; code++)
        printf("%s%" PRIu64, code > 0 ? ", " : "", counts[code]);
    printf("]");
}

static void print_shape(const struct trajd_tensor *tensor)
{
    printf("[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        printf("%s%" PRIu64, i > 0 ? ", " : "", tensor->shape[i]);
    printf("]");
}

static void print_tensor(const struct trajd_tensor *tensor)
{
    printf("  %-32s %-4s ", tensor->name, trajd_dtype_name(tensor->dtype));
    print_shape(tensor);
    printf("  ");
    if (strcmp(tensor->role, "mask") == 0) {
        printf("steps by mask code ");
        print_mask(tensor);
    } else {
        print_values(tensor, false);
    }
    printf("\n");
}

static void print_tensor_json(const struct trajd_tensor *tensor)
{
    printf("{\"name\":");
    trajd_json_text(stdout, tensor->name);
    printf(",\"dtype\":\"%s\",\"shape\":", trajd_dtype_name(tensor->dtype));
    print_shape(tensor);
    const bool is_mask = strcmp(tensor->role, "mask") == 0;
    printf(is_mask ? ",\"mask_counts\":" : ",\"first\":");
    if (is_mask)
        print_mask(tensor);
    else
        print_values(tensor, true);
    printf("}");
}

static void print_batch(const struct trajd_batch *batch, bool json)
{
    struct trajd_batch_info info;
    const uint32_t count = trajd_batch_tensor_count(batch);
    trajd_batch_get_info(batch, &info);
    if (!json) {
        printf("epoch %" PRIu64 " position %" PRIu64 " rows %u..%u\n", info.epoch, info.position,
               info.row_begin, info.row_begin + info.row_count);
        for (uint32_t i = 0; i < count; i++)
            print_tensor(trajd_batch_tensor(batch, i));
        return;
    }
    printf("{\"epoch\":%" PRIu64 ",\"position\":%" PRIu64 ",\"rows\":[%u,%u],\"tensors\":[",
           info.epoch, info.position, info.row_begin, info.row_count);
    for (uint32_t i = 0; i < count; i++) {
        printf(i > 0 ? "," : "");
        print_tensor_json(trajd_batch_tensor(batch, i));
    }
    printf("]}\n");
}

static void print_failure(const char *message, bool json)
{
    if (!json) {
        printf("failed: %s\n", message);
        return;
    }
    printf("{\"error\":");
    trajd_json_text(stdout, message);
    printf("}\n");
}

static int receive(struct trajd_client *client, const struct cli_feed_arguments *arguments)
{
    struct trajd_batch *batch;
    struct trajd_error error;
    if (cli_open(client, arguments, &error))
        return cli_fail("%s", error.message);
    for (uint64_t i = 0; i < arguments->count; i++) {
        enum trajd_status status = trajd_client_next(client, -1, &batch, &error);
        if (status == TRAJD_END_OF_EPOCH)
            return CLI_OK;
        if (status == TRAJD_ERR_DATA) {
            print_failure(error.message, arguments->json);
            continue;
        }
        if (status)
            return cli_fail("%s", error.message);
        print_batch(batch, arguments->json);
        trajd_batch_release(&batch);
    }
    return CLI_OK;
}

int cli_recv(int argc, char **argv)
{
    static const char *const known[] = {"FEED",    "--endpoint", "--job",    "--count",
                                        "--epoch", "--next",     "--credit", "--rank",
                                        "--world", "--json",     NULL};
    struct cli_feed_arguments arguments = {.count = UINT64_MAX, .job = "trajctl"};
    if (!cli_parse_feed(argc, argv, known, &arguments))
        return cli_usage("recv");
    struct trajd_client *client = cli_connect(&arguments, false);
    if (!client)
        return CLI_FAILED;
    int result = receive(client, &arguments);
    trajd_client_close(&client);
    return result;
}
