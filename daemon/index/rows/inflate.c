/* Applies the inverse of each HDF5 filter to a chunk, from the last filter to the first. */
#include "daemon/index/rows/inflate.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/index/rows/array.h"

#define STAGE_COUNT 2
#define FLETCHER_BYTES 4
/* the most 16-bit words whose sums cannot overflow 32 bits before they are folded */
#define FLETCHER_BLOCK_WORDS 360

struct stage {
    uint8_t *bytes;
    size_t capacity;
};

struct trajd_inflater {
    struct libdeflate_decompressor *deflate;
    struct stage stages[STAGE_COUNT]; /* a filter reads one and writes the other */
};

enum trajd_status trajd_inflater_create(struct trajd_inflater **inflater, struct trajd_error *error)
{
    struct trajd_inflater *made = calloc(1, sizeof *made);

    *inflater = NULL;
    if (made)
        made->deflate = libdeflate_alloc_decompressor();
    if (!made || !made->deflate) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a decompressor");
    }
    *inflater = made;
    return TRAJD_OK;
}

void trajd_inflater_destroy(struct trajd_inflater **inflater)
{
    struct trajd_inflater *made = *inflater;

    *inflater = NULL;
    if (!made)
        return;
    for (int i = 0; i < STAGE_COUNT; i++)
        free(made->stages[i].bytes);
    libdeflate_free_decompressor(made->deflate);
    free(made);
}

static bool is_compressor(uint16_t filter)
{
    return filter == TRAJD_FILTER_DEFLATE || filter == TRAJD_FILTER_LZF;
}

bool trajd_inflate_supports(const uint16_t *filters, uint32_t filter_count)
{
    int compressors = 0;

    if (filter_count > TRAJD_ARRAY_MAX_FILTERS)
        return false;
    for (uint32_t i = 0; i < filter_count; i++) {
        compressors += is_compressor(filters[i]);
        if (!is_compressor(filters[i]) && filters[i] != TRAJD_FILTER_SHUFFLE &&
            filters[i] != TRAJD_FILTER_FLETCHER32)
            return false;
    }
    return compressors <= 1;
}

bool trajd_lzf_decode(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes)
{
    size_t from = 0, to = 0;

    while (from < in_bytes) {
        unsigned control = in[from++];
        if (control < 32) { /* a run of control + 1 literal bytes */
            size_t run = control + 1;
            if (run > in_bytes - from || run > out_bytes - to)
                return false;
            memcpy(out + to, in + from, run);
            from += run;
            to += run;
            continue;
        }
        size_t length = control >> 5;
        if (length == 7) {
            if (from == in_bytes)
                return false;
            length += in[from++];
        }
        length += 2;
        if (from == in_bytes)
            return false;
        size_t distance = ((control & 31u) << 8 | in[from++]) + 1u;
        if (distance > to || length > out_bytes - to)
            return false;
        if (distance >= length) {
            memcpy(out + to, out + to - distance, length);
        } else { /* source and target overlap: the pattern repeats */
            for (size_t i = 0; i < length; i++)
                out[to + i] = out[to + i - distance];
        }
        to += length;
    }
    return to == out_bytes;
}

uint32_t trajd_fletcher32(const uint8_t *data, size_t bytes)
{
    uint32_t low = 0, high = 0;

    for (size_t words = bytes / 2; words;) {
        size_t block = words < FLETCHER_BLOCK_WORDS ? words : FLETCHER_BLOCK_WORDS;
        words -= block;
        for (; block; block--, data += 2) {
            low += (uint32_t)data[0] << 8 | data[1];
            high += low;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    if (bytes % 2) {
        low += (uint32_t)data[0] << 8;
        high += low;
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    return high << 16 | low;
}

/* Puts byte b of element i, which stands in plane b, to its element. The callers pass a constant
 * size, so that the compiler makes vectors of it (CMakeLists.txt has the options). */
static inline __attribute__((always_inline)) void
join_planes(const uint8_t *restrict in, uint8_t *restrict out, size_t count, uint32_t element_bytes)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t b = 0; b < element_bytes; b++)
            out[i * element_bytes + b] = in[b * count + i];
}

void trajd_unshuffle(const uint8_t *in, uint8_t *out, size_t bytes, uint32_t element_bytes)
{
    const size_t count = element_bytes ? bytes / element_bytes : 0, joined = count * element_bytes;

    if (element_bytes == 2)
        join_planes(in, out, count, 2);
    else if (element_bytes == 4)
        join_planes(in, out, count, 4);
    else if (element_bytes == 8)
        join_planes(in, out, count, 8);
    else
        join_planes(in, out, count, element_bytes);
    memcpy(out + joined, in + joined, bytes - joined);
}

static uint8_t *stage_room(struct stage *stage, size_t bytes)
{
    if (stage->capacity < bytes) {
        free(stage->bytes);
        stage->bytes = malloc(bytes);
        stage->capacity = stage->bytes ? bytes : 0;
    }
    return stage->bytes;
}

/* Returns the bytes of a chunk before filter `index` was applied, where no compressor stands before
 * it. */
static size_t bytes_before(const struct trajd_filter_pipeline *pipeline, uint32_t index,
                           size_t chunk_bytes)
{
    for (uint32_t i = 0; i < index; i++)
        if (pipeline->filters[i] == TRAJD_FILTER_FLETCHER32 && !(pipeline->filter_mask >> i & 1))
            chunk_bytes += FLETCHER_BYTES;
    return chunk_bytes;
}

struct span {
    const uint8_t *bytes;
    size_t length;
};

static enum trajd_status check_fletcher(struct span *data, struct trajd_error *error)
{
    uint32_t stored, computed;
    const uint8_t *sum;

    if (data->length < FLETCHER_BYTES)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%zu bytes have no room for a checksum",
                               data->length);
    data->length -= FLETCHER_BYTES;
    sum = data->bytes + data->length;
    stored =
        (uint32_t)sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;
    computed = trajd_fletcher32(data->bytes, data->length);
    if (stored != computed)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "fletcher32 checksum is %08x, stored %08x",
                               computed, stored);
    return TRAJD_OK;
}

static enum trajd_status decompress(struct trajd_inflater *inflater, uint16_t filter,
                                    struct span in, uint8_t *out, size_t out_bytes,
                                    struct trajd_error *error)
{
    bool good;

    if (filter == TRAJD_FILTER_DEFLATE)
        good = libdeflate_zlib_decompress(inflater->deflate, in.bytes, in.length, out, out_bytes,
                                          NULL) == LIBDEFLATE_SUCCESS;
    else
        good = trajd_lzf_decode(in.bytes, in.length, out, out_bytes);
    if (!good)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%zu bytes do not inflate to %zu by %s",
                               in.length, out_bytes,
                               filter == TRAJD_FILTER_DEFLATE ? "deflate" : "lzf");
    return TRAJD_OK;
}

/* Undoes filter `index`. *data moves to the other buffer, unless the filter changes no bytes. */
static enum trajd_status undo(struct trajd_inflater *inflater,
                              const struct trajd_filter_pipeline *pipeline, uint32_t index,
                              size_t chunk_bytes, struct span *data, struct trajd_error *error)
{
    uint16_t filter = pipeline->filters[index];
    size_t out_bytes = bytes_before(pipeline, index, chunk_bytes);
    struct stage *stage = &inflater->stages[data->bytes == inflater->stages[0].bytes];
    enum trajd_status status = TRAJD_OK;
    uint8_t *out;

    if (filter == TRAJD_FILTER_FLETCHER32)
        return check_fletcher(data, error);
    if (filter == TRAJD_FILTER_SHUFFLE && pipeline->element_bytes <= 1)
        return TRAJD_OK;
    out = stage_room(stage, out_bytes ? out_bytes : 1);
    if (!out)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a chunk of %zu bytes",
                               out_bytes);
    if (filter == TRAJD_FILTER_SHUFFLE) {
        if (data->length != out_bytes)
            return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%zu bytes to unshuffle, expected %zu",
                                   data->length, out_bytes);
        trajd_unshuffle(data->bytes, out, out_bytes, pipeline->element_bytes);
    } else {
        status = decompress(inflater, filter, *data, out, out_bytes, error);
    }
    *data = (struct span){out, out_bytes};
    return status;
}

enum trajd_status trajd_inflate_chunk(struct trajd_inflater *inflater,
                                      const struct trajd_filter_pipeline *pipeline,
                                      const uint8_t *stored, size_t stored_bytes,
                                      size_t chunk_bytes, const uint8_t **chunk,
                                      struct trajd_error *error)
{
    struct span data = {stored, stored_bytes};

    for (uint32_t i = pipeline->filter_count; i-- > 0;) {
        enum trajd_status status;
        if (pipeline->filter_mask >> i & 1)
            continue;
        status = undo(inflater, pipeline, i, chunk_bytes, &data, error);
        if (status)
            return status;
    }
    if (data.length != chunk_bytes)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%zu bytes, expected %zu", data.length,
                               chunk_bytes);
    *chunk = data.bytes;
    return TRAJD_OK;
}
