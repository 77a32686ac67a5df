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
    TRAJD_IMAGE_STRIP,   /* crops, flips, colours: image_strip.cu */
    TRAJD_IMAGE_RESIZE,  /* one resize that reduces: image_resize.cu */
    TRAJD_IMAGE_MATRIX,  /* one resize: image_matrix.cu */
    TRAJD_IMAGE_CROP,    /* one random resized crop: image_crop.cu */
    TRAJD_IMAGE_GENERAL, /* everything: image_general.cu */
};

/* Colour steps of a strip. */
enum {
    TRAJD_IMAGE_STRIP_COLORS = 4,
    TRAJD_IMAGE_CLUSTER_MAX = 8,        /* blocks of a frame that share a mean */
    TRAJD_IMAGE_STRIP_HEAD_BYTES = 192, /* of a block's memory: barriers, sums, colours */
};

/* How a strip applies colour steps. */
enum trajd_image_strip_colors {
    TRAJD_IMAGE_STRIP_PLAIN, /* there are none */
    TRAJD_IMAGE_STRIP_STEPS, /* one step after the other, in any order */
    TRAJD_IMAGE_STRIP_ORDERED, /* brightness, contrast, saturation, hue, each once at most, in this order */
};

/* How the kernel "strip" cuts a frame. */
struct trajd_image_strip {
    enum trajd_image_strip_colors colors;
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

/* How the kernel "matrix" cuts frames. A warp has a group of tiles of 4 output pixels. */
struct trajd_image_matrix {
    uint32_t tiles;       /* of a group */
    uint32_t steps;       /* of 32 source bytes, for a tile */
    uint32_t live;        /* tiles of 8 output rows that a block of 8 source rows may belong to */
    uint32_t groups;      /* of a frame */
    uint32_t warps;       /* that sum, of a block: groups of a band; one more loads */
    uint32_t blocks;      /* of a multiprocessor */
    uint32_t bands;       /* of a frame: bands of columns, each an item of its own */
    uint32_t pitch;       /* bytes of a source row of a band in shared memory */
    uint32_t chunks;      /* blocks of source rows in shared memory at once */
    uint32_t stage_bytes; /* of a warp, for finished tiles */
    uint32_t table_bytes; /* of the first tables, which a block keeps in shared memory */
    uint32_t shared_bytes;
    uint32_t row_tiles, strip_tiles, strips; /* tiles of 8 output rows: of a frame, of an item */
    uint32_t grid_blocks;                    /* of a launch, at most */
    bool clips;                              /* sums leave 0 to 255 */
    bool has_spare_steps;                    /* a tile needs fewer than `steps` */
    /* tables, in words. Of each tile of rows, the source blocks that it needs: first, end; before each
     * source block, and after the last one, the tiles of rows that need no more; of each source block and
     * live tile 32 pairs of weights; of each band its first byte in a source row, and its bytes; of each
     * tile of columns its first byte; and its weights, in the order of the matrix instruction */
    uint32_t row_spans, tile_firsts, rows, band_spans, column_firsts, columns, words;
};

/* Sums in the kernel "matrix" are levels divided by this. */
#define TRAJD_IMAGE_MATRIX_SCALE 1024.0F

/* The kernel "crop" goes from tile to tile where an item has at most this number of blocks of
 * source rows, or a third of its tiles. Elsewhere a box has at least a quarter of the rows of the
 * image, so that a tile of rows is finished before the sums run out. */
enum { TRAJD_IMAGE_CROP_BLOCKS = 6 };

/* The kernels of a program, and how they cut it. */
struct trajd_image_choice {
    enum trajd_image_variant variant;
    const char *why; /* constant */
    struct trajd_image_strip strip;
    struct trajd_image_resize resize;
    struct trajd_image_matrix matrix;
};

/* Chooses the kernels for a program, and for runs of `frame_count` frames. `requested`: the name of the
 * kernels to take where they can serve it; NULL: the best. */
void trajd_image_choose(const struct trajd_image_program *program, const uint32_t *tables,
                        const struct trajd_device_facts *facts, uint32_t frame_count,
                        const char *requested, struct trajd_image_choice *choice);

/* Returns "strip", "resize", ... Constant. */
const char *trajd_image_variant_name(enum trajd_image_variant variant);

enum { TRAJD_IMAGE_CHUNKS_MAX = 32 };

/* Returns the way in which a strip applies the colours of a program. */
enum trajd_image_strip_colors
trajd_image_strip_colors_of(const struct trajd_image_program *program);
/* Cuts a strip for `blocks` blocks a frame. False where it does not fit. */
bool trajd_image_strip_cut(const struct trajd_image_program *program, uint32_t blocks,
                           struct trajd_image_strip *strip);

/* Cuts a resize for these threads, blocks and the maximum number of chunks. False where it does not
 * fit. */
bool trajd_image_resize_cut(const struct trajd_image_program *program, const uint32_t *tables,
                            uint32_t threads, uint32_t blocks, uint32_t chunks_max,
                            struct trajd_image_resize *resize);
/* Divides frames into items of work, for `block_count` blocks in all. */
void trajd_image_resize_divide(uint32_t frame_count, uint32_t block_count,
                               struct trajd_image_resize *resize);
/* Makes the tables of the kernel, of resize->words words. */
void trajd_image_resize_fill(const struct trajd_image_program *program, const uint32_t *tables,
                             const struct trajd_image_resize *resize, uint32_t *words);

/* The same for the kernel "matrix": at most `warps_max` warps sum in a block. */
bool trajd_image_matrix_cut(const struct trajd_image_program *program, const uint32_t *tables,
                            uint32_t warps_max, uint32_t chunks_max,
                            struct trajd_image_matrix *matrix);
/* The same for the kernel "crop", which has no tables of the plan. */
bool trajd_image_crop_cut(const struct trajd_image_program *program, uint32_t warps_max,
                          uint32_t chunks_max, struct trajd_image_matrix *matrix);
void trajd_image_matrix_divide(uint32_t frame_count, uint32_t block_count,
                               struct trajd_image_matrix *matrix);
void trajd_image_matrix_fill(const struct trajd_image_program *program, const uint32_t *tables,
                             const struct trajd_image_matrix *matrix, uint32_t *words);

#ifdef __cplusplus
}
#endif
#endif
