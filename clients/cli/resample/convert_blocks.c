/* Puts rows into blocks: as they are, or in chunks that are compressed as libhdf5 would do it,
 * shuffled and deflated. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/resample/convert_rows_internal.h"
#include "daemon/base/memory.h"

void convert_buffer_grow(struct convert_buffer *buffer, size_t size)
{
    if (size <= buffer->size)
        return;
    free(buffer->bytes);
    buffer->bytes = trajd_memory_or_exit(aligned_alloc(CONVERT_ALIGNMENT, convert_align(size)));
    buffer->size = size;
}

uint8_t *convert_worker_room(struct convert_worker *worker, size_t size, uint32_t count)
{
    struct convert_block *block = worker->block;

    if (!block || block->size - block->used < size || CONVERT_BLOCK_ROWS - block->count < count)
        worker->block = block = worker->sink->exchange(worker->sink->context, block);
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

struct convert_block *convert_worker_release(struct convert_worker *worker)
{
    struct convert_block *block = worker->block;

    worker->block = NULL;
    return block;
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
                              const struct trajd_writer_rows *rows, struct trajd_error *error)
{
    const uint32_t element_bytes = trajd_dtype_size(dataset->to);
    const size_t room = libdeflate_zlib_compress_bound(worker->compressor, size);
    uint8_t *packed = convert_worker_room(worker, room, 1);
    size_t used;

    if (!packed)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "stopped");
    if (element_bytes > 1) {
        convert_buffer_grow(&worker->shuffled, size);
        shuffle(bytes, worker->shuffled.bytes, size, element_bytes);
        bytes = worker->shuffled.bytes;
    }
    used = libdeflate_zlib_compress(worker->compressor, bytes, size, packed, room);
    if (!used || used > UINT32_MAX)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: a chunk of %zu bytes cannot be compressed", dataset->path,
                               size);
    convert_worker_add(worker, rows, packed, used);
    return TRAJD_OK;
}

enum trajd_status convert_compress_rows(struct convert_worker *worker,
                                        const struct convert_segment *segment,
                                        const struct convert_member *member,
                                        struct trajd_error *error)
{
    const struct convert_dataset *dataset = member->dataset;
    const struct convert_episode *made = &worker->plan->episodes[segment->episode];
    const uint32_t element_bytes = trajd_dtype_size(dataset->to);
    const uint64_t chunk_rows =
        dataset->chunk_rows < made->step_count ? dataset->chunk_rows : made->step_count;
    const uint64_t tiles = dataset->tile_count;
    size_t tile_bytes = element_bytes, size;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t d = 0; d < dataset->rank; d++)
        tile_bytes *= dataset->chunk_shape[d];
    size = tile_bytes * chunk_rows;
    for (uint64_t step = segment->step_begin; step < segment->step_end && !status;
         step += dataset->chunk_rows) {
        const uint64_t rest = segment->step_end - step,
                       rows = rest < dataset->chunk_rows ? rest : dataset->chunk_rows;
        const uint8_t *block =
            worker->output + member->output_at + (step - segment->step_begin) * dataset->row_bytes;
        for (uint64_t number = 0; number < tiles && !status; number++) {
            const struct tile tile = tile_of(dataset, number);
            struct trajd_writer_rows entry = {.episode = segment->episode,
                                              .array = (uint32_t)(member->array - made->arrays),
                                              .place = {step}};
            const uint8_t *bytes = block;
            memcpy(&entry.place[1], tile.begin, dataset->rank * sizeof *tile.begin);
            if (tiles > 1 || rows < chunk_rows) {
                convert_buffer_grow(&worker->chunk, size);
                if (!tile.is_full || rows < chunk_rows)
                    memset(worker->chunk.bytes, 0, size);
                for (uint64_t r = 0; r < rows; r++)
                    gather(dataset, &tile, 0, element_bytes, block + r * dataset->row_bytes,
                           worker->chunk.bytes + r * tile_bytes);
                bytes = worker->chunk.bytes;
            }
            status = pack(worker, dataset, bytes, size, &entry, error);
        }
    }
    return status;
}
