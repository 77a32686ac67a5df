/* Texts, and the encoder and decoder of messages: a header, and a body by the tables of keys. */
#include "proto/wire.h"

#include <string.h>

#include "proto/wire_fields.h"

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

enum trajd_status trajd_wire_encode(const struct trajd_wire_message *message, void *buffer,
                                    size_t room, size_t *size, struct trajd_error *error)
{
    const struct trajd_codec_table *table = trajd_wire_table((unsigned)message->op);
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
    table = bytes[5] == TRAJD_WIRE_OPENED && !tensors ? NULL : trajd_wire_table(bytes[5]);
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
