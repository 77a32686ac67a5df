/* Random requests of images, and their results on the CPU. */
#ifndef TRAJD_TESTS_IMAGE_CASES_H
#define TRAJD_TESTS_IMAGE_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/image/cuda/image_gpu.h"

enum { IMAGE_FRAMES_MAX = 3 };

/* A spec with all its parts. */
struct image_case {
    struct trajd_image_preparation preparation;
    struct trajd_augment augment;
    struct trajd_image_gpu_spec spec;
    uint32_t frame_count;
    uint32_t inexact; /* steps whose result may differ by a level */
    uint64_t source_bytes, output_bytes;
    struct trajd_augment_params params[IMAGE_FRAMES_MAX];
};

/* Makes the case of a seed: checked, with parameters of all frames. */
void image_case_make(uint64_t seed, struct image_case *made);

/* The same for one resize of colour images: of some rows or hundreds, parts of them, beside padding. */
void image_case_make_resize(uint64_t seed, struct image_case *made);

/* The same for a random resized crop with bilinear filters: boxes of a few pixels to a whole frame. */
enum { IMAGE_BOX_CASES = 12 };
void image_case_make_boxes(uint64_t seed, struct image_case *made);

/* Makes a tensor on the CPU. */
void image_case_run(const struct image_case *image, uint32_t frame, const void *source,
                    void *output);

/* Returns whether a tensor of the GPU is as near to that of the CPU as image_gpu.h says, or nearer
 * than `levels`, where that is not 0. Else writes a line. */
bool image_case_matches(const struct image_case *image, const void *expected, const void *got,
                        uint32_t levels, char *text, uint32_t text_size);

/* Describes a case in a line. */
const char *image_case_name(const struct image_case *image, char *text, uint32_t text_size);

#endif
