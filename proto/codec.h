/* The one codec: plain structs to msgpack and back, by tables of their members.
 *
 *     struct clock { const char *name; double rate_hz; uint32_t stamp_count; int64_t *stamps_ns; };
 *
 *     static const struct trajd_codec_field clock_fields[] = {
 *         {"name", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(struct clock, name), .high = 64},
 *         {"rate", TRAJD_CODEC_FLOAT, TRAJD_CODEC_ONE(struct clock, rate_hz), .low = 0, .high = 1000},
 *         {"stamps", TRAJD_CODEC_INT,
 *          TRAJD_CODEC_LIST(struct clock, stamps_ns, stamp_count, 1 << 20),
 *          .flags = TRAJD_CODEC_PACKED | TRAJD_CODEC_OPTIONAL},
 *     };
 *     static const struct trajd_codec_table clock_table =
 *         TRAJD_CODEC_TABLE(struct clock, clock_fields, TRAJD_CODEC_MAP, NULL);
 *
 *     status = trajd_codec_encode(&clock_table, &clock, &bytes, &error);
 *     status = trajd_codec_decode(&clock_table, &input, &clock, &error);
 *
 * A struct is a MAP of keys and values, which may come in any order, with keys that the table does
 * not know (wire, documents), or a ROW, an array of all its values in the order of the table (bulk
 * records, which have a version of their own).
 *
 * The decoder trusts nothing. It reads through a cursor, builds no tree, and checks every length
 * against the bytes that are left before it asks for memory: the memory is at most some 30 times
 * the input. What it allocates comes from the caller's function, so an arena frees all of it. Both
 * directions check the limits of the tables. The first error names the value and the rule:
 * "outputs[3].step_count: out of range". Nothing here is global, so every function is thread-safe.
 *
 * daemon/base/arena.h has trajd_arena_decode, which decodes into an arena. */
#ifndef TRAJD_PROTO_CODEC_H
#define TRAJD_PROTO_CODEC_H

#include "proto/error.h"
#include "proto/msgpack.h"

struct trajd_codec_table;

/* The type of an element. A number may have any width that its C type has: the macros below take
 * it from the member. */
enum trajd_codec_kind {
    TRAJD_CODEC_UINT, /* uint8_t to uint64_t; an enum by its number */
    TRAJD_CODEC_INT,  /* int8_t to int64_t */
    TRAJD_CODEC_BOOL,
    TRAJD_CODEC_FLOAT, /* float or double; the decoder takes integers, too */
    TRAJD_CODEC_WORD,  /* an enum, as one of `words` */
    /* const char *, any bytes without control characters, with a zero byte at its end */
    TRAJD_CODEC_TEXT,
    /* struct trajd_codec_view: UTF-8 without NUL, borrowed from the input, without a zero byte */
    TRAJD_CODEC_VIEW,
    /* a VIEW for people: the encoder cuts it to its limit and replaces each byte that is not
     * UTF-8, where it refuses another VIEW */
    TRAJD_CODEC_PROSE,
    TRAJD_CODEC_BLOB, /* struct trajd_codec_view: any bytes, borrowed from the input */
    TRAJD_CODEC_STRUCT
};

/* How many elements there are, and where. The macros below set it. */
enum trajd_codec_shape {
    TRAJD_CODEC_SINGLE,
    TRAJD_CODEC_POINTED, /* a pointer to one element, allocated by the decoder */
    TRAJD_CODEC_INSIDE,  /* an array in the struct */
    TRAJD_CODEC_OUTSIDE  /* a pointer to an array, allocated by the decoder */
};

enum trajd_codec_flag {
    /* The decoder leaves the member as it was where the value is nil or absent (memory from the
     * decoder is zeroed). The encoder leaves it out where it is 0, NULL or an empty VIEW or array,
     * or where the member `has` is false. A bool without `has` is always written. */
    TRAJD_CODEC_OPTIONAL = 1,
    TRAJD_CODEC_SPARSE = 2, /* a TEXT in a list may be NULL */
    /* Numbers of an array as one bin, as they are in memory, without limits on each; also structs
     * of numbers without padding (KIND UINT). Little-endian, as all machines of trajd are. */
    TRAJD_CODEC_PACKED = 4,
    TRAJD_CODEC_LINES = 8, /* a TEXT may have newlines and tabs */
    /* The count member belongs to a field before this one: this array must be as long. */
    TRAJD_CODEC_AS_LONG = 16,
    TRAJD_CODEC_ANY_TEXT = 32 /* a TEXT may have any UTF-8, control characters included */
};

/* UTF-8 or bytes in the input. struct trajd_wire_text and struct trajd_wire_bytes are the same. */
struct trajd_codec_view {
    const void *data;
    uint32_t size;
};

struct trajd_codec_field {
    const char *key;
    enum trajd_codec_kind kind;
    enum trajd_codec_shape shape;
    uint32_t offset, size;             /* of the member in the struct; of one element */
    uint32_t count_offset, count_size; /* of an array's count, uint32_t or uint64_t; size 0: the
                                          array always has `most` elements */
    uint64_t most;                     /* elements */
    unsigned flags;                    /* enum trajd_codec_flag */
    /* A number: low to high; any number if both are 0, and no upper limit if low is above 0 and
     * high is 0. TEXT, VIEW, PROSE and BLOB: `high` is the limit
     * of their bytes, TRAJD_CODEC_TEXT_MAX if it is 0. WORD: `high` is what an unknown word becomes;
     * 0 refuses it. */
    int64_t low;
    uint64_t high;
    const char *const *words; /* of WORD: by number, NULL at the end; "" is not a word */
    const struct trajd_codec_table *table; /* of STRUCT */
    uint32_t has; /* TRAJD_CODEC_HAS: the place of a bool that the decoder sets where it has read
                     the value; 0: none */
};

#define TRAJD_CODEC_TEXT_MAX 4096u

/* These macros write the place, the size and the shape of a member into a field. `count` is the
 * member that has the number of elements, and `limit` the most of them. */
#define TRAJD_CODEC_ONE(type, member)                                                              \
    .shape = TRAJD_CODEC_SINGLE, .offset = (uint32_t)offsetof(type, member),                       \
    .size = (uint32_t)sizeof(((type *)0)->member)
#define TRAJD_CODEC_POINTER(type, member)                                                          \
    .shape = TRAJD_CODEC_POINTED, .offset = (uint32_t)offsetof(type, member),                      \
    .size = (uint32_t)sizeof(*((type *)0)->member)
#define TRAJD_CODEC_FIXED(type, member)                                                            \
    .shape = TRAJD_CODEC_INSIDE, .offset = (uint32_t)offsetof(type, member),                       \
    .size = (uint32_t)sizeof(((type *)0)->member[0]),                                              \
    .most = sizeof(((type *)0)->member) / sizeof(((type *)0)->member[0])
#define TRAJD_CODEC_ARRAY(type, member, count)                                                     \
    TRAJD_CODEC_FIXED(type, member), .count_offset = (uint32_t)offsetof(type, count),              \
                                     .count_size = (uint32_t)sizeof(((type *)0)->count)
#define TRAJD_CODEC_LIST(type, member, count, limit)                                               \
    .shape = TRAJD_CODEC_OUTSIDE, .offset = (uint32_t)offsetof(type, member),                      \
    .size = (uint32_t)sizeof(((type *)0)->member[0]),                                              \
    .count_offset = (uint32_t)offsetof(type, count),                                               \
    .count_size = (uint32_t)sizeof(((type *)0)->count), .most = (limit)
/* A table of all fields of an array. `check` may be NULL. */
#define TRAJD_CODEC_TABLE(type, fields, form, check)                                               \
    {                                                                                              \
#type, (fields), sizeof(fields) / sizeof(fields)[0], sizeof(type), (form), (check)         \
    }
#define TRAJD_CODEC_HAS(type, member) .has = (uint32_t)offsetof(type, member) + 1

enum trajd_codec_form {
    TRAJD_CODEC_ROW,
    TRAJD_CODEC_MAP,
    TRAJD_CODEC_CLOSED /* a MAP that is refused if it has a key that the table does not know */
};

struct trajd_codec_table {
    const char *name; /* for people who read the table */
    const struct trajd_codec_field *fields;
    uint32_t field_count; /* at most 64 */
    uint32_t size;        /* of the struct */
    enum trajd_codec_form form;
    /* NULL, or a rule that concerns several members. The decoder calls it with each struct that it
     * has read, and with `context` of the input. Returns NULL, or the rule that is broken. It may
     * change the struct. */
    const char *(*check)(void *value, void *context);
};

struct trajd_codec_input {
    const void *data; /* VIEW and BLOB point into it */
    size_t length;
    /* Returns zeroed memory, aligned for any type, or NULL. Never asked for 0 bytes. May be NULL for
     * tables without TEXT, pointers and lists. */
    void *(*allocate)(void *memory, size_t size_bytes);
    void *memory;
    void *context; /* of the tables' checks */
};

/* Appends the struct. TRAJD_ERR_ARGUMENT: a value breaks a limit, and the bytes have a part of the
 * struct. TRAJD_ERR_MEMORY: no memory, or the fixed buffer is too small. */
enum trajd_status trajd_codec_encode(const struct trajd_codec_table *table, const void *value,
                                     struct trajd_bytes *bytes, struct trajd_error *error);

/* Decodes bytes that are one struct and nothing else. The caller has filled *value with zeros or
 * with the defaults of optional members. TRAJD_ERR_PROTOCOL: the bytes break a rule.
 * TRAJD_ERR_MEMORY: `allocate` returned NULL. After an error, *value has parts of the struct. */
enum trajd_status trajd_codec_decode(const struct trajd_codec_table *table,
                                     const struct trajd_codec_input *input, void *value,
                                     struct trajd_error *error);

#endif
