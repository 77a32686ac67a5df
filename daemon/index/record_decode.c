#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/layout.h"
#include "daemon/index/record.h"

enum {
    EPISODE_COUNT_MAX = 1 << 20,
    ARRAY_COUNT_MAX = 4096,
    KEY_COUNT_MAX = 4096,
    TEXT_LENGTH_MAX = 4096
};
static const uint64_t row_count_max =
    1u << 31; /* kept_rows are uint32; the child refuses larger arrays itself */

/* Never reads beyond `remaining` bytes. After the first failure all values are zero. */
struct cursor {
    const uint8_t *next;
    size_t remaining;
    bool failed;
    const char *rule; /* the rule that was broken */
    struct trajd_arena *arena;
    uint64_t file_size;
    uint32_t clock_count;
};

static void fail(struct cursor *c, const char *rule)
{
    if (!c->failed)
        c->rule = rule;
    c->failed = true;
    c->remaining = 0;
}

static const uint8_t *take(struct cursor *c, size_t length)
{
    const uint8_t *data = c->next;

    if (c->failed || length > c->remaining) {
        fail(c, "ends too early");
        return NULL;
    }
    c->next += length;
    c->remaining -= length;
    return data;
}

static void take_into(struct cursor *c, void *out, size_t length)
{
    const uint8_t *data = take(c, length);

    if (data)
        memcpy(out, data, length);
    else
        memset(out, 0, length);
}

static uint8_t take_u8(struct cursor *c)
{
    uint8_t value;

    take_into(c, &value, sizeof value);
    return value;
}

static uint32_t take_u32(struct cursor *c)
{
    uint32_t value;

    take_into(c, &value, sizeof value);
    return le32toh(value);
}

static uint64_t take_u64(struct cursor *c)
{
    uint64_t value;

    take_into(c, &value, sizeof value);
    return le64toh(value);
}

static bool take_flag(struct cursor *c)
{
    uint8_t value = take_u8(c);

    if (value > 1)
        fail(c, "a flag is neither 0 nor 1");
    return value == 1;
}

/* Takes a count of items of at least `least` bytes each. A false count thus cannot claim much
 * memory. */
static uint32_t take_count(struct cursor *c, uint32_t limit, size_t least)
{
    uint32_t count = take_u32(c);

    if (count > limit || count > c->remaining / least) {
        fail(c, "a count is too large");
        return 0;
    }
    return count;
}

static void *allocate(struct cursor *c, uint64_t count, size_t size)
{
    void *memory = c->failed || count > SIZE_MAX / 2 / size
                       ? NULL
                       : trajd_arena_alloc(c->arena, count ? count * size : 1);

    if (!memory)
        fail(c, "no memory");
    return memory;
}

/* Takes a text without control characters, except those in `but`. It need not be UTF-8. */
static const char *take_clean_text(struct cursor *c, uint32_t limit, const char *but)
{
    uint32_t length = take_count(c, limit, 1);
    const uint8_t *data = take(c, length);
    char *text;

    for (uint32_t i = 0; data && i < length; i++) {
        if ((data[i] < 0x20 || data[i] == 0x7f) && (!data[i] || !strchr(but, data[i]))) {
            fail(c, "a text has control characters");
            return "";
        }
    }
    text = data ? trajd_arena_copy(c->arena, (const char *)data, length) : NULL;
    if (!text)
        fail(c, "no memory");
    return text ? text : "";
}

/* Takes a text that may be printed. */
static const char *take_text(struct cursor *c)
{
    return take_clean_text(c, TEXT_LENGTH_MAX, "");
}

static const char *take_optional_text(struct cursor *c)
{
    const char *text = take_text(c);

    return *text ? text : NULL;
}

static const char **take_texts(struct cursor *c, uint32_t limit, uint32_t *count)
{
    const char **texts;

    *count = take_count(c, limit, 4);
    texts = allocate(c, *count, sizeof *texts);
    for (uint32_t i = 0; texts && i < *count; i++)
        texts[i] = take_text(c);
    if (c->failed)
        *count = 0;
    return texts;
}

/* Computes the product of the dimensions and the element size. False where it overflows. */
static bool size_of(const uint64_t *shape, uint32_t rank, uint64_t element, uint64_t *size)
{
    bool zero = false;

    *size = element;
    for (uint32_t i = 0; i < rank; i++) {
        zero = zero || !shape[i];
        if (shape[i] && __builtin_mul_overflow(*size, shape[i], size))
            return false;
    }
    if (zero)
        *size = 0;
    return *size <= INT64_MAX;
}

static bool filter_is_known(uint16_t filter)
{
    return filter == TRAJD_FILTER_DEFLATE || filter == TRAJD_FILTER_SHUFFLE ||
           filter == TRAJD_FILTER_FLETCHER32 || filter == TRAJD_FILTER_LZF;
}

static void refuse(struct cursor *c, struct trajd_record_array *array, const char *text)
{
    if (!array->refusal)
        array->refusal = trajd_arena_copy(c->arena, text, strlen(text));
    if (!array->refusal)
        fail(c, "no memory");
}

static void take_chunks(struct cursor *c, struct trajd_record_array *array)
{
    struct trajd_array *extent = &array->extent;
    uint64_t expected = 1, chunk_bytes;
    struct trajd_chunk *chunks;

    extent->chunk_row = take_u64(c);
    for (uint32_t i = 0; i < extent->rank; i++) {
        uint64_t grid, length = extent->shape[i];
        extent->chunk_shape[i] = take_u64(c);
        if (!extent->chunk_shape[i] || extent->chunk_shape[i] > UINT32_MAX)
            return fail(c, "a chunk has no or too many rows");
        if (!i && extent->chunk_row >= extent->chunk_shape[0])
            return fail(c, "an array begins after its first chunk");
        length += i ? 0 : extent->chunk_row;
        grid = length / extent->chunk_shape[i] + (length % extent->chunk_shape[i] != 0);
        if (__builtin_mul_overflow(expected, grid, &expected))
            return fail(c, "too many chunks");
    }
    if (!size_of(extent->chunk_shape, extent->rank, trajd_dtype_size(extent->dtype),
                 &chunk_bytes) ||
        chunk_bytes > UINT32_MAX)
        return fail(c, "a chunk is too large");
    for (uint32_t i = 0; i < extent->filter_count; i++) {
        uint16_t filter;
        take_into(c, &filter, sizeof filter);
        extent->filters[i] = le16toh(filter);
        if (!filter_is_known(extent->filters[i]))
            fail(c, "an unknown filter");
    }
    extent->chunk_count = take_u64(c);
    if (c->failed || extent->chunk_count != expected || expected > c->remaining / 16)
        return fail(c, "the number of chunks does not fit the shape");
    chunks = allocate(c, expected, sizeof *chunks);
    for (uint64_t i = 0; chunks && i < expected; i++) {
        chunks[i].offset = take_u64(c);
        chunks[i].stored_size = take_u32(c);
        chunks[i].filter_mask = take_u32(c);
    }
    extent->chunks = chunks;
}

static void take_inline(struct cursor *c, struct trajd_array *extent)
{
    const uint8_t *data = extent->size_bytes > 65536 ? NULL : take(c, extent->size_bytes);
    uint8_t *copy = data ? allocate(c, extent->size_bytes, 1) : NULL;

    if (!copy)
        return fail(c, "compact data do not fit");
    memcpy(copy, data, extent->size_bytes);
    extent->inline_bytes = copy;
}

static void take_storage(struct cursor *c, struct trajd_record_array *array)
{
    struct trajd_array *extent = &array->extent;

    switch (extent->storage) {
    case TRAJD_STORAGE_CONTIGUOUS:
        extent->offset = take_u64(c);
        if (extent->filter_count)
            fail(c, "contiguous data have no filters");
        break;
    case TRAJD_STORAGE_CHUNKED:
        take_chunks(c, array);
        break;
    case TRAJD_STORAGE_INLINE:
        take_inline(c, extent);
        break;
    case TRAJD_STORAGE_EMPTY:
        break;
    case TRAJD_STORAGE_ABSENT:
        if (!array->refusal)
            fail(c, "an array without storage has no reason");
        break;
    }
}

/* Takes a number between -limit and limit. */
static float take_f32(struct cursor *c, float limit)
{
    const uint32_t bits = take_u32(c);
    float value;

    memcpy(&value, &bits, sizeof value);
    if (!(value >= -limit && value <= limit))
        fail(c, "a quaternion is out of range");
    return value;
}

static void take_quaternions(struct cursor *c, struct trajd_array *array)
{
    const uint32_t count = take_u8(c);
    struct trajd_quaternion *all = count ? allocate(c, count, sizeof *all) : NULL;

    if (count > TRAJD_QUATERNIONS_MAX)
        fail(c, "too many quaternions");
    for (uint32_t i = 0; i < count && !c->failed; i++) {
        all[i].column = take_u32(c);
        all[i].is_one_hot = take_flag(c);
        all[i].error = take_f32(c, 1);
        for (int k = 0; k < 4; k++)
            all[i].low[k] = take_f32(c, 2);
        for (int k = 0; k < 4; k++)
            all[i].high[k] = take_f32(c, 2);
        if (all[i].column >= TRAJD_QUATERNION_ROW_MAX ||
            all[i].column + 4 > trajd_array_row_elements(array) ||
            (i && all[i].column <= all[i - 1].column))
            fail(c, "quaternions are not in order");
    }
    array->quaternion_count = c->failed ? 0 : count;
    array->quaternions = all;
}

static bool picture_is_possible(const struct trajd_picture *picture)
{
    const uint8_t bits = picture->bits;

    return picture->encoding <= TRAJD_PICTURE_PNG && picture->height &&
           picture->height <= TRAJD_PICTURE_SIDE_MAX && picture->width &&
           picture->width <= TRAJD_PICTURE_SIDE_MAX && (bits == 8 || bits == 16 || bits == 32) &&
           (picture->channels == 1 || picture->channels == 3);
}

/* Takes a picture, or zeros for none. */
static void take_picture(struct cursor *c, struct trajd_picture *picture)
{
    struct trajd_picture found = {.encoding = (enum trajd_picture_encoding)take_u8(c)};

    found.height = take_u32(c);
    found.width = take_u32(c);
    found.channels = take_u8(c);
    found.bits = take_u8(c);
    found.is_progressive = take_flag(c);
    if (found.encoding
            ? !picture_is_possible(&found)
            : found.height || found.width || found.channels || found.bits || found.is_progressive)
        fail(c, "a picture is out of range");
    *picture = found;
}

/* Takes what belongs to the form of encoded rows. */
static void take_form(struct cursor *c, struct trajd_array *extent)
{
    if (trajd_array_is_encoded(extent))
        take_picture(c, &extent->picture);
    if (extent->form == TRAJD_ROWS_PACKED) {
        extent->payload_offset = take_u64(c);
        extent->payload_bytes = take_u64(c);
        extent->preparation = take_optional_text(c);
        if (extent->preparation && (strlen(extent->preparation) > TRAJD_PREPARATION_TEXT_MAX ||
                                    extent->picture.encoding != TRAJD_PICTURE_RAW))
            fail(c, "prepared frames have a long preparation, or are not raw pixels");
    }
}

static void take_array(struct cursor *c, struct trajd_record_array *array)
{
    struct trajd_array *extent = &array->extent;
    struct trajd_error error;
    uint8_t storage, dtype, form;

    array->path = take_text(c);
    array->match = take_optional_text(c);
    array->refusal = take_optional_text(c);
    storage = take_u8(c);
    dtype = take_u8(c);
    extent->rank = take_u8(c);
    extent->filter_count = take_u8(c);
    extent->has_attributes = take_flag(c);
    form = take_u8(c);
    extent->is_enum = take_flag(c);
    if (c->failed || form > TRAJD_ROWS_PACKED || !*array->path || storage > TRAJD_STORAGE_INLINE ||
        dtype >= TRAJD_DTYPE_COUNT || extent->rank > TRAJD_ARRAY_MAX_RANK ||
        extent->filter_count > TRAJD_ARRAY_MAX_FILTERS)
        return fail(c, "an array's storage, type, form, rank or filters are out of range");
    extent->storage = (enum trajd_storage)storage;
    extent->dtype = (enum trajd_dtype)dtype;
    extent->form = (enum trajd_row_form)form;
    if (storage != TRAJD_STORAGE_ABSENT && (!dtype || !extent->rank))
        return fail(c, "an array has no type or no rows");
    for (uint32_t i = 0; i < extent->rank; i++)
        extent->shape[i] = take_u64(c);
    take_into(c, extent->fill, sizeof extent->fill);
    array->check_rows = take_u64(c);
    array->check_digest = take_u64(c);
    take_form(c, extent);
    if (!size_of(extent->shape, extent->rank, trajd_dtype_size(extent->dtype),
                 &extent->size_bytes) ||
        extent->shape[0] > row_count_max || array->check_rows > extent->shape[0])
        return fail(c, "an array is too large");
    take_quaternions(c, extent);
    take_storage(c, array);
    if (!c->failed && trajd_array_check(extent, c->file_size,
                                        extent->inline_bytes ? extent->size_bytes : 0, &error))
        refuse(c, array, error.message);
}

static void take_stamps(struct cursor *c, struct trajd_record_clock *clock)
{
    int64_t *stamps = allocate(c, clock->row_count, sizeof *stamps);
    uint32_t *kept = NULL;

    for (uint64_t i = 0; stamps && i < clock->row_count; i++) {
        stamps[i] = (int64_t)take_u64(c);
        if (i && stamps[i] <= stamps[i - 1])
            fail(c, "stamps do not ascend");
    }
    clock->stamps_ns = stamps;
    if (take_flag(c))
        kept = allocate(c, clock->row_count, sizeof *kept);
    for (uint64_t i = 0; kept && i < clock->row_count; i++) {
        kept[i] = take_u32(c);
        if (kept[i] >= clock->source_rows || (i && kept[i] <= kept[i - 1]))
            fail(c, "kept rows do not ascend");
    }
    clock->kept_rows = kept;
}

static void take_clock(struct cursor *c, struct trajd_record_clock *clock)
{
    clock->present = take_flag(c);
    clock->source_rows = take_u64(c);
    clock->dropped_rows = take_u64(c);
    clock->row_count = take_u64(c);
    if (c->failed || clock->row_count > c->remaining / 8 || clock->source_rows > row_count_max ||
        clock->row_count > clock->source_rows ||
        clock->dropped_rows != clock->source_rows - clock->row_count)
        return fail(c, "a clock's rows do not add up");
    take_stamps(c, clock);
    if (!clock->kept_rows && clock->dropped_rows)
        fail(c, "dropped rows without a list of those kept");
    clock->has_start = take_flag(c);
    clock->start_ns = (int64_t)take_u64(c);
}

static void take_evaluation(struct cursor *c, struct trajd_record_episode *episode)
{
    episode->content_digest = take_u64(c);
    episode->clock_count = take_u32(c);
    if (episode->clock_count != c->clock_count)
        return fail(c, "not as many clocks as the layout has");
    episode->clocks = allocate(c, episode->clock_count, sizeof *episode->clocks);
    for (uint32_t i = 0; !c->failed && i < episode->clock_count; i++)
        take_clock(c, &episode->clocks[i]);
}

static void take_metas(struct cursor *c, struct trajd_record_episode *episode)
{
    episode->meta_count = take_count(c, TRAJD_LAYOUT_METAS_MAX, 1);
    episode->metas = allocate(c, episode->meta_count, sizeof *episode->metas);
    for (uint32_t i = 0; !c->failed && i < episode->meta_count; i++)
        episode->metas[i] = take_flag(c) ? take_clean_text(c, TRAJD_RECORD_META_MAX, "\n\t") : NULL;
}

static void take_episode(struct cursor *c, struct trajd_record_episode *episode)
{
    episode->id = take_text(c);
    episode->problem = take_optional_text(c);
    episode->is_misfit = take_flag(c);
    episode->rates = take_texts(c, c->clock_count, &episode->rate_count);
    if (episode->rate_count != c->clock_count)
        return fail(c, "not as many rates as the layout has clocks");
    episode->resampled_rate = take_text(c);
    episode->filter_keys = take_texts(c, KEY_COUNT_MAX, &episode->key_count);
    take_metas(c, episode);
    episode->is_plain = take_flag(c);
    episode->array_count = take_count(c, ARRAY_COUNT_MAX, 39);
    episode->arrays = allocate(c, episode->array_count, sizeof *episode->arrays);
    for (uint32_t i = 0; !c->failed && i < episode->array_count; i++) {
        take_array(c, &episode->arrays[i]);
        if (!c->failed && i && strcmp(episode->arrays[i - 1].path, episode->arrays[i].path) >= 0)
            fail(c, "arrays are not in order");
    }
    episode->evaluated = take_flag(c);
    if (episode->evaluated)
        take_evaluation(c, episode);
}

enum trajd_status trajd_record_decode(const uint8_t *data, size_t length, uint64_t file_size,
                                      uint32_t clock_count, struct trajd_arena *arena,
                                      struct trajd_record *record, struct trajd_error *error)
{
    struct cursor c = {.next = data,
                       .remaining = length,
                       .arena = arena,
                       .file_size = file_size,
                       .clock_count = clock_count};
    uint32_t errno_word;

    *record = (struct trajd_record){0};
    if (take_u32(&c) != TRAJD_RECORD_MAGIC || take_u32(&c) != TRAJD_RECORD_VERSION)
        fail(&c, "not a record of this version");
    errno_word = take_u32(&c);
    if (errno_word > 4095)
        fail(&c, "an error number is out of range");
    record->io_errno = (int)errno_word;
    record->refusal = take_optional_text(&c);
    record->is_misfit = take_flag(&c);
    record->notes = take_texts(&c, ARRAY_COUNT_MAX, &record->note_count);
    record->episode_count = take_count(&c, EPISODE_COUNT_MAX, 30);
    record->episodes = allocate(&c, record->episode_count, sizeof *record->episodes);
    for (uint32_t i = 0; !c.failed && i < record->episode_count; i++)
        take_episode(&c, &record->episodes[i]);
    if (!c.failed && c.remaining)
        fail(&c, "more bytes than the record has");
    if (c.failed) {
        *record = (struct trajd_record){0};
        if (arena->is_starved)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for the record of the file");
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "the record of the file is damaged: %s", c.rule);
    }
    return TRAJD_OK;
}
