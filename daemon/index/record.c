#include "daemon/index/record.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_u8(struct trajd_bytes *bytes, uint8_t value)
{
    trajd_bytes_add(bytes, &value, 1);
}

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

static void add_texts(struct trajd_bytes *bytes, const char *const *texts, uint32_t count)
{
    trajd_bytes_add_u32(bytes, count);
    for (uint32_t i = 0; i < count; i++)
        trajd_bytes_add_text(bytes, texts[i]);
}

static void add_chunks(struct trajd_bytes *bytes, const struct trajd_array *extent)
{
    trajd_bytes_add_u64(bytes, extent->chunk_row);
    for (uint32_t i = 0; i < extent->rank; i++)
        trajd_bytes_add_u64(bytes, extent->chunk_shape[i]);
    for (uint32_t i = 0; i < extent->filter_count; i++) {
        uint16_t filter = htole16(extent->filters[i]);
        trajd_bytes_add(bytes, &filter, sizeof filter);
    }
    trajd_bytes_add_u64(bytes, extent->chunk_count);
    for (uint64_t i = 0; i < extent->chunk_count; i++) {
        trajd_bytes_add_u64(bytes, extent->chunks[i].offset);
        trajd_bytes_add_u32(bytes, extent->chunks[i].stored_size);
        trajd_bytes_add_u32(bytes, extent->chunks[i].filter_mask);
    }
}

static void add_f32(struct trajd_bytes *bytes, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    trajd_bytes_add_u32(bytes, bits);
}

static void add_quaternions(struct trajd_bytes *bytes, const struct trajd_array *array)
{
    add_u8(bytes, (uint8_t)array->quaternion_count);
    for (uint32_t i = 0; i < array->quaternion_count; i++) {
        const struct trajd_quaternion *quaternion = &array->quaternions[i];
        trajd_bytes_add_u32(bytes, quaternion->column);
        add_u8(bytes, quaternion->is_one_hot);
        add_f32(bytes, quaternion->error);
        for (int k = 0; k < 4; k++)
            add_f32(bytes, quaternion->low[k]);
        for (int k = 0; k < 4; k++)
            add_f32(bytes, quaternion->high[k]);
    }
}

static void add_picture(struct trajd_bytes *bytes, const struct trajd_picture *picture)
{
    add_u8(bytes, (uint8_t)picture->encoding);
    trajd_bytes_add_u32(bytes, picture->height);
    trajd_bytes_add_u32(bytes, picture->width);
    add_u8(bytes, picture->channels);
    add_u8(bytes, picture->bits);
    add_u8(bytes, picture->is_progressive);
}

static void add_array(struct trajd_bytes *bytes, const struct trajd_record_array *array)
{
    const struct trajd_array *extent = &array->extent;

    trajd_bytes_add_text(bytes, array->path);
    trajd_bytes_add_text(bytes, array->match);
    trajd_bytes_add_text(bytes, array->refusal);
    add_u8(bytes, (uint8_t)extent->storage);
    add_u8(bytes, (uint8_t)extent->dtype);
    add_u8(bytes, (uint8_t)extent->rank);
    add_u8(bytes, (uint8_t)extent->filter_count);
    add_u8(bytes, extent->has_attributes);
    add_u8(bytes, (uint8_t)extent->form);
    add_u8(bytes, extent->is_enum);
    for (uint32_t i = 0; i < extent->rank; i++)
        trajd_bytes_add_u64(bytes, extent->shape[i]);
    trajd_bytes_add(bytes, extent->fill, sizeof extent->fill);
    trajd_bytes_add_u64(bytes, array->check_rows);
    trajd_bytes_add_u64(bytes, array->check_digest);
    if (trajd_array_is_encoded(extent))
        add_picture(bytes, &extent->picture);
    if (extent->form == TRAJD_ROWS_PACKED) {
        trajd_bytes_add_u64(bytes, extent->payload_offset);
        trajd_bytes_add_u64(bytes, extent->payload_bytes);
        trajd_bytes_add_text(bytes, extent->preparation);
    }
    add_quaternions(bytes, extent);
    if (extent->storage == TRAJD_STORAGE_CONTIGUOUS)
        trajd_bytes_add_u64(bytes, extent->offset);
    else if (extent->storage == TRAJD_STORAGE_INLINE)
        trajd_bytes_add(bytes, extent->inline_bytes, extent->size_bytes);
    else if (extent->storage == TRAJD_STORAGE_CHUNKED)
        add_chunks(bytes, extent);
}

static void add_clock(struct trajd_bytes *bytes, const struct trajd_record_clock *clock)
{
    add_u8(bytes, clock->present);
    trajd_bytes_add_u64(bytes, clock->source_rows);
    trajd_bytes_add_u64(bytes, clock->dropped_rows);
    trajd_bytes_add_u64(bytes, clock->row_count);
    for (uint64_t i = 0; i < clock->row_count; i++)
        trajd_bytes_add_u64(bytes, (uint64_t)clock->stamps_ns[i]);
    add_u8(bytes, clock->kept_rows != NULL);
    for (uint64_t i = 0; clock->kept_rows && i < clock->row_count; i++)
        trajd_bytes_add_u32(bytes, clock->kept_rows[i]);
    add_u8(bytes, clock->has_start);
    trajd_bytes_add_u64(bytes, (uint64_t)clock->start_ns);
}

static void add_episode(struct trajd_bytes *bytes, const struct trajd_record_episode *episode)
{
    trajd_bytes_add_text(bytes, episode->id);
    trajd_bytes_add_text(bytes, episode->problem);
    add_u8(bytes, episode->is_misfit);
    add_texts(bytes, episode->rates, episode->rate_count);
    trajd_bytes_add_text(bytes, episode->resampled_rate);
    add_texts(bytes, episode->filter_keys, episode->key_count);
    trajd_bytes_add_u32(bytes, episode->meta_count);
    for (uint32_t i = 0; i < episode->meta_count; i++) {
        add_u8(bytes, episode->metas[i] != NULL);
        if (episode->metas[i])
            trajd_bytes_add_text(bytes, episode->metas[i]);
    }
    add_u8(bytes, episode->is_plain);
    trajd_bytes_add_u32(bytes, episode->array_count);
    for (uint32_t i = 0; i < episode->array_count; i++)
        add_array(bytes, &episode->arrays[i]);
    add_u8(bytes, episode->evaluated);
    if (!episode->evaluated)
        return;
    trajd_bytes_add_u64(bytes, episode->content_digest);
    trajd_bytes_add_u32(bytes, episode->clock_count);
    for (uint32_t i = 0; i < episode->clock_count; i++)
        add_clock(bytes, &episode->clocks[i]);
}

bool trajd_record_encode(const struct trajd_record *record, struct trajd_bytes *bytes)
{
    trajd_bytes_add_u32(bytes, TRAJD_RECORD_MAGIC);
    trajd_bytes_add_u32(bytes, TRAJD_RECORD_VERSION);
    trajd_bytes_add_u32(bytes, (uint32_t)record->io_errno);
    trajd_bytes_add_text(bytes, record->refusal);
    add_u8(bytes, record->is_misfit);
    add_texts(bytes, record->notes, record->note_count);
    trajd_bytes_add_u32(bytes, record->episode_count);
    for (uint32_t i = 0; i < record->episode_count; i++)
        add_episode(bytes, &record->episodes[i]);
    return !bytes->failed;
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
