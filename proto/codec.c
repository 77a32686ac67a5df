/* The encoder and the decoder of structs by their tables. */
#include "proto/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed numbers are little-endian");

enum { PATH_SIZE = 200 };

/* What both directions need. */
struct work {
    enum trajd_status status;
    const char *rule;     /* that is broken */
    char path[PATH_SIZE]; /* of the value that breaks it, at the end of the array */
    size_t path_begin;
    struct trajd_bytes *bytes;             /* of the encoder */
    struct trajd_cursor cursor;            /* of the decoder */
    const struct trajd_codec_input *input; /* of the decoder */
};

/* Records the rule that is broken. Returns false. */
static bool fail(struct work *w, enum trajd_status status, const char *rule)
{
    w->status = status;
    w->rule = rule;
    return false;
}

/* Puts a text before the path, if there is room. */
static void prepend(struct work *w, const char *text)
{
    const size_t length = strlen(text);

    if (length > w->path_begin)
        return;
    w->path_begin -= length;
    memcpy(w->path + w->path_begin, text, length);
}

/* Puts a key, or [index] where it is NULL, before the path of a value that failed. Returns false.
 * Each level does so on the way back, so a success costs nothing. */
static bool fail_at(struct work *w, const char *key, uint64_t index)
{
    const char next = w->path[w->path_begin];
    char number[24];

    snprintf(number, sizeof number, "[%llu]", (unsigned long long)index);
    if (next && next != '[')
        prepend(w, ".");
    prepend(w, key ? key : number);
    return false;
}

/* Makes the message of a failure. */
static enum trajd_status report(const struct work *w, struct trajd_error *error)
{
    const char *path = w->path + w->path_begin;

    if (w->status)
        trajd_error_set(error, w->status, 0, "%s%s%s", path, *path ? ": " : "", w->rule);
    return w->status;
}

/* A copy of a constant size is one instruction; numbers are little-endian. */
static uint64_t read_uint(const void *at, uint32_t size)
{
    uint64_t value = 0;

    switch (size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        memcpy(&value, at, 2);
        return value;
    case 4:
        memcpy(&value, at, 4);
        return value;
    default:
        memcpy(&value, at, 8);
        return value;
    }
}

static void write_uint(void *at, uint64_t value, uint32_t size)
{
    switch (size) {
    case 1:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case 2:
        memcpy(at, &value, 2);
        break;
    case 4:
        memcpy(at, &value, 4);
        break;
    default:
        memcpy(at, &value, 8);
    }
}

static int64_t read_int(const void *at, uint32_t size)
{
    const uint64_t value = read_uint(at, size);
    const uint32_t shift = 64 - 8 * size;

    return (int64_t)(value << shift) >> shift;
}

static double read_float(const void *at, uint32_t size)
{
    float narrow;
    double wide;

    if (size == sizeof narrow)
        return (double)*(const float *)memcpy(&narrow, at, sizeof narrow);
    return *(const double *)memcpy(&wide, at, sizeof wide);
}

static uint64_t text_limit(const struct trajd_codec_field *field)
{
    return field->high ? field->high : TRAJD_CODEC_TEXT_MAX;
}

static bool uint_is_allowed(const struct trajd_codec_field *field, uint64_t value)
{
    return value >= (uint64_t)field->low && (value <= field->high || !field->high);
}

static bool int_is_allowed(const struct trajd_codec_field *field, int64_t value)
{
    if (!field->low && !field->high)
        return true;
    return value >= field->low &&
           (value <= (int64_t)field->high || (field->low > 0 && !field->high));
}

/* NaN is out of every range. */
static bool float_is_allowed(const struct trajd_codec_field *field, double value)
{
    if (!field->low && !field->high)
        return true;
    return value >= (double)field->low &&
           (value <= (double)(int64_t)field->high || (field->low > 0 && !field->high));
}

static bool text_is_clean(const struct trajd_codec_field *field, const uint8_t *text, size_t length)
{
    const bool lines = field->flags & TRAJD_CODEC_LINES;

    if (field->flags & TRAJD_CODEC_ANY_TEXT)
        return trajd_utf8_is_valid(text, length);
    for (size_t i = 0; i < length; i++)
        if ((text[i] < 0x20 || text[i] == 0x7f) && !(lines && (text[i] == '\n' || text[i] == '\t')))
            return false;
    return true;
}

static uint64_t count_of(const struct trajd_codec_field *field, const char *base)
{
    return field->count_size ? read_uint(base + field->count_offset, field->count_size)
                             : field->most;
}

/* ---- encoder ---- */

static bool encode_struct(struct work *w, const struct trajd_codec_table *table, const char *base);

static bool encode_word(struct work *w, const struct trajd_codec_field *field, const void *at)
{
    const uint64_t number = read_uint(at, field->size);
    uint64_t count = 0;

    while (field->words[count])
        count++;
    if (number >= count || !*field->words[number])
        return fail(w, TRAJD_ERR_ARGUMENT, "an unknown number");
    trajd_pack_str(w->bytes, field->words[number], (uint32_t)strlen(field->words[number]));
    return true;
}

static bool encode_text(struct work *w, const struct trajd_codec_field *field, const void *at)
{
    const char *text;
    size_t length;

    memcpy(&text, at, sizeof text);
    if (!text && field->flags & TRAJD_CODEC_SPARSE) {
        trajd_pack_nil(w->bytes);
        return true;
    }
    length = text ? strlen(text) : 0;
    if (length > text_limit(field))
        return fail(w, TRAJD_ERR_ARGUMENT, "a text is too long");
    if (!text_is_clean(field, (const uint8_t *)text, length))
        return fail(w, TRAJD_ERR_ARGUMENT, "a text has control characters");
    trajd_pack_str(w->bytes, text, (uint32_t)length);
    return true;
}

/* Packs a text for people, which must arrive even if it quotes the bytes of a file: cuts it to the
 * limit, and replaces each byte that is not UTF-8 by '?'. */
static void encode_prose(struct trajd_bytes *bytes, const uint8_t *text, uint32_t size,
                         uint64_t limit)
{
    size_t begin;

    if (size > limit) {
        size = (uint32_t)limit;
        while (size && (text[size] & 0xc0) == 0x80)
            size--;
    }
    trajd_pack_str(bytes, text, size);
    if (bytes->failed)
        return;
    begin = bytes->length - size;
    for (uint32_t i = 0, length; i < size; i += length ? length : 1) {
        length = trajd_utf8_length(text + i, size - i);
        if (!length)
            bytes->data[begin + i] = '?';
    }
}

static bool encode_view(struct work *w, const struct trajd_codec_field *field, const void *at)
{
    struct trajd_codec_view view;

    memcpy(&view, at, sizeof view);
    if (field->kind == TRAJD_CODEC_PROSE) {
        encode_prose(w->bytes, view.data, view.size, text_limit(field));
        return true;
    }
    if (view.size > text_limit(field))
        return fail(w, TRAJD_ERR_ARGUMENT, "too long");
    if (field->kind == TRAJD_CODEC_BLOB) {
        trajd_pack_bin(w->bytes, view.data, view.size);
        return true;
    }
    if (!trajd_utf8_is_valid(view.data, view.size))
        return fail(w, TRAJD_ERR_ARGUMENT, "not UTF-8");
    trajd_pack_str(w->bytes, view.data, view.size);
    return true;
}

static bool encode_element(struct work *w, const struct trajd_codec_field *field, const void *at)
{
    switch (field->kind) {
    case TRAJD_CODEC_UINT:
        trajd_pack_uint(w->bytes, read_uint(at, field->size));
        return uint_is_allowed(field, read_uint(at, field->size)) ||
               fail(w, TRAJD_ERR_ARGUMENT, "out of range");
    case TRAJD_CODEC_INT:
        trajd_pack_int(w->bytes, read_int(at, field->size));
        return int_is_allowed(field, read_int(at, field->size)) ||
               fail(w, TRAJD_ERR_ARGUMENT, "out of range");
    case TRAJD_CODEC_BOOL:
        trajd_pack_bool(w->bytes, *(const bool *)at);
        return true;
    case TRAJD_CODEC_FLOAT:
        if (field->size == sizeof(float))
            trajd_pack_f32(w->bytes, (float)read_float(at, field->size));
        else
            trajd_pack_f64(w->bytes, read_float(at, field->size));
        return float_is_allowed(field, read_float(at, field->size)) ||
               fail(w, TRAJD_ERR_ARGUMENT, "out of range");
    case TRAJD_CODEC_WORD:
        return encode_word(w, field, at);
    case TRAJD_CODEC_TEXT:
        return encode_text(w, field, at);
    case TRAJD_CODEC_VIEW:
    case TRAJD_CODEC_PROSE:
    case TRAJD_CODEC_BLOB:
        return encode_view(w, field, at);
    case TRAJD_CODEC_STRUCT:
        return encode_struct(w, field->table, at);
    }
    return false;
}

static bool encode_array(struct work *w, const struct trajd_codec_field *field, const char *base,
                         const char *elements)
{
    const uint64_t count = count_of(field, base);

    if (count > field->most)
        return fail(w, TRAJD_ERR_ARGUMENT, "too many elements");
    if (field->flags & TRAJD_CODEC_PACKED) {
        if (count > UINT32_MAX / field->size)
            return fail(w, TRAJD_ERR_ARGUMENT, "too many elements");
        trajd_pack_bin(w->bytes, elements, (uint32_t)(count * field->size));
        return true;
    }
    trajd_pack_array(w->bytes, (uint32_t)count);
    for (uint64_t i = 0; i < count; i++)
        if (!encode_element(w, field, elements + i * field->size)) {
            return fail_at(w, NULL, i);
        }
    return true;
}

static const char *follow(const char *at)
{
    const char *target;

    memcpy(&target, at, sizeof target);
    return target;
}

static bool encode_value(struct work *w, const struct trajd_codec_field *field, const char *base)
{
    const char *at = base + field->offset;

    switch (field->shape) {
    case TRAJD_CODEC_SINGLE:
        return encode_element(w, field, at);
    case TRAJD_CODEC_POINTED:
        return encode_element(w, field, follow(at));
    case TRAJD_CODEC_INSIDE:
        return encode_array(w, field, base, at);
    case TRAJD_CODEC_OUTSIDE:
        return encode_array(w, field, base, follow(at));
    }
    return false;
}

static bool is_zero(const char *at, size_t size)
{
    while (size && !at[size - 1])
        size--;
    return !size;
}

/* Returns whether the encoder leaves the value out. */
static bool is_absent(const struct trajd_codec_field *field, const char *base)
{
    const char *at = base + field->offset;
    struct trajd_codec_view view;

    if (!(field->flags & TRAJD_CODEC_OPTIONAL))
        return false;
    if (field->has)
        return !*(const bool *)(base + field->has - 1);
    if (field->shape == TRAJD_CODEC_INSIDE)
        return count_of(field, base) == 0;
    if (field->shape != TRAJD_CODEC_SINGLE)
        return !follow(at);
    if (field->kind == TRAJD_CODEC_VIEW || field->kind == TRAJD_CODEC_PROSE ||
        field->kind == TRAJD_CODEC_BLOB)
        return ((const struct trajd_codec_view *)memcpy(&view, at, sizeof view))->size == 0;
    return field->kind != TRAJD_CODEC_BOOL && is_zero(at, field->size);
}

static bool encode_struct(struct work *w, const struct trajd_codec_table *table, const char *base)
{
    const bool is_map = table->form != TRAJD_CODEC_ROW;
    uint32_t count = 0;

    for (uint32_t i = 0; is_map && i < table->field_count; i++)
        count += !is_absent(&table->fields[i], base);
    if (is_map)
        trajd_pack_map(w->bytes, count);
    else
        trajd_pack_array(w->bytes, table->field_count);
    for (uint32_t i = 0; i < table->field_count; i++) {
        const struct trajd_codec_field *field = &table->fields[i];
        const bool absent = is_absent(field, base);
        if (is_map && !absent)
            trajd_pack_str(w->bytes, field->key, (uint32_t)strlen(field->key));
        if (!is_map && absent)
            trajd_pack_nil(w->bytes);
        if (!absent && !encode_value(w, field, base))
            return fail_at(w, field->key, 0);
    }
    return true;
}

enum trajd_status trajd_codec_encode(const struct trajd_codec_table *table, const void *value,
                                     struct trajd_bytes *bytes, struct trajd_error *error)
{
    struct work w = {.bytes = bytes, .path_begin = PATH_SIZE - 1};

    if (encode_struct(&w, table, value) && bytes->failed)
        fail(&w, TRAJD_ERR_MEMORY, bytes->is_fixed ? "the buffer is too small" : "out of memory");
    return report(&w, error);
}

/* ---- decoder ---- */

static bool damaged(struct work *w, const char *rule)
{
    return fail(w, TRAJD_ERR_PROTOCOL, rule);
}

static bool take(struct work *w, struct trajd_token *token)
{
    return trajd_token_read(&w->cursor, token) || damaged(w, "cut off, or not msgpack");
}

static bool take_of(struct work *w, enum trajd_token_type type, struct trajd_token *token)
{
    static const char *const rules[] = {
        [TRAJD_TOKEN_BOOL] = "not a boolean", [TRAJD_TOKEN_UINT] = "not an unsigned number",
        [TRAJD_TOKEN_STR] = "not a text",     [TRAJD_TOKEN_BIN] = "not bytes",
        [TRAJD_TOKEN_ARRAY] = "not a list",   [TRAJD_TOKEN_MAP] = "not a map"};

    return take(w, token) && (token->type == type || damaged(w, rules[type]));
}

static void *allocate(struct work *w, uint64_t count, uint32_t size)
{
    void *memory = count > SIZE_MAX / 2 / size
                       ? NULL
                       : w->input->allocate(w->input->memory, count ? count * size : 1);

    if (!memory)
        fail(w, TRAJD_ERR_MEMORY, "out of memory");
    return memory;
}

static bool decode_struct(struct work *w, const struct trajd_codec_table *table, char *base);

static bool decode_uint(struct work *w, const struct trajd_codec_field *field, void *at)
{
    struct trajd_token token;

    if (!take_of(w, TRAJD_TOKEN_UINT, &token))
        return false;
    if (!uint_is_allowed(field, token.value) || (field->size < 8 && token.value >> 8 * field->size))
        return damaged(w, "out of range");
    write_uint(at, token.value, field->size);
    return true;
}

static bool decode_int(struct work *w, const struct trajd_codec_field *field, void *at)
{
    struct trajd_token token;

    if (!take(w, &token))
        return false;
    if (token.type != TRAJD_TOKEN_INT && token.type != TRAJD_TOKEN_UINT)
        return damaged(w, "not a whole number");
    write_uint(at, token.value, field->size);
    if ((token.type == TRAJD_TOKEN_UINT && token.value > INT64_MAX) ||
        read_int(at, field->size) != (int64_t)token.value ||
        !int_is_allowed(field, (int64_t)token.value))
        return damaged(w, "out of range");
    return true;
}

static bool decode_float(struct work *w, const struct trajd_codec_field *field, void *at)
{
    struct trajd_token token;
    float narrow;

    if (!take(w, &token))
        return false;
    if (token.type == TRAJD_TOKEN_UINT)
        token.number = (double)token.value;
    else if (token.type == TRAJD_TOKEN_INT)
        token.number = (double)(int64_t)token.value;
    else if (token.type != TRAJD_TOKEN_F32 && token.type != TRAJD_TOKEN_F64)
        return damaged(w, "not a number");
    narrow = (float)token.number;
    if (!float_is_allowed(field, token.number) ||
        (field->size == sizeof narrow && isinf(narrow) && !isinf(token.number)))
        return damaged(w, "out of range");
    if (field->size == sizeof narrow)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &token.number, sizeof token.number);
    return true;
}

static bool decode_word(struct work *w, const struct trajd_codec_field *field, void *at)
{
    struct trajd_token token;
    uint64_t number = 0;

    if (!take_of(w, TRAJD_TOKEN_STR, &token))
        return false;
    while (field->words[number] && (!token.value || strlen(field->words[number]) != token.value ||
                                    memcmp(field->words[number], token.bytes, token.value) != 0))
        number++;
    if (!field->words[number]) {
        if (!field->high)
            return damaged(w, "an unknown word");
        number = field->high;
    }
    write_uint(at, number, field->size);
    return true;
}

static bool decode_text(struct work *w, const struct trajd_codec_field *field, void *at)
{
    struct trajd_token token;
    char *text;

    if (field->flags & TRAJD_CODEC_SPARSE && w->cursor.at < w->cursor.end && *w->cursor.at == 0xc0)
        return take(w, &token);
    if (!take_of(w, TRAJD_TOKEN_STR, &token))
        return false;
    if (token.value > text_limit(field))
        return damaged(w, "a text is too long");
    if (!text_is_clean(field, token.bytes, token.value))
        return damaged(w, "a text has control characters");
    text = allocate(w, token.value + 1, 1);
    if (!text)
        return false;
    memcpy(text, token.bytes, token.value);
    memcpy(at, &text, sizeof text);
    return true;
}

static bool decode_view(struct work *w, const struct trajd_codec_field *field, void *at)
{
    const bool is_blob = field->kind == TRAJD_CODEC_BLOB;
    struct trajd_codec_view view;
    struct trajd_token token;

    if (!take_of(w, is_blob ? TRAJD_TOKEN_BIN : TRAJD_TOKEN_STR, &token))
        return false;
    if (token.value > text_limit(field))
        return damaged(w, "too long");
    if (!is_blob && !trajd_utf8_is_valid(token.bytes, token.value))
        return damaged(w, "not UTF-8");
    view = (struct trajd_codec_view){token.bytes, (uint32_t)token.value};
    memcpy(at, &view, sizeof view);
    return true;
}

static bool decode_bool(struct work *w, bool *value)
{
    struct trajd_token token;

    if (!take_of(w, TRAJD_TOKEN_BOOL, &token))
        return false;
    *value = token.value != 0;
    return true;
}

static bool decode_element(struct work *w, const struct trajd_codec_field *field, void *at)
{
    switch (field->kind) {
    case TRAJD_CODEC_UINT:
        return decode_uint(w, field, at);
    case TRAJD_CODEC_INT:
        return decode_int(w, field, at);
    case TRAJD_CODEC_BOOL:
        return decode_bool(w, at);
    case TRAJD_CODEC_FLOAT:
        return decode_float(w, field, at);
    case TRAJD_CODEC_WORD:
        return decode_word(w, field, at);
    case TRAJD_CODEC_TEXT:
        return decode_text(w, field, at);
    case TRAJD_CODEC_VIEW:
    case TRAJD_CODEC_PROSE:
    case TRAJD_CODEC_BLOB:
        return decode_view(w, field, at);
    case TRAJD_CODEC_STRUCT:
        return decode_struct(w, field->table, at);
    }
    return false;
}

/* Returns the fewest bytes of one element, so that a false count cannot claim memory. */
static uint64_t least_bytes(const struct trajd_codec_field *field)
{
    uint64_t least = 1;

    if (field->flags & TRAJD_CODEC_PACKED)
        return field->size;
    if (field->kind != TRAJD_CODEC_STRUCT)
        return 1;
    for (uint32_t i = 0; i < field->table->field_count; i++) {
        const struct trajd_codec_field *child = &field->table->fields[i];
        if (field->table->form == TRAJD_CODEC_ROW)
            least++;
        else if (!(child->flags & TRAJD_CODEC_OPTIONAL))
            least += 2 + strlen(child->key);
    }
    return least;
}

/* Reads the number of elements, and checks it. */
static bool decode_count(struct work *w, const struct trajd_codec_field *field, char *base,
                         struct trajd_token *token)
{
    const bool is_packed = field->flags & TRAJD_CODEC_PACKED;
    const bool is_given = !field->count_size || field->flags & TRAJD_CODEC_AS_LONG;
    uint64_t count;

    if (!take_of(w, is_packed ? TRAJD_TOKEN_BIN : TRAJD_TOKEN_ARRAY, token))
        return false;
    count = is_packed ? token->value / field->size : token->value;
    if (is_packed && token->value % field->size)
        return damaged(w, "not a whole number of elements");
    if (!is_packed && count > (uint64_t)(w->cursor.end - w->cursor.at) / least_bytes(field))
        return damaged(w, "more elements than bytes");
    if (count > field->most || (is_given && count != count_of(field, base)))
        return damaged(w, "another number of elements than allowed");
    if (!is_given)
        write_uint(base + field->count_offset, count, field->count_size);
    token->value = count;
    return true;
}

static bool decode_array(struct work *w, const struct trajd_codec_field *field, char *base)
{
    char *elements = base + field->offset;
    struct trajd_token token;

    if (!decode_count(w, field, base, &token))
        return false;
    if (field->shape == TRAJD_CODEC_OUTSIDE) {
        elements = allocate(w, token.value, field->size);
        if (!elements)
            return false;
        memcpy(base + field->offset, &elements, sizeof elements);
    }
    if (field->flags & TRAJD_CODEC_PACKED) {
        memcpy(elements, token.bytes, token.value * field->size);
        return true;
    }
    for (uint64_t i = 0; i < token.value; i++)
        if (!decode_element(w, field, elements + i * field->size)) {
            return fail_at(w, NULL, i);
        }
    return true;
}

static bool decode_pointed(struct work *w, const struct trajd_codec_field *field, char *base)
{
    char *element = allocate(w, 1, field->size);

    if (!element)
        return false;
    memcpy(base + field->offset, &element, sizeof element);
    return decode_element(w, field, element);
}

/* Reads a value of one byte: nil for an optional one, a boolean, or a small number. Most values of
 * bulk records are so short. Returns false for all others, and where a limit is broken. */
static inline bool decode_short(struct work *w, const struct trajd_codec_field *field, char *base)
{
    const uint8_t byte = w->cursor.at < w->cursor.end ? *w->cursor.at : 0xff;
    const bool is_plain = field->shape == TRAJD_CODEC_SINGLE && !field->has;

    if (byte < 0x80 && is_plain && field->kind == TRAJD_CODEC_UINT && uint_is_allowed(field, byte))
        write_uint(base + field->offset, byte, field->size);
    else if ((byte & 0xfe) == 0xc2 && is_plain && field->kind == TRAJD_CODEC_BOOL)
        *(bool *)(base + field->offset) = byte & 1;
    else if (byte != 0xc0 || !(field->flags & TRAJD_CODEC_OPTIONAL))
        return false;
    w->cursor.at++;
    return true;
}

static bool decode_value(struct work *w, const struct trajd_codec_field *field, char *base)
{
    bool is_read;

    if (decode_short(w, field, base))
        return true;
    if (field->shape == TRAJD_CODEC_SINGLE)
        is_read = decode_element(w, field, base + field->offset);
    else if (field->shape == TRAJD_CODEC_POINTED)
        is_read = decode_pointed(w, field, base);
    else
        is_read = decode_array(w, field, base);
    if (is_read && field->has)
        *(bool *)(base + field->has - 1) = true;
    return is_read || fail_at(w, field->key, 0);
}

static bool decode_row(struct work *w, const struct trajd_codec_table *table, char *base)
{
    struct trajd_token token;

    if (!take_of(w, TRAJD_TOKEN_ARRAY, &token))
        return false;
    if (token.value != table->field_count)
        return damaged(w, "another number of values than the struct has");
    for (uint32_t i = 0; i < table->field_count; i++)
        if (!decode_value(w, &table->fields[i], base))
            return false;
    return true;
}

/* Finds the field of a key. Keys mostly come in the order of the table, so it looks first at
 * `next`. */
static uint32_t find_field(const struct trajd_codec_table *table, const struct trajd_token *key,
                           uint32_t next)
{
    for (uint32_t i = 0; i < table->field_count; i++) {
        const uint32_t at = (next + i) % table->field_count;
        const char *name = table->fields[at].key;
        if (strlen(name) == key->value && memcmp(name, key->bytes, key->value) == 0)
            return at;
    }
    return table->field_count;
}

/* Refuses a key that the table does not know, and names its beginning. */
static bool refuse_key(struct work *w, const struct trajd_token *key)
{
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)(key->value < 63 ? key->value : 63),
             (const char *)key->bytes);
    return damaged(w, "no such key") || fail_at(w, name, 0);
}

static bool decode_map(struct work *w, const struct trajd_codec_table *table, char *base)
{
    uint64_t seen = 0; /* one bit for each field */
    struct trajd_token map, key;
    uint32_t next = 0;

    if (!take_of(w, TRAJD_TOKEN_MAP, &map))
        return false;
    for (uint64_t i = 0; i < map.value / 2; i++) {
        uint32_t at;
        if (!take_of(w, TRAJD_TOKEN_STR, &key))
            return false;
        at = find_field(table, &key, next);
        if (at == table->field_count && table->form == TRAJD_CODEC_CLOSED)
            return refuse_key(w, &key);
        if (at == table->field_count) {
            if (!trajd_token_skip(&w->cursor))
                return damaged(w, "cut off, or not msgpack");
            continue;
        }
        if (seen >> at & 1)
            return damaged(w, "there twice") || fail_at(w, table->fields[at].key, 0);
        if (!decode_value(w, &table->fields[at], base))
            return false;
        seen |= UINT64_C(1) << at;
        next = at + 1;
    }
    for (uint32_t i = 0; i < table->field_count; i++)
        if (!(table->fields[i].flags & TRAJD_CODEC_OPTIONAL) && !(seen >> i & 1))
            return damaged(w, "missing") || fail_at(w, table->fields[i].key, 0);
    return true;
}

static bool decode_struct(struct work *w, const struct trajd_codec_table *table, char *base)
{
    const char *rule;

    if (!(table->form == TRAJD_CODEC_ROW ? decode_row : decode_map)(w, table, base))
        return false;
    rule = table->check ? table->check(base, w->input->context) : NULL;
    return !rule || damaged(w, rule);
}

enum trajd_status trajd_codec_decode(const struct trajd_codec_table *table,
                                     const struct trajd_codec_input *input, void *value,
                                     struct trajd_error *error)
{
    struct work w = {.input = input, .path_begin = PATH_SIZE - 1};

    w.cursor.at = input->data;
    w.cursor.end = w.cursor.at + input->length;
    if (decode_struct(&w, table, value) && w.cursor.at != w.cursor.end)
        damaged(&w, "more bytes than one struct");
    return report(&w, error);
}
