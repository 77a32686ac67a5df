/* What a kernel does to a frame: the program of a plan. Made on the host (image_program.c), passed to
 * kernels by value.
 *
 * A program is a list of steps: geometry and colours. It is divided into *passes*. A pass reads
 * frames, and writes frames of u8 (or depth) to scratch memory, or in the last pass tensors. For each
 * output pixel it walks back through the geometry of the pass: steps that only say where a pixel comes
 * from (crop, flip, nearest), and at most one step that mixes pixels. Then it applies the colour
 * steps. So a pass rounds where the contract rounds. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_PROGRAM_H
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_PROGRAM_H

#include <stdint.h>

#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRAJD_IMAGE_PROGRAM_STEPS = TRAJD_AUGMENT_STEPS_MAX + 1 };

enum trajd_image_op {
    TRAJD_IMAGE_OP_CROP,
    TRAJD_IMAGE_OP_FLIP,
    TRAJD_IMAGE_OP_WARP_NEAREST,
    TRAJD_IMAGE_OP_PICK, /* resize with filter nearest */
    TRAJD_IMAGE_OP_WARP_LINEAR,
    TRAJD_IMAGE_OP_LINES,  /* tf.image.crop_and_resize */
    TRAJD_IMAGE_OP_FILTER, /* resize with any other filter */
    TRAJD_IMAGE_OP_COLOR,
};

/* The taps along one axis, as words in device memory: for each output pixel of [place, place + count)
 * the first source pixel, the number of weights, and `stride` weights as float32. Output pixels
 * outside are padding. */
struct trajd_image_axis_table {
    uint32_t first_word, stride, place, count;
};

struct trajd_image_step {
    uint8_t op;             /* enum trajd_image_op */
    uint8_t kind;           /* COLOR: enum trajd_augment_kind */
    uint8_t filter;         /* FILTER, PICK: enum trajd_image_filter */
    uint8_t rounds_between; /* FILTER: rounds the sums along x */
    uint8_t has_own_tables; /* FILTER, PICK: each frame has its own, made on the GPU from a box */
    uint8_t value;          /* which of the frame's values; not of a preparation */
    uint8_t mean;           /* contrasts: which of the frame's means */
    uint32_t height, width; /* after the step */
    uint32_t from_height, from_width;
    struct trajd_image_axis_table y, x;
    uint32_t pad; /* bits of the pad value */
};

struct trajd_image_pass {
    uint8_t first, colors, end; /* geometry [first, colors), colours [colors, end) */
};

struct trajd_image_program {
    uint8_t step_count, pass_count, value_count, mean_count;
    uint8_t channels;
    uint8_t rounds; /* TRAJD_AUGMENT_ROUND_EACH */
    uint8_t source_type, type, layout;
    uint32_t from_height, from_width; /* of the sources */
    uint32_t height, width;           /* of the tensors */
    uint32_t table_words, own_table_words;
    uint64_t between_bytes; /* the largest frame between passes, rounded up to 16 */
    float scale[TRAJD_IMAGE_CHANNELS_MAX], offset[TRAJD_IMAGE_CHANNELS_MAX];
    struct trajd_image_step steps[TRAJD_IMAGE_PROGRAM_STEPS];
    struct trajd_image_pass passes[TRAJD_IMAGE_PROGRAM_STEPS];
};

/* The parameters of a step of a frame, ready for use. */
union trajd_image_value {
    int64_t warp[6];     /* y, x, y_down, x_down, y_right, x_right */
    int64_t lines[2][3]; /* y, x: first, step, last */
    int32_t box[4];      /* crop: top, left. Boxes: and height, width. Flip: 1 or 0 */
    float factor;        /* colours */
};

struct trajd_image_record {
    const void *source;
    void *output;
    /* value_count values follow */
};

/* Makes the program of a checked spec, and its tables of table_words words, which the caller frees.
 * TRAJD_ERR_MEMORY. */
struct trajd_image_gpu_spec;
enum trajd_status trajd_image_program_make(const struct trajd_image_gpu_spec *spec,
                                           struct trajd_image_program *program, uint32_t **tables,
                                           struct trajd_error *error);

static inline uint32_t trajd_image_program_record_bytes(const struct trajd_image_program *program)
{
    return (uint32_t)(sizeof(struct trajd_image_record) +
                      program->value_count * sizeof(union trajd_image_value));
}

/* Writes the values of a frame's parameters. */
void trajd_image_program_write(const struct trajd_image_program *program,
                               const struct trajd_augment_params *params,
                               union trajd_image_value *values);

#ifdef __cplusplus
}
#endif
#endif
