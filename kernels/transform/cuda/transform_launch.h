/* The parameters of a launch that transforms outputs, packed from jobs: at most 4 KB, passed by
 * value. For host and device. */
#ifndef TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_LAUNCH_H
#define TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_LAUNCH_H

#include "kernels/transform/cuda/transform_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TRAJD_STEP_OUTPUTS_MAX = 6,
    TRAJD_STEP_PARTS_MAX = 96,
    TRAJD_STEP_PARAMETER_SIZE_MAX = 4096
};

/* A part of a row, as struct trajd_transform_part. */
struct trajd_step_part {
    double period;
    uint16_t first, count, output_first, output_count, reference_first;
    uint8_t reference_count; /* numbers of the reference's rotation */
    uint8_t kind;            /* enum trajd_part_kind */
    uint8_t is_relative;
    uint8_t from, to, reference_form; /* enum trajd_rotation_form */
    int8_t turned_by;                 /* a part of the same output; -1: none */
};

/* An output: arrays as in struct trajd_transform_gpu_job, on the device. */
struct trajd_step_output {
    const void *source, *reference;
    const uint8_t *source_mask, *reference_mask;
    uint8_t *mask;
    char *output;
    const float *scale, *offset;
    uint32_t step_count, column_count, output_count, reference_count;
    uint16_t part_first, part_count;                  /* of the launch */
    uint8_t source_type, reference_type, output_type; /* enum trajd_dtype */
    uint8_t edge, frame, from_step_before, norm_per_step;
};

struct trajd_step_launch {
    const uint32_t *window_rows; /* NULL: window w is row w */
    uint32_t window_count;
    uint16_t output_count, part_count;
    struct trajd_step_output outputs[TRAJD_STEP_OUTPUTS_MAX];
    struct trajd_step_part parts[TRAJD_STEP_PARTS_MAX];
};

/* Fills *launch with the jobs from `first` on: as many as fit, at least one. Returns the index
 * after the last. */
uint32_t trajd_step_pack(const struct trajd_transform_gpu_job *jobs, uint32_t first, uint32_t count,
                         uint32_t window_count, struct trajd_step_launch *launch);

/* Rotations of one target that a request has blended number by number. */
struct trajd_blend_launch {
    struct trajd_cuda_bracket bracket;
    struct trajd_cuda_stream stream;
    const uint32_t *window_rows;
    uint32_t window_count, column;
    uint8_t form, width; /* enum trajd_rotation_form, and its numbers */
};

/* Fills *launch with a rotation of a stream, as trajd_transform_blend takes it. Returns false where
 * there is nothing to blend: the kind picks rows or knows quaternions, or the targets are rows. */
bool trajd_blend_pack(const struct trajd_resample_request *request, uint32_t stream_index,
                      uint32_t column, enum trajd_rotation_form form,
                      struct trajd_blend_launch *launch);

/* The launchers do not wait and do not allocate, and return the cudaError_t. overlaps: prepared
 * while the launch before it runs, from sm_90 on. */
int trajd_step_launch(const struct trajd_step_launch *launch, bool overlaps, void *stream);
int trajd_blend_launch(const struct trajd_blend_launch *launch, bool overlaps, void *stream);

#ifdef __cplusplus
}
#endif
#endif
