/* The decoder: reads a frame's body into the struct of its message, by the table of its keys. */
#include "proto/wire.h"

#include <string.h>

#include "proto/wire_fields.h"
#include "proto/wire_scan.h"

static bool read_uint(struct trajd_wire_cursor *cursor, uint64_t low, uint64_t high,
                      uint64_t *value)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_UINT ||
        token.value < low || token.value > high)
        return false;
    *value = token.value;
    return true;
}

static bool read_u32(struct trajd_wire_cursor *cursor, uint64_t low, uint32_t *value)
{
    uint64_t wide;

    if (!read_uint(cursor, low, UINT32_MAX, &wide))
        return false;
    *value = (uint32_t)wide;
    return true;
}

static bool read_array(struct trajd_wire_cursor *cursor, uint64_t low, uint64_t high,
                       uint32_t *count)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_ARRAY ||
        token.value < low || token.value > high)
        return false;
    *count = (uint32_t)token.value;
    return true;
}

static bool read_text(struct trajd_wire_cursor *cursor, uint64_t limit,
                      struct trajd_wire_text *text)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_STR ||
        token.value > limit)
        return false;
    for (uint64_t i = 0, length; i < token.value; i += length)
        if (!(length = trajd_wire_character(token.bytes + i, token.value - i)))
            return false;
    *text = (struct trajd_wire_text){(const char *)token.bytes, (uint32_t)token.value};
    return true;
}

static bool read_token_bytes(struct trajd_wire_cursor *cursor, uint8_t *bytes)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_BIN ||
        token.value != TRAJD_WIRE_TOKEN_SIZE)
        return false;
    memcpy(bytes, token.bytes, TRAJD_WIRE_TOKEN_SIZE);
    return true;
}

static bool read_mode(struct trajd_wire_cursor *cursor, enum trajd_wire_mode *mode)
{
    struct trajd_wire_text word;

    if (!read_text(cursor, 8, &word))
        return false;
    *mode = trajd_wire_text_equals(word, "shard") ? TRAJD_WIRE_SHARD : TRAJD_WIRE_QUEUE;
    return *mode == TRAJD_WIRE_SHARD || trajd_wire_text_equals(word, "share");
}

static bool read_status_word(struct trajd_wire_cursor *cursor, enum trajd_status *status)
{
    struct trajd_wire_text word;

    if (!read_text(cursor, TRAJD_WIRE_MAX_NAME, &word))
        return false;
    *status = TRAJD_ERR_SYSTEM; /* a word of a later minor version */
    for (int i = TRAJD_OK; i <= TRAJD_END_OF_EPOCH; i++)
        if (trajd_wire_text_equals(word, trajd_status_name((enum trajd_status)i)))
            *status = (enum trajd_status)i;
    return true;
}

static bool read_dtype(struct trajd_wire_cursor *cursor, enum trajd_dtype *dtype)
{
    struct trajd_wire_text word;
    char name[16];

    if (!read_text(cursor, sizeof name - 1, &word))
        return false;
    trajd_wire_text_copy(word, name, sizeof name);
    *dtype = trajd_dtype_parse(name);
    return *dtype != TRAJD_DTYPE_NONE;
}

static bool read_leases(struct trajd_wire_cursor *cursor, struct trajd_wire_leases *leases)
{
    uint32_t fields;

    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_LEASES, &leases->count))
        return false;
    for (uint32_t i = 0; i < leases->count; i++) {
        struct trajd_wire_lease *lease = &leases->list[i];
        if (!read_array(cursor, 4, 4, &fields) || !read_u32(cursor, 0, &lease->ring) ||
            !read_u32(cursor, 0, &lease->slot) ||
            !read_uint(cursor, 0, UINT64_MAX, &lease->generation) ||
            !read_u32(cursor, 0, &lease->part))
            return false;
    }
    return true;
}

static bool read_feeds(struct trajd_wire_cursor *cursor, struct trajd_wire_welcome *welcome)
{
    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_FEEDS, &welcome->feed_count))
        return false;
    for (uint32_t i = 0; i < welcome->feed_count; i++)
        if (!read_text(cursor, TRAJD_WIRE_MAX_NAME, &welcome->feeds[i]))
            return false;
    return true;
}

static bool read_bytes(struct trajd_wire_cursor *cursor, uint64_t limit,
                       struct trajd_wire_bytes *bytes)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_BIN ||
        token.value > limit)
        return false;
    *bytes = (struct trajd_wire_bytes){token.bytes, (uint32_t)token.value};
    return true;
}

/* Reads ranks that must ascend, so that no rank is listed twice and equal sets have equal bytes. */
static bool read_ranks(struct trajd_wire_cursor *cursor, struct trajd_wire_ranks *ranks)
{
    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_LOCAL, &ranks->count))
        return false;
    for (uint32_t i = 0; i < ranks->count; i++)
        if (!read_u32(cursor, i ? (uint64_t)ranks->list[i - 1] + 1 : 0, &ranks->list[i]))
            return false;
    return true;
}

static bool read_texts(struct trajd_wire_cursor *cursor, struct trajd_wire_texts *texts)
{
    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_TEXTS, &texts->count))
        return false;
    for (uint32_t i = 0; i < texts->count; i++)
        if (!read_text(cursor, TRAJD_WIRE_MAX_TEXT, &texts->list[i]))
            return false;
    return true;
}

static bool read_positions(struct trajd_wire_cursor *cursor, struct trajd_wire_positions *positions)
{
    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_LEASES, &positions->count))
        return false;
    for (uint32_t i = 0; i < positions->count; i++)
        if (!read_uint(cursor, 0, UINT64_MAX, &positions->list[i]))
            return false;
    return true;
}

static bool read_shape(struct trajd_wire_cursor *cursor, struct trajd_wire_tensor *tensor)
{
    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_RANK, &tensor->rank))
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!read_uint(cursor, 0, UINT64_MAX, &tensor->shape[i]))
            return false;
    return true;
}

static bool read_rows(struct trajd_wire_cursor *cursor, uint32_t *pair)
{
    uint32_t count;

    return read_array(cursor, 2, 2, &count) && read_u32(cursor, 0, &pair[0]) &&
           read_u32(cursor, 0, &pair[1]);
}

/* Where decoded values are written. */
struct target {
    char *base;                        /* the op's struct */
    struct trajd_wire_tensor *tensors; /* for the tensors of an OPENED */
};

static const char *read_table(struct trajd_wire_cursor *cursor,
                              const struct trajd_wire_table *table, struct target target);

static bool read_tensors(struct trajd_wire_cursor *cursor, struct target target)
{
    struct trajd_wire_opened *opened = (void *)target.base;

    if (!read_array(cursor, 0, TRAJD_WIRE_MAX_TENSORS, &opened->tensor_count))
        return false;
    opened->tensors = target.tensors;
    for (uint32_t i = 0; i < opened->tensor_count; i++) {
        memset(&target.tensors[i], 0, sizeof target.tensors[i]);
        if (read_table(cursor, &trajd_wire_tensor_table,
                       (struct target){(void *)&target.tensors[i], NULL}))
            return false;
    }
    return true;
}

static bool read_bool(struct trajd_wire_cursor *cursor, bool *value)
{
    struct trajd_wire_token token;

    if (!trajd_wire_read_token(cursor, &token) || token.type != TRAJD_WIRE_TOKEN_BOOL)
        return false;
    *value = token.value != 0;
    return true;
}

static bool read_u32_in(struct trajd_wire_cursor *cursor, const struct trajd_wire_field *field,
                        uint32_t *value)
{
    return read_u32(cursor, field->low, value) && *value <= field->high;
}

static bool read_value(struct trajd_wire_cursor *cursor, const struct trajd_wire_field *field,
                       struct target target)
{
    void *at = target.base + field->offset;

    switch (field->kind) {
    case TRAJD_WIRE_KIND_U32:
        return read_u32_in(cursor, field, at);
    case TRAJD_WIRE_KIND_U64:
        return read_uint(cursor, field->low, field->high, at);
    case TRAJD_WIRE_KIND_BOOL:
        return read_bool(cursor, at);
    case TRAJD_WIRE_KIND_NAME:
    case TRAJD_WIRE_KIND_PROSE:
        return read_text(cursor, field->high, at);
    case TRAJD_WIRE_KIND_TOKEN:
        return read_token_bytes(cursor, at);
    case TRAJD_WIRE_KIND_MODE:
        return read_mode(cursor, at);
    case TRAJD_WIRE_KIND_STATUS_WORD:
        return read_status_word(cursor, at);
    case TRAJD_WIRE_KIND_DTYPE:
        return read_dtype(cursor, at);
    case TRAJD_WIRE_KIND_ROWS:
        return read_rows(cursor, at);
    case TRAJD_WIRE_KIND_LEASES:
        return read_leases(cursor, at);
    case TRAJD_WIRE_KIND_FEEDS:
        return read_feeds(cursor, (void *)target.base);
    case TRAJD_WIRE_KIND_SHAPE:
        return read_shape(cursor, (void *)target.base);
    case TRAJD_WIRE_KIND_TENSORS:
        return read_tensors(cursor, target);
    case TRAJD_WIRE_KIND_BYTES:
        return read_bytes(cursor, field->high, at);
    case TRAJD_WIRE_KIND_RANKS:
        return read_ranks(cursor, at);
    case TRAJD_WIRE_KIND_TEXTS:
        return read_texts(cursor, at);
    case TRAJD_WIRE_KIND_POSITIONS:
        return read_positions(cursor, at);
    }
    return false;
}

static const struct trajd_wire_field *find_field(const struct trajd_wire_table *table,
                                                 struct trajd_wire_text key)
{
    for (uint32_t i = 0; i < table->field_count; i++)
        if (trajd_wire_text_equals(key, table->fields[i].key))
            return &table->fields[i];
    return NULL;
}

/* Reads a map by its table. Returns NULL, or the key that is wrong, missing or there twice. */
static const char *read_table(struct trajd_wire_cursor *cursor,
                              const struct trajd_wire_table *table, struct target target)
{
    uint32_t seen = 0; /* one bit for each field; no table has more than 32 */
    struct trajd_wire_token map;

    if (!trajd_wire_read_token(cursor, &map) || map.type != TRAJD_WIRE_TOKEN_MAP)
        return "not a map";
    for (uint64_t i = 0; i < map.value / 2; i++) {
        const struct trajd_wire_field *field;
        struct trajd_wire_text key;
        uint32_t bit;
        if (!read_text(cursor, TRAJD_WIRE_MAX_FRAME, &key))
            return "a key that is no string";
        field = find_field(table, key);
        if (!field) {
            if (!trajd_wire_skip_value(cursor))
                return "cut off";
            continue;
        }
        bit = 1u << (field - table->fields);
        if ((seen & bit) || !read_value(cursor, field, target))
            return field->key;
        seen |= bit;
        if (table->op == TRAJD_WIRE_HELLO && field->kind == TRAJD_WIRE_KIND_TOKEN)
            ((struct trajd_wire_hello *)(void *)target.base)->has_token = true;
    }
    for (uint32_t i = 0; i < table->field_count; i++)
        if (!table->fields[i].optional && !(seen & 1u << i))
            return table->fields[i].key;
    return NULL;
}

/* Returns true if the list has the rank of the OPEN, and only ranks below its world. */
static bool names_rank(const struct trajd_wire_ranks *local, const struct trajd_wire_open *open)
{
    bool found = false;

    for (uint32_t i = 0; i < local->count; i++)
        found |= local->list[i] == open->rank;
    return found && local->list[local->count - 1] < open->world;
}

/* Checks rules that concern several keys of an OPEN. Returns NULL, or the key for the message. */
static const char *check_open(const struct trajd_wire_open *open)
{
    if (!open->feed.size == !open->spec.size)
        return "feed or spec, one of them";
    if (open->rank >= open->world)
        return "rank";
    if (open->mode == TRAJD_WIRE_QUEUE && open->world != 1)
        return "world";
    if (open->local.count && (open->mode == TRAJD_WIRE_QUEUE || !names_rank(&open->local, open)))
        return "local";
    if (open->resume.size && open->mode != TRAJD_WIRE_QUEUE)
        return "resume";
    return NULL;
}

/* Returns the number of the request in a message that is refused, so that the peer can match the
 * answer. Returns 0 if there is none. */
static uint64_t find_request(struct trajd_wire_cursor cursor)
{
    struct trajd_wire_text key;
    struct trajd_wire_token map;
    uint64_t request;

    if (!trajd_wire_read_token(&cursor, &map))
        return 0;
    for (uint64_t i = 0; i < map.value / 2; i++) {
        if (!read_text(&cursor, TRAJD_WIRE_MAX_FRAME, &key))
            return 0;
        if (trajd_wire_text_equals(key, "request"))
            return read_uint(&cursor, 0, UINT64_MAX, &request) ? request : 0;
        if (!trajd_wire_skip_value(&cursor))
            return 0;
    }
    return 0;
}

static enum trajd_status decode_body(struct trajd_wire_cursor cursor,
                                     const struct trajd_wire_table *table,
                                     struct trajd_wire_tensor *tensors,
                                     struct trajd_wire_message *message, struct trajd_error *error)
{
    const char *wrong;

    /* every struct of the union begins at the address of hello */
    memset(&message->hello, 0, table->size);
    if (table->op == TRAJD_WIRE_OPEN) {
        message->open.fresh = true;
        message->open.world = 1;
    }
    wrong = read_table(&cursor, table, (struct target){(void *)&message->hello, tensors});
    if (!wrong && table->op == TRAJD_WIRE_OPEN)
        wrong = check_open(&message->open);
    if (wrong)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "%s: %s (missing, of the wrong type, twice, or out of range)",
                               table->name, wrong);
    return TRAJD_OK;
}

enum trajd_status trajd_wire_decode(const void *frame, size_t size,
                                    struct trajd_wire_tensor *tensors,
                                    struct trajd_wire_message *message, uint64_t *request,
                                    struct trajd_error *error)
{
    const uint8_t *bytes = frame;
    const struct trajd_wire_table *table;
    struct trajd_wire_cursor body;
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
    body = (struct trajd_wire_cursor){bytes + TRAJD_WIRE_HEADER_SIZE, bytes + size};
    table = bytes[5] == TRAJD_WIRE_OPENED && !tensors ? NULL : trajd_wire_table(bytes[5]);
    if (bytes[6] || bytes[7] ||
        !trajd_wire_scan(body.at, size - TRAJD_WIRE_HEADER_SIZE,
                         table && table->op == TRAJD_WIRE_OPENED ? TRAJD_WIRE_MAX_ITEMS_OPENED
                                                                 : TRAJD_WIRE_MAX_ITEMS))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "wire: the body is not valid msgpack or breaks a limit");
    message->op = table ? table->op : 0;
    if (!table)
        status = trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0, "unknown operation %u", bytes[5]);
    else
        status = decode_body(body, table, tensors, message, error);
    if (status)
        *request = find_request(body);
    return status;
}
