/* Which kernels serve a program, and how a launch is cut. Pure functions, tested without a GPU. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_CHOOSE_H
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_CHOOSE_H

#include <stdbool.h>

#include "kernels/device.h"
#include "kernels/image/cuda/image_program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum trajd_image_variant {
    TRAJD_IMAGE_STRIP,   /* crops, flips, colours: picture_strip.cu */
    TRAJD_IMAGE_RESIZE,  /* one resize that reduces: picture_resize.cu */
    TRAJD_IMAGE_GENERAL, /* everything: picture_general.cu */
};

/* Colour steps of a strip. */
enum { TRAJD_IMAGE_STRIP_COLORS = 4 };

/* How the kernel "strip" cuts a frame. */
struct trajd_image_strip {
    uint32_t blocks;       /* of a frame; they form a cluster where a mean is needed */
    uint32_t rows;         /* of the output, a block */
    uint32_t shared_bytes; /* of a block */
    uint32_t groups;       /* of 4 pixels, in a row */
};

/* How the kernel "resize" cuts frames. */
struct trajd_image_resize {
    uint32_t threads;                /* consumers of a block; 32 more load */
    uint32_t blocks;                 /* of a multiprocessor */
    uint32_t chunk_rows;             /* source rows of a load */
    uint32_t chunks;                 /* in shared memory at once */
    uint32_t grid_blocks;            /* of a launch, at most */
    uint32_t strip_tiles;            /* tiles of an item of work */
    uint32_t tiles, strips;          /* of a frame */
    uint32_t pitch;                  /* bytes of a source row */
    uint32_t column_groups;          /* of 8 source pixels */
    uint32_t turn_rows, turn_groups; /* that the consumers go on by in a turn */
    bool clips;                      /* sums leave 0 to 255 */
    uint32_t between_pitch;          /* elements of a row between the axes */
    uint32_t x_tiles;                /* of 16 output pixels */
    uint32_t k_steps;                /* of 16 source pixels, for a tile: an even number */
    uint32_t shared_bytes;
    /* tables, in words: for each output row {start, length, end, weights[row_stride]}, for each tile of
     * columns its first source pixel, and the weights in the order of the matrix instruction */
    uint32_t row_stride, first_columns, weights, words;
};

/* Returns the kernels for a program, and the reason in *why, a constant. */
enum trajd_image_variant trajd_image_choose(const struct trajd_image_program *program,
                                            const uint32_t *tables,
                                            const struct trajd_device_facts *facts,
                                            struct trajd_image_strip *strip,
                                            struct trajd_image_resize *resize, const char **why);

enum { TRAJD_IMAGE_CHUNKS_MAX = 32 };

/* Cuts a strip for `blocks` blocks a frame. False where it does not fit. */
bool trajd_image_strip_cut(const struct trajd_image_program *program, uint32_t blocks,
                           struct trajd_image_strip *strip);

/* Cuts a resize for these threads, blocks and at most so many chunks. False where it does not fit. */
bool trajd_image_resize_cut(const struct trajd_image_program *program, const uint32_t *tables,
                            uint32_t threads, uint32_t blocks, uint32_t chunks_max,
                            struct trajd_image_resize *resize);
/* Divides frames into items of work, for `block_count` blocks in all. */
void trajd_image_resize_divide(uint32_t frame_count, uint32_t block_count,
                               struct trajd_image_resize *resize);
/* Makes the tables of the kernel, of resize->words words. */
void trajd_image_resize_fill(const struct trajd_image_program *program, const uint32_t *tables,
                             const struct trajd_image_resize *resize, uint32_t *words);

#ifdef __cplusplus
}
#endif
#endif
