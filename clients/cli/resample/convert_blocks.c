/* Puts rows into blocks: as they are, or in chunks that are compressed as libhdf5 would do it,
 * shuffled and deflated. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/resample/convert_rows.h"
#include "daemon/base/memory.h"

void *convert_worker_buffer(struct convert_worker *worker, enum convert_buffer_name name,
                            size_t size)
{
    struct convert_buffer *buffer = &worker->buffers[name];

    if (size > buffer->size) {
        free(buffer->bytes);
        buffer->bytes = trajd_memory_or_exit(aligned_alloc(CONVERT_ALIGNMENT, convert_align(size)));
        buffer->size = size;
    }
    return buffer->bytes;
}

uint8_t *convert_worker_room(struct convert_worker *worker, size_t size, uint32_t count)
{
    struct convert_block *block = worker->block;

    if (!block || block->size - block->used < size || CONVERT_BLOCK_ROWS - block->count < count)
        worker->block = block = worker->sink.exchange(worker->sink.context, block);
    return block ? block->bytes + block->used : NULL;
}

void convert_worker_add(struct convert_worker *worker, const struct trajd_writer_rows *rows,
                        const uint8_t *bytes, size_t size)
{
    struct convert_block *block = worker->block;
    const size_t at = (size_t)(bytes - block->bytes);
    struct trajd_writer_rows *added = &block->rows[block->count++];

    *added = *rows;
    added->at = block->at + at;
    added->size = size;
    block->used = convert_align(at + size);
    if (block->used > block->size)
        block->used = block->size;
}

/* ---- compressed chunks ---- */

/* HDF5's shuffle filter: the first bytes of all elements, then the second bytes of all elements,
 * and so on. */
static void shuffle(const uint8_t *in, uint8_t *out, size_t size, uint32_t element_bytes)
{
    const size_t count = size / element_bytes;

    for (uint32_t b = 0; b < element_bytes; b++)
        for (size_t i = 0; i < count; i++)
            out[b * count + i] = in[i * element_bytes + b];
}

/* One tile of a block of rows, which becomes one chunk. The part of the chunk outside the dataset
 * is zero. */
struct tile {
    uint64_t begin[TRAJD_ARRAY_MAX_RANK], count[TRAJD_ARRAY_MAX_RANK];
    bool is_full; /* the chunk lies inside the dataset */
};

static struct tile tile_of(const struct convert_dataset *dataset, uint64_t number)
{
    struct tile tile = {.is_full = true};

    for (uint32_t d = dataset->rank; d-- > 0;) {
        const uint64_t extent =
            (dataset->shape[d] + dataset->chunk_shape[d] - 1) / dataset->chunk_shape[d];
        tile.begin[d] = number % extent * dataset->chunk_shape[d];
        tile.count[d] = dataset->shape[d] - tile.begin[d];
        if (tile.count[d] > dataset->chunk_shape[d])
            tile.count[d] = dataset->chunk_shape[d];
        tile.is_full = tile.is_full && tile.count[d] == dataset->chunk_shape[d];
        number /= extent;
    }
    return tile;
}

/* Copies the dimensions from d on of one row. Recurses as deep as the rank. */
static void gather(const struct convert_dataset *dataset, const struct tile *tile, uint32_t d,
                   uint32_t element_bytes, const uint8_t *row, uint8_t *chunk)
{
    uint64_t row_step = element_bytes, chunk_step = element_bytes;

    for (uint32_t i = d + 1; i < dataset->rank; i++) {
        row_step *= dataset->shape[i];
        chunk_step *= dataset->chunk_shape[i];
    }
    row += dataset->rank ? tile->begin[d] * row_step : 0;
    if (d + 1 >= dataset->rank) {
        memcpy(chunk, row, (dataset->rank ? tile->count[d] : 1) * element_bytes);
        return;
    }
    for (uint64_t i = 0; i < tile->count[d]; i++)
        gather(dataset, tile, d + 1, element_bytes, row + i * row_step, chunk + i * chunk_step);
}

/* Shuffles and deflates one chunk into the block. */
static enum trajd_status pack(struct convert_worker *worker, const struct convert_dataset *dataset,
                              const uint8_t *bytes, size_t size,
                              const struct trajd_writer_rows *rows)
{
    const uint32_t element_bytes = trajd_dtype_size(dataset->to);
    const size_t room = libdeflate_zlib_compress_bound(worker->compressor, size);
    uint8_t *packed = convert_worker_room(worker, room, 1);
    size_t used;

    if (!packed)
        return trajd_error_set(worker->error, TRAJD_ERR_CLOSED, 0, "stopped");
    if (element_bytes > 1) {
        uint8_t *shuffled = convert_worker_buffer(worker, CONVERT_SHUFFLED, size);
        shuffle(bytes, shuffled, size, element_bytes);
        bytes = shuffled;
    }
    used = libdeflate_zlib_compress(worker->compressor, bytes, size, packed, room);
    if (!used || used > UINT32_MAX)
        return trajd_error_set(worker->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: a chunk of %zu bytes cannot be compressed", dataset->path,
                               size);
    convert_worker_add(worker, rows, packed, used);
    return TRAJD_OK;
}

enum trajd_status convert_compress_rows(struct convert_worker *worker,
                                        const struct convert_member *member)
{
    const struct convert_dataset *dataset = member->dataset;
    const struct convert_segment *segment = &worker->segment;
    const struct convert_episode *made = worker->made;
    const uint64_t chunk_rows =
        dataset->chunk_rows < made->step_count ? dataset->chunk_rows : made->step_count;
    const size_t tile_bytes = convert_chunk_bytes(dataset, 1), size = tile_bytes * chunk_rows;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t step = segment->step_begin; step < segment->step_end && !status;
         step += dataset->chunk_rows) {
        const uint64_t rest = segment->step_end - step,
                       rows = rest < dataset->chunk_rows ? rest : dataset->chunk_rows;
        const uint8_t *block = member->output + (step - segment->step_begin) * dataset->row_bytes;
        for (uint64_t number = 0; number < dataset->tile_count && !status; number++) {
            const struct tile tile = tile_of(dataset, number);
            struct trajd_writer_rows entry = {.episode = segment->episode,
                                              .array = (uint32_t)(member->array - made->arrays),
                                              .place = {step}};
            const uint8_t *bytes = block;
            memcpy(&entry.place[1], tile.begin, dataset->rank * sizeof *tile.begin);
            if (dataset->tile_count > 1 || rows < chunk_rows) {
                uint8_t *chunk = convert_worker_buffer(worker, CONVERT_CHUNK, size);
                if (!tile.is_full || rows < chunk_rows)
                    memset(chunk, 0, size);
                for (uint64_t r = 0; r < rows; r++)
                    gather(dataset, &tile, 0, trajd_dtype_size(dataset->to),
                           block + r * dataset->row_bytes, chunk + r * tile_bytes);
                bytes = chunk;
            }
            status = pack(worker, dataset, bytes, size, &entry);
        }
    }
    return status;
}
