/* The writer and the reader of msgpack's values, and the check of UTF-8. The library writes. Reading
 * is ours, because the library makes trees of objects, and takes as much memory as an unknown peer
 * claims. */
#include "proto/msgpack.h"

#include <endian.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `length` more bytes. */
static bool grow(struct trajd_bytes *bytes, size_t length)
{
    size_t capacity = bytes->capacity ? bytes->capacity : 1024;
    uint8_t *grown;

    if (length <= bytes->capacity - bytes->length)
        return true;
    while (capacity - bytes->length < length && capacity < SIZE_MAX / 2)
        capacity *= 2;
    grown = bytes->is_fixed || capacity - bytes->length < length ? NULL
                                                                 : realloc(bytes->data, capacity);
    if (!grown) {
        bytes->failed = true;
        return false;
    }
    bytes->data = grown;
    bytes->capacity = capacity;
    return true;
}

void trajd_bytes_add(struct trajd_bytes *bytes, const void *data, size_t length)
{
    if (bytes->failed || !length || !grow(bytes, length))
        return;
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

void trajd_bytes_free(struct trajd_bytes *bytes)
{
    if (!bytes->is_fixed)
        free(bytes->data);
    *bytes = (struct trajd_bytes){0};
}

/* ---- writing, by the library msgpack ---- */

static int write_bytes(void *context, const char *data, size_t size)
{
    trajd_bytes_add(context, data, size);
    return 0;
}

static msgpack_packer packer_of(struct trajd_bytes *bytes)
{
    return (msgpack_packer){.data = bytes, .callback = write_bytes};
}

void trajd_pack_nil(struct trajd_bytes *bytes)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_nil(&packer);
}

void trajd_pack_bool(struct trajd_bytes *bytes, bool value)
{
    msgpack_packer packer = packer_of(bytes);
    if (value)
        msgpack_pack_true(&packer);
    else
        msgpack_pack_false(&packer);
}

void trajd_pack_uint(struct trajd_bytes *bytes, uint64_t value)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_uint64(&packer, value);
}

void trajd_pack_int(struct trajd_bytes *bytes, int64_t value)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_int64(&packer, value);
}

void trajd_pack_f32(struct trajd_bytes *bytes, float value)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_float(&packer, value);
}

void trajd_pack_f64(struct trajd_bytes *bytes, double value)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_double(&packer, value);
}

void trajd_pack_str(struct trajd_bytes *bytes, const void *text, uint32_t length)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_str(&packer, length);
    trajd_bytes_add(bytes, text, length);
}

void trajd_pack_bin(struct trajd_bytes *bytes, const void *data, uint32_t length)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_bin(&packer, length);
    trajd_bytes_add(bytes, data, length);
}

void trajd_pack_array(struct trajd_bytes *bytes, uint32_t count)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_array(&packer, count);
}

void trajd_pack_map(struct trajd_bytes *bytes, uint32_t count)
{
    msgpack_packer packer = packer_of(bytes);
    msgpack_pack_map(&packer, count);
}

/* ---- reading ---- */

static bool read_big_endian(struct trajd_cursor *cursor, uint32_t width, uint64_t *value)
{
    if ((size_t)(cursor->end - cursor->at) < width)
        return false;
    *value = 0;
    memcpy((uint8_t *)value + 8 - width, cursor->at, width);
    *value = be64toh(*value);
    cursor->at += width;
    return true;
}

/* Reads the bytes of a string or binary, or the child count of a container. Returns false if the
 * bytes end before: each child needs at least one byte. */
static bool read_extent(struct trajd_cursor *cursor, struct trajd_token *token,
                        enum trajd_token_type type, uint64_t count)
{
    token->type = type;
    token->value = type == TRAJD_TOKEN_MAP ? 2 * count : count;
    token->bytes = cursor->at;
    if (token->value > (uint64_t)(cursor->end - cursor->at))
        return false;
    if (type == TRAJD_TOKEN_STR || type == TRAJD_TOKEN_BIN)
        cursor->at += token->value;
    return true;
}

static bool read_sized(struct trajd_cursor *cursor, struct trajd_token *token,
                       enum trajd_token_type type, uint32_t width)
{
    uint64_t count;

    return read_big_endian(cursor, width, &count) && read_extent(cursor, token, type, count);
}

/* Reads a number in a signed format, and extends its sign. */
static bool read_signed(struct trajd_cursor *cursor, struct trajd_token *token, uint32_t width)
{
    if (!read_big_endian(cursor, width, &token->value))
        return false;
    token->type = token->value >> (8 * width - 1) ? TRAJD_TOKEN_INT : TRAJD_TOKEN_UINT;
    if (token->type == TRAJD_TOKEN_INT && width < 8)
        token->value |= UINT64_MAX << 8 * width;
    return true;
}

static bool read_float(struct trajd_cursor *cursor, struct trajd_token *token, uint32_t width)
{
    uint32_t narrow_bits;
    float narrow;

    if (!read_big_endian(cursor, width, &token->value))
        return false;
    token->type = width == 4 ? TRAJD_TOKEN_F32 : TRAJD_TOKEN_F64;
    memcpy(&token->number, &token->value, sizeof token->number);
    if (width == 4) {
        narrow_bits = (uint32_t)token->value;
        memcpy(&narrow, &narrow_bits, sizeof narrow);
        token->number = (double)narrow;
    }
    return true;
}

bool trajd_token_read(struct trajd_cursor *cursor, struct trajd_token *token)
{
    uint8_t byte;

    if (cursor->at == cursor->end)
        return false;
    byte = *cursor->at++;
    *token = (struct trajd_token){TRAJD_TOKEN_UINT, byte, 0, NULL};
    if (byte < 0x80)
        return true;
    if (byte < 0x90)
        return read_extent(cursor, token, TRAJD_TOKEN_MAP, byte & 0x0f);
    if (byte < 0xa0)
        return read_extent(cursor, token, TRAJD_TOKEN_ARRAY, byte & 0x0f);
    if (byte < 0xc0)
        return read_extent(cursor, token, TRAJD_TOKEN_STR, byte & 0x1f);
    if (byte >= 0xe0) {
        *token = (struct trajd_token){TRAJD_TOKEN_INT, UINT64_MAX << 8 | byte, 0, NULL};
        return true;
    }
    switch (byte) {
    case 0xc0:
        *token = (struct trajd_token){TRAJD_TOKEN_NIL, 0, 0, NULL};
        return true;
    case 0xc2:
    case 0xc3:
        *token = (struct trajd_token){TRAJD_TOKEN_BOOL, byte & 1, 0, NULL};
        return true;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return read_sized(cursor, token, TRAJD_TOKEN_BIN, 1u << (byte - 0xc4));
    case 0xca:
    case 0xcb:
        return read_float(cursor, token, 4u << (byte - 0xca));
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return read_big_endian(cursor, 1u << (byte - 0xcc), &token->value);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return read_signed(cursor, token, 1u << (byte - 0xd0));
    case 0xd9:
    case 0xda:
    case 0xdb:
        return read_sized(cursor, token, TRAJD_TOKEN_STR, 1u << (byte - 0xd9));
    case 0xdc:
    case 0xdd:
        return read_sized(cursor, token, TRAJD_TOKEN_ARRAY, 2u << (byte - 0xdc));
    case 0xde:
    case 0xdf:
        return read_sized(cursor, token, TRAJD_TOKEN_MAP, 2u << (byte - 0xde));
    default:
        return false;
    }
}

bool trajd_token_skip(struct trajd_cursor *cursor)
{
    struct trajd_token token;

    for (uint64_t remaining = 1; remaining; remaining--) {
        if (!trajd_token_read(cursor, &token))
            return false;
        if (token.type == TRAJD_TOKEN_MAP || token.type == TRAJD_TOKEN_ARRAY)
            remaining += token.value;
    }
    return true;
}

uint32_t trajd_utf8_length(const void *text, size_t remaining)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *bytes = text;
    uint8_t lead = bytes[0];
    uint32_t length = lead < 0x80   ? 1
                      : lead < 0xc0 ? 0
                      : lead < 0xe0 ? 2
                      : lead < 0xf0 ? 3
                      : lead < 0xf8 ? 4
                                    : 0;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);

    if (!length || length > remaining || !lead)
        return 0;
    for (uint32_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return length;
}

bool trajd_utf8_is_valid(const void *text, size_t length)
{
    for (size_t i = 0, step; i < length; i += step)
        if (!(step = trajd_utf8_length((const uint8_t *)text + i, length - i)))
            return false;
    return true;
}
