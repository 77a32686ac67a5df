/* A resample request with all that it names as one block of bytes without addresses: for a GPU's
 * memory, or for a process that does not trust whoever made it. One window (B = 1) on one clock of
 * stamps and one grid in ns; no normalisation, no derivatives.
 *
 *   head | streams | brackets | targets int64[T] | stamps int64[S] | rows | outputs | masks
 *     each at a multiple of 64 bytes
 *
 * Numbers are the machine's. Everything up to the outputs is asked, outputs and masks are the
 * answer. */
#ifndef TRAJD_KERNELS_BLOCK_H
#define TRAJD_KERNELS_BLOCK_H

#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_BLOCK_MAX_STREAMS 256u
#define TRAJD_BLOCK_MAX_STEPS (1u << 20)
#define TRAJD_BLOCK_MAX_BYTES (UINT64_C(96) << 20)
/* elements that means average: a second or two of one thread */
#define TRAJD_BLOCK_MAX_WORK (UINT64_C(1) << 30)

/* Where a request's memory is: every base lies in rows, every output in output, every mask in mask.
 */
struct trajd_block_memory {
    const void *rows;
    void *output, *mask;
    uint64_t rows_bytes, output_bytes, mask_bytes;
};

/* An open block: the request, its pointers counted from a base. Points into itself: not to be
 * copied. */
struct trajd_block {
    struct trajd_resample_request request;
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket brackets[TRAJD_BLOCK_MAX_STREAMS];
    struct trajd_stream streams[TRAJD_BLOCK_MAX_STREAMS];
    uint64_t answer_at, answer_bytes; /* outputs and masks, end to end */
};

/* The size of the block that would hold it. TRAJD_ERR_UNSUPPORTED: it is not of that form, or
 * beyond the limits above. */
enum trajd_status trajd_block_measure(const struct trajd_resample_request *request,
                                      const struct trajd_block_memory *memory, uint64_t *size_bytes,
                                      struct trajd_error *error);
/* Writes what is asked into so many bytes, aligned to 64, of a request that was measured. */
void trajd_block_write(const struct trajd_resample_request *request,
                       const struct trajd_block_memory *memory, void *bytes);
/* Copies the answer of that request's block to its outputs and masks. Nothing else of the bytes is
 * believed. */
void trajd_block_read_answer(const struct trajd_resample_request *request, const void *bytes,
                             const struct trajd_block_memory *memory);

/* Reads `bytes`, from wherever: everything is checked, also that the request cannot read or write
 * outside of the block and is done in bounded time (TRAJD_ERR_ARGUMENT, TRAJD_ERR_UNSUPPORTED).
 * Pointers of the request are those of a copy at `base`, which may be the GPU's. The bytes must not
 * change from then on. */
enum trajd_status trajd_block_open(const void *bytes, uint64_t size_bytes, void *base,
                                   struct trajd_block *block, struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
