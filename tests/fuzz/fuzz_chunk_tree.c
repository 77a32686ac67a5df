// libs: trajd_index
/* The object header of a dataset and its tree of chunks from a hostile file: the walk ends, and
 * visits no more chunks than it may.
 *
 * Input: a head of HEAD_BYTES (rank, most chunks, offset of the header in steps of 8), then the
 * file. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/index/rows/chunk_tree.h"

#define HEAD_BYTES 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count_chunk(void *context, const uint64_t first[TRAJD_ARRAY_MAX_RANK],
                        const struct trajd_chunk *chunk)
{
    uint64_t *visits = context;

    (void)first;
    (void)chunk;
    ++*visits;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t visits = 0, count;
    int fd;

    if (size < HEAD_BYTES)
        return 0;
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + HEAD_BYTES, size - HEAD_BYTES) != (ssize_t)(size - HEAD_BYTES))
        abort();
    trajd_chunk_tree_walk(fd, 8u * data[2], data[0], data[1], count_chunk, &visits, &count);
    if (visits > data[1])
        abort();
    close(fd);
    return 0;
}
