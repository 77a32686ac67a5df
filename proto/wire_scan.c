#include "proto/wire_scan.h"

static bool read_big_endian(struct trajd_wire_cursor *cursor, uint32_t width, uint64_t *value)
{
    if ((size_t)(cursor->end - cursor->at) < width)
        return false;
    *value = 0;
    for (uint32_t i = 0; i < width; i++)
        *value = *value << 8 | *cursor->at++;
    return true;
}

/* Reads the bytes of a string or binary, or the child count of a container. Returns false if the
 * bytes end before: each child needs at least one byte. */
static bool read_extent(struct trajd_wire_cursor *cursor, struct trajd_wire_token *token,
                        enum trajd_wire_token_type type, uint64_t count)
{
    token->type = type;
    token->value = type == TRAJD_WIRE_TOKEN_MAP ? 2 * count : count;
    token->bytes = cursor->at;
    if (token->value > (uint64_t)(cursor->end - cursor->at))
        return false;
    if (type == TRAJD_WIRE_TOKEN_STR || type == TRAJD_WIRE_TOKEN_BIN)
        cursor->at += token->value;
    return true;
}

static bool read_sized(struct trajd_wire_cursor *cursor, struct trajd_wire_token *token,
                       enum trajd_wire_token_type type, uint32_t width)
{
    uint64_t count;

    return read_big_endian(cursor, width, &count) && read_extent(cursor, token, type, count);
}

/* Reads a number in a signed format. It is a TRAJD_WIRE_TOKEN_UINT unless it is negative. */
static bool read_signed(struct trajd_wire_cursor *cursor, struct trajd_wire_token *token,
                        uint32_t width)
{
    if (!read_big_endian(cursor, width, &token->value))
        return false;
    token->type = token->value >> (8 * width - 1) ? TRAJD_WIRE_TOKEN_OTHER : TRAJD_WIRE_TOKEN_UINT;
    return true;
}

bool trajd_wire_read_token(struct trajd_wire_cursor *cursor, struct trajd_wire_token *token)
{
    uint8_t byte;

    if (cursor->at == cursor->end)
        return false;
    byte = *cursor->at++;
    *token = (struct trajd_wire_token){TRAJD_WIRE_TOKEN_OTHER, 0, NULL};
    if (byte < 0x80) {
        *token = (struct trajd_wire_token){TRAJD_WIRE_TOKEN_UINT, byte, NULL};
        return true;
    }
    if (byte < 0x90)
        return read_extent(cursor, token, TRAJD_WIRE_TOKEN_MAP, byte & 0x0f);
    if (byte < 0xa0)
        return read_extent(cursor, token, TRAJD_WIRE_TOKEN_ARRAY, byte & 0x0f);
    if (byte < 0xc0)
        return read_extent(cursor, token, TRAJD_WIRE_TOKEN_STR, byte & 0x1f);
    if (byte >= 0xe0)
        return true; /* a small negative number */
    switch (byte) {
    case 0xc0:
        return true; /* nil */
    case 0xc2:
    case 0xc3:
        *token = (struct trajd_wire_token){TRAJD_WIRE_TOKEN_BOOL, byte & 1, NULL};
        return true;
    case 0xc4:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_BIN, 1);
    case 0xc5:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_BIN, 2);
    case 0xc6:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_BIN, 4);
    case 0xca:
        return read_big_endian(cursor, 4, &token->value);
    case 0xcb:
        return read_big_endian(cursor, 8, &token->value);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        token->type = TRAJD_WIRE_TOKEN_UINT;
        return read_big_endian(cursor, 1u << (byte - 0xcc), &token->value);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return read_signed(cursor, token, 1u << (byte - 0xd0));
    case 0xd9:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_STR, 1);
    case 0xda:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_STR, 2);
    case 0xdb:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_STR, 4);
    case 0xdc:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_ARRAY, 2);
    case 0xdd:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_ARRAY, 4);
    case 0xde:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_MAP, 2);
    case 0xdf:
        return read_sized(cursor, token, TRAJD_WIRE_TOKEN_MAP, 4);
    default:
        return false;
    }
}

bool trajd_wire_scan(const void *body, size_t size, uint32_t max_items)
{
    struct trajd_wire_cursor cursor = {body, (const uint8_t *)body + size};
    /* values still to be read at each depth; one, the root, at depth 0 */
    uint64_t remaining[TRAJD_WIRE_MAX_DEPTH + 1] = {1};
    uint32_t depth = 0, items = 0;
    struct trajd_wire_token token;

    while (depth || remaining[0]) {
        if (!remaining[depth]) {
            depth--;
            continue;
        }
        remaining[depth]--;
        if (++items > max_items || !trajd_wire_read_token(&cursor, &token))
            return false;
        if (items == 1 && token.type != TRAJD_WIRE_TOKEN_MAP)
            return false;
        if (token.type != TRAJD_WIRE_TOKEN_MAP && token.type != TRAJD_WIRE_TOKEN_ARRAY)
            continue;
        if (depth == TRAJD_WIRE_MAX_DEPTH)
            return false;
        remaining[++depth] = token.value;
    }
    return cursor.at == cursor.end;
}

bool trajd_wire_skip_value(struct trajd_wire_cursor *cursor)
{
    struct trajd_wire_token token;

    for (uint64_t remaining = 1; remaining; remaining--) {
        if (!trajd_wire_read_token(cursor, &token))
            return false;
        if (token.type == TRAJD_WIRE_TOKEN_MAP || token.type == TRAJD_WIRE_TOKEN_ARRAY)
            remaining += token.value;
    }
    return true;
}
