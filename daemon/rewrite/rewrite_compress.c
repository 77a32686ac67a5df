#include "daemon/rewrite/rewrite_compress.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

struct rewrite_compressor {
    struct libdeflate_compressor *deflate;
    uint8_t *chunk, *shuffled, *packed;
    size_t chunk_size, packed_size;
};

enum trajd_status rewrite_compressor_create(uint32_t level, struct rewrite_compressor **out, struct trajd_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out)
        (*out)->deflate = libdeflate_alloc_compressor((int)level);
    return *out && (*out)->deflate ? TRAJD_OK : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a compressor");
}

void rewrite_compressor_destroy(struct rewrite_compressor **out)
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

static enum trajd_status make_room(struct rewrite_compressor *c, size_t size, struct trajd_error *error)
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
    return c->chunk_size ? TRAJD_OK : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a chunk of %zu bytes", size);
}

/* HDF5's shuffle: all first bytes of the elements, then all second ones, ... */
static void shuffle(const uint8_t *in, uint8_t *out, size_t size, uint32_t element_bytes)
{
    const size_t count = size / element_bytes;

    for (uint32_t b = 0; b < element_bytes; b++)
        for (size_t i = 0; i < count; i++)
            out[b * count + i] = in[i * element_bytes + b];
}

enum trajd_status rewrite_compress_rows(struct rewrite_compressor *c, struct rewrite_spool *spool, const struct rewrite_plan *plan,
                                        const struct rewrite_dataset *dataset, struct rewrite_chunk *chunks, uint64_t episode_steps,
                                        uint64_t step_begin, uint64_t steps, const uint8_t *rows, struct trajd_error *error)
{
    const uint64_t chunk_rows = dataset->chunk_rows < episode_steps ? dataset->chunk_rows : episode_steps;
    const size_t size = chunk_rows * dataset->row_bytes;
    const uint32_t element_bytes = trajd_dtype_size(dataset->to);
    enum trajd_status status = TRAJD_OK;

    for (uint64_t step = 0; step < steps && !status; step += dataset->chunk_rows) {
        struct rewrite_chunk *chunk = &chunks[(step_begin + step) / dataset->chunk_rows];
        const uint64_t left = steps - step, have = (left < dataset->chunk_rows ? left : dataset->chunk_rows) * dataset->row_bytes;
        const uint8_t *bytes = rows + step * dataset->row_bytes;
        size_t packed;
        status = make_room(c, size, error);
        if (status)
            return status;
        if (have < size) { /* the last chunk is as large as the others, zeros at its end */
            memcpy(c->chunk, bytes, have);
            memset(c->chunk + have, 0, size - have);
            bytes = c->chunk;
        }
        if (element_bytes > 1) {
            shuffle(bytes, c->shuffled, size, element_bytes);
            bytes = c->shuffled;
        }
        packed = libdeflate_zlib_compress(c->deflate, bytes, size, c->packed, c->packed_size);
        if (!packed || packed > UINT32_MAX)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "%s: a chunk of %zu bytes", dataset->path, size);
        *chunk = (struct rewrite_chunk){__atomic_fetch_add(&spool->length, packed, __ATOMIC_RELAXED), (uint32_t)packed, 0};
        status = rewrite_pwrite(spool->fd, c->packed, packed, chunk->offset, plan->options->output, error);
    }
    return status;
}
