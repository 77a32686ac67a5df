/* The first half of the kernels of one stream: from a window and its offsets to entries, and the
 * place of the outputs.
 *
 * Time here is the chain of dependent instructions and loads. So the paths of nearly all targets
 * (inside a staged or unstaged window of stamps) are straight, and all other paths are a function
 * call. */
#ifndef TRAJD_KERNELS_CUDA_LEAN_ENTRY_CUH
#define TRAJD_KERNELS_CUDA_LEAN_ENTRY_CUH

#include "kernels/cuda/lean.cuh"

/* Finds a rare target: a regular clock, a clock of few rows, a grid of rows, or a missing stream.
 * Reads all from memory, so that the fast path keeps no registers for it. Returns an entry and its
 * code in registers: x, y the row; z the fraction; w the code and whether there are two rows. */
static __device__ __noinline__ uint4 find_elsewhere(const lean_problem &problem, uint32_t window,
                                                    int64_t offset)
{
    const char *rows = problem.base;
    int64_t row_begin = window * problem.dense_rows;
    window_view view;
    entry made;

    view.clock.row_count = problem.dense_rows;
    view.anchor = 0;
    if (problem.row_begin) {
        row_begin = problem.row_begin[window];
        view.clock.row_count = problem.row_count[window];
        view.anchor = problem.anchor[window];
    }
    view.clock.stamps_ns = problem.stamps_ns ? problem.stamps_ns + row_begin : NULL;
    view.clock.rate = problem.rate;
    if (problem.searches && view.clock.row_count > 0) {
        view.clock.first_ns = view.clock.stamps_ns[0];
        view.clock.last_ns = view.clock.stamps_ns[view.clock.row_count - 1];
    }
    if (problem.bases) {
        rows = (const char *)problem.bases[window];
        rows = rows ? rows + problem.first_column_bytes : NULL;
    } else {
        rows += row_begin * (int64_t)problem.row_stride_bytes;
    }
    view.row_begin = 0;
    view.unit = problem.unit;
    const target target = find_target(view, offset);
    const uint32_t code = resolve_entry(problem, view.clock.row_count, target, rows, made);
    return make_uint4((uint32_t)(uintptr_t)made.row, (uint32_t)((uintptr_t)made.row >> 32),
                      __float_as_uint(made.a), code | (made.next_bytes ? 256u : 0u));
}

__device__ __forceinline__ entry make_rare_entry(const lean_problem &problem, uint32_t window,
                                                 int64_t offset, uint32_t &code)
{
    const uint4 found = find_elsewhere(problem, window, offset);

    code = found.w & 255u;
    return {(const char *)((uint64_t)found.y << 32 | found.x), __uint_as_float(found.z),
            found.w & 256u ? problem.row_stride_bytes : 0};
}

/* Makes the entry of a target before the first row or from the last row on in a plain window, or of
 * an offset without target. */
__device__ __forceinline__ entry make_edge_entry(const lean_problem &problem,
                                                 const lean_window &window, int64_t x,
                                                 bool is_target, uint32_t &code)
{
    const bool before = x < window.first_ns, held = problem.max_age_ns >= 0;
    const uint64_t past = (uint64_t)x - (uint64_t)window.last_ns;
    const bool has_row =
        is_target && (problem.edge == TRAJD_EDGE_HOLD || (!before && (held || past == 0)));
    const int32_t row = before ? 0 : (int32_t)window.row_count - 1;

    if (!is_target)
        code = TRAJD_MASK_BAD_STAMP;
    else if (before)
        code = TRAJD_MASK_BEFORE_START;
    else if (past == 0)
        code = TRAJD_MASK_VALID;
    else
        code = !held                                 ? TRAJD_MASK_AFTER_END
               : past > (uint64_t)problem.max_age_ns ? TRAJD_MASK_TOO_OLD
                                                     : TRAJD_MASK_VALID;
    return {has_row ? window.rows + (int64_t)row * problem.row_stride_bytes : NULL, -0.0f, 0};
}

/* Loads a stamp here. Without the asm the compiler would delay the load until the stamp is surely
 * needed. */
template <bool STAGED>
__device__ __forceinline__ int64_t load_stamp(const int64_t *stamps, int32_t row)
{
    int64_t value;

    if (STAGED)
        asm volatile("ld.shared.s64 %0, [%1];"
                     : "=l"(value)
                     : "r"((uint32_t)__cvta_generic_to_shared(stamps + row)));
    else
        asm volatile("ld.global.nc.s64 %0, [%1];" : "=l"(value) : "l"(stamps + row));
    return value;
}

/* Makes the entry of one target in a plain window, and its mask code so far. guess_offset: the part
 * of a row that will be loaded; it is prefetched as soon as there is a guess. */
template <bool STAGED>
__device__ __forceinline__ entry make_plain_entry(const lean_problem &problem,
                                                  const lean_window &window, const int64_t *stamps,
                                                  int64_t offset, uint32_t guess_offset,
                                                  uint32_t &code)
{
    const int64_t x = (int64_t)((uint64_t)window.anchor + (uint64_t)offset);

    if (x < window.first_ns || x >= window.last_ns || offset == TRAJD_NO_TARGET)
        return make_edge_entry(problem, window, x, offset != TRAJD_NO_TARGET, code);
    const int32_t last = (int32_t)window.row_count - 1;
    const float guess = float_of((uint64_t)x - (uint64_t)window.first_ns) * window.rows_per_ns;
    int32_t row = max(min((int32_t)guess, last - 2) - 1, 0);
    if (!STAGED && (problem.prefetch & TRAJD_CUDA_PREFETCH_GUESS)) {
        const char *guessed =
            window.rows + (int64_t)(row + 1) * problem.row_stride_bytes + guess_offset;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(guessed));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(guessed + problem.row_stride_bytes));
    }
    const int64_t at0 = load_stamp<STAGED>(stamps, row),
                  at1 = load_stamp<STAGED>(stamps, min(row + 1, last));
    const int64_t at2 = load_stamp<STAGED>(stamps, min(row + 2, last)),
                  at3 = load_stamp<STAGED>(stamps, min(row + 3, last));
    const bool second = at1 <= x, third = at2 <= x;
    int64_t low = third ? at2 : second ? at1 : at0, high = third ? at3 : second ? at2 : at1;

    if (at0 <= x && x < at3) {
        row += second + third;
    } else { /* the clock drifted further: bisection */
        int32_t above = x < at0 ? row : last;
        row = x < at0 ? 0 : min(row + 3, last);
#pragma unroll 1
        while (above - row > 1) {
            const int32_t middle = row + (above - row) / 2;
            if (load_stamp<STAGED>(stamps, middle) <= x)
                row = middle;
            else
                above = middle;
        }
        low = load_stamp<STAGED>(stamps, row);
        high = load_stamp<STAGED>(stamps, above);
    }
    const uint64_t past = (uint64_t)x - (uint64_t)low, width = (uint64_t)high - (uint64_t)low;
    const bool inside = past != 0 && past < width;
    entry made = {NULL, -0.0f, 0};

    /* stamps that do not ascend may give any place */
    code = past == 0                       ? TRAJD_MASK_VALID
           : past >= width                 ? TRAJD_MASK_BAD_STAMP
           : width > problem.max_gap_width ? TRAJD_MASK_GAP
                                           : TRAJD_MASK_VALID;
    if (inside && problem.kind == TRAJD_KIND_LINEAR) {
        made.a = share_of(past, width);
        made.next_bytes = problem.row_stride_bytes;
    } else if (inside && problem.kind == TRAJD_KIND_NEAREST) {
        row += past >= width - past;
    }
    made.row = window.rows + (int64_t)row * problem.row_stride_bytes;
    return made;
}

/* Makes the entry of one target in any window. */
__device__ __forceinline__ entry make_entry(const lean_problem &problem, const lean_window &window,
                                            const int64_t *stage, uint32_t window_index,
                                            int64_t offset, uint32_t &code)
{
    if (!window.plain)
        return make_rare_entry(problem, window_index, offset, code);
    return window.staged
               ? make_plain_entry<true>(problem, window, stage, offset, 0, code)
               : make_plain_entry<false>(problem, window, window.stamps_ns, offset, 0, code);
}

/* Writes one byte of a mask, which earlier streams may have written. */
__device__ __forceinline__ void write_code(const lean_problem &problem, uint8_t *at, uint32_t code)
{
    *at = (uint8_t)(problem.mask_continues ? max(code, (uint32_t)*at) : code);
}

typedef tile_output<uint32_t, own_mask> lean_output;

__device__ __forceinline__ team whole_block()
{
    return {threadIdx.x, blockDim.x};
}

/* Where a block's tile begins, and how many targets it has. */
struct lean_tile {
    uint32_t first_step;
    uint32_t step_count;
};

/* Returns a block's tile. step_count is 0 beyond the last tile. */
__device__ __forceinline__ lean_tile tile_at(const lean_problem &problem, uint32_t number)
{
    uint32_t first = number * problem.tile_steps, count = problem.step_count;

    return {first, first < count ? min(count - first, problem.tile_steps) : 0};
}

__device__ __forceinline__ lean_output output_here(const lean_problem &problem,
                                                   const lean_window &window, uint32_t first_step)
{
    return {problem.output + window.place * problem.window_stride_bytes +
                (uint64_t)first_step * problem.step_stride_bytes,
            problem.step_stride_bytes,
            {problem.mask
                 ? problem.mask + window.place * problem.mask_window_stride_bytes + first_step
                 : NULL}};
}

/* Writes a tile element by element, by all threads of its block, for any window and values. The
 * fast paths leave rare cases to it. It reads all from memory, and overwrites output and mask. */
template <typename S, typename O>
static __device__ __noinline__ void write_slowly(const lean_problem &problem, uint32_t first_step,
                                                 uint32_t step_count)
{
    const uint32_t window = blockIdx.y,
                   place = problem.window_rows ? problem.window_rows[window] : window;
    uint8_t *mask =
        problem.mask ? problem.mask + place * problem.mask_window_stride_bytes + first_step : NULL;
    char *output = problem.output + place * problem.window_stride_bytes +
                   (uint64_t)first_step * problem.step_stride_bytes;
    uint32_t code;

    for (uint32_t step = threadIdx.x; mask && step < step_count; step += blockDim.x) {
        make_rare_entry(problem, window, load_offset(problem, window, first_step + step), code);
        write_code(problem, mask + step, code);
    }
    __syncthreads();
    for (uint64_t item = threadIdx.x; item < (uint64_t)step_count * problem.feature_count;
         item += blockDim.x) {
        const uint32_t step = (uint32_t)(item / problem.feature_count);
        const uint32_t feature = (uint32_t)(item - (uint64_t)step * problem.feature_count);
        const entry made =
            make_rare_entry(problem, window, load_offset(problem, window, first_step + step), code);
        char *to = output + (uint64_t)step * problem.step_stride_bytes;
        vector_of<S, 1> low, high;

        low.raw = high.raw = 0;
        if (made.row && made.next_bytes) {
            low = load_vector<S, 1>(made.row + (uint64_t)feature * sizeof(S));
            high = load_vector<S, 1>(made.row + made.next_bytes + (uint64_t)feature * sizeof(S));
            store_vector<O, 1>(to + (uint64_t)feature * sizeof(O),
                               blend<S, O, 1>(problem, made.a, low, high, feature));
        }
        if (look_closer<S, O, 1>(problem.scale, problem.offset, problem.edge, made, feature,
                                 to + (uint64_t)feature * sizeof(O)) &&
            mask)
            own_mask{mask}.mark(step);
    }
}

typedef void lean_kernel(const struct lean_problem problem);

/* Picks the kernel for vectors of that many elements: PICK::kernel<S, O, V>(). */
template <typename S, typename O, typename PICK>
static lean_kernel *kernel_of_width(const PICK &pick, uint32_t vector_width)
{
    if constexpr (sizeof(S) == 2 && sizeof(O) == 2)
        if (vector_width == 8)
            return pick.template kernel<S, O, 8>();
    return vector_width == 4   ? pick.template kernel<S, O, 4>()
           : vector_width == 2 ? pick.template kernel<S, O, 2>()
                               : pick.template kernel<S, O, 1>();
}

/* Picks the kernel for a pair of types that was measured. NULL: for another one. */
template <typename PICK>
static lean_kernel *kernel_of_path(const PICK &pick, const struct trajd_cuda_stream &stream)
{
    switch (stream.path) {
    case TRAJD_CUDA_BF16:
        return kernel_of_width<__nv_bfloat16, __nv_bfloat16>(pick, stream.vector_width);
    case TRAJD_CUDA_F32:
        return kernel_of_width<float, float>(pick, stream.vector_width);
    case TRAJD_CUDA_F32_BF16:
        return kernel_of_width<float, __nv_bfloat16>(pick, stream.vector_width);
    default:
        return NULL;
    }
}

/* Launches a block for each tile of each window. */
static inline int launch_tiles(lean_kernel *kernel, const struct trajd_cuda_problem *problem,
                               const struct lean_problem &lean, void *stream)
{
    const dim3 grid((problem->step_count_max - 1) / problem->shape.tile_steps + 1,
                    problem->window_count);

    if (!kernel)
        return (int)cudaErrorInvalidValue;
    return launch_kernel(kernel, lean, grid, problem->shape.thread_count,
                         trajd_cuda_shared_bytes(problem), problem->shape.overlaps, stream);
}

#endif
