/* Crops, flips and colours, in one launch.
 *
 * Math      augment.h and image_finish.h. The crops and flips of a frame make one window of it.
 * Shapes    u8 of 3 channels; up to 4 colour steps with at most one contrast; any layout and type.
 * Requires  sources at multiples of 16 bytes (bulk loads), sm_90.
 * Moves     the source rows from the first pixel of the window to the last one, once, and the output
 *           once.
 * Threads   a block takes rows of one frame: one thread loads them with one bulk copy into shared
 *           memory, then a thread makes 4 pixels side by side. With a contrast, the blocks of a frame
 *           are a cluster. They make the steps before it once more to add up its mean, and read each
 *           other's sums.
 * Numerics  colours from 0 to 1 in float32 with fused multiply-add, clipped by the instruction itself.
 *           Within one level of the CPU. Without colours, the same bytes.
 * Chosen    for prepared frames that are cropped, mirrored or coloured. */
#include <cooperative_groups.h>

#include "kernels/cuda/bulk.cuh"
#include "kernels/image/cuda/image_launch.h"
#include "kernels/image/cuda/picture_out.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define HEAD_BYTES 128
#define ROUNDS 12582912.0F /* 1.5 * 2^23: adding it rounds to a whole number */

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
    float about; /* (1 - factor of the contrast) * mean */
};

struct strip_head {
    uint64_t barrier;
    float warps[WARPS];
    float sum;
    strip_colors colors;
};

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

__device__ __forceinline__ float grey(const float (&v)[3])
{
    return fmaf(0.114F, v[2], fmaf(0.587F, v[1], 0.2989F * v[0]));
}

/* 1 / x within 1 unit in the last place, by one instruction. */
__device__ __forceinline__ float reciprocal(float x)
{
    float result;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* Returns a where the condition holds, else b, without a branch. */
__device__ __forceinline__ float choose(bool condition, float a, float b)
{
    float result;

    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
        : "=f"(result)
        : "f"(a), "f"(b), "r"((uint32_t)condition));
    return result;
}

/* With k the hue in sixths of the circle, from -3 to 3 around red. augment_color.c has the same
 * formula with a hue from 0 to 6. Here the channels are sorted first, which needs no branch. */
__device__ __forceinline__ void turn_hue(float (&v)[3], float shift)
{
    const float high = fmaxf(v[1], v[2]), low = fminf(v[1], v[2]);
    const float most = fmaxf(v[0], high), middle = fminf(v[0], high);
    const float base = choose(v[1] < v[2], -6, 0);
    const float from = choose(v[0] < high, -2 - base, base);
    const float range = most - fminf(middle, low);
    const float hue = fabsf(fmaf(middle - low, reciprocal(range + 1e-20F), from)) + 6 * shift;
    const float turns = fmaf(hue, 1.0F / 6, ROUNDS) - ROUNDS; /* the nearest whole number */
    const float k = fmaf(-6, turns, hue);

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

/* The first `count` colour steps of 4 pixels, from lifted bytes to 0 to 1. The loop is not unrolled:
 * its body, a step for all four, fits into the instruction cache. */
__device__ __forceinline__ void change_four(const strip_colors &colors, uint32_t count,
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
                turn_hue(v[i], factor);
        } else if (kind == TRAJD_AUGMENT_SATURATION) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                blend(factor, (1 - factor) * grey(v[i]), v[i]);
        } else {
            const float other = kind == TRAJD_AUGMENT_CONTRAST ? colors.about : 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                blend(factor, other, v[i]);
        }
    }
}

/* Loads 4 pixels, lifted, of which the first has its first byte at `at` of shared memory. */
__device__ __forceinline__ void load_four(const char *memory, uint32_t at, float (&lifted)[4][3])
{
    const uint32_t *words = (const uint32_t *)(memory + (at & ~3U));
    const uint32_t bits = (at & 3) * 8;
    const uint32_t a = words[0], b = words[1], c = words[2], d = words[3];
    const uint32_t w0 = __funnelshift_r(a, b, bits), w1 = __funnelshift_r(b, c, bits),
                   w2 = __funnelshift_r(c, d, bits);

    lifted[0][0] = lift<0>(w0);
    lifted[0][1] = lift<1>(w0);
    lifted[0][2] = lift<2>(w0);
    lifted[1][0] = lift<3>(w0);
    lifted[1][1] = lift<0>(w1);
    lifted[1][2] = lift<1>(w1);
    lifted[2][0] = lift<2>(w1);
    lifted[2][1] = lift<3>(w1);
    lifted[2][2] = lift<0>(w2);
    lifted[3][0] = lift<1>(w2);
    lifted[3][1] = lift<2>(w2);
    lifted[3][2] = lift<3>(w2);
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
 * first 16 of the memory are room for groups that reach beyond a row. */
__device__ __forceinline__ uint32_t load_rows(char *memory, uint64_t *barrier, const char *source,
                                              uint64_t begin, uint64_t end)
{
    const uint64_t aligned = begin & ~UINT64_C(15);

    if (threadIdx.x == 0) {
        const uint32_t bytes = end > begin ? (uint32_t)((end - aligned + 15) & ~UINT64_C(15)) : 0;
        barrier_init(barrier, 1);
        bulk_fence();
        barrier_arrive_expecting(barrier, bytes);
        if (bytes)
            bulk_load(memory + 16, source + aligned, bytes, barrier);
    }
    __syncthreads();
    barrier_wait(barrier, 0);
    return (uint32_t)(begin - aligned) + 16;
}

/* The row of the block that an item belongs to. */
__device__ __forceinline__ uint32_t row_of(const strip_problem &problem, uint32_t item)
{
    return problem.strip.groups == 1 ? item : __umulhi(item, problem.groups_reciprocal);
}

/* Sets what the contrast is about: (1 - factor) * the mean grey of the frame as it is before. All blocks
 * of the cluster take part. */
__device__ __forceinline__ void add_up(const strip_problem &problem, const rows &r,
                                       uint32_t row_count, strip_head *head)
{
#if __CUDA_ARCH__ >= 900 /* image_choose.c picks it nowhere else */
    namespace cg = cooperative_groups;
    cg::cluster_group cluster = cg::this_cluster();
    const uint32_t count = row_count * problem.strip.groups;
    const uint32_t contrast = (uint32_t)head->colors.contrast;
    float sum = 0, total = 0;

    for (uint32_t item = threadIdx.x; item < count; item += THREADS) {
        const uint32_t row = row_of(problem, item);
        const uint32_t x = (item - row * problem.strip.groups) * 4;
        float v[4][3];
        load_group(r, row, x, v);
        change_four(head->colors, contrast, v);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum += x + i < r.columns ? grey(v[i]) : 0;
    }
    for (int lane = 16; lane; lane /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, lane);
    if (threadIdx.x % 32 == 0)
        head->warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < WARPS; i++)
            total += head->warps[i];
        head->sum = total;
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        total = 0;
        for (uint32_t i = 0; i < cluster.num_blocks(); i++)
            total += *cluster.map_shared_rank(&head->sum, i);
        total /= (float)problem.program.height * (float)problem.program.width;
        head->colors.about = (1 - head->colors.factors[contrast]) * total;
    }
    __syncthreads();
#endif
}

template <typename T, bool CHW, bool COLORS>
__global__ void __launch_bounds__(THREADS, COLORS ? 5 : 6)
    picture_strip(const __grid_constant__ strip_problem problem)
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
    rows r = {memory + HEAD_BYTES, 0, row_bytes, w.is_flipped, p.width};

    if (COLORS && threadIdx.x == 32)
        open_colors(p, values, &head->colors);
    r.first =
        load_rows(memory + HEAD_BYTES, &head->barrier, (const char *)record->source, begin,
                  row_count ? begin + (uint64_t)(row_count - 1) * row_bytes + p.width * 3 : begin);
    if (COLORS && head->colors.contrast >= 0) /* the same for all blocks of a frame */
        add_up(problem, r, row_count, head);
    out_tensor<T> tensor = open_tensor<T, 4>(p, record->output);
    const uint32_t count = row_count * problem.strip.groups;
    keep_channels(tensor);
    for (uint32_t item = threadIdx.x; item < count; item += THREADS) {
        const uint32_t row = row_of(problem, item);
        const uint32_t x = (item - row * problem.strip.groups) * 4;
        float v[4][3];
        load_group(r, row, x, v);
        if (COLORS) {
            change_four(head->colors, head->colors.count, v);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < 3; c++)
                    v[i][c] = fmaf(v[i][c], 255, TWO_23);
        }
        store_pixels<T, CHW, 4>(tensor, first_row + row, x, v);
    }
    if (COLORS && head->colors.contrast >= 0) /* others read this block's sum until here */
        cooperative_groups::this_cluster().sync();
#endif
}

typedef void strip_kernel(const strip_problem);

template <typename T> static strip_kernel *kernel_of(const struct trajd_image_program *program)
{
    const bool has_colors = program->passes[0].end > program->passes[0].colors;

    if (program->layout == TRAJD_IMAGE_CHW)
        return has_colors ? picture_strip<T, true, true> : picture_strip<T, true, false>;
    return has_colors ? picture_strip<T, false, true> : picture_strip<T, false, false>;
}

static strip_kernel *typed_kernel(const struct trajd_image_program *program)
{
    switch (program->type) {
    case TRAJD_U8:
        return kernel_of<uint8_t>(program);
    case TRAJD_F16:
        return kernel_of<__half>(program);
    case TRAJD_BF16:
        return kernel_of<__nv_bfloat16>(program);
    default:
        return kernel_of<float>(program);
    }
}

extern "C" int trajd_image_launch_strip(const struct trajd_image_program *program,
                                        const struct trajd_image_strip *strip,
                                        const struct trajd_image_launch *launch, void *stream)
{
    const strip_problem problem = {*program, *strip, launch->records, launch->record_bytes,
                                   (uint32_t)((UINT64_C(1) << 32) / strip->groups + 1)};
    strip_kernel *kernel = typed_kernel(program);
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
