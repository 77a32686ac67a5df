/* The tables of keys, and the encoder and decoder of messages: a header, and a body by its table. */
#include "proto/wire.h"

#include <string.h>

#include "proto/array_len.h"
#include "proto/codec.h"

/* ---- the keys of every message, as tables of the codec, and the rules that concern several keys ---- */

#define ONE(type, member) TRAJD_CODEC_ONE(struct trajd_wire_##type, member)
#define ARRAY(type, member, count) TRAJD_CODEC_ARRAY(struct trajd_wire_##type, member, count)
/* Two neighbouring uint32_t, as a list of two. */
#define PAIR(type, first)                                                                          \
    .shape = TRAJD_CODEC_INSIDE, .offset = (uint32_t)offsetof(struct trajd_wire_##type, first),    \
    .size = sizeof(uint32_t), .most = 2
#define OPTIONAL TRAJD_CODEC_OPTIONAL
#define TABLE(name, type, check)                                                                   \
    {                                                                                              \
#name, type##_fields, ARRAY_LEN(type##_fields), sizeof(struct trajd_wire_##type),          \
            TRAJD_CODEC_MAP, check                                                                 \
    }

_Static_assert(sizeof(struct trajd_wire_text) == sizeof(struct trajd_codec_view), "a VIEW");
_Static_assert(sizeof(struct trajd_wire_bytes) == sizeof(struct trajd_codec_view), "a BLOB");

static const char *const mode_words[] = {
    [TRAJD_WIRE_QUEUE] = "share", [TRAJD_WIRE_SHARD] = "shard", NULL};

static const struct trajd_codec_field lease_fields[] = {
    {"ring", TRAJD_CODEC_UINT, ONE(lease, ring)},
    {"slot", TRAJD_CODEC_UINT, ONE(lease, slot)},
    {"generation", TRAJD_CODEC_UINT, ONE(lease, generation)},
    {"part", TRAJD_CODEC_UINT, ONE(lease, part)},
};
static const struct trajd_codec_table lease_table =
    TRAJD_CODEC_TABLE(struct trajd_wire_lease, lease_fields, TRAJD_CODEC_ROW, NULL);

static const struct trajd_codec_field hello_fields[] = {
    {"minor", TRAJD_CODEC_UINT, ONE(hello, minor)},
    {"client", TRAJD_CODEC_PROSE, ONE(hello, client), .high = TRAJD_WIRE_MAX_CLIENT,
     .flags = OPTIONAL},
    {"pid", TRAJD_CODEC_UINT, ONE(hello, pid), .flags = OPTIONAL},
    {"token", TRAJD_CODEC_UINT, TRAJD_CODEC_FIXED(struct trajd_wire_hello, token),
     TRAJD_CODEC_HAS(struct trajd_wire_hello, has_token), .flags = OPTIONAL | TRAJD_CODEC_PACKED},
    {"instance", TRAJD_CODEC_UINT, ONE(hello, instance), .flags = OPTIONAL},
    {"received", TRAJD_CODEC_UINT, ONE(hello, received), .flags = OPTIONAL},
    {"held", TRAJD_CODEC_STRUCT, ARRAY(hello, held.list, held.count), .table = &lease_table,
     .flags = OPTIONAL},
    {"done", TRAJD_CODEC_STRUCT, ARRAY(hello, done.list, done.count), .table = &lease_table,
     .flags = OPTIONAL},
};

static const struct trajd_codec_field open_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(open, request), .low = 1},
    {"feed", TRAJD_CODEC_VIEW, ONE(open, feed), .high = TRAJD_WIRE_MAX_NAME, .flags = OPTIONAL},
    {"spec", TRAJD_CODEC_VIEW, ONE(open, spec), .high = TRAJD_WIRE_MAX_SPEC, .flags = OPTIONAL},
    {"job", TRAJD_CODEC_VIEW, ONE(open, job), .high = TRAJD_WIRE_MAX_NAME, .flags = OPTIONAL},
    {"mode", TRAJD_CODEC_WORD, ONE(open, mode), .words = mode_words},
    {"rank", TRAJD_CODEC_UINT, ONE(open, rank), .flags = OPTIONAL},
    {"world", TRAJD_CODEC_UINT, ONE(open, world), .low = 1, .flags = OPTIONAL},
    {"credit", TRAJD_CODEC_UINT, ONE(open, credit), .low = 2},
    /* below the maximum, because the epoch after it is produced ahead */
    {"epoch", TRAJD_CODEC_UINT, ONE(open, epoch), .high = UINT64_MAX - 1, .flags = OPTIONAL},
    {"next", TRAJD_CODEC_UINT, ONE(open, next), .flags = OPTIONAL},
    {"fingerprint", TRAJD_CODEC_UINT, ONE(open, fingerprint), .flags = OPTIONAL},
    {"fresh", TRAJD_CODEC_BOOL, ONE(open, fresh), .flags = OPTIONAL},
    {"local", TRAJD_CODEC_UINT, ARRAY(open, local.list, local.count), .flags = OPTIONAL},
    {"resume", TRAJD_CODEC_BLOB, ONE(open, resume), .high = TRAJD_WIRE_MAX_CHECKPOINT,
     .flags = OPTIONAL},
    {"gpu", TRAJD_CODEC_VIEW, ONE(open, gpu), .high = TRAJD_WIRE_MAX_GPU, .flags = OPTIONAL},
    {"norm", TRAJD_CODEC_UINT, ONE(open, norm), .flags = OPTIONAL},
    {"pass", TRAJD_CODEC_UINT, ONE(open, pass), .flags = OPTIONAL},
    {"batch", TRAJD_CODEC_UINT, ONE(open, batch), .flags = OPTIONAL},
    {"held", TRAJD_CODEC_UINT, ARRAY(open, held.list, held.count), .flags = OPTIONAL},
    {"done", TRAJD_CODEC_UINT, ARRAY(open, done.list, done.count), .flags = OPTIONAL},
    {"unfinished", TRAJD_CODEC_UINT, ONE(open, unfinished), .flags = OPTIONAL},
};

static const struct trajd_codec_field ack_fields[] = {
    {"done", TRAJD_CODEC_STRUCT, ARRAY(ack, done.list, done.count), .table = &lease_table,
     .flags = OPTIONAL},
    {"released", TRAJD_CODEC_STRUCT, ARRAY(ack, released.list, released.count),
     .table = &lease_table, .flags = OPTIONAL},
    {"positions", TRAJD_CODEC_UINT, ARRAY(ack, positions.list, positions.count), .flags = OPTIONAL},
};

static const struct trajd_codec_field ping_fields[] = {
    {"time", TRAJD_CODEC_UINT, ONE(ping, time)},
};

static const struct trajd_codec_field status_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(status, request), .low = 1},
};

static const struct trajd_codec_field ask_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(ask, request), .low = 1},
    {"feed_id", TRAJD_CODEC_UINT, ONE(ask, feed_id), .flags = OPTIONAL},
    {"what", TRAJD_CODEC_VIEW, ONE(ask, what), .high = TRAJD_WIRE_MAX_NAME},
    {"name", TRAJD_CODEC_VIEW, ONE(ask, name), .high = TRAJD_WIRE_MAX_NAME, .flags = OPTIONAL},
    {"window", TRAJD_CODEC_UINT, ONE(ask, window), .flags = OPTIONAL},
    {"first", TRAJD_CODEC_UINT, ONE(ask, first), .flags = OPTIONAL},
    {"count", TRAJD_CODEC_UINT, ONE(ask, count), .flags = OPTIONAL},
    {"pass", TRAJD_CODEC_UINT, ONE(ask, pass), .flags = OPTIONAL},
};

static const struct trajd_codec_field checkpoint_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(checkpoint, request), .low = 1},
};

static const struct trajd_codec_field welcome_fields[] = {
    {"minor", TRAJD_CODEC_UINT, ONE(welcome, minor)},
    {"instance", TRAJD_CODEC_UINT, ONE(welcome, instance)},
    {"token", TRAJD_CODEC_UINT, TRAJD_CODEC_FIXED(struct trajd_wire_welcome, token),
     .flags = TRAJD_CODEC_PACKED},
    {"session", TRAJD_CODEC_UINT, ONE(welcome, session), .low = 1},
    {"resumed", TRAJD_CODEC_BOOL, ONE(welcome, resumed)},
    {"version", TRAJD_CODEC_PROSE, ONE(welcome, version), .high = TRAJD_WIRE_MAX_NAME,
     .flags = OPTIONAL},
    {"silence", TRAJD_CODEC_UINT, ONE(welcome, silence_ms), .flags = OPTIONAL},
    {"feeds", TRAJD_CODEC_VIEW, ARRAY(welcome, feeds, feed_count), .high = TRAJD_WIRE_MAX_NAME,
     .flags = OPTIONAL},
};

static const struct trajd_codec_field tensor_fields[] = {
    {"name", TRAJD_CODEC_VIEW, ONE(tensor, name), .high = TRAJD_WIRE_MAX_NAME},
    {"role", TRAJD_CODEC_VIEW, ONE(tensor, role), .high = TRAJD_WIRE_MAX_NAME},
    {"dtype", TRAJD_CODEC_WORD, ONE(tensor, dtype), .words = trajd_dtype_words},
    {"shape", TRAJD_CODEC_UINT, ARRAY(tensor, shape, rank)},
    {"offset", TRAJD_CODEC_UINT, ONE(tensor, offset_bytes)},
    {"of", TRAJD_CODEC_VIEW, ONE(tensor, of), .high = TRAJD_WIRE_MAX_NAME, .flags = OPTIONAL},
    {"finished", TRAJD_CODEC_WORD, ONE(tensor, finished), .words = trajd_dtype_words,
     .flags = OPTIONAL},
    {"planes", TRAJD_CODEC_UINT, ONE(tensor, planes), .high = 1, .flags = OPTIONAL},
    {"scale", TRAJD_CODEC_BLOB, ONE(tensor, scale), .high = TRAJD_WIRE_MAX_CHANNELS * sizeof(float),
     .flags = OPTIONAL},
    {"shift", TRAJD_CODEC_BLOB, ONE(tensor, shift), .high = TRAJD_WIRE_MAX_CHANNELS * sizeof(float),
     .flags = OPTIONAL},
};

static const struct trajd_codec_table tensor_table = TABLE(tensor, tensor, NULL);

static const struct trajd_codec_field opened_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(opened, request), .low = 1},
    {"feed_id", TRAJD_CODEC_UINT, ONE(opened, feed_id)},
    {"ring", TRAJD_CODEC_UINT, ONE(opened, ring)},
    {"ring_size", TRAJD_CODEC_UINT, ONE(opened, ring_size_bytes)},
    {"slot_count", TRAJD_CODEC_UINT, ONE(opened, slot_count)},
    {"slot_size", TRAJD_CODEC_UINT, ONE(opened, slot_size_bytes)},
    {"writable", TRAJD_CODEC_BOOL, ONE(opened, writable)},
    {"batch", TRAJD_CODEC_UINT, ONE(opened, batch), .low = 1},
    {"rows", TRAJD_CODEC_UINT, PAIR(opened, row_begin)},
    {"part", TRAJD_CODEC_UINT, ONE(opened, part)},
    {"credit", TRAJD_CODEC_UINT, ONE(opened, credit), .low = 2, .high = TRAJD_WIRE_MAX_LEASES},
    {"epoch", TRAJD_CODEC_UINT, ONE(opened, epoch)},
    {"next", TRAJD_CODEC_UINT, ONE(opened, next)},
    {"length", TRAJD_CODEC_UINT, ONE(opened, length)},
    {"windows", TRAJD_CODEC_UINT, ONE(opened, windows)},
    {"dropped", TRAJD_CODEC_UINT, ONE(opened, dropped)},
    {"fingerprint", TRAJD_CODEC_UINT, ONE(opened, fingerprint)},
    {"seed", TRAJD_CODEC_UINT, ONE(opened, seed)},
    {"tensors", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(struct trajd_wire_opened, tensors, tensor_count, TRAJD_WIRE_MAX_TENSORS),
     .table = &tensor_table},
    {"gpu", TRAJD_CODEC_VIEW, ONE(opened, gpu), .high = TRAJD_WIRE_MAX_GPU, .flags = OPTIONAL},
    {"handle", TRAJD_CODEC_BLOB, ONE(opened, handle), .high = TRAJD_WIRE_MAX_HANDLE,
     .flags = OPTIONAL},
    {"handle_offset", TRAJD_CODEC_UINT, ONE(opened, handle_offset_bytes), .flags = OPTIONAL},
    {"norm", TRAJD_CODEC_UINT, ONE(opened, norm), .flags = OPTIONAL},
    {"values", TRAJD_CODEC_UINT, ONE(opened, values), .flags = OPTIONAL},
    {"found", TRAJD_CODEC_UINT, ONE(opened, found), .flags = OPTIONAL},
    {"kept", TRAJD_CODEC_UINT, ONE(opened, kept), .flags = OPTIONAL},
    {"used", TRAJD_CODEC_UINT, ONE(opened, used), .flags = OPTIONAL},
    {"quarantined", TRAJD_CODEC_PROSE, ARRAY(opened, quarantined.list, quarantined.count),
     .high = TRAJD_WIRE_MAX_TEXT, .flags = OPTIONAL},
    {"warnings", TRAJD_CODEC_PROSE, ARRAY(opened, warnings.list, warnings.count),
     .high = TRAJD_WIRE_MAX_WARNING, .flags = OPTIONAL},
    {"pass", TRAJD_CODEC_UINT, ONE(opened, pass), .flags = OPTIONAL},
    {"held", TRAJD_CODEC_UINT, ARRAY(opened, held.list, held.count), .flags = OPTIONAL},
};

static const struct trajd_codec_field batch_fields[] = {
    {"seq", TRAJD_CODEC_UINT, ONE(batch, seq), .low = 1},
    {"feed_id", TRAJD_CODEC_UINT, ONE(batch, feed_id)},
    {"ring", TRAJD_CODEC_UINT, ONE(batch, ring)},
    {"slot", TRAJD_CODEC_UINT, ONE(batch, slot)},
    {"generation", TRAJD_CODEC_UINT, ONE(batch, generation), .low = 1},
    {"part", TRAJD_CODEC_UINT, ONE(batch, part)},
    {"epoch", TRAJD_CODEC_UINT, ONE(batch, epoch)},
    {"position", TRAJD_CODEC_UINT, ONE(batch, position)},
    {"rows", TRAJD_CODEC_UINT, PAIR(batch, row_begin)},
    {"ready", TRAJD_CODEC_UINT, ONE(batch, ready_ns)},
    {"error", TRAJD_CODEC_PROSE, ONE(batch, error), .high = TRAJD_WIRE_MAX_REASON,
     .flags = OPTIONAL},
};

static const struct trajd_codec_field epoch_end_fields[] = {
    {"feed_id", TRAJD_CODEC_UINT, ONE(epoch_end, feed_id)},
    {"epoch", TRAJD_CODEC_UINT, ONE(epoch_end, epoch)},
    {"batches", TRAJD_CODEC_UINT, ONE(epoch_end, batches)},
    {"windows", TRAJD_CODEC_UINT, ONE(epoch_end, windows)},
    {"dropped", TRAJD_CODEC_UINT, ONE(epoch_end, dropped)},
};

static const struct trajd_codec_field goaway_fields[] = {
    {"reason", TRAJD_CODEC_PROSE, ONE(goaway, reason), .high = TRAJD_WIRE_MAX_REASON,
     .flags = OPTIONAL},
};

static const struct trajd_codec_field state_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(state, request), .low = 1},
    {"status", TRAJD_CODEC_VIEW, ONE(state, status), .high = TRAJD_WIRE_MAX_STATUS},
};

static const struct trajd_codec_field error_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(error, request), .flags = OPTIONAL},
    {"status", TRAJD_CODEC_WORD, ONE(error, status), .words = trajd_status_words,
     .high = TRAJD_ERR_SYSTEM},
    {"message", TRAJD_CODEC_PROSE, ONE(error, message), .high = TRAJD_WIRE_MAX_REASON,
     .flags = OPTIONAL},
    {"wait", TRAJD_CODEC_UINT, ONE(error, wait_ms), .flags = OPTIONAL},
};

static const struct trajd_codec_field checkpointed_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(checkpointed, request), .low = 1},
    {"token", TRAJD_CODEC_BLOB, ONE(checkpointed, token), .high = TRAJD_WIRE_MAX_CHECKPOINT},
};

static const struct trajd_codec_field notice_fields[] = {
    {"message", TRAJD_CODEC_PROSE, ONE(notice, message), .high = TRAJD_WIRE_MAX_REASON},
    {"wait", TRAJD_CODEC_UINT, ONE(notice, wait_ms), .flags = OPTIONAL},
};

static const struct trajd_codec_field resample_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(resample, request), .low = 1},
    {"size", TRAJD_CODEC_UINT, ONE(resample, size_bytes), .flags = OPTIONAL},
};

static const struct trajd_codec_field resampled_fields[] = {
    {"request", TRAJD_CODEC_UINT, ONE(resampled, request), .low = 1},
    {"device", TRAJD_CODEC_PROSE, ONE(resampled, device), .high = TRAJD_WIRE_MAX_NAME,
     .flags = OPTIONAL},
};

/* Returns true if the ranks ascend, so that equal sets have equal bytes, and if the rank of the
 * OPEN is one of them and all are below its world. */
static bool names_rank(const struct trajd_wire_ranks *local, const struct trajd_wire_open *open)
{
    bool found = false;

    for (uint32_t i = 0; i < local->count; i++) {
        if (local->list[i] >= open->world || (i && local->list[i] <= local->list[i - 1]))
            return false;
        found |= local->list[i] == open->rank;
    }
    return found;
}

/* Checks rules that concern several keys of an OPEN. */
static const char *check_open(void *value, void *context)
{
    const struct trajd_wire_open *open = value;

    (void)context;
    if (!open->feed.size == !open->spec.size)
        return "it needs either feed or spec";
    if (open->rank >= open->world)
        return "rank is not below world";
    if (open->mode == TRAJD_WIRE_QUEUE && open->world != 1)
        return "world is not 1 with mode share";
    if (open->local.count && (open->mode == TRAJD_WIRE_QUEUE || !names_rank(&open->local, open)))
        return "local does not ascend, lacks the rank, or does not fit mode and world";
    if (open->resume.size && open->mode != TRAJD_WIRE_QUEUE)
        return "resume needs mode share";
    return NULL;
}

static const struct {
    enum trajd_wire_op op;
    struct trajd_codec_table table;
} tables[] = {
    {TRAJD_WIRE_HELLO, TABLE(HELLO, hello, NULL)},
    {TRAJD_WIRE_OPEN, TABLE(OPEN, open, check_open)},
    {TRAJD_WIRE_ACK, TABLE(ACK, ack, NULL)},
    {TRAJD_WIRE_PING, TABLE(PING, ping, NULL)},
    {TRAJD_WIRE_BYE, {.name = "BYE", .form = TRAJD_CODEC_MAP}},
    {TRAJD_WIRE_STATUS, TABLE(STATUS, status, NULL)},
    {TRAJD_WIRE_ASK, TABLE(ASK, ask, NULL)},
    {TRAJD_WIRE_CHECKPOINT, TABLE(CHECKPOINT, checkpoint, NULL)},
    {TRAJD_WIRE_RESAMPLE, TABLE(RESAMPLE, resample, NULL)},
    {TRAJD_WIRE_WELCOME, TABLE(WELCOME, welcome, NULL)},
    {TRAJD_WIRE_OPENED, TABLE(OPENED, opened, NULL)},
    {TRAJD_WIRE_BATCH, TABLE(BATCH, batch, NULL)},
    {TRAJD_WIRE_EPOCH_END, TABLE(EPOCH_END, epoch_end, NULL)},
    {TRAJD_WIRE_PONG, TABLE(PONG, ping, NULL)},
    {TRAJD_WIRE_GOAWAY, TABLE(GOAWAY, goaway, NULL)},
    {TRAJD_WIRE_STATE, TABLE(STATE, state, NULL)},
    {TRAJD_WIRE_ERROR, TABLE(ERROR, error, NULL)},
    {TRAJD_WIRE_CHECKPOINTED, TABLE(CHECKPOINTED, checkpointed, NULL)},
    {TRAJD_WIRE_RESAMPLED, TABLE(RESAMPLED, resampled, NULL)},
    {TRAJD_WIRE_NOTICE, TABLE(NOTICE, notice, NULL)},
};

/* Returns the table of an op's struct, or NULL for a number that is not an op. */
static const struct trajd_codec_table *table_of(unsigned op)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if ((unsigned)tables[i].op == op)
            return &tables[i].table;
    return NULL;
}

/* ---- texts ---- */

struct trajd_wire_text trajd_wire_text(const char *string)
{
    size_t size = string ? strlen(string) : 0;

    return (struct trajd_wire_text){string, size > UINT32_MAX ? UINT32_MAX : (uint32_t)size};
}

bool trajd_wire_text_equals(struct trajd_wire_text text, const char *string)
{
    size_t size = strlen(string);

    return text.size == size && (!size || memcmp(text.data, string, size) == 0);
}

void trajd_wire_text_copy(struct trajd_wire_text text, char *buffer, size_t room)
{
    size_t size = text.size;

    if (size > room - 1) {
        size = room - 1;
        while (size && ((uint8_t)text.data[size] & 0xc0) == 0x80)
            size--;
    }
    if (size)
        memcpy(buffer, text.data, size);
    buffer[size] = '\0';
}

/* ---- messages ---- */

enum trajd_status trajd_wire_encode(const struct trajd_wire_message *message, void *buffer,
                                    size_t room, size_t *size, struct trajd_error *error)
{
    const struct trajd_codec_table *table = table_of((unsigned)message->op);
    struct trajd_bytes frame = {.data = buffer, .is_fixed = true};
    const uint8_t header[TRAJD_WIRE_HEADER_SIZE] = {
        'T', 'R', 'J', 'D', TRAJD_WIRE_MAJOR, (uint8_t)message->op, 0, 0};

    if (!table)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "wire: there is no message with op %u",
                               (unsigned)message->op);
    frame.capacity = room < TRAJD_WIRE_MAX_FRAME ? room : TRAJD_WIRE_MAX_FRAME;
    trajd_bytes_add(&frame, header, sizeof header);
    /* every struct of the union begins at the address of hello */
    switch (trajd_codec_encode(table, &message->hello, &frame, error)) {
    case TRAJD_OK:
        *size = frame.length;
        return TRAJD_OK;
    case TRAJD_ERR_MEMORY:
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "wire: %s: the message is longer than %zu bytes", table->name,
                               frame.capacity);
    default:
        trajd_error_prefix(error, "wire: %s", table->name);
        return TRAJD_ERR_ARGUMENT;
    }
}

bool trajd_wire_scan(const void *body, size_t size, uint32_t max_items)
{
    struct trajd_cursor cursor = {body, (const uint8_t *)body + size};
    /* values still to be read at each depth; one, the root, at depth 0 */
    uint64_t remaining[TRAJD_WIRE_MAX_DEPTH + 1] = {1};
    uint32_t depth = 0, items = 0;
    struct trajd_token token;

    while (depth || remaining[0]) {
        if (!remaining[depth]) {
            depth--;
            continue;
        }
        remaining[depth]--;
        if (++items > max_items || !trajd_token_read(&cursor, &token))
            return false;
        if (items == 1 && token.type != TRAJD_TOKEN_MAP)
            return false;
        if (token.type != TRAJD_TOKEN_MAP && token.type != TRAJD_TOKEN_ARRAY)
            continue;
        if (depth == TRAJD_WIRE_MAX_DEPTH)
            return false;
        remaining[++depth] = token.value;
    }
    return cursor.at == cursor.end;
}

/* Returns the number of the request in a message that is refused, so that the peer can match the
 * answer. Returns 0 if there is none. */
static uint64_t find_request(struct trajd_cursor cursor)
{
    struct trajd_token map, key, value;

    if (!trajd_token_read(&cursor, &map))
        return 0;
    for (uint64_t i = 0; i < map.value / 2; i++) {
        if (!trajd_token_read(&cursor, &key) || key.type != TRAJD_TOKEN_STR)
            return 0;
        if (key.value == 7 && memcmp(key.bytes, "request", 7) == 0)
            return trajd_token_read(&cursor, &value) && value.type == TRAJD_TOKEN_UINT ? value.value
                                                                                       : 0;
        if (!trajd_token_skip(&cursor))
            return 0;
    }
    return 0;
}

/* The list of tensors in an OPENED is all that the decoder asks memory for. */
static void *take_tensors(void *tensors, size_t size_bytes)
{
    return memset(tensors, 0, size_bytes);
}

static enum trajd_status decode_body(struct trajd_cursor body,
                                     const struct trajd_codec_table *table,
                                     struct trajd_wire_tensor *tensors,
                                     struct trajd_wire_message *message, struct trajd_error *error)
{
    const struct trajd_codec_input input = {.data = body.at,
                                            .length = (size_t)(body.end - body.at),
                                            .allocate = take_tensors,
                                            .memory = tensors};

    /* every struct of the union begins at the address of hello */
    memset(&message->hello, 0, table->size);
    if (message->op == TRAJD_WIRE_OPEN) {
        message->open.fresh = true;
        message->open.world = 1;
    }
    if (trajd_codec_decode(table, &input, &message->hello, error) == TRAJD_OK)
        return TRAJD_OK;
    trajd_error_prefix(error, "%s", table->name);
    return TRAJD_ERR_PROTOCOL;
}

enum trajd_status trajd_wire_decode(const void *frame, size_t size,
                                    struct trajd_wire_tensor *tensors,
                                    struct trajd_wire_message *message, uint64_t *request,
                                    struct trajd_error *error)
{
    const uint8_t *bytes = frame;
    const struct trajd_codec_table *table;
    struct trajd_cursor body;
    enum trajd_status status;

    *request = 0;
    message->op = 0;
    if (size < TRAJD_WIRE_HEADER_SIZE || size > TRAJD_WIRE_MAX_FRAME ||
        memcmp(bytes, "TRJD", 4) != 0)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "wire: this is not a message of trajd");
    if (bytes[4] != TRAJD_WIRE_MAJOR)
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0,
            "protocol version %u: this side has version %u: use the same release "
            "for daemon and workers",
            bytes[4], TRAJD_WIRE_MAJOR);
    body = (struct trajd_cursor){bytes + TRAJD_WIRE_HEADER_SIZE, bytes + size};
    table = bytes[5] == TRAJD_WIRE_OPENED && !tensors ? NULL : table_of(bytes[5]);
    if (bytes[6] || bytes[7] ||
        !trajd_wire_scan(body.at, size - TRAJD_WIRE_HEADER_SIZE,
                         table && bytes[5] == TRAJD_WIRE_OPENED ? TRAJD_WIRE_MAX_ITEMS_OPENED
                                                                : TRAJD_WIRE_MAX_ITEMS))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "wire: the body is not valid msgpack or breaks a limit");
    message->op = table ? (enum trajd_wire_op)bytes[5] : 0;
    status = table
                 ? decode_body(body, table, tensors, message, error)
                 : trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0, "unknown operation %u", bytes[5]);
    if (status)
        *request = find_request(body);
    return status;
}
