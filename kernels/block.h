/* A resample request and all its data as one block of bytes without addresses. Such a block can be
 * copied to a GPU, or sent to a process that does not trust its sender. It holds one window (B = 1)
 * on one clock with stamps and one grid in ns. Normalisation and derivatives are not supported.
 *
 *   head | streams | brackets | targets int64[T] | stamps int64[S] | rows | outputs | masks
 *     each section begins at a multiple of 64 bytes
 *
 * Numbers are in the machine's byte order. The sections before the outputs are the request. The
 * outputs and masks are the answer. */
#ifndef TRAJD_KERNELS_BLOCK_H
#define TRAJD_KERNELS_BLOCK_H

#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_BLOCK_MAX_STREAMS 256u
#define TRAJD_BLOCK_MAX_STEPS (1u << 20)
#define TRAJD_BLOCK_MAX_BYTES (UINT64_C(96) << 20)
/* limit of the elements that kind mean averages: one to two seconds of one thread */
#define TRAJD_BLOCK_MAX_WORK (UINT64_C(1) << 30)

/* The memory of a request: every base is in `rows`, every output in `output`, every mask in
 * `mask`. */
struct trajd_block_memory {
    const void *rows;
    void *output, *mask;
    uint64_t rows_bytes, output_bytes, mask_bytes;
};

/* An opened block: the request, with pointers relative to a base address. The struct points into
 * itself, so do not copy it. */
struct trajd_block {
    struct trajd_resample_request request;
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket brackets[TRAJD_BLOCK_MAX_STREAMS];
    struct trajd_stream streams[TRAJD_BLOCK_MAX_STREAMS];
    uint64_t answer_at, answer_bytes; /* outputs and masks together */
};

/* Returns the size in bytes of the block that would hold the request. TRAJD_ERR_UNSUPPORTED: the
 * request does not have the form above, or exceeds the limits. */
enum trajd_status trajd_block_measure(const struct trajd_resample_request *request,
                                      const struct trajd_block_memory *memory, uint64_t *size_bytes,
                                      struct trajd_error *error);
/* Writes the request into `bytes`, which are aligned to 64 and have the measured size. The request
 * must have passed trajd_block_measure. */
void trajd_block_write(const struct trajd_resample_request *request,
                       const struct trajd_block_memory *memory, void *bytes);
/* Copies the answer from the request's block to its outputs and masks. Trusts no other part of the
 * block. */
void trajd_block_read_answer(const struct trajd_resample_request *request, const void *bytes,
                             const struct trajd_block_memory *memory);

/* Opens a block from any source. Checks everything, including that the request cannot read or write
 * outside the block and that its work is bounded. Returns TRAJD_ERR_ARGUMENT or
 * TRAJD_ERR_UNSUPPORTED. The request's pointers are those of a copy at `base`, which may be GPU
 * memory. The caller must not change the bytes afterwards. */
enum trajd_status trajd_block_open(const void *bytes, uint64_t size_bytes, void *base,
                                   struct trajd_block *block, struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
