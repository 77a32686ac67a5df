/* The keys of every message as data: encoder and decoder use the same tables. Only wire*.c use the
 * tables; libtrajd also uses trajd_wire_character. */
#ifndef TRAJD_PROTO_WIRE_FIELDS_H
#define TRAJD_PROTO_WIRE_FIELDS_H

#include "proto/wire.h"

enum trajd_wire_kind {
    TRAJD_WIRE_KIND_U32,
    TRAJD_WIRE_KIND_U64,
    TRAJD_WIRE_KIND_BOOL,
    TRAJD_WIRE_KIND_NAME, /* a text that names something: refused if too long or not UTF-8 */
    /* a text for people: cut and cleaned by the encoder, where a NAME is refused */
    TRAJD_WIRE_KIND_PROSE,
    TRAJD_WIRE_KIND_TOKEN,
    TRAJD_WIRE_KIND_MODE,
    TRAJD_WIRE_KIND_STATUS_WORD,
    TRAJD_WIRE_KIND_DTYPE,
    TRAJD_WIRE_KIND_ROWS, /* two neighbouring u32 of the struct */
    TRAJD_WIRE_KIND_LEASES,
    TRAJD_WIRE_KIND_FEEDS, /* of WELCOME */
    TRAJD_WIRE_KIND_SHAPE, /* of a tensor */
    TRAJD_WIRE_KIND_TENSORS,
    TRAJD_WIRE_KIND_BYTES,
    TRAJD_WIRE_KIND_RANKS,
    TRAJD_WIRE_KIND_TEXTS,
    TRAJD_WIRE_KIND_POSITIONS,
};

struct trajd_wire_field {
    const char *key;
    enum trajd_wire_kind kind;
    uint32_t offset;    /* of the member in the op's struct */
    bool optional;      /* may be absent; not encoded when zero or empty */
    uint64_t low, high; /* limits of a number; high is also the longest text or list */
};

struct trajd_wire_table {
    enum trajd_wire_op op; /* 0: a tensor */
    const char *name;
    const struct trajd_wire_field *fields;
    uint32_t field_count;
    uint32_t size;
};

/* Returns the table of an op's keys, or NULL for a number that is no op. */
const struct trajd_wire_table *trajd_wire_table(unsigned op);
extern const struct trajd_wire_table trajd_wire_tensor_table;

/* Returns the bytes of the UTF-8 character at text, or 0 if it is invalid or NUL. `remaining`, the
 * bytes of the text from here on, is at least 1. */
uint32_t trajd_wire_character(const uint8_t *text, size_t remaining);

#endif
