/* Requests of many small streams, such as the batch of a policy, in one launch: a warp serves a few
 * targets of a stream.
 *
 * Math      resample.h.
 * Shapes    any; made for few steps and features. A group is one stream, or several streams that
 *           share a mask. A task is steps_per_task steps of a group in one window. A unit is a
 *           feature or a quaternion of a step. A warp serves a task.
 * Requires  addresses aligned to their elements.
 * Moves     counts, anchors, offsets; a window's first and last stamp and four around each
 *           target; two rows per target; output and mask once.
 * Threads   a lane goes from offset to output by itself: four dependent loads, those of all
 *           tasks at the same time. The lanes of a step combine its mask by ballots. No shared
 *           memory, no barrier.
 * Numerics  a from exact integer differences; float or double, one rounding at the store.
 * Chosen    by shape.c, if there are few units. */
#include "kernels/cuda/windows.cuh"

/* Serves one feature or quaternion. Returns the mask code of its target as far as this unit knows
 * it. */
template <typename STREAM>
__device__ __forceinline__ uint32_t serve_unit(const STREAM &stream, uint32_t window,
                                               uint32_t place, uint32_t step,
                                               const window_view &view, const target &target,
                                               uint32_t unit)
{
    const char *rows = rows_alone(stream, view, window);
    char *output =
        stream.output + place * stream.window_stride_bytes + step * stream.step_stride_bytes;
    full_entry full;
    entry entry;
    bool lost;

    const uint32_t code = resolve_entry(stream, view.clock.row_count, target, rows, entry);
    resolve_full(stream, view, target, entry, full);
    if (picks_rows(stream) && !stream.scale && source_type_of(stream) == output_type_of(stream))
        lost = copy_unit(stream, entry, element_size(source_type_of(stream)), unit, output);
    else
        lost = write_unit(stream, entry, full, unit, output);
    if (stream.derivative) {
        float *slopes =
            (float *)((char *)stream.derivative + place * stream.derivative_window_stride_bytes +
                      step * stream.derivative_step_stride_bytes);
        write_derivative(stream, entry, full, unit, slopes);
    }
    return lost ? max(code, (uint32_t)TRAJD_MASK_NAN) : code;
}

/* Returns the largest code of some lanes. Codes have three bits. */
__device__ __forceinline__ uint32_t largest_code(uint32_t code, uint32_t lanes)
{
    uint32_t largest = 0;

#pragma unroll
    for (uint32_t bit = 4; bit > 0; bit /= 2) {
        const uint32_t have = __ballot_sync(0xffffffffu, code & bit) & lanes;
        if (have) {
            largest |= bit;
            lanes = have;
        }
    }
    return largest;
}

/* Serves a lane's share of a step: units unit, unit + 32, ... over the group's streams. */
template <int SOURCE, int OUTPUT, typename P>
__device__ __forceinline__ uint32_t serve_units(const P &problem, const trajd_cuda_group &group,
                                                uint32_t window, uint32_t place, uint32_t step,
                                                uint32_t unit)
{
    uint32_t code = TRAJD_MASK_VALID, s = group.first_stream, before = 0,
             found_bracket = UINT32_MAX;
    window_view view;
    target target;

#pragma unroll 1
    for (; unit < group.unit_count; unit += 32) {
        while (unit - before >= problem.streams[s].unit_count)
            before += problem.streams[s++].unit_count;
        const typed_stream<SOURCE, OUTPUT> &stream =
            static_cast<const typed_stream<SOURCE, OUTPUT> &>(problem.streams[s]);
        if (stream.bracket_index != found_bracket) {
            const trajd_cuda_bracket &bracket = problem.brackets[stream.bracket_index];
            const int64_t offset =
                __ldg(bracket.offsets + window * bracket.offsets_per_window + step);
            found_bracket = stream.bracket_index;
            view = open_alone(bracket, window);
            target = find_target(view, offset);
        }
        code = max(code, serve_unit(stream, window, place, step, view, target, unit - before));
    }
    return code;
}

/* Reads parameters early, as touch_parameters in lean.cuh. */
__device__ __forceinline__ void touch_parameters(const trajd_cuda_stream &stream,
                                                 const trajd_cuda_bracket &bracket)
{
    asm volatile("" ::"l"(stream.base), "l"(stream.output), "l"(stream.mask),
                 "l"(stream.max_age_ns), "l"(stream.derivative), "r"(stream.feature_count),
                 "l"(bracket.stamps_ns), "l"(bracket.row_begin), "r"(bracket.unit));
}

template <int SOURCE, int OUTPUT, typename P>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_FULL_BLOCKS_MIN)
    resample_batch(const __grid_constant__ P problem)
{
    const uint32_t task = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32,
                   lane = threadIdx.x % 32;
    const uint32_t window = blockIdx.x;
    uint32_t g = 0, code = TRAJD_MASK_VALID;

    if (task >= problem.task_count)
        return;
    while (g + 1 < problem.group_count && problem.groups[g + 1].first_task <= task)
        g++;
    const trajd_cuda_group &group = problem.groups[g];
    const uint32_t slot = lane * group.unit_reciprocal >> 16, unit = lane - slot * group.unit_count;
    const uint32_t step = (task - group.first_task) * group.steps_per_task + slot;
    const bool serves = slot < group.steps_per_task && step < group.step_count;

    touch_parameters(problem.streams[group.first_stream],
                     problem.brackets[problem.streams[group.first_stream].bracket_index]);
    wait_for_earlier_launches();
    const uint32_t place = place_of(problem, window);
    if (serves)
        code = serve_units<SOURCE, OUTPUT>(problem, group, window, place, step, unit);
    __syncwarp();
    const trajd_cuda_stream &stream = problem.streams[group.first_stream];
    if (stream.mask_slot == TRAJD_CUDA_NO_MASK)
        return;
    const uint32_t width = min(group.unit_count, 32u);
    const uint32_t lanes = (width < 32 ? (1u << width) - 1 : 0xffffffffu) << (slot * width);
    code = largest_code(code, lanes);
    if (serves && unit == 0) {
        uint8_t *mask = stream.mask + place * stream.mask_window_stride_bytes + step;
        *mask = (uint8_t)(stream.mask_continues ? max(code, (uint32_t)*mask) : code);
    }
}

/* Picks the kernel for the types that all streams have. 0: their types differ, or there is no
 * special kernel for them. */
template <typename P> static void (*kernel_of(const struct trajd_cuda_problem *problem))(const P)
{
    const struct trajd_cuda_stream *first = &problem->streams[0];

    for (int s = 1; s < problem->stream_count; s++)
        if (first[s].source_type != first->source_type ||
            first[s].output_type != first->output_type)
            return resample_batch<0, 0, P>;
    if (first->source_type == TRAJD_BF16 && first->output_type == TRAJD_BF16)
        return resample_batch<TRAJD_BF16, TRAJD_BF16, P>;
    if (first->source_type == TRAJD_F32 && first->output_type == TRAJD_F32)
        return resample_batch<TRAJD_F32, TRAJD_F32, P>;
    if (first->source_type == TRAJD_F32 && first->output_type == TRAJD_BF16)
        return resample_batch<TRAJD_F32, TRAJD_BF16, P>;
    return resample_batch<0, 0, P>;
}

extern "C" int trajd_cuda_launch_batch(const struct trajd_cuda_problem *problem, void *stream)
{
    uint32_t threads = problem->shape.thread_count;
    dim3 grid(problem->window_count, (problem->task_count - 1) / (threads / 32) + 1);

    if (has_few_streams(problem))
        return launch_kernel(kernel_of<struct few_streams>(problem), take_few_streams(problem),
                             grid, threads, 0, problem->shape.overlaps, stream);
    return launch_kernel(kernel_of<struct trajd_cuda_problem>(problem), *problem, grid, threads, 0,
                         problem->shape.overlaps, stream);
}
