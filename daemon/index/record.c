/* The tables of records, and the rules that concern several members. */
#include "daemon/index/record.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/layout/layout.h"
#include "proto/array_len.h"

enum {
    EPISODE_COUNT_MAX = 1 << 20,
    ARRAY_COUNT_MAX = 4096,
    KEY_COUNT_MAX = 4096,
    INLINE_BYTES_MAX = 65536,
    CHUNK_COUNT_MAX = TRAJD_RECORD_SIZE_MAX / sizeof(struct trajd_chunk)
};
/* kept_rows are uint32; the child refuses larger arrays itself */
static const uint64_t row_count_max = 1u << 31;

/* What the rules need beside the record. */
struct file {
    uint64_t size_bytes;
    uint32_t clock_count;
    struct trajd_arena *arena;
};

void trajd_bytes_add_u32(struct trajd_bytes *bytes, uint32_t value)
{
    value = htole32(value);
    trajd_bytes_add(bytes, &value, sizeof value);
}

void trajd_bytes_add_u64(struct trajd_bytes *bytes, uint64_t value)
{
    value = htole64(value);
    trajd_bytes_add(bytes, &value, sizeof value);
}

void trajd_bytes_add_text(struct trajd_bytes *bytes, const char *text)
{
    size_t length = text ? strlen(text) : 0;

    trajd_bytes_add_u32(bytes, (uint32_t)length);
    trajd_bytes_add(bytes, text, length);
}

/* ---- arrays ---- */

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_image_header, member)
static const struct trajd_codec_field image_fields[] = {
    {"encoding", TRAJD_CODEC_UINT, ONE(encoding)},
    {"height", TRAJD_CODEC_UINT, ONE(height)},
    {"width", TRAJD_CODEC_UINT, ONE(width)},
    {"channels", TRAJD_CODEC_UINT, ONE(channels)},
    {"bits", TRAJD_CODEC_UINT, ONE(bits)},
    {"is_progressive", TRAJD_CODEC_BOOL, ONE(is_progressive)},
};
#undef ONE

/* An image is possible, or all zeros for none. */
static const char *check_image(void *value, void *context)
{
    const struct trajd_image_header *header = value;
    const uint8_t bits = header->bits;
    const bool is_none = !header->encoding && !header->height && !header->width &&
                         !header->channels && !bits && !header->is_progressive;

    (void)context;
    if (is_none ||
        (header->encoding && header->encoding <= TRAJD_ENCODING_VIDEO && header->height &&
         header->height <= TRAJD_FRAME_SIDE_MAX && header->width &&
         header->width <= TRAJD_FRAME_SIDE_MAX && (bits == 8 || bits == 16 || bits == 32) &&
         (header->channels == 1 || header->channels == 3)))
        return NULL;
    return "an image is out of range";
}

static const struct trajd_codec_table image_table =
    TRAJD_CODEC_TABLE(struct trajd_image_header, image_fields, TRAJD_CODEC_ROW, check_image);

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_video, member)
static const struct trajd_codec_field video_fields[] = {
    {"codec", TRAJD_CODEC_UINT, ONE(format.codec), .low = 1, .high = TRAJD_VIDEO_HEVC},
    {"matrix", TRAJD_CODEC_UINT, ONE(format.matrix), .high = TRAJD_MATRIX_BT2020},
    {"range", TRAJD_CODEC_UINT, ONE(format.range), .high = TRAJD_RANGE_FULL},
    {"pixel_format", TRAJD_CODEC_TEXT, ONE(pixel_format)},
    {"rows_offset", TRAJD_CODEC_UINT, ONE(rows_offset)},
    {"row_count", TRAJD_CODEC_UINT, ONE(row_count)},
    {"packets_offset", TRAJD_CODEC_UINT, ONE(packets_offset)},
    {"packet_count", TRAJD_CODEC_UINT, ONE(packet_count)},
    {"units_offset", TRAJD_CODEC_UINT, ONE(units_offset)},
    {"unit_count", TRAJD_CODEC_UINT, ONE(unit_count)},
    {"extradata_offset", TRAJD_CODEC_UINT, ONE(extradata_offset)},
    {"extradata_bytes", TRAJD_CODEC_UINT, ONE(extradata_bytes)},
    {"ends_offset", TRAJD_CODEC_UINT, ONE(ends_offset)},
    {"extradata_count", TRAJD_CODEC_UINT, ONE(extradata_count)},
    {"largest_unit_packets", TRAJD_CODEC_UINT, ONE(largest_unit_packets)},
    {"largest_unit_bytes", TRAJD_CODEC_UINT, ONE(largest_unit_bytes)},
    {"media", TRAJD_CODEC_TEXT, ONE(media), .flags = TRAJD_CODEC_OPTIONAL},
    {"media_size", TRAJD_CODEC_UINT, ONE(media_size)},
    {"stat_size", TRAJD_CODEC_UINT, ONE(media_stat.size_bytes)},
    {"stat_inode", TRAJD_CODEC_UINT, ONE(media_stat.inode)},
    {"stat_links", TRAJD_CODEC_UINT, ONE(media_stat.link_count)},
    {"stat_mtime", TRAJD_CODEC_INT, ONE(media_stat.mtime_ns)},
    {"stat_ctime", TRAJD_CODEC_INT, ONE(media_stat.ctime_ns)},
};
#undef ONE
static const struct trajd_codec_table video_table =
    TRAJD_CODEC_TABLE(struct trajd_video, video_fields, TRAJD_CODEC_ROW, NULL);

#define QUATERNION struct trajd_quaternion
static const struct trajd_codec_field quaternion_fields[] = {
    {"column", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(QUATERNION, column),
     .high = TRAJD_QUATERNION_ROW_MAX - 1},
    {"is_one_hot", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(QUATERNION, is_one_hot)},
    {"error", TRAJD_CODEC_FLOAT, TRAJD_CODEC_ONE(QUATERNION, error), .low = -1, .high = 1},
    {"low", TRAJD_CODEC_FLOAT, TRAJD_CODEC_FIXED(QUATERNION, low), .low = -2, .high = 2},
    {"high", TRAJD_CODEC_FLOAT, TRAJD_CODEC_FIXED(QUATERNION, high), .low = -2, .high = 2},
};
static const struct trajd_codec_table quaternion_table =
    TRAJD_CODEC_TABLE(QUATERNION, quaternion_fields, TRAJD_CODEC_ROW, NULL);

#define ONE(member) TRAJD_CODEC_ONE(struct trajd_record_array, member)
#define ARRAY(member, count) TRAJD_CODEC_ARRAY(struct trajd_record_array, member, count)
#define LIST(member, count, limit) TRAJD_CODEC_LIST(struct trajd_record_array, member, count, limit)
#define OPTIONAL TRAJD_CODEC_OPTIONAL
#define PACKED TRAJD_CODEC_PACKED
static const struct trajd_codec_field array_fields[] = {
    {"path", TRAJD_CODEC_TEXT, ONE(path)},
    {"match", TRAJD_CODEC_TEXT, ONE(match), .flags = OPTIONAL},
    {"refusal", TRAJD_CODEC_TEXT, ONE(refusal), .flags = OPTIONAL},
    {"storage", TRAJD_CODEC_UINT, ONE(extent.storage), .high = TRAJD_STORAGE_INLINE},
    {"dtype", TRAJD_CODEC_UINT, ONE(extent.dtype), .high = TRAJD_DTYPE_COUNT - 1},
    {"form", TRAJD_CODEC_UINT, ONE(extent.form), .high = TRAJD_ROWS_VIDEO},
    {"is_enum", TRAJD_CODEC_BOOL, ONE(extent.is_enum)},
    {"has_attributes", TRAJD_CODEC_BOOL, ONE(extent.has_attributes)},
    {"shape", TRAJD_CODEC_UINT, ARRAY(extent.shape, extent.rank)},
    {"fill", TRAJD_CODEC_UINT, TRAJD_CODEC_FIXED(struct trajd_record_array, extent.fill),
     .flags = PACKED},
    {"check_rows", TRAJD_CODEC_UINT, ONE(check_rows)},
    {"check_digest", TRAJD_CODEC_UINT, ONE(check_digest)},
    {"picture", TRAJD_CODEC_STRUCT, ONE(extent.header), .table = &image_table, .flags = OPTIONAL},
    {"payload_offset", TRAJD_CODEC_UINT, ONE(extent.payload_offset)},
    {"payload_bytes", TRAJD_CODEC_UINT, ONE(extent.payload_bytes)},
    {"preparation", TRAJD_CODEC_TEXT, ONE(extent.preparation), .flags = OPTIONAL,
     .high = TRAJD_PREPARATION_TEXT_MAX},
    {"video", TRAJD_CODEC_STRUCT, TRAJD_CODEC_POINTER(struct trajd_record_array, extent.video),
     .flags = OPTIONAL, .table = &video_table},
    {"quaternions", TRAJD_CODEC_STRUCT,
     LIST(extent.quaternions, extent.quaternion_count, TRAJD_QUATERNIONS_MAX), .flags = OPTIONAL,
     .table = &quaternion_table},
    {"offset", TRAJD_CODEC_UINT, ONE(extent.offset)},
    {"inline", TRAJD_CODEC_UINT, LIST(extent.inline_bytes, extent.size_bytes, INLINE_BYTES_MAX),
     .flags = OPTIONAL | PACKED},
    {"chunk_row", TRAJD_CODEC_UINT, ONE(extent.chunk_row)},
    {"chunk_shape", TRAJD_CODEC_UINT, ARRAY(extent.chunk_shape, extent.rank),
     .flags = TRAJD_CODEC_AS_LONG},
    {"filters", TRAJD_CODEC_UINT, ARRAY(extent.filters, extent.filter_count)},
    {"chunks", TRAJD_CODEC_UINT, LIST(extent.chunks, extent.chunk_count, CHUNK_COUNT_MAX),
     .flags = OPTIONAL | PACKED},
};
#undef ONE
#undef ARRAY
#undef LIST

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

static const char *check_chunks(const struct trajd_array *extent)
{
    uint64_t expected = 1, chunk_bytes;

    for (uint32_t i = 0; i < extent->rank; i++) {
        uint64_t grid, length = extent->shape[i];
        if (!extent->chunk_shape[i] || extent->chunk_shape[i] > UINT32_MAX)
            return "a chunk has no or too many rows";
        if (!i && extent->chunk_row >= extent->chunk_shape[0])
            return "an array begins after its first chunk";
        length += i ? 0 : extent->chunk_row;
        grid = length / extent->chunk_shape[i] + (length % extent->chunk_shape[i] != 0);
        if (__builtin_mul_overflow(expected, grid, &expected))
            return "too many chunks";
    }
    if (!size_of(extent->chunk_shape, extent->rank, trajd_dtype_size(extent->dtype),
                 &chunk_bytes) ||
        chunk_bytes > UINT32_MAX)
        return "a chunk is too large";
    for (uint32_t i = 0; i < extent->filter_count; i++) {
        const uint16_t filter = extent->filters[i];
        if (filter != TRAJD_FILTER_DEFLATE && filter != TRAJD_FILTER_SHUFFLE &&
            filter != TRAJD_FILTER_FLETCHER32 && filter != TRAJD_FILTER_LZF)
            return "an unknown filter";
    }
    return extent->chunk_count == expected && extent->chunks
               ? NULL
               : "the number of chunks does not fit the shape";
}

static const char *check_storage(const struct trajd_record_array *array, uint64_t inline_size)
{
    const struct trajd_array *extent = &array->extent;

    switch (extent->storage) {
    case TRAJD_STORAGE_CONTIGUOUS:
        return extent->filter_count ? "contiguous data have no filters" : NULL;
    case TRAJD_STORAGE_CHUNKED:
        return check_chunks(extent);
    case TRAJD_STORAGE_INLINE:
        return extent->inline_bytes && inline_size == extent->size_bytes
                   ? NULL
                   : "compact data do not fit";
    case TRAJD_STORAGE_EMPTY:
        return NULL;
    case TRAJD_STORAGE_ABSENT:
        return array->refusal ? NULL : "an array without storage has no reason";
    }
    return NULL;
}

/* Clears the members that the storage and the form do not use. */
static void clear_unused(struct trajd_array *extent)
{
    if (extent->storage != TRAJD_STORAGE_CONTIGUOUS)
        extent->offset = 0;
    if (extent->storage != TRAJD_STORAGE_INLINE)
        extent->inline_bytes = NULL;
    if (extent->storage != TRAJD_STORAGE_CHUNKED) {
        extent->chunks = NULL;
        extent->chunk_count = extent->chunk_row = 0;
        memset(extent->chunk_shape, 0, sizeof extent->chunk_shape);
        memset(extent->filters, 0, sizeof extent->filters);
    }
    if (!trajd_array_is_encoded(extent))
        extent->header = (struct trajd_image_header){0};
    if (extent->form != TRAJD_ROWS_PACKED)
        extent->preparation = NULL;
    if (extent->form != TRAJD_ROWS_VIDEO)
        extent->video = NULL;
    if (extent->form != TRAJD_ROWS_PACKED && extent->form != TRAJD_ROWS_VIDEO)
        extent->payload_offset = extent->payload_bytes = 0;
}

static const char *check_quaternions(const struct trajd_array *extent)
{
    for (uint32_t i = 0; i < extent->quaternion_count; i++) {
        const uint32_t column = extent->quaternions[i].column;
        if (column + 4 > trajd_array_row_elements(extent) ||
            (i && column <= extent->quaternions[i - 1].column))
            return "quaternions are not in order";
    }
    return NULL;
}

static const char *check_array(void *value, void *context)
{
    struct trajd_record_array *array = value;
    struct trajd_array *extent = &array->extent;
    const uint64_t inline_size = extent->inline_bytes ? extent->size_bytes : 0;
    const struct file *file = context;
    struct trajd_error error;
    const char *rule;

    clear_unused(extent);
    if (!*array->path)
        return "the path is out of range";
    if (extent->storage != TRAJD_STORAGE_ABSENT && (!extent->dtype || !extent->rank))
        return "an array has no type or no rows";
    if ((extent->form == TRAJD_ROWS_VIDEO) != (extent->header.encoding == TRAJD_ENCODING_VIDEO) ||
        (extent->form == TRAJD_ROWS_VIDEO &&
         (extent->header.bits != 8 || extent->header.channels != 3)))
        return "its image does not fit video";
    if (extent->preparation && extent->header.encoding != TRAJD_ENCODING_RAW &&
        (extent->header.encoding != TRAJD_ENCODING_JPEG || extent->header.bits != 8))
        return "prepared frames are neither raw pixels nor JPEGs of 8 bits";
    if (!size_of(extent->shape, extent->rank, trajd_dtype_size(extent->dtype),
                 &extent->size_bytes) ||
        extent->shape[0] > row_count_max || array->check_rows > extent->shape[0])
        return "an array is too large";
    rule = check_quaternions(extent);
    if (!rule)
        rule = check_storage(array, inline_size);
    if (rule || array->refusal || !trajd_array_check(extent, file->size_bytes, inline_size, &error))
        return rule;
    array->refusal = trajd_arena_copy(file->arena, error.message, strlen(error.message));
    return array->refusal ? NULL : "out of memory";
}

static const struct trajd_codec_table array_table =
    TRAJD_CODEC_TABLE(struct trajd_record_array, array_fields, TRAJD_CODEC_ROW, check_array);

/* ---- clocks ---- */

#define CLOCK struct trajd_record_clock
static const struct trajd_codec_field clock_fields[] = {
    {"present", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(CLOCK, present)},
    {"source_rows", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(CLOCK, source_rows)},
    {"dropped_rows", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(CLOCK, dropped_rows)},
    {"stamps", TRAJD_CODEC_INT, TRAJD_CODEC_LIST(CLOCK, stamps_ns, row_count, 1u << 31),
     .flags = PACKED},
    {"kept_rows", TRAJD_CODEC_UINT, TRAJD_CODEC_LIST(CLOCK, kept_rows, row_count, 1u << 31),
     .flags = PACKED | OPTIONAL | TRAJD_CODEC_AS_LONG},
    {"has_start", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(CLOCK, has_start)},
    {"start_ns", TRAJD_CODEC_INT, TRAJD_CODEC_ONE(CLOCK, start_ns)},
};

static const char *check_clock(void *value, void *context)
{
    const struct trajd_record_clock *clock = value;
    const uint32_t *kept = clock->kept_rows;

    (void)context;
    if (clock->source_rows > row_count_max || clock->row_count > clock->source_rows ||
        clock->dropped_rows != clock->source_rows - clock->row_count)
        return "a clock's rows do not add up";
    if (!kept && clock->dropped_rows)
        return "dropped rows without a list of those kept";
    for (uint64_t i = 0; i < clock->row_count; i++) {
        if (i && clock->stamps_ns[i] <= clock->stamps_ns[i - 1])
            return "stamps do not ascend";
        if (kept && (kept[i] >= clock->source_rows || (i && kept[i] <= kept[i - 1])))
            return "kept rows do not ascend";
    }
    return NULL;
}

static const struct trajd_codec_table clock_table =
    TRAJD_CODEC_TABLE(CLOCK, clock_fields, TRAJD_CODEC_ROW, check_clock);

/* ---- episodes ---- */

#define EPISODE struct trajd_record_episode
#define EVALUATED .flags = OPTIONAL, TRAJD_CODEC_HAS(EPISODE, evaluated)
static const struct trajd_codec_field episode_fields[] = {
    {"id", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(EPISODE, id)},
    {"problem", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(EPISODE, problem), .flags = OPTIONAL},
    {"is_misfit", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(EPISODE, is_misfit)},
    {"rates", TRAJD_CODEC_TEXT,
     TRAJD_CODEC_LIST(EPISODE, rates, rate_count, TRAJD_LAYOUT_CLOCKS_MAX)},
    {"resampled_rate", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(EPISODE, resampled_rate)},
    {"filter_keys", TRAJD_CODEC_TEXT,
     TRAJD_CODEC_LIST(EPISODE, filter_keys, key_count, KEY_COUNT_MAX)},
    {"metas", TRAJD_CODEC_TEXT,
     TRAJD_CODEC_LIST(EPISODE, metas, meta_count, TRAJD_LAYOUT_METAS_MAX),
     .flags = TRAJD_CODEC_SPARSE | TRAJD_CODEC_LINES, .high = TRAJD_RECORD_META_MAX},
    {"is_plain", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(EPISODE, is_plain)},
    {"first_row", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(EPISODE, first_row)},
    {"all_rows", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(EPISODE, all_rows)},
    {"arrays", TRAJD_CODEC_STRUCT, TRAJD_CODEC_LIST(EPISODE, arrays, array_count, ARRAY_COUNT_MAX),
     .table = &array_table},
    {"content_digest", TRAJD_CODEC_UINT, TRAJD_CODEC_ONE(EPISODE, content_digest), EVALUATED},
    {"clocks", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(EPISODE, clocks, clock_count, TRAJD_LAYOUT_CLOCKS_MAX), EVALUATED,
     .table = &clock_table},
};

static const char *check_episode(void *value, void *context)
{
    const struct trajd_record_episode *episode = value;
    const struct file *file = context;

    if (episode->rate_count != file->clock_count)
        return "not as many rates as the layout has clocks";
    if (episode->evaluated && episode->clock_count != file->clock_count)
        return "not as many clocks as the layout has";
    if (episode->first_row > episode->all_rows)
        return "an episode begins after the last row";
    for (uint32_t i = 0; i < episode->array_count && episode->all_rows; i++)
        if (episode->arrays[i].extent.shape[0] > episode->all_rows - episode->first_row)
            return "an episode ends after the last row";
    for (uint32_t i = 1; i < episode->array_count; i++)
        if (strcmp(episode->arrays[i - 1].path, episode->arrays[i].path) >= 0)
            return "arrays are not in order";
    return NULL;
}

static const struct trajd_codec_table episode_table =
    TRAJD_CODEC_TABLE(EPISODE, episode_fields, TRAJD_CODEC_ROW, check_episode);

/* ---- files ---- */

#define RECORD struct trajd_record
static const struct trajd_codec_field record_fields[] = {
    {"io_errno", TRAJD_CODEC_INT, TRAJD_CODEC_ONE(RECORD, io_errno), .low = 0, .high = 4095},
    {"refusal", TRAJD_CODEC_TEXT, TRAJD_CODEC_ONE(RECORD, refusal), .flags = OPTIONAL},
    {"is_misfit", TRAJD_CODEC_BOOL, TRAJD_CODEC_ONE(RECORD, is_misfit)},
    {"notes", TRAJD_CODEC_TEXT, TRAJD_CODEC_LIST(RECORD, notes, note_count, ARRAY_COUNT_MAX)},
    {"episodes", TRAJD_CODEC_STRUCT,
     TRAJD_CODEC_LIST(RECORD, episodes, episode_count, EPISODE_COUNT_MAX), .table = &episode_table},
};
static const struct trajd_codec_table record_table =
    TRAJD_CODEC_TABLE(RECORD, record_fields, TRAJD_CODEC_ROW, NULL);

bool trajd_record_encode(const struct trajd_record *record, struct trajd_bytes *bytes)
{
    enum trajd_status status;
    struct trajd_error error;
    size_t begin;

    trajd_bytes_add_u32(bytes, TRAJD_RECORD_MAGIC);
    trajd_bytes_add_u32(bytes, TRAJD_RECORD_VERSION);
    begin = bytes->length;
    status = trajd_codec_encode(&record_table, record, bytes, &error);
    if (status == TRAJD_ERR_ARGUMENT) {
        bytes->length = begin;
        status = trajd_codec_encode(&record_table, &(struct trajd_record){.refusal = error.message},
                                    bytes, NULL);
    }
    return !status;
}

enum trajd_status trajd_record_decode(const uint8_t *data, size_t length, uint64_t file_size,
                                      uint32_t clock_count, struct trajd_arena *arena,
                                      struct trajd_record *record, struct trajd_error *error)
{
    const uint32_t head[] = {htole32(TRAJD_RECORD_MAGIC), htole32(TRAJD_RECORD_VERSION)};
    struct file file = {file_size, clock_count, arena};
    enum trajd_status status;

    *record = (struct trajd_record){0};
    if (length < sizeof head || memcmp(data, head, sizeof head) != 0)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0,
                               "the record of the file is not of this version");
    status = trajd_arena_decode(arena, &record_table, data + sizeof head, length - sizeof head,
                                record, &file, error);
    if (status) {
        *record = (struct trajd_record){0};
        trajd_error_prefix(error, status == TRAJD_ERR_MEMORY ? "the record of the file"
                                                             : "the record of the file is damaged");
    }
    return status;
}

struct trajd_video *trajd_record_copy_video(struct trajd_arena *arena,
                                            const struct trajd_video *from)
{
    struct trajd_video *to = trajd_arena_alloc(arena, sizeof *to);

    if (!to)
        return NULL;
    *to = *from;
    to->pixel_format = trajd_arena_copy(arena, from->pixel_format, strlen(from->pixel_format));
    to->media = from->media ? trajd_arena_copy(arena, from->media, strlen(from->media)) : NULL;
    return to->pixel_format && (to->media || !from->media) ? to : NULL;
}

bool trajd_record_copy_array(struct trajd_arena *arena, const struct trajd_array *from,
                             struct trajd_array *to)
{
    const uint64_t chunk_bytes = from->chunk_count * sizeof *from->chunks;

    *to = *from;
    if (from->quaternion_count) {
        const size_t size = from->quaternion_count * sizeof *from->quaternions;
        struct trajd_quaternion *quaternions = trajd_arena_alloc(arena, size);
        if (!quaternions)
            return false;
        to->quaternions = memcpy(quaternions, from->quaternions, size);
    }
    if (from->preparation) {
        to->preparation = trajd_arena_copy(arena, from->preparation, strlen(from->preparation));
        if (!to->preparation)
            return false;
    }
    if (from->video) {
        to->video = trajd_record_copy_video(arena, from->video);
        if (!to->video)
            return false;
    }
    if (from->storage == TRAJD_STORAGE_CHUNKED) {
        struct trajd_chunk *chunks = trajd_arena_alloc(arena, chunk_bytes ? chunk_bytes : 1);
        if (chunks)
            memcpy(chunks, from->chunks, chunk_bytes);
        to->chunks = chunks;
        return chunks != NULL;
    }
    if (from->storage == TRAJD_STORAGE_INLINE) {
        uint8_t *bytes = trajd_arena_alloc(arena, from->size_bytes ? from->size_bytes : 1);
        if (bytes)
            memcpy(bytes, from->inline_bytes, from->size_bytes);
        to->inline_bytes = bytes;
        return bytes != NULL;
    }
    return true;
}

char *trajd_arena_format(struct trajd_arena *arena, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return NULL;
    return trajd_arena_copy(arena, text, strlen(text));
}
