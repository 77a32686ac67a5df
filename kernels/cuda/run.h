/* Runs a request on a GPU: checks, packs, shapes and launches it. Plain C. Pointers in the request
 * are device memory. */
#ifndef TRAJD_KERNELS_CUDA_RUN_H
#define TRAJD_KERNELS_CUDA_RUN_H

#include "kernels/cuda/problem.h"
#include "kernels/device.h"
#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The dense problem [B, S, D] -> [B, T, D]: row s of window b stands at stamps_ns[b][s], and target
 * t at targets_ns[b][t]. All arrays are packed. It has no arrays of counts and anchors. */
struct trajd_dense_problem {
    uint32_t window_count;  /* B >= 1 */
    uint32_t row_count;     /* S >= 1 */
    uint32_t step_count;    /* T >= 1 */
    uint32_t feature_count; /* D >= 1 */
    const int64_t *stamps_ns;
    const int64_t *targets_ns;
    enum trajd_kind kind;
    enum trajd_dtype source_type;
    enum trajd_dtype output_type;
    enum trajd_edge edge;
    const void *source;
    void *output;
    uint8_t *mask; /* [B, T] or NULL */
};

/* Chooses a launch shape for this problem on this device. The shape never needs more shared memory
 * than a block has. Pure. row_count is the estimated rows of a window; 0: not known, or
 * those of a dense bracket. A problem without
 * streams or steps gets no shape: all its members are 0. */
struct trajd_cuda_shape trajd_cuda_shape_of(const struct trajd_cuda_problem *problem,
                                            const struct trajd_device_facts *facts,
                                            uint64_t row_count);

#define TRAJD_CUDA_ANY_STYLE (-1)

/* The same with a given style, if that is not TRAJD_CUDA_ANY_STYLE. */
struct trajd_cuda_shape trajd_cuda_styled_shape_of(const struct trajd_cuda_problem *problem,
                                                   const struct trajd_device_facts *facts,
                                                   uint64_t row_count, int style);

/* Returns whether a shape is within the limits of a launch, and so can be used. For tuners and
 * tests. */
int trajd_cuda_shape_fits(const struct trajd_cuda_problem *problem,
                          const struct trajd_cuda_shape *shape);

/* Launches the request on the stream (a cudaStream_t) and returns. The results are complete when
 * the stream has passed the launch. `shape` NULL: by trajd_cuda_shape_of. On TRAJD_ERR_ARGUMENT and
 * TRAJD_ERR_UNSUPPORTED nothing was launched. */
enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts,
                                 const struct trajd_cuda_shape *shape, void *stream,
                                 struct trajd_error *error);
enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style,
                                       void *stream, struct trajd_error *error);
enum trajd_status trajd_cuda_run_dense(const struct trajd_dense_problem *problem,
                                       const struct trajd_device_facts *facts,
                                       const struct trajd_cuda_shape *shape, void *stream,
                                       struct trajd_error *error);

/* Launches an empty kernel, for benchmarks: the lower bound of all times. overlaps: as in a
 * shape. */
enum trajd_status trajd_cuda_run_nothing(int overlaps, void *stream, struct trajd_error *error);

/* Describes the shape of the first launch for a request of this shape, and in a few words why it is
 * chosen. Its pointers may be NULL. */
void trajd_cuda_describe(const struct trajd_resample_request *shape,
                         const struct trajd_device_facts *facts, int style,
                         struct trajd_cuda_shape *cut, char *why, uint32_t why_size);

/* Returns the shape of the first launch of such a run. */
enum trajd_status trajd_cuda_chosen(const struct trajd_resample_request *request,
                                    const struct trajd_device_facts *facts,
                                    struct trajd_cuda_shape *shape, struct trajd_error *error);
enum trajd_status trajd_cuda_chosen_dense(const struct trajd_dense_problem *problem,
                                          const struct trajd_device_facts *facts,
                                          struct trajd_cuda_shape *shape,
                                          struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
