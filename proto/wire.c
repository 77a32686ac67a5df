/* Texts, and the encoder of messages. */
#include "proto/wire.h"

#include <msgpack.h>
#include <string.h>

#include "proto/wire_fields.h"

struct writer {
    uint8_t *at, *end;
    bool full;
};

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

static int write_bytes(void *context, const char *data, size_t size)
{
    struct writer *writer = context;

    if (size > (size_t)(writer->end - writer->at)) {
        writer->full = true;
        return -1;
    }
    memcpy(writer->at, data, size);
    writer->at += size;
    return 0;
}

static void pack_word(msgpack_packer *packer, const char *word)
{
    size_t size = strlen(word);

    msgpack_pack_str(packer, size);
    msgpack_pack_str_body(packer, word, size);
}

static bool is_exact(struct trajd_wire_text text)
{
    const uint8_t *data = (const uint8_t *)text.data;

    for (uint32_t i = 0, length; i < text.size; i += length)
        if (!(length = trajd_wire_character(data + i, text.size - i)))
            return false;
    return true;
}

/* Packs a text for people, which must arrive even if it quotes the bytes of a file: cuts it to the
 * limit, and replaces each byte that is not UTF-8 by '?'. */
static void pack_prose(msgpack_packer *packer, struct trajd_wire_text text, uint32_t limit)
{
    const uint8_t *data = (const uint8_t *)text.data;
    uint32_t size = text.size, length;

    if (size > limit) {
        size = limit;
        while (size && (data[size] & 0xc0) == 0x80)
            size--;
    }
    msgpack_pack_str(packer, size);
    for (uint32_t i = 0; i < size; i += length ? length : 1) {
        length = trajd_wire_character(data + i, size - i);
        msgpack_pack_str_body(packer, length ? text.data + i : "?", length ? length : 1);
    }
}

static void pack_leases(msgpack_packer *packer, const struct trajd_wire_leases *leases)
{
    msgpack_pack_array(packer, leases->count);
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct trajd_wire_lease *lease = &leases->list[i];
        msgpack_pack_array(packer, 4);
        msgpack_pack_uint32(packer, lease->ring);
        msgpack_pack_uint32(packer, lease->slot);
        msgpack_pack_uint64(packer, lease->generation);
        msgpack_pack_uint32(packer, lease->part);
    }
}

static bool pack_table(msgpack_packer *packer, const struct trajd_wire_table *table,
                       const void *base);

static bool pack_feeds(msgpack_packer *packer, const uint32_t *feed_count)
{
    const struct trajd_wire_welcome *welcome =
        (const void *)((const char *)feed_count - offsetof(struct trajd_wire_welcome, feed_count));

    msgpack_pack_array(packer, welcome->feed_count);
    for (uint32_t i = 0; i < welcome->feed_count; i++) {
        if (welcome->feeds[i].size > TRAJD_WIRE_MAX_NAME || !is_exact(welcome->feeds[i]))
            return false;
        msgpack_pack_str(packer, welcome->feeds[i].size);
        msgpack_pack_str_body(packer, welcome->feeds[i].data, welcome->feeds[i].size);
    }
    return true;
}

static bool pack_tensors(msgpack_packer *packer, const uint32_t *tensor_count)
{
    const struct trajd_wire_opened *opened =
        (const void *)((const char *)tensor_count -
                       offsetof(struct trajd_wire_opened, tensor_count));

    msgpack_pack_array(packer, opened->tensor_count);
    for (uint32_t i = 0; i < opened->tensor_count; i++)
        if (!pack_table(packer, &trajd_wire_tensor_table, &opened->tensors[i]))
            return false;
    return true;
}

static void pack_ranks(msgpack_packer *packer, const struct trajd_wire_ranks *ranks)
{
    msgpack_pack_array(packer, ranks->count);
    for (uint32_t i = 0; i < ranks->count; i++)
        msgpack_pack_uint32(packer, ranks->list[i]);
}

static void pack_texts(msgpack_packer *packer, const struct trajd_wire_texts *texts)
{
    msgpack_pack_array(packer, texts->count);
    for (uint32_t i = 0; i < texts->count; i++)
        pack_prose(packer, texts->list[i], TRAJD_WIRE_MAX_TEXT);
}

static void pack_positions(msgpack_packer *packer, const struct trajd_wire_positions *positions)
{
    msgpack_pack_array(packer, positions->count);
    for (uint32_t i = 0; i < positions->count; i++)
        msgpack_pack_uint64(packer, positions->list[i]);
}

static void pack_shape(msgpack_packer *packer, const uint32_t *rank)
{
    const struct trajd_wire_tensor *tensor =
        (const void *)((const char *)rank - offsetof(struct trajd_wire_tensor, rank));

    msgpack_pack_array(packer, tensor->rank);
    for (uint32_t i = 0; i < tensor->rank; i++)
        msgpack_pack_uint64(packer, tensor->shape[i]);
}

static uint64_t read_number(const struct trajd_wire_field *field, const char *at)
{
    uint32_t narrow;
    uint64_t wide;

    if (field->kind == TRAJD_WIRE_KIND_U64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

static bool is_empty(const struct trajd_wire_field *field, const char *base)
{
    const char *at = base + field->offset;

    switch (field->kind) {
    case TRAJD_WIRE_KIND_NAME:
    case TRAJD_WIRE_KIND_PROSE:
        return ((const struct trajd_wire_text *)(const void *)at)->size == 0;
    case TRAJD_WIRE_KIND_BYTES:
        return ((const struct trajd_wire_bytes *)(const void *)at)->size == 0;
    case TRAJD_WIRE_KIND_TOKEN:
        return !((const struct trajd_wire_hello *)(const void *)base)->has_token;
    case TRAJD_WIRE_KIND_BOOL:
        return false;            /* `fresh`, the only one, is true when absent */
    case TRAJD_WIRE_KIND_LEASES: /* the first member of these structs is a count */
    case TRAJD_WIRE_KIND_FEEDS:
    default:
        return read_number(field, at) == 0;
    }
}

/* Packs a list, a struct whose first member is its length. Returns false if it breaks a limit. */
static bool pack_list(msgpack_packer *packer, const struct trajd_wire_field *field, const void *at)
{
    if (*(const uint32_t *)at > field->high)
        return false;
    switch (field->kind) {
    case TRAJD_WIRE_KIND_LEASES:
        pack_leases(packer, at);
        return true;
    case TRAJD_WIRE_KIND_SHAPE:
        pack_shape(packer, at);
        return true;
    case TRAJD_WIRE_KIND_RANKS:
        pack_ranks(packer, at);
        return true;
    case TRAJD_WIRE_KIND_TEXTS:
        pack_texts(packer, at);
        return true;
    case TRAJD_WIRE_KIND_POSITIONS:
        pack_positions(packer, at);
        return true;
    case TRAJD_WIRE_KIND_FEEDS:
        return pack_feeds(packer, at);
    default:
        return pack_tensors(packer, at);
    }
}

/* Packs the value of one key. Returns false if the value breaks a limit. */
static bool pack_value(msgpack_packer *packer, const struct trajd_wire_field *field,
                       const char *base)
{
    const void *at = base + field->offset;
    const struct trajd_wire_text *text = at;
    const struct trajd_wire_bytes *bytes = at;
    const uint32_t *pair = at;
    uint64_t number;

    switch (field->kind) {
    case TRAJD_WIRE_KIND_U32:
    case TRAJD_WIRE_KIND_U64:
        number = read_number(field, at);
        msgpack_pack_uint64(packer, number);
        return number >= field->low && number <= field->high;
    case TRAJD_WIRE_KIND_BOOL:
        *(const bool *)at ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
        return true;
    case TRAJD_WIRE_KIND_NAME:
        msgpack_pack_str(packer, text->size);
        msgpack_pack_str_body(packer, text->data, text->size);
        return text->size <= field->high && is_exact(*text);
    case TRAJD_WIRE_KIND_PROSE:
        pack_prose(packer, *text, (uint32_t)field->high);
        return true;
    case TRAJD_WIRE_KIND_TOKEN:
        msgpack_pack_bin(packer, TRAJD_WIRE_TOKEN_SIZE);
        msgpack_pack_bin_body(packer, at, TRAJD_WIRE_TOKEN_SIZE);
        return true;
    case TRAJD_WIRE_KIND_BYTES:
        msgpack_pack_bin(packer, bytes->size);
        msgpack_pack_bin_body(packer, bytes->data, bytes->size);
        return bytes->size <= field->high;
    case TRAJD_WIRE_KIND_MODE:
        pack_word(packer,
                  *(const enum trajd_wire_mode *)at == TRAJD_WIRE_SHARD ? "shard" : "share");
        return true;
    case TRAJD_WIRE_KIND_STATUS_WORD:
        pack_word(packer, trajd_status_name(*(const enum trajd_status *)at));
        return true;
    case TRAJD_WIRE_KIND_DTYPE:
        pack_word(packer, trajd_dtype_name(*(const enum trajd_dtype *)at));
        return trajd_dtype_size(*(const enum trajd_dtype *)at) != 0;
    case TRAJD_WIRE_KIND_ROWS:
        msgpack_pack_array(packer, 2);
        msgpack_pack_uint32(packer, pair[0]);
        msgpack_pack_uint32(packer, pair[1]);
        return true;
    default:
        return pack_list(packer, field, at);
    }
}

static bool pack_table(msgpack_packer *packer, const struct trajd_wire_table *table,
                       const void *base)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < table->field_count; i++)
        count += !(table->fields[i].optional && is_empty(&table->fields[i], base));
    msgpack_pack_map(packer, count);
    for (uint32_t i = 0; i < table->field_count; i++) {
        if (table->fields[i].optional && is_empty(&table->fields[i], base))
            continue;
        pack_word(packer, table->fields[i].key);
        if (!pack_value(packer, &table->fields[i], base))
            return false;
    }
    return true;
}

enum trajd_status trajd_wire_encode(const struct trajd_wire_message *message, void *buffer,
                                    size_t room, size_t *size, struct trajd_error *error)
{
    const struct trajd_wire_table *table = trajd_wire_table((unsigned)message->op);
    struct writer writer = {buffer, (uint8_t *)buffer + room, false};
    msgpack_packer packer;
    uint8_t header[TRAJD_WIRE_HEADER_SIZE] = {
        'T', 'R', 'J', 'D', TRAJD_WIRE_MAJOR, (uint8_t)message->op, 0, 0};

    if (!table)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "wire: there is no message with op %u",
                               (unsigned)message->op);
    if (writer.end - writer.at > (ptrdiff_t)TRAJD_WIRE_MAX_FRAME)
        writer.end = writer.at + TRAJD_WIRE_MAX_FRAME;
    write_bytes(&writer, (const char *)header, sizeof header);
    msgpack_packer_init(&packer, &writer, write_bytes);
    /* every struct of the union begins at the address of hello */
    if (!pack_table(&packer, table, &message->hello))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "wire: %s: a value breaks its limit",
                               table->name);
    if (writer.full)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "wire: %s: the message is longer than %zu bytes", table->name,
                               (size_t)(writer.end - (uint8_t *)buffer));
    *size = (size_t)(writer.at - (uint8_t *)buffer);
    return TRAJD_OK;
}
