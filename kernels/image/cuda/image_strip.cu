/* Crops, flips and colours, in one launch.
 *
 * Math      augment.h and image_finish.h. The crops and flips of a frame make one window of it.
 * Shapes    u8 of 3 channels; up to 4 colour steps with at most one contrast; any layout and type.
 * Requires  sources at multiples of 16 bytes (bulk loads), sm_90.
 * Moves     the source rows from the first pixel of the window to the last one, once, and the output
 *           once.
 * Threads   a block takes rows of one frame: one thread loads them with one bulk copy into shared
 *           memory, then a thread makes 4 pixels side by side. With a contrast, the blocks of a frame
 *           are a cluster. They make the steps before it once more to add up its mean, and send each
 *           other their sums.
 * Numerics  colours from 0 to 1 in float32 with fused multiply-add, clipped by the instruction itself.
 *           Within one level of the CPU. Without colours, the same bytes.
 * Chosen    for prepared frames that are cropped, mirrored or coloured. */
#include "kernels/image/cuda/image_launch.h"
#include "kernels/image/cuda/instructions.cuh"
#include "kernels/image/cuda/image_out.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)

struct strip_problem {
    struct trajd_image_program program;
    struct trajd_image_strip strip;
    const char *records;
    uint32_t record_bytes;
    uint32_t groups_reciprocal;
};

/* The colour steps of a frame that change it. A brightness at the beginning is part of `scale`, which
 * turns bytes into 0 to 1. */
struct strip_colors {
    float scale;
    uint32_t count;
    int32_t contrast; /* which; -1: none */
    uint32_t kinds[TRAJD_IMAGE_STRIP_COLORS];
    float factors[TRAJD_IMAGE_STRIP_COLORS];
};

/* Brightness, contrast, saturation and hue of a frame, in this order. Those that it does not have
 * change nothing. */
struct ordered_colors {
    float scale, down; /* a lifted byte becomes 0 to 1, brightness included */
    float contrast;
    float saturation, grey[3]; /* (1 - saturation) * the weights of grey */
    float hue;                 /* in sixths of the circle */
    bool has_mean;
};

struct strip_head {
    uint64_t rows, sums_arrived; /* barriers */
    float warps[WARPS];
    float sums[TRAJD_IMAGE_CLUSTER_MAX]; /* of the blocks of the cluster */
    strip_colors colors;
    ordered_colors ordered;
};
static_assert(sizeof(strip_head) <= TRAJD_IMAGE_STRIP_HEAD_BYTES, "the rows begin behind it");

/* Pixel (y, x) of the output is pixel (top + y, left + x) of the source, or (top + y, left - x). */
struct window {
    int32_t top, left;
    bool is_flipped;
};

__device__ __forceinline__ window window_of(const struct trajd_image_program &p,
                                            const union trajd_image_value *values)
{
    window w = {0, 0, false};

    for (uint32_t i = p.passes[0].colors; i > 0; i--) {
        const struct trajd_image_step &step = p.steps[i - 1];
        const int32_t *box = values[step.value].box;
        if (step.op == TRAJD_IMAGE_OP_CROP) {
            w.top += box[0];
            w.left += box[1];
        } else if (box[0]) {
            w.left = (int32_t)step.width - 1 - w.left;
            w.is_flipped = !w.is_flipped;
        }
    }
    return w;
}

__device__ void open_colors(const struct trajd_image_program &p,
                            const union trajd_image_value *values, strip_colors *made)
{
    made->scale = 1 / 255.0F;
    made->count = 0;
    made->contrast = -1;
    for (uint32_t i = p.passes[0].colors; i < p.passes[0].end; i++) {
        const struct trajd_image_step &step = p.steps[i];
        const float factor = values[step.value].factor;
        if (factor == (step.kind == TRAJD_AUGMENT_HUE ? 0 : 1))
            continue;
        if (i == p.passes[0].colors && step.kind == TRAJD_AUGMENT_BRIGHTNESS) {
            made->scale *= factor;
            continue;
        }
        if (step.kind == TRAJD_AUGMENT_CONTRAST)
            made->contrast = (int32_t)made->count;
        made->kinds[made->count] = step.kind;
        made->factors[made->count++] = factor;
    }
}

__device__ void open_ordered(const struct trajd_image_program &p,
                             const union trajd_image_value *values, ordered_colors *made)
{
    float scale = 1 / 255.0F, saturation = 1;

    *made = {0, 0, 1, 1, {0, 0, 0}, 0, false};
    for (uint32_t i = p.passes[0].colors; i < p.passes[0].end; i++) {
        const float factor = values[p.steps[i].value].factor;
        switch (p.steps[i].kind) {
        case TRAJD_AUGMENT_BRIGHTNESS:
            scale *= factor;
            break;
        case TRAJD_AUGMENT_CONTRAST:
            made->contrast = factor;
            made->has_mean = factor != 1;
            break;
        case TRAJD_AUGMENT_SATURATION:
            saturation = factor;
            break;
        default:
            made->hue = 6 * factor;
        }
    }
    made->scale = scale;
    made->down = -TWO_23 * scale;
    made->saturation = saturation;
    made->grey[0] = (1 - saturation) * 0.2989F;
    made->grey[1] = (1 - saturation) * 0.587F;
    made->grey[2] = (1 - saturation) * 0.114F;
}

__device__ __forceinline__ float grey(const float (&v)[3])
{
    return fmaf(0.114F, v[2], fmaf(0.587F, v[1], 0.2989F * v[0]));
}

/* With k the hue in sixths of the circle, from -3 to 3 around red. augment_color.c has the same
 * formula with a hue from 0 to 6. Here the channels are sorted first, which needs no branch. */
__device__ __forceinline__ void turn_hue(float (&v)[3], float sixths)
{
    const float high = fmaxf(v[1], v[2]), low = fminf(v[1], v[2]);
    const float most = fmaxf(v[0], high), middle = fminf(v[0], high);
    const float base = choose(v[1] < v[2], -6, 0);
    const float from = choose(v[0] < high, -2 - base, base);
    const float range = most - fminf(middle, low);
    /* without a range this is not a number, which __saturatef makes 0 */
    float k = fabsf(fmaf(middle - low, reciprocal(range), from)) + sixths;
    if (k > 3)
        k -= 6;

    v[0] = fmaf(-range, __saturatef(fabsf(k) - 1), most);
    v[1] = fmaf(-range, __saturatef(2 - fabsf(k + 1)), most);
    v[2] = fmaf(-range, __saturatef(2 - fabsf(k - 1)), most);
}

/* v = factor * v + other, clipped. */
__device__ __forceinline__ void blend(float factor, float other, float (&v)[3])
{
#pragma unroll
    for (int c = 0; c < 3; c++)
        v[c] = __saturatef(fmaf(factor, v[c], other));
}

/* The first `count` colour steps of 4 pixels, from lifted bytes to 0 to 1. A contrast is about `about`.
 * The loop is not unrolled: its body, a step for all four, fits into the instruction cache. */
__device__ __forceinline__ void change_four(const strip_colors &colors, uint32_t count, float about,
                                            float (&v)[4][3])
{
    const float scale = colors.scale, down = -TWO_23 * scale;

#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < 3; c++)
            v[i][c] = __saturatef(scaled(v[i][c], scale, down));
#pragma unroll 1
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t kind = colors.kinds[k];
        const float factor = colors.factors[k];
        if (kind == TRAJD_AUGMENT_HUE) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                turn_hue(v[i], 6 * factor);
        } else if (kind == TRAJD_AUGMENT_SATURATION) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                blend(factor, (1 - factor) * grey(v[i]), v[i]);
        } else {
            const float other = kind == TRAJD_AUGMENT_CONTRAST ? about : 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                blend(factor, other, v[i]);
        }
    }
}

/* All colours of 4 pixels, from lifted bytes to 0 to 1. */
__device__ __forceinline__ void change_ordered(const ordered_colors &c, float about,
                                               float (&v)[4][3])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int k = 0; k < 3; k++)
            v[i][k] = __saturatef(scaled(v[i][k], c.scale, c.down));
        blend(c.contrast, about, v[i]);
        blend(c.saturation, fmaf(c.grey[2], v[i][2], fmaf(c.grey[1], v[i][1], c.grey[0] * v[i][0])),
              v[i]);
    }
    if (c.hue != 0)
#pragma unroll
        for (int i = 0; i < 4; i++)
            turn_hue(v[i], c.hue);
}

/* The 12 bytes of 4 pixels of which the first has its first byte at `at` of shared memory. */
__device__ __forceinline__ void load_words(const char *memory, uint32_t at, uint32_t (&w)[3])
{
    const uint32_t *words = (const uint32_t *)(memory + (at & ~3U));
    const uint32_t bits = (at & 3) * 8;
    const uint32_t a = words[0], b = words[1], c = words[2], d = words[3];

    w[0] = __funnelshift_r(a, b, bits);
    w[1] = __funnelshift_r(b, c, bits);
    w[2] = __funnelshift_r(c, d, bits);
}

/* Loads 4 pixels, lifted, of which the first has its first byte at `at` of shared memory. */
__device__ __forceinline__ void load_four(const char *memory, uint32_t at, float (&lifted)[4][3])
{
    uint32_t w[3];

    load_words(memory, at, w);
    lifted[0][0] = lift<0>(w[0]);
    lifted[0][1] = lift<1>(w[0]);
    lifted[0][2] = lift<2>(w[0]);
    lifted[1][0] = lift<3>(w[0]);
    lifted[1][1] = lift<0>(w[1]);
    lifted[1][2] = lift<1>(w[1]);
    lifted[2][0] = lift<2>(w[1]);
    lifted[2][1] = lift<3>(w[1]);
    lifted[2][2] = lift<0>(w[2]);
    lifted[3][0] = lift<1>(w[2]);
    lifted[3][1] = lift<2>(w[2]);
    lifted[3][2] = lift<3>(w[2]);
}

__device__ __forceinline__ void swap_pixels(float (&a)[3], float (&b)[3])
{
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const float kept = a[c];
        a[c] = b[c];
        b[c] = kept;
    }
}

/* The rows of a block in shared memory. */
struct rows {
    const char *memory;
    uint32_t first; /* byte of the block's first pixel */
    uint32_t row_bytes;
    bool is_flipped;
    uint32_t columns; /* of the output */
};

/* Loads the group of 4 pixels at column x of a row of the block. */
__device__ __forceinline__ void load_group(const rows &r, uint32_t row, uint32_t x,
                                           float (&lifted)[4][3])
{
    if (!r.is_flipped) {
        load_four(r.memory, r.first + row * r.row_bytes + x * 3, lifted);
        return;
    }
    /* the group's last pixel comes first in memory; it may lie before the row */
    load_four(r.memory, r.first + row * r.row_bytes + (r.columns - 4 - x) * 3, lifted);
    swap_pixels(lifted[0], lifted[3]);
    swap_pixels(lifted[1], lifted[2]);
}

/* Brings the block's rows into shared memory: from `begin` to `end` of the source. Bytes before the
 * first 16 of the memory are room for groups that reach beyond a row. `is_cluster`: blocks will send
 * each other sums. */
__device__ __forceinline__ uint32_t load_rows(char *memory, strip_head *head, const char *source,
                                              uint64_t begin, uint64_t end, bool is_cluster)
{
    const uint64_t aligned = begin & ~UINT64_C(15);

    if (threadIdx.x == 0) {
        const uint32_t bytes = end > begin ? (uint32_t)((end - aligned + 15) & ~UINT64_C(15)) : 0;
        barrier_init(&head->rows, 1);
        barrier_init(&head->sums_arrived, 1);
        bulk_fence();
        barrier_arrive_expecting(&head->rows, bytes);
        if (bytes)
            bulk_load(memory + 16, source + aligned, bytes, &head->rows);
    }
    if (is_cluster)
        cluster_arrive();
    __syncthreads();
    barrier_wait(&head->rows, 0);
    return (uint32_t)(begin - aligned) + 16;
}

/* The row of the block that an item belongs to. */
__device__ __forceinline__ uint32_t row_of(const strip_problem &problem, uint32_t item)
{
    return problem.strip.groups == 1 ? item : __umulhi(item, problem.groups_reciprocal);
}

/* Calls take(row, x) for each group of 4 pixels of this thread, which begins at column x. */
template <typename TAKE>
__device__ __forceinline__ void for_groups(const strip_problem &problem, uint32_t count,
                                           const TAKE &take)
{
    for (uint32_t item = threadIdx.x; item < count; item += THREADS) {
        const uint32_t row = row_of(problem, item);
        take(row, (item - row * problem.strip.groups) * 4);
    }
}

/* The grey of this thread's pixels before the contrast, added up. */
__device__ __forceinline__ float sum_steps(const strip_problem &problem, const rows &r,
                                           uint32_t count, const strip_colors &colors)
{
    float sum = 0;

    for_groups(problem, count, [&](uint32_t row, uint32_t x) {
        float v[4][3];
        load_group(r, row, x, v);
        change_four(colors, (uint32_t)colors.contrast, 0, v);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum += x + i < r.columns ? grey(v[i]) : 0;
    });
    return sum;
}

/* Adds the bytes of each channel of 4 pixels. */
__device__ __forceinline__ void add_channels(const uint32_t (&w)[3], uint32_t (&sums)[3])
{
    static constexpr uint32_t which[3][3] = {{0x01000001, 0x00010000, 0x00000100},
                                             {0x00000100, 0x01000001, 0x00010000},
                                             {0x00010000, 0x00000100, 0x01000001}};

#pragma unroll
    for (int c = 0; c < 3; c++)
#pragma unroll
        for (int i = 0; i < 3; i++)
            sums[c] = __dp4a(w[i], which[c][i], sums[c]);
}

/* The same as sum_clipped where no pixel is clipped: the sums of the channels are whole numbers. */
__device__ __forceinline__ float sum_unclipped(const strip_problem &problem, const rows &r,
                                               uint32_t count, float scale)
{
    uint32_t sums[3] = {};

    for_groups(problem, count, [&](uint32_t row, uint32_t x) {
        const uint32_t inside = min(r.columns - x, 4U);
        uint32_t w[3];
        load_words(r.memory, r.first + row * r.row_bytes + x * 3, w);
        if (inside < 4) {
            w[0] &= 0xFFFFFFFFU >> (inside == 1 ? 8 : 0);
            w[1] &= inside == 1 ? 0 : 0xFFFFFFFFU >> (inside == 2 ? 16 : 0);
            w[2] &= inside == 3 ? 0xFF : 0;
        }
        add_channels(w, sums);
    });
    return scale * fmaf(0.114F, sums[2], fmaf(0.587F, sums[1], 0.2989F * sums[0]));
}

__device__ __forceinline__ float sum_clipped(const strip_problem &problem, const rows &r,
                                             uint32_t count, const ordered_colors &colors)
{
    const float scale = colors.scale, down = colors.down;
    float sum = 0;

    for_groups(problem, count, [&](uint32_t row, uint32_t x) {
        const uint32_t inside = min(r.columns - x, 4U);
        float v[4][3];
        load_four(r.memory, r.first + row * r.row_bytes + x * 3, v);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < 3; c++)
                v[i][c] = __saturatef(scaled(v[i][c], scale, down));
        if (inside == 4)
            sum += grey(v[0]) + grey(v[1]) + (grey(v[2]) + grey(v[3]));
        else
            for (int i = 0; i < 3; i++)
                sum += (uint32_t)i < inside ? grey(v[i]) : 0;
    });
    return sum;
}

/* Returns the mean grey of a frame of the sums of all its threads. Each block sends its sum to all blocks
 * of the frame, which wait for nothing else. */
__device__ __forceinline__ float mean_of(const strip_problem &problem, float sum, strip_head *head)
{
    const uint32_t blocks = problem.strip.blocks;
    float total = 0;

    for (int lane = 16; lane; lane /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, lane);
    if (threadIdx.x % 32 == 0)
        head->warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < blocks)
        for (int i = 0; i < WARPS; i++)
            total += head->warps[i];
    if (threadIdx.x == blockIdx.x) {
        head->sums[blockIdx.x] = total;
        barrier_arrive_expecting(&head->sums_arrived, (blocks - 1) * sizeof(float));
    } else if (threadIdx.x < blocks) {
        send_to_block(total, &head->sums[blockIdx.x], &head->sums_arrived, threadIdx.x);
    }
    barrier_wait(&head->sums_arrived, 0);
    total = 0;
    for (uint32_t i = 0; i < blocks; i++)
        total += head->sums[i];
    return total / ((float)problem.program.height * (float)problem.program.width);
}

/* Returns what the contrast is about: (1 - factor) * the mean grey of the frame as it is before. 0
 * without a contrast. */
template <trajd_image_strip_colors COLORS>
__device__ __forceinline__ float about_of(const strip_problem &problem, const rows &r,
                                          uint32_t count, strip_head *head)
{
    if (COLORS == TRAJD_IMAGE_STRIP_STEPS) {
        const strip_colors &c = head->colors;
        return c.contrast < 0 ? 0
                              : (1 - c.factors[c.contrast]) *
                                    mean_of(problem, sum_steps(problem, r, count, c), head);
    }
    const ordered_colors &c = head->ordered;
    if (!c.has_mean)
        return 0;
    const float sum = c.scale <= 1 / 255.0F ? sum_unclipped(problem, r, count, c.scale)
                                            : sum_clipped(problem, r, count, c);
    return (1 - c.contrast) * mean_of(problem, sum, head);
}

template <typename T, bool CHW, trajd_image_strip_colors COLORS>
__global__ void __launch_bounds__(THREADS, 6)
    image_strip(const __grid_constant__ strip_problem problem)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) char memory[];
    strip_head *head = (strip_head *)memory;
    const struct trajd_image_program &p = problem.program;
    const struct trajd_image_record *record =
        (const struct trajd_image_record *)(problem.records +
                                            (uint64_t)blockIdx.y * problem.record_bytes);
    const union trajd_image_value *values = (const union trajd_image_value *)(record + 1);
    const window w = window_of(p, values);
    const uint32_t first_row = blockIdx.x * problem.strip.rows;
    /* blocks of a cluster may have no rows */
    const uint32_t row_count =
        first_row < p.height ? min(problem.strip.rows, p.height - first_row) : 0;
    const uint32_t left = w.is_flipped ? w.left + 1 - p.width : w.left;
    const uint64_t begin = ((uint64_t)(w.top + first_row) * p.from_width + left) * 3;
    const uint32_t row_bytes = p.from_width * 3;
    rows r = {memory + TRAJD_IMAGE_STRIP_HEAD_BYTES, 0, row_bytes, w.is_flipped, p.width};
    const uint32_t count = row_count * problem.strip.groups;

    if (COLORS == TRAJD_IMAGE_STRIP_STEPS && threadIdx.x == 32)
        open_colors(p, values, &head->colors);
    if (COLORS == TRAJD_IMAGE_STRIP_ORDERED && threadIdx.x == 32)
        open_ordered(p, values, &head->ordered);
    r.first =
        load_rows(memory + TRAJD_IMAGE_STRIP_HEAD_BYTES, head, (const char *)record->source, begin,
                  row_count ? begin + (uint64_t)(row_count - 1) * row_bytes + p.width * 3 : begin,
                  COLORS && p.mean_count);
    if (COLORS && p.mean_count) /* the others have begun: they can be sent sums */
        cluster_wait();
    const float about = COLORS ? about_of<COLORS>(problem, r, count, head) : 0;
    const ordered_colors ordered =
        COLORS == TRAJD_IMAGE_STRIP_ORDERED ? head->ordered : ordered_colors{};
    out_tensor<T> tensor = open_tensor<T, 4>(p, record->output);
    keep_channels(tensor);
    for_groups(problem, count, [&](uint32_t row, uint32_t x) {
        float v[4][3];
        load_group(r, row, x, v);
        if (COLORS) {
            if (COLORS == TRAJD_IMAGE_STRIP_STEPS)
                change_four(head->colors, head->colors.count, about, v);
            else
                change_ordered(ordered, about, v);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < 3; c++)
                    v[i][c] = fmaf(v[i][c], 255, TWO_23);
        }
        store_pixels<T, CHW, 4>(tensor, first_row + row, x, v);
    });
#endif
}

typedef void strip_kernel(const strip_problem);

template <typename T, bool CHW>
static strip_kernel *colored_kernel(enum trajd_image_strip_colors colors)
{
    switch (colors) {
    case TRAJD_IMAGE_STRIP_PLAIN:
        return image_strip<T, CHW, TRAJD_IMAGE_STRIP_PLAIN>;
    case TRAJD_IMAGE_STRIP_STEPS:
        return image_strip<T, CHW, TRAJD_IMAGE_STRIP_STEPS>;
    default:
        return image_strip<T, CHW, TRAJD_IMAGE_STRIP_ORDERED>;
    }
}

template <typename T>
static strip_kernel *kernel_of(const struct trajd_image_program *program,
                               enum trajd_image_strip_colors colors)
{
    return program->layout == TRAJD_IMAGE_CHW ? colored_kernel<T, true>(colors)
                                              : colored_kernel<T, false>(colors);
}

extern "C" int trajd_image_launch_strip(const struct trajd_image_program *program,
                                        const struct trajd_image_strip *strip,
                                        const struct trajd_image_launch *launch, void *stream)
{
    const strip_problem problem = {*program, *strip, launch->records, launch->record_bytes,
                                   (uint32_t)((UINT64_C(1) << 32) / strip->groups + 1)};
    strip_kernel *kernel = kernel_for(program, [&](auto element) {
        return kernel_of<decltype(element)>(program, strip->colors);
    });
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)launch->block_shared_bytes);

    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = program->mean_count ? strip->blocks : 1;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(strip->blocks, launch->count);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = strip->shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return code ? (int)code : (int)cudaLaunchKernelEx(&config, kernel, problem);
}
