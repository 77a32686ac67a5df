#include "clients/cli/resample/convert_compress.h"
#include "clients/cli/resample/convert_io.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

struct convert_compressor {
    struct libdeflate_compressor *deflate;
    uint8_t *chunk, *shuffled, *packed;
    size_t chunk_size, packed_size;
};

enum trajd_status convert_compressor_create(uint32_t level, struct convert_compressor **out,
                                            struct trajd_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out)
        (*out)->deflate = libdeflate_alloc_compressor((int)level);
    return *out && (*out)->deflate
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a compressor");
}

void convert_compressor_destroy(struct convert_compressor **out)
{
    if (!*out)
        return;
    libdeflate_free_compressor((*out)->deflate);
    free((*out)->chunk);
    free((*out)->shuffled);
    free((*out)->packed);
    free(*out);
    *out = NULL;
}

static enum trajd_status make_room(struct convert_compressor *c, size_t size,
                                   struct trajd_error *error)
{
    if (size <= c->chunk_size)
        return TRAJD_OK;
    free(c->chunk);
    free(c->shuffled);
    free(c->packed);
    c->packed_size = libdeflate_zlib_compress_bound(c->deflate, size);
    c->chunk = malloc(size);
    c->shuffled = malloc(size);
    c->packed = malloc(c->packed_size);
    c->chunk_size = c->chunk && c->shuffled && c->packed ? size : 0;
    return c->chunk_size ? TRAJD_OK
                         : trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                           "no memory for a chunk of %zu bytes", size);
}

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

static enum trajd_status pack(struct convert_compressor *c, struct convert_spool *spool,
                              const char *path, const uint8_t *bytes, size_t size,
                              uint32_t element_bytes, struct convert_chunk *chunk,
                              struct trajd_error *error)
{
    size_t packed;

    if (element_bytes > 1) {
        shuffle(bytes, c->shuffled, size, element_bytes);
        bytes = c->shuffled;
    }
    packed = libdeflate_zlib_compress(c->deflate, bytes, size, c->packed, c->packed_size);
    if (!packed || packed > UINT32_MAX)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: a chunk of %zu bytes cannot be compressed", path, size);
    *chunk = (struct convert_chunk){__atomic_fetch_add(&spool->length, packed, __ATOMIC_RELAXED),
                                    (uint32_t)packed, 0};
    return convert_pwrite(spool->fd, c->packed, packed, chunk->offset, path, error);
}

enum trajd_status convert_compress_rows(struct convert_compressor *c, struct convert_spool *spool,
                                        const struct convert_plan *plan,
                                        const struct convert_dataset *dataset,
                                        struct convert_chunk *chunks, uint64_t episode_steps,
                                        uint64_t step_begin, uint64_t steps, const uint8_t *rows,
                                        struct trajd_error *error)
{
    const uint32_t element_bytes = trajd_dtype_size(dataset->to);
    const uint64_t chunk_rows =
        dataset->chunk_rows < episode_steps ? dataset->chunk_rows : episode_steps;
    size_t tile_bytes = element_bytes, size;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t d = 0; d < dataset->rank; d++)
        tile_bytes *= dataset->chunk_shape[d];
    size = tile_bytes * chunk_rows;
    status = make_room(c, size, error);
    for (uint64_t step = 0; step < steps && !status; step += dataset->chunk_rows) {
        const uint64_t remaining =
            steps - step < dataset->chunk_rows ? steps - step : dataset->chunk_rows;
        const uint8_t *block = rows + step * dataset->row_bytes;
        for (uint64_t number = 0; number < dataset->tile_count && !status; number++) {
            const struct tile tile = tile_of(dataset, number);
            const uint8_t *bytes = block;
            if (dataset->tile_count > 1 || remaining < chunk_rows) {
                if (!tile.is_full || remaining < chunk_rows)
                    memset(c->chunk, 0, size);
                for (uint64_t r = 0; r < remaining; r++)
                    gather(dataset, &tile, 0, element_bytes, block + r * dataset->row_bytes,
                           c->chunk + r * tile_bytes);
                bytes = c->chunk;
            }
            status = pack(
                c, spool, plan->options->output, bytes, size, element_bytes,
                &chunks[(step_begin + step) / dataset->chunk_rows * dataset->tile_count + number],
                error);
        }
    }
    return status;
}
