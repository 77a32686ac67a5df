/* msgpack, value by value: a writer into memory that grows or is fixed, and a reader that never
 * leaves its bytes. The codec (codec.h) and the transcoder of JSON are built on it. */
#ifndef TRAJD_PROTO_MSGPACK_H
#define TRAJD_PROTO_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow as they are added. Zeroed, it is empty, and the owner frees it. With is_fixed,
 * `data` is the caller's memory of `capacity` bytes, which does not grow and is not freed. `failed`
 * is set when there is no room or no memory; later additions then have no effect. */
struct trajd_bytes {
    uint8_t *data;
    size_t length, capacity;
    bool is_fixed;
    bool failed;
};

void trajd_bytes_add(struct trajd_bytes *bytes, const void *data, size_t length);
/* Frees the memory, and empties the buffer. */
void trajd_bytes_free(struct trajd_bytes *bytes);

/* Each function appends one value in its shortest form. Children follow the head of an array or
 * map: `count` elements, or `count` pairs of key and value. */
void trajd_pack_nil(struct trajd_bytes *bytes);
void trajd_pack_bool(struct trajd_bytes *bytes, bool value);
void trajd_pack_uint(struct trajd_bytes *bytes, uint64_t value);
void trajd_pack_int(struct trajd_bytes *bytes, int64_t value);
void trajd_pack_f32(struct trajd_bytes *bytes, float value);
void trajd_pack_f64(struct trajd_bytes *bytes, double value);
void trajd_pack_str(struct trajd_bytes *bytes, const void *text, uint32_t length);
void trajd_pack_bin(struct trajd_bytes *bytes, const void *data, uint32_t length);
void trajd_pack_array(struct trajd_bytes *bytes, uint32_t count);
void trajd_pack_map(struct trajd_bytes *bytes, uint32_t count);

enum trajd_token_type {
    TRAJD_TOKEN_NIL,
    TRAJD_TOKEN_BOOL,
    TRAJD_TOKEN_UINT,
    TRAJD_TOKEN_INT, /* a number below zero; all others are a TRAJD_TOKEN_UINT */
    TRAJD_TOKEN_F32,
    TRAJD_TOKEN_F64,
    TRAJD_TOKEN_STR,
    TRAJD_TOKEN_BIN,
    TRAJD_TOKEN_ARRAY,
    TRAJD_TOKEN_MAP
};

struct trajd_token {
    enum trajd_token_type type;
    /* the number (of INT its two's complement), the length in bytes, or the count of children (two
     * for each pair of a map) */
    uint64_t value;
    double number;        /* of F32 and F64 */
    const uint8_t *bytes; /* of STR and BIN; borrowed */
};

struct trajd_cursor {
    const uint8_t *at, *end;
};

/* Reads one value, or the head of a container. Returns false at the end of the bytes, for a length
 * or count that the remaining bytes cannot hold, and for formats that are never allowed (ext,
 * 0xc1). */
bool trajd_token_read(struct trajd_cursor *cursor, struct trajd_token *token);
/* Skips one value with all its children. Returns false at the end of the bytes. */
bool trajd_token_skip(struct trajd_cursor *cursor);

/* Returns the bytes of the UTF-8 character at text, or 0 if it is invalid or NUL. `remaining`, the
 * bytes of the text from here on, is at least 1. */
uint32_t trajd_utf8_length(const void *text, size_t remaining);
/* Returns true if all of the text is UTF-8 without NUL. */
bool trajd_utf8_is_valid(const void *text, size_t length);

#endif
