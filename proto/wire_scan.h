/* Reads msgpack token by token. Every read is checked against the end of the bytes, also in a body
 * that was scanned before. Used by wire*.c alone. */
#ifndef TRAJD_PROTO_WIRE_SCAN_H
#define TRAJD_PROTO_WIRE_SCAN_H

#include "proto/wire.h"

enum trajd_wire_token_type {
    TRAJD_WIRE_TOKEN_OTHER, /* nil, a negative number or a floating-point number */
    TRAJD_WIRE_TOKEN_UINT,
    TRAJD_WIRE_TOKEN_BOOL,
    TRAJD_WIRE_TOKEN_STR,
    TRAJD_WIRE_TOKEN_BIN,
    TRAJD_WIRE_TOKEN_ARRAY,
    TRAJD_WIRE_TOKEN_MAP
};

struct trajd_wire_token {
    enum trajd_wire_token_type type;
    /* the number, the length in bytes, or the count of children (two for each pair of a map) */
    uint64_t value;
    const uint8_t *bytes; /* of a string or binary; borrowed from the frame */
};

struct trajd_wire_cursor {
    const uint8_t *at, *end;
};

/* Reads one value, or the head of a container. Returns false at the end of the bytes, and for
 * formats that are never allowed (ext, 0xc1). */
bool trajd_wire_read_token(struct trajd_wire_cursor *cursor, struct trajd_wire_token *token);
/* Skips one value with all its children. Returns false at the end of the bytes. */
bool trajd_wire_skip_value(struct trajd_wire_cursor *cursor);

#endif
