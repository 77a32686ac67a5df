/* Totals: sums of rows over a step of time, or over the rest of the rows.
 *
 * Math      enum trajd_total in resample.h, with the masks of kernels/total.h.
 * Shapes    any; streams that share a mask are one group.
 * Requires  addresses aligned to their elements.
 * Moves     the rows of each step, the output and the mask. Steps of REST share rows, which come from
 *           the caches.
 * Threads   one a step of a group: it searches the step's rows once a stream, and makes all features
 *           and the mask.
 * Numerics  double, the last row first, without fused multiply-add: the bits of the CPU, if the stamps
 *           ascend.
 * Chosen    for streams with a total, in launches of their own behind those before them. */
#include "kernels/cuda/windows.cuh"
#include "kernels/total.h"

#define BLOCKS_MAX 65535u

/* The rows of a sum: [first, first + count). */
struct summed {
    const char *first; /* NULL: the edge's constant */
    int64_t count;
    uint32_t code;
};

/* The rest of the rows from a target on. */
__device__ __forceinline__ summed find_rest(const trajd_cuda_stream &stream,
                                            const window_view &view, const char *rows,
                                            int64_t offset)
{
    const target target = find_target(view, offset);
    summed found = {NULL, 0, TRAJD_MASK_VALID};
    entry entry;

    found.code = resolve_entry(stream, view.clock.row_count, target, rows, entry);
    found.first = entry.row;
    if (found.first)
        found.count =
            view.clock.row_count - (target.place == PLACE_BEFORE  ? 0
                                    : target.place == PLACE_AFTER ? view.clock.row_count - 1
                                                                  : target.row);
    return found;
}

/* Returns the first row at or after x. */
__device__ __forceinline__ int64_t row_from(const window_view &view, int64_t x)
{
    return x == INT64_MIN ? 0 : search_clock(view.clock, x - 1).row + 1;
}

/* The rows in a step of time [x, end). */
__device__ __forceinline__ summed find_step(const trajd_cuda_stream &stream,
                                            const trajd_cuda_bracket &bracket,
                                            const window_view &view, const char *rows,
                                            const int64_t *offsets, uint32_t step)
{
    const clock_view &clock = view.clock;
    const int64_t x = (int64_t)((uint64_t)view.anchor + (uint64_t)offsets[step]);
    const int64_t end =
        (int64_t)((uint64_t)view.anchor +
                  (uint64_t)trajd_total_end(stream.total_width, bracket.step_count, offsets, step));
    int64_t row, row_end;

    if (clock.row_count <= 0 || x < trajd_total_time(clock.stamps_ns, clock.rate, 0))
        return {NULL, 0, TRAJD_MASK_BEFORE_START};
    row = row_from(view, x);
    if (row >= clock.row_count)
        return {NULL, 0, TRAJD_MASK_AFTER_END};
    row_end = max(row_from(view, end), row);
    return {rows + row * (int64_t)stream.row_stride_bytes, row_end - row,
            trajd_total_mask(clock.stamps_ns, clock.rate, clock.row_count, stream.max_gap_ns, x,
                             end, row, row_end)};
}

__device__ __forceinline__ summed find_rows(const trajd_cuda_problem &problem,
                                            const trajd_cuda_stream &stream, uint32_t window,
                                            uint32_t step)
{
    const trajd_cuda_bracket &bracket = problem.brackets[stream.bracket_index];
    const int64_t *offsets = bracket.offsets + window * bracket.offsets_per_window;
    const window_view view = open_alone(bracket, window);
    const char *rows = rows_alone(stream, view, window);

    if (!rows)
        return {NULL, 0, TRAJD_MASK_MISSING};
    if (offsets[step] == TRAJD_NO_TARGET)
        return {NULL, 0, TRAJD_MASK_BAD_STAMP};
    return view.unit == TRAJD_GRID_ROWS ? find_rest(stream, view, rows, offsets[step])
                                        : find_step(stream, bracket, view, rows, offsets, step);
}

/* Writes a step of a stream. Returns its mask. */
__device__ __forceinline__ uint32_t write_sums(const trajd_cuda_stream &stream, const summed &rows,
                                               char *output)
{
    uint32_t code = rows.code;

    for (uint32_t d = 0; d < stream.feature_count; d++) {
        double sum = rows.first || stream.edge != TRAJD_EDGE_NAN ? 0 : nan_of<double>();
        for (int64_t i = rows.first ? rows.count - 1 : -1; i >= 0; i--)
            sum = load_element<double>(stream.source_type,
                                       rows.first + i * (int64_t)stream.row_stride_bytes, d) +
                  stream.total_gamma * sum;
        if (write_normalised<double>(stream, output, d, sum) && rows.first)
            code = max(code, (uint32_t)TRAJD_MASK_NAN);
    }
    return code;
}

__device__ __forceinline__ void write_group(const trajd_cuda_problem &problem, uint32_t group_index,
                                            uint32_t window, uint32_t step)
{
    const uint32_t first = problem.groups[group_index].first_stream,
                   end = group_index + 1 < problem.group_count
                             ? problem.groups[group_index + 1].first_stream
                             : problem.stream_count,
                   place = place_of(problem, window);
    const trajd_cuda_stream &masked = problem.streams[first];
    uint32_t code = TRAJD_MASK_VALID;

    for (uint32_t s = first; s < end; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        code = max(code, write_sums(stream, find_rows(problem, stream, window, step),
                                    stream.output + place * stream.window_stride_bytes +
                                        step * stream.step_stride_bytes));
    }
    if (masked.mask_slot == TRAJD_CUDA_NO_MASK)
        return;
    uint8_t *mask = masked.mask + place * masked.mask_window_stride_bytes + step;
    *mask = (uint8_t)(masked.mask_continues ? max(code, (uint32_t)*mask) : code);
}

__global__ void __launch_bounds__(TRAJD_CUDA_TOTAL_THREADS)
    resample_totals(const __grid_constant__ struct trajd_cuda_problem problem)
{
    const uint32_t steps = problem.groups[blockIdx.y].step_count;
    const uint64_t count = (uint64_t)problem.window_count * steps;

    wait_for_earlier_launches();
    for (uint64_t i = (uint64_t)blockIdx.x * TRAJD_CUDA_TOTAL_THREADS + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * TRAJD_CUDA_TOTAL_THREADS)
        write_group(problem, blockIdx.y, (uint32_t)(i / steps), (uint32_t)(i % steps));
}

extern "C" int trajd_cuda_launch_totals(const struct trajd_cuda_problem *problem, void *stream)
{
    const uint64_t blocks =
        ((uint64_t)problem->window_count * problem->step_count_max + TRAJD_CUDA_TOTAL_THREADS - 1) /
        TRAJD_CUDA_TOTAL_THREADS;
    const dim3 grid((uint32_t)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), problem->group_count);

    return launch_kernel(resample_totals, *problem, grid, TRAJD_CUDA_TOTAL_THREADS, 0,
                         problem->shape.overlaps, stream);
}
