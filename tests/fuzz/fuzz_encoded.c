// libs: trajd_index
/* References to a heap, its collections, offsets of packed rows and padded rows from a hostile
 * file: what trajd_array_check accepts can be read, or is refused, without touching other memory.
 *
 * Input: a head of HEAD_BYTES (form, rows, width, offset, payload's offset and size in steps of
 * 16), then the file. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/index/rows/encoded.h"

#define HEAD_BYTES 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct trajd_array array_of_head(const uint8_t *head)
{
    struct trajd_array array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                                .form = (enum trajd_row_form)(1 + head[0] % 4),
                                .dtype = TRAJD_U8,
                                .rank = 2,
                                .shape = {head[1], head[2]},
                                .offset = head[3],
                                .payload_offset = head[4] * 16u,
                                .payload_bytes = head[5] * 16u};

    if (array.form == TRAJD_ROWS_HEAP)
        array.shape[1] = 16;
    if (array.form == TRAJD_ROWS_PACKED) {
        array.dtype = TRAJD_I64;
        array.rank = 1;
    }
    array.size_bytes = array.shape[0] * trajd_array_row_bytes(&array);
    return array;
}

/* Reads every byte of the rows, so that a sanitizer sees a span that is too long. */
static volatile unsigned sink; /* so that the rows are read */

static unsigned sum_rows(const struct trajd_row_bytes *rows, uint64_t count)
{
    unsigned sum = 0;

    for (uint64_t r = 0; r < count; r++)
        for (uint64_t i = 0; i < rows[r].size; i++)
            sum += rows[r].data[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trajd_encoded_reader *reader;
    const struct trajd_row_bytes *rows;
    struct trajd_array array;
    uint64_t done;
    int fd;

    if (size < HEAD_BYTES || (!reader && trajd_encoded_reader_create(&reader, NULL)))
        return 0;
    array = array_of_head(data);
    if (trajd_array_check(&array, size - HEAD_BYTES, 0, NULL))
        return 0;
    fd = memfd_create("fuzz_encoded", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, data + HEAD_BYTES, size - HEAD_BYTES) == (ssize_t)(size - HEAD_BYTES))
        for (uint64_t row = 0; row < array.shape[0]; row += done ? done : 1) {
            trajd_encoded_read(reader, fd, size - HEAD_BYTES, &array, row, array.shape[0] - row,
                               &rows, &done, NULL);
            sink = sum_rows(rows, done);
        }
    if (fd >= 0)
        close(fd);
    return 0;
}
