// libs: trajd_index
/* Array records and chunk bytes from a hostile file or a broken helper program: arrays that pass
 * trajd_array_check can be read without touching memory that is not theirs.
 *
 * Input: a head of HEAD_BYTES (see below), 5 bytes per chunk (u16 offset, u16 stored size, u8
 * filter mask), then the file. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/index/rows/array.h"
#include "daemon/index/rows/inflate.h"

#define HEAD_BYTES 40
#define CHUNK_BYTES 5
#define MAX_CHUNKS 512u
#define MAX_ROWS_BYTES (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t u16_at(const uint8_t *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8;
}

/* The head: storage, dtype, rank, number of filters, 4 filters, 6 u16 of shape, 6 u16 of chunk
 * shape, first row, rows (u16 each), a shift for the first dimension, a wrong size_bytes, a wrong
 * chunk_count, spare. */
static struct trajd_array array_of_head(const uint8_t *head)
{
    static const uint16_t filters[] = {TRAJD_FILTER_DEFLATE, TRAJD_FILTER_SHUFFLE,
                                       TRAJD_FILTER_FLETCHER32, TRAJD_FILTER_LZF, 4};
    struct trajd_array array = {.storage = (enum trajd_storage)head[0],
                                .dtype = (enum trajd_dtype)head[1],
                                .rank = head[2],
                                .filter_count = head[3],
                                .fill = {1, 2, 3, 4, 5, 6, 7, 8}};

    for (int i = 0; i < TRAJD_ARRAY_MAX_FILTERS; i++)
        array.filters[i] = filters[head[4 + i] % 5];
    for (int d = 0; d < TRAJD_ARRAY_MAX_RANK; d++) {
        array.shape[d] = u16_at(head + 8 + 2 * d);
        array.chunk_shape[d] = u16_at(head + 20 + 2 * d);
    }
    array.shape[0] <<= head[36] % 64;
    array.offset = head[39];
    array.size_bytes = head[37] + trajd_dtype_size(array.dtype);
    array.chunk_count = head[38] + 1u;
    for (uint32_t d = 0; d < array.rank && d < TRAJD_ARRAY_MAX_RANK; d++) {
        array.size_bytes = array.size_bytes * array.shape[d];
        if (array.chunk_shape[d])
            array.chunk_count *= (array.shape[d] + array.chunk_shape[d] - 1) / array.chunk_shape[d];
    }
    return array;
}

static int file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz_array", MFD_CLOEXEC);

    if (fd >= 0 && write(fd, data, size) != (ssize_t)size) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void read_rows(const struct trajd_array *array, const uint8_t *data, size_t size,
                      uint64_t begin, uint64_t count)
{
    uint64_t row_bytes = trajd_array_row_bytes(array);
    struct trajd_array_reader *reader;
    uint8_t *rows;
    int fd;

    if (row_bytes && count > MAX_ROWS_BYTES / row_bytes)
        count = MAX_ROWS_BYTES / row_bytes;
    rows = malloc(count * row_bytes + 1);
    fd = file_of(data, size);
    if (rows && fd >= 0 && !trajd_array_reader_create(&reader, NULL)) {
        trajd_array_read(reader, fd, array, begin, count, rows, NULL);
        trajd_array_reader_destroy(&reader);
    }
    if (fd >= 0)
        close(fd);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trajd_chunk chunks[MAX_CHUNKS];
    struct trajd_array array;
    struct trajd_error error;
    size_t at = HEAD_BYTES;

    if (size < HEAD_BYTES)
        return 0;
    array = array_of_head(data);
    if (array.storage == TRAJD_STORAGE_CHUNKED &&
        (array.chunk_count > MAX_CHUNKS || array.rank > TRAJD_ARRAY_MAX_RANK))
        return 0;
    for (uint64_t c = 0; array.storage == TRAJD_STORAGE_CHUNKED && c < array.chunk_count;
         c++, at += CHUNK_BYTES) {
        if (size - at < CHUNK_BYTES)
            return 0;
        uint64_t offset = u16_at(data + at);
        chunks[c] = (struct trajd_chunk){offset == 0xFFFF ? TRAJD_ARRAY_MISSING_CHUNK : offset,
                                         (uint32_t)u16_at(data + at + 2), data[at + 4]};
    }
    array.chunks = chunks;
    array.inline_bytes = data + at;
    if (!trajd_array_check(&array, size - at, size - at, &error) &&
        trajd_array_chunk_bytes(&array) <= MAX_ROWS_BYTES)
        read_rows(&array, data + at, size - at, u16_at(data + 32), u16_at(data + 34));
    return 0;
}
